//! Cold files on their way from the scan to the plan: on disk, because there may be many millions,
//! and which of them are covered by a directory is known only when the scan is over.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read as _, Seek as _, Write as _};
use std::path::Path;

use super::scanned_file::ScannedFile;
use crate::error::CliError;

/// Longest name that is kept, bytes. HDFS allows a path of 8,000.
const NAME_MAX: usize = 32 << 10;

/// A file that is cold, or has the policy COLD and was used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpooledFile {
    /// Number of its directory.
    pub dir: u32,
    /// The policy that counts for it now.
    pub policy: u8,
    /// Its length, bytes.
    pub len: u64,
    /// When it was last used, milliseconds since 1970.
    pub used_ms: u64,
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
        // What a process of this number left that ended just here.
        let _ = std::fs::remove_file(&path);
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

    /// Takes a file that was last used at `used_ms`.
    ///
    /// # Errors
    /// The disk is full, or the name is longer than HDFS allows.
    pub fn push(
        &mut self,
        dir: u32,
        file: &ScannedFile,
        used_ms: u64,
        name: &str,
    ) -> io::Result<()> {
        let name_len = u16::try_from(name.len())
            .ok()
            .filter(|_| name.len() <= NAME_MAX)
            .ok_or_else(|| io::Error::other(format!("a name of {} bytes", name.len())))?;
        self.file.write_all(&dir.to_le_bytes())?;
        self.file.write_all(&[file.policy])?;
        self.file.write_all(&file.len.to_le_bytes())?;
        self.file.write_all(&used_ms.to_le_bytes())?;
        self.file.write_all(&name_len.to_le_bytes())?;
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
    let dir = u32::from_le_bytes(part(reader)?);
    let [policy] = part(reader)?;
    let len = u64::from_le_bytes(part(reader)?);
    let used_ms = u64::from_le_bytes(part(reader)?);
    let mut name = vec![0; usize::from(u16::from_le_bytes(part(reader)?))];
    reader.read_exact(&mut name)?;
    Ok(SpooledFile {
        dir,
        policy,
        len,
        used_ms,
        name: String::from_utf8(name).map_err(io::Error::other)?,
    })
}

fn part<const N: usize>(reader: &mut BufReader<File>) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    reader.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// What a user is told when the list cannot be kept.
pub fn unspooled(error: &io::Error) -> CliError {
    CliError::new(
        format!("cannot keep the list of cold files: {error}; nothing was changed"),
        "",
        "give --undo-file or --state on a disk with room: the list is kept there",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_in_comes_out_and_nothing_is_left_on_disk() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let left = format!(".hayloft-cold-{}", std::process::id());
        std::fs::write(dir.path().join(left), "x").expect("written");
        let mut spool = Spool::create(dir.path()).expect("created");
        let names = ["a", "", "with\nline", "ä€", &"n".repeat(8000)];
        let file = ScannedFile {
            len: 1 << 40,
            modified_ms: 1,
            accessed_ms: 2,
            policy: 7,
            open: false,
        };
        for (i, name) in (0..).zip(names) {
            spool.push(i, &file, 3, name).expect("taken");
        }
        let long = "n".repeat(NAME_MAX + 1);
        assert!(spool.push(0, &file, 0, &long).is_err());
        assert_eq!(std::fs::read_dir(dir.path()).expect("listed").count(), 0);
        let files: Vec<_> = spool
            .into_files()
            .expect("read")
            .map(|f| f.expect("read"))
            .collect();
        let back = |f: &SpooledFile| (f.dir, f.policy, f.len, f.used_ms, f.name.clone());
        let back: Vec<_> = files.iter().map(back).collect();
        let put = (0..).zip(names);
        let put: Vec<_> = put.map(|(i, n)| (i, 7, 1 << 40, 3, n.to_owned())).collect();
        assert_eq!(back, put);
    }
}
