//! The daemon's log as a file: of Apache's name, cut at a size, with some older ones beside it
//! (`NAME.1` is the newest of them), as log4j's `RollingFileAppender` keeps them.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::given::environment;

/// Names the file; the shell profile sets it for `hdfs --daemon start`.
const FILE_VARIABLE: &str = "HAYLOFT_LOG_FILE";

/// When a file is cut, and how many older ones are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogCut {
    /// Bytes of a file.
    bytes: u64,
    /// Older files.
    keep: u32,
}

impl LogCut {
    /// What Hadoop's own `log4j.properties` says: 20 files of 256 MiB.
    const USUAL: Self = Self {
        bytes: 256 << 20,
        keep: 20,
    };
    /// Fewer bytes would be a file for every line.
    const BYTES_MIN: u64 = 64 << 10;
    const KEEP_MAX: u32 = 1000;

    /// What `log4j.properties` beside the configuration says, by Hadoop's two names.
    pub fn of(conf: &Path) -> Self {
        let text = std::fs::read_to_string(conf.join("log4j.properties")).unwrap_or_default();
        Self::parsed(&text)
    }

    fn parsed(text: &str) -> Self {
        let mut cut = Self::USUAL;
        for line in text.lines() {
            let Some((key, value)) = line.split_once('=') else {
                continue;
            };
            match key.trim() {
                "hadoop.log.maxfilesize" => {
                    let bytes = log4j_bytes(value.trim()).unwrap_or(cut.bytes);
                    cut.bytes = bytes.max(Self::BYTES_MIN);
                }
                "hadoop.log.maxbackupindex" => {
                    let keep = value.trim().parse().unwrap_or(cut.keep);
                    cut.keep = keep.min(Self::KEEP_MAX);
                }
                _ => {}
            }
        }
        cut
    }
}

/// A size as log4j takes it: `256MB`.
fn log4j_bytes(text: &str) -> Option<u64> {
    let upper = text.to_ascii_uppercase();
    let units = [("KB", 1 << 10), ("MB", 1 << 20), ("GB", 1 << 30)];
    let (number, unit) = units
        .iter()
        .find_map(|(name, unit)| Some((upper.strip_suffix(name)?, *unit)))
        .unwrap_or((&upper, 1));
    number.trim().parse::<u64>().ok()?.checked_mul(unit)
}

/// The file to log to; `None` is standard error.
///
/// Under a service manager standard error is the journal. Where `HADOOP_LOG_DIR` is set besides,
/// operators look for Apache's file.
pub fn wanted() -> Option<PathBuf> {
    if let Some(file) = environment(FILE_VARIABLE) {
        return Some(file);
    }
    let dir = environment("HADOOP_LOG_DIR").filter(|_| standard_error_is_the_journal())?;
    let user = std::env::var("HADOOP_IDENT_STRING").ok();
    let user = user.filter(|user| !user.is_empty());
    let user = user.unwrap_or_else(hayloft_rpc::current_user);
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy();
    Some(dir.join(format!("hadoop-{user}-datanode-{host}.log")))
}

/// As systemd.exec(5) has programs find out.
fn standard_error_is_the_journal() -> bool {
    let told = std::env::var("JOURNAL_STREAM").unwrap_or_default();
    let stream = std::fs::metadata("/proc/self/fd/2");
    stream.is_ok_and(|of| told == format!("{}:{}", of.dev(), of.ino()))
}

/// A file that is cut when it is full. A line is never in two files.
#[derive(Debug)]
pub struct RotatedFile {
    path: PathBuf,
    file: File,
    bytes: u64,
    cut: LogCut,
}

impl RotatedFile {
    /// Goes on at the end of the file, or begins it.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open(path: &Path, cut: LogCut) -> io::Result<Self> {
        let file = appended(path)?;
        let bytes = file.metadata()?.len();
        Ok(Self {
            path: path.to_owned(),
            file,
            bytes,
            cut,
        })
    }

    fn numbered(&self, number: u32) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{number}"));
        name.into()
    }

    /// Moves the older files on by one, and begins a new one.
    fn rotate(&mut self) -> io::Result<()> {
        if self.cut.keep == 0 {
            self.file.set_len(0)?;
        } else {
            for number in (1..self.cut.keep).rev() {
                let from = self.numbered(number);
                match std::fs::rename(&from, self.numbered(number + 1)) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
            std::fs::rename(&self.path, self.numbered(1))?;
            self.file = appended(&self.path)?;
        }
        self.bytes = 0;
        Ok(())
    }
}

fn appended(path: &Path) -> io::Result<File> {
    File::options().create(true).append(true).open(path)
}

impl Write for RotatedFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let length = u64::try_from(line.len()).unwrap_or(u64::MAX);
        let full = self.bytes > 0 && self.bytes.saturating_add(length) > self.cut.bytes;
        // Where no other file can be begun, this one grows: better than no log. The next try is
        // when it has grown by as much again.
        if full && self.rotate().is_err() {
            self.bytes = 0;
        }
        self.file.write_all(line)?;
        self.bytes = self.bytes.saturating_add(length);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_file_moves_aside_and_the_oldest_goes() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("node.log");
        std::fs::write(&path, "old\n").expect("written");
        let cut = LogCut { bytes: 12, keep: 2 };
        let mut log = RotatedFile::open(&path, cut).expect("open");
        for line in [
            "one 45\n",
            "two 45\n",
            "three 7\n",
            "a line of more than all\n",
        ] {
            log.write_all(line.as_bytes()).expect("written");
        }
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).ok();
        assert_eq!(
            read("node.log").as_deref(),
            Some("a line of more than all\n")
        );
        assert_eq!(read("node.log.1").as_deref(), Some("three 7\n"));
        assert_eq!(read("node.log.2").as_deref(), Some("two 45\n"));
        assert_eq!(read("node.log.3"), None, "only two are kept");
    }

    #[test]
    fn a_file_that_cannot_move_grows() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("node.log");
        std::fs::create_dir(dir.path().join("node.log.1")).expect("in the way");
        let cut = LogCut { bytes: 12, keep: 1 };
        let mut log = RotatedFile::open(&path, cut).expect("open");
        for _ in 0..5 {
            log.write_all(b"ten bytes\n").expect("written");
        }
        let text = std::fs::read_to_string(&path).expect("there");
        assert_eq!(text.lines().count(), 5);
    }

    #[test]
    fn log4js_sizes_are_taken() {
        let text = "# x\nhadoop.log.maxfilesize = 10MB\nhadoop.log.maxbackupindex=3\n";
        let cut = LogCut::parsed(text);
        assert_eq!((cut.bytes, cut.keep), (10 << 20, 3));
        assert_eq!(
            LogCut::parsed("hadoop.log.maxfilesize=lots\nx"),
            LogCut::USUAL
        );
        let tiny = LogCut::parsed("hadoop.log.maxfilesize=0\nhadoop.log.maxbackupindex=9999999");
        assert_eq!(
            (tiny.bytes, tiny.keep),
            (LogCut::BYTES_MIN, LogCut::KEEP_MAX)
        );
        assert_eq!(log4j_bytes("99999999999999999999GB"), None);
        assert_eq!(log4j_bytes("1 kb"), Some(1024));
    }
}
