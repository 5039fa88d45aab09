//! `memory`: contents in this process, for tests.
//!
//! Each file is a real, empty (sparse) file of the logical length; its bytes are kept by inode in
//! the engine instance, in chunks, within a budget. Bytes that were there before the instance
//! first wrote to a file are read from the real file. Nothing outlives the instance; other
//! processes, [`Meta::read_small`] and sendfile see zeros.
//!
//! Contents are freed when [`Meta::unlink`] removes the last name (and the last handle is closed).
//! Files removed by other means keep their share of the budget.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use rustix::io::Errno;

use super::EngineConfig;
use super::placeholder::{InodeKey, Inodes};
use super::posix::{open_regular, read_fully};
use super::threaded::{Blocking, Threaded};
use crate::class::IoClass;
use crate::disk::Disk;
use crate::engine::{Advice, Capabilities, Engine, EngineFile, IoFuture, OpenMode, SyncKind};
use crate::error::{IoError, IoOp};
use crate::meta::{Meta, MetaHook};

/// Unit of allocation, in bytes.
const CHUNK: usize = 64 * 1024;
const CHUNK_U64: u64 = 64 * 1024;

/// Bytes that all files of an instance may hold.
#[derive(Debug)]
struct Budget {
    left: AtomicU64,
}

impl Budget {
    fn take_chunk(&self) -> bool {
        self.left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(CHUNK_U64)
            })
            .is_ok()
    }

    fn give_chunks(&self, chunks: usize) {
        let chunks = u64::try_from(chunks).expect("usize fits in u64 on Linux");
        self.left.fetch_add(chunks * CHUNK_U64, Ordering::Relaxed);
    }
}

/// The bytes of one inode, by chunk number; a missing chunk is what the real file holds.
#[derive(Debug)]
struct Contents {
    chunks: RwLock<BTreeMap<u64, Box<[u8]>>>,
    budget: Arc<Budget>,
}

impl Drop for Contents {
    fn drop(&mut self) {
        self.budget.give_chunks(
            self.chunks
                .get_mut()
                .unwrap_or_else(PoisonError::into_inner)
                .len(),
        );
    }
}

/// Contents in memory. See the [module](self).
#[derive(Debug)]
pub struct Memory {
    disk: Arc<Disk>,
    inodes: Arc<Inodes<Contents>>,
    budget: Arc<Budget>,
}

impl Memory {
    /// An engine without contents yet, with the budget of `config`.
    #[must_use]
    pub fn new(config: &EngineConfig) -> Self {
        Self {
            disk: Arc::clone(&config.disk),
            inodes: Arc::default(),
            budget: Arc::new(Budget {
                left: AtomicU64::new(config.memory_max),
            }),
        }
    }
}

impl Engine for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            preferred_alignment: 1,
            page_cache: false,
            memory_alignment: 1,
            descriptor: false,
            kernel_visible: false,
            survives_kill: false,
            durable_sync: false,
            keeps_data: true,
        }
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
        let (disk, inodes, budget) = (
            Arc::clone(&self.disk),
            Arc::clone(&self.inodes),
            Arc::clone(&self.budget),
        );
        self.disk.run(class, IoOp::Open, path, move |path| {
            let (file, _) = open_regular(path, mode)?;
            let key = InodeKey::of_file(&file, path)?;
            let contents = inodes.entry(key, mode == OpenMode::CreateNew, || Contents {
                chunks: RwLock::default(),
                budget,
            });
            let writable = mode != OpenMode::ReadOnly;
            let file = MemoryFile {
                file,
                path: path.to_owned(),
                writable,
                contents,
            };
            let file = Arc::new(disk.aside(path, file));
            Ok(Arc::new(Threaded::new(file, disk, class)) as Arc<dyn EngineFile>)
        })
    }

    fn meta(&self, class: IoClass) -> Meta {
        let forget = Arc::new(ForgetRemoved(Arc::clone(&self.inodes)));
        Meta::new(Arc::clone(&self.disk), class).with_hook(forget)
    }
}

/// Frees contents with the last name of their file.
#[derive(Debug)]
struct ForgetRemoved(Arc<Inodes<Contents>>);

impl MetaHook for ForgetRemoved {
    fn before(&self, _class: IoClass, op: IoOp, path: &Path) -> Result<(), IoError> {
        if op == IoOp::Unlink
            && let Ok((key, 1)) = InodeKey::of_path(path)
        {
            self.0.forget(&key);
        }
        Ok(())
    }

    fn after(&self, _class: IoClass, _op: IoOp, _took: Duration, _failed: bool) {}
}

#[derive(Debug)]
struct MemoryFile {
    file: File,
    path: PathBuf,
    writable: bool,
    contents: Arc<Contents>,
}

/// Chunk number and place in the chunk of an offset.
fn locate(offset: u64) -> (u64, usize) {
    let within = usize::try_from(offset % CHUNK_U64).expect("a remainder below 64 KiB fits");
    (offset / CHUNK_U64, within)
}

impl MemoryFile {
    fn failed(&self, op: IoOp, errno: Errno) -> IoError {
        IoError::from_errno(op, &self.path, errno)
    }

    fn new_chunk(&self, number: u64) -> Result<Box<[u8]>, Errno> {
        if !self.contents.budget.take_chunk() {
            return Err(Errno::NOSPC);
        }
        let mut chunk = vec![0; CHUNK].into_boxed_slice();
        if let Err(errno) = read_fully(&self.file, &mut chunk, number * CHUNK_U64) {
            self.contents.budget.give_chunks(1);
            return Err(errno);
        }
        Ok(chunk)
    }

    fn write_slice(
        &self,
        chunks: &mut BTreeMap<u64, Box<[u8]>>,
        mut data: &[u8],
        mut at: u64,
    ) -> Result<(), Errno> {
        while !data.is_empty() {
            let (number, within) = locate(at);
            let (now, later) = data.split_at(data.len().min(CHUNK - within));
            let chunk = match chunks.entry(number) {
                std::collections::btree_map::Entry::Occupied(there) => there.into_mut(),
                std::collections::btree_map::Entry::Vacant(gap) => {
                    gap.insert(self.new_chunk(number)?)
                }
            };
            chunk[within..within + now.len()].copy_from_slice(now);
            at += u64::try_from(now.len()).expect("at most a chunk");
            data = later;
        }
        Ok(())
    }

    fn write_all(&self, bufs: &[&Bytes], offset: u64) -> (usize, Result<(), Errno>) {
        if !self.writable {
            return (0, Err(Errno::BADF));
        }
        let mut chunks = self
            .contents
            .chunks
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let mut done = 0;
        let mut result = Ok(());
        for buf in bufs {
            let at = offset + u64::try_from(done).expect("usize fits in u64 on Linux");
            result = self.write_slice(&mut chunks, buf, at);
            if result.is_err() {
                break;
            }
            done += buf.len();
        }
        let end = offset + u64::try_from(done).expect("usize fits in u64 on Linux");
        let grown = self.length_now().and_then(|len| {
            if done > 0 && end > len {
                self.file.set_len(end)
            } else {
                Ok(())
            }
        });
        match grown {
            Ok(()) => (done, result),
            Err(e) => (0, Err(Errno::from_io_error(&e).unwrap_or(Errno::IO))),
        }
    }

    fn length_now(&self) -> std::io::Result<u64> {
        self.file.metadata().map(|m| m.len())
    }

    fn cut(&self, len: u64) -> Result<(), Errno> {
        if !self.writable {
            return Err(Errno::BADF);
        }
        let mut chunks = self
            .contents
            .chunks
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        rustix::fs::ftruncate(&self.file, len)?;
        let (number, within) = locate(len);
        let beyond = chunks.split_off(&number);
        let mut freed = beyond.len();
        for (at, mut chunk) in beyond {
            if at == number && within > 0 {
                chunk[within..].fill(0);
                chunks.insert(at, chunk);
                freed -= 1;
            }
        }
        self.contents.budget.give_chunks(freed);
        Ok(())
    }
}

impl Blocking for MemoryFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn read(&self, target: &mut [u8], len: usize, offset: u64) -> Result<usize, IoError> {
        let chunks = self
            .contents
            .chunks
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        let there = self.length()?.saturating_sub(offset);
        let len = usize::try_from(there).unwrap_or(usize::MAX).min(len);
        let target = &mut target[..len];
        let mut done = 0;
        while done < len {
            let at = offset + u64::try_from(done).expect("usize fits in u64 on Linux");
            let (number, within) = locate(at);
            let n = (len - done).min(CHUNK - within);
            let part = &mut target[done..done + n];
            if let Some(chunk) = chunks.get(&number) {
                part.copy_from_slice(&chunk[within..within + n]);
            } else {
                read_fully(&self.file, part, at).map_err(|e| self.failed(IoOp::Read, e))?;
            }
            done += n;
        }
        Ok(len)
    }

    fn write(&self, bufs: &[&Bytes], offset: u64) -> (usize, Result<(), IoError>) {
        let (done, result) = self.write_all(bufs, offset);
        (
            done,
            result.map_err(|e| {
                self.failed(IoOp::Write, e)
                    .with_context(format_args!("at {offset}"))
            }),
        )
    }

    fn allocate(&self, _len: u64) -> Result<(), IoError> {
        Ok(())
    }

    fn truncate(&self, len: u64) -> Result<(), IoError> {
        self.cut(len).map_err(|e| self.failed(IoOp::Truncate, e))
    }

    fn sync(&self, _kind: SyncKind) -> Result<(), IoError> {
        Ok(())
    }

    fn start_writeback(&self, _offset: u64, _len: u64) -> Result<(), IoError> {
        Ok(())
    }

    fn advise(&self, _advice: Advice, _offset: u64, _len: u64) -> Result<(), IoError> {
        Ok(())
    }

    fn length(&self) -> Result<u64, IoError> {
        self.length_now()
            .map_err(|e| IoError::from_std(IoOp::Length, &self.path, &e))
    }
}
