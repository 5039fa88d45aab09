//! What is kept of deleted replicas makes room. Where little is free its groups are encoded anew
//! without it, and after a while everywhere. A writer, or a rebuild, that lacks room does not wait
//! for that: groups go, and what is left of them is encoded anew.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hayloft_io::IoClass;
use hayloft_io::locks;
use hayloft_parity::{GroupId, GroupPhase, MemberState, TableGroup};
use hayloft_store::inside::{StoreState, Volume};
use hayloft_wire::ids::StorageType;
use tracing::{debug, info};

use super::Parity;
use super::rounds::BYTES_AT_A_TIME;
use super::volumes::{UnitPlace, answer};

/// On a volume at most one byte is kept for so many that are free.
const FREE_FOR_KEPT: u64 = 4;
/// A group whose members get no new one within this time goes where room presses.
const YIELD_WITHIN: Duration = Duration::from_secs(60);

/// Since when a group keeps data, and since when it is to make room.
#[derive(Clone, Copy, Debug)]
pub struct Kept {
    since: Instant,
    yields: Option<Instant>,
}

/// By group.
pub type KeptSince = HashMap<GroupId, Kept>;

/// A group that keeps data.
#[derive(Debug)]
struct Keeping {
    group: GroupId,
    since: Instant,
    yields: Option<Instant>,
    /// Bytes of its replicas that are there.
    live: u64,
    /// Bytes by storage.
    on: Vec<(Arc<str>, u64)>,
}

impl Keeping {
    fn bytes(&self) -> u64 {
        self.on.iter().map(|(_, bytes)| bytes).sum()
    }
}

/// What is kept of deleted replicas goes from volumes of a type, until there is `enough` room.
pub async fn make_room(
    parity: &Parity,
    store: &StoreState,
    kind: StorageType,
    enough: &mut (dyn FnMut() -> bool + Send),
) {
    let mut volumes = store.volumes();
    volumes.retain(|volume| volume.info.storage_type == kind);
    parity.free_until(&volumes, enough).await;
}

impl Parity {
    /// Whether a replica is only there as what its group can decode, or may soon be: it is damaged
    /// and waits to be mended, or lies on none of the `sound` storages.
    fn is_needed(&self, group: &TableGroup, sound: &HashSet<Arc<str>>) -> bool {
        let record = &group.record;
        let mut members = record.members.iter().zip(&group.members);
        members.any(|(member, state)| {
            !member.dropped
                && (*state == MemberState::Absent
                    || !sound.contains(&member.storage)
                    || self.is_mending(&record.pool, member.block_id, &member.storage))
        })
    }

    /// Storages that answer and whose disks had no error a while ago.
    fn sound_storages(&self) -> HashSet<Arc<str>> {
        let mut places = self.places();
        places.retain(|p| self.answers(&p.volume) && !p.store.is_failing(&p.volume));
        let attended = places.iter().map(|place| Arc::clone(&place.volume.info.id));
        let unattended = self.all_unattended().into_iter();
        let unattended = unattended.filter(|dir| !dir.gone.is_cancelled());
        attended
            .chain(unattended.map(|dir| Arc::clone(&dir.storage)))
            .collect()
    }

    /// Groups that keep data, those that keep most first and then the oldest.
    fn keeping(&self) -> Vec<Keeping> {
        let now = Instant::now();
        let sound = self.sound_storages();
        let mut found = Vec::new();
        let mut known = locks::lock(&self.kept_since);
        let mut still = KeptSince::new();
        let table = self.table();
        let committed = table.iter().filter(|g| g.phase == GroupPhase::Committed);
        for group in committed {
            let members = group.record.members.iter().zip(&group.members);
            let kept = members.filter(|(_, state)| **state == MemberState::Kept);
            let on = kept.map(|(record, _)| (Arc::clone(&record.storage), record.covered));
            let on: Vec<_> = on.collect();
            if on.is_empty() {
                continue;
            }
            let new = Kept {
                since: now,
                yields: None,
            };
            let members = group.record.members.iter().zip(&group.members);
            let live = members.filter(|(_, state)| **state == MemberState::Live);
            let live = live.map(|(record, _)| record.covered).sum();
            let id = group.record.id;
            let Kept { since, yields } = *still
                .entry(id)
                .or_insert_with(|| known.get(&id).copied().unwrap_or(new));
            if !self.is_needed(group, &sound) {
                found.push(Keeping {
                    group: id,
                    since,
                    yields,
                    live,
                    on,
                });
            }
        }
        *known = still;
        found.sort_by_cached_key(|keeping| (Reverse(keeping.bytes()), keeping.since));
        found
    }

    /// Groups that keep data for too long, or too much for what is free, make room: their members
    /// go into new ones, those of a few groups at a time. Where that takes too long and room
    /// presses one group a round goes first.
    pub(crate) async fn yield_kept(&self) {
        let keeping = self.keeping();
        if keeping.is_empty() {
            return;
        }
        let mut too_much = self.too_much_kept(&keeping);
        let marked = keeping.iter().filter(|keeping| keeping.yields.is_some());
        let mut marked: u64 = marked.map(|keeping| keeping.live).sum();
        let (mut to_mark, mut to_go) = (Vec::new(), None);
        for keeping in keeping {
            let mut presses = false;
            for (storage, bytes) in &keeping.on {
                if let Some(more) = too_much.get_mut(storage).filter(|more| **more > 0) {
                    *more = more.saturating_sub(*bytes);
                    presses = true;
                }
            }
            match keeping.yields {
                Some(since) if presses && since.elapsed() >= YIELD_WITHIN => {
                    to_go.get_or_insert(keeping.group);
                }
                None if (presses || keeping.since.elapsed() >= self.config.kept_for)
                    && (marked == 0 || marked + keeping.live <= BYTES_AT_A_TIME) =>
                {
                    marked += keeping.live;
                    to_mark.push(keeping.group);
                }
                _ => {}
            }
        }
        for group in to_mark {
            debug!(%group, "a parity group makes room for what is kept of its deleted replicas");
            if let Some(group) = self.table().get_mut(group) {
                group.given_up = true;
            }
            if let Some(kept) = locks::lock(&self.kept_since).get_mut(&group) {
                kept.yields = Some(Instant::now());
            }
        }
        if let Some(group) = to_go {
            self.let_go(group).await;
        }
    }

    /// Groups that make room have done so for long.
    #[cfg(test)]
    pub(crate) fn yield_long_ago(&self) {
        let long_ago = Instant::now().checked_sub(YIELD_WITHIN);
        for kept in locks::lock(&self.kept_since).values_mut() {
            kept.yields = kept.yields.and(long_ago);
        }
    }

    /// Bytes that are kept on each volume beyond its share of what is free.
    fn too_much_kept(&self, keeping: &[Keeping]) -> HashMap<Arc<str>, u64> {
        let mut kept: HashMap<Arc<str>, u64> = HashMap::new();
        for (storage, bytes) in keeping.iter().flat_map(|keeping| &keeping.on) {
            *kept.entry(Arc::clone(storage)).or_default() += bytes;
        }
        for (storage, bytes) in &mut kept {
            let place = self.place(storage);
            let room = place.map_or(u64::MAX, |place| place.volume.room());
            *bytes = bytes.saturating_sub(room / FREE_FOR_KEPT);
        }
        kept
    }

    /// Removes a group: what is left of it is encoded anew.
    async fn let_go(&self, id: GroupId) {
        let _alone = self.recording.lock().await;
        let sound = self.sound_storages();
        let gone = {
            let mut table = self.table();
            // Nothing may have come to need it meanwhile.
            let may = table
                .get(id)
                .is_some_and(|group| !self.is_needed(group, &sound));
            if may { table.remove(id) } else { None }
        };
        let Some(group) = gone else {
            return;
        };
        info!(group = %id, "a parity group goes to make room: its replicas are encoded anew");
        self.remove_files(&group).await;
        let members = group.record.members.iter().map(|m| &m.storage);
        let parity = group.record.parity.iter().map(|p| &p.storage);
        let storages: HashSet<&Arc<str>> = members.chain(parity).collect();
        for storage in storages {
            if let Some(place) = self.place(storage) {
                read_space(&place).await;
            }
        }
    }

    /// Room for a unit of `bytes` on one of `places`, if what is kept can make it.
    pub(super) async fn free_room(&self, bytes: u64, places: &[UnitPlace]) -> bool {
        let volumes: Vec<_> = places.iter().map(|p| Arc::clone(&p.volume)).collect();
        let roomy = |v: &Arc<Volume>| !v.is_failed() && self.takes_files(v) && v.room() >= bytes;
        self.free_until(&volumes, || volumes.iter().any(roomy))
            .await
    }

    /// Removes groups that keep data on the file systems of `volumes` until there is room enough;
    /// whether there is.
    async fn free_until(&self, volumes: &[Arc<Volume>], mut enough: impl FnMut() -> bool) -> bool {
        let _one = self.yielding.lock().await;
        let keeping = self.keeping();
        if keeping.is_empty() {
            return false;
        }
        // Another may have made room while this one waited.
        if enough() {
            return true;
        }
        let beside = |storage: &Arc<str>| {
            let place = self.place(storage);
            place.is_some_and(|on| volumes.iter().any(|v| v.has_room_of(&on.volume)))
        };
        for keeping in keeping {
            if !keeping.on.iter().any(|(storage, _)| beside(storage)) {
                continue;
            }
            self.let_go(keeping.group).await;
            if enough() {
                return true;
            }
        }
        false
    }
}

/// Reads how much is free on a volume.
async fn read_space(place: &UnitPlace) {
    let meta = place.volume.meta(IoClass::ClientWrite);
    if let Ok(space) = answer(place, meta.space(&place.volume.root)).await {
        place.volume.set_space(space);
    }
}
