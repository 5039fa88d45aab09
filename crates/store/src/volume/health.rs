//! Whether a volume can still be used.

use std::path::Path;
use std::sync::Arc;

use hayloft_io::{IoClass, IoError, IoErrorKind, IoOp};

use super::Volume;
use crate::layout::dirs::DELETING;
use crate::layout::dirs::DIR_MODE;
use crate::layout::names::{CURRENT, VERSION};
use crate::layout::version::VERSION_BYTES_MAX;
use crate::locks;

/// Looks whether the volume's VERSION can be read, its directories are there and a file can be
/// written, and whether an engine's device answers. As Apache's check does, it makes directories
/// again that are missing and hold nothing lasting. Without that of the finalized replicas the
/// volume has failed. A full disk is a good one.
///
/// # Errors
/// Why it cannot be used; or what the process lacks, which says nothing of the volume.
pub async fn check(volume: &Arc<Volume>) -> Result<(), IoError> {
    let meta = volume.meta(IoClass::ClientRead);
    let current = volume.root.join(CURRENT);
    meta.read_small(&current.join(VERSION), VERSION_BYTES_MAX)
        .await?;
    let slices = locks::read(&volume.slices).clone();
    for slice in slices {
        let finalized = slice.paths.finalized();
        if !meta.is_dir(&finalized).await? {
            let text = "not a directory";
            return Err(IoError::new(
                IoErrorKind::Invalid,
                IoOp::Stat,
                &finalized,
                text,
            ));
        }
        for dir in [slice.paths.rbw(), slice.paths.tmp().join(DELETING)] {
            or_full(meta.create_dir_all(&dir, DIR_MODE).await)?;
        }
    }
    let device = volume.data_files();
    let looks = meta.run(IoOp::Read, &volume.root, move |_| device.probe_device());
    looks.await?;
    probe(volume, &current).await
}

/// Writes and removes a small file: a read-only or dying disk answers reads from its cache.
async fn probe(volume: &Arc<Volume>, dir: &Path) -> Result<(), IoError> {
    let meta = volume.meta(IoClass::ClientWrite);
    let path = dir.join(format!(".hayloft-probe-{}", std::process::id()));
    or_full(meta.replace(&path, b"probe".to_vec(), 0o600).await)?;
    match meta.unlink(&path).await {
        Err(e) if e.kind() != IoErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// Takes "no space left" for success.
fn or_full(outcome: Result<(), IoError>) -> Result<(), IoError> {
    match outcome {
        Err(e) if e.kind() != IoErrorKind::NoSpace => Err(e),
        _ => Ok(()),
    }
}
