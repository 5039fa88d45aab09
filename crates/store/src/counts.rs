//! What the store has done since it was opened: replicas deleted on order, and the progress of the
//! block scanners.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use hayloft_io::locks;
use hayloft_wire::ids::ExtendedBlock;
use tokio::time::Instant;

use crate::types::StorageInfo;
use crate::volume::Volume;

/// Bytes scanned are kept by minute for an hour.
const HOUR: Duration = Duration::from_secs(3600);
const MINUTE: Duration = Duration::from_secs(60);

/// Counts of one store.
#[derive(Debug, Default)]
pub struct StoreCounts {
    removed: AtomicU64,
    /// When the last scan of all directories ended, milliseconds since 1970; 0 before the first.
    directories_compared_ms: AtomicU64,
    /// By number of the volume. Volumes that left keep theirs, so that sums never go down.
    scans: RwLock<BTreeMap<u16, Arc<ScanCounts>>>,
}

impl StoreCounts {
    /// A replica was deleted on a NameNode's order.
    pub fn count_removed(&self) {
        self.removed.fetch_add(1, Ordering::Relaxed);
    }

    /// Such replicas.
    #[must_use]
    pub fn removed(&self) -> u64 {
        self.removed.load(Ordering::Relaxed)
    }

    /// All directories were compared with the replica map.
    pub fn directories_compared(&self, at_ms: u64) {
        self.directories_compared_ms.store(at_ms, Ordering::Relaxed);
    }

    /// When that ended last, milliseconds since 1970; 0 before the first time.
    #[must_use]
    pub fn directories_compared_ms(&self) -> u64 {
        self.directories_compared_ms.load(Ordering::Relaxed)
    }

    /// Where the scanner of a volume counts.
    #[must_use]
    pub fn scans_of(&self, volume: &Volume) -> Arc<ScanCounts> {
        let mut all = locks::write(&self.scans);
        let counts = all.entry(volume.index).or_insert_with(|| {
            Arc::new(ScanCounts {
                root: volume.root.clone(),
                storage: volume.info.clone(),
                progress: Mutex::default(),
            })
        });
        Arc::clone(counts)
    }

    /// What the scanners have done, by volume.
    #[must_use]
    pub fn scans(&self) -> Vec<ScanReport> {
        let all = locks::read(&self.scans);
        all.values().map(|counts| counts.report()).collect()
    }
}

/// Counts of the scanner of one volume.
#[derive(Debug)]
pub struct ScanCounts {
    root: PathBuf,
    storage: StorageInfo,
    progress: Mutex<Progress>,
}

#[derive(Debug, Default)]
struct Progress {
    /// Bytes by the minute in which they were read, the latest last.
    minutes: VecDeque<(Instant, u64)>,
    // The rest is told as it is counted.
    blocks_in_period: u64,
    blocks: u64,
    rounds: u64,
    errors: u64,
    round_began_ms: u64,
    at_end: bool,
    last: Option<ExtendedBlock>,
}

/// What the block scanner of a volume has done.
#[derive(Clone, Debug)]
pub struct ScanReport {
    /// The volume's directory.
    pub path: PathBuf,
    /// The volume.
    pub storage: StorageInfo,
    /// Bytes read in the last hour.
    pub bytes_in_hour: u64,
    /// Replicas read in this round.
    pub blocks_in_period: u64,
    /// Replicas read since the start.
    pub blocks: u64,
    /// Rounds begun since the start.
    pub rounds: u64,
    /// Replicas that were damaged or could not be read.
    pub errors: u64,
    /// When this round began, milliseconds since 1970; 0 when none has.
    pub round_began_ms: u64,
    /// The round is over, and the next one not due yet.
    pub at_end: bool,
    /// The replica that was read last.
    pub last: Option<ExtendedBlock>,
}

impl ScanCounts {
    fn change(&self, change: impl FnOnce(&mut Progress)) {
        change(&mut locks::lock(&self.progress));
    }

    /// A round began, or goes on after a restart.
    pub fn began(&self, at_ms: u64) {
        self.change(|progress| {
            progress.rounds += 1;
            progress.blocks_in_period = 0;
            progress.round_began_ms = at_ms;
            progress.at_end = false;
        });
    }

    /// A round ended.
    pub fn ended(&self) {
        self.change(|progress| progress.at_end = true);
    }

    /// A replica was read to its end, or to its damage.
    pub fn scanned(&self, block: &ExtendedBlock, is_whole: bool) {
        self.change(|progress| {
            progress.blocks_in_period += 1;
            progress.blocks += 1;
            progress.errors += u64::from(!is_whole);
            progress.last = Some(block.clone());
        });
    }

    /// So many bytes of replicas were read.
    pub fn read(&self, bytes: u64) {
        let now = Instant::now();
        self.change(|progress| {
            progress.forget(now);
            match progress.minutes.back_mut() {
                Some((since, sum)) if now - *since < MINUTE => *sum += bytes,
                _ => progress.minutes.push_back((now, bytes)),
            }
        });
    }

    fn report(&self) -> ScanReport {
        let mut progress = locks::lock(&self.progress);
        progress.forget(Instant::now());
        ScanReport {
            path: self.root.clone(),
            storage: self.storage.clone(),
            bytes_in_hour: progress.minutes.iter().map(|(_, bytes)| bytes).sum(),
            blocks_in_period: progress.blocks_in_period,
            blocks: progress.blocks,
            rounds: progress.rounds,
            errors: progress.errors,
            round_began_ms: progress.round_began_ms,
            at_end: progress.at_end,
            last: progress.last.clone(),
        }
    }
}

impl Progress {
    /// Forgets what is older than an hour: at most 61 minutes are kept.
    fn forget(&mut self, now: Instant) {
        while let Some((since, _)) = self.minutes.front()
            && now - *since >= HOUR
        {
            self.minutes.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_hour_is_remembered() {
        let counts = ScanCounts {
            root: PathBuf::from("/d"),
            storage: StorageInfo {
                id: "DS-1".into(),
                storage_type: hayloft_wire::ids::StorageType::Disk,
            },
            progress: Mutex::default(),
        };
        counts.began(5);
        for _ in 0..90 {
            counts.read(10);
            tokio::time::advance(MINUTE).await;
        }
        let report = counts.report();
        assert_eq!((report.bytes_in_hour, report.rounds), (590, 1));
        assert!(locks::lock(&counts.progress).minutes.len() <= 61);
    }
}
