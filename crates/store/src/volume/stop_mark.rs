//! What the next start knows of the last stop: a small file in each volume.
//!
//! While a volume is used its mark is open and says up to when all that was written is durable. A
//! clean stop closes it. A start that finds it open looks at the replicas that are newer, since a
//! power cut may have damaged them. Apache's DataNode knows nothing of the mark, but writes VERSION
//! anew when it starts. A closed mark is void when VERSION is not the one that it names.
//!
//! A pool whose NameNode is down was not looked at. Before the mark of its volume moves on, the
//! pool gets an open mark of its own, which stays until its replicas were verified.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use hayloft_io::{IoClass, IoError, IoErrorKind, IoOp};
use tracing::info;

use super::Volume;
use crate::layout::dirs::{FILE_MODE, now_ms, pool_dirs, read_small};
use crate::layout::names::{CURRENT, VERSION};

/// Name of the file in the directory of a volume, or of a pool on it.
const FILE_NAME: &str = ".hayloft-stop";

/// Bytes of the file, at most.
const BYTES_MAX: usize = 256;

/// Bytes that wait this long, in milliseconds, are on the device: Linux has them wait for half a
/// minute, and 20 % of 256 GiB of memory take a slow disk a quarter of an hour.
const WRITTEN_BACK_MS: u64 = 30 * 60 * 1000;

/// Which replicas the last stop may have damaged. Times are milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// What was written before is durable.
    pub since_ms: u64,
    /// Our last stop was clean, and another node has used the volume since. How that one stopped
    /// is not known.
    pub of_other_node: bool,
    /// When this process looked: what changed later it has changed itself.
    pub read_ms: u64,
}

impl Doubt {
    fn of_ours(since_ms: u64) -> Self {
        Self {
            since_ms,
            of_other_node: false,
            read_ms: now_ms(),
        }
    }

    /// What is in doubt of a pool, when its volume and its own mark say this.
    #[must_use]
    pub fn of_both(of_volume: Option<Self>, of_pool: Option<Self>) -> Option<Self> {
        let (Some(volume), Some(pool)) = (of_volume, of_pool) else {
            return of_volume.or(of_pool);
        };
        // What the pool's mark is about, another node may have made worse since.
        Some(Self {
            since_ms: volume.since_ms.min(pool.since_ms),
            ..pool
        })
    }

    /// From when on replicas that changed at `changed_ms` are looked at. Another node may have
    /// written for months. The last stop was no earlier than the newest change, so it damaged
    /// nothing that was written long before that. What an earlier stop damaged, the other node has
    /// taken for whole, and the scanner finds it.
    ///
    /// A clock that was ahead has left times that are still to come, and a start moves files: these
    /// changes tell nothing of the last stop.
    #[must_use]
    pub fn starts_at(self, changed_ms: impl Iterator<Item = u64>) -> u64 {
        if !self.of_other_node {
            return self.since_ms;
        }
        let newest_ms = changed_ms.filter(|&at| at < self.read_ms).max();
        let newest_ms = newest_ms.unwrap_or(0);
        self.since_ms.max(newest_ms.saturating_sub(WRITTEN_BACK_MS))
    }
}

/// Which VERSION file a closed mark was written beside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionFile {
    inode: u64,
    /// Time of its last change, in nanoseconds since 1970.
    changed_ns: i128,
}

impl VersionFile {
    fn of(root: &Path) -> io::Result<Self> {
        let facts = fs::metadata(root.join(CURRENT).join(VERSION))?;
        Ok(Self {
            inode: facts.ino(),
            changed_ns: i128::from(facts.mtime()) * 1_000_000_000 + i128::from(facts.mtime_nsec()),
        })
    }
}

/// The contents of the file. Times are milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// In use, or not stopped cleanly: what was written before `since_ms` is durable.
    Open {
        /// When the last commit round began.
        since_ms: u64,
    },
    /// Stopped cleanly: everything is durable.
    Closed {
        /// When.
        at_ms: u64,
        /// VERSION then.
        version: VersionFile,
    },
}

impl Mark {
    fn path(dir: &Path) -> PathBuf {
        dir.join(FILE_NAME)
    }

    fn encode(self) -> String {
        match self {
            Self::Open { since_ms } => format!("open {since_ms}\n"),
            Self::Closed { at_ms, version } => {
                format!("closed {at_ms} {} {}\n", version.inode, version.changed_ns)
            }
        }
    }

    /// `None` for anything that [`encode`](Self::encode) did not make.
    fn parse(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.strip_suffix('\n')?.split(' ').collect();
        let mark = match words[..] {
            ["open", since] => Self::Open {
                since_ms: since.parse().ok()?,
            },
            ["closed", at, inode, changed] => Self::Closed {
                at_ms: at.parse().ok()?,
                version: VersionFile {
                    inode: inode.parse().ok()?,
                    changed_ns: changed.parse().ok()?,
                },
            },
            _ => return None,
        };
        (mark.encode() == text).then_some(mark)
    }

    /// Which replicas of a volume, or of a pool, have to be looked at; `None` when none has to:
    /// after a clean stop, or when no node of ours ever used the directory. A mark that cannot be
    /// read counts as one from the beginning of time. Blocking.
    #[must_use]
    pub fn doubt(dir: &Path) -> Option<Doubt> {
        let text = match read_small(&Self::path(dir), BYTES_MAX) {
            Ok(None) => return None,
            other => other.ok().flatten(),
        };
        let text = text.and_then(|bytes| String::from_utf8(bytes).ok());
        match text.as_deref().and_then(Self::parse) {
            None => Some(Doubt::of_ours(0)),
            Some(Self::Open { since_ms }) => Some(Doubt::of_ours(since_ms)),
            Some(Self::Closed { at_ms, version }) => {
                let same = VersionFile::of(dir).is_ok_and(|now| now == version);
                (!same).then(|| Doubt {
                    of_other_node: true,
                    ..Doubt::of_ours(at_ms)
                })
            }
        }
    }

    /// Writes the mark of a volume; it is durable afterwards.
    ///
    /// # Errors
    /// Of the disk.
    pub async fn write(self, volume: &Volume) -> Result<(), IoError> {
        self.write_in(volume, &volume.root).await
    }

    async fn write_in(self, volume: &Volume, dir: &Path) -> Result<(), IoError> {
        let meta = volume.meta(IoClass::ClientWrite);
        let bytes = self.encode().into_bytes();
        meta.replace(&Self::path(dir), bytes, FILE_MODE).await
    }

    /// Says that what was written before `since_ms` is durable and whole, unless that is not known:
    /// the mark stays as it is then.
    ///
    /// # Errors
    /// Of the disk.
    pub async fn stamp(volume: &Volume, since_ms: u64) -> Result<(), IoError> {
        match Self::may_move(volume).await? {
            true => Self::Open { since_ms }.write(volume).await,
            false => Ok(()),
        }
    }

    /// Whether the mark of a volume may say that all in it is durable and whole. Pools that are in
    /// doubt and not loaded have marks of their own then.
    async fn may_move(volume: &Volume) -> Result<bool, IoError> {
        if !volume.commits.may_stamp() || volume.is_failed() {
            return Ok(false);
        }
        for dir in volume.commits.unloaded() {
            match Self::set_aside(volume, &dir).await {
                Ok(()) => info!(pool = %dir.display(), "no NameNode had this block pool loaded: \
                    its replicas that the last stop may have damaged are looked at when one has"),
                Err(error) if error.kind() == IoErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
            volume.commits.loaded(&dir);
        }
        Ok(true)
    }

    /// Writes the mark of a pool, which may have one of an earlier start.
    async fn set_aside(volume: &Volume, dir: &Path) -> Result<(), IoError> {
        let meta = volume.meta(IoClass::ClientWrite);
        let earlier = meta
            .run(IoOp::Stat, dir, |dir| Ok(Self::doubt(dir)))
            .await?;
        match Doubt::of_both(volume.doubt, earlier) {
            Some(Doubt { since_ms, .. }) => Self::Open { since_ms }.write_in(volume, dir).await,
            None => Ok(()),
        }
    }

    /// Remembers what [`Doubt::starts_at`] found of another node's replicas: newer ones are ours
    /// from now on, and would move it. Not where the volume has several pools, each with its own.
    ///
    /// # Errors
    /// Of the disk.
    pub async fn narrow(volume: &Volume, since_ms: u64) -> Result<(), IoError> {
        let meta = volume.meta(IoClass::ClientWrite);
        let pools = meta.run(IoOp::List, &volume.root, |root| {
            pool_dirs(root).map_err(|e| IoError::from_std(IoOp::List, root, &e))
        });
        match pools.await?.len() {
            1 => Self::Open { since_ms }.write(volume).await,
            _ => Ok(()),
        }
    }

    /// Removes the mark in a directory of a volume, durably: nothing is known of the last stop
    /// then, or nothing of the pool is in doubt.
    ///
    /// # Errors
    /// Of the disk.
    pub async fn remove(volume: &Volume, dir: &Path) -> Result<(), IoError> {
        let meta = volume.meta(IoClass::ClientWrite);
        match meta.unlink(&Self::path(dir)).await {
            Err(e) if e.kind() != IoErrorKind::NotFound => return Err(e),
            _ => {}
        }
        meta.sync_dir(dir).await
    }

    /// Says that everything in the volume is durable and its replicas are whole, as
    /// [`stamp`](Self::stamp) does. Without VERSION it has none, as no NameNode has registered its
    /// node: the mark stays as it is.
    ///
    /// # Errors
    /// Of the disk.
    pub async fn close(volume: &Volume, at_ms: u64) -> Result<(), IoError> {
        if !Self::may_move(volume).await? {
            return Ok(());
        }
        let meta = volume.meta(IoClass::ClientWrite);
        let root = volume.root.clone();
        let read = meta.run(IoOp::Stat, &root, |root| {
            VersionFile::of(root).map_err(|e| IoError::from_std(IoOp::Stat, root, &e))
        });
        let version = match read.await {
            Err(error) if error.kind() == IoErrorKind::NotFound => return Ok(()),
            read => read?,
        };
        Self::Closed { at_ms, version }.write(volume).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("temporary directory");
        fs::create_dir(dir.path().join(CURRENT)).expect("creates");
        fs::write(dir.path().join(CURRENT).join(VERSION), "1").expect("writes");
        dir
    }

    #[test]
    fn a_mark_says_from_when_on_replicas_are_looked_at() {
        let dir = root();
        let since = || Mark::doubt(dir.path()).map(|doubt| (doubt.since_ms, doubt.of_other_node));
        let ours = |since_ms| Some((since_ms, false));
        let put = |text: &str| fs::write(Mark::path(dir.path()), text).expect("writes");
        assert_eq!(since(), None, "never used by this node");
        put(&Mark::Open { since_ms: 77 }.encode());
        assert_eq!(since(), ours(77));
        let version = VersionFile::of(dir.path()).expect("there");
        put(&Mark::Closed { at_ms: 88, version }.encode());
        assert_eq!(since(), None);
        // Apache's node writes it anew at each start.
        std::thread::sleep(std::time::Duration::from_millis(20));
        fs::write(dir.path().join(CURRENT).join(VERSION), "1").expect("writes");
        assert_eq!(since(), Some((88, true)), "another node was here");
        for damaged in [
            "",
            "open",
            "open 7",
            "open 07\n",
            "closed 1 2\n",
            "shut 7\n",
            // Of a later version, perhaps.
            "open 7 8\n",
        ] {
            put(damaged);
            assert_eq!(since(), ours(0), "{damaged:?}");
        }
        put(&"9".repeat(300));
        assert_eq!(since(), ours(0), "too long");
    }

    #[test]
    fn of_what_another_node_wrote_only_the_last_half_hour_is_in_doubt() {
        let month = 30 * 24 * 3600 * 1000;
        let (newest, read_ms) = (10 * month, 10 * month + 5);
        let starts_at = |since_ms, of_other_node, changed: &[u64]| {
            let doubt = Doubt {
                since_ms,
                of_other_node,
                read_ms,
            };
            doubt.starts_at(changed.iter().copied())
        };
        assert_eq!(starts_at(7, false, &[newest]), 7);
        assert_eq!(starts_at(7, true, &[9, newest]), newest - WRITTEN_BACK_MS);
        assert_eq!(starts_at(newest - 9, true, &[newest]), newest - 9);
        // Neither a file of the next year nor one that this start moved hides older ones.
        let later = [9, newest, read_ms, 2 * newest];
        assert_eq!(starts_at(7, true, &later), newest - WRITTEN_BACK_MS);
        assert_eq!(starts_at(7, true, &[2 * newest]), 7);
        assert_eq!(starts_at(7, true, &[]), 7, "no replica");
    }
}
