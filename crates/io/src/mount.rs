//! The mount table: where a path is mounted, from what, as what. Blocking, small reads of /proc.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use crate::error::{IoError, IoErrorKind, IoOp};
use crate::wait_out_shortage::patiently;

/// Largest mount table that is read, in bytes.
const TABLE_MAX: u64 = 4 << 20;

/// One line of the mount table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Directory it is mounted on.
    pub point: PathBuf,
    /// Type of file system, such as `ext4`.
    pub fs_type: String,
    /// What is mounted: a device node, a name, `none`.
    pub source: String,
    /// Options of the mount and of its file system, such as `noatime` or `data=journal`.
    pub options: Vec<String>,
}

/// The mount that an existing `path` lies on: the longest mount point above it, of those the last.
///
/// # Errors
/// When `path` does not exist or the table cannot be read.
pub fn mount_of(path: &Path) -> Result<Mount, IoError> {
    let real = fs::canonicalize(path).map_err(|e| IoError::from_std(IoOp::Mount, path, &e))?;
    let table = Path::new("/proc/self/mountinfo");
    let mut text = Vec::new();
    patiently(|| fs::File::open(table))
        .and_then(|f| f.take(TABLE_MAX).read_to_end(&mut text))
        .map_err(|e| IoError::from_std(IoOp::Mount, table, &e))?;
    String::from_utf8_lossy(&text)
        .lines()
        .filter_map(parse)
        .filter(|m| real.starts_with(&m.point))
        .max_by_key(|m| m.point.components().count())
        .ok_or_else(|| {
            IoError::new(
                IoErrorKind::NotFound,
                IoOp::Mount,
                path,
                "no entry in the mount table",
            )
        })
}

/// `36 35 98:0 /root /point rw,noatime shared:1 - ext4 /dev/sda1 rw` (proc_pid_mountinfo(5)).
fn parse(line: &str) -> Option<Mount> {
    let (left, right) = line.split_once(" - ")?;
    let mut left = left.split(' ').skip(4);
    let (point, of_mount) = (left.next()?, left.next()?);
    let mut right = right.split(' ');
    let (fs_type, source) = (right.next()?.to_owned(), unescape(right.next()?));
    let options = of_mount.split(',').chain(right.next()?.split(','));
    Some(Mount {
        point: PathBuf::from(unescape(point)),
        fs_type,
        source,
        options: options.map(str::to_owned).collect(),
    })
}

/// Undoes the octal escapes (`\040` for a space) of the kernel.
fn unescape(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let digits = bytes.get(at + 1..at + 4).filter(|_| bytes[at] == b'\\');
        let code = digits
            .and_then(|d| std::str::from_utf8(d).ok())
            .and_then(|d| u8::from_str_radix(d, 8).ok());
        if let Some(code) = code {
            out.push(code);
            at += 4;
        } else {
            out.push(bytes[at]);
            at += 1;
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_parsed_with_its_escapes() {
        let m = parse(r"36 35 98:0 /r /mnt/with\040space rw,noatime shared:1 - ext4 /dev/sda1 rw")
            .expect("parses");
        assert_eq!(m.point, PathBuf::from("/mnt/with space"));
        assert_eq!(
            (m.fs_type.as_str(), m.source.as_str()),
            ("ext4", "/dev/sda1")
        );
        assert_eq!(m.options, ["rw", "noatime", "rw"]);
        assert_eq!(parse("garbage"), None);
        assert_eq!(unescape(r"a\9"), r"a\9");
    }

    #[test]
    fn the_root_is_mounted() {
        assert_eq!(
            mount_of(Path::new("/")).expect("a mount").point,
            PathBuf::from("/")
        );
    }
}
