//! Where the block scanner is, in Apache's `scanner.cursor` (JSON). A round goes on after a
//! restart, and after a swap of the two DataNodes.

use serde::{Deserialize, Serialize};

use crate::layout::names::{self, ReplicaFile};

/// Name of the file, in the pool's directory.
pub const FILE: &str = "scanner.cursor";
/// Longest file that is read, in bytes.
pub const BYTES_MAX: usize = 16 << 10;

/// The place in a round.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Cursor {
    /// When it was saved, milliseconds since 1970.
    pub last_saved_ms: u64,
    /// When the round began, milliseconds since 1970.
    pub iter_start_ms: u64,
    cur_finalized_dir: Option<String>,
    cur_finalized_sub_dir: Option<String>,
    cur_entry: Option<String>,
    /// The round is complete.
    pub at_end: bool,
}

impl Cursor {
    /// The beginning of a round.
    #[must_use]
    pub fn begin(now_ms: u64) -> Self {
        Self {
            iter_start_ms: now_ms,
            ..Self::default()
        }
    }

    /// Reads the file's contents; `None` when they are something else.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    /// The file's contents.
    #[must_use]
    pub fn encode(&self, now_ms: u64) -> Vec<u8> {
        let saved = Self {
            last_saved_ms: now_ms,
            ..self.clone()
        };
        serde_json::to_vec(&saved).expect("numbers and strings can be written")
    }

    /// Takes note that this replica's turn has come.
    pub fn set_place(&mut self, id: i64) {
        let (a, b) = names::subdir_numbers(id);
        self.cur_finalized_dir = Some(format!("subdir{a}"));
        self.cur_finalized_sub_dir = Some(format!("subdir{b}"));
        self.cur_entry = Some(names::data_name(id));
    }

    /// First-level directory and the last replica whose turn has come. Apache saves the name of a
    /// meta or a data file; either tells the block.
    #[must_use]
    pub fn place(&self) -> Option<(u8, i64)> {
        match names::parse(self.cur_entry.as_deref()?)? {
            ReplicaFile::Data(id) | ReplicaFile::Meta(id, _) => {
                Some((names::subdir_numbers(id).0, id))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_comes_back() {
        let mut cursor = Cursor::begin(1000);
        assert_eq!(cursor.place(), None);
        cursor.set_place(0x05_0301);
        let text = cursor.encode(2000);
        assert_eq!(
            String::from_utf8_lossy(&text),
            [
                r#"{"lastSavedMs":2000,"iterStartMs":1000,"curFinalizedDir":"subdir5","#,
                r#""curFinalizedSubDir":"subdir3","curEntry":"blk_328449","atEnd":false}"#,
            ]
            .concat()
        );
        assert_eq!(
            Cursor::parse(&text).and_then(|c| c.place()),
            Some((5, 0x05_0301))
        );
    }

    #[test]
    fn a_file_of_apaches_is_understood_and_others_are_not() {
        let apache = [
            r#"{"lastSavedMs":1,"iterStartMs":2,"curFinalizedDir":null,"#,
            r#""curFinalizedSubDir":null,"curEntry":null,"atEnd":true}"#,
        ];
        let cursor = Cursor::parse(apache.concat().as_bytes()).expect("understood");
        assert!(cursor.at_end && cursor.place().is_none());
        for other in [&b""[..], b"7", b"{\"lastSavedMs\":-1}"] {
            assert_eq!(Cursor::parse(other), None);
        }
    }
}
