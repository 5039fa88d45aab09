//! `posix`: ordinary reads and writes through the page cache, on the disk's threads.
//!
//! Better than `direct` where data is read again soon, or where the kernel's own write-back does
//! well (one stream, flash). Worse with many writers on rotating media: their pages reach the
//! device interleaved.
//!
//! The caller's thread tries small reads first (`preadv2` with `RWF_NOWAIT`, which never waits for
//! the device). What is not in the page cache goes to a thread of the disk.

use std::path::Path;

use super::regular_file::RegularFile;
use crate::blocking_engine::BlockingEngine;
use crate::error::IoError;
use crate::types::{Capabilities, OpenMode};

/// Page-cache I/O. See the [module](self).
#[derive(Debug)]
pub(super) struct Posix;

impl BlockingEngine for Posix {
    type File = RegularFile;

    fn name(&self) -> &str {
        "posix"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            page_cache: true,
            memory_alignment: 1,
            descriptor: true,
            keeps_data: true,
            stubs: false,
        }
    }

    fn open(&self, path: &Path, mode: OpenMode) -> Result<RegularFile, IoError> {
        RegularFile::open(path, mode, None)
    }
}
