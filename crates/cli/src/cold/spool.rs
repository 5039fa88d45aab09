//! Cold files on their way from the scan to the plan: on disk, because there may be many millions,
//! and which of them are covered by a directory is known only when the scan is over.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read as _, Seek as _, Write as _};
use std::path::Path;

use crate::error::CliError;

/// Longest name that is kept, bytes. HDFS allows a path of 8,000.
const NAME_MAX: usize = 32 << 10;

/// A cold file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpooledFile {
    /// Number of its directory.
    pub dir: u32,
    /// The policy that counts for it now.
    pub policy: u8,
    /// Its name.
    pub name: String,
}

/// A file without a name that takes records, and then gives them back in the same order.
#[derive(Debug)]
pub struct Spool {
    file: BufWriter<File>,
    count: u64,
}

impl Spool {
    /// One in `dir`. Its space is free again when it is dropped, or the process ends.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn create(dir: &Path) -> io::Result<Self> {
        let path = dir.join(format!(".hayloft-cold-{}", std::process::id()));
        let mut options = OpenOptions::new();
        let file = options
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)?;
        std::fs::remove_file(&path)?;
        Ok(Self {
            file: BufWriter::with_capacity(256 << 10, file),
            count: 0,
        })
    }

    /// Takes a file.
    ///
    /// # Errors
    /// The disk is full, or the name is longer than HDFS allows.
    pub fn push(&mut self, dir: u32, policy: u8, name: &str) -> io::Result<()> {
        let len = u16::try_from(name.len())
            .ok()
            .filter(|_| name.len() <= NAME_MAX)
            .ok_or_else(|| io::Error::other(format!("a name of {} bytes", name.len())))?;
        self.file.write_all(&dir.to_le_bytes())?;
        self.file.write_all(&[policy])?;
        self.file.write_all(&len.to_le_bytes())?;
        self.file.write_all(name.as_bytes())?;
        self.count += 1;
        Ok(())
    }

    /// Gives back what it took.
    ///
    /// # Errors
    /// The disk is full or cannot be read.
    pub fn into_files(self) -> io::Result<impl Iterator<Item = io::Result<SpooledFile>>> {
        let mut file = self.file.into_inner().map_err(|e| e.into_error())?;
        file.rewind()?;
        let mut reader = BufReader::with_capacity(256 << 10, file);
        Ok((0..self.count).map(move |_| read(&mut reader)))
    }
}

fn read(reader: &mut BufReader<File>) -> io::Result<SpooledFile> {
    let mut head = [0; 7];
    reader.read_exact(&mut head)?;
    let [a, b, c, d, policy, low, high] = head;
    let mut name = vec![0; usize::from(u16::from_le_bytes([low, high]))];
    reader.read_exact(&mut name)?;
    Ok(SpooledFile {
        dir: u32::from_le_bytes([a, b, c, d]),
        policy,
        name: String::from_utf8(name).map_err(io::Error::other)?,
    })
}

/// What a user is told when the list cannot be kept.
pub fn unspooled(error: &io::Error) -> CliError {
    CliError::new(
        format!("cannot keep the list of cold files: {error}; nothing was changed"),
        "",
        "give --undo-file on a disk with room: the list is kept beside it",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_in_comes_out_and_nothing_is_left_on_disk() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let mut spool = Spool::create(dir.path()).expect("created");
        let names = ["a", "", "with\nline", "ä€", &"n".repeat(8000)];
        for (i, name) in (0..).zip(names) {
            spool.push(i, 7, name).expect("taken");
        }
        assert!(spool.push(0, 0, &"n".repeat(NAME_MAX + 1)).is_err());
        assert_eq!(std::fs::read_dir(dir.path()).expect("listed").count(), 0);
        let files: Vec<_> = spool
            .into_files()
            .expect("read")
            .map(|f| f.expect("read"))
            .collect();
        let back: Vec<_> = files.iter().map(|f| (f.dir, f.policy, &*f.name)).collect();
        let put: Vec<_> = (0..).zip(names).map(|(i, name)| (i, 7, name)).collect();
        assert_eq!(back, put);
    }
}
