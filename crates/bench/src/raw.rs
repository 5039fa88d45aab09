//! The device by itself: transfers by threads that do nothing else, without engine or scheduler.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use hayloft_io::AlignedBuf;

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RawTransfer {
    /// From the file.
    Read,
    /// To the file; what is written is of no meaning.
    Write,
}

/// Moves `size` bytes at each of `offsets`, in their order, `depth` of them in flight; how long
/// each took. The file decides by its flags whether that goes around the page cache.
///
/// # Errors
/// Of the first transfer that fails; `UnexpectedEof` where the file ends within one.
///
/// # Panics
/// When `size` is above [`BUFFER_MAX`](hayloft_io::BUFFER_MAX).
pub(super) fn transfers(
    file: &File,
    direction: RawTransfer,
    (depth, size): (u64, usize),
    offsets: impl Iterator<Item = u64> + Send,
) -> io::Result<Vec<Duration>> {
    let offsets = Mutex::new(offsets);
    let next = || {
        offsets
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .next()
    };
    let all = Mutex::new(Vec::new());
    in_parallel(depth, &|| {
        let mut buffer = AlignedBuf::unpooled(size);
        let memory = &mut buffer.as_mut_capacity()[..size];
        memory.fill(0x5A);
        let mut took = Vec::new();
        while let Some(offset) = next() {
            let began = Instant::now();
            match direction {
                RawTransfer::Read => file.read_exact_at(memory, offset)?,
                RawTransfer::Write => file.write_all_at(memory, offset)?,
            }
            took.push(began.elapsed());
        }
        let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
        all.append(&mut took);
        Ok(())
    })?;
    Ok(all.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Runs `worker` on `count` threads; the first error of any.
pub(super) fn in_parallel(
    count: u64,
    worker: &(impl Fn() -> io::Result<()> + Sync),
) -> io::Result<()> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..count).map(|_| scope.spawn(worker)).collect();
        threads.into_iter().try_for_each(|thread| {
            let outcome = thread.join();
            outcome.unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
        })
    })
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn a_file_is_written_and_read_in_pieces() {
        let mut file = tempfile::tempfile().expect("a file");
        let offsets = |count: u64| (0..count).map(|n| n * 8192);
        let took = transfers(&file, RawTransfer::Write, (4, 8192), offsets(9)).expect("written");
        assert_eq!(took.len(), 9);
        let mut written = Vec::new();
        file.read_to_end(&mut written).expect("readable");
        assert_eq!(written, vec![0x5A; 9 * 8192]);
        let took = transfers(&file, RawTransfer::Read, (64, 8192), offsets(9)).expect("read");
        assert_eq!(took.len(), 9);
        let beyond = transfers(&file, RawTransfer::Read, (2, 8192), offsets(10));
        let error = beyond.expect_err("the file ends before the tenth");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
