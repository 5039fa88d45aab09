//! One replica on its way into the store: read once, compared with its meta file before any object
//! of it is whole.

use opendal::Buffer;

use crate::SnapshotProgress;
use crate::error::SnapshotError;
use crate::manifest::ManifestReplica;
use crate::names::BlockName;
use crate::rate::Rate;
use crate::replica_check::{DamagedReplica, MetaFile, ReplicaCheck};
use crate::source::{LocalReplica, ReadFailure, ReplicaBytes, Replicas};
use crate::target::Target;

/// Bytes of a part of an object, and read at a time; data files up to it are one request.
const PART_BYTES: usize = 8 << 20;
/// Parts of an object that are on their way at a time.
const PARTS: usize = 2;

/// What became of a replica.
#[derive(Debug)]
pub enum Uploaded {
    /// It is in the store, whole.
    Stored(ManifestReplica),
    /// It is left out.
    LeftOut(ReadFailure),
}

/// Where replicas come from and go to.
#[derive(Clone, Copy)]
pub struct Way<'a> {
    /// The node.
    pub source: &'a dyn Replicas,
    /// The store.
    pub target: &'a Target,
    /// Uuid of the node.
    pub node: &'a str,
    /// Bytes a second.
    pub rate: &'a Rate,
    /// How far it is.
    pub progress: &'a SnapshotProgress,
}

/// Stops a transfer: the store fails it, or the replica is left out.
enum Stop {
    Store(SnapshotError),
    LeftOut(ReadFailure),
}

impl From<ReadFailure> for Stop {
    fn from(failure: ReadFailure) -> Self {
        Self::LeftOut(failure)
    }
}

impl From<SnapshotError> for Stop {
    fn from(error: SnapshotError) -> Self {
        Self::Store(error)
    }
}

impl From<DamagedReplica> for Stop {
    fn from(DamagedReplica(why): DamagedReplica) -> Self {
        Self::LeftOut(ReadFailure::Damaged(why))
    }
}

fn settled(done: Result<ManifestReplica, Stop>) -> Result<Uploaded, SnapshotError> {
    match done {
        Ok(replica) => Ok(Uploaded::Stored(replica)),
        Err(Stop::LeftOut(failure)) => Ok(Uploaded::LeftOut(failure)),
        Err(Stop::Store(error)) => Err(error),
    }
}

impl Way<'_> {
    /// Puts a replica into the store.
    pub async fn upload(&self, replica: &LocalReplica) -> Result<Uploaded, SnapshotError> {
        settled(self.put(replica).await)
    }

    /// What the manifest says of a replica whose objects, of `meta_len` bytes the meta file, are
    /// there: an earlier run compared and wrote them, and was stopped before its manifest.
    pub async fn known(
        &self,
        replica: &LocalReplica,
        meta_len: u64,
    ) -> Result<Option<ManifestReplica>, SnapshotError> {
        let look = async {
            let mut bytes = self.source.open(replica).await?;
            let meta = MetaFile::new(&bytes.meta().await?, replica.block.num_bytes)?;
            Ok::<_, Stop>(describe(replica, &meta, meta.composed_crc()))
        };
        match settled(look.await)? {
            Uploaded::Stored(known) if known.meta_len == meta_len => Ok(Some(known)),
            _ => Ok(None),
        }
    }

    async fn put(&self, replica: &LocalReplica) -> Result<ManifestReplica, Stop> {
        let mut bytes = self.source.open(replica).await?;
        let len = replica.block.num_bytes;
        let meta = MetaFile::new(&bytes.meta().await?, len)?;
        let name = BlockName::new(&replica.pool, replica.block);
        let path = name.data(self.node);
        let crc = if len <= PART_BYTES as u64 {
            let (data, crc) = self.read_whole(&mut *bytes, &meta, len).await?;
            self.target.write(&path, data).await?;
            crc
        } else {
            self.put_in_parts(&path, &mut *bytes, &meta).await?
        };
        if meta.composed_crc().is_some_and(|composed| composed != crc) {
            // Each chunk fits its checksum, so this is a defect, and no snapshot is made of it.
            let why = "its checksums do not add up to that of its data".to_owned();
            return Err(ReadFailure::Damaged(why).into());
        }
        self.target
            .write(&name.meta(self.node), meta.bytes().clone())
            .await?;
        Ok(describe(replica, &meta, Some(crc)))
    }

    async fn read_whole(
        &self,
        bytes: &mut dyn ReplicaBytes,
        meta: &MetaFile,
        len: u64,
    ) -> Result<(bytes::Bytes, u32), Stop> {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        self.rate.take(len).await;
        let data = bytes.data(len).await?;
        let mut check = ReplicaCheck::new(meta.clone());
        check.take(&data)?;
        self.progress.add(len as u64);
        Ok((data, check.finish()?))
    }

    /// A large object. Its last part is sent after all of it was compared, so that an object of a
    /// damaged replica is never whole.
    async fn put_in_parts(
        &self,
        path: &str,
        bytes: &mut dyn ReplicaBytes,
        meta: &MetaFile,
    ) -> Result<u32, Stop> {
        let failed = |e| SnapshotError::of_store("write an object", &self.target.at(path), &e);
        let writer = self.target.operator().writer_with(path);
        let writer = writer.chunk(PART_BYTES).concurrent(PARTS).await;
        let mut writer = writer.map_err(failed)?;
        let mut check = ReplicaCheck::new(meta.clone());
        let piece = meta.piece(PART_BYTES);
        let sent = async {
            while check.left() > 0 {
                let len = usize::try_from(check.left()).map_or(piece, |left| left.min(piece));
                self.rate.take(len).await;
                let data = bytes.data(len).await?;
                check.take(&data)?;
                self.progress.add(len as u64);
                writer.write(Buffer::from(data)).await.map_err(failed)?;
            }
            Ok::<_, Stop>(())
        };
        let sent = sent.await;
        if let Err(stop) = sent {
            // The first error is the one to report; a store removes what is never finished.
            let _ = writer.abort().await;
            return Err(stop);
        }
        let crc = check.finish()?;
        writer.close().await.map_err(failed)?;
        Ok(crc)
    }
}

fn describe(replica: &LocalReplica, meta: &MetaFile, crc: Option<u32>) -> ManifestReplica {
    ManifestReplica {
        name: BlockName::new(&replica.pool, replica.block),
        meta_len: meta.bytes().len() as u64,
        crc,
        meta_crc: meta.own_crc(),
        storage: replica.storage,
        pinned: replica.pinned,
    }
}
