//! What reading a file and sending it costs a program that does nothing else: no protocol, no
//! checksums, no scheduler.

use super::measure::{as_f64, rate};
use hayloft_io::AlignedBuf;
use hayloft_testkit::error::{Result, TestkitError};
use rustix::fs::{Mode, OFlags};
use rustix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::io::{Error, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// Pieces of each stream: one is sent while the others are read.
const PIECES: usize = 4;
/// Bytes of a piece.
const PIECE: usize = 4 << 20;
/// Bytes that the receiver takes at once.
const TAKEN: usize = 512 << 10;

/// What it came to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bare {
    /// MB/s, until the receivers had everything.
    pub(super) rate: f64,
    /// CPU seconds per GiB of the threads that read and send; receiving is the client's.
    pub(super) cpu: f64,
}

/// Reads the first `bytes` of the file by O_DIRECT and sends them over loopback TCP, in as many
/// parts at the same time as there are `streams` (as far as there are pieces), each read by
/// [`PIECES`] threads and sent by another one.
///
/// # Errors
/// When the file is shorter, a transfer or a socket fails.
pub(super) fn read_and_send(path: &Path, bytes: u64, streams: u32) -> Result<Bare> {
    let failed = |error: Error| TestkitError::Talk(format!("reading and sending: {error}"));
    let file = open(path, OFlags::RDONLY)?;
    let all = bytes / PIECE as u64;
    let streams = u64::from(streams).clamp(1, all.max(1)); // At least a piece for each.
    let pieces = all / streams;
    let parts: Vec<Part<'_>> = (0..streams)
        .map(|part| Part::new(&file, part * pieces, pieces))
        .collect::<std::io::Result<_>>()
        .map_err(failed)?;
    let moved = pieces * PIECE as u64 * parts.len() as u64;
    let began = Instant::now();
    let cpu = std::thread::scope(|scope| {
        let running: Vec<_> = parts
            .into_iter()
            .map(|part| scope.spawn(|| part.run()))
            .collect();
        running
            .into_iter()
            .map(joined)
            .sum::<std::io::Result<Duration>>()
    });
    let took = began.elapsed();
    let gib = as_f64(moved) / as_f64(1 << 30);
    Ok(Bare {
        rate: rate(moved, took),
        cpu: cpu.map_err(failed)?.as_secs_f64() / gib,
    })
}

pub(super) fn joined<T>(
    thread: std::thread::ScopedJoinHandle<'_, std::io::Result<T>>,
) -> std::io::Result<T> {
    let outcome = thread.join();
    outcome.unwrap_or_else(|_| Err(Error::other("a thread panicked")))
}

/// Consecutive pieces of a file, and a connection for them.
struct Part<'a> {
    file: &'a File,
    first: u64,
    count: u64,
    sender: TcpStream,
    receiver: TcpStream,
    /// Memory that was touched before.
    buffers: Vec<AlignedBuf>,
}

impl<'a> Part<'a> {
    fn new(file: &'a File, first: u64, count: u64) -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let sender = TcpStream::connect(listener.local_addr()?)?;
        let (receiver, _) = listener.accept()?;
        let buffer = |_| {
            let mut buffer = AlignedBuf::unpooled(PIECE);
            buffer.set_len(PIECE);
            buffer.as_mut_slice().fill(1);
            buffer
        };
        let buffers = (0..PIECES).map(buffer).collect();
        Ok(Self {
            file,
            first,
            count,
            sender,
            receiver,
            buffers,
        })
    }

    /// Moves all of it; the CPU time of reading and sending.
    fn run(self) -> std::io::Result<Duration> {
        let Self {
            file,
            first,
            count,
            mut sender,
            receiver,
            buffers,
        } = self;
        std::thread::scope(|scope| {
            let drain = scope.spawn(move || drain(receiver));
            let (slots, readers): (Vec<_>, Vec<_>) = (first..)
                .zip(buffers)
                .map(|(at, buffer)| {
                    let (full, filled) = sync_channel(1);
                    let (empty, emptied) = sync_channel(1);
                    let own = (at..first + count).step_by(PIECES);
                    let reader = scope.spawn(move || read(file, own, buffer, &full, &emptied));
                    ((filled, empty), reader)
                })
                .unzip();
            let began = cpu_time();
            let sent = send(&mut sender, count, &slots);
            let mut cpu = cpu_time().saturating_sub(began);
            drop((slots, sender)); // A thread that waits for more ends.
            for reader in readers {
                cpu += joined(reader)?;
            }
            joined(drain)?;
            sent.map(|()| cpu)
        })
    }
}

type Slot = (Receiver<AlignedBuf>, SyncSender<AlignedBuf>);

/// Sends `count` pieces, those of the readers in turn.
fn send(sender: &mut TcpStream, count: u64, slots: &[Slot]) -> std::io::Result<()> {
    for ((filled, empty), _) in slots.iter().cycle().zip(0..count) {
        let buffer = filled
            .recv()
            .map_err(|_| Error::other("nothing was read"))?;
        sender.write_all(buffer.as_slice())?;
        let _unless_it_was_the_last = empty.send(buffer);
    }
    Ok(())
}

/// Reads its pieces into one buffer, which comes back when it was sent; how much CPU time that
/// took.
fn read(
    file: &File,
    pieces: impl Iterator<Item = u64>,
    buffer: AlignedBuf,
    full: &SyncSender<AlignedBuf>,
    emptied: &Receiver<AlignedBuf>,
) -> std::io::Result<Duration> {
    let began = cpu_time();
    let mut buffer = Some(buffer);
    for piece in pieces {
        let Some(mut mine) = buffer.take().or_else(|| emptied.recv().ok()) else {
            break; // Sending has failed.
        };
        file.read_exact_at(mine.as_mut_slice(), piece * PIECE as u64)?;
        if full.send(mine).is_err() {
            break;
        }
    }
    Ok(cpu_time().saturating_sub(began))
}

fn drain(mut receiver: TcpStream) -> std::io::Result<()> {
    let mut taken = vec![1; TAKEN];
    while receiver.read(&mut taken)? > 0 {}
    Ok(())
}

/// Of the calling thread.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(time.tv_sec.cast_unsigned(), nanos)
}

/// Opens a file past the page cache.
pub(super) fn open(path: &Path, flags: OFlags) -> Result<File> {
    let mode = Mode::RUSR | Mode::WUSR;
    let file = rustix::fs::open(path, flags | OFlags::DIRECT | OFlags::CLOEXEC, mode);
    file.map(File::from)
        .map_err(|e| TestkitError::file("opening with O_DIRECT", path)(e.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_and_sent_by_one_and_by_several() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a directory");
        let path = dir.path().join("file");
        std::fs::write(&path, vec![7; 9 * PIECE]).expect("is written");
        for streams in [1, 2, 4, 16] {
            match read_and_send(&path, 9 * PIECE as u64, streams) {
                Ok(bare) => assert!(bare.rate > 0.0 && bare.cpu > 0.0, "{streams}: {bare:?}"),
                Err(error) if error.to_string().contains("O_DIRECT") => {
                    eprintln!("skipped: {error}");
                    return;
                }
                Err(error) => panic!("{error}"),
            }
        }
        let error = read_and_send(&path, 10 * PIECE as u64, 1).expect_err("is too short");
        assert!(error.to_string().contains("reading and sending"), "{error}");
    }
}
