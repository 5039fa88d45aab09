//! Parity groups at work: what is encoded, kept, decoded and rebuilt on the volumes of a process.
//!
//! | module | what it is |
//! |---|---|
//! | `volumes` | the volumes of all stores, and the disks that they lie on |
//! | `read_units` | where units are read: on volumes, or in directories that no store uses |
//! | `unit_files` | which file of a group, or which replica, a unit is |
//! | `rounds` | the background task |
//! | `read_members` | members of a new group, and how they are read |
//! | `bytes_until_encoded` | bytes of new replicas, in memory until they are encoded |
//! | `encode` | one group: read, encode, commit |
//! | `record_copies` | copies of records |
//! | `dissolve` | groups that go |
//! | `replica_changes` | hooks: what a change of a replica means |
//! | `decode` | ranges of a unit from the others |
//! | `decoded_file` | a decoded unit as a file that readers can use |
//! | `degraded` | replicas of a failed disk: reported, served, rebuilt |
//! | `rewrite_damaged` | damaged replicas, before they are reported |
//! | `mend_for_reader` | what a damaged replica should have, for its readers |
//! | `rebuild` | lost units, on other disks |
//! | `slow_scan` | a slow look at what no other task reads |
//! | `scrub_on_request` | a look at everything that groups have on disks |
//! | `unreadable_units` | units that a disk did not give |
//! | `status` | numbers for the operator |
//! | `operator_requests` | what operators ask of a running node |
//! | `list_and_clean` | files on a volume, and those that no record names |
//! | `found_at_start` | what lies on the volumes when they are put into use |
//! | `volumes_left_out` | volumes without an answer, and until when they are left out |
//! | `refused_writes` | volumes that refuse files of groups |
//! | `unattended` | directories of nodes that do not run here, and units there |
//! | `beyond_mending` | replicas that no group can mend |
//! | `kept_of_deleted` | what is kept of deleted replicas makes room |
//! | `answers_to_store` | what the store asks of it |
//!
//! One [`Parity`] serves all stores of a process. It never holds its table across I/O.

mod answers_to_store;
mod beyond_mending;
mod bytes_until_encoded;
mod decode;
mod decoded_file;
mod degraded;
mod dissolve;
mod encode;
mod found_at_start;
mod kept_of_deleted;
mod list_and_clean;
mod mend_for_reader;
mod operator_requests;
mod read_members;
mod read_units;
mod rebuild;
mod record_copies;
mod refused_writes;
mod replica_changes;
mod rewrite_damaged;
mod rounds;
mod scrub_on_request;
mod slow_scan;
mod status;
#[cfg(test)]
mod tests;
mod unattended;
mod unit_files;
mod unreadable_units;
mod volumes;
mod volumes_left_out;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, RwLock, Weak};
use std::time::{Duration, Instant};

use hayloft_io::IoClass;
use hayloft_io::locks;
use hayloft_parity::{GroupCode, GroupTable, ParityDisks, ParityShape};
use hayloft_store::inside::StoreState;
use hayloft_store::{ScanConfig, StoreError};
use hayloft_wire::ids::PoolId;
use tokio::sync::Notify;

pub use answers_to_store::ParityProtection;
pub use operator_requests::ParityRequest;
#[cfg(test)]
pub use operator_requests::answer_status;
#[cfg(test)]
pub use replica_changes::{before_change, recent_key};
#[cfg(test)]
pub use rewrite_damaged::heal;
pub use status::{LackingParityGroup, ParityStatus, VolumeParity};

/// The class of encoding: no client waits for it.
const ENCODING: IoClass = IoClass::Balancer;
/// The class of what restores redundancy.
const REBUILDING: IoClass = IoClass::Replication;

/// Bytes of each member that are encoded at a time: a multiple of the pieces of parity.
const STRIDE: usize = 1 << 20;

/// Memory that groups which are encoded at once take together, bytes, unless one takes more.
const ENCODING_BUFFERS: usize = 32 << 20;

/// How replicas are protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParityConfig {
    /// K+M.
    pub shape: ParityShape,
    /// What counts as a disk.
    pub disks: ParityDisks,
    /// Time between rounds without news; zero: there are none.
    pub interval: Duration,
    /// So long a replica waits for partners of its length on other disks. Then it takes any.
    pub patience: Duration,
    /// While clients write, a new replica waits for so long: disks that have enough to do are left
    /// to them. It does not when half of `memory` is used.
    pub hold: Duration,
    /// Groups that are encoded at once, at least one. Each writes to disks of its own, and has K+M
    /// MiB of memory.
    pub groups_at_once: usize,
    /// A round encodes new groups for so long. Then it looks whether there is something to rebuild.
    pub turn: Duration,
    /// Bytes of data that may be kept for groups whose replica is gone, together.
    pub kept_max: u64,
    /// Bytes of new replicas that stay in memory until they are encoded, where the page cache has
    /// them not.
    pub memory: u64,
    /// How often and how fast files are read that no replica has.
    pub scan: ScanConfig,
    /// A volume that gives no answer for so long is left out for a while.
    pub answer: Duration,
    /// So long rounds wait for stores whose NameNode does not answer.
    pub others_within: Duration,
    /// A replica that has no parity for so long is overdue.
    pub overdue: Duration,
    /// So long data of deleted replicas is kept for groups at most, where there is room.
    pub kept_for: Duration,
}

impl ParityConfig {
    /// The usual of a shape.
    #[must_use]
    pub fn new(shape: ParityShape) -> Self {
        Self {
            shape,
            disks: ParityDisks::default(),
            interval: Duration::from_secs(5),
            patience: Duration::from_secs(120),
            hold: Duration::from_secs(30),
            groups_at_once: (ENCODING_BUFFERS / (shape.units() * STRIDE)).clamp(1, 4),
            turn: Duration::from_secs(30),
            kept_max: 16 << 30,
            memory: 0,
            scan: ScanConfig {
                period: Duration::ZERO,
                bytes_per_second: 0,
            },
            answer: Duration::from_secs(60),
            others_within: Duration::from_secs(60),
            overdue: status::OVERDUE,
            kept_for: Duration::from_secs(3600),
        }
    }
}

/// A replica that waits for a group: store, pool, block, generation stamp. One that grew is
/// another.
type Waiting = (usize, PoolId, i64, u64);

/// The parity groups of a process.
#[derive(Debug)]
pub struct Parity {
    /// What it was told.
    pub config: ParityConfig,
    /// Stores that there will be.
    expected: usize,
    code: Arc<GroupCode>,
    table: Mutex<GroupTable>,
    stores: RwLock<Vec<Weak<StoreState>>>,
    /// There is something to do.
    wake: Notify,
    /// Held by a round: the tasks of several stores take turns.
    round: tokio::sync::Mutex<()>,
    /// Held while records and files of groups on disks change, but for new groups.
    pub(crate) recording: tokio::sync::Mutex<()>,
    /// Held while groups go to make room.
    yielding: tokio::sync::Mutex<()>,
    /// Held while a replica is rebuilt: one that is wanted now waits for one at most.
    rebuilding: tokio::sync::Mutex<()>,
    /// Damaged replicas that are being mended.
    healing: rewrite_damaged::Healing,
    /// A permit for each buffer of ranges that are decoded.
    decoding: tokio::sync::Semaphore,
    /// Units that are looked at because a disk did not give them.
    unreadable: Arc<tokio::sync::Semaphore>,
    /// New replicas that are in memory.
    pub(crate) recent: bytes_until_encoded::RecentReplicas,
    /// When a client wrote last.
    wrote: Mutex<Option<Instant>>,
    /// Bytes of members encoded since the process started: all, and those from memory.
    encoded: Mutex<(u64, u64)>,
    /// How replicas without a group wait.
    waiting: Mutex<HashMap<Waiting, rounds::Wait>>,
    /// Finalized replicas without parity, when they were counted last.
    unprotected: Mutex<status::UnprotectedCount>,
    /// Damaged replicas that no group can mend.
    damaged: Mutex<beyond_mending::DamagedReplicas>,
    /// Volumes that take no files of groups for a while.
    troubles: Arc<volumes_left_out::Troubles>,
    /// Directories of nodes that do not run here.
    unattended: RwLock<unattended::UnattendedDirs>,
    /// Since when groups have kept data of deleted replicas.
    kept_since: Mutex<kept_of_deleted::KeptSince>,
    /// Storages whose directory of groups could not be listed.
    unlisted: Mutex<HashSet<Arc<str>>>,
    /// How far a rebuild is.
    progress: Mutex<status::RebuildProgress>,
    /// What lies on the volumes of the stores that have come, until all have.
    lists: Mutex<found_at_start::Lists>,
    /// All stores have come once, or those that have not were waited for.
    settled: AtomicBool,
    /// When the groups of a pool were known first.
    first_known: OnceLock<Instant>,
    /// A store ended before its groups were known.
    incomplete: AtomicBool,
    /// The background task runs.
    running: Mutex<bool>,
    /// The next round is wrong.
    #[cfg(test)]
    panics: std::sync::atomic::AtomicBool,
    /// When files without a record are looked for next; `None`: they were.
    clean_at: Mutex<Option<Instant>>,
    /// Requests that were carried out and whose files cannot be removed.
    stuck_requests: Mutex<HashMap<std::path::PathBuf, std::time::SystemTime>>,
    /// How far the scan is.
    scan: Mutex<slow_scan::GroupScan>,
    /// What was left for operators last.
    published: Mutex<ParityStatus>,
}

/// All bytes of a unit, decoded from the others.
#[cfg(test)]
pub async fn decode_for_test(parity: &Arc<Parity>, unit: hayloft_parity::UnitRef) -> Vec<u8> {
    let reader = decode::UnitReader::open(parity, unit, IoClass::ClientRead).await;
    let reader = reader.expect("opens");
    let len = reader.sums().len();
    let mut bytes = vec![0; usize::try_from(len).expect("small")];
    let read = reader.read(0..len, &mut bytes).await.expect("decodes");
    assert_eq!(read, bytes.len());
    bytes
}

/// Whether a store has its pools, and their groups are known.
fn knows(store: &StoreState) -> bool {
    let pools = store.pools();
    let known = pools
        .iter()
        .all(|p| p.protection_known.load(Ordering::Acquire));
    known && !pools.is_empty()
}

impl Parity {
    /// Without groups; `expected` stores will join.
    #[must_use]
    pub fn new(config: ParityConfig, expected: usize) -> Self {
        Self {
            config,
            expected,
            code: Arc::new(GroupCode::new(config.shape)),
            table: Mutex::default(),
            stores: RwLock::default(),
            wake: Notify::new(),
            round: tokio::sync::Mutex::default(),
            recording: tokio::sync::Mutex::default(),
            yielding: tokio::sync::Mutex::default(),
            rebuilding: tokio::sync::Mutex::default(),
            healing: rewrite_damaged::Healing::default(),
            decoding: tokio::sync::Semaphore::new(decode::BUFFERS_MAX.into()),
            unreadable: Arc::new(tokio::sync::Semaphore::new(unreadable_units::LOOKS_MAX)),
            recent: bytes_until_encoded::RecentReplicas::new(config.memory, config.patience),
            wrote: Mutex::default(),
            encoded: Mutex::default(),
            waiting: Mutex::default(),
            unprotected: Mutex::default(),
            damaged: Mutex::default(),
            troubles: Arc::new(volumes_left_out::Troubles::new(config.answer)),
            unattended: RwLock::default(),
            kept_since: Mutex::default(),
            unlisted: Mutex::default(),
            progress: Mutex::default(),
            lists: Mutex::default(),
            settled: AtomicBool::new(false),
            first_known: OnceLock::new(),
            incomplete: AtomicBool::new(false),
            running: Mutex::default(),
            #[cfg(test)]
            panics: std::sync::atomic::AtomicBool::default(),
            clean_at: Mutex::new(Some(Instant::now())),
            stuck_requests: Mutex::default(),
            scan: Mutex::default(),
            published: Mutex::default(),
        }
    }

    /// A store whose volumes take part.
    pub fn join(&self, store: &Arc<StoreState>) {
        locks::write(&self.stores).push(Arc::downgrade(store));
    }

    /// The groups. Never held across I/O.
    pub fn table(&self) -> MutexGuard<'_, GroupTable> {
        locks::lock(&self.table)
    }

    /// Stores that run.
    #[must_use]
    pub fn stores(&self) -> Vec<Arc<StoreState>> {
        let stores = locks::read(&self.stores);
        let alive = stores.iter().filter_map(Weak::upgrade);
        alive.filter(|s| !s.stop.is_cancelled()).collect()
    }

    /// The code of groups of a shape: some may be from before another was configured.
    fn code_of(&self, shape: ParityShape) -> Arc<GroupCode> {
        match shape == self.config.shape {
            true => Arc::clone(&self.code),
            false => Arc::new(GroupCode::new(shape)),
        }
    }

    /// Refuses a store whose volumes lie on fewer disks than the shape needs. Of several stores
    /// each must have them: they share the disks.
    ///
    /// # Errors
    /// `Incompatible`.
    pub fn check_disks(&self, store: &StoreState) -> Result<(), StoreError> {
        let volumes = store.volumes();
        let disks = self.disks_of(volumes.iter().map(|volume| &**volume));
        // A failed one is counted: it will be back, and groups decode it.
        let failed = store.failed_volumes();
        let enough = self.config.shape.check_disks(disks.len() + failed);
        enough.map_err(|e| StoreError::incompatible(format!("hayloft.parity: {e}")))
    }

    /// Forgets which replicas are left alone for a while.
    #[cfg(test)]
    pub(crate) fn forgive(&self) {
        locks::lock(&self.waiting).clear();
        self.look_soon();
    }

    /// Whether the groups on all volumes are known: until then a file may look as if no record
    /// named it.
    #[must_use]
    pub fn knows_all(&self) -> bool {
        let joined = locks::read(&self.stores).len();
        joined >= self.expected
            && self.stores().iter().all(|store| knows(store))
            && !self.incomplete.load(Ordering::Relaxed)
            && locks::lock(&self.unlisted).is_empty()
    }

    /// Whether there is something to work on. A store that comes later, since its NameNode does not
    /// answer, is waited for a while: until then a group may look as if it lacked units. One that
    /// does not come stops nothing: what it has is read where it lies.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let stores = self.stores();
        let joined = locks::read(&self.stores).len();
        if joined >= self.expected && !stores.is_empty() && stores.iter().all(|s| knows(s)) {
            return true;
        }
        let waited = self.first_known.get();
        waited.is_some_and(|since| since.elapsed() >= self.config.others_within)
            && stores.iter().any(|store| knows(store))
    }
}
