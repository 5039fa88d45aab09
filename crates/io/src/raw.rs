//! The device by itself: transfers on an io_uring of their own, without engine or scheduler. For
//! measurements of what a device can do at most; the data path does not use it.
//!
//! **Memory.** One buffer a transfer in flight, owned by [`transfers`] until the kernel has
//! answered for all of them, also after an error; if waiting for the answers itself fails, the
//! buffers are leaked rather than freed.
#![expect(
    unsafe_code,
    reason = "the kernel is handed addresses; see the memory paragraph above"
)]

use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use io_uring::{IoUring, opcode, types};

use crate::buffer::AlignedBuf;

/// Transfers in flight, at most.
const DEPTH_MAX: usize = 1024;

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RawTransfer {
    /// From the file.
    Read,
    /// To the file; what is written is of no meaning.
    Write,
}

/// Moves `size` bytes at each of `offsets`, `depth` (at least 1, at most 1024) of them in flight,
/// and tells `ended` how long each took. The file decides by its flags whether that goes around the
/// page cache.
///
/// # Errors
/// Where io_uring is refused; of the first transfer that fails or moves less than `size`, as
/// `UnexpectedEof`.
///
/// # Panics
/// When `size` is above [`BUFFER_MAX`](crate::BUFFER_MAX).
pub fn transfers(
    file: &File,
    direction: RawTransfer,
    (depth, size): (usize, usize),
    mut offsets: impl Iterator<Item = u64>,
    mut ended: impl FnMut(Duration),
) -> io::Result<()> {
    let depth = depth.clamp(1, DEPTH_MAX);
    let entries = u32::try_from(depth.next_power_of_two()).expect("at most 1024");
    let mut ring = IoUring::new(entries)?;
    let length = u32::try_from(size).map_err(|_| io::ErrorKind::InvalidInput)?;
    let fd = types::Fd(file.as_raw_fd());
    let buffer = || {
        let mut buffer = AlignedBuf::unpooled(size);
        buffer.as_mut_capacity().fill(0x5A);
        buffer
    };
    let mut buffers = ManuallyDrop::new((0..depth).map(|_| buffer()).collect::<Vec<_>>());
    let mut began = vec![Instant::now(); depth];
    let mut free: Vec<usize> = (0..depth).collect();
    let mut failed: Option<io::Error> = None;
    loop {
        while failed.is_none()
            && let Some(slot) = free.pop()
        {
            let Some(offset) = offsets.next() else {
                free.push(slot);
                break;
            };
            let memory = buffers[slot].as_mut_capacity().as_mut_ptr();
            let entry = match direction {
                RawTransfer::Read => opcode::Read::new(fd, memory, length).offset(offset).build(),
                RawTransfer::Write => opcode::Write::new(fd, memory, length)
                    .offset(offset)
                    .build(),
            };
            let entry = entry.user_data(slot as u64);
            began[slot] = Instant::now();
            // SAFETY: the memory is `length` bytes (`size`, the least capacity of each buffer) of a
            // buffer that no other entry uses: its slot was free. It is freed only when nothing is
            // in flight, see below, and the descriptor is borrowed for the whole call.
            if unsafe { ring.submission().push(&entry) }.is_err() {
                failed = Some(io::Error::other("the submission queue is full"));
                free.push(slot);
            }
        }
        if free.len() == depth {
            break;
        }
        match ring.submit_and_wait(1) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            // The kernel may still have the buffers: they are leaked.
            Err(error) => return Err(error),
        }
        for answer in ring.completion() {
            let slot = usize::try_from(answer.user_data()).expect("a slot number");
            free.push(slot);
            match usize::try_from(answer.result()) {
                Ok(n) if n == size => ended(began[slot].elapsed()),
                Ok(_) => failed = failed.or(Some(io::ErrorKind::UnexpectedEof.into())),
                Err(_) => {
                    let error = io::Error::from_raw_os_error(answer.result().saturating_neg());
                    failed = failed.or(Some(error));
                }
            }
        }
    }
    drop(ManuallyDrop::into_inner(buffers)); // Nothing is in flight.
    failed.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn a_file_is_written_and_read_in_pieces() {
        let mut file = tempfile::tempfile().expect("a file");
        let offsets = |count: u64| (0..count).map(|n| n * 8192);
        let mut took = 0;
        let moved = transfers(&file, RawTransfer::Write, (4, 8192), offsets(9), |_| {
            took += 1
        });
        if let Err(error) = moved {
            eprintln!("skipped: no io_uring here: {error}");
            return;
        }
        assert_eq!(took, 9);
        let mut written = Vec::new();
        file.read_to_end(&mut written).expect("readable");
        assert_eq!(written, vec![0x5A; 9 * 8192]);
        transfers(&file, RawTransfer::Read, (64, 8192), offsets(9), |_| {
            took += 1
        })
        .expect("read");
        assert_eq!(took, 18);
        let beyond = transfers(&file, RawTransfer::Read, (2, 8192), offsets(10), |_| ());
        let error = beyond.expect_err("the file ends before the tenth");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
