//! `direct`: large transfers around the page cache (`O_DIRECT`), on the disk's threads.
//!
//! Better than `posix` where much is written that is not read again soon: no copy, no page cache
//! to fill and to empty, and what is written reaches the device as it was handed in. Worse for
//! small writes, which it passes to the page cache, and where the cache would have served the
//! next reader. A descriptor from [`fd`](crate::EngineFile::fd) reads through the cache.
//!
//! A completed large write is on the device, but durable only after a sync: the device may cache
//! it, and the extents that point to it are metadata.

use std::path::Path;
use std::sync::Arc;

use super::EngineConfig;
use super::threaded::Threaded;
use super::unbuffered::{DirectLimits, UnbufferedFile};
use crate::buffer::ALIGNMENT;
use crate::class::IoClass;
use crate::disk::Disk;
use crate::engine::{Capabilities, Engine, EngineFile, IoFuture, OpenMode};
use crate::error::{IoError, IoOp};
use crate::meta::Meta;

/// What both engines around the page cache declare.
pub(super) fn capabilities(limits: DirectLimits) -> Capabilities {
    Capabilities {
        preferred_alignment: ALIGNMENT,
        page_cache: limits.write_min == usize::MAX,
        memory_alignment: ALIGNMENT,
        descriptor: true,
        kernel_visible: true,
        survives_kill: true,
        durable_sync: true,
        keeps_data: true,
    }
}

/// `O_DIRECT` on threads. See the [module](self).
#[derive(Debug)]
pub struct DirectIo {
    disk: Arc<Disk>,
    limits: DirectLimits,
}

impl DirectIo {
    /// The engine on the disk of `config`.
    #[must_use]
    pub fn new(config: &EngineConfig) -> Self {
        Self {
            disk: Arc::clone(&config.disk),
            limits: config.direct,
        }
    }
}

impl Engine for DirectIo {
    fn name(&self) -> &'static str {
        "direct"
    }

    fn capabilities(&self) -> Capabilities {
        capabilities(self.limits)
    }

    fn disk(&self) -> &Arc<Disk> {
        &self.disk
    }

    fn open(
        &self,
        path: &Path,
        mode: OpenMode,
        class: IoClass,
    ) -> IoFuture<Result<Arc<dyn EngineFile>, IoError>> {
        let (disk, limits) = (Arc::clone(&self.disk), self.limits);
        self.disk.run(class, IoOp::Open, path, move |path| {
            let file = UnbufferedFile::open(path, mode, limits)?;
            let file = Arc::new(disk.aside(path, file));
            Ok(Arc::new(Threaded::new(file, disk, class)) as Arc<dyn EngineFile>)
        })
    }

    fn meta(&self, class: IoClass) -> Meta {
        Meta::new(Arc::clone(&self.disk), class)
    }
}
