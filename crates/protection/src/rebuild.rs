//! Lost units are rebuilt on other disks: replicas of a dead disk, and parity files.

use std::collections::HashMap;
use std::sync::Arc;

use hayloft_io::{OpenMode, locks, told_if_broken};
use hayloft_parity::{GroupPhase, GroupRecord, MemberState, PARITY_DIR, UnitRef};
use hayloft_store::inside::{
    BlockPoolSlice, DIR_MODE, DegradedReplica, FinalReplica, Pair, Pool, Reservation, Slot,
    StoreState, footprint, settle_copy,
};
use hayloft_store::{StoreError, StoreErrorKind, StoreEvent};
use hayloft_wire::ids::{ExtendedBlock, StorageType};
use tracing::{info, warn};

use super::decode::UnitReader;
use super::degraded::unit_of;
use super::read_units::stamp;
use super::rewrite_damaged::{decode_pair, write_unit};
use super::unit_files::{parity_file, storage_of, unit_len};
use super::volumes::{UnitPlace, answer};
use super::{ENCODING, Parity, REBUILDING, status};

/// Ends work on a volume that is given up: its disk may give no answer.
async fn unless_gone<T>(
    place: &UnitPlace,
    work: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    tokio::select! {
        biased;
        done = work => done,
        () = place.gone() => {
            let text = "the volume of a rebuilt unit was given up";
            Err(StoreError::new(StoreErrorKind::VolumeFailed, text))
        }
    }
}

/// The disk of a volume had no error a while ago.
fn is_well(place: &UnitPlace) -> bool {
    !place.store.is_failing(&place.volume)
}

/// Rebuilds the degraded replica of a block before a task changes it: an append or a recovery. The
/// task waits for one that is being rebuilt and for this one.
///
/// # Errors
/// `OutOfSpace`, or of reading the other units.
pub async fn rebuild_first(
    parity: &Arc<Parity>,
    store: &Arc<StoreState>,
    block: &ExtendedBlock,
) -> Result<(), StoreError> {
    let Ok(pool) = store.pool(&block.pool) else {
        return Ok(());
    };
    let id = block.block.id;
    let Some(degraded) = pool.degraded_replica(id) else {
        return Ok(());
    };
    parity.rebuild_replica(store, &pool, id, &degraded).await
}

impl Parity {
    /// Rebuilds degraded replicas and lost parity on other disks.
    pub(super) async fn rebuild_all(self: &Arc<Self>) {
        for store in self.stores() {
            for pool in store.pools() {
                super::degraded::back_again(&pool);
                // No volume of these types has room for so many bytes.
                let mut full: HashMap<StorageType, u64> = HashMap::new();
                for (id, replica) in pool.all_degraded() {
                    if store.stop.is_cancelled() {
                        break;
                    }
                    let kind = replica.storage.storage_type;
                    if full.get(&kind).is_some_and(|len| replica.len >= *len) {
                        continue;
                    }
                    status::publish_progress(self).await;
                    let rebuild = self.rebuild_replica(&store, &pool, id, &replica);
                    let rebuilt = told_if_broken("rebuild of a replica", rebuild).await;
                    let Some(Err(error)) = rebuilt else {
                        continue;
                    };
                    let block = pool.extended(replica.block(id));
                    warn!(%block, %error, "a replica of a failed disk is not rebuilt yet");
                    // One that is rebuilt lacks only its place in the group.
                    let waits = pool.degraded_replica(id).is_some();
                    if error.kind() == StoreErrorKind::OutOfSpace && waits {
                        full.insert(kind, replica.len);
                    }
                }
            }
        }
        self.rebuild_parity().await;
    }

    /// A volume for a rebuilt unit of `bytes`: with room, on a disk without another unit of the
    /// group if there is one (then `true`).
    fn rebuild_place(
        &self,
        record: &GroupRecord,
        usable: Vec<UnitPlace>,
        bytes: u64,
    ) -> Option<(UnitPlace, bool)> {
        let mut taken = Vec::new();
        for unit in 0..record.shape.units() {
            let Some(storage) = storage_of(record, unit) else {
                continue;
            };
            taken.extend(self.place(storage).map(|place| self.disk_of(&place.volume)));
            taken.extend(self.unattended(storage).map(|dir| dir.disk.clone()));
        }
        let room = |place: &UnitPlace| place.volume.room();
        let takes = |place: &UnitPlace| self.takes_files(&place.volume) && room(place) >= bytes;
        let fits = usable.into_iter().filter(takes);
        let ranked = fits.map(|place| {
            let apart = !taken.contains(&self.disk_of(&place.volume));
            (place, apart)
        });
        ranked.max_by_key(|(place, apart)| (*apart, is_well(place), room(place)))
    }

    async fn rebuild_replica(
        self: &Arc<Self>,
        store: &Arc<StoreState>,
        pool: &Arc<Pool>,
        id: i64,
        degraded: &DegradedReplica,
    ) -> Result<(), StoreError> {
        let _one = self.rebuilding.lock().await;
        if pool.degraded_replica(id).as_ref() != Some(degraded) {
            return Ok(());
        }
        let unit = unit_of(degraded);
        let record = self.table().get(unit.group).map(|g| Arc::clone(&g.record));
        let Some(record) = record else {
            return Err(StoreError::not_found("its parity group is gone"));
        };
        let same = |s: &Arc<BlockPoolSlice>| {
            s.volume.info.storage_type == degraded.storage.storage_type && !s.volume.is_failed()
        };
        let slices: Vec<_> = pool.slices().into_iter().filter(same).collect();
        let usable = slices.iter().map(|s| self.place_on(store, &s.volume));
        let usable: Vec<UnitPlace> = usable.collect();
        let bytes = footprint(degraded.len, None);
        // A disk with errors is the last choice: what is rebuilt there is soon lost again.
        let well = usable.iter().filter(|place| is_well(place)).cloned();
        let mut place = self.rebuild_place(&record, well.collect(), bytes);
        if place.is_none() {
            place = self.rebuild_place(&record, usable.clone(), bytes);
        }
        if place.is_none() && self.free_room(bytes, &usable).await {
            place = self.rebuild_place(&record, usable, bytes);
        }
        let (place, apart) = place.ok_or_else(|| {
            let text = format!("no volume has room for {bytes} bytes of it");
            StoreError::new(StoreErrorKind::OutOfSpace, text)
        })?;
        let slice = pool.slice(place.volume.index)?;
        let reserved = Reservation::new(&place.volume, bytes);
        let placed = self.place_rebuilt((store, pool), &slice, id, degraded);
        let placed = unless_gone(&place, placed).await;
        drop(reserved);
        let to = placed.inspect_err(|error| self.blame(&place, error))?;
        let block = pool.extended(degraded.block(id));
        let volume = place.volume.root.display();
        info!(%block, %volume, "a replica of a failed disk is rebuilt");
        let storage = place.volume.info.clone();
        let mended = StoreEvent::Mended { block, storage };
        store.send_event(mended).await;
        let replica = degraded.on(&slice.volume);
        let joined = match apart {
            true => self.join_again(unit, (&place, &to), &replica).await,
            false => Ok(false),
        };
        let _latch = pool.latches.acquire(id).await;
        let stays = matches!(joined, Ok(true));
        if !(stays && pool.map.is_finalized(id, &replica)) {
            let stamp = degraded.generation_stamp;
            self.waited_enough((Arc::as_ptr(store).addr(), pool.id().clone(), id, stamp));
            self.leave_group(unit);
        }
        joined.map(drop)
    }

    /// A unit could not be written to a volume that it should be rebuilt on: others get it next.
    fn blame(&self, place: &UnitPlace, error: &StoreError) {
        // Units that cannot be read are left out of decoding.
        if error.io_error().is_some() {
            self.note_refusal(place, error);
        }
    }

    /// Has a group know where the replica of a member is now; whether it does.
    async fn join_again(
        &self,
        unit: UnitRef,
        (place, at): (&UnitPlace, &Pair),
        replica: &FinalReplica,
    ) -> Result<bool, StoreError> {
        let Some(stamp) = stamp(&place.into(), &at.data(), ENCODING)
            .await
            .ok()
            .flatten()
        else {
            return Ok(false);
        };
        let next = |next: &mut GroupRecord| {
            let member = &mut next.members[unit.unit];
            member.storage = Arc::clone(&place.volume.info.id);
            member.root = place.volume.root.to_string_lossy().as_ref().into();
            member.generation_stamp = replica.generation_stamp;
            member.stamp = stamp;
        };
        self.relocate(unit, next).await
    }

    /// The replica of a member is not one that its group may count on: it could not be told where
    /// it is, or the replica changed before it was. The group goes on short of a unit, and its
    /// members into others. The caller has the right to the block.
    fn leave_group(&self, unit: UnitRef) {
        let mut table = self.table();
        let state = table.get(unit.group).map(|g| g.members[unit.unit]);
        // What was kept of it is there.
        if state == Some(MemberState::Live) {
            table.set_member(unit, MemberState::Absent);
        }
        drop(table);
        self.drop_member(unit);
    }

    /// Decodes a degraded replica to a volume and puts it into the map.
    async fn place_rebuilt(
        self: &Arc<Self>,
        (store, pool): (&Arc<StoreState>, &Arc<Pool>),
        slice: &Arc<BlockPoolSlice>,
        id: i64,
        degraded: &DegradedReplica,
    ) -> Result<Pair, StoreError> {
        let to = Pair::finalized(&slice.paths, id, degraded.generation_stamp);
        let copy = decode_pair(self, unit_of(degraded), (store, slice), &to, REBUILDING).await?;
        let _latch = pool.latches.acquire(id).await;
        let wanted = pool.degraded_replica(id).as_ref() == Some(degraded);
        let target = wanted.then(|| to.clone());
        settle_copy(slice, copy, target, degraded.pinned)
            .await
            .map_err(|e| StoreError::io("placing a rebuilt replica", e))?;
        if !wanted {
            return Err(StoreError::not_found("it is wanted no more"));
        }
        pool.put(id, Slot::Finalized(degraded.on(&slice.volume)))?;
        slice.note_added(footprint(degraded.len, None));
        locks::lock(&pool.degraded).remove(&id);
        Ok(to)
    }

    /// Changes where a unit of a group is, in its record and the table; whether it did.
    async fn relocate(
        &self,
        unit: UnitRef,
        change: impl FnOnce(&mut GroupRecord),
    ) -> Result<bool, StoreError> {
        let _alone = self.recording.lock().await;
        let Some(before) = self.table().get(unit.group).map(|g| Arc::clone(&g.record)) else {
            return Ok(false);
        };
        let mut next = GroupRecord::clone(&before);
        change(&mut next);
        self.write_next(&before, next).await?;
        match unit.unit.checked_sub(before.shape.data()) {
            None => self.table().set_member(unit, MemberState::Live),
            Some(parity) => {
                if let Some(group) = self.table().get_mut(unit.group) {
                    group.parity[parity] = true;
                }
            }
        }
        Ok(true)
    }

    /// Computes parity files anew whose disk is gone or that were damaged.
    async fn rebuild_parity(self: &Arc<Self>) {
        let lost: Vec<UnitRef> = {
            let table = self.table();
            let groups = table.iter().filter(|g| g.decodes() && !g.is_weak());
            let committed = groups.filter(|g| g.phase == GroupPhase::Committed);
            let units = committed.flat_map(|group| {
                let data = group.record.shape.data();
                let lost = group.lost_units().into_iter().filter(move |u| *u >= data);
                lost.map(|unit| UnitRef {
                    group: group.record.id,
                    unit,
                })
            });
            units.collect()
        };
        for unit in lost {
            status::publish_progress(self).await;
            let rebuild = self.rebuild_parity_file(unit);
            let rebuilt = told_if_broken("rebuild of parity", rebuild).await;
            if let Some(Err(error)) = rebuilt {
                warn!(group = %unit.group, %error, "parity is not rebuilt yet");
            }
        }
    }

    async fn rebuild_parity_file(self: &Arc<Self>, unit: UnitRef) -> Result<(), StoreError> {
        let record = self.table().get(unit.group).map(|g| Arc::clone(&g.record));
        let Some(record) = record else {
            return Ok(());
        };
        let n = unit.unit - record.shape.data();
        let bytes = unit_len(&record, unit.unit);
        // Where it was, when that disk is there: the file was damaged.
        let before = self.place(&record.parity[n].storage);
        let before = before.filter(|place| self.takes_files(&place.volume));
        let elsewhere = || {
            let place = self.rebuild_place(&record, self.places(), bytes);
            place.and_then(|(place, apart)| apart.then_some(place))
        };
        let mut place = before.clone().filter(is_well).or_else(elsewhere).or(before);
        if place.is_none() && self.free_room(bytes, &self.places()).await {
            place = elsewhere();
        }
        let Some(place) = place else {
            if let Some(group) = self.table().get_mut(unit.group) {
                group.given_up = true;
            }
            return Ok(());
        };
        let written = self.write_parity_file(unit, &record, n, &place);
        let written = unless_gone(&place, written).await;
        written.inspect_err(|error| self.blame(&place, error))?;
        let volume = &place.volume;
        let next = |next: &mut GroupRecord| {
            next.parity[n].storage = Arc::clone(&volume.info.id);
            next.parity[n].root = volume.root.to_string_lossy().as_ref().into();
        };
        self.relocate(unit, next).await.map(drop)
    }

    /// Computes parity file `n` of a group anew, durably.
    async fn write_parity_file(
        self: &Arc<Self>,
        unit: UnitRef,
        record: &GroupRecord,
        n: usize,
        place: &UnitPlace,
    ) -> Result<(), StoreError> {
        let reader = UnitReader::open(self, unit, REBUILDING).await?;
        let (volume, failed) = (&place.volume, |e| place.failed("rebuilding parity", e));
        let dir = volume.root.join(PARITY_DIR);
        let meta = volume.meta(REBUILDING);
        let made = answer(place, meta.create_dir_all(&dir, DIR_MODE));
        made.await.map_err(failed)?;
        // Under its own name it is whole: a start takes it for that.
        let path = parity_file(record, n).path(&volume.root);
        let temporary = path.with_file_name(format!("{}.tmp", parity_file(record, n).name()));
        self.unlink(place, &temporary).await;
        let engine = &volume.engine;
        let file = engine.open(&temporary, OpenMode::CreateNew, REBUILDING);
        let file = answer(place, file).await.map_err(failed)?;
        write_unit(&reader, place, &*file).await?;
        let renamed = answer(place, meta.rename(&temporary, &path));
        renamed.await.map_err(failed)?;
        let synced = answer(place, meta.sync_dir(&dir));
        synced.await.map_err(failed)
    }
}
