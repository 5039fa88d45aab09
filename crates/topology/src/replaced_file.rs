//! A file that is replaced as a whole: what it is before, and what of it stays.

use std::fs::{self, File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use crate::files::{FILE_LIMIT, read_file};

/// Where a path leads: a link stays, and what it names is replaced.
///
/// # Errors
/// A link that leads nowhere; a pipe, a device or a directory.
pub(crate) fn resolved(path: &Path) -> Result<PathBuf, String> {
    let failed = |why: &str| Err(format!("{}: {why}", path.display()));
    match fs::metadata(path) {
        Ok(meta) if !meta.is_file() => {
            failed("is no file, but a directory, a pipe or a device; name another")
        }
        Ok(_) => fs::canonicalize(path).or_else(|error| failed(&error.to_string())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => match path.is_symlink() {
            true => failed("is a link that leads nowhere; make its file, or remove it"),
            false => Ok(path.to_owned()),
        },
        Err(error) => failed(&error.to_string()),
    }
}

/// The text of a file; none for one that is not there.
///
/// # Errors
/// As [`resolved`], or it is no text, or too long.
pub(crate) fn present(path: &Path) -> Result<String, String> {
    let path = resolved(path)?;
    match path.exists() {
        true => read_file(&path, FILE_LIMIT),
        false => Ok(String::new()),
    }
}

/// Whether this process may give a new file the owner that the old one has.
///
/// # Errors
/// The file is another user's, and this one is not root. As [`resolved`].
pub(crate) fn may_replace(path: &Path) -> Result<(), String> {
    let here = rustix::process::geteuid();
    match fs::metadata(resolved(path)?) {
        Ok(old) if !here.is_root() && old.uid() != here.as_raw() => Err(format!(
            "{} belongs to user {}: run this as that user, or as root",
            path.display(),
            old.uid()
        )),
        _ => Ok(()),
    }
}

/// Replaces it, durably when this returns. Owner and mode stay; a new file has this mode.
pub(crate) fn replace(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let path = resolved(path).map_err(io::Error::other)?;
    let mut part = path.clone().into_os_string();
    part.push(".part");
    let part = PathBuf::from(part);
    // The lock is held: a file of this name was left by a process that ended.
    let _ = fs::remove_file(&part);
    let mut file = File::options().create_new(true).write(true).open(&part)?;
    let written = keep_owner(&path, &file, mode)
        .and_then(|()| file.write_all(text.as_bytes()))
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&part, &path));
    if written.is_err() {
        let _ = fs::remove_file(&part);
    }
    written?;
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    File::open(dir.unwrap_or(Path::new(".")))?.sync_all()
}

/// Gives the new file what the old one has; the umask counts for neither. A script that replaces
/// one that could not be run can be.
fn keep_owner(old: &Path, new: &File, mode: u32) -> io::Result<()> {
    let mode = match fs::metadata(old) {
        Ok(old) => {
            let made = new.metadata()?;
            if (made.uid(), made.gid()) != (old.uid(), old.gid()) {
                fchown(new, Some(old.uid()), Some(old.gid()))?;
            }
            (old.mode() & 0o7777) | (mode & 0o111)
        }
        Err(_) => mode,
    };
    new.set_permissions(Permissions::from_mode(mode))
}
