//! The undo file: what is changed and what was there, on disk before the first change.
//!
//! A line of JSON each: a head, then a target each, then their number, by which a file that was
//! cut off is known.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, BufWriter, Read as _, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::CliError;

/// What the head of an undo file says it is.
const FORMAT: &str = "hayloft cold undo";
/// Version of the format that is written, and the only one that is read.
const VERSION: u32 = 1;
/// Longest line that is read, bytes: HDFS allows paths of 8,000 characters.
const LINE_MAX: u64 = 256 << 10;

/// A file or directory whose policy is changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColdTarget {
    /// Its path.
    pub path: String,
    /// Whether it is a directory.
    pub directory: bool,
    /// The policy of its own that it had; none when it inherited one.
    pub before: Option<String>,
    /// Number of the policy that counted for it in the scan; none when read from a file.
    #[serde(skip)]
    pub seen_policy: Option<u8>,
}

/// What an undo file begins with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UndoHead {
    format: String,
    version: u32,
    /// Name service or address of the NameNode.
    pub namenode: String,
    /// When it was made, seconds since 1970.
    pub made_at_s: u64,
    /// The policy that was set.
    pub policy: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct UndoEnd {
    targets: u64,
}

/// An undo file being written, under another name until it is whole.
#[derive(Debug)]
pub struct UndoWriter {
    path: PathBuf,
    temporary: PathBuf,
    file: BufWriter<File>,
    targets: u64,
    directories: u64,
}

impl UndoWriter {
    /// One that will be at `path`.
    ///
    /// # Errors
    /// There is a file already, or the directory cannot be written.
    pub fn create(
        path: &Path,
        namenode: &str,
        policy: &str,
        made_at_s: u64,
    ) -> Result<Self, CliError> {
        if path.exists() {
            return Err(CliError::new(
                "there is an undo file already",
                path.display().to_string(),
                "give another name with --undo-file; this one may be needed",
            ));
        }
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(".tmp");
        let temporary = PathBuf::from(temporary);
        let mut options = OpenOptions::new();
        let opened = options
            .write(true)
            .create(true)
            .truncate(true)
            .open(&temporary);
        let file = opened.map_err(|error| unwritten(path, &error))?;
        let mut writer = Self {
            path: path.to_owned(),
            temporary,
            file: BufWriter::new(file),
            targets: 0,
            directories: 0,
        };
        writer.line(&UndoHead {
            format: FORMAT.to_owned(),
            version: VERSION,
            namenode: namenode.to_owned(),
            made_at_s,
            policy: policy.to_owned(),
        })?;
        Ok(writer)
    }

    fn line(&mut self, value: &impl Serialize) -> Result<(), CliError> {
        let mut text = serde_json::to_vec(value)
            .map_err(|error| unwritten(&self.path, &io::Error::other(error)))?;
        text.push(b'\n');
        let written = self.file.write_all(&text);
        written.map_err(|error| unwritten(&self.path, &error))
    }

    /// Takes a target.
    ///
    /// # Errors
    /// The disk is full.
    pub fn push(&mut self, target: &ColdTarget) -> Result<(), CliError> {
        self.targets += 1;
        self.directories += u64::from(target.directory);
        self.line(target)
    }

    /// Directories and files taken so far.
    pub fn counts(&self) -> (u64, u64) {
        (self.directories, self.targets - self.directories)
    }

    /// Makes it durable under its name. Only now may the first change be made.
    ///
    /// # Errors
    /// The disk is full or cannot be written.
    pub fn finish(mut self) -> Result<(), CliError> {
        let targets = self.targets;
        self.line(&UndoEnd { targets })?;
        let mut settle = || -> io::Result<()> {
            self.file.flush()?;
            self.file.get_ref().sync_all()?;
            std::fs::rename(&self.temporary, &self.path)?;
            let dir = self.path.parent().filter(|dir| !dir.as_os_str().is_empty());
            File::open(dir.unwrap_or(Path::new(".")))?.sync_all()
        };
        settle().map_err(|error| unwritten(&self.path, &error))
    }

    /// Takes it back: nothing was found to be changed.
    pub fn discard(self) {
        // It is small and has another name: one that stays does no harm.
        let _ = std::fs::remove_file(&self.temporary);
    }
}

/// A whole undo file.
#[derive(Debug)]
pub struct UndoFile {
    path: PathBuf,
    /// What it begins with.
    pub head: UndoHead,
    /// How many targets it has.
    pub targets: u64,
}

impl UndoFile {
    /// Reads the file from its beginning to its end: what is cut off or damaged undoes nothing.
    ///
    /// # Errors
    /// It cannot be read, or is no whole undo file.
    pub fn open(path: &Path) -> Result<Self, CliError> {
        let mut lines = Lines::open(path)?;
        let head: UndoHead = lines.next()?.ok_or_else(|| lines.broken("it is empty"))?;
        if head.format != FORMAT || head.version != VERSION {
            return Err(lines.broken("it is of another version"));
        }
        let mut targets = 0;
        loop {
            match lines.next::<UndoLine>()? {
                Some(UndoLine::Target(target)) if target.path.starts_with('/') => targets += 1,
                Some(UndoLine::End(end)) if end.targets == targets => break,
                _ => return Err(lines.broken("it is cut off")),
            }
        }
        Ok(Self {
            path: path.to_owned(),
            head,
            targets,
        })
    }

    /// Its targets.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn targets(&self) -> Result<impl Iterator<Item = Result<ColdTarget, CliError>>, CliError> {
        let mut lines = Lines::open(&self.path)?;
        let _: Option<UndoHead> = lines.next()?;
        Ok((0..self.targets).map(move |_| match lines.next()? {
            Some(target) => Ok(target),
            None => Err(lines.broken("it is cut off")),
        }))
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum UndoLine {
    Target(ColdTarget),
    End(UndoEnd),
}

struct Lines {
    path: PathBuf,
    file: BufReader<File>,
}

impl Lines {
    fn open(path: &Path) -> Result<Self, CliError> {
        let file = File::open(path).map_err(|error| unread(path, &error))?;
        Ok(Self {
            path: path.to_owned(),
            file: BufReader::new(file),
        })
    }

    fn next<T: for<'de> Deserialize<'de>>(&mut self) -> Result<Option<T>, CliError> {
        let mut line = Vec::new();
        let mut limited = (&mut self.file).take(LINE_MAX);
        let read = limited.read_until(b'\n', &mut line);
        read.map_err(|error| unread(&self.path, &error))?;
        if line.is_empty() {
            return Ok(None);
        }
        let parsed = serde_json::from_slice(&line);
        parsed
            .map_err(|_| self.broken("a line of it is damaged"))
            .map(Some)
    }

    fn broken(&self, what: &str) -> CliError {
        CliError::new(
            format!("the undo file cannot be used: {what}"),
            self.path.display().to_string(),
            "give a file that --apply wrote; nothing was changed",
        )
    }
}

fn unwritten(path: &Path, error: &io::Error) -> CliError {
    CliError::new(
        format!("cannot write the undo file: {error}; nothing was changed"),
        path.display().to_string(),
        "give a place that is yours to write with --undo-file",
    )
}

fn unread(path: &Path, error: &io::Error) -> CliError {
    CliError::new(
        format!("cannot read the undo file: {error}"),
        path.display().to_string(),
        "give a file that --apply wrote",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(path: &str, before: Option<&str>) -> ColdTarget {
        ColdTarget {
            path: path.to_owned(),
            directory: before.is_none(),
            before: before.map(str::to_owned),
            seen_policy: None,
        }
    }

    fn written(dir: &Path) -> (PathBuf, Vec<ColdTarget>) {
        let path = dir.join("undo");
        let targets = vec![
            target("/a b", None),
            target("/a\n\"ä\"", Some("ONE_SSD")),
            target(&format!("/{}", "n".repeat(7999)), None),
        ];
        let mut writer = UndoWriter::create(&path, "nn:1", "COLD", 5).expect("created");
        for target in &targets {
            writer.push(target).expect("taken");
            assert!(!path.exists(), "it is not there before it is whole");
        }
        assert_eq!(writer.counts(), (2, 1));
        writer.finish().expect("written");
        (path, targets)
    }

    #[test]
    fn what_is_written_is_read_and_never_replaced() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let (path, targets) = written(dir.path());
        let file = UndoFile::open(&path).expect("whole");
        assert_eq!((&*file.head.namenode, file.head.made_at_s), ("nn:1", 5));
        let read: Result<Vec<_>, _> = file.targets().expect("read").collect();
        assert_eq!(read.expect("read"), targets);
        assert_eq!(std::fs::read_dir(dir.path()).expect("listed").count(), 1);
        let again = UndoWriter::create(&path, "nn:1", "COLD", 5).expect_err("it is there");
        assert!(again.to_string().contains("--undo-file"), "{again}");
        let nowhere = UndoWriter::create(&dir.path().join("no/undo"), "nn:1", "COLD", 5);
        assert!(
            nowhere
                .expect_err("no directory")
                .to_string()
                .contains("nothing was changed")
        );
    }

    #[test]
    fn one_that_is_not_whole_undoes_nothing() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let (path, _) = written(dir.path());
        let whole = std::fs::read(&path).expect("read");
        for end in 0..whole.len() - 1 {
            std::fs::write(&path, &whole[..end]).expect("written");
            assert!(UndoFile::open(&path).is_err(), "cut at {end}");
        }
        let lines: Vec<_> = whole.split_inclusive(|b| *b == b'\n').collect();
        let missing = [lines[0], lines[1], lines[3], lines[4]].concat();
        std::fs::write(&path, missing).expect("written");
        assert!(UndoFile::open(&path).is_err());
        assert!(UndoFile::open(&dir.path().join("none")).is_err());
    }
}
