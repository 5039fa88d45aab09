//! What clients wrote, and what of it may be lost.

use std::fmt;

/// A closed file.
#[derive(Clone, Debug)]
pub struct Written {
    pub path: String,
    /// Its length, bytes.
    pub bytes: u64,
    /// The seed of its pattern.
    pub seed: u64,
    /// It was protected at some time since its last byte was written: one disk may die.
    pub safe: bool,
}

/// Every file that should be there.
#[derive(Debug, Default)]
pub struct Ledger {
    pub files: Vec<Written>,
    /// Files ever written, the seed of the next.
    pub written: u64,
    /// Lost without parity, and told.
    pub lost: u64,
    pub deleted: u64,
    pub appended: u64,
    /// Reads that gave every byte.
    pub reads: u64,
}

impl Ledger {
    /// All that is there now has parity.
    pub fn all_safe(&mut self) {
        self.files.iter_mut().for_each(|file| file.safe = true);
    }

    /// Bytes of all files.
    pub fn total(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// Forgets a file that was lost and told, or that a client deleted.
    pub fn forget(&mut self, path: &str) {
        self.files.retain(|file| file.path != path);
    }
}

impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} files of {} bytes; {} written, {} deleted, {} appends, {} reads with every byte, \
             {} lost without parity and told",
            self.files.len(),
            self.total(),
            self.written,
            self.deleted,
            self.appended,
            self.reads,
            self.lost
        )
    }
}
