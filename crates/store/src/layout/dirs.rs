//! Directories of the layout: how they are made, and the stamps in their names.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use std::{fs, io};

use hayloft_io::patiently;

use super::names::CURRENT;

/// Permission bits of directories inside a volume.
pub const DIR_MODE: u32 = 0o755;
/// Permission bits of small files such as VERSION.
pub const FILE_MODE: u32 = 0o644;

/// Directory inside `tmp` for what is being deleted. Apache empties `tmp` when it starts.
pub const DELETING: &str = "deleting";

/// Creates a directory and those above it.
pub fn make_dir(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    fs::DirBuilder::new()
        .recursive(true)
        .mode(DIR_MODE)
        .create(path)
}

/// The directories of the block pools on the volume at `volume`, sorted; none where no node has
/// used it. Blocking.
///
/// # Errors
/// Of the file system.
pub fn pool_dirs(volume: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match patiently(|| fs::read_dir(volume.join(CURRENT))) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut dirs = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.file_name().as_encoded_bytes().starts_with(b"BP-") {
            dirs.push(entry.path());
        }
    }
    dirs.sort();
    Ok(dirs)
}

/// Milliseconds since 1970.
#[must_use]
pub fn now_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Reads a small file; `None` when it is not there.
///
/// # Errors
/// `InvalidData` when it has more than `bytes_max` bytes; of reading.
pub fn read_small(path: &Path, bytes_max: usize) -> io::Result<Option<Vec<u8>>> {
    let file = match patiently(|| fs::File::open(path)) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let mut bytes = Vec::new();
    let limit = u64::try_from(bytes_max).unwrap_or(u64::MAX);
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() > bytes_max {
        let text = format!("it has more than {bytes_max} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    Ok(Some(bytes))
}
