//! Whether a part of a file is in the page cache.

use std::io::IoSliceMut;
use std::os::fd::BorrowedFd;

use rustix::io::{ReadWriteFlags, preadv2};

use crate::system_calls;

/// Size of a page of the page cache that residency is counted in; larger on some architectures,
/// where `is_resident` then never says yes.
const PAGE: u64 = 4096;

/// Whether all of the range can be read without waiting for the device, as far as that can be told
/// before: pages may be evicted in the next moment. `false` when it cannot be told (Linux before
/// 6.5, sandboxes).
///
/// Costs three system calls and a walk over the range's pages; does not block.
#[must_use]
pub fn is_resident(fd: BorrowedFd<'_>, offset: u64, len: u64) -> bool {
    let Some(last) = len.checked_sub(1).and_then(|n| offset.checked_add(n)) else {
        return len == 0;
    };
    let pages = last / PAGE - offset / PAGE + 1;
    // Pages that are being read count as cached. The kernel reads ahead from front to back, so that
    // the ends tell about what is between them.
    system_calls::cached_pages(fd, offset, len).is_ok_and(|cached| cached >= pages)
        && readable_at_once(fd, last)
        && readable_at_once(fd, offset)
}

/// Whether the byte at `offset` can be read without waiting.
fn readable_at_once(fd: BorrowedFd<'_>, offset: u64) -> bool {
    let mut byte = [0];
    let mut into = [IoSliceMut::new(&mut byte)];
    matches!(
        preadv2(fd, &mut into, offset, ReadWriteFlags::NOWAIT),
        Ok(1)
    )
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd as _;

    use super::*;

    /// A clean file of `len` bytes.
    fn clean_file(len: usize) -> (tempfile::TempDir, File) {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("file");
        std::fs::write(&path, vec![7; len]).expect("written");
        let file = File::open(path).expect("there");
        file.sync_all().expect("clean");
        (dir, file)
    }

    fn drop_pages(file: &File, offset: u64, len: u64) {
        rustix::fs::fadvise(
            file,
            offset,
            std::num::NonZeroU64::new(len),
            rustix::fs::Advice::DontNeed,
        )
        .expect("a hint");
    }

    #[test]
    fn ranges_are_resident_until_a_page_is_dropped() {
        let (_dir, file) = clean_file(1 << 20);
        let fd = file.as_fd();
        if system_calls::cached_pages(fd, 0, 0).is_err() {
            eprintln!("skipped: this kernel has no cachestat");
            return;
        }
        assert!(is_resident(fd, 0, 1 << 20));
        assert!(is_resident(fd, 4095, 2), "two bytes in two pages");
        assert!(is_resident(fd, 77, 0), "nothing is always there");
        drop_pages(&file, 0, 0);
        if system_calls::cached_pages(fd, 0, 0) != Ok(0) {
            eprintln!("skipped: this file system keeps its pages");
            return;
        }
        assert!(!is_resident(fd, 0, 1));
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut [0; 100], 0).expect("read");
        assert!(is_resident(fd, 10, 20), "read again");
        drop_pages(&file, 512 << 10, 512 << 10);
        assert!(!is_resident(fd, 0, 1 << 20), "the second half is gone");
    }

    #[test]
    fn what_is_beyond_the_end_is_not_resident() {
        let (_dir, file) = clean_file(100);
        assert!(
            is_resident(file.as_fd(), 0, 100)
                || system_calls::cached_pages(file.as_fd(), 0, 0).is_err()
        );
        assert!(!is_resident(file.as_fd(), 100, 1));
        assert!(!is_resident(file.as_fd(), u64::MAX, 2));
    }
}
