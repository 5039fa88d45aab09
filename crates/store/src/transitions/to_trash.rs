//! Where deleted replicas go while a rolling upgrade runs.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use hayloft_io::{IoClass, IoError, IoOp};
use hayloft_wire::ids::Block;

use crate::layout::dirs::make_dir;
use crate::layout::names::{self, CURRENT, PREVIOUS, TRASH};
use crate::replica::ReplicaDir;
use crate::replica::block_pool::Pool;
use crate::replica::file_pair::{link_meta, on_disk};
use crate::replica::live::directory;
use crate::volume::BlockPoolSlice;

/// Where a deleted replica goes instead of being deleted; `None` when no rolling upgrade runs.
#[must_use]
pub fn trash_for(
    pool: &Pool,
    slice: &BlockPoolSlice,
    place: ReplicaDir,
    id: i64,
) -> Option<PathBuf> {
    if !pool.rolling.is_on() || place == ReplicaDir::Temporary {
        return None;
    }
    let dir = directory(slice, place, id);
    let below = dir.strip_prefix(slice.paths.root.join(CURRENT)).ok()?;
    Some(slice.paths.root.join(TRASH).join(below))
}

/// Moves a replica's files to the trash in the order of [`files`](crate::replica::file_pair): the
/// pair is whole either here or there. Gives the bytes they have. `None`, with nothing done, when
/// `previous` is there: it has the replica already, and no DataNode rolls back with both.
pub async fn to_trash(
    slice: &BlockPoolSlice,
    place: ReplicaDir,
    block: Block,
    trash: PathBuf,
) -> Result<Option<u64>, IoError> {
    let dir = directory(slice, place, block.id);
    let path = dir.join(names::data_name(block.id));
    let previous = slice.paths.root.join(PREVIOUS);
    on_disk(
        slice,
        IoClass::ClientWrite,
        IoOp::Rename,
        &path,
        move || {
            if previous.try_exists()? {
                return Ok(None);
            }
            make_dir(&trash)?;
            let [data, meta] = [
                names::data_name(block.id),
                names::meta_name(block.id, block.generation_stamp),
            ]
            .map(|name| (dir.join(&name), trash.join(&name)));
            let meta_bytes = length(&meta.0)?;
            if meta_bytes.is_some() {
                link_meta(&meta.0, &meta.1)?;
            }
            let data_bytes = length(&data.0)?;
            if data_bytes.is_some() {
                fs::rename(&data.0, &data.1)?;
            }
            if meta_bytes.is_some() {
                fs::remove_file(&meta.0)?;
            }
            Ok(Some(data_bytes.unwrap_or(0) + meta_bytes.unwrap_or(0)))
        },
    )
    .await
}

/// Bytes of a file; `None` when it is not there.
fn length(path: &Path) -> io::Result<Option<u64>> {
    match fs::metadata(path) {
        Ok(meta) => Ok(Some(meta.len())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}
