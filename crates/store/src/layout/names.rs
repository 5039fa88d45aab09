//! Names of files and directories, and where they lie.

use std::path::{Path, PathBuf};

use hayloft_wire::ids::PoolId;

/// Directory of everything that is current.
pub const CURRENT: &str = "current";
/// Identity of a volume or pool.
pub const VERSION: &str = "VERSION";
/// The record lock of a volume.
pub const IN_USE_LOCK: &str = "in_use.lock";
/// Finalized replicas.
pub const FINALIZED: &str = "finalized";
/// Replicas being written by clients.
pub const RBW: &str = "rbw";
/// Replicas saved from RAM disk.
pub const LAZY_PERSIST: &str = "lazypersist";
/// Replicas being copied between nodes. Apache empties it at start, and so do we.
pub const TMP: &str = "tmp";
/// Space used, saved at a clean stop.
pub const DFS_USED: &str = "dfsUsed";
/// The replicas, saved at a clean stop.
pub const REPLICAS: &str = "replicas";
/// Deleted replicas during a rolling upgrade.
pub const TRASH: &str = "trash";
/// State before an upgrade.
pub const PREVIOUS: &str = "previous";
/// Marks a pool in rolling upgrade.
pub const ROLLING_UPGRADE_MARKER: &str = "RollingUpgradeInProgress";

/// Hadoop gives no block a name longer than `blk_-9223372036854775808_9223372036854775807.meta`.
const NAME_BYTES_MAX: usize = 50;

/// What a file in a directory of replicas is, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaFile {
    /// `blk_ID`.
    Data(i64),
    /// `blk_ID_GS.meta`: id and generation stamp.
    Meta(i64, u64),
}

/// Name of the data file of a block.
#[must_use]
pub fn data_name(id: i64) -> String {
    format!("blk_{id}")
}

/// Name of the meta file of a block.
#[must_use]
pub fn meta_name(id: i64, generation_stamp: u64) -> String {
    format!("blk_{id}_{generation_stamp}.meta")
}

/// Tells a replica's files from others. Only names that [`data_name`] and [`meta_name`] make are
/// recognised (no leading zeros or plus signs).
#[must_use]
pub fn parse(name: &str) -> Option<ReplicaFile> {
    if name.len() > NAME_BYTES_MAX {
        return None;
    }
    let rest = name.strip_prefix("blk_")?;
    let Some(stem) = rest.strip_suffix(".meta") else {
        let id = canonical_id(rest)?;
        return Some(ReplicaFile::Data(id));
    };
    let (id, gs) = stem.split_once('_')?;
    Some(ReplicaFile::Meta(canonical_id(id)?, canonical_gs(gs)?))
}

fn canonical_id(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if !canonical_digits(digits) || text == "-0" {
        return None;
    }
    text.parse().ok()
}

fn canonical_gs(text: &str) -> Option<u64> {
    if !canonical_digits(text) {
        return None;
    }
    text.parse().ok().filter(|gs| i64::try_from(*gs).is_ok())
}

fn canonical_digits(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|b| b.is_ascii_digit())
        && (text == "0" || !text.starts_with('0'))
}

/// The two directory numbers of a finalized block, 0 to 31 each: bits 16 to 20 and 8 to 12 of the
/// id.
#[must_use]
pub fn subdir_numbers(id: i64) -> (u8, u8) {
    let bits = id.cast_unsigned();
    let five = |shift: u32| u8::try_from((bits >> shift) & 0x1f).expect("five bits fit in a byte");
    (five(16), five(8))
}

/// `subdirA/subdirB`, relative to `finalized`.
#[must_use]
pub fn subdir(id: i64) -> String {
    let (a, b) = subdir_numbers(id);
    format!("subdir{a}/subdir{b}")
}

/// Number of a `subdirN` directory of this layout (0 to 31).
#[must_use]
pub fn parse_subdir(name: &str) -> Option<u8> {
    let digits = name.strip_prefix("subdir")?;
    if !canonical_digits(digits) {
        return None;
    }
    digits.parse().ok().filter(|n| *n < 32)
}

/// Places of one block pool on one volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolPaths {
    /// `DIR/current/BP-x`.
    pub root: PathBuf,
}

impl PoolPaths {
    /// Places of `pool` on the volume at `volume`.
    #[must_use]
    pub fn new(volume: &Path, pool: &PoolId) -> Self {
        Self {
            root: volume.join(CURRENT).join(pool.as_str()),
        }
    }

    /// `BP-x/current`.
    #[must_use]
    pub fn current(&self) -> PathBuf {
        self.root.join(CURRENT)
    }

    /// `BP-x/current/VERSION`.
    #[must_use]
    pub fn version(&self) -> PathBuf {
        self.current().join(VERSION)
    }

    /// `BP-x/current/finalized`.
    #[must_use]
    pub fn finalized(&self) -> PathBuf {
        self.current().join(FINALIZED)
    }

    /// `BP-x/current/rbw`.
    #[must_use]
    pub fn rbw(&self) -> PathBuf {
        self.current().join(RBW)
    }

    /// `BP-x/current/lazypersist`.
    #[must_use]
    pub fn lazy_persist(&self) -> PathBuf {
        self.current().join(LAZY_PERSIST)
    }

    /// Directory of the second copy of a block whose replica is in memory.
    #[must_use]
    pub fn lazy_persist_dir(&self, id: i64) -> PathBuf {
        let mut path = self.lazy_persist();
        path.push(subdir(id));
        path
    }

    /// `BP-x/tmp`.
    #[must_use]
    pub fn tmp(&self) -> PathBuf {
        self.root.join(TMP)
    }

    /// Directory of a finalized block.
    #[must_use]
    pub fn finalized_dir(&self, id: i64) -> PathBuf {
        let mut path = self.finalized();
        path.push(subdir(id));
        path
    }

    /// Marker file of an upgrade restart: a replica whose marker names a time in the future stays
    /// RBW. Apache puts it beside `rbw`, named `rbw:.blk_ID.restart`.
    #[must_use]
    pub fn restart_marker(&self, id: i64) -> PathBuf {
        self.current()
            .join(format!("{RBW}:.{}.restart", data_name(id)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn subdirs_follow_bits_of_the_id() {
        assert_eq!(subdir(1_073_741_825), "subdir0/subdir0");
        assert_eq!(subdir(0x1f_1f00), "subdir31/subdir31");
        assert_eq!(subdir(0x05_0300), "subdir5/subdir3");
        // A striped block: the shift keeps the sign, the mask takes five bits.
        assert_eq!(subdir(-9_223_372_036_854_775_792), "subdir0/subdir0");
        assert_eq!(subdir(-1), "subdir31/subdir31");
    }

    #[test]
    fn only_names_of_replicas_are_recognised() {
        assert_eq!(parse("blk_-16"), Some(ReplicaFile::Data(-16)));
        assert_eq!(parse("blk_7_1001.meta"), Some(ReplicaFile::Meta(7, 1001)));
        for other in [
            "",
            "blk_",
            "blk_x",
            "blk_7.meta",
            "blk_07",
            "blk_7_.meta",
            "blk_7_-1.meta",
            "blk_7_1.meta.x",
            "blk_+7",
            "blk_-0",
            "blk_7_1",
            "blk_99999999999999999999",
            "dncp_block_verification.log.curr",
        ] {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[test]
    fn subdir_names_are_numbers_below_32() {
        assert_eq!(parse_subdir("subdir0"), Some(0));
        assert_eq!(parse_subdir("subdir31"), Some(31));
        for other in ["subdir32", "subdir", "subdir01", "subdir-1", "x"] {
            assert_eq!(parse_subdir(other), None, "{other}");
        }
    }

    proptest! {
        #[test]
        fn names_come_back(id: i64, gs in 0..=i64::MAX.unsigned_abs()) {
            prop_assert_eq!(parse(&data_name(id)), Some(ReplicaFile::Data(id)));
            prop_assert_eq!(parse(&meta_name(id, gs)), Some(ReplicaFile::Meta(id, gs)));
        }

        #[test]
        fn any_name_is_taken(name in "\\PC{0,60}") {
            let _ = parse(&name);
            let _ = parse_subdir(&name);
        }
    }
}
