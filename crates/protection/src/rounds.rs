//! The background task: one round after another writes records that are out of date, removes
//! groups that no replica needs, rebuilds what is lost, and protects what is not.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hayloft_io::{locks, told_if_broken, unbroken};
use hayloft_parity::{DiskRoom, GroupPlan, Unprotected, form};
use hayloft_store::inside::Slot;
use hayloft_store::{StoreError, StoreErrorKind};
use hayloft_wire::ids::PoolId;
use tracing::{debug, info, warn};

use super::encode::encode_group;
use super::read_members::{NotEncoded, ParityCandidate};
use super::replica_changes::recent_key;
use super::status::UnprotectedCount;
use super::volumes::{DiskKey, UnitPlace};
use super::{Parity, ParityRequest, Waiting, operator_requests, status};

/// Groups that are planned at a time, after a look at all replicas.
const GROUPS_AT_A_TIME: usize = 256;
/// After so many bytes there is another look: what came meanwhile is still in the page cache.
pub(super) const BYTES_AT_A_TIME: u64 = 1 << 30;
/// Replicas that are planned at a time.
const CANDIDATES_MAX: usize = 4096;
/// A replica that cannot be read for parity is left alone for so long.
const REFUSED_FOR: Duration = Duration::from_secs(600);
/// A round takes at most this share of the time: what a look at all replicas costs decides how
/// often there is one.
const PACE: u32 = 50;
/// Clients that have not written for so long leave the disks idle.
const CALM: Duration = Duration::from_secs(1);
/// Pause after parity found no room.
const FULL_PAUSE: Duration = Duration::from_secs(60);

/// Has rounds go on as long as a store of the process runs: they are no store's own, since the end
/// of one must not stop those of the others.
pub fn start(parity: &Arc<Parity>) {
    let mut running = locks::lock(&parity.running);
    if !std::mem::replace(&mut *running, true) {
        // No task waits for their end.
        let never = std::future::pending::<()>;
        let rounds = Arc::clone(parity);
        tokio::spawn(unbroken("parity", never(), move || {
            run(Arc::clone(&rounds))
        }));
        let asked = Arc::downgrade(parity);
        let answer = move || operator_requests::answer_requests(asked.clone());
        tokio::spawn(unbroken("answers about parity", never(), answer));
    }
}

async fn run(parity: Arc<Parity>) {
    let mut wait = parity.config.interval;
    loop {
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = parity.wake.notified() => {}
        }
        let started = Instant::now();
        parity.round().await;
        {
            // One that joins later starts them again.
            let mut running = locks::lock(&parity.running);
            if parity.stores().is_empty() {
                *running = false;
                return;
            }
        }
        let looked = started.elapsed().min(Duration::from_secs(10));
        wait = parity.config.interval.max(looked * PACE / 10);
        // Not at every block that is closed.
        tokio::time::sleep(parity.config.interval / 5).await;
    }
}

/// How a replica waits for a group.
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    /// When it was seen first.
    seen: Instant,
    /// Since when it has waited for partners; to come: it is left alone until then.
    since: Instant,
}

impl Parity {
    /// One round. It ends early when all stores end meanwhile.
    pub(crate) async fn round(self: &Arc<Self>) {
        let _turn = self.round.lock().await;
        #[cfg(test)]
        assert!(!self.panics.swap(false, Ordering::Relaxed), "wrong once");
        if !self.is_ready() {
            return;
        }
        self.settled.store(true, Ordering::Relaxed);
        locks::lock(&self.lists).clear();
        self.list_again().await;
        self.look_at_unattended().await;
        self.try_again().await;
        self.dissolve_leftovers().await;
        self.clean().await;
        let requests = operator_requests::requests(self).await;
        if requests.contains(&ParityRequest::Scrub) && !self.scrub().await {
            return;
        }
        self.scan().await;
        self.mend_groups().await;
        operator_requests::carried_out(self, &requests).await;
        self.yield_kept().await;
        self.protect().await;
        self.recent.trim();
        status::publish(self).await;
    }

    /// Removes useless groups, rebuilds what is lost and writes records that are out of date. In
    /// this order: of a group that goes no record is written, of one that is rebuilt only one.
    pub(super) async fn mend_groups(self: &Arc<Self>) {
        self.give_up_orphans();
        self.found_again();
        let useless = self.table().useless();
        for group in useless {
            self.dissolve(group).await;
        }
        self.rebuild_all().await;
        self.write_dirty().await;
    }

    /// Forms groups and encodes them until there are none to form or its turn is over: what is
    /// lost meanwhile and what operators ask for goes first then.
    pub(super) async fn protect(self: &Arc<Self>) {
        let until = Instant::now() + self.config.turn;
        loop {
            let places = self.places();
            let candidates = self.sweep(&places);
            let mut pools: HashMap<PoolId, Vec<Unprotected<ParityCandidate>>> = HashMap::new();
            for candidate in candidates {
                let pool = candidate.what.pool.id().clone();
                pools.entry(pool).or_default().push(candidate);
            }
            let disks = self.disks_of(places.iter().map(|place| &*place.volume));
            let mut rooms = self.rooms(&places);
            let (mut encoded, mut again, mut bytes) = (false, false, 0_u64);
            for (_, candidates) in pools {
                let plans = form(self.config.shape, candidates, &mut rooms, GROUPS_AT_A_TIME);
                let mut plans = plans.into_iter();
                loop {
                    let more = bytes < BYTES_AT_A_TIME && (bytes == 0 || Instant::now() < until);
                    let at_once = if more { self.config.groups_at_once } else { 0 };
                    let some = plans.by_ref().take(at_once);
                    let work = some.map(|plan| {
                        bytes += plan.members.iter().map(|member| member.len).sum::<u64>();
                        let targets = self.targets(&plan, &places, &disks);
                        async move { self.encode_plan(plan, &targets).await }
                    });
                    let work: Vec<_> = work.collect();
                    if work.is_empty() {
                        break;
                    }
                    for next in futures_util::future::join_all(work).await {
                        match next {
                            Next::Go => encoded = true,
                            Next::Skip => {}
                            Next::Elsewhere => again = true,
                        }
                    }
                    if again {
                        // These plans count on a volume that refuses.
                        break;
                    }
                }
                if Instant::now() >= until {
                    self.wake.notify_one();
                    return;
                }
            }
            if !encoded && !again || self.stores().is_empty() {
                return;
            }
        }
    }

    /// Room for parity on each disk: that of its roomiest volume.
    fn rooms(&self, places: &[UnitPlace]) -> Vec<DiskRoom> {
        let disks = self.disks_of(places.iter().map(|place| &*place.volume));
        let mut rooms = vec![DiskRoom { free: 0, parity: 0 }; disks.len()];
        let mut parity: HashMap<Arc<str>, u64> = HashMap::new();
        for group in self.table().iter() {
            for target in &group.record.parity {
                *parity.entry(Arc::clone(&target.storage)).or_default() +=
                    group.record.parity_len();
            }
        }
        let well = |place: &&UnitPlace| !place.store.is_failing(&place.volume);
        let any_well = places.iter().any(|place| well(&place));
        // A disk with errors gets no parity while another is well.
        for place in places.iter().filter(|place| !any_well || well(place)) {
            let disk = self.disk_of(&place.volume);
            if let Some(at) = disks.iter().position(|d| *d == disk) {
                let remaining = match self.takes_files(&place.volume) {
                    true => place.volume.room(),
                    false => 0,
                };
                rooms[at].free = rooms[at].free.max(remaining);
                rooms[at].parity += parity.get(&place.volume.info.id).copied().unwrap_or(0);
            }
        }
        rooms
    }

    /// The roomiest volume on each disk of a plan's parity.
    fn targets(
        &self,
        plan: &GroupPlan<ParityCandidate>,
        places: &[UnitPlace],
        disks: &[DiskKey],
    ) -> Vec<UnitPlace> {
        let of = |disk: usize| {
            let here = places
                .iter()
                .filter(|p| self.disk_of(&p.volume) == disks[disk])
                .filter(|p| self.takes_files(&p.volume));
            here.max_by_key(|p| p.volume.room()).cloned()
        };
        plan.parity.iter().filter_map(|p| of(p.disk)).collect()
    }

    async fn encode_plan(
        self: &Arc<Self>,
        plan: GroupPlan<ParityCandidate>,
        targets: &[UnitPlace],
    ) -> Next {
        if targets.len() < self.config.shape.parity() {
            return Next::Skip;
        }
        let members: Vec<ParityCandidate> = plan.members.into_iter().map(|m| m.what).collect();
        let refusals = self.refusals();
        let encoding = encode_group(self, &members, targets);
        let error = match told_if_broken("encoding of a parity group", encoding).await {
            Some(Ok(_)) => return Next::Go,
            Some(Err(error)) => error,
            None => {
                // Others are encoded meanwhile.
                self.refuse_all_for(&members, REFUSED_FOR);
                return Next::Skip;
            }
        };
        match error {
            NotEncoded::Changed => Next::Skip,
            NotEncoded::Member(at, error) => {
                let member = &members[at.min(members.len() - 1)];
                // One that an append or a delete took away is no damage.
                let changed = !member.pool.map.is_finalized(member.id, &member.replica);
                if !changed && error.kind() != StoreErrorKind::Retry {
                    self.refuse(member, &error);
                }
                Next::Skip
            }
            NotEncoded::Parity(error) => {
                debug!(%error, "a parity group is not encoded");
                if error.kind() == StoreErrorKind::Retry {
                    return Next::Skip;
                }
                if self.refusals() > refusals {
                    // Said where it was noted.
                    return Next::Elsewhere;
                }
                warn!(%error, "replicas stay without parity for now");
                self.refuse_all_for(&members, FULL_PAUSE);
                Next::Skip
            }
        }
    }

    /// Leaves a replica alone for a while that cannot be read or is damaged.
    fn refuse(&self, member: &ParityCandidate, error: &StoreError) {
        info!(block = %member.block(), %error, "a replica stays without parity for now");
        if error.kind() == StoreErrorKind::Corrupt {
            member.place.store.mark_suspect(&member.block());
        }
        self.refuse_all_for(std::slice::from_ref(member), REFUSED_FOR);
    }

    /// A rebuilt replica lost its place in a group: it was protected, and takes any partner.
    pub(super) fn waited_enough(&self, replica: Waiting) {
        let since = Instant::now().checked_sub(self.config.patience);
        if let Some(since) = since {
            let seen = Instant::now();
            locks::lock(&self.waiting).insert(replica, Wait { seen, since });
        }
    }

    fn refuse_all_for(&self, members: &[ParityCandidate], pause: Duration) {
        let now = Instant::now();
        let mut waiting = locks::lock(&self.waiting);
        for member in members {
            let wait = waiting.entry(key(member)).or_insert(Wait {
                seen: now,
                since: now,
            });
            wait.since = now + pause;
        }
    }

    /// Looks at all finalized replicas: gives those that no group has. First those in memory, which
    /// make room for others; then the newest, which the page cache may still have.
    pub(super) fn sweep(&self, places: &[UnitPlace]) -> Vec<Unprotected<ParityCandidate>> {
        let disks = self.disks_of(places.iter().map(|place| &*place.volume));
        let (mut found, mut claimed) = (Vec::new(), Vec::new());
        for store in self.stores() {
            for pool in store.pools() {
                if !pool.protection_known.load(Ordering::Acquire) {
                    continue;
                }
                let slices = pool.slices();
                let mut here = Vec::new();
                pool.map.for_each(|id, slot| {
                    if let Slot::Finalized(replica) = slot {
                        here.push((id, *replica));
                    }
                });
                let damaged = locks::lock(&self.damaged).clone();
                let table = self.table();
                for (id, replica) in here {
                    let slice = slices.iter().find(|s| s.volume.index == replica.volume);
                    let Some(slice) = slice.filter(|_| replica.len > 0) else {
                        continue;
                    };
                    let volume = &slice.volume;
                    if table.is_taken(pool.id(), id, &volume.info.id, replica.len) {
                        if !table.is_covered(pool.id(), id, &volume.info.id, replica.len) {
                            let of = Arc::as_ptr(&store).addr();
                            let key = (of, pool.id().clone(), id, replica.generation_stamp);
                            claimed.push((key, Arc::clone(&volume.info.id), replica.len));
                        }
                        continue;
                    }
                    if damaged.is_same(pool.id(), id, &volume.info.id, &replica) {
                        continue;
                    }
                    let lasting = !volume.info.storage_type.is_transient();
                    let disk = self.disk_of(volume);
                    let disk = disks.iter().position(|d| *d == disk);
                    let Some(disk) = disk.filter(|_| lasting && !volume.is_failed()) else {
                        continue;
                    };
                    let storage = &volume.info.id;
                    let patient = table.lost_protection(pool.id(), id, storage);
                    let covered = table.is_covered(pool.id(), id, storage, replica.len);
                    let what = ParityCandidate {
                        covered,
                        place: self.place_on(&store, volume),
                        pool: Arc::clone(&pool),
                        slice: Arc::clone(slice),
                        id,
                        replica,
                    };
                    found.push(Unprotected {
                        disk,
                        len: replica.len,
                        patient,
                        what,
                    });
                }
            }
        }
        self.let_wait(found, &claimed)
    }

    /// Notes since when each has waited. Leaves out those that are left alone, and the oldest of
    /// too many. Those that are claimed, with storage and length, have waited when they are not
    /// encoded after all; until they are they have no parity.
    fn let_wait(
        &self,
        mut found: Vec<Unprotected<ParityCandidate>>,
        claimed: &[(Waiting, Arc<str>, u64)],
    ) -> Vec<Unprotected<ParityCandidate>> {
        let now = Instant::now();
        let clients_write = locks::lock(&self.wrote).is_some_and(|at| at.elapsed() < CALM);
        let tight = self.recent.is_tight();
        let in_memory = |c: &Unprotected<ParityCandidate>| {
            let key = recent_key(&c.what.slice, c.what.id);
            self.recent.is_on() && self.recent.has(&key, c.len)
        };
        found.sort_by_cached_key(|c| std::cmp::Reverse((in_memory(c), c.what.id)));
        let mut waiting = locks::lock(&self.waiting);
        let known = |key: &Waiting| waiting.get(key).map(|wait| (key.clone(), *wait));
        let keys = claimed.iter().map(|(key, ..)| key);
        let mut still: HashMap<Waiting, Wait> = keys.filter_map(known).collect();
        let mut count = UnprotectedCount::new(now);
        let overdue = |wait: Wait| wait.seen + self.config.overdue <= now;
        for (key, storage, len) in claimed {
            count.add(storage, *len, still.get(key).copied().is_some_and(overdue));
        }
        found.retain_mut(|candidate| {
            let key = key(&candidate.what);
            let new = Wait {
                seen: now,
                since: now,
            };
            let wait = waiting.get(&key).copied().unwrap_or(new);
            let volume = &candidate.what.place.volume;
            if !candidate.what.covered {
                count.add(&volume.info.id, candidate.len, overdue(wait));
            }
            let since = wait.since;
            candidate.patient |= since + self.config.patience <= now;
            still.insert(key, wait);
            let may = !clients_write
                || candidate.patient
                || since + self.config.hold <= now
                || tight && in_memory(candidate);
            // One that is left alone waits since a time to come.
            since <= now && may && self.answers(volume)
        });
        *waiting = still;
        drop(waiting);
        *locks::lock(&self.unprotected) = count;
        // Those that take any partner first, or newer ones would be before them for ever.
        let (mut first, rest): (Vec<_>, Vec<_>) = found.into_iter().partition(|c| c.patient);
        first.extend(rest);
        first.truncate(CANDIDATES_MAX);
        first
    }
}

/// How it goes on after a group.
enum Next {
    Go,
    Skip,
    /// A volume takes no files: plans without it.
    Elsewhere,
}

fn key(candidate: &ParityCandidate) -> Waiting {
    let store = Arc::as_ptr(&candidate.place.store).addr();
    let stamp = candidate.replica.generation_stamp;
    (store, candidate.pool.id().clone(), candidate.id, stamp)
}
