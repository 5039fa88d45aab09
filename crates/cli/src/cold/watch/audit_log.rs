//! The NameNode's audit logs, read on from where the last pass ended.
//!
//! Log4j renames a full log and begins another. So a file is known by its inode and its beginning,
//! and what follows it by its time. When it is not there any more, lines may be lost: then all
//! files count as used at that moment. A log that is not written any more would make everything
//! look cold: a pass without a new line fails, since the pass itself asks the NameNode.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, Metadata};
use std::io::{self, BufRead, BufReader, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use crc_fast::CrcAlgorithm;
use hayloft_console::progress::say;
use serde::{Deserialize, Serialize};

use super::super::directory_uses::DirectoryUses;
use super::audit_line::AuditLine;
use crate::error::CliError;

/// Longest line that is read, bytes: two paths of 8,000 characters, each escaped.
const LINE_MAX: usize = 128 << 10;
/// Bytes of a file's beginning by which it is known again.
const HEAD: u64 = 256;
/// Most files of one log: they are open together.
const FILES_MAX: usize = 500;
/// How often the files are listed until they stay the same meanwhile.
const LISTINGS_MAX: usize = 10;
/// How the names of compressed files end. They are not read.
const COMPRESSED: [&str; 6] = ["gz", "bz2", "xz", "zst", "zip", "lz4"];

/// What is kept of the audit logs from pass to pass.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditState {
    /// By path.
    logs: BTreeMap<String, LogPosition>,
    /// Whether they have told of a read.
    #[serde(default)]
    reads: bool,
    /// What they said.
    pub uses: DirectoryUses,
}

/// Where the reading of a log has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct LogPosition {
    device: u64,
    inode: u64,
    offset: u64,
    /// Checksum of the beginning: inodes are used again.
    head: u64,
}

/// What was read of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct LogLines {
    lines: u64,
    /// Lines that are none of an audit log.
    strange: u64,
    /// Lines that tell of reads.
    reads: u64,
    /// Lines that tell of uses and name no path.
    by_inode: u64,
    /// When the file that is written now began: files may be missing between others.
    first_ms: Option<u64>,
}

/// A file of a log.
struct LogFile {
    file: File,
    about: Metadata,
    current: bool,
}

impl AuditState {
    /// Reads on in all logs. What was used before `cutoff_ms` is forgotten, where there is one.
    ///
    /// # Errors
    /// A log is gone or unreadable, is no audit log, none has a new line, or none ever told of a
    /// read.
    pub fn read_on(
        &mut self,
        logs: &[PathBuf],
        cutoff_ms: Option<u64>,
        now_ms: u64,
    ) -> Result<(), CliError> {
        let (mut all, mut known) = (LogLines::default(), true);
        for log in logs {
            let name = log.display().to_string();
            let from = self.logs.get(&name).copied();
            let read = read_log(log, from, &mut self.uses, now_ms);
            let (position, lines, gap) = read.map_err(|error| unread(log, &error))?;
            if gap {
                say(&format!(
                    "warning: {name}: where the last pass ended is not there any more, so reads \
                     may be unknown: all files count as read now. Rotate by renaming, keep more \
                     files and do not compress the newest"
                ));
                self.uses.unknown_until(now_ms);
            } else if from.is_none() {
                let first_ms = lines.first_ms.unwrap_or(now_ms);
                self.uses.unknown_until(first_ms.min(now_ms));
            }
            known &= from.is_some() && !gap;
            all.lines += lines.lines;
            all.strange += lines.strange;
            all.reads += lines.reads;
            all.by_inode += lines.by_inode;
            self.logs.insert(name, position);
        }
        self.reads |= all.reads > 0;
        all.check(known, self.reads, logs)?;
        if let Some(cutoff_ms) = cutoff_ms {
            self.uses.forget_before(cutoff_ms);
        }
        Ok(())
    }
}

impl LogLines {
    fn take(&mut self, line: &AuditLine<'_>, current: bool) {
        self.lines += 1;
        self.reads += u64::from(line.is_read());
        self.by_inode += u64::from(line.is_by_inode());
        if current {
            let first_ms = self.first_ms.unwrap_or(line.at_ms);
            self.first_ms = Some(first_ms.min(line.at_ms));
        }
    }

    /// Refuses logs that do not tell of reads. `known`: all were read before; `reads`: they have
    /// told of one, now or before.
    fn check(&self, known: bool, reads: bool, logs: &[PathBuf]) -> Result<(), CliError> {
        let refused = |what: String| {
            let names: Vec<_> = logs.iter().map(|log| log.display().to_string()).collect();
            let advice = "let hdfs.audit.logger of the active NameNode write to it";
            CliError::new(what, names.join(", "), advice)
        };
        if self.lines == 0 && (known || self.strange > 0) {
            return Err(refused(format!(
                "the audit log has no new line, and {} that are none of an audit log",
                self.strange
            )));
        }
        if !reads {
            let what = "the audit log never told of a read (cmd=open), so all would look cold";
            return Err(refused(what.to_owned()));
        }
        if self.by_inode > 0 {
            say(&format!(
                "warning: the audit log tells of {} uses by the number of an inode: those may be \
                 of any file, so all count as read then",
                self.by_inode
            ));
        }
        Ok(())
    }
}

fn unread(log: &Path, error: &io::Error) -> CliError {
    CliError::new(
        format!("cannot read the audit log: {error}"),
        log.display().to_string(),
        "let hdfs.audit.logger of the NameNode write to it; nothing is set meanwhile",
    )
}

/// Reads what is new of a log; whether lines may have been lost.
fn read_log(
    log: &Path,
    from: Option<LogPosition>,
    uses: &mut DirectoryUses,
    now_ms: u64,
) -> io::Result<(LogPosition, LogLines, bool)> {
    let files = open_settled(log)?;
    let found = place_of(&files, from);
    let mut lines = LogLines::default();
    let mut position = None;
    let since = found.map(|at| (at, files[at].about.modified().ok()));
    for (at, log_file) in files.iter().enumerate() {
        let start = match (&since, from) {
            (Some((known, _)), Some(from)) if *known == at => from.offset,
            // What was written before the known one ended was read in its time.
            (Some((_, ended)), _)
                if !log_file.current && log_file.about.modified().ok() < *ended =>
            {
                continue;
            }
            _ => 0,
        };
        let offset = read_lines(
            log_file,
            start,
            &mut |line| match line.and_then(AuditLine::parse) {
                Some(line) => {
                    lines.take(&line, log_file.current);
                    line.note(uses, now_ms);
                }
                None => lines.strange += 1,
            },
        )?;
        if log_file.current {
            position = Some(log_file.position(offset)?);
        }
    }
    let position = position.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
    Ok((position, lines, from.is_some() && found.is_none()))
}

fn place_of(files: &[LogFile], from: Option<LogPosition>) -> Option<usize> {
    let from = from?;
    let is = |file: &LogFile| {
        file.about.len() >= from.offset && file.position(from.offset).is_ok_and(|now| now == from)
    };
    files.iter().position(is)
}

/// The files of a log, when two looks find the same: one that is renamed between listing and
/// opening would be missed.
fn open_settled(log: &Path) -> io::Result<Vec<LogFile>> {
    let mut before = None;
    for _ in 0..LISTINGS_MAX {
        let files = open_all(log)?;
        let ids = files
            .iter()
            .map(|file| (file.current, file.about.dev(), file.about.ino()));
        let now: BTreeSet<(bool, u64, u64)> = ids.collect();
        if before.as_ref() == Some(&now) {
            return Ok(files);
        }
        before = Some(now);
    }
    Err(io::Error::other("its files are renamed all the time"))
}

/// The log, and those that were renamed: with its name, a dot or a dash, and more.
fn open_all(log: &Path) -> io::Result<Vec<LogFile>> {
    let name = log.file_name().unwrap_or_default().to_string_lossy();
    let dir = log.parent().filter(|dir| !dir.as_os_str().is_empty());
    let mut files: Vec<LogFile> = Vec::new();
    for entry in dir.unwrap_or(Path::new(".")).read_dir()? {
        let path = entry?.path();
        let other = path.file_name().unwrap_or_default().to_string_lossy();
        let Some(rest) = other.strip_prefix(&*name) else {
            continue;
        };
        let is_of_log = rest.is_empty() || rest.starts_with(['.', '-']);
        if !is_of_log || COMPRESSED.iter().any(|ending| rest.ends_with(*ending)) {
            continue;
        }
        if files.len() >= FILES_MAX {
            let what = format!("more than {FILES_MAX} files have this name");
            return Err(io::Error::other(what));
        }
        // Looked at before it is opened: opening a pipe would wait.
        let opened = std::fs::metadata(&path)
            .and_then(|about| about.is_file().then(|| File::open(&path)).transpose());
        let file = match opened {
            Ok(Some(file)) => file,
            Ok(None) => continue,
            // It was renamed or deleted meanwhile: it is under its new name, or gone.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        let about = file.metadata()?;
        files.push(LogFile {
            file,
            about,
            current: rest.is_empty(),
        });
    }
    Ok(files)
}

impl LogFile {
    fn position(&self, offset: u64) -> io::Result<LogPosition> {
        let mut head = vec![0; usize::try_from(offset.min(HEAD)).unwrap_or(0)];
        self.file.read_exact_at(&mut head, 0)?;
        Ok(LogPosition {
            device: self.about.dev(),
            inode: self.about.ino(),
            offset,
            head: crc_fast::checksum(CrcAlgorithm::Crc32IsoHdlc, &head),
        })
    }
}

/// Calls `each` with the lines from `start` on; with none for one that is too long. Returns where
/// the last whole line ends: what a writer is in the middle of comes with the next pass.
fn read_lines(log: &LogFile, start: u64, each: &mut dyn FnMut(Option<&[u8]>)) -> io::Result<u64> {
    let mut file = &log.file;
    file.seek(SeekFrom::Start(start))?;
    let rest = log.about.len().saturating_sub(start);
    let mut reader = BufReader::with_capacity(256 << 10, file.take(rest));
    let (mut line, mut offset) = (Vec::new(), start);
    loop {
        let mut read = next_part(&mut reader, &mut line)?;
        if line.ends_with(b"\n") {
            each(Some(&line));
        } else if read < LINE_MAX as u64 {
            return Ok(offset);
        } else {
            while !line.ends_with(b"\n") {
                match next_part(&mut reader, &mut line)? {
                    0 => return Ok(offset),
                    more => read += more,
                }
            }
            each(None);
        }
        offset += read;
    }
}

fn next_part(reader: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<u64> {
    line.clear();
    let mut part = reader.take(LINE_MAX as u64);
    Ok(part.read_until(b'\n', line)? as u64)
}
