//! The file of an image: its summary and its sections.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use hayloft_wire::frame;
use hayloft_wire::proto::fsimage::FileSummary;
use hayloft_wire::schema::WireMessage;

use crate::error::CliError;

/// What an image begins with.
const MAGIC: &[u8; 8] = b"HDFSIMG1";
/// The version of the frame around the sections.
const ONDISK_VERSION: u32 = 1;
/// Largest message that is read, bytes: a directory of the most children that a NameNode allows
/// (6.4 million) takes less, a file of the most blocks (10,000 by default) far less.
const MESSAGE_MAX: usize = 128 << 20;
/// Largest summary that is read, bytes.
const SUMMARY_MAX: u64 = 1 << 20;
const READ_BUFFER: usize = 256 << 10;

/// Names of sections.
pub(super) const STRINGS: &str = "STRING_TABLE";
pub(super) const INODES: &str = "INODE";
pub(super) const REFERENCES: &str = "INODE_REFERENCE";
pub(super) const DIRECTORIES: &str = "INODE_DIR";

/// An opened image.
#[derive(Debug)]
pub struct Image {
    path: PathBuf,
    summary: FileSummary,
    len: u64,
}

impl Image {
    /// Opens the image in the file at `path` and reads where its sections are.
    ///
    /// # Errors
    /// It cannot be read, is no complete image, of another version, or compressed.
    pub fn open(path: &Path) -> Result<Self, CliError> {
        let mut file = File::open(path).map_err(|error| unreadable(path, &error))?;
        let (summary, len) = read_summary(&mut file).map_err(|error| unreadable(path, &error))?;
        let image = Self {
            path: path.to_owned(),
            summary,
            len,
        };
        image.check()?;
        Ok(image)
    }

    fn check(&self) -> Result<(), CliError> {
        let version = self.summary.ondisk_version;
        if version != ONDISK_VERSION {
            return Err(self.damaged(&format!("its format is {version}, not {ONDISK_VERSION}")));
        }
        if let Some(codec) = self
            .summary
            .codec
            .as_deref()
            .filter(|codec| !codec.is_empty())
        {
            return Err(CliError::new(
                format!("the image is compressed ({codec})"),
                self.path.display().to_string(),
                "scan with --live, or have the NameNode save an image with \
                 dfs.image.compress=false",
            ));
        }
        for section in &self.summary.sections {
            let (offset, length) = (section.offset(), section.length());
            let inside = offset
                .checked_add(length)
                .is_some_and(|end| end <= self.len);
            if !inside {
                return Err(self.damaged(&format!("section {} is cut off", section.name())));
            }
        }
        Ok(())
    }

    /// About how many bytes a scan reads.
    pub fn bytes_to_read(&self) -> u64 {
        2 * self.section_len(INODES) + self.section_len(DIRECTORIES)
    }

    /// Bytes of a section; 0 when there is none.
    pub(super) fn section_len(&self, name: &str) -> u64 {
        let mut sections = self.summary.sections.iter();
        sections
            .find(|section| section.name() == name)
            .map_or(0, |section| section.length())
    }

    /// Reads a section from its beginning; `None` when there is none.
    pub(super) fn section(&self, name: &str) -> Result<Option<SectionReader<'_>>, CliError> {
        let mut sections = self.summary.sections.iter();
        let Some(section) = sections.find(|section| section.name() == name) else {
            return Ok(None);
        };
        let open = || -> io::Result<File> {
            let mut file = File::open(&self.path)?;
            file.seek(SeekFrom::Start(section.offset()))?;
            Ok(file)
        };
        let file = open().map_err(|error| unreadable(&self.path, &error))?;
        Ok(Some(SectionReader {
            image: self,
            name: section.name().to_owned(),
            left: section.length(),
            file: BufReader::with_capacity(READ_BUFFER, file),
        }))
    }

    /// A section that every image has.
    pub(super) fn needed(&self, name: &str) -> Result<SectionReader<'_>, CliError> {
        self.section(name)?
            .ok_or_else(|| self.damaged(&format!("it has no section {name}")))
    }

    pub(super) fn damaged(&self, what: &str) -> CliError {
        CliError::new(
            format!("the image cannot be used: {what}"),
            self.path.display().to_string(),
            "get a new one with 'hdfs dfsadmin -fetchImage DIR'",
        )
    }
}

fn read_summary(file: &mut File) -> io::Result<(FileSummary, u64)> {
    let bad = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let no_image = || bad("it is no fsimage of Hadoop 2.4 or later");
    let len = file.metadata()?.len();
    let mut magic = [0; 8];
    file.read_exact(&mut magic).map_err(|_| no_image())?;
    if magic != *MAGIC {
        return Err(no_image());
    }
    let cut = || bad("it ends early: it was not copied whole, or is still being written");
    file.seek(SeekFrom::End(-4)).map_err(|_| cut())?;
    let mut length = [0; 4];
    file.read_exact(&mut length)?;
    let length = u64::from(u32::from_be_bytes(length));
    let start = (len.saturating_sub(4)).checked_sub(length);
    let start = start.filter(|start| *start >= 8 && length <= SUMMARY_MAX);
    file.seek(SeekFrom::Start(start.ok_or_else(cut)?))?;
    let mut bytes = Vec::new();
    file.take(length).read_to_end(&mut bytes)?;
    let mut bytes = Bytes::from(bytes);
    let summary = frame::decode_part(&mut bytes, MESSAGE_MAX).map_err(|_| cut())?;
    Ok((summary, len))
}

fn unreadable(path: &Path, error: &io::Error) -> CliError {
    CliError::new(
        format!("cannot read the image: {error}"),
        path.display().to_string(),
        "give a file that 'hdfs dfsadmin -fetchImage DIR' fetched",
    )
}

/// The messages of a section, one after the other.
pub(super) struct SectionReader<'a> {
    image: &'a Image,
    name: String,
    left: u64,
    file: BufReader<File>,
}

impl SectionReader<'_> {
    /// The bytes of the next message; `None` at the end of the section.
    pub(super) fn next_bytes(&mut self) -> Result<Option<Bytes>, CliError> {
        if self.left == 0 {
            return Ok(None);
        }
        let failed = |error: io::Error| unreadable(&self.image.path, &error);
        let mut prefix = [0_u8; 10];
        let mut used = 0;
        let len = loop {
            if used == prefix.len() || used as u64 == self.left {
                return Err(self.torn());
            }
            self.file
                .read_exact(&mut prefix[used..=used])
                .map_err(failed)?;
            used += 1;
            if prefix[used - 1] & 0x80 == 0 {
                let mut digits = &prefix[..used];
                break hayloft_wire::varint::read_u64(&mut digits);
            }
        };
        self.left -= used as u64;
        let len = len.filter(|len| *len <= self.left);
        let len = len.and_then(|len| usize::try_from(len).ok());
        let len = len
            .filter(|len| *len <= MESSAGE_MAX)
            .ok_or_else(|| self.torn())?;
        let mut bytes = vec![0; len];
        self.file.read_exact(&mut bytes).map_err(failed)?;
        self.left -= len as u64;
        Ok(Some(bytes.into()))
    }

    /// The next message; `None` at the end of the section.
    pub(super) fn next<M: WireMessage>(&mut self) -> Result<Option<M>, CliError> {
        match self.next_bytes()? {
            Some(bytes) => self.decode(bytes).map(Some),
            None => Ok(None),
        }
    }

    /// The message that a section begins with.
    pub(super) fn head<M: WireMessage>(&mut self) -> Result<M, CliError> {
        self.next()?.ok_or_else(|| self.torn())
    }

    pub(super) fn decode<M: WireMessage>(&self, bytes: Bytes) -> Result<M, CliError> {
        frame::decode(bytes).map_err(|_| self.torn())
    }

    fn torn(&self) -> CliError {
        self.image
            .damaged(&format!("section {} is damaged", self.name))
    }
}
