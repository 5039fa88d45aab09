//! Where a file lies on its device: FS_IOC_FIEMAP.
#![expect(
    unsafe_code,
    reason = "ioctl(2) with FS_IOC_FIEMAP is not wrapped by rustix"
)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;

/// Bytes of a file that lie together on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Offset in the file, bytes.
    pub logical: u64,
    /// Offset on the device, bytes.
    pub physical: u64,
    /// Length, bytes.
    pub len: u64,
    /// Reserved and never written: reads as zeros.
    pub unwritten: bool,
}

/// `_IOWR('f', 11, struct fiemap)`, the header being 32 bytes long.
const FS_IOC_FIEMAP: libc::Ioctl = 0xC020_660B;
/// Write dirty pages first, so that delayed allocation has happened.
const FIEMAP_FLAG_SYNC: u32 = 1;
const FIEMAP_EXTENT_LAST: u32 = 1;
const FIEMAP_EXTENT_UNWRITTEN: u32 = 0x800;
/// Extents asked for at a time.
const BATCH: usize = 64;
/// Calls before a file counts as endless: a quarter of a million extents.
const CALLS_MAX: usize = 4096;

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct RawExtent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

#[repr(C)]
struct Request {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
    extents: [RawExtent; BATCH],
}

const _: () = assert!(size_of::<RawExtent>() == 56 && size_of::<Request>() == 32 + 56 * BATCH);

/// The extents of a file in the order of its bytes, those that touch on the device joined (ext4
/// cuts its own at 128 MiB). Dirty pages are written first. Holes are left out.
///
/// # Errors
/// What the kernel says: the file system may not support it (`EOPNOTSUPP`).
pub fn extents(file: &File) -> io::Result<Vec<Extent>> {
    let mut found: Vec<Extent> = Vec::new();
    let mut start = 0;
    for _ in 0..CALLS_MAX {
        let batch = ask(file, start)?;
        for raw in &batch {
            let extent = Extent {
                logical: raw.logical,
                physical: raw.physical,
                len: raw.length,
                unwritten: raw.flags & FIEMAP_EXTENT_UNWRITTEN != 0,
            };
            match found.last_mut() {
                Some(last) if touches(last, &extent) => {
                    last.len = last.len.saturating_add(extent.len)
                }
                _ => found.push(extent),
            }
        }
        let Some(last) = batch.last() else {
            return Ok(found);
        };
        if last.flags & FIEMAP_EXTENT_LAST != 0 {
            return Ok(found);
        }
        start = last.logical.saturating_add(last.length);
    }
    Err(io::Error::other("more extents than any block file has"))
}

/// Whether `next` continues `last` both in the file and on the device.
fn touches(last: &Extent, next: &Extent) -> bool {
    last.logical.checked_add(last.len) == Some(next.logical)
        && last.physical.checked_add(last.len) == Some(next.physical)
        && last.unwritten == next.unwritten
}

fn ask(file: &File, start: u64) -> io::Result<Vec<RawExtent>> {
    let mut request = Request {
        start,
        length: u64::MAX - start,
        flags: FIEMAP_FLAG_SYNC,
        mapped_extents: 0,
        extent_count: u32::try_from(BATCH).expect("64"),
        reserved: 0,
        extents: [RawExtent::default(); BATCH],
    };
    // SAFETY: the descriptor is open as long as `file` is borrowed. The pointer is to a live struct
    // with the layout of the kernel's `struct fiemap`; its size is asserted above. As many extents
    // follow as `extent_count` says, and the kernel writes nothing beyond them.
    let rc = unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP, &raw mut request) };
    if rc != 0 {
        return Err(io::Error::last_os_error());
    }
    let mapped = usize::try_from(request.mapped_extents).unwrap_or(BATCH);
    Ok(request.extents[..mapped.min(BATCH)].to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt as _;

    #[test]
    fn covers_what_was_written_and_leaves_out_holes() {
        let file = tempfile::tempfile().expect("a temporary file");
        file.write_all_at(&[1; 64 << 10], 0).expect("written");
        file.write_all_at(&[1; 4096], 1 << 20).expect("written");
        let found = match extents(&file) {
            Ok(found) => found,
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                eprintln!("skipped: the temporary directory's file system has no FIEMAP");
                return;
            }
            Err(error) => panic!("{error}"),
        };
        let bytes: u64 = found.iter().map(|extent| extent.len).sum();
        assert_eq!(bytes, (64 << 10) + 4096, "{found:?}");
        assert!(found.len() >= 2, "the hole parts them: {found:?}");
        assert_eq!(found[0].logical, 0);
    }

    #[test]
    fn joins_only_what_touches_on_both_sides() {
        let extent = |logical, physical, len| Extent {
            unwritten: false,
            logical,
            physical,
            len,
        };
        assert!(touches(&extent(0, 100, 10), &extent(10, 110, 5)));
        assert!(!touches(&extent(0, 100, 10), &extent(10, 111, 5)));
        assert!(!touches(&extent(0, 100, 10), &extent(20, 110, 5)));
        assert!(!touches(&extent(u64::MAX, 100, 10), &extent(9, 110, 5)));
    }
}
