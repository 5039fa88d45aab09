//! Disks: reading and writing files by exchangeable engines, bounded per physical device.
//!
//! This crate knows bytes, files and devices, and has never heard of HDFS.
//!
//! A layer uses those above it in this list, and never one below:
//!
//! 1. What all use. [`error`]: [`IoError`], whose kind says what to do. [`Means`]: what the process
//!    may run out of; [`patiently`] waits for it. `types`: what calls say and answer. [`buffer`]:
//!    [`AlignedBuf`] and the [`BufferPool`] with a budget. [`one_line_process`]: work that may end
//!    its process, done in another one.
//! 2. [`disk`]: one [`Disk`] per physical device: bounded queues per [`IoClass`], threads. It knows
//!    work and places on a device, no files.
//! 3. `blocking`: what sets one engine apart from another, as calls that block. [`DataFiles`]:
//!    files for blocking code, whichever engine keeps their bytes.
//! 4. [`names_and_directories`]: names, directories, space, locks, small files, all off the async
//!    threads.
//! 5. [`engine`]: the contract: [`Engine`], [`EngineFile`]; when a write is visible, when it is
//!    durable, what dropping does not do.
//! 6. [`engines`]: the engines by name ([`engine_by_name`]), and which one works in a directory
//!    ([`engine_for`]). [`decorators`]: metering, faults, around any engine. [`WriteBehind`] and
//!    [`mod@write_pair`]: what callers do with any file.
//! 7. [`calibrate`]: what a volume's device was measured to do, kept beside the data, and what a
//!    disk is told of it.
//!
//! Limits: [`DiskConfig`] (operations per class, threads), the budget of each `BufferPool`,
//! [`BUFFER_MAX`] per buffer, the caller's limit on small files. A full
//! queue or pool makes its caller wait; nothing grows.

mod allocator;
mod blocking_engine;
pub mod buffer;
pub mod calibrate;
mod class;
mod data_files;
pub mod decorators;
mod directory_lock;
pub mod disk;
pub mod engine;
pub mod engines;
pub mod error;
mod fiemap;
mod known_without_disk;
mod latency;
mod locked_file;
pub mod locks;
mod mapped_memory;
mod means;
mod mount;
pub mod names_and_directories;
pub mod one_line_process;
mod read_into_cache;
mod residency;
mod restart_on_panic;
mod shared_memory;
mod space;
mod system_calls;
mod thread_limits;
mod types;
mod wait_out_shortage;
mod write_behind;
mod write_pair;

pub use allocator::PatientAllocator;
pub use buffer::{
    ALIGNMENT, AlignedBuf, BUFFER_MAX, BufferPool, ReservedRoom, WRITE_BUFFER, WriteBuffers,
};
pub use calibrate::DiskSettings;
pub use class::IoClass;
pub use data_files::{DataFile, DataFiles};
pub use directory_lock::RecordLock;
pub use disk::{DeviceId, Disk, DiskConfig, DiskStats, Disks, MayWait, Media, together};
pub use engine::{Engine, EngineFile};
pub use engines::{
    DeviceCheck, DirectLimits, ENGINE_AUTO, ENGINE_NAMES, ENGINE_REMOVED, EngineConfig,
    EngineDescription, PLUGIN_PREFIX, block_device_of, check_device, describe_plugin,
    engine_by_name, engine_descriptions, engine_for, load_plugin_for_trial, must_have_device,
    plugin_parts, try_plugins_by,
};
pub use error::{IoError, IoErrorKind, IoOp};
pub use fiemap::{Extent, extents};
pub use known_without_disk::{Known, known};
pub use locked_file::{
    LockedFile, in_pages, locked_memory, locked_memory_max, mappings_max, raise_locked_memory_max,
};
pub use means::{Means, descriptors_max, descriptors_open, is_of_the_disk};
pub use mount::{Mount, mount_of};
pub use names_and_directories::replace as replace_file;
pub use names_and_directories::{Meta, MetaHook};
pub use residency::is_resident;
pub use restart_on_panic::{services_broken, told_if_broken, unbroken};
pub use shared_memory::{SharedBits, SharedMemory};
pub use space::Space;
pub use system_calls::{clock_is_synchronised, shut_down_file_system, write_back_file};
pub use thread_limits::has_room_for_threads;
pub use types::{Advice, Capabilities, Completion, IoFuture, OpenMode, SyncKind};
pub use wait_out_shortage::patiently;
pub use write_behind::{CacheHints, WriteBehind};
pub use write_pair::{FileWrite, write_pair};
