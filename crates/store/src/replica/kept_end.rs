//! The end of a replica that a start finds whatever became of the checksum that covers it.
//!
//! A partial chunk has one checksum in the meta file. Bytes that follow replace it in place, and
//! after power loss the new one may be on the device without them. What was synced before would
//! then match no checksum. So length and checksum of a synced end that is no chunk's are kept
//! beside it, in an extended attribute of the meta file, and synced with it. What Apache's node
//! reads is as ever. An end that does not match its checksum says nothing.
//!
//! Everything here blocks.

use std::fs::File;
use std::io;

use rustix::fs::{XattrFlags, fgetxattr, fsetxattr};
use rustix::io::Errno;

use super::Tail;

/// The attribute: for each end its length (8 bytes) and checksum (4), both big-endian.
const NAME: &str = "user.hayloft.end";
/// Bytes of an end.
const END_BYTES: usize = 12;
/// The one that is promised, and the one that a sync under way is about to promise.
const ENDS_MAX: usize = 2;

/// Keeps these ends of a replica, at most two, and no others. Durable when the file is synced with
/// its inode.
///
/// Errors: of the file system, which may have no such attributes.
pub fn keep(meta: &File, ends: &[Tail]) -> io::Result<()> {
    let mut value = Vec::with_capacity(ENDS_MAX * END_BYTES);
    for end in ends.iter().take(ENDS_MAX) {
        value.extend_from_slice(&end.len.to_be_bytes());
        value.extend_from_slice(&end.crc.to_be_bytes());
    }
    Ok(fsetxattr(meta, NAME, &value, XattrFlags::empty())?)
}

/// The ends that are kept, the longest first; none where there are no such attributes.
///
/// Errors: of the file system.
pub fn kept(meta: &File) -> io::Result<Vec<Tail>> {
    let mut value = [0; ENDS_MAX * END_BYTES];
    let len = match fgetxattr(meta, NAME, &mut value[..]) {
        Ok(len) => len,
        // None, no attributes at all, or more than this node ever keeps.
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::RANGE) => return Ok(Vec::new()),
        Err(errno) => return Err(errno.into()),
    };
    let (ends, _) = value[..len].as_chunks::<END_BYTES>();
    let mut ends: Vec<Tail> = ends.iter().map(decode).collect();
    ends.sort_unstable_by_key(|end| std::cmp::Reverse(end.len));
    Ok(ends)
}

fn decode(end: &[u8; END_BYTES]) -> Tail {
    let (mut len, mut crc) = ([0; 8], [0; 4]);
    len.copy_from_slice(&end[..8]);
    crc.copy_from_slice(&end[8..]);
    Tail {
        len: u64::from_be_bytes(len),
        crc: u32::from_be_bytes(crc),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_come_back_the_longest_first() {
        let meta = tempfile::tempfile_in(".").expect("a file");
        assert_eq!(kept(&meta).expect("looks"), []);
        let (short, long) = (Tail { len: 700, crc: 1 }, Tail { len: 900, crc: 2 });
        keep(&meta, &[short]).expect("keeps");
        assert_eq!(kept(&meta).expect("looks"), [short]);
        keep(&meta, &[short, long]).expect("keeps");
        assert_eq!(kept(&meta).expect("looks"), [long, short]);
        // What is there of another's is no end.
        fsetxattr(&meta, NAME, b"else", XattrFlags::empty()).expect("sets");
        assert_eq!(kept(&meta).expect("looks"), []);
        fsetxattr(&meta, NAME, &[7; 100], XattrFlags::empty()).expect("sets");
        assert_eq!(kept(&meta).expect("looks"), []);
    }
}
