//! What to copy in: found, listed and checked before anything starts.

use std::path::{Path, PathBuf};

use hayloft_cluster::hadoop::Hadoop;

use crate::error::CliError;

/// Directories inside directories.
const DEPTH_MAX: usize = 64;

/// Files that one tour copies, at most.
const FILES_MAX: usize = 200_000;

/// What to copy in.
#[derive(Debug)]
pub struct Source {
    pub(super) path: PathBuf,
    /// Name below `/hayloft`.
    pub(super) name: String,
    /// Relative path and length of each file.
    pub(super) files: Vec<(String, u64)>,
}

/// Finds and checks what shall be copied: `given`, or the directory of Hadoop's own jars.
pub fn source(given: Option<&Path>, hadoop: &Hadoop) -> Result<Source, CliError> {
    let (path, name) = match given {
        Some(path) => {
            let path = path
                .canonicalize()
                .map_err(CliError::file("read what --put names", path))?;
            let name = path
                .file_name()
                .map_or_else(|| "root".into(), |name| name.to_string_lossy().into_owned());
            (path, name)
        }
        None => (jar_directory(hadoop)?, "hadoop-jars".to_owned()),
    };
    if path
        .to_string_lossy()
        .contains(['*', '?', '[', ']', '{', '}', '\\', '%'])
    {
        return Err(CliError::new(
            "the stock shell would expand this path",
            path.display().to_string(),
            "choose one without *?[]{}\\%",
        ));
    }
    let mut files = Vec::new();
    if path.is_dir() {
        walk(&path, "", 0, &mut files)?;
    } else {
        let metadata = path.metadata().map_err(CliError::file("read", &path))?;
        files.push((String::new(), metadata.len()));
    }
    if files.is_empty() {
        return Err(CliError::new(
            "there are no files to copy",
            path.display().to_string(),
            "name another directory with --put",
        ));
    }
    files.sort();
    Ok(Source { path, name, files })
}

fn jar_directory(hadoop: &Hadoop) -> Result<PathBuf, CliError> {
    let is_common = |jar: &&PathBuf| {
        jar.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("hadoop-common-"))
    };
    let jar = hadoop
        .jars()
        .iter()
        .find(is_common)
        .and_then(|jar| jar.parent());
    jar.map(Path::to_path_buf).ok_or_else(|| {
        CliError::new(
            "Hadoop's jars not found",
            "",
            "name what to copy with --put",
        )
    })
}

pub(super) fn walk(
    dir: &Path,
    prefix: &str,
    depth: usize,
    files: &mut Vec<(String, u64)>,
) -> Result<(), CliError> {
    let refuse = |what: &str, path: &Path| {
        CliError::new(
            what,
            path.display().to_string(),
            "name another directory with --put",
        )
    };
    if depth > DEPTH_MAX {
        return Err(refuse("directories too deep: a link to itself?", dir));
    }
    let entries = std::fs::read_dir(dir).map_err(CliError::file("list", dir))?;
    for entry in entries {
        let entry = entry.map_err(CliError::file("list", dir))?;
        let path = entry.path();
        let Some(name) = entry.file_name().to_str().map(str::to_owned) else {
            return Err(refuse("a file name is not UTF-8", &path));
        };
        if name.contains(':') {
            return Err(refuse("HDFS allows no ':' in names", &path));
        }
        // The stock shell takes these for its own checksum files and leaves them out.
        if name.starts_with('.') && name.ends_with(".crc") {
            continue;
        }
        let metadata = path.metadata().map_err(CliError::file("read", &path))?;
        let relative = format!("{prefix}{name}");
        if metadata.is_dir() {
            walk(&path, &format!("{relative}/"), depth + 1, files)?;
        } else if metadata.is_file() {
            files.push((relative, metadata.len()));
        } else {
            return Err(refuse("neither a file nor a directory", &path));
        }
        if files.len() > FILES_MAX {
            return Err(refuse("more files than a tour copies", dir));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hdfs_cannot_hold_is_refused_before_anything_starts() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        std::fs::write(dir.path().join("a:b"), b"x").expect("written");
        let mut files = Vec::new();
        assert!(
            walk(dir.path(), "", 0, &mut files)
                .unwrap_err()
                .to_string()
                .contains("':'")
        );
    }
}
