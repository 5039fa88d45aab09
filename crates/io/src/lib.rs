//! Disks: reading and writing files by exchangeable engines, bounded per physical device.
//!
//! This crate knows bytes, files and devices, and has never heard of HDFS.
//!
//! - [`engine`]: the contract: [`Engine`], [`EngineFile`], [`Completion`]; when a write is visible,
//!   when it is durable, what dropping does not do.
//! - [`engines`]: the engines by name ([`engine_by_name`]).
//! - [`disk`]: one [`Disk`] per physical device: bounded queues per [`IoClass`], threads.
//! - [`decorators`]: metering, faults, around any engine.
//! - [`meta`]: names, directories, space, locks, small files, all off the async threads.
//! - [`DataFiles`]: files for blocking code, whichever engine keeps their bytes.
//! - [`calibrate`]: what a volume's device was measured to do, kept beside the data.
//! - [`buffer`]: [`AlignedBuf`] and the [`BufferPool`] with a budget.
//! - [`apart`]: work that may end its process, done in another one.
//! - [`error`]: [`IoError`], whose kind says what to do.
//! - [`Means`]: what the process may run out of; [`patiently`] waits for it.
//!
//! Limits: [`DiskConfig`] (operations per class, threads), the budget of each `BufferPool`,
//! [`BUFFER_MAX`] per buffer, the caller's limit on small files. A full
//! queue or pool makes its caller wait; nothing grows.

mod allocator;
pub mod apart;
mod behind;
pub mod buffer;
pub mod calibrate;
mod class;
mod data_files;
pub mod decorators;
pub mod disk;
pub mod engine;
pub mod engines;
pub mod error;
mod fiemap;
mod known;
mod latency;
mod load;
mod lock;
pub mod locks;
mod mapping;
mod means;
pub mod meta;
mod mount;
mod pair;
mod residency;
mod shortage;
mod sys;

pub use allocator::PatientAllocator;
pub use behind::{CacheHints, WriteBehind};
pub use buffer::{
    ALIGNMENT, AlignedBuf, BUFFER_MAX, BufferPool, ReservedRoom, WRITE_BUFFER, WriteBuffers,
};
pub use class::IoClass;
pub use data_files::{DataFile, DataFiles};
pub use disk::{DeviceId, Disk, DiskConfig, DiskSettings, DiskStats, Disks, together};
pub use engine::{
    Advice, Capabilities, Completion, Engine, EngineFile, IoFuture, OpenMode, SyncKind,
};
pub use engines::{
    DirectLimits, ENGINE_AUTO, ENGINE_NAMES, ENGINE_REMOVED, EngineConfig, EngineDescription,
    PLUGIN_PREFIX, describe_plugin, engine_by_name, engine_descriptions, engine_for,
    load_plugin_for_trial, plugin_parts, try_plugins_by,
};
pub use error::{IoError, IoErrorKind, IoOp};
pub use fiemap::{Extent, extents};
pub use known::{Known, known};
pub use lock::RecordLock;
pub use means::{Means, descriptors_max, descriptors_open, is_of_the_disk};
pub use meta::{Meta, MetaHook, Space};
pub use mount::{Mount, mount_of};
pub use pair::{FileWrite, write_pair};
pub use residency::is_resident;
pub use shortage::patiently;
pub use sys::{shut_down_file_system, write_back_file};
