//! What there is of parity, for the operator.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hayloft_io::{IoClass, IoError, locks};
use hayloft_parity::{GroupRecord, GroupTotals, MemberRecord, PARITY_DIR};
use hayloft_store::inside::{DIR_MODE, FILE_MODE};
use hayloft_store::now_ms;
use serde::{Deserialize, Serialize};
use tracing::debug;

use super::Parity;
use super::rewrite_damaged::Damaged;
use super::volumes::{UnitPlace, answer};

/// Name of the file beside the groups that a running node writes.
const STATUS_FILE: &str = "status.json";
/// It is written anew after so long, milliseconds.
const ANEW_MS: u64 = 60_000;
/// While units are rebuilt it is written anew after so long, milliseconds.
const PROGRESS_MS: u64 = 2000;
/// A finalized replica that has no parity for so long after the node saw it first is overdue:
/// `hayloft parity status` ends with 1, and alerts are sent. The page docs/operate/parity.md
/// names it.
pub const OVERDUE: Duration = Duration::from_secs(300);

/// What there is of parity in a process, in bytes of replicas where nothing else is said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParityStatus {
    /// K+M.
    pub shape: String,
    /// When it was so, milliseconds since 1970.
    pub at_ms: u64,
    /// In groups that have all of their units.
    pub protected_bytes: u64,
    /// In no group yet.
    pub unprotected_bytes: u64,
    /// In groups that lack a unit and can decode it.
    pub degraded_bytes: u64,
    /// Gone for good: no disk of the node has them, nor can they be decoded.
    pub lost_bytes: u64,
    /// Of `unprotected_bytes`, in no group for longer than that should take.
    #[serde(default)]
    pub overdue_bytes: u64,
    /// Of replicas that are damaged: those that no group can mend, and those that wait for it.
    #[serde(default)]
    pub damaged_bytes: u64,
    /// Of units that are still to be rebuilt.
    pub rebuild_remaining_bytes: u64,
    /// Kept for groups whose replica was deleted or changed.
    pub kept_bytes: u64,
    /// Of parity files.
    pub parity_bytes: u64,
    /// Of new replicas in memory, until they are encoded.
    #[serde(default)]
    pub memory_bytes: u64,
    /// Encoded since the node started.
    #[serde(default)]
    pub encoded_bytes: u64,
    /// Encoded from memory since the node started: no disk had to be read for them.
    #[serde(default)]
    pub encoded_from_memory_bytes: u64,
    /// Number of groups.
    pub groups: u64,
    /// Groups that lack a unit.
    #[serde(default)]
    pub lacking_groups: u64,
    /// Of what was lost since all was there last, so much is rebuilt.
    #[serde(default)]
    pub rebuilt_bytes: u64,
    /// How long the rest of a rebuild takes at the rate so far, seconds; `None`: none runs, or its
    /// rate is not known yet.
    #[serde(default)]
    pub rebuild_seconds_left: Option<u64>,
    /// By data directory, also those that are gone.
    #[serde(default)]
    pub volumes: Vec<VolumeParity>,
    /// Groups that lack a unit, some of very many.
    #[serde(default)]
    pub groups_that_lack_units: Vec<LackingParityGroup>,
    /// When the last scrub that was asked for ended, milliseconds since 1970; 0: none.
    pub scrubbed_at_ms: u64,
    /// When the last rebuild that was asked for ended, milliseconds since 1970; 0: none.
    pub rebuilt_at_ms: u64,
    /// When parity of all groups was scanned last by this process, milliseconds since 1970; 0:
    /// not yet.
    #[serde(default)]
    pub scanned_at_ms: u64,
}

/// What there is of parity on one volume, in bytes. Replicas of a dead disk count where they were
/// until they are rebuilt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeParity {
    /// Its data directory.
    pub directory: String,
    /// The node uses it.
    pub in_use: bool,
    /// Its node does not run: its units are read for the groups of others.
    #[serde(default)]
    pub unattended: bool,
    /// Why it takes no files of groups for now.
    #[serde(default)]
    pub refuses: Option<String>,
    /// Replicas in groups that have all of their units.
    pub protected_bytes: u64,
    /// Replicas in no group yet.
    pub unprotected_bytes: u64,
    /// Replicas in groups that lack a unit and can decode it.
    pub degraded_bytes: u64,
    /// Replicas that are gone for good.
    pub lost_bytes: u64,
    /// Of `unprotected_bytes`, in no group for longer than that should take.
    #[serde(default)]
    pub overdue_bytes: u64,
    /// Damaged replicas that no group can mend, or that wait for it.
    #[serde(default)]
    pub damaged_bytes: u64,
    /// Units that were here and are still to be rebuilt.
    pub rebuild_remaining_bytes: u64,
    /// Parity files.
    pub parity_bytes: u64,
}

/// A group that lacks units.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LackingParityGroup {
    /// Its name, as its files have it.
    pub group: String,
    /// Units that it lacks.
    pub lacks: usize,
    /// Replicas of it that other units can decode or that are there, bytes.
    pub degraded_bytes: u64,
    /// Replicas of it that are gone for good, bytes.
    pub lost_bytes: u64,
    /// Units that are still to be rebuilt, bytes.
    pub rebuild_remaining_bytes: u64,
}

/// How far a rebuild is.
#[derive(Clone, Copy, Debug, Default)]
pub struct RebuildProgress {
    /// When it began; `None`: there is nothing to rebuild.
    began: Option<Instant>,
    /// Bytes that were to be rebuilt then, and that came to it.
    total: u64,
    remaining: u64,
}

impl RebuildProgress {
    /// So much is to be rebuilt now.
    fn see(&mut self, remaining: u64) {
        if remaining == 0 {
            *self = Self::default();
            return;
        }
        if self.began.is_none() {
            self.began = Some(Instant::now());
        }
        self.total += remaining.saturating_sub(self.remaining);
        self.remaining = remaining;
    }

    fn done(&self) -> u64 {
        self.total.saturating_sub(self.remaining)
    }

    fn seconds_left(&self) -> Option<u64> {
        let elapsed = self.began?.elapsed().as_millis();
        let left = elapsed * u128::from(self.remaining) / u128::from(self.done()).max(1) / 1000;
        u64::try_from(left).ok().filter(|_| self.done() > 0)
    }
}

impl ParityStatus {
    /// Bytes of the file that it is in, at most.
    pub const BYTES_MAX: u64 = 1 << 20;

    /// Where the node that uses the volume at `root` says what there is.
    #[must_use]
    pub fn file(root: &Path) -> PathBuf {
        root.join(PARITY_DIR).join(STATUS_FILE)
    }

    /// What such a file says.
    ///
    /// # Errors
    /// When it is none of a node.
    pub fn parse(bytes: &[u8]) -> std::io::Result<Self> {
        serde_json::from_slice(bytes).map_err(Into::into)
    }
}

/// Finalized replicas without parity, in bytes by storage: all, and those that are overdue.
#[derive(Clone, Debug, Default)]
pub struct UnprotectedCount {
    at: Option<Instant>,
    bytes: HashMap<Arc<str>, (u64, u64)>,
}

impl UnprotectedCount {
    /// None so far.
    pub fn new(at: Instant) -> Self {
        Self {
            at: Some(at),
            bytes: HashMap::new(),
        }
    }

    /// One more replica.
    pub fn add(&mut self, storage: &Arc<str>, len: u64, overdue: bool) {
        let bytes = self.bytes.entry(Arc::clone(storage)).or_default();
        bytes.0 = bytes.0.saturating_add(len);
        if overdue {
            bytes.1 = bytes.1.saturating_add(len);
        }
    }
}

impl Parity {
    /// Replicas without parity, counted anew unless that was done a moment ago.
    fn count_unprotected(&self) -> UnprotectedCount {
        let moment = self.config.interval.min(Duration::from_secs(1));
        let last = locks::lock(&self.unprotected).at;
        if self.is_ready() && last.is_none_or(|at| at.elapsed() >= moment) {
            drop(self.sweep(&self.places()));
        }
        locks::lock(&self.unprotected).clone()
    }

    /// What there is now.
    #[must_use]
    pub fn status(&self) -> ParityStatus {
        let mending = self.mending();
        let damaged = self.damaged_bytes(&mending);
        let totals = self.true_totals(&mending);
        let done = {
            let published = locks::lock(&self.published);
            (published.scrubbed_at_ms, published.rebuilt_at_ms)
        };
        let progress = {
            let mut progress = locks::lock(&self.progress);
            progress.see(totals.all.to_rebuild);
            *progress
        };
        let volumes = self.volumes_parity(&totals, &damaged);
        let encoded = *locks::lock(&self.encoded);
        let lacking = totals.some_lacking.iter().map(|group| LackingParityGroup {
            group: group.id.to_string(),
            lacks: group.lacks,
            degraded_bytes: group.bytes.degraded,
            lost_bytes: group.bytes.lost,
            rebuild_remaining_bytes: group.bytes.to_rebuild,
        });
        ParityStatus {
            shape: self.config.shape.to_string(),
            at_ms: now_ms(),
            protected_bytes: totals.all.protected,
            unprotected_bytes: volumes.iter().map(|v| v.unprotected_bytes).sum(),
            overdue_bytes: volumes.iter().map(|v| v.overdue_bytes).sum(),
            damaged_bytes: volumes.iter().map(|v| v.damaged_bytes).sum(),
            degraded_bytes: totals.all.degraded,
            lost_bytes: totals.all.lost,
            rebuild_remaining_bytes: totals.all.to_rebuild,
            kept_bytes: totals.kept,
            parity_bytes: totals.all.parity,
            memory_bytes: self.recent.bytes(),
            encoded_bytes: encoded.0,
            encoded_from_memory_bytes: encoded.1,
            groups: totals.groups,
            lacking_groups: totals.lacking,
            rebuilt_bytes: progress.done(),
            rebuild_seconds_left: progress.seconds_left(),
            groups_that_lack_units: lacking.collect(),
            volumes,
            scrubbed_at_ms: done.0,
            rebuilt_at_ms: done.1,
            scanned_at_ms: locks::lock(&self.scan).ended_at_ms,
        }
    }

    /// Bytes of groups. What NameNodes do not expect from the stores that run is left out, and what
    /// is there after all is not lost.
    fn true_totals(&self, mending: &HashSet<Damaged>) -> GroupTotals {
        let mut ours: HashMap<Arc<str>, bool> = HashMap::new();
        let damaged = locks::lock(&self.damaged).clone();
        let mut counts = |record: &GroupRecord, member: &MemberRecord| {
            let (storage, root) = (&member.storage, &member.root);
            *ours
                .entry(Arc::clone(storage))
                .or_insert_with(|| self.is_ours(storage, root))
                && !damaged.has(&record.pool, member.block_id, storage)
                && (mending.is_empty()
                    || !mending.contains(&(
                        Arc::clone(storage),
                        record.pool.clone(),
                        member.block_id,
                    )))
        };
        self.table().totals(
            |record, member| counts(record, member),
            |record, member| self.is_missing(record, member),
        )
    }

    /// A row for each volume that is in use, and for each that had units.
    fn volumes_parity(
        &self,
        totals: &GroupTotals,
        damaged: &HashMap<Arc<str>, u64>,
    ) -> Vec<VolumeParity> {
        let unprotected = self.count_unprotected().bytes;
        let mut rows: BTreeMap<String, VolumeParity> = BTreeMap::new();
        for place in self.places() {
            let storage = &place.volume.info.id;
            let directory = place.volume.root.display().to_string();
            let row = rows.entry(directory).or_default();
            row.in_use = true;
            row.refuses = self.refuses(storage);
            let bytes = unprotected.get(storage).copied().unwrap_or_default();
            (row.unprotected_bytes, row.overdue_bytes) = bytes;
            row.damaged_bytes = damaged.get(storage).copied().unwrap_or(0);
        }
        for dir in self.all_unattended() {
            let row = rows.entry(dir.root.display().to_string()).or_default();
            row.unattended = !row.in_use;
        }
        for (root, bytes) in totals.storages.values() {
            let row = rows.entry(root.to_string()).or_default();
            row.protected_bytes += bytes.protected;
            row.degraded_bytes += bytes.degraded;
            row.lost_bytes += bytes.lost;
            row.rebuild_remaining_bytes += bytes.to_rebuild;
            row.parity_bytes += bytes.parity;
        }
        let named = rows
            .into_iter()
            .map(|(directory, row)| VolumeParity { directory, ..row });
        named.collect()
    }
}

impl ParityStatus {
    /// Whether nothing is to be done about it: nothing is degraded, damaged or lost, and nothing is
    /// unprotected for longer than it should be.
    #[must_use]
    pub fn is_well(&self) -> bool {
        let bad = [
            self.degraded_bytes,
            self.damaged_bytes,
            self.lost_bytes,
            self.overdue_bytes,
        ];
        bad.iter().all(|bytes| *bytes == 0)
    }
}

/// Leaves the status on a volume, for `hayloft parity status`, when it has changed or is old.
pub async fn publish(parity: &Parity) {
    let now = parity.status();
    let before = locks::lock(&parity.published).clone();
    let same = ParityStatus {
        at_ms: before.at_ms,
        ..now.clone()
    };
    if same != before || now.at_ms.saturating_sub(before.at_ms) > ANEW_MS {
        publish_anyway(parity).await;
    }
}

/// The same while units are rebuilt, now and then.
pub async fn publish_progress(parity: &Parity) {
    let before = locks::lock(&parity.published).at_ms;
    if now_ms().saturating_sub(before) >= PROGRESS_MS {
        publish_anyway(parity).await;
    }
}

/// Writes the status to the first volume that takes it: one may be full.
pub async fn publish_anyway(parity: &Parity) {
    let now = parity.status();
    let Ok(contents) = serde_json::to_vec_pretty(&now) else {
        return;
    };
    let mut places = parity.places();
    places.retain(|place| parity.answers(&place.volume));
    places.sort_by_cached_key(|place| !parity.takes_files(&place.volume));
    for place in places {
        match write_status(&place, contents.clone()).await {
            Ok(()) => {
                *locks::lock(&parity.published) = now;
                return;
            }
            Err(error) => {
                let volume = place.volume.root.display();
                debug!(%volume, %error, "the status of parity cannot be written there");
                parity.refused(&place, "writing the status of parity", error);
            }
        }
    }
}

async fn write_status(place: &UnitPlace, contents: Vec<u8>) -> Result<(), IoError> {
    let dir = place.volume.root.join(PARITY_DIR);
    let meta = place.volume.meta(IoClass::Balancer).that_syncs(true);
    let written = async {
        meta.create_dir_all(&dir, DIR_MODE).await?;
        meta.replace(&dir.join(STATUS_FILE), contents, FILE_MODE)
            .await
    };
    answer(place, written).await
}
