//! Whether a volume can still be used.

use std::path::Path;
use std::sync::Arc;

use hayloft_io::IoClass;

use super::Volume;
use crate::layout::names::{CURRENT, VERSION};
use crate::layout::version::VERSION_BYTES_MAX;

/// Looks whether the volume's directories can be listed and its VERSION read and a file written.
///
/// # Errors
/// Why it cannot be used, in words.
pub async fn check(volume: &Arc<Volume>) -> Result<(), String> {
    let meta = volume.meta(IoClass::ClientRead);
    let current = volume.root.join(CURRENT);
    meta.read_small(&current.join(VERSION), VERSION_BYTES_MAX)
        .await
        .map_err(|e| e.to_string())?;
    let slices = volume
        .slices
        .read()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
        .clone();
    for slice in slices {
        for dir in [
            slice.paths.finalized(),
            slice.paths.rbw(),
            slice.paths.tmp(),
        ] {
            meta.stat(&dir).await.map_err(|e| e.to_string())?;
        }
    }
    probe(volume, &current).await
}

/// Writes and removes a small file: a read-only or dying disk answers reads from its cache.
async fn probe(volume: &Arc<Volume>, dir: &Path) -> Result<(), String> {
    let meta = volume.meta(IoClass::ClientWrite);
    let path = dir.join(format!(".hayloft-probe-{}", std::process::id()));
    meta.replace(&path, b"probe".to_vec(), 0o600)
        .await
        .map_err(|e| e.to_string())?;
    meta.unlink(&path).await.map_err(|e| e.to_string())
}
