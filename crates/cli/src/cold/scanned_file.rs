//! A file as a scan finds it, what the scan says of it, and sums of such files.

use serde::{Deserialize, Serialize};

/// Sums of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSums {
    /// Files.
    pub files: u64,
    /// Their lengths, bytes.
    pub bytes: u64,
    /// Those that are cold and have another policy than COLD.
    pub cold_files: u64,
    /// Their lengths, bytes.
    pub cold_bytes: u64,
    /// Those that have the policy COLD already, used or not.
    pub settled_files: u64,
    /// Their lengths, bytes.
    pub settled_bytes: u64,
}

impl FileSums {
    /// Adds others.
    pub fn add(&mut self, other: &Self) {
        let pairs = [
            (&mut self.files, other.files),
            (&mut self.bytes, other.bytes),
            (&mut self.cold_files, other.cold_files),
            (&mut self.cold_bytes, other.cold_bytes),
            (&mut self.settled_files, other.settled_files),
            (&mut self.settled_bytes, other.settled_bytes),
        ];
        for (sum, more) in pairs {
            *sum = sum.saturating_add(more);
        }
    }

    /// Whether files are left that are in use.
    pub fn has_warm(&self) -> bool {
        self.files > self.cold_files.saturating_add(self.settled_files)
    }
}

/// A file as a scan finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScannedFile {
    /// Its length, bytes.
    pub len: u64,
    /// Last change, milliseconds since 1970.
    pub modified_ms: u64,
    /// Last access, milliseconds since 1970.
    pub accessed_ms: u64,
    /// The policy that counts for it: its own or an inherited one; 0 for none.
    pub policy: u8,
    /// Whether it is being written.
    pub open: bool,
}

/// What a scan says of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileClass {
    /// In use.
    Warm,
    /// Cold, and to be given the policy COLD.
    Cold,
    /// Of policy COLD already, and not used since the cutoff.
    Settled,
    /// Of policy COLD already, and used since the cutoff.
    Reread,
}
