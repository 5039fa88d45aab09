//! Finalized replicas on directories, without a store: for snapshots, which are taken beside a node
//! or without one, and put back where none runs. Blocking.

use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use std::{fs, process};

use hayloft_io::{IoError, IoErrorKind, RecordLock, patiently, replace_file};
use hayloft_wire::ids::{Block, PoolId};

use crate::found_at_start::{Progress, walk};
use crate::layout::dirs::{FILE_MODE, make_dir, pool_dirs, read_small};
use crate::layout::names::{self, CURRENT, DFS_USED, IN_USE_LOCK, PoolPaths, REPLICAS, VERSION};
use crate::layout::version::VERSION_BYTES_MAX;
use crate::replica::file_pair::{Pair, move_pair, pin, sync_file};

pub use crate::layout::names::{data_name, meta_name, subdir};
pub use crate::layout::version::{PoolVersion, VolumeVersion};

/// A node renames the second file of a replica so long after the first, at most.
const MOVED_WITHIN: Duration = Duration::from_millis(100);
/// Pools of a volume that are looked at, at most: a NameNode has one.
const POOLS_MAX: usize = 1024;

/// A volume as its directories have it.
#[derive(Clone, Debug)]
pub struct VolumeOnDisk {
    /// The data directory.
    pub root: PathBuf,
    /// Whose it is.
    pub version: VolumeVersion,
    /// Its block pools, in order.
    pub pools: Vec<PoolVersion>,
}

/// A finalized replica as a directory has it.
#[derive(Clone, Debug)]
pub struct ReplicaOnDisk {
    /// Id, generation stamp of the meta file, length of the data file.
    pub block: Block,
    /// The replica is pinned to its node.
    pub pinned: bool,
    /// When its data file was last changed, in milliseconds since 1970.
    pub changed_ms: u64,
    /// Directory of its files.
    pub dir: PathBuf,
}

impl ReplicaOnDisk {
    /// Where the files of a block of a pool on a volume belong.
    #[must_use]
    pub fn home(root: &Path, pool: &PoolId, block: Block) -> PathBuf {
        PoolPaths::new(root, pool).finalized_dir(block.id)
    }

    /// The data file.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.dir.join(data_name(self.block.id))
    }

    /// The meta file.
    #[must_use]
    pub fn meta(&self) -> PathBuf {
        let block = self.block;
        self.dir.join(meta_name(block.id, block.generation_stamp))
    }

    /// Whether the meta file is there, and no data file.
    fn lacks_data(&self) -> bool {
        let is_file = |path| fs::symlink_metadata(path).is_ok_and(|meta| meta.is_file());
        is_file(self.meta()) && !is_file(self.data())
    }

    /// Whether the data file is there, and no meta file of any generation stamp beside it.
    ///
    /// # Errors
    /// Of reading the directory.
    pub fn lacks_meta(&self) -> io::Result<bool> {
        if !self.data().try_exists()? {
            return Ok(false);
        }
        for entry in patiently(|| fs::read_dir(&self.dir))? {
            let name = entry?.file_name().into_string().unwrap_or_default();
            let found = names::parse(&name);
            if matches!(found, Some(names::ReplicaFile::Meta(id, _)) if id == self.block.id) {
                return Ok(false);
            }
        }
        // It may have gone on its way meanwhile.
        self.data().try_exists()
    }
}

/// Looks at a directory; `None` when no DataNode has used it.
///
/// # Errors
/// `InvalidData` for a VERSION that cannot be used; of reading.
pub fn volume_on_disk(root: &Path) -> io::Result<Option<VolumeOnDisk>> {
    let invalid = |path: &Path, why: &dyn std::fmt::Display| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{}: {why}", path.display()),
        )
    };
    let current = root.join(CURRENT);
    let path = current.join(VERSION);
    let Some(bytes) = read_small(&path, VERSION_BYTES_MAX)? else {
        return Ok(None);
    };
    let version = VolumeVersion::parse(&bytes).map_err(|e| invalid(&path, &e))?;
    let mut pools = Vec::new();
    for dir in pool_dirs(root)? {
        let name = dir.file_name().and_then(|name| name.to_str());
        let Some(pool) = name.and_then(|name| PoolId::new(name).ok()) else {
            continue;
        };
        let path = PoolPaths::new(root, &pool).version();
        let Some(bytes) = read_small(&path, VERSION_BYTES_MAX)? else {
            continue;
        };
        let of_pool = PoolVersion::parse(&bytes).map_err(|e| invalid(&path, &e))?;
        if of_pool.pool != pool {
            return Err(invalid(&path, &format!("it is of {}", of_pool.pool)));
        }
        if pools.len() == POOLS_MAX {
            return Err(invalid(&current, &"too many block pools"));
        }
        pools.push(of_pool);
    }
    pools.sort_by(|a: &PoolVersion, b| a.pool.cmp(&b.pool));
    Ok(Some(VolumeOnDisk {
        root: root.to_owned(),
        version,
        pools,
    }))
}

/// The finalized replicas of a pool on a volume.
#[derive(Debug, Default)]
pub struct FinalizedOnDisk {
    /// Those with both files, by id.
    pub whole: Vec<ReplicaOnDisk>,
    /// Data files without a meta file; their generation stamp is 0.
    pub without_meta: Vec<ReplicaOnDisk>,
    /// Meta files without a data file; their length is 0.
    pub without_data: Vec<ReplicaOnDisk>,
}

/// Looks for the finalized replicas of a pool on a volume. Those that a running node moves
/// meanwhile may be missing. Where a block has two, the one with the higher generation stamp
/// counts. Blocking.
///
/// # Errors
/// A directory cannot be read.
pub fn finalized_on(root: &Path, pool: &PoolId) -> io::Result<FinalizedOnDisk> {
    let paths = PoolPaths::new(root, pool);
    let dir = paths.finalized();
    if !dir.try_exists()? {
        return Ok(FinalizedOnDisk::default());
    }
    let (found, orphans) = walk(&dir, 1, &Progress::default())?;
    let mut whole: Vec<ReplicaOnDisk> = found
        .into_iter()
        .map(|found| ReplicaOnDisk {
            dir: found
                .dir
                .unwrap_or_else(|| paths.finalized_dir(found.block.id)),
            pinned: found.pinned,
            changed_ms: found.changed_ms,
            block: found.block,
        })
        .collect();
    whole.sort_by_key(|replica| {
        let block = replica.block;
        (block.id, std::cmp::Reverse(block.generation_stamp))
    });
    whole.dedup_by_key(|replica| replica.block.id);
    let alone = |block, dir| ReplicaOnDisk {
        block,
        pinned: false,
        changed_ms: 0,
        dir,
    };
    let mut without_meta = Vec::new();
    for (id, dir, len) in orphans.data {
        let alone = alone(Block::new(id, 0, len), dir);
        if alone.lacks_meta()? {
            without_meta.push(alone);
        }
    }
    let metas = orphans.meta.into_iter();
    let mut without_data: Vec<_> = metas.map(|(block, dir)| alone(block, dir)).collect();
    without_data.retain(ReplicaOnDisk::lacks_data);
    if !without_data.is_empty() {
        // A node may be moving them, one file after the other.
        std::thread::sleep(MOVED_WITHIN);
        without_data.retain(ReplicaOnDisk::lacks_data);
    }
    Ok(FinalizedOnDisk {
        whole,
        without_meta,
        without_data,
    })
}

/// A volume on which no node starts while this is held.
#[derive(Debug)]
pub struct HeldVolume {
    root: PathBuf,
    _lock: RecordLock,
}

impl HeldVolume {
    /// Makes the directory if it is not there, so that no other user reads its blocks before a node
    /// starts, and takes the lock of its volume; `None` when a node or another command has it.
    ///
    /// # Errors
    /// The directory cannot be made, or the lock's file not be written.
    pub fn hold(root: &Path) -> Result<Option<Self>, IoError> {
        let failed = |e| IoError::from_std(hayloft_io::IoOp::CreateDir, root, &e);
        if let Some(above) = root.parent() {
            make_dir(above).map_err(failed)?;
        }
        let mut private = fs::DirBuilder::new();
        private.recursive(true).mode(0o700);
        private.create(root.join(CURRENT)).map_err(failed)?;
        let note = format!("{}@hayloft-snapshot", process::id());
        match RecordLock::acquire(&root.join(IN_USE_LOCK), note.as_bytes()) {
            Err(e) if e.kind() == IoErrorKind::Locked => Ok(None),
            lock => Ok(Some(Self {
                root: root.to_owned(),
                _lock: lock?,
            })),
        }
    }

    /// The data directory.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Writes the VERSION of a volume that has none.
    ///
    /// # Errors
    /// Of writing.
    pub fn format(&self, version: &VolumeVersion) -> io::Result<()> {
        let path = self.root.join(CURRENT).join(VERSION);
        write_version(&path, &version.encode(SystemTime::now()))
    }

    /// Makes a pool ready to take replicas: its directories, and its VERSION if there is none. What
    /// a clean stop saved of its replicas goes, because it does not know those that come.
    ///
    /// # Errors
    /// Of writing.
    pub fn prepare_pool(&self, version: &PoolVersion) -> io::Result<()> {
        let paths = PoolPaths::new(&self.root, &version.pool);
        for dir in [paths.finalized(), paths.rbw(), paths.tmp()] {
            make_dir(&dir)?;
        }
        for saved in [REPLICAS, DFS_USED] {
            match fs::remove_file(paths.current().join(saved)) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
        }
        if paths.version().try_exists()? {
            return Ok(());
        }
        write_version(&paths.version(), &version.encode(SystemTime::now()))
    }

    /// An empty directory for the files of a replica on their way in; a start of a node removes it.
    ///
    /// # Errors
    /// Of making it.
    pub fn scratch(&self, pool: &PoolId, block: Block) -> io::Result<PathBuf> {
        let tmp = PoolPaths::new(&self.root, pool).tmp();
        let dir = tmp.join(format!("restore-{}", block.id));
        match fs::remove_dir_all(&dir) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => make_dir(&dir)?,
        }
        Ok(dir)
    }

    /// Makes the two files in `scratch` a finalized replica, which outlives power loss when this
    /// returns. Replaces none.
    ///
    /// # Errors
    /// `AlreadyExists`; of writing.
    pub fn settle(
        &self,
        pool: &PoolId,
        block: Block,
        scratch: &Path,
        pinned: bool,
    ) -> io::Result<()> {
        let from = Pair {
            dir: scratch.to_owned(),
            id: block.id,
            generation_stamp: block.generation_stamp,
        };
        sync_file(&from.meta())?;
        sync_file(&from.data())?;
        if pinned {
            pin(&from.data())?;
        }
        let paths = PoolPaths::new(&self.root, pool);
        move_pair(&from, &from.at(paths.finalized_dir(block.id)), true)?;
        fs::remove_dir(scratch)
    }
}

fn write_version(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace_file(path, bytes, FILE_MODE).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn what_is_put_back_is_found_again() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let root = dir.path().join("data");
        let volume = VolumeVersion {
            storage_id: "DS-1".to_owned(),
            cluster_id: "CID-1".to_owned(),
            ctime: 0,
            datanode_uuid: "u".to_owned(),
            stubs: false,
        };
        let pool = PoolVersion {
            namespace_id: 1,
            ctime: 2,
            pool: PoolId::new("BP-1-h-1").expect("valid"),
        };
        let held = HeldVolume::hold(&root).expect("no error").expect("free");
        let mode = fs::metadata(&root).expect("made").permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "other users read its blocks");
        assert!(volume_on_disk(&root).expect("no error").is_none());
        held.format(&volume).expect("writes");
        held.prepare_pool(&pool).expect("writes");
        let block = Block::new(0x1f_1f00, 1001, 3);
        let put = || {
            let scratch = held.scratch(&pool.pool, block).expect("makes");
            fs::write(scratch.join(data_name(block.id)), "abc").expect("writes");
            fs::write(scratch.join(meta_name(block.id, 1001)), "m").expect("writes");
            held.settle(&pool.pool, block, &scratch, true)
        };
        put().expect("settles");
        let refused = put().expect_err("is there");
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        let found = volume_on_disk(&root).expect("reads").expect("used");
        assert_eq!(found.version, volume);
        assert_eq!(found.pools, std::slice::from_ref(&pool));
        let now = || finalized_on(&root, &pool.pool).expect("reads");
        let found = now();
        let [replica] = &found.whole[..] else {
            panic!("{found:?}")
        };
        assert!(found.without_meta.is_empty() && found.without_data.is_empty());
        assert_eq!((replica.block, replica.pinned), (block, true));
        assert_eq!(fs::read(replica.data()).expect("there"), b"abc");
        assert_eq!(fs::read(replica.meta()).expect("there"), b"m");
        fs::remove_file(replica.meta()).expect("removes");
        let counts =
            |of: &FinalizedOnDisk| (of.whole.len(), of.without_meta.len(), of.without_data.len());
        assert_eq!(counts(&now()), (0, 1, 0));
        fs::write(replica.meta(), "m").expect("writes");
        fs::remove_file(replica.data()).expect("removes");
        assert_eq!(counts(&now()), (0, 0, 1));
    }
}
