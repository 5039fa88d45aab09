//! What versions with staging in shared memory left there: acknowledged bytes in no replica's
//! files.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What the operator does about it.
pub const TODO: &str = "start the version of Hayloft that left it, with its configuration, and \
    stop it cleanly; \
     or remove the file to give these bytes up";

/// What the files are called, without the uuid of their node.
const AREA: &str = "hayloft-staging-";
/// What follows when the start of a node kept one for later.
const KEPT: &str = ".kept-";

/// A file with bytes of a node with one of these uuids. Blocking.
///
/// # Errors
/// Of listing the directory. One that is not there holds nothing.
pub fn find(dir: &Path, uuids: &BTreeSet<String>) -> io::Result<Option<PathBuf>> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let Some(rest) = name.to_str().and_then(|name| name.strip_prefix(AREA)) else {
            continue;
        };
        let uuid = rest.split_once(KEPT).map_or(rest, |(uuid, _)| uuid);
        if uuids.contains(uuid) {
            return Ok(Some(entry.path()));
        }
    }
    Ok(None)
}
