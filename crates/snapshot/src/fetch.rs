//! One replica on its way out of the store: compared with its meta file and the manifest as it
//! comes.

use bytes::Bytes;
use futures_util::future::BoxFuture;
use opendal::ErrorKind;

use crate::SnapshotProgress;
use crate::error::SnapshotError;
use crate::manifest::ManifestReplica;
use crate::rate::Rate;
use crate::replica_check::{DamagedReplica, MetaFile, ReplicaCheck};
use crate::target::Target;

/// Bytes that are fetched at a time.
const PIECE_BYTES: usize = 8 << 20;

/// Why a replica does not come whole.
#[derive(Debug)]
pub enum Broken {
    /// Its objects are missing or altered, in words.
    Objects(String),
    /// The store does not answer, or refuses.
    Store(SnapshotError),
    /// What it is for fails.
    Sink(SnapshotError),
}

impl From<DamagedReplica> for Broken {
    fn from(DamagedReplica(why): DamagedReplica) -> Self {
        Self::Objects(why)
    }
}

/// A replica on its way to its place.
pub trait IncomingReplica: Send {
    /// Bytes that belong at this offset, and follow those before. They were compared with their
    /// checksums.
    fn data(&mut self, at: u64, bytes: Bytes) -> BoxFuture<'_, Result<(), SnapshotError>>;
    /// All of it came and fits the manifest; whether it is on a storage of the type that it had.
    /// Without this it must not be taken for a replica.
    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<bool, SnapshotError>>;
}

/// Takes bytes, and leaves it at that.
pub struct Nowhere;

impl IncomingReplica for Nowhere {
    fn data(&mut self, _: u64, _: Bytes) -> BoxFuture<'_, Result<(), SnapshotError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<bool, SnapshotError>> {
        Box::pin(std::future::ready(Ok(true)))
    }
}

/// Where replicas come from.
#[derive(Clone, Copy)]
pub struct Fetch<'a> {
    /// The store.
    pub target: &'a Target,
    /// Uuid of the node whose snapshot it is.
    pub node: &'a str,
    /// Bytes a second.
    pub rate: &'a Rate,
    /// How far it is.
    pub progress: &'a SnapshotProgress,
}

impl Fetch<'_> {
    /// The meta file of a replica, compared with the manifest.
    pub async fn meta(&self, replica: &ManifestReplica) -> Result<MetaFile, Broken> {
        let path = replica.name.meta(self.node);
        self.has(&path, replica.meta_len).await?;
        let bytes = self.range(&path, 0, replica.meta_len).await?;
        let meta = MetaFile::new(&bytes, replica.name.len)?;
        if meta.bytes().len() != bytes.len() || meta.own_crc() != replica.meta_crc {
            return Err(Broken::Objects(format!("{path} was altered")));
        }
        if let (Some(composed), Some(crc)) = (meta.composed_crc(), replica.crc)
            && composed != crc
        {
            let text = format!("{path} does not fit the manifest");
            return Err(Broken::Objects(text));
        }
        Ok(meta)
    }

    /// The data of a replica, piece by piece; each has been compared when `to` gets it. All of it
    /// fits the manifest when this returns well.
    pub async fn data(
        &self,
        replica: &ManifestReplica,
        meta: MetaFile,
        to: &mut dyn IncomingReplica,
    ) -> Result<(), Broken> {
        let path = replica.name.data(self.node);
        let piece = meta.piece(PIECE_BYTES) as u64;
        let len = replica.name.len;
        self.has(&path, len).await?;
        let mut check = ReplicaCheck::new(meta);
        while check.left() > 0 {
            let at = len - check.left();
            let bytes = self.range(&path, at, check.left().min(piece)).await?;
            let altered = |DamagedReplica(why)| Broken::Objects(format!("{path}: {why}"));
            check.take(&bytes).map_err(altered)?;
            self.progress.add(bytes.len() as u64);
            to.data(at, bytes).await.map_err(Broken::Sink)?;
        }
        let crc = check.finish()?;
        if replica.crc.is_some_and(|wanted| wanted != crc) {
            return Err(Broken::Objects(format!("{path} does not fit the manifest")));
        }
        Ok(())
    }

    /// Refuses an object that has not this length: a store would be asked again and again for bytes
    /// that are not there.
    async fn has(&self, path: &str, len: u64) -> Result<(), Broken> {
        let stat = self.target.operator().stat(path).await;
        let found = stat.map_err(|e| self.broken(path, &e))?.content_length();
        if found == len {
            return Ok(());
        }
        let text = format!("{path} has {found} bytes of {len}");
        Err(Broken::Objects(text))
    }

    async fn range(&self, path: &str, at: u64, len: u64) -> Result<Bytes, Broken> {
        if len == 0 {
            return Ok(Bytes::new());
        }
        self.rate
            .take(usize::try_from(len).unwrap_or(usize::MAX))
            .await;
        let operator = self.target.operator();
        let read = operator.read_with(path).range(at..at + len).await;
        let bytes = read.map_err(|e| self.broken(path, &e))?.to_bytes();
        if bytes.len() as u64 != len {
            let text = format!("{path} ends before byte {}", at + len);
            return Err(Broken::Objects(text));
        }
        Ok(bytes)
    }

    fn broken(&self, path: &str, error: &opendal::Error) -> Broken {
        match error.kind() {
            ErrorKind::NotFound => Broken::Objects(format!("{path} is missing")),
            ErrorKind::RangeNotSatisfied => Broken::Objects(format!("{path} is too short")),
            _ => {
                let place = self.target.at(path);
                Broken::Store(SnapshotError::of_store("read an object", &place, error))
            }
        }
    }
}
