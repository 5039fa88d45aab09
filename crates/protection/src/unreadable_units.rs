//! Units that a disk did not give: parity files and what was kept are looked at, and computed anew
//! or dropped; replicas are suspects.

use std::sync::Arc;
use std::time::Instant;

use hayloft_parity::{MemberState, TableGroup, UnitRef};
use hayloft_store::inside::{Slot, Volume};

use super::Parity;
use super::unit_files::storage_of;

/// Units that are looked at at once; of others the next reader tells again.
pub(super) const LOOKS_MAX: usize = 8;

impl Parity {
    /// A unit could not be read for decoding: it is looked at.
    pub(super) fn note_unreadable(self: &Arc<Self>, group: &TableGroup, unit: usize) {
        let record = &group.record;
        let place = storage_of(record, unit).and_then(|storage| self.place(storage));
        let Some(place) = place.filter(|_| group.available(unit)) else {
            return;
        };
        if group.members.get(unit) == Some(&MemberState::Live) {
            let id = record.members[unit].block_id;
            let pool = place.store.pool(&record.pool);
            if let Ok(pool) = pool
                && let Some(slot @ Slot::Finalized(_)) = pool.map.get(id)
            {
                let block = pool.extended(slot.block(id));
                place.store.mark_unreadable(&block, None);
            }
            return;
        }
        let Ok(turn) = Arc::clone(&self.unreadable).try_acquire_owned() else {
            return;
        };
        let (parity, store) = (Arc::clone(self), Arc::clone(&place.store));
        let at = UnitRef {
            group: record.id,
            unit,
        };
        store.tasks.clone().spawn(async move {
            tokio::select! {
                () = store.stop.cancelled() => {}
                _ = parity.scrub_unit(at) => parity.wake.notify_one(),
            }
            drop(turn);
        });
    }
}

/// Reads parity files and what was kept on a volume, resting after each as many times as long as it
/// took; how many were bad.
pub async fn search_units(parity: &Arc<Parity>, volume: &Volume, rests: u32) -> usize {
    let here: Vec<UnitRef> = {
        let table = parity.table();
        let units = table.iter().flat_map(|group| {
            let on_volume = |unit: &usize| {
                storage_of(&group.record, *unit).is_some_and(|s| *s == volume.info.id)
                    && group.members.get(*unit) != Some(&MemberState::Live)
                    && group.available(*unit)
            };
            let units = (0..group.record.shape.units()).filter(on_volume);
            let group = group.record.id;
            units
                .map(move |unit| UnitRef { group, unit })
                .collect::<Vec<_>>()
        });
        units.collect()
    };
    let mut bad = 0;
    for unit in here {
        let began = Instant::now();
        bad += usize::from(parity.scrub_unit(unit).await);
        tokio::time::sleep(began.elapsed() * rests).await;
    }
    if bad > 0 {
        parity.wake.notify_one();
    }
    bad
}
