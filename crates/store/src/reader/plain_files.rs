//! The files of a replica for another process, which reads them by itself, and how it hears that
//! the replica has changed.

use std::fs::File;
use std::sync::Arc;

use hayloft_io::{IoClass, IoError, IoErrorKind, IoOp, patiently};
use hayloft_wire::ids::{Block, ExtendedBlock};

use super::open::{MissingMeta, open_reader};
use crate::error::StoreError;
use crate::replica::block_pool::Pool;
use crate::replica::file_pair::{self, Pair};
use crate::replica::watched::ReplicaMarks;
use crate::replica::{FinalReplica, Slot};
use crate::state::StoreState;
use crate::transitions::check_volume::examine;
use crate::volume::BlockPoolSlice;

/// Both files of a finalized replica, opened for nothing but reading, through the page cache. No
/// other code of this process has them: what is done to their descriptors is done to no reader.
#[derive(Debug)]
pub struct PlainFiles {
    /// The data.
    pub data: File,
    /// The checksums.
    pub meta: File,
}

/// See [`Store::open_plain_files`](crate::Store::open_plain_files).
pub(crate) async fn open_plain_files(
    store: &Arc<StoreState>,
    wanted: &ExtendedBlock,
) -> Result<Option<PlainFiles>, StoreError> {
    let pool = store.pool(&wanted.pool)?;
    let id = wanted.block.id;
    if let Some(Slot::Finalized(replica)) = pool.map.get(id)
        && replica.generation_stamp >= wanted.block.generation_stamp
        && let Ok(slice) = pool.slice(replica.volume)
    {
        let of = (id, &replica);
        let opening =
            async { Ok(open_own_files(store, &pool, of, &slice, IoClass::ClientRead).await) };
        match pool.unless_gone(replica.volume, opening).await? {
            Ok(Some(files)) => {
                pool.map.in_memory.touch(id, replica.volume);
                return Ok(Some(files));
            }
            Ok(None) => {}
            Err(e) => {
                let doing = format!("opening replica {wanted} for another process");
                return Err(examine(store, &slice.volume, StoreError::io(doing, e)));
            }
        }
    }
    // It is open, decoded, elsewhere than in files, or moves just now: is there anything to read?
    let reader = open_reader(store, wanted, MissingMeta::Tolerated).await?;
    drop(reader);
    Ok(None)
}

/// Opens both files of a finalized replica. `None` when it has none that are its own, plain and
/// whole, or is not as given any more.
///
/// # Errors
/// What the disk or the system said.
pub(crate) async fn open_own_files(
    store: &Arc<StoreState>,
    pool: &Arc<Pool>,
    (id, replica): (i64, &FinalReplica),
    slice: &Arc<BlockPoolSlice>,
    class: IoClass,
) -> Result<Option<PlainFiles>, IoError> {
    if !slice.volume.data_files().are_plain() || is_mended(store, pool, (id, replica), slice) {
        return Ok(None);
    }
    let pair = Pair::finalized(&slice.paths, id, replica.generation_stamp);
    let opened = open_pair(slice, pair, class).await;
    // Names that were given to another replica meanwhile are not its files.
    let unchanged = pool.map.is_finalized(id, replica);
    match opened {
        Ok(files) if unchanged => Ok(Some(files)),
        Err(e) if unchanged && e.kind() != IoErrorKind::NotFound => Err(e),
        _ => Ok(None),
    }
}

/// Whether parity mends what a reader finds damaged. That takes a read by the node: another process
/// would get the damage, and report it.
fn is_mended(
    store: &Arc<StoreState>,
    pool: &Pool,
    (id, replica): (i64, &FinalReplica),
    slice: &BlockPoolSlice,
) -> bool {
    let block = Block::new(id, replica.generation_stamp, replica.len);
    let protection = store.protection.as_ref();
    protection
        .and_then(|p| p.mender(store, &pool.extended(block), &slice.volume.info))
        .is_some()
}

async fn open_pair(
    slice: &BlockPoolSlice,
    pair: Pair,
    class: IoClass,
) -> Result<PlainFiles, IoError> {
    let path = pair.data();
    let open = move || {
        Ok(PlainFiles {
            data: patiently(|| File::open(pair.data()))?,
            meta: patiently(|| File::open(pair.meta()))?,
        })
    };
    file_pair::on_disk(slice, class, IoOp::Open, &path, open).await
}

/// A replica that is watched: its next change clears the marks, until this is dropped.
#[derive(Debug)]
pub struct ReplicaWatch {
    pool: Arc<Pool>,
    id: i64,
    number: u64,
}

impl ReplicaWatch {
    /// Watches a block, whether it is there or not.
    pub(crate) fn new(pool: Arc<Pool>, id: i64, marks: ReplicaMarks) -> Self {
        let number = pool.map.watch(id, marks);
        Self { pool, id, number }
    }
}

impl Drop for ReplicaWatch {
    fn drop(&mut self) {
        self.pool.map.watched().remove(self.id, self.number);
    }
}
