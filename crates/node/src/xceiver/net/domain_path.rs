//! Whether others than the node and root could put a socket of theirs in the place of the node's.
//!
//! A client believes what answers at the path. So each directory above it, as written and as the
//! links on the way lead, may be changed by none but root and the node's user.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Bytes of a path that the kernel takes, at most; one more ends it.
const PATH_MAX: usize = 107;

/// Who may change a directory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rights {
    pub(super) is_dir: bool,
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
}

impl Rights {
    fn of(dir: &Path) -> io::Result<Self> {
        let found = std::fs::metadata(dir)?;
        Ok(Self {
            is_dir: found.is_dir(),
            mode: found.mode() & 0o7777,
            uid: found.uid(),
            gid: found.gid(),
        })
    }

    /// Why a node of user `own` puts no socket below it, and what to do.
    pub(super) fn refusal(self, dir: &Path, own: u32) -> Option<String> {
        let (dir, Self { mode, uid, gid, .. }) = (dir.display(), self);
        if !self.is_dir {
            return Some(format!("{dir} is no directory"));
        }
        let who = if mode & 0o002 != 0 {
            format!("{dir} can be written to by everyone (mode {mode:04o}): chmod o-w {dir}")
        } else if mode & 0o020 != 0 && gid != 0 {
            format!("{dir} can be written to by group {gid} (mode {mode:04o}): chmod g-w {dir}")
        } else if mode & 0o200 != 0 && uid != 0 && uid != own {
            format!("{dir} belongs to user {uid}: chown it to root, or to the node's user {own}")
        } else {
            return None;
        };
        Some(format!(
            "{who}; or choose another path. Who can write there could answer clients in the \
             place of this node"
        ))
    }
}

/// Looks at every directory above `path`.
///
/// # Errors
/// Which of them will not do, why, and what to do.
pub(super) fn check(path: &Path) -> Result<(), String> {
    let own = rustix::process::geteuid().as_raw();
    if !path.is_absolute() || path.file_name().is_none() {
        return Err("it is no absolute path of a file".to_owned());
    }
    let len = path.as_os_str().len();
    if len > PATH_MAX {
        return Err(format!(
            "it has {len} bytes, and the system takes {PATH_MAX}: choose a shorter one"
        ));
    }
    let above = path.parent().unwrap_or(path);
    let real = std::fs::canonicalize(above).map_err(|error| {
        let above = above.display();
        format!("{above}: {error}; create it, for none but root and the node's user to write to")
    })?;
    let mut dirs: Vec<PathBuf> = above.ancestors().map(Path::to_owned).collect();
    dirs.extend(real.ancestors().map(Path::to_owned));
    for dir in dirs {
        let rights = Rights::of(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        if let Some(why) = rights.refusal(&dir, own) {
            return Err(why);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn only_root_and_the_node_may_write_above_the_socket() {
        let of = |mode, uid, gid| {
            let rights = Rights {
                is_dir: true,
                mode,
                uid,
                gid,
            };
            rights.refusal(Path::new("/run/dn"), 500)
        };
        for (mode, uid, gid) in [
            (0o755, 0, 0),
            (0o755, 500, 500),
            (0o775, 0, 0),
            (0o555, 700, 700),
            (0o750, 500, 9),
        ] {
            assert_eq!(of(mode, uid, gid), None, "{mode:o} {uid} {gid}");
        }
        for (mode, uid, gid, todo) in [
            (0o777, 0, 0, "chmod o-w /run/dn"),
            (0o1777, 0, 0, "chmod o-w /run/dn"),
            (0o775, 0, 9, "chmod g-w /run/dn"),
            (0o755, 700, 0, "chown"),
        ] {
            let said = of(mode, uid, gid).expect("refused");
            assert!(said.contains(todo) && said.contains("/run/dn"), "{said}");
        }
        let file = Rights {
            is_dir: false,
            mode: 0o755,
            uid: 0,
            gid: 0,
        };
        let said = file.refusal(Path::new("/run/dn"), 0).expect("refused");
        assert!(said.contains("no directory"), "{said}");
    }

    #[test]
    fn a_path_must_be_whole_short_and_of_directories_that_are_there() {
        let long = format!("/{}", "x".repeat(PATH_MAX));
        for (path, says) in [
            ("relative/socket", "absolute"),
            ("/", "absolute"),
            (long.as_str(), "shorter"),
            ("/no/such/directory/socket", "create it"),
        ] {
            let said = check(Path::new(path)).expect_err(path);
            assert!(said.contains(says), "{path}: {said}");
        }
    }

    /// The directory for temporary files is one that everyone may write to.
    #[test]
    fn a_link_does_not_hide_where_it_leads() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let (open, link) = (dir.path().join("open"), dir.path().join("link"));
        std::fs::create_dir(&open).expect("creates");
        std::fs::create_dir(open.join("below")).expect("creates");
        std::fs::set_permissions(&open, PermissionsExt::from_mode(0o777)).expect("sets");
        symlink(open.join("below"), &link).expect("links");
        let said = check(&link.join("socket")).expect_err("refused");
        assert!(said.contains("everyone"), "{said}");
    }
}
