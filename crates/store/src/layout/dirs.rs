//! Directories of the layout: how they are made, and the stamps in their names.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use std::{fs, io};

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

/// Milliseconds since 1970.
#[must_use]
pub fn now_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
