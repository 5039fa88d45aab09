//! Whether a volume can still be used.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use hayloft_io::{
    Advice, AlignedBuf, IoClass, IoError, IoErrorKind, IoOp, OpenMode, SyncKind, locks,
};

use super::Volume;
use crate::layout::dirs::DELETING;
use crate::layout::dirs::DIR_MODE;
use crate::layout::names::{CURRENT, VERSION};
use crate::layout::version::VERSION_BYTES_MAX;

/// Bytes that a check writes and reads back: enough that both go past the page cache where the
/// engine's data does.
const PROBE_BYTES: usize = 256 << 10;

/// Looks whether the volume is there and its directories too, and whether what is written the way
/// that its data goes can be read back: by its engine, synced, past the page cache. Of an engine's
/// device a place is kept for that. As Apache's check does, it makes directories again that are
/// missing and hold nothing lasting. Without that of the finalized replicas the volume has failed.
/// A full disk is a good one.
///
/// # Errors
/// Why it cannot be used; or what the process lacks, which says nothing of the volume.
pub async fn check(volume: &Arc<Volume>) -> Result<(), IoError> {
    let meta = volume.meta(IoClass::ClientRead);
    let current = volume.root.join(CURRENT);
    let version = meta.read_small_anew(&current.join(VERSION), VERSION_BYTES_MAX);
    match version.await {
        // This one file is bad: what follows tells whether the disk is.
        Err(error) if error.kind() == IoErrorKind::MediaError => {}
        other => excused(other.map(drop))?,
    }
    let slices = locks::read(&volume.slices).clone();
    // Where new replicas begin; a start clears the first.
    let data = slices.first();
    let data = data.map(|slice| vec![slice.paths.tmp(), slice.paths.rbw()]);
    for slice in slices {
        let finalized = slice.paths.finalized();
        let there = meta.is_dir(&finalized).await;
        if there.as_ref().is_ok_and(|there| !there) {
            let text = "not a directory";
            return Err(IoError::new(
                IoErrorKind::Invalid,
                IoOp::Stat,
                &finalized,
                text,
            ));
        }
        excused(there.map(drop))?;
        for dir in [slice.paths.rbw(), slice.paths.tmp().join(DELETING)] {
            excused(meta.create_dir_all(&dir, DIR_MODE).await)?;
        }
    }
    let device = volume.data_files();
    let looks = meta.run(IoOp::Read, &volume.root, move |_| device.probe_device());
    excused(looks.await)?;
    let dirs = data.unwrap_or_default().into_iter().chain([current]);
    probe(volume, dirs).await
}

/// Takes "no space left" for success.
fn excused(outcome: Result<(), IoError>) -> Result<(), IoError> {
    match outcome {
        Err(e) if e.kind() != IoErrorKind::NoSpace => Err(e),
        _ => Ok(()),
    }
}

/// Writes, syncs, reads back and removes a file. Where it cannot be written or read, another one in
/// the next directory is tried: a disk of which a part is bad is not a dead one.
async fn probe(volume: &Arc<Volume>, dirs: impl Iterator<Item = PathBuf>) -> Result<(), IoError> {
    let mut outcome = Ok(());
    let mut made = Vec::new();
    for dir in dirs {
        // Where blocks are on a device it has been looked at: this is the file system beside it.
        let path = dir.join(".hayloft-probe.meta");
        made.push(path.clone());
        let tried = write_and_read_back(volume, &path).await;
        let elsewhere = matches!(&tried, Err(e) if e.kind() == IoErrorKind::MediaError);
        outcome = excused(tried);
        if !elsewhere {
            break;
        }
    }
    let meta = volume.meta(IoClass::ClientWrite);
    for path in made {
        match meta.unlink(&path).await {
            // What could not be made there is not removed there either.
            Err(e) if !matches!(e.kind(), IoErrorKind::NotFound | IoErrorKind::MediaError) => {
                outcome = outcome.and(excused(Err(e)));
            }
            _ => {}
        }
    }
    outcome
}

async fn write_and_read_back(volume: &Volume, path: &Path) -> Result<(), IoError> {
    let engine = &volume.engine;
    let create = || engine.open(path, OpenMode::CreateNew, IoClass::ClientWrite);
    let file = match create().await {
        // A check that was killed left it.
        Err(e) if e.kind() == IoErrorKind::Exists => {
            volume.meta(IoClass::ClientWrite).unlink(path).await?;
            create().await?
        }
        other => other?,
    };
    let written = probe_bytes();
    file.write_at(vec![written.clone()], 0).await.result?;
    file.sync(SyncKind::All).await?;
    // A hint: an engine that does not know it has no cache, or one of its own.
    let _ = file.advise(Advice::DontNeed, 0, 0).await;
    let file = file.with_class(IoClass::ClientRead);
    let back = file.read_at(AlignedBuf::unpooled(PROBE_BYTES), 0, PROBE_BYTES);
    let (back, n) = back.await.into_result()?;
    if !engine.capabilities().keeps_data || back.as_slice()[..n] == written[..] {
        return Ok(());
    }
    let text = "it does not give back what was written to it";
    Err(IoError::new(
        IoErrorKind::MediaError,
        IoOp::Read,
        path,
        text,
    ))
}

/// Other bytes each time: those of an earlier check are not what this one wrote.
fn probe_bytes() -> Bytes {
    static PROBES: AtomicU64 = AtomicU64::new(0);
    let number = PROBES.fetch_add(1, Ordering::Relaxed) ^ u64::from(std::process::id()) << 32;
    let mut bytes = AlignedBuf::unpooled(PROBE_BYTES);
    bytes.set_len(PROBE_BYTES);
    for word in bytes.as_mut_slice().chunks_exact_mut(size_of::<u64>()) {
        word.copy_from_slice(&number.to_le_bytes());
    }
    bytes.freeze()
}
