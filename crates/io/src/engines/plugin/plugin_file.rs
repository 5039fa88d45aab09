//! An open file of a plug-in: its functions, and what they answer checked.

use std::ffi::{c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use rustix::io::Errno;

use super::PluginVolume;
use super::abi::{self, EngineTable};
use crate::blocking_engine::Blocking;
use crate::engines::whole_transfers::at;
use crate::error::{IoError, IoErrorKind, IoOp};
use crate::locks;
use crate::types::SyncKind;

/// An open file of a plug-in.
#[derive(Debug)]
pub(in crate::engines) struct PluginFile {
    pub(super) volume: Arc<PluginVolume>,
    pub(super) file: *mut c_void,
    pub(super) path: PathBuf,
    pub(super) writable: bool,
    /// Held during a call, where the plug-in takes one a file.
    pub(super) one_call: Mutex<()>,
}

// SAFETY: the header has a file be used by any thread, one at a time where a lock is held.
unsafe impl Send for PluginFile {}
// SAFETY: as above.
unsafe impl Sync for PluginFile {}

impl PluginFile {
    /// Makes a call when it is its turn.
    fn call<T>(&self, call: impl FnOnce(&EngineTable) -> T) -> T {
        let _volume = self.volume.turn();
        let table = &self.volume.loaded.table;
        let one = table.threads == abi::ONE_A_FILE;
        let _file = one.then(|| locks::lock(&self.one_call));
        call(table)
    }

    fn failed(&self, op: IoOp, answer: i64) -> IoError {
        self.volume.failed(op, &self.path, answer)
    }

    /// The result of a call that gives 0 or an error.
    fn outcome(&self, op: IoOp, answer: Option<c_int>) -> Result<(), IoError> {
        match answer {
            Some(0) => Ok(()),
            None => {
                let text = "the plug-in has no such function";
                Err(IoError::new(IoErrorKind::Unsupported, op, &self.path, text))
            }
            Some(answer) => Err(self.failed(op, i64::from(answer))),
        }
    }

    fn must_be_writable(&self, op: IoOp) -> Result<(), IoError> {
        if self.writable {
            return Ok(());
        }
        Err(IoError::from_errno(op, &self.path, Errno::BADF))
    }

    /// Bytes of a transfer: no more than were asked for.
    fn count(&self, op: IoOp, answer: i64, asked: usize) -> Result<usize, IoError> {
        if answer < 0 {
            return Err(self.failed(op, answer));
        }
        let count = usize::try_from(answer).unwrap_or(usize::MAX);
        if count > asked {
            let name = &self.volume.loaded.name;
            let text = format!("{name} says that it moved {count} bytes of {asked}");
            return Err(IoError::new(IoErrorKind::MediaError, op, &self.path, text));
        }
        Ok(count)
    }

    fn write_one(&self, mut bytes: &[u8], mut offset: u64) -> (usize, Result<(), IoError>) {
        let mut done = 0;
        while !bytes.is_empty() {
            let answer = self.call(|table| {
                let write = table.write?;
                let (from, len) = (bytes.as_ptr().cast::<c_void>(), bytes.len() as u64);
                // SAFETY: the plug-in opened the file; the buffer has `len` bytes.
                Some(unsafe { write(self.file, from, len, offset) })
            });
            let count = self.count(IoOp::Write, answer.unwrap_or(-1), bytes.len());
            let count = match count {
                Ok(0) => {
                    let text = format!("{} writes nothing", self.volume.loaded.name);
                    let error =
                        IoError::new(IoErrorKind::MediaError, IoOp::Write, &self.path, text);
                    return (done, Err(error));
                }
                Ok(count) => count,
                Err(error) => return (done, Err(error)),
            };
            done += count;
            offset = at(offset, count);
            bytes = &bytes[count..];
        }
        (done, Ok(()))
    }
}

impl Drop for PluginFile {
    fn drop(&mut self) {
        self.call(|table| {
            if let Some(close) = table.close {
                // SAFETY: the plug-in opened it, and this was its last use.
                unsafe { close(self.file) };
            }
        });
    }
}

impl Blocking for PluginFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn read(&self, target: &mut [u8], len: usize, offset: u64) -> Result<usize, IoError> {
        let mut done = 0;
        while done < len {
            let rest = &mut target[done..len];
            let answer = self.call(|table| {
                let read = table.read?;
                let (to, len) = (rest.as_mut_ptr().cast::<c_void>(), rest.len() as u64);
                // SAFETY: the plug-in opened the file; the buffer has room for `len` bytes.
                Some(unsafe { read(self.file, to, len, at(offset, done)) })
            });
            match self.count(IoOp::Read, answer.unwrap_or(-1), len - done)? {
                0 => break,
                count => done += count,
            }
        }
        Ok(done)
    }

    fn write(&self, bufs: &[&Bytes], offset: u64) -> (usize, Result<(), IoError>) {
        if let Err(error) = self.must_be_writable(IoOp::Write) {
            return (0, Err(error));
        }
        let mut done = 0;
        for buf in bufs {
            let (count, result) = self.write_one(buf, at(offset, done));
            done += count;
            if result.is_err() {
                return (done, result);
            }
        }
        let keeps = self.volume.has(abi::IN_FILES) || self.volume.has(abi::DEVICE);
        if !self.volume.has(abi::OUTLIVES_PROCESS) && done > 0 && keeps {
            return (done, self.sync(SyncKind::Data));
        }
        (done, Ok(()))
    }

    fn allocate(&self, len: u64) -> Result<(), IoError> {
        self.must_be_writable(IoOp::Allocate)?;
        if len == 0 {
            return Ok(());
        }
        let answer = self.call(|table| {
            // SAFETY: the plug-in opened the file.
            table.allocate.map(|f| unsafe { f(self.file, len) })
        });
        self.outcome(IoOp::Allocate, answer)
    }

    fn truncate(&self, len: u64) -> Result<(), IoError> {
        self.must_be_writable(IoOp::Truncate)?;
        let answer = self.call(|table| {
            // SAFETY: the plug-in opened the file.
            table.truncate.map(|f| unsafe { f(self.file, len) })
        });
        self.outcome(IoOp::Truncate, answer)
    }

    fn trim(&self, offset: u64, len: u64) -> Result<(), IoError> {
        let answer = self.call(|table| {
            // SAFETY: the plug-in opened the file.
            table.trim.map(|f| unsafe { f(self.file, offset, len) })
        });
        answer.map_or(Ok(()), |answer| self.outcome(IoOp::Other, Some(answer)))
    }

    fn sync(&self, kind: SyncKind) -> Result<(), IoError> {
        let what = match kind {
            SyncKind::Data => abi::SYNC_DATA,
            SyncKind::All => abi::SYNC_ALL,
        };
        let answer = self.call(|table| {
            // SAFETY: the plug-in opened the file.
            table.sync.map(|f| unsafe { f(self.file, what) })
        });
        self.outcome(IoOp::Sync, answer)
    }

    fn length(&self) -> Result<u64, IoError> {
        let answer = self.call(|table| {
            // SAFETY: the plug-in opened the file.
            table.length.map(|f| unsafe { f(self.file) })
        });
        let answer = answer.unwrap_or(-1);
        u64::try_from(answer).map_err(|_| self.failed(IoOp::Length, answer))
    }
}
