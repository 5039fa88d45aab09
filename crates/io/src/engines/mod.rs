//! The engines, and their names.

mod again;
mod choose;
mod direct;
mod memory;
mod null;
mod placeholder;
mod posix;
mod threaded;
mod unbuffered;

use std::path::Path;
use std::sync::Arc;

pub use choose::{Choice, engine_for};
pub use direct::DirectIo;
pub use memory::Memory;
pub use null::Null;
pub use posix::Posix;
pub use unbuffered::DirectLimits;

use crate::disk::Disk;
use crate::engine::Engine;
use crate::error::{IoError, IoErrorKind, IoOp};

/// What an engine is built from. Settings that an engine does not have are ignored by it.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// The disk that its operations run on.
    pub disk: Arc<Disk>,
    /// `memory`: bytes of file contents it may hold; more is `NoSpace`. Default 1 GiB.
    pub memory_max: u64,
    /// `direct`: which transfers go around the page cache.
    pub direct: DirectLimits,
}

impl EngineConfig {
    /// The defaults on `disk`.
    #[must_use]
    pub fn new(disk: Arc<Disk>) -> Self {
        Self {
            disk,
            memory_max: 1 << 30,
            direct: DirectLimits::default(),
        }
    }
}

/// Name of the engine that the calibration of a volume proposes, or without one what works there.
pub const ENGINE_AUTO: &str = "auto";

/// Name of an engine of 0.1 that a configuration or a calibration may still give: `direct` does what
/// it did.
pub const ENGINE_REMOVED: &str = "uring";

/// Names that [`engine_by_name`] knows.
pub const ENGINE_NAMES: [&str; 4] = ["posix", "direct", "memory", "null"];

/// Builds the engine that the configuration names.
///
/// # Errors
/// `Invalid` for an unknown name; the message lists the known ones.
pub fn engine_by_name(name: &str, config: &EngineConfig) -> Result<Arc<dyn Engine>, IoError> {
    match name {
        "posix" => Ok(Arc::new(Posix::new(config))),
        "direct" => Ok(Arc::new(DirectIo::new(config))),
        "memory" => Ok(Arc::new(Memory::new(config))),
        "null" => Ok(Arc::new(Null::new(config))),
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
