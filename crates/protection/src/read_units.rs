//! Where units are read: on volumes of stores, or in directories that no store uses.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

use hayloft_io::{Engine, EngineFile, IoClass, IoError, IoOp, Meta, OpenMode};
use hayloft_parity::FileStamp;
use hayloft_store::{StoreError, StoreErrorKind};
use hayloft_wire::ids::PoolId;

use super::Parity;
use super::unattended::Unattended;
use super::volumes::{UnitPlace, answer};

/// Where units are read.
#[derive(Clone, Debug)]
pub enum SourcePlace {
    /// A volume of a store.
    Attended(UnitPlace),
    /// A directory that no store uses.
    Unattended(Arc<Unattended>),
}

impl SourcePlace {
    /// The directory.
    pub fn root(&self) -> &Path {
        match self {
            Self::Attended(place) => &place.volume.root,
            Self::Unattended(dir) => &dir.root,
        }
    }

    /// What reads its files.
    pub fn engine(&self) -> &Arc<dyn Engine> {
        match self {
            Self::Attended(place) => &place.volume.engine,
            Self::Unattended(dir) => &dir.engine,
        }
    }

    /// Operations on names, in `class`.
    pub fn meta(&self, class: IoClass) -> Meta {
        self.engine().meta(class)
    }

    /// The answer of its disk, unless that takes too long.
    pub async fn answer<T>(
        &self,
        work: impl Future<Output = Result<T, IoError>>,
    ) -> Result<T, IoError> {
        match self {
            Self::Attended(place) => answer(place, work).await,
            Self::Unattended(dir) => dir.answer(work).await,
        }
    }

    /// An error of a volume, which is examined for it, or of a directory.
    pub fn failed(&self, doing: &str, error: IoError) -> StoreError {
        match self {
            Self::Attended(place) => place.failed(doing, error),
            Self::Unattended(_) => StoreError::io(doing, error),
        }
    }
}

impl From<&UnitPlace> for SourcePlace {
    fn from(place: &UnitPlace) -> Self {
        Self::Attended(place.clone())
    }
}

impl Parity {
    /// Where a unit on this storage is read.
    pub(super) fn source(&self, storage: &str, pool: &PoolId) -> Option<SourcePlace> {
        let place = self.place(storage);
        if let Some(place) = place.filter(|place| place.store.pool(pool).is_ok()) {
            return Some(SourcePlace::Attended(place));
        }
        self.unattended(storage).map(SourcePlace::Unattended)
    }

    /// As [`source`](Self::source).
    ///
    /// # Errors
    /// `VolumeFailed`.
    pub(super) fn source_of(
        &self,
        storage: &str,
        pool: &PoolId,
    ) -> Result<SourcePlace, StoreError> {
        self.source(storage, pool)
            .ok_or_else(|| not_in_use(storage))
    }
}

/// The error for a storage that no store uses.
fn not_in_use(storage: &str) -> StoreError {
    let text = format!("the volume {storage} of a parity group is not in use");
    StoreError::new(StoreErrorKind::VolumeFailed, text)
}

/// Opens a file to read.
pub async fn open_source(
    place: &SourcePlace,
    path: &Path,
    class: IoClass,
) -> Result<Arc<dyn EngineFile>, IoError> {
    place
        .answer(place.engine().open(path, OpenMode::ReadOnly, class))
        .await
}

/// What a file looks like now; `None` when it is not there.
pub async fn stamp(
    place: &SourcePlace,
    path: &Path,
    class: IoClass,
) -> Result<Option<FileStamp>, IoError> {
    let meta = place.meta(class);
    place.answer(meta.run(IoOp::Stat, path, stamp_of)).await
}

/// The same, blocking.
pub fn stamp_of(path: &Path) -> Result<Option<FileStamp>, IoError> {
    let facts = match std::fs::metadata(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(|e| IoError::from_std(IoOp::Stat, path, &e))?,
    };
    let ns = facts.mtime().saturating_mul(1_000_000_000);
    Ok(Some(FileStamp {
        inode: facts.ino(),
        changed_ns: ns.saturating_add(facts.mtime_nsec()),
        len: facts.len(),
    }))
}
