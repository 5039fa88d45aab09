//! Names of objects. Below the prefix each node has a folder, named after its uuid:
//!
//! ```text
//! UUID/blocks/BP-x/subdirA/subdirB/blk_ID_GS_LEN        data file
//! UUID/blocks/BP-x/subdirA/subdirB/blk_ID_GS_LEN.meta   meta file
//! UUID/manifests/MILLISECONDS-RANDOM                    a snapshot
//! UUID/running/create-RANDOM, read-.., prune-..         who is at work
//! ```
//!
//! A block's name says all that its bytes depend on, so an object never changes.

use hayloft_store::offline::subdir;
use hayloft_wire::ids::{Block, PoolId};

/// Folder of data and meta files.
pub const BLOCKS: &str = "blocks";
/// Folder of snapshots.
pub const MANIFESTS: &str = "manifests";
/// Folder of those at work.
pub const RUNNING: &str = "running";
/// Where a file system has what is not whole yet.
pub const UNFINISHED: &str = ".unfinished";

/// The latest time that a name has room for: in the year 2286.
const LAST_MS: u64 = 9_999_999_999_999;
/// Longest uuid of a node that is used, in bytes.
const NODE_BYTES_MAX: usize = 128;

/// A closed replica by what its bytes depend on.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockName {
    /// Its block pool.
    pub pool: PoolId,
    /// Block id.
    pub id: i64,
    /// Generation stamp.
    pub generation_stamp: u64,
    /// Length of the data file, in bytes.
    pub len: u64,
}

impl BlockName {
    /// That of a block.
    pub fn new(pool: &PoolId, block: Block) -> Self {
        Self {
            pool: pool.clone(),
            id: block.id,
            generation_stamp: block.generation_stamp,
            len: block.num_bytes,
        }
    }

    /// Id, generation stamp and length.
    pub fn block(&self) -> Block {
        Block::new(self.id, self.generation_stamp, self.len)
    }

    /// The object of the data file.
    pub fn data(&self, node: &str) -> String {
        let Self { id, len, .. } = self;
        let (pool, place, stamp) = (self.pool.as_str(), subdir(*id), self.generation_stamp);
        format!("{node}/{BLOCKS}/{pool}/{place}/blk_{id}_{stamp}_{len}")
    }

    /// The object of the meta file.
    pub fn meta(&self, node: &str) -> String {
        format!("{}.meta", self.data(node))
    }

    /// The replica that an object below the folder of blocks is of, and whether it is the meta
    /// file; `None` for what no snapshot has made.
    pub fn parse(node: &str, path: &str) -> Option<(Self, bool)> {
        let rest = path.strip_prefix(node)?.strip_prefix('/')?;
        let rest = rest.strip_prefix(BLOCKS)?.strip_prefix('/')?;
        let (pool, rest) = rest.split_once('/')?;
        let file = rest.rsplit('/').next()?;
        let stem = file.strip_suffix(".meta");
        let (name, is_meta) = stem.map_or((file, false), |stem| (stem, true));
        let mut parts = name.strip_prefix("blk_")?.splitn(3, '_');
        let (id, stamp, len) = (parts.next()?, parts.next()?, parts.next()?);
        let block = Block::from_wire(
            id.parse::<i64>().ok()?.cast_unsigned(),
            stamp.parse().ok()?,
            len.parse().ok()?,
        );
        let found = Self::new(&PoolId::new(pool).ok()?, block.ok()?);
        let object = if is_meta {
            found.meta(node)
        } else {
            found.data(node)
        };
        (object == path).then_some((found, is_meta))
    }
}

/// Whether a name can be a node's uuid and a folder.
pub fn is_node(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    !name.is_empty() && name.len() <= NODE_BYTES_MAX && name.chars().all(plain)
}

/// A folder of a node, with the slash at its end.
pub fn folder(node: &str, which: &str) -> String {
    format!("{node}/{which}/")
}

/// The name of a snapshot taken at a time, in milliseconds since 1970; later ones sort behind.
pub fn snapshot_name(at_ms: u64) -> String {
    let random = uuid::Uuid::new_v4().simple().to_string();
    let at_ms = at_ms.min(LAST_MS);
    format!("{at_ms:013}-{}", &random[..8])
}

/// When a snapshot was taken, by its name; `None` for what is no snapshot's.
pub fn taken_at(name: &str) -> Option<u64> {
    let (time, random) = name.split_once('-')?;
    let hex = random.len() == 8 && random.bytes().all(|b| b.is_ascii_hexdigit());
    (hex && time.len() == 13).then(|| time.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_names_of_snapshots_are_recognised() {
        assert!(is_node("0b1f7d0e-2a3c-4e54-8f0e-0a1b2c3d4e5f"));
        for odd in ["", ".unfinished", "a/b", "..", "a b"] {
            assert!(!is_node(odd), "{odd}");
        }
        let name = snapshot_name(1_795_829_620_123);
        assert_eq!(taken_at(&name), Some(1_795_829_620_123));
        for odd in ["", "1-2", "1795829620123", "1795829620123-xyzxyzxy", "x"] {
            assert_eq!(taken_at(odd), None, "{odd}");
        }
        for odd in [
            "u/blocks/BP-1/subdir0/subdir0/blk_1_1001",
            "u/blocks/BP-1/subdir0/subdir1/blk_1_1001_5",
            "u/blocks/BP-1/subdir0/subdir0/blk_01_1001_5",
            "u/blocks/BP-1/blk_1_1001_5",
            "v/blocks/BP-1/subdir0/subdir0/blk_1_1001_5",
        ] {
            assert_eq!(BlockName::parse("u", odd), None, "{odd}");
        }
    }

    proptest! {
        #[test]
        fn names_come_back(
            id: i64,
            stamp in 0..=i64::MAX.unsigned_abs(),
            len in 0..=i64::MAX.unsigned_abs(),
        ) {
            let pool = PoolId::new("BP-1-10.0.0.1-2").expect("valid");
            let name = BlockName::new(&pool, Block::new(id, stamp, len));
            prop_assert_eq!(BlockName::parse("u", &name.data("u")), Some((name.clone(), false)));
            prop_assert_eq!(BlockName::parse("u", &name.meta("u")), Some((name, true)));
        }

        #[test]
        fn any_name_is_taken(name in "\\PC{0,60}") {
            let _ = BlockName::parse("u", &name);
            let _ = BlockName::parse("u", &format!("u/blocks/{name}"));
            let _ = (taken_at(&name), is_node(&name));
        }
    }
}
