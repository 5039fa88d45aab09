//! A replica that is not finalized, or that is under recovery.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use hayloft_io::{IoError, IoOp, locks};
use hayloft_wire::checksum::DataChecksum;
use hayloft_wire::ids::{Block, ReplicaState};
use tokio_util::sync::CancellationToken;

use super::file_pair::Pair;
use super::finalized::FinalReplica;
use crate::error::{StoreError, StoreErrorKind};
use crate::volume::BlockPoolSlice;

/// The directory that a replica's files are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaDir {
    /// `current/finalized/subdirA/subdirB`.
    Finalized,
    /// `current/rbw`.
    Rbw,
    /// `tmp`.
    Temporary,
    /// `current/lazypersist/subdirA/subdirB`: the second copy of a replica in memory, which is in
    /// no map.
    LazyPersist,
}

/// The end of a replica: its length, and the CRC of its last chunk when that is partial (else 0).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tail {
    /// Bytes.
    pub len: u64,
    /// CRC of the bytes since the last chunk boundary.
    pub crc: u32,
}

/// What changes about a live replica. Readers take it in one piece, so that length and checksum of
/// the last chunk always belong together.
#[derive(Clone, Debug)]
pub struct Status {
    /// State.
    pub state: ReplicaState,
    /// Where the files are.
    pub place: ReplicaDir,
    /// Generation stamp, as in the name of the meta file.
    pub generation_stamp: u64,
    /// Bytes of which data and checksums both are in the files: they outlive a killed process.
    pub bytes_on_disk: u64,
    /// Bytes that the whole pipeline has acknowledged, this node too.
    pub bytes_acked: u64,
    /// Bytes that were received here and that all nodes behind have acknowledged: readers may see
    /// them, and wait for the disk.
    pub bytes_shown: u64,
    /// Checksum in the meta file; `None` before its header was written.
    pub checksum: Option<DataChecksum>,
    /// CRC of the last chunk when that is partial.
    pub last_crc: u32,
    /// Bytes that may have to outlive power loss: those of the last hsync, and those from before
    /// this process or an append.
    pub synced_len: u64,
    /// An end that is on the device and that a start finds, whatever becomes of the checksum that
    /// covers it ([`kept_end`](super::kept_end)).
    pub kept_end: Option<Tail>,
    /// Length that it is expected to reach; 0 when not known.
    pub expected_len: u64,
    /// Bytes reserved for this replica on its volume and not yet written.
    pub bytes_reserved: u64,
    /// Those of them that the file system has allocated already.
    pub allocated_ahead: u64,
    /// Bytes from the beginning of the file that the file system has allocated. What is behind its
    /// end is given back when the replica is finalized.
    pub allocated_len: u64,
    /// It waits for recovery, and no acknowledged byte can have left it: its writer's process
    /// ended, and the system went on.
    pub as_written: bool,
    /// Told when another writer wants the replica.
    pub cancel: CancellationToken,
    /// Recovery id and the state before recovery.
    pub recovery: Option<(u64, ReplicaState)>,
    /// Pinned to this node.
    pub pinned: bool,
    /// The files may hold more or other bytes than `bytes_on_disk` says: a write failed, or the
    /// replica comes from an earlier process. They must be cut and checked before more is written.
    pub unsettled: bool,
    /// A sync of its files failed: bytes that were written before may not be on the device,
    /// whatever a later one says.
    pub sync_failed: bool,
    /// It is new and nothing was written to it: when its volume fails its writer goes elsewhere.
    pub unwritten: bool,
    /// What it was before an append opened it.
    pub appended: Option<FinalReplica>,
}

/// A replica that is not finalized, or that is under recovery.
///
/// A task that changes its files or its place in the map holds `writer`.
#[derive(Debug)]
pub struct LiveReplica {
    /// Block id.
    pub id: i64,
    /// Pool and volume.
    pub slice: Arc<BlockPoolSlice>,
    /// The exclusive right to change it.
    pub(crate) writer: Arc<tokio::sync::Mutex<()>>,
    /// For reading: held by background work that may use up the kernel's only word of lost bytes.
    /// For writing: held by a sync that a client relies on.
    pub(crate) syncing: tokio::sync::RwLock<()>,
    status: Mutex<Status>,
}

/// Directory of a replica's files.
#[must_use]
pub fn directory(slice: &BlockPoolSlice, place: ReplicaDir, id: i64) -> PathBuf {
    match place {
        ReplicaDir::Finalized => slice.paths.finalized_dir(id),
        ReplicaDir::Rbw => slice.paths.rbw(),
        ReplicaDir::Temporary => slice.paths.tmp(),
        ReplicaDir::LazyPersist => slice.paths.lazy_persist_dir(id),
    }
}

impl LiveReplica {
    /// A replica in the given status, without a writer.
    #[must_use]
    pub(crate) fn new(id: i64, slice: Arc<BlockPoolSlice>, status: Status) -> Self {
        Self {
            id,
            slice,
            writer: Arc::default(),
            syncing: tokio::sync::RwLock::default(),
            status: Mutex::new(status),
        }
    }

    /// Its status, to look at or change. Never held across I/O.
    pub(crate) fn status(&self) -> MutexGuard<'_, Status> {
        locks::lock(&self.status)
    }

    /// Its files.
    #[must_use]
    pub fn pair(&self) -> Pair {
        let status = self.status();
        Pair {
            dir: directory(&self.slice, status.place, self.id),
            id: self.id,
            generation_stamp: status.generation_stamp,
        }
    }

    /// A copy of its status.
    #[must_use]
    pub(crate) fn snapshot(&self) -> Status {
        self.status().clone()
    }

    /// Bytes that it will have, as far as its writer has said.
    #[must_use]
    pub fn expected_len(&self) -> u64 {
        let status = self.status();
        status.expected_len.max(status.bytes_on_disk)
    }

    /// Id, generation stamp and bytes on disk.
    #[must_use]
    pub fn block(&self) -> Block {
        let status = self.status();
        Block::new(self.id, status.generation_stamp, status.bytes_on_disk)
    }

    /// What it was before an append that has brought no byte yet: where its volume fails it is that
    /// again.
    pub(crate) fn before_append(&self) -> Option<FinalReplica> {
        let status = self.status();
        let received = status.bytes_on_disk.max(status.bytes_shown);
        status.appended.filter(|before| before.len == received)
    }

    /// Takes note of a failed operation on its files. After a failed sync or write-back nothing of
    /// it counts as synced any more, and the stamp of its volume stays.
    pub(crate) fn note_failure(&self, error: &IoError) {
        if matches!(error.op(), IoOp::Sync | IoOp::Writeback) {
            self.note_lost_writes();
            self.slice.volume.commits.note_lost();
        }
    }

    /// Refuses to call anything of it synced after a sync has failed: the kernel tells of bytes
    /// that did not reach the device once.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn refuse_after_failed_sync(&self) -> Result<(), StoreError> {
        if !self.status().sync_failed {
            return Ok(());
        }
        let text = format!(
            "an earlier sync of replica {} failed: what was written before it may not be on the \
                disk",
            self.block()
        );
        Err(StoreError::new(StoreErrorKind::Io, text))
    }

    /// Takes note that written bytes did not reach the device: nothing of it counts as synced.
    pub(crate) fn note_lost_writes(&self) {
        self.status().sync_failed = true;
    }

    /// Gives back to the volume what was reserved and not used.
    pub(crate) fn release_reserved(&self) {
        let (reserved, allocated) = {
            let mut status = self.status();
            (
                std::mem::take(&mut status.bytes_reserved),
                std::mem::take(&mut status.allocated_ahead),
            )
        };
        self.slice.volume.release_reserved(reserved);
        self.slice.volume.release_allocated(allocated);
    }

    /// The file system has allocated the first `whole` bytes: what is reserved of them is taken
    /// already.
    pub(crate) fn note_allocated(&self, whole: u64) {
        let mut status = self.status();
        status.allocated_len = status.allocated_len.max(whole);
        let ahead = whole
            .saturating_sub(status.bytes_on_disk)
            .min(status.bytes_reserved);
        let more = ahead.saturating_sub(status.allocated_ahead);
        status.allocated_ahead += more;
        drop(status);
        self.slice.volume.note_allocated(more);
    }
}

impl Drop for LiveReplica {
    /// No room stays reserved for what no task knows any more.
    fn drop(&mut self) {
        self.release_reserved();
    }
}

impl Status {
    /// A replica without data.
    #[must_use]
    pub fn new(state: ReplicaState, place: ReplicaDir, generation_stamp: u64) -> Self {
        Self {
            state,
            place,
            generation_stamp,
            bytes_on_disk: 0,
            bytes_acked: 0,
            bytes_shown: 0,
            checksum: None,
            last_crc: 0,
            synced_len: 0,
            kept_end: None,
            bytes_reserved: 0,
            expected_len: 0,
            allocated_ahead: 0,
            allocated_len: 0,
            as_written: false,
            cancel: CancellationToken::new(),
            recovery: None,
            pinned: false,
            unsettled: false,
            sync_failed: false,
            unwritten: false,
            appended: None,
        }
    }

    /// Where it ends.
    #[must_use]
    pub fn tail(&self) -> Tail {
        Tail {
            len: self.bytes_on_disk,
            crc: self.last_crc,
        }
    }

    /// Whether a checksum that covers synced bytes goes when the one of the chunk at `chunk_start`
    /// is replaced, and nothing else would tell where they end.
    #[must_use]
    pub fn needs_kept_end(&self, chunk_start: u64) -> bool {
        let kept_len = self.kept_end.map(|end| end.len);
        chunk_start < self.synced_len && kept_len != Some(self.synced_len)
    }

    /// Bytes that readers may see, as Apache decides by state: all of a finalized replica, what was
    /// acknowledged of one being written. `None`: not readable at all (a copy that is being
    /// received).
    ///
    /// Beyond Apache's 3.5.0: all that was verified of a replica that waits for recovery. What a
    /// client hflushed stays visible when the process was killed. Where power may have taken bytes,
    /// other nodes may have more, and a reader believes the first that answers: it says nothing.
    #[must_use]
    pub fn visible_len(&self) -> Option<u64> {
        let state = self.recovery.map_or(self.state, |(_, original)| original);
        match state {
            ReplicaState::Finalized => Some(self.bytes_on_disk),
            ReplicaState::Rbw => Some(self.bytes_acked.max(self.bytes_shown)),
            ReplicaState::Rwr => self.as_written.then_some(self.bytes_on_disk),
            ReplicaState::Rur | ReplicaState::Temporary => None,
        }
    }
}
