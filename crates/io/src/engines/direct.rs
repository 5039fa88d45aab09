//! `direct`: large transfers around the page cache (`O_DIRECT`), on the disk's threads.
//!
//! Better than `posix` where much is written that is not read again soon. There is no copy and no
//! page cache to fill and to empty, and bytes reach the device as they were handed in. Worse for
//! small writes, which it passes to the page cache, and where the cache would have served the
//! next reader. A descriptor from [`fd`](crate::EngineFile::fd) reads through the cache.
//!
//! A completed large write is on the device, but durable only after a sync. The device may cache
//! it, and the extents that point to it are metadata.

use std::path::Path;

use super::around_cache::DirectLimits;
use super::regular_file::RegularFile;
use crate::blocking_engine::BlockingEngine;
use crate::buffer::ALIGNMENT;
use crate::error::IoError;
use crate::types::{Capabilities, OpenMode};

/// `O_DIRECT` on threads. See the [module](self).
#[derive(Debug)]
pub(super) struct DirectIo(pub(super) DirectLimits);

impl BlockingEngine for DirectIo {
    type File = RegularFile;

    fn name(&self) -> &str {
        "direct"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            page_cache: self.0.write_min == usize::MAX,
            memory_alignment: ALIGNMENT,
            descriptor: true,
            keeps_data: true,
            stubs: false,
        }
    }

    fn open(&self, path: &Path, mode: OpenMode) -> Result<RegularFile, IoError> {
        RegularFile::open(path, mode, Some(self.0))
    }
}
