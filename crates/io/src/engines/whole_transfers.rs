//! Reads and writes of any length by calls that may transfer less.

use std::fs::File;
use std::io::IoSlice;
use std::ops::Range;

use bytes::Bytes;
use rustix::io::{Errno, pread, pwrite, pwritev};

/// Buffers passed to the kernel in one call; Linux takes no more than 1024 (`IOV_MAX`).
const IOV_MAX: usize = 1024;

/// `offset` moved on by `done` bytes of a transfer whose range was checked.
pub(super) fn at(offset: u64, done: usize) -> u64 {
    offset + u64::try_from(done).expect("usize fits in u64 on Linux")
}

/// Reads until `target` is full or the file ends.
pub(super) fn read_fully(file: &File, target: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let mut done = 0;
    while done < target.len() {
        match pread(file, &mut target[done..], at(offset, done)) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(done)
}

/// Writes all of `rest`, at most `call_max` bytes in a call. Gives what was written before the
/// error, if there is one.
pub(super) fn write_fully(
    file: &File,
    mut rest: &mut [IoSlice<'_>],
    offset: u64,
    call_max: usize,
) -> (usize, Result<(), Errno>) {
    let mut done = 0_usize;
    while !rest.is_empty() {
        match write_some(file, rest, at(offset, done), call_max) {
            // Never on Linux for a length above 0; not to loop on.
            Ok(0) => return (done, Err(Errno::IO)),
            Ok(n) => {
                done += n;
                IoSlice::advance_slices(&mut rest, n);
            }
            Err(Errno::INTR) => {}
            Err(errno) => return (done, Err(errno)),
        }
    }
    (done, Ok(()))
}

/// One call, for as many of the buffers as fit into `max` bytes.
fn write_some(file: &File, rest: &[IoSlice<'_>], at: u64, max: usize) -> Result<usize, Errno> {
    let mut bytes = 0;
    let fit = rest.iter().take(IOV_MAX).take_while(|buf| {
        bytes += buf.len();
        bytes <= max
    });
    match fit.count() {
        0 => pwrite(file, &rest[0][..max], at),
        n => pwritev(file, &rest[..n], at),
    }
}

/// At most `len` bytes of `bufs` after the first `skip`: the ranges of buffers that have some.
pub(super) fn parts<'a>(
    bufs: &[&'a Bytes],
    mut skip: usize,
    mut len: usize,
) -> impl Iterator<Item = (&'a Bytes, Range<usize>)> {
    bufs.iter().filter_map(move |buf| {
        let from = skip.min(buf.len());
        skip -= from;
        let n = len.min(buf.len() - from);
        len -= n;
        (n > 0).then_some((*buf, from..from + n))
    })
}

/// As [`parts`], as the kernel takes them.
pub(super) fn slices<'a>(bufs: &[&'a Bytes], skip: usize, len: usize) -> Vec<IoSlice<'a>> {
    let parts = parts(bufs, skip, len);
    parts
        .map(|(buf, range)| IoSlice::new(&buf[range]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_of_a_range_skip_and_stop() {
        let (a, b) = (Bytes::from_static(b"abc"), Bytes::from_static(b"defg"));
        let empty = Bytes::new();
        let bufs = [&a, &empty, &b];
        let cut = |skip, len| -> Vec<Vec<u8>> {
            let slices = slices(&bufs, skip, len);
            slices.iter().map(|s| s.to_vec()).collect()
        };
        assert_eq!(cut(0, 7), [b"abc".to_vec(), b"defg".to_vec()]);
        assert_eq!(cut(2, 2), [b"c".to_vec(), b"d".to_vec()]);
        assert_eq!(cut(3, 9), [b"defg".to_vec()]);
        assert!(cut(7, 1).is_empty());
    }
}
