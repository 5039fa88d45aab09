//! The engines, and their names.
//!
//! - `around_cache`: the way around the page cache
//! - `choose`: the engine for a directory
//! - `describe`: what each engine is for, and what an acknowledgement rests on with it
//! - `direct`: `direct`: large transfers around the page cache (`O_DIRECT`), on the disk's threads
//! - `inode`: what tells one file from another, whatever its names
//! - `null`: `null`: drops what is written
//! - `plugin`: `plugin:/path.so`: an engine from outside
//! - `posix`: `posix`: ordinary reads and writes through the page cache, on the disk's threads
//! - `queue_of_writes`: the writes of one handle: one thread at a time carries them out
//! - `read_again`: which parts of an open file were read around the page cache before
//! - `regular_file`: a regular file: through the page cache, and around it where the engine says so
//! - `stub`: stub files: for engines whose bytes are not in the kernel's files
//! - `threaded`: from blocking calls to the contract of `Engine` and `EngineFile`
//! - `whole_transfers`: reads and writes of any length by calls that may transfer less

mod around_cache;
mod choose;
mod describe;
mod direct;
mod inode;
mod null;
pub mod plugin;
mod posix;
mod queue_of_writes;
mod read_again;
mod regular_file;
mod stub;
mod threaded;
mod whole_transfers;

use std::path::Path;
use std::sync::Arc;

pub use around_cache::DirectLimits;
pub use choose::{Choice, block_device_of, check_device, engine_for};
pub use describe::{EngineDescription, describe_plugin, engine_descriptions};
pub use plugin::{PLUGIN_PREFIX, load_plugin_for_trial, plugin_parts, try_plugins_by};
pub use stub::{DeviceCheck, must_have_device};

use crate::blocking_engine::BlockingEngine;
use crate::disk::Disk;
use crate::engine::Engine;
use crate::error::{IoError, IoErrorKind, IoOp};
use threaded::OnThreads;

/// What an engine is built from. Settings that an engine does not have are ignored by it.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// The disk that its operations run on.
    pub disk: Arc<Disk>,
    /// `direct`: which transfers go around the page cache.
    pub direct: DirectLimits,
    /// An engine on a device takes it over whatever is on it. For trying out engines.
    pub wipe_device: bool,
}

impl EngineConfig {
    /// The defaults on `disk`.
    #[must_use]
    pub fn new(disk: Arc<Disk>) -> Self {
        Self {
            disk,
            direct: DirectLimits::default(),
            wipe_device: false,
        }
    }
}

/// Name of the engine that the calibration of a volume proposes, or without one what works there.
pub const ENGINE_AUTO: &str = "auto";

/// Name of an engine of 0.1 that a configuration or a calibration may still give. `direct` does
/// what it did.
pub const ENGINE_REMOVED: &str = "uring";

/// Names that [`engine_by_name`] knows. Besides, `plugin:/path.so` for [`engine_for`].
pub const ENGINE_NAMES: [&str; 3] = ["posix", "direct", "null"];

/// Builds the engine that the configuration names.
///
/// # Errors
/// `Invalid` for an unknown name; the message lists the known ones.
pub fn engine_by_name(name: &str, config: &EngineConfig) -> Result<Arc<dyn Engine>, IoError> {
    match name {
        "posix" => Ok(on_threads(posix::Posix, config)),
        "direct" => Ok(on_threads(direct::DirectIo(config.direct), config)),
        "null" => Ok(on_threads(null::Null::default(), config)),
        _ => Err(IoError::new(
            IoErrorKind::Invalid,
            IoOp::Open,
            Path::new(config.disk.name()),
            format!(
                "no engine is named {name:?}; known are {}",
                ENGINE_NAMES.join(", ")
            ),
        )),
    }
}

fn on_threads(engine: impl BlockingEngine, config: &EngineConfig) -> Arc<dyn Engine> {
    Arc::new(OnThreads {
        disk: Arc::clone(&config.disk),
        engine: Arc::new(engine),
    })
}
