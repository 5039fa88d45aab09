//! What lies on the volumes when they are put into use: records, and files of groups.
//!
//! A member counts when its data file has the stamp of its record. When it has another, the covered
//! bytes are compared with the record's checksums in the background: a replica may have grown, or
//! another DataNode may have used the directory meanwhile.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use hayloft_io::{AlignedBuf, IoClass, IoErrorKind, locks, told_if_broken};
use hayloft_parity::{
    GroupFile, GroupId, GroupPhase, GroupRecord, MemberState, SumsCheck, TableGroup, UnitRef,
    UnitSums,
};
use hayloft_store::inside::{DegradedReplica, Pool, Slot, StoreState};
use hayloft_store::{StorageInfo, StoreError, StoreEvent};
use hayloft_wire::ids::PoolId;
use tracing::{debug, info};

use super::degraded::{back_again, decoded_as, drop_undecodable, keep_degraded};
use super::list_and_clean::Listed;
use super::read_members::clip;
use super::read_units::{SourcePlace, open_source, stamp};
use super::unit_files::{kept_file, parity_file, unit_path};
use super::volumes::UnitPlace;
use super::{Parity, STRIDE};

/// The replicas of a pool are in the map, those of a volume that joined too: takes in the groups
/// that lie on the volumes.
pub async fn pool_loaded(parity: &Arc<Parity>, store: &Arc<StoreState>, pool: &Arc<Pool>) {
    // Once all stores were there the earlier lists are gone: all volumes are listed then.
    let settled = parity.settled.load(Ordering::Relaxed);
    let places = parity.places().into_iter();
    let places = places.filter(|place| settled || Arc::ptr_eq(&place.store, store));
    let lists = places.map(|place| async move {
        let list = parity.list_volume(&place).await;
        (Arc::clone(&place.volume.info.id), (place, list))
    });
    let listed = futures_util::future::join_all(lists).await;
    parity.attended_now(store, pool.id());
    let looks = parity.take_in_all(pool, listed);
    for other in parity.stores() {
        let Ok(theirs) = other.pool(pool.id()) else {
            continue;
        };
        let found = degrade_missing(parity, &other, &theirs);
        back_again(&theirs);
        if !Arc::ptr_eq(&other, store) {
            // Its full report went without them.
            tell_found(&other, &theirs, found);
        }
    }
    parity.clean_soon();
    pool.protection_known.store(true, Ordering::Release);
    let _ = parity.first_known.set(Instant::now());
    parity.look_at_all(store, looks);
}

/// What lies on volumes, by storage.
pub type Lists = HashMap<Arc<str>, (UnitPlace, Listed)>;

impl Parity {
    /// Takes in all groups of a pool whose records or units lie on the volumes listed now, or on
    /// those of stores that came before. Gives live members that are to be looked at.
    fn take_in_all(
        &self,
        pool: &Pool,
        listed: Vec<(Arc<str>, (UnitPlace, Listed))>,
    ) -> Vec<UnitRef> {
        let mut lists = locks::lock(&self.lists);
        lists.extend(listed);
        let mut newest: HashMap<GroupId, GroupRecord> = HashMap::new();
        for record in lists
            .values()
            .flat_map(|(_, listed)| listed.records.values())
        {
            let known = newest.get(&record.id);
            let better = known.is_none_or(|known| known.revision < record.revision);
            if record.pool == *pool.id() && better {
                newest.insert(record.id, record.clone());
            }
        }
        // Groups whose records lie elsewhere may have units here.
        for group in self.table().iter().filter(|g| g.record.pool == *pool.id()) {
            let record = || GroupRecord::clone(&group.record);
            newest.entry(group.record.id).or_insert_with(record);
        }
        if !newest.is_empty() {
            info!(pool = %pool.id(), groups = newest.len(), "parity groups found");
        }
        let records = newest.into_values();
        let looks = records.flat_map(|record| self.take_in(record, &lists));
        looks.collect()
    }

    /// Takes in what lies on a volume that could not be listed before, and looks whether another
    /// process changed it.
    pub(super) fn take_in_late(self: &Arc<Self>, listed: (Arc<str>, (UnitPlace, Listed))) {
        let store = Arc::clone(&listed.1.0.store);
        let stores = self.stores();
        let pools = stores.iter().flat_map(|store| store.pools());
        let pools: HashMap<PoolId, Arc<Pool>> = pools.map(|p| (p.id().clone(), p)).collect();
        locks::lock(&self.lists).extend([listed]);
        let take_in = |pool| self.take_in_all(pool, Vec::new());
        let looks: Vec<UnitRef> = pools.values().flat_map(|pool| take_in(pool)).collect();
        locks::lock(&self.lists).clear();
        self.look_at_all(&store, looks);
    }

    /// Looks at units behind the caller's back: it may take as long as reading a disk.
    fn look_at_all(self: &Arc<Self>, store: &Arc<StoreState>, looks: Vec<UnitRef>) {
        let (parity, store) = (Arc::clone(self), Arc::clone(store));
        store.tasks.clone().spawn(async move {
            let look = async {
                for unit in looks {
                    told_if_broken("look at parity", parity.look_at(unit)).await;
                }
                parity.wake.notify_one();
            };
            tokio::select! {
                () = store.stop.cancelled() => {}
                () = look => {}
            }
        });
    }

    /// Takes in a group, or what these volumes say of one that is known. Gives the live members on
    /// them, to be looked at.
    fn take_in(&self, record: GroupRecord, lists: &Lists) -> Vec<UnitRef> {
        let group = record.id;
        let mut table = self.table();
        let known = table.get(group).map(|g| g.record.revision);
        let stale = known.is_some_and(|revision| revision > record.revision);
        if known.is_none_or(|revision| revision < record.revision) {
            let members = vec![MemberState::Absent; record.members.len()];
            let parity = vec![false; record.parity.len()];
            table.adopt(record, members, parity);
        }
        let Some(record) = table.get(group).map(|g| Arc::clone(&g.record)) else {
            return Vec::new();
        };
        let mut looks = Vec::new();
        for (unit, member) in record.members.iter().enumerate() {
            let Some((place, listed)) = lists.get(&member.storage) else {
                continue;
            };
            let at = UnitRef { group, unit };
            // What is known to be there is, whatever the list of a moment ago says.
            let lost = table.get(group).map(|g| g.members[unit]) == Some(MemberState::Absent);
            if !lost {
                continue;
            }
            let kept = kept_file(&record, unit);
            let Ok(theirs) = place.store.pool(&record.pool) else {
                // Its store has yet to load the pool.
                continue;
            };
            let there = replica_len(&theirs, member.block_id, place);
            let state = match there {
                Some(len) if len >= member.covered && !member.dropped => MemberState::Live,
                _ if listed.files.contains(&kept) => MemberState::Kept,
                _ => MemberState::Absent,
            };
            table.set_member(at, state);
            match state {
                MemberState::Live => looks.push(at),
                _ if member.dropped || theirs.degraded_replica(member.block_id).is_some() => {}
                _ => {
                    // Deleted while no process saw it: nothing brings it back.
                    if let Some(group) = table.get_mut(group) {
                        Arc::make_mut(&mut group.record).members[unit].dropped = true;
                        group.dirty = true;
                    }
                }
            }
        }
        let Some(known) = table.get_mut(group) else {
            return looks;
        };
        for (n, target) in record.parity.iter().enumerate() {
            if let Some((_, listed)) = lists.get(&target.storage) {
                let file = parity_file(&record, n);
                known.parity[n] |= listed.files.contains(&file);
            }
        }
        let whole = |copy: &Arc<str>| {
            let listed = lists.get(copy).map(|(_, listed)| listed);
            listed.is_none_or(|l| {
                if l.unknown {
                    return true;
                }
                let copy = l.records.get(&group);
                copy.is_some_and(|r| r.revision == record.revision)
            })
        };
        known.lacks_copy |= record.copies.iter().any(|copy| {
            let listed = lists.get(copy).map(|(_, listed)| listed);
            let file = GroupFile::Record(group);
            listed.is_some_and(|l| !l.unknown && !l.files.contains(&file))
        });
        // Another shape was configured meanwhile.
        known.given_up |= record.shape != self.config.shape;
        let torn = !record.copies.iter().all(whole);
        known.torn |= torn;
        known.dirty |= stale || torn;
        looks
    }

    /// Compares a live member with its stamp, and where that differs with its checksums.
    pub(super) async fn look_at(&self, unit: UnitRef) {
        let (record, path, place) = {
            let table = self.table();
            let Some(group) = table.get(unit.group) else {
                return;
            };
            if group.members.get(unit.unit) != Some(&MemberState::Live) {
                return;
            }
            let record = Arc::clone(&group.record);
            let storage = &record.members[unit.unit].storage;
            let Some(place) = self.source(storage, &record.pool) else {
                return;
            };
            let Some(path) = unit_path(group, unit.unit, &place) else {
                return;
            };
            (record, path, place)
        };
        let member = &record.members[unit.unit];
        let now = match stamp(&place, &path, IoClass::Scan).await {
            Ok(Some(now)) if now == member.stamp => return,
            Ok(now) => now,
            Err(error) => {
                debug!(%error, "a member of a parity group cannot be looked at");
                return;
            }
        };
        let begins = match now {
            None => Ok(false),
            Some(_) => match self.sums(&record, unit.unit).await {
                Ok(sums) => begins_with(sums, &path, &place, IoClass::Scan).await,
                Err(error) => Err(error),
            },
        };
        let changed = match (begins, now) {
            (Ok(true), Some(now)) => {
                if let Some(group) = self.table().get_mut(unit.group) {
                    Arc::make_mut(&mut group.record).members[unit.unit].stamp = now;
                    group.dirty = true;
                }
                false
            }
            (Err(error), _) => {
                debug!(%error, "a member of a parity group cannot be compared");
                error
                    .io_error()
                    .is_some_and(|e| e.kind() == IoErrorKind::NotFound)
            }
            _ => true,
        };
        if changed {
            self.has_changed(unit, member.block_id);
        }
    }

    /// A live member is not what its group has, and is not damaged.
    pub(super) fn has_changed(&self, unit: UnitRef, block: i64) {
        info!(group = %unit.group, block, "a replica is not what its parity group has: it was \
            changed meanwhile, and goes into a new group");
        self.table().set_member(unit, MemberState::Absent);
        self.drop_member(unit);
        // It may have been the last unit that a degraded replica was decoded from.
        drop_undecodable(self);
    }
}

/// Whether a file begins with the bytes of a unit that has these checksums.
pub(super) async fn begins_with(
    sums: UnitSums,
    path: &Path,
    place: &SourcePlace,
    class: IoClass,
) -> Result<bool, StoreError> {
    let failed = |e| place.failed("comparing a unit of a parity group", e);
    let len = sums.len();
    let mut check = SumsCheck::new(sums);
    let file = open_source(place, path, class).await.map_err(failed)?;
    let mut buf = AlignedBuf::unpooled(STRIDE);
    let mut offset = 0;
    while offset < len {
        let n = clip(len, offset, STRIDE);
        let read = file.read_at(buf, offset, n);
        let read = async { read.await.into_result() };
        let (read, got) = place.answer(read).await.map_err(failed)?;
        if got < n || check.push(read.as_slice()).is_err() {
            return Ok(false);
        }
        buf = read;
        offset += n as u64;
    }
    Ok(check.is_complete())
}

/// The length of the replica of a block on a volume, in whatever state.
fn replica_len(pool: &Pool, id: i64, place: &UnitPlace) -> Option<u64> {
    match pool.map.get(id)? {
        Slot::Finalized(r) if r.volume == place.volume.index => Some(r.len),
        Slot::Live(live) if live.slice.volume.index == place.volume.index => {
            Some(live.block().num_bytes)
        }
        _ => None,
    }
}

/// Members whose volume is configured and not in use: they are served by decoding.
fn degrade_missing(
    parity: &Arc<Parity>,
    store: &Arc<StoreState>,
    pool: &Arc<Pool>,
) -> Vec<(i64, DegradedReplica)> {
    let here: HashSet<Arc<str>> = store
        .volumes()
        .iter()
        .map(|v| Arc::clone(&v.info.id))
        .collect();
    let mut degraded = Vec::new();
    let mut elsewhere = Vec::new();
    {
        let table = parity.table();
        let committed = |g: &&TableGroup| g.phase == GroupPhase::Committed && g.decodes();
        let groups = table.iter().filter(committed);
        for group in groups.filter(|g| g.record.pool == *pool.id()) {
            for (unit, member) in group.record.members.iter().enumerate() {
                let mut configured = store.configured_volumes().iter();
                let config = configured.find(|v| *v.path == *Path::new(&*member.root));
                let gone = !member.dropped && !here.contains(&member.storage);
                let Some(config) = config.filter(|_| gone) else {
                    continue;
                };
                let at = UnitRef {
                    group: group.record.id,
                    unit,
                };
                if pool.has(member.block_id) {
                    elsewhere.push(at);
                    continue;
                }
                let replica = DegradedReplica {
                    generation_stamp: member.generation_stamp,
                    len: member.covered,
                    pinned: false,
                    storage: StorageInfo {
                        id: Arc::clone(&member.storage),
                        storage_type: config.storage_type,
                    },
                    unit: decoded_as(at),
                };
                degraded.push((member.block_id, replica));
            }
        }
    }
    for unit in elsewhere {
        parity.drop_member(unit);
    }
    let mut new = Vec::new();
    if degraded.is_empty() {
        return new;
    }
    let replicas = degraded.len();
    info!(pool = %pool.id(), replicas, "replicas of volumes that are not there are served by \
        decoding");
    for (id, replica) in degraded {
        if keep_degraded(parity, pool, id, replica.clone()) {
            new.push((id, replica));
        }
    }
    new
}

/// Tells of replicas that can be decoded since the volumes of another store are known.
fn tell_found(store: &Arc<StoreState>, pool: &Arc<Pool>, found: Vec<(i64, DegradedReplica)>) {
    let (store, pool) = (Arc::clone(store), Arc::clone(pool));
    store.tasks.clone().spawn(async move {
        for (id, replica) in found {
            let block = pool.extended(replica.block(id));
            let storage = replica.storage;
            store.send_event(StoreEvent::Found { block, storage }).await;
        }
    });
}
