//! `uring`: large aligned transfers around the page cache on the disk's io_uring.
//!
//! As `direct`, but many transfers are under way without a thread each, which pays where many
//! readers want pieces at the same time. What is not aligned, not large, or not taken by the ring
//! goes the way of `direct`.

use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use rustix::io::Errno;
use tokio::sync::oneshot;

use super::EngineConfig;
use super::direct::capabilities;
use super::threaded::{Blocking, Threaded, check_range, closed, total_len};
use super::unbuffered::{Direct, DirectLimits, Parts, UnbufferedFile};
use crate::buffer::AlignedBuf;
use crate::class::IoClass;
use crate::disk::ring::{Ended, Payload, Ring, Transfer};
use crate::disk::{Aside, Disk, Place, Request, Slot};
use crate::engine::{
    Advice, Capabilities, Completion, Engine, EngineFile, IoFuture, OpenMode, SyncKind,
};
use crate::error::{IoError, IoOp};
use crate::meta::Meta;

/// Why io_uring cannot be used, and what to change.
pub(super) fn probe() -> Result<(), String> {
    let Err(error) = Ring::probe() else {
        return Ok(());
    };
    let setting = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled");
    let setting = setting.map_or_else(|_| "absent".to_owned(), |s| s.trim().to_owned());
    Err(match (Errno::from_io_error(&error), setting.as_str()) {
        (Some(Errno::PERM | Errno::ACCESS), "1" | "2") => format!(
            "the kernel forbids it; set the sysctl kernel.io_uring_disabled to 0 (it is {setting})"
        ),
        (Some(Errno::PERM | Errno::ACCESS | Errno::NOSYS), _) => {
            "io_uring_setup is refused; allow it in the seccomp profile of the container or \
             service, or use a kernel with CONFIG_IO_URING"
                .to_owned()
        }
        _ => format!("{error}"),
    })
}

/// `O_DIRECT` on io_uring. See the [module](self).
#[derive(Debug)]
pub struct Uring {
    disk: Arc<Disk>,
    limits: DirectLimits,
}

impl Uring {
    /// The engine on the disk of `config`.
    #[must_use]
    pub fn new(config: &EngineConfig) -> Self {
        Self {
            disk: Arc::clone(&config.disk),
            limits: config.direct,
        }
    }
}

impl Engine for Uring {
    fn name(&self) -> &'static str {
        "uring"
    }

    fn capabilities(&self) -> Capabilities {
        capabilities(self.limits)
    }

    fn disk(&self) -> &Arc<Disk> {
        &self.disk
    }

    fn open(
        &self,
        path: &Path,
        mode: OpenMode,
        class: IoClass,
    ) -> IoFuture<Result<Arc<dyn EngineFile>, IoError>> {
        let (disk, limits) = (Arc::clone(&self.disk), self.limits);
        self.disk.run(class, IoOp::Open, path, move |path| {
            let file = Arc::new(disk.aside(path, UnbufferedFile::open(path, mode, limits)?));
            let threaded = Threaded::new(Arc::clone(&file), Arc::clone(&disk), class);
            Ok(Arc::new(UringFile {
                file,
                threaded,
                disk,
                class,
            }) as Arc<dyn EngineFile>)
        })
    }

    fn meta(&self, class: IoClass) -> Meta {
        Meta::new(Arc::clone(&self.disk), class)
    }
}

#[derive(Debug)]
struct UringFile {
    file: Arc<Aside<UnbufferedFile>>,
    /// For everything that the ring is not for.
    threaded: Threaded<UnbufferedFile>,
    disk: Arc<Disk>,
    class: IoClass,
}

/// Who waits for a transfer.
struct Caller<B> {
    file: Arc<Aside<UnbufferedFile>>,
    disk: Arc<Disk>,
    class: IoClass,
    offset: u64,
    len: usize,
    place: Place,
    /// The transfer counts as under way until this is dropped.
    slot: Slot,
    tell: oneshot::Sender<Completion<B>>,
}

impl<B: Send + 'static> Caller<B> {
    fn answer(mut self, buf: B, result: Result<usize, IoError>) {
        let moved = *result.as_ref().unwrap_or(&0);
        self.slot.bytes = u64::try_from(moved).expect("usize fits in u64");
        drop((self.slot, self.place));
        // The caller may have gone away; the buffer is dropped here then.
        let _ = self.tell.send(Completion { buf, result });
    }

    fn failed(&self, op: IoOp, errno: Errno) -> IoError {
        IoError::from_errno(op, self.file.path(), errno)
            .with_context(format_args!("at {}+{}", self.offset, self.len))
    }

    /// Carries `work` out on a thread of the disk: the ring would not, or not all of it. It stays
    /// the same request to the scheduler, which sees the thread as one that needs no device.
    fn on_a_thread(self, buf: B, work: impl FnOnce(Self, B) + Send + 'static) {
        let request = Request {
            class: self.class,
            stream: None,
            bytes: 0,
        };
        let queue = self.disk.data_queue();
        let job = move || {
            work(self, buf);
            0
        };
        queue.push_blocking(request, Box::new(job));
    }
}

/// What is done with a transfer that ended, on the ring's thread.
type Ending<B> = fn(Caller<B>, Ended);

/// Errors that say nothing about the device: the same transfer is tried without the ring.
fn worth_a_thread(result: Result<(), Errno>) -> bool {
    matches!(
        result,
        Err(Errno::INVAL | Errno::AGAIN | Errno::CANCELED | Errno::OPNOTSUPP | Errno::NOMEM)
    )
}

impl Caller<AlignedBuf> {
    fn read_ended(self, mut buf: AlignedBuf, done: usize, result: Result<(), Errno>) {
        let done = done.min(self.len);
        if worth_a_thread(result) {
            return self.on_a_thread(buf, move |caller, mut buf| {
                let at = caller.offset + u64::try_from(done).expect("usize fits in u64");
                let target = &mut buf.as_mut_capacity()[done..];
                let rest = caller.file.read(target, caller.len - done, at);
                caller.finish_read(buf, rest.map(|n| done + n));
            });
        }
        match result {
            Ok(()) => self.finish_read(buf, Ok(done)),
            Err(errno) => {
                buf.set_len(0);
                let error = self.failed(IoOp::Read, errno);
                self.finish_read(buf, Err(error));
            }
        }
    }

    fn finish_read(self, mut buf: AlignedBuf, result: Result<usize, IoError>) {
        buf.set_len(*result.as_ref().unwrap_or(&0));
        self.answer(buf, result);
    }
}

impl Caller<Vec<Bytes>> {
    fn write_ended(self, bufs: Vec<Bytes>, done: usize, result: Result<(), Errno>) {
        if worth_a_thread(result) || (result.is_ok() && done < self.len) {
            return self.on_a_thread(bufs, move |caller, bufs| {
                let rest = after(&bufs, done);
                let at = caller.offset + u64::try_from(done).expect("usize fits in u64");
                let (_, result) = caller.file.write(&rest.iter().collect::<Vec<_>>(), at);
                let len = caller.len;
                caller.answer(bufs, result.map(|()| len));
            });
        }
        let result = result.map(|()| done).map_err(|e| {
            self.failed(IoOp::Write, e)
                .with_context(format_args!("after {done} bytes"))
        });
        self.answer(bufs, result);
    }
}

/// What follows the first `done` bytes.
fn after(bufs: &[Bytes], mut done: usize) -> Vec<Bytes> {
    let mut rest = Vec::new();
    for buf in bufs {
        let skip = done.min(buf.len());
        done -= skip;
        if skip < buf.len() {
            rest.push(buf.slice(skip..));
        }
    }
    rest
}

/// The descriptor and unit that a transfer needs.
fn way_of(direct: &Direct) -> (Arc<std::fs::File>, usize) {
    (Arc::clone(&direct.file), direct.alignment.read)
}

/// Hands a transfer to the ring; without one, it ends as given up.
fn hand_in(disk: &Disk, transfer: Transfer) {
    let refused = match disk.ring() {
        Some(ring) => ring.submit(transfer).err(),
        None => Some(transfer),
    };
    if let Some(refused) = refused {
        drop(refused.file); // As where the ring ends a transfer: not the last use of it.
        (refused.on_end)(Ended {
            payload: refused.payload,
            done: 0,
            result: Err(Errno::CANCELED),
        });
    }
}

impl UringFile {
    /// Hands a transfer to the ring when there is a place for it, and waits for the answer.
    fn transfer<B: Send + 'static>(
        &self,
        (file, unit): (Arc<std::fs::File>, usize),
        payload: Payload,
        (offset, len, ask): (u64, usize, usize),
        (op, lost, ended): (IoOp, fn() -> B, Ending<B>),
    ) -> IoFuture<Completion<B>> {
        let (tell, told) = oneshot::channel();
        let (unbuffered, disk, class) =
            (Arc::clone(&self.file), Arc::clone(&self.disk), self.class);
        let request = Request {
            class,
            stream: unbuffered.stream(op, offset, len),
            bytes: u64::try_from(len).expect("usize fits in u64"),
        };
        let waiting = self.disk.with_place(class, move |place| {
            let queue = disk.data_queue();
            queue.push_submit(request, move |slot| {
                let ring_of = Arc::clone(&disk);
                let caller = Caller {
                    file: unbuffered,
                    disk,
                    class,
                    offset,
                    len,
                    place,
                    slot,
                    tell,
                };
                let transfer = Transfer {
                    file,
                    payload,
                    offset,
                    len: ask,
                    unit,
                    on_end: Box::new(move |done| ended(caller, done)),
                };
                hand_in(&ring_of, transfer);
            });
        });
        let file = Arc::clone(&self.file);
        Box::pin(async move {
            waiting.await;
            told.await.unwrap_or_else(|_| Completion {
                buf: lost(),
                result: Err(closed(op, file.path())),
            })
        })
    }
}

impl EngineFile for UringFile {
    fn path(&self) -> &Path {
        self.file.path()
    }

    fn with_class(&self, class: IoClass) -> Arc<dyn EngineFile> {
        let (file, disk) = (Arc::clone(&self.file), Arc::clone(&self.disk));
        Arc::new(Self {
            threaded: Threaded::new(Arc::clone(&file), Arc::clone(&disk), class),
            file,
            disk,
            class,
        })
    }

    fn read_at(
        &self,
        mut buf: AlignedBuf,
        offset: u64,
        len: usize,
    ) -> IoFuture<Completion<AlignedBuf>> {
        let fits = check_range(IoOp::Read, self.path(), offset, len, buf.capacity()).is_ok();
        if !fits || !self.file.direct_is_known() {
            // A thread of the disk opens the descriptor, which may wait for the disk.
            return self.threaded.read_at(buf, offset, len);
        }
        let target = buf.as_mut_capacity().as_ptr();
        let Some(direct) = self.file.direct_for_read(target, len, offset) else {
            return self.threaded.read_at(buf, offset, len);
        };
        buf.set_len(0);
        let unit = direct.alignment.read;
        let whole = Some(len.next_multiple_of(unit)).filter(|whole| *whole <= buf.capacity());
        let Some(ask) = whole else {
            return self.threaded.read_at(buf, offset, len);
        };
        self.transfer(
            way_of(direct),
            Payload::Read(buf),
            (offset, len, ask),
            (IoOp::Read, AlignedBuf::empty, |caller, ended| {
                if let Payload::Read(buf) = ended.payload {
                    caller.read_ended(buf, ended.done, ended.result);
                }
            }),
        )
    }

    fn caches(&self, offset: u64) -> bool {
        self.threaded.caches(offset)
    }

    fn load(&self, offset: u64, len: usize) -> IoFuture<Result<usize, IoError>> {
        self.threaded.load(offset, len)
    }

    fn write_at(&self, bufs: Vec<Bytes>, offset: u64) -> IoFuture<Completion<Vec<Bytes>>> {
        let len = total_len(&bufs);
        let fits = check_range(IoOp::Write, self.path(), offset, len, len).is_ok();
        let way = {
            let slices: Vec<&Bytes> = bufs.iter().collect();
            let ready = self.file.direct_is_known() && !self.file.is_dirty_before(offset);
            let direct = if fits && ready {
                self.file.direct_for_write(&slices, offset)
            } else {
                None
            };
            direct
                .filter(|(_, parts)| {
                    matches!(
                        parts,
                        Parts {
                            head: 0,
                            tail: 0,
                            ..
                        }
                    )
                })
                .map(|(direct, _)| way_of(direct))
        };
        let Some(way) = way else {
            return self.threaded.write_at(bufs, offset);
        };
        self.transfer(
            way,
            Payload::Write(bufs),
            (offset, len, len),
            (IoOp::Write, Vec::new, |caller, ended| {
                if let Payload::Write(bufs) = ended.payload {
                    caller.write_ended(bufs, ended.done, ended.result);
                }
            }),
        )
    }

    fn allocate(&self, len: u64) -> IoFuture<Result<(), IoError>> {
        self.threaded.allocate(len)
    }

    fn truncate(&self, len: u64) -> IoFuture<Result<(), IoError>> {
        self.threaded.truncate(len)
    }

    fn sync(&self, kind: SyncKind) -> IoFuture<Result<(), IoError>> {
        self.threaded.sync(kind)
    }

    fn start_writeback(&self, offset: u64, len: u64) -> IoFuture<Result<(), IoError>> {
        self.threaded.start_writeback(offset, len)
    }

    fn write_back(&self, offset: u64, len: u64) -> IoFuture<Result<(), IoError>> {
        self.threaded.write_back(offset, len)
    }

    fn advise(&self, advice: Advice, offset: u64, len: u64) -> IoFuture<Result<(), IoError>> {
        self.threaded.advise(advice, offset, len)
    }

    fn length(&self) -> IoFuture<Result<u64, IoError>> {
        self.threaded.length()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.threaded.fd()
    }
}
