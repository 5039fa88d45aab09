//! What is done to a pool's directory on a volume before its replicas are looked for.

use std::fs;
use std::io;
use std::path::Path;
use std::time::SystemTime;

use hayloft_io::{DataFiles, IoClass, IoOp};
use tracing::info;

use super::upgrade_or_roll_back::{self, Present};
use super::{FoundUpgrade, restore};
use crate::error::StoreError;
use crate::layout::dirs::{DIR_MODE, FILE_MODE, read_small};
use crate::layout::names::{
    self, CURRENT, PREVIOUS, PoolPaths, ROLLING_UPGRADE_MARKER, TRASH, VERSION,
};
use crate::layout::version::{PoolVersion, VERSION_BYTES_MAX};
use crate::replica::file_pair::{on_disk, sync_dir};
use crate::types::{PoolSpec, StartOption};
use crate::volume::BlockPoolSlice;

/// Why a directory cannot be used; an operator has to act.
type Refusal = String;

/// Finishes what was interrupted, rolls back when told to, follows the NameNode's upgrade, and
/// formats a directory that is new.
///
/// # Errors
/// `Incompatible` with what to do when the directory is of another namespace, in a state that
/// cannot be, or newer than the NameNode's; `Io`.
pub async fn prepare(
    spec: &PoolSpec,
    slice: &BlockPoolSlice,
    start: StartOption,
) -> Result<FoundUpgrade, StoreError> {
    let doing = format!(
        "block pool {} on {}",
        slice.pool,
        slice.volume.root.display()
    );
    let (paths, pool) = (slice.paths.clone(), spec.clone());
    let data_files = slice.volume.data_files();
    let outcome = on_disk(
        slice,
        IoClass::ClientWrite,
        IoOp::List,
        &slice.paths.root,
        move || settle(&data_files, &paths, &pool, start),
    )
    .await
    .map_err(|e| StoreError::io(&doing, e))?;
    let found = outcome.map_err(|text| StoreError::incompatible(format!("{doing}: {text}")))?;
    if found.new {
        format(spec, slice)
            .await
            .map_err(|e| StoreError::io(&doing, e))?;
    }
    Ok(found)
}

fn settle(
    data_files: &DataFiles,
    paths: &PoolPaths,
    spec: &PoolSpec,
    start: StartOption,
) -> io::Result<Result<FoundUpgrade, Refusal>> {
    let root = &paths.root;
    match Present::look(root)?.judge() {
        Ok(None) => {}
        Ok(Some(unfinished)) => upgrade_or_roll_back::finish(root, unfinished)?,
        Err(text) => {
            return Ok(Err(format!(
                "{text}: {} is in a state that no upgrade or rollback leaves. Restore it from a \
                    backup, or move it \
                 away to have its blocks copied here again",
                root.display()
            )));
        }
    }
    if start != StartOption::Regular
        && let Err(refusal) = go_back(paths, spec)?
    {
        return Ok(Err(refusal));
    }
    let new = match read_version(&paths.current())? {
        None => true,
        Some(version) => match fits(version, spec) {
            Err(refusal) => return Ok(Err(refusal)),
            Ok(Fits::Same) => false,
            Ok(Fits::Older) => {
                upgrade_or_roll_back::upgrade(data_files, paths, &version_of(spec))?;
                false
            }
        },
    };
    Ok(Ok(FoundUpgrade {
        marker: root.join(ROLLING_UPGRADE_MARKER).try_exists()?,
        new,
    }))
}

/// Goes back to `previous`, or takes the blocks that a rolling upgrade deleted back out of `trash`.
/// The upgrade's marker goes.
fn go_back(paths: &PoolPaths, spec: &PoolSpec) -> io::Result<Result<(), Refusal>> {
    let (root, trash) = (&paths.root, paths.root.join(TRASH));
    if root.join(PREVIOUS).try_exists()? {
        if trash.try_exists()? {
            return Ok(Err(format!(
                "{PREVIOUS} and {TRASH} cannot be there together: hayloft trash list says what \
                 they hold, hayloft trash purge lets {TRASH} go"
            )));
        }
        let refusal = match read_version(&root.join(PREVIOUS))? {
            None => Some(format!("{PREVIOUS}/{VERSION} is missing")),
            Some(Err(why)) => Some(format!("{PREVIOUS}/{VERSION} cannot be used: {why}")),
            Some(Ok(old)) if old.ctime > spec.ctime => Some(format!(
                "cannot roll back to a newer state: cTime of {PREVIOUS} is {}, the NameNode's is \
                    {}. Roll the NameNode \
                 back first",
                old.ctime, spec.ctime
            )),
            Some(Ok(_)) => None,
        };
        if let Some(refusal) = refusal {
            return Ok(Err(refusal));
        }
        upgrade_or_roll_back::roll_back(root)?;
    } else {
        let restored = restore(&trash, &paths.current(), 0)?;
        info!(pool = %root.display(), restored, "restored block files from trash");
    }
    // What a clean stop saved does not know of these. The marker is of the upgrade that ends here.
    let current = paths.current();
    for path in [
        current.join(names::REPLICAS),
        current.join(names::DFS_USED),
        root.join(ROLLING_UPGRADE_MARKER),
    ] {
        match fs::remove_file(path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
    }
    sync_dir(root)?;
    Ok(Ok(()))
}

type Version = Result<PoolVersion, Refusal>;

/// Reads VERSION in `dir`; `None` when there is none.
fn read_version(dir: &Path) -> io::Result<Option<Version>> {
    let bytes = read_small(&dir.join(VERSION), VERSION_BYTES_MAX)?;
    Ok(bytes.map(|bytes| PoolVersion::parse(&bytes).map_err(|e| e.to_string())))
}

/// How a directory compares with the NameNode.
enum Fits {
    Same,
    /// The NameNode was upgraded since.
    Older,
}

fn fits(version: Version, spec: &PoolSpec) -> Result<Fits, Refusal> {
    let version = version.map_err(|e| format!("{CURRENT}/{VERSION} cannot be used: {e}"))?;
    if version.pool != spec.pool {
        return Err(format!("VERSION is of block pool {}", version.pool));
    }
    if version.namespace_id != spec.namespace_id {
        return Err(format!(
            "Incompatible namespaceIDs: namenode namespaceID = {}; datanode namespaceID = {}. The \
                pool directory is of \
             another namespace: move it away to start empty",
            spec.namespace_id, version.namespace_id
        ));
    }
    if version.ctime > spec.ctime {
        return Err(format!(
            "its cTime {} is newer than the NameNode's {}: the NameNode was rolled back. Start \
                this node with -rollback \
             to go back to the state before the upgrade",
            version.ctime, spec.ctime
        ));
    }
    Ok(if version.ctime < spec.ctime {
        Fits::Older
    } else {
        Fits::Same
    })
}

fn version_of(spec: &PoolSpec) -> PoolVersion {
    PoolVersion {
        namespace_id: spec.namespace_id,
        ctime: spec.ctime,
        pool: spec.pool.clone(),
    }
}

/// Writes the VERSION of a new pool.
async fn format(spec: &PoolSpec, slice: &BlockPoolSlice) -> Result<(), hayloft_io::IoError> {
    info!(pool = %spec.pool, volume = %slice.volume.root.display(), "formatting block pool");
    let meta = slice.volume.meta(IoClass::ClientWrite);
    meta.create_dir_all(&slice.paths.current(), DIR_MODE)
        .await?;
    let contents = version_of(spec).encode(SystemTime::now());
    meta.replace(&slice.paths.version(), contents, FILE_MODE)
        .await
}
