//! One io_uring of a disk, and the thread that drives it.
//!
//! Only that thread touches the ring: the kernel ties requests to the thread that submitted them
//! and cancels them when it ends, so short-lived threads must not submit. Others put transfers
//! into an inbox and wake the thread by an eventfd when it sleeps.
//!
//! Memory: a transfer owns its buffers, its file and the list of addresses handed to the kernel.
//! It stays in a slot until its completion arrived, whatever happens to the caller, and the
//! thread does not end before every slot is empty.
#![expect(
    unsafe_code,
    reason = "the kernel is handed addresses; see the memory paragraph above"
)]

use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use bytes::Bytes;
use io_uring::{IoUring, Probe, cqueue, opcode, squeue, types};
use rustix::event::{EventfdFlags, PollFlags, eventfd};
use rustix::io::Errno;

use crate::buffer::AlignedBuf;

/// Addresses passed to the kernel in one request; Linux takes no more (`UIO_MAXIOV`).
const IOV_MAX: usize = 1024;

/// Requests in the kernel at most; the scheduler of the disk normally keeps it far below.
const ENTRIES: u32 = 128;

/// Marks the completion of the wake-up; never the number of a slot.
const WAKE: u64 = u64::MAX;

/// Bytes on their way between memory and a file.
#[derive(Debug)]
pub(crate) enum Payload {
    /// To fill from its start.
    Read(AlignedBuf),
    /// To write one after the other.
    Write(Vec<Bytes>),
}

/// What became of a transfer.
pub(crate) struct Ended {
    /// As handed in; a read has filled the first `done` bytes.
    pub payload: Payload,
    /// Bytes transferred.
    pub done: usize,
    /// Why not more. `Ok` with `done` below what was asked: the end of the file, or an odd place
    /// from which the kernel would not go on around the page cache.
    pub result: Result<(), Errno>,
}

/// A transfer to hand in.
pub(crate) struct Transfer {
    /// Opened with `O_DIRECT`.
    pub file: Arc<File>,
    /// What is moved. Its addresses must suit the file.
    pub payload: Payload,
    /// Where in the file.
    pub offset: u64,
    /// How much of the buffer a read fills; of a write, the sum of its buffers.
    pub len: usize,
    /// A transfer that stopped at a multiple of this is continued.
    pub unit: usize,
    /// Called once, on the driving thread: must be quick.
    pub on_end: Box<dyn FnOnce(Ended) + Send>,
}

/// A transfer that the kernel knows.
struct InKernel {
    transfer: Transfer,
    addresses: Addresses,
    done: usize,
}

/// What is left to transfer, as the kernel wants it.
struct Addresses(Vec<libc::iovec>);

// SAFETY: the addresses point into heap memory owned by the payload beside them, which is Send and
// is not touched while the kernel has them; moving the owner does not move that memory.
unsafe impl Send for Addresses {}

impl Addresses {
    fn of(payload: &mut Payload, len: usize) -> Self {
        match payload {
            Payload::Read(buf) => Self(vec![libc::iovec {
                iov_base: buf.as_mut_capacity()[..len].as_mut_ptr().cast(),
                iov_len: len,
            }]),
            Payload::Write(bufs) => {
                let one = |b: &Bytes| libc::iovec {
                    iov_base: b.as_ptr().cast_mut().cast(),
                    iov_len: b.len(),
                };
                Self(bufs.iter().filter(|b| !b.is_empty()).map(one).collect())
            }
        }
    }

    /// Leaves out the first `n` bytes.
    fn advance(&mut self, mut n: usize) {
        let gone = self
            .0
            .iter()
            .take_while(|v| {
                let whole = v.iov_len <= n;
                if whole {
                    n -= v.iov_len;
                }
                whole
            })
            .count();
        self.0.drain(..gone);
        if let Some(first) = self.0.first_mut().filter(|_| n > 0) {
            first.iov_base = first.iov_base.wrapping_byte_add(n);
            first.iov_len -= n;
        }
    }
}

impl InKernel {
    fn new(mut transfer: Transfer) -> Self {
        let addresses = Addresses::of(&mut transfer.payload, transfer.len);
        Self {
            transfer,
            addresses,
            done: 0,
        }
    }

    /// The request for what is left.
    fn entry(&self, slot: usize) -> squeue::Entry {
        let fd = types::Fd(self.transfer.file.as_raw_fd());
        let list = self.addresses.0.as_ptr();
        let count = u32::try_from(self.addresses.0.len().min(IOV_MAX)).expect("at most 1024");
        let at = self.transfer.offset + u64::try_from(self.done).expect("usize fits in u64");
        let slot = u64::try_from(slot).expect("usize fits in u64");
        match self.transfer.payload {
            Payload::Read(_) => opcode::Readv::new(fd, list, count).offset(at).build(),
            Payload::Write(_) => opcode::Writev::new(fd, list, count).offset(at).build(),
        }
        .user_data(slot)
    }

    /// Takes a completion into account; `None` when there is more to ask for.
    fn completed(&mut self, result: i32) -> Option<Result<(), Errno>> {
        let Ok(n) = usize::try_from(result) else {
            let errno = Errno::from_raw_os_error(result.wrapping_neg());
            return match errno {
                Errno::INTR => None,
                errno => Some(Err(errno)),
            };
        };
        self.done += n;
        self.addresses.advance(n);
        let stop = self.done >= self.transfer.len || n == 0 || n % self.transfer.unit != 0;
        stop.then_some(Ok(()))
    }

    fn end(self, result: Result<(), Errno>) {
        let Self { transfer, done, .. } = self;
        // The caller has the file too: it is never this thread that closes it.
        drop(transfer.file);
        (transfer.on_end)(Ended {
            payload: transfer.payload,
            done,
            result,
        });
    }
}

#[derive(Default)]
struct Inbox {
    transfers: VecDeque<Transfer>,
    sleeping: bool,
    closed: bool,
    /// The ring is broken: no thread would take a transfer out.
    broken: bool,
}

struct Shared {
    inbox: Mutex<Inbox>,
    wake: OwnedFd,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        // Fails only when the counter is full, and then the thread is awake.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}

/// The handle of a ring. Dropping it lets what was handed in finish and then ends the thread.
pub(crate) struct Ring {
    shared: Arc<Shared>,
}

impl Ring {
    /// Sets up a ring and starts its thread.
    ///
    /// # Errors
    /// What the kernel says: `EPERM` when io_uring is disabled, `ENOSYS` without it.
    pub(crate) fn start(disk: &str) -> io::Result<Self> {
        let ring = IoUring::builder()
            .setup_clamp()
            .setup_cqsize(2 * ENTRIES)
            .build(ENTRIES)?;
        let shared = Arc::new(Shared {
            inbox: Mutex::default(),
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        });
        let driver = Driver {
            ring,
            shared: Arc::clone(&shared),
            slots: Vec::new(),
            free: Vec::new(),
            armed: false,
        };
        thread::Builder::new()
            .name(format!("ring:{disk}"))
            .stack_size(256 * 1024)
            .spawn(move || driver.drive())?;
        Ok(Self { shared })
    }

    /// Whether this process may use io_uring, with the operations that are needed.
    ///
    /// # Errors
    /// As [`Ring::start`]; `Unsupported` when an operation is missing.
    pub(crate) fn probe() -> io::Result<()> {
        let ring = IoUring::new(2)?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let needed = [
            opcode::Readv::CODE,
            opcode::Writev::CODE,
            opcode::PollAdd::CODE,
        ];
        if needed.iter().all(|op| probe.is_supported(*op)) {
            return Ok(());
        }
        Err(Errno::OPNOTSUPP.into())
    }

    /// Hands a transfer in; it runs to its end, and `on_end` is called. Gives it back when the
    /// ring is broken.
    pub(crate) fn submit(&self, transfer: Transfer) -> Result<(), Transfer> {
        let mut inbox = self.shared.lock();
        if inbox.broken {
            return Err(transfer);
        }
        inbox.transfers.push_back(transfer);
        let wake = std::mem::take(&mut inbox.sleeping);
        drop(inbox);
        if wake {
            self.shared.wake();
        }
        Ok(())
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.wake();
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = self.shared.lock().transfers.len();
        f.debug_struct("Ring").field("waiting", &waiting).finish()
    }
}

/// What the driving thread owns.
struct Driver {
    ring: IoUring,
    shared: Arc<Shared>,
    slots: Vec<Option<Box<InKernel>>>,
    free: Vec<usize>,
    /// The kernel was asked to tell when the eventfd is written.
    armed: bool,
}

impl Driver {
    fn drive(mut self) {
        loop {
            self.arm();
            let closed = self.take_in();
            if closed && self.in_kernel() == 0 {
                return;
            }
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(e) => match Errno::from_io_error(&e) {
                    Some(Errno::INTR | Errno::BUSY) => {}
                    // Short of memory: what is in the kernel completes, then there is more.
                    Some(Errno::AGAIN | Errno::NOMEM) => {
                        thread::sleep(std::time::Duration::from_millis(1));
                    }
                    _ => return self.give_up(&e),
                },
            }
            self.reap();
        }
    }

    fn in_kernel(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Makes sure that an eventfd write ends the wait.
    fn arm(&mut self) {
        if self.armed {
            return;
        }
        let fd = types::Fd(self.shared.wake.as_raw_fd());
        // A poll, not a read: it leaves the kernel no address to write to when the ring goes.
        let poll = opcode::PollAdd::new(fd, u32::from(PollFlags::IN.bits())).build();
        self.push(&poll.user_data(WAKE));
        self.armed = true;
    }

    /// Queues a request; the queue has room because it is emptied by every enter and slots are
    /// fewer than its entries.
    fn push(&mut self, entry: &squeue::Entry) {
        loop {
            // SAFETY: the entry of a transfer has the address of the list in its slot, and the list
            // those of the buffers beside it; both are heap memory that this thread keeps until
            // the completion is reaped. The descriptor is open as long. A poll has no address.
            let pushed = unsafe { self.ring.submission().push(entry) };
            if pushed.is_ok() {
                return;
            }
            if self.ring.submit().is_err() {
                thread::yield_now(); // The same errors are handled where we wait.
            }
        }
    }

    /// Takes transfers out of the inbox; says whether the handle is gone.
    fn take_in(&mut self) -> bool {
        let room = usize::try_from(ENTRIES).expect("small") - 1;
        loop {
            let transfer = {
                let mut inbox = self.shared.lock();
                if self.in_kernel() >= room {
                    inbox.sleeping = false; // Completions wake us.
                    return inbox.closed;
                }
                let Some(transfer) = inbox.transfers.pop_front() else {
                    inbox.sleeping = true;
                    return inbox.closed;
                };
                transfer
            };
            let slot = self.free.pop().unwrap_or_else(|| {
                self.slots.push(None);
                self.slots.len() - 1
            });
            self.ask(slot, Box::new(InKernel::new(transfer)));
        }
    }

    fn ask(&mut self, slot: usize, transfer: Box<InKernel>) {
        let entry = transfer.entry(slot);
        self.slots[slot] = Some(transfer);
        self.push(&entry);
    }

    fn reap(&mut self) {
        let completions: Vec<cqueue::Entry> = self.ring.completion().collect();
        for completion in completions {
            if completion.user_data() == WAKE {
                self.armed = false;
                let _ = rustix::io::read(&self.shared.wake, &mut [0; 8]); // Empty already is fine.
                continue;
            }
            let slot = usize::try_from(completion.user_data()).expect("the number of a slot");
            let mut transfer = self.slots[slot].take().expect("one completion a request");
            match transfer.completed(completion.result()) {
                Some(result) => {
                    self.free.push(slot);
                    transfer.end(result);
                }
                None => self.ask(slot, transfer),
            }
        }
    }

    /// The ring does not work any more. It is unknown what the kernel still does with the memory of
    /// the slots: it is kept for ever, and callers that wait see that they were given up.
    fn give_up(mut self, error: &io::Error) {
        tracing::error!(%error, "io_uring failed; transfers of this disk go through threads from \
            now on");
        let waiting = {
            let mut inbox = self.shared.lock();
            inbox.broken = true;
            std::mem::take(&mut inbox.transfers)
        };
        for transfer in waiting {
            InKernel::new(transfer).end(Err(Errno::CANCELED));
        }
        for mut lost in self.slots.drain(..).flatten() {
            lost.transfer.on_end = Box::new(|_| {}); // Dropping the old one tells its caller.
            std::mem::forget(lost);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_advance_over_and_into_buffers() {
        let bufs = vec![
            Bytes::from(vec![1; 100]),
            Bytes::new(),
            Bytes::from(vec![2; 50]),
        ];
        let second = bufs[2].as_ptr().addr();
        let mut payload = Payload::Write(bufs);
        let mut addresses = Addresses::of(&mut payload, 150);
        assert_eq!(addresses.0.len(), 2, "empty ones are left out");
        addresses.advance(99);
        assert_eq!((addresses.0.len(), addresses.0[0].iov_len), (2, 1));
        addresses.advance(1);
        assert_eq!((addresses.0.len(), addresses.0[0].iov_len), (1, 50));
        addresses.advance(20);
        assert_eq!(addresses.0[0].iov_base.addr(), second + 20);
        assert_eq!(addresses.0[0].iov_len, 30);
        addresses.advance(30);
        assert!(addresses.0.is_empty());
    }

    fn transfer(len: usize, unit: usize) -> InKernel {
        let file = tempfile::tempfile().expect("a temporary file");
        InKernel::new(Transfer {
            file: Arc::new(file),
            payload: Payload::Write(vec![Bytes::from(vec![0; len])]),
            offset: 0,
            len,
            unit,
            on_end: Box::new(|_| {}),
        })
    }

    #[test]
    fn short_transfers_are_continued_and_odd_ones_are_not() {
        let mut t = transfer(8192, 512);
        assert_eq!(t.completed(1024), None, "more to ask for");
        assert_eq!(t.completed(-libc::EINTR), None);
        assert_eq!((t.done, t.addresses.0[0].iov_len), (1024, 7168));
        assert_eq!(t.completed(7168), Some(Ok(())));
        let mut t = transfer(8192, 512);
        assert_eq!(t.completed(1000), Some(Ok(())), "would not be aligned");
        assert_eq!(t.done, 1000);
        assert_eq!(transfer(8192, 512).completed(0), Some(Ok(())));
        assert_eq!(
            transfer(8192, 512).completed(-libc::ENOSPC),
            Some(Err(Errno::NOSPC))
        );
    }
}
