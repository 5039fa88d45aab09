//! The VERSION of a pool on a volume, made again from the other volumes where it is empty or cut.
//!
//! A DataNode that writes the file in place leaves it so at a power cut. The replicas beside it are
//! whole. Its contents are the same on all volumes of a node.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use hayloft_io::{IoClass, IoError, IoOp};
use tracing::{debug, warn};

use crate::layout::dirs::{FILE_MODE, read_small};
use crate::layout::names::{CURRENT, PREVIOUS, PoolPaths, VERSION};
use crate::layout::version::{PoolVersion, VERSION_BYTES_MAX, VersionError};
use crate::replica::block_pool::Pool;
use crate::service::upgrade;
use crate::volume::Volume;

/// What the directory of a pool on a volume says.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Found {
    /// Its VERSION, and whether there is a state before an upgrade.
    Whole(PoolVersion, bool),
    /// VERSION is empty or cut.
    Cut(bool),
    /// Nothing that this is about.
    Other,
}

/// Writes VERSION again where it is empty or cut and the other volumes agree on it. What cannot be
/// mended is for the loading of the pool to tell.
pub async fn mend(pool: &Pool, volumes: &[Arc<Volume>]) {
    let looks = volumes.iter().map(|volume| look_on(pool, volume));
    let found = futures_util::future::join_all(looks).await;
    let mut whole = found
        .iter()
        .filter(|found| matches!(found, Found::Whole(..)));
    let Some(Found::Whole(version, upgraded)) = whole.next() else {
        return;
    };
    let agree = whole.all(|other| *other == Found::Whole(version.clone(), *upgraded));
    let of_pool = version.pool == *pool.id() && version.namespace_id == pool.spec.namespace_id;
    if !agree || !of_pool {
        return;
    }
    for (volume, _) in volumes
        .iter()
        .zip(&found)
        .filter(|(_, f)| **f == Found::Cut(*upgraded))
    {
        let path = PoolPaths::new(&volume.root, pool.id()).version();
        let meta = volume.meta(IoClass::ClientWrite);
        let contents = version.encode(SystemTime::now());
        match meta.replace(&path, contents, FILE_MODE).await {
            Ok(()) => warn!(path = %path.display(), "was empty or cut, as a power cut may leave \
                it: made again from the other volumes, which agree"),
            Err(error) => warn!(%error, "VERSION of a block pool cannot be made again"),
        }
    }
}

async fn look_on(pool: &Pool, volume: &Volume) -> Found {
    let root = PoolPaths::new(&volume.root, pool.id()).root;
    let meta = volume.meta(IoClass::ClientRead);
    let look = meta.run(IoOp::ReadSmall, &root, |root| {
        look(root).map_err(|e| IoError::from_std(IoOp::ReadSmall, root, &e))
    });
    look.await.unwrap_or_else(|error| {
        debug!(%error, "VERSION of a block pool cannot be read");
        Found::Other
    })
}

fn look(root: &Path) -> io::Result<Found> {
    let Some(bytes) = read_small(&root.join(CURRENT).join(VERSION), VERSION_BYTES_MAX)? else {
        return Ok(Found::Other);
    };
    if !matches!(upgrade::interrupted(root)?, Ok(None)) {
        return Ok(Found::Other);
    }
    let upgraded = root.join(PREVIOUS).try_exists()?;
    Ok(match PoolVersion::parse(&bytes) {
        Ok(version) => Found::Whole(version, upgraded),
        Err(VersionError::Missing(_)) => Found::Cut(upgraded),
        // A value at the end may be cut, and be another one.
        Err(_) if !bytes.ends_with(b"\n") => Found::Cut(upgraded),
        Err(_) => Found::Other,
    })
}
