//! Units of groups: which file of a group, or which replica, each is.

use std::path::PathBuf;
use std::sync::Arc;

use hayloft_parity::{GroupFile, GroupRecord, MemberState, TableGroup};
use hayloft_store::inside::{Pair, Slot};
use hayloft_wire::ids::PoolId;

use super::read_units::SourcePlace;
use super::volumes::UnitPlace;

/// The storage of a unit.
pub fn storage_of(record: &GroupRecord, unit: usize) -> Option<&Arc<str>> {
    match unit.checked_sub(record.shape.data()) {
        None => record.members.get(unit).map(|m| &m.storage),
        Some(parity) => record.parity.get(parity).map(|p| &p.storage),
    }
}

/// Bytes of a unit that its file has; what is behind them counts as zeros.
pub fn unit_len(record: &GroupRecord, unit: usize) -> u64 {
    match unit.checked_sub(record.shape.data()) {
        None => record.members.get(unit).map_or(0, |m| m.covered),
        Some(_) => record.parity_len(),
    }
}

/// The number of the section with the checksums of a unit; `None` for one of zeros.
pub fn section_of(record: &GroupRecord, unit: usize) -> Option<usize> {
    match unit.checked_sub(record.shape.data()) {
        None => (unit < record.members.len()).then_some(unit),
        Some(parity) => Some(record.members.len() + parity),
    }
}

/// The file that the data of member `unit` is kept in.
pub fn kept_file(record: &GroupRecord, unit: usize) -> GroupFile {
    GroupFile::Kept(record.id, u8::try_from(unit).expect("a unit of a shape"))
}

/// Parity file `n` of a group.
pub fn parity_file(record: &GroupRecord, n: usize) -> GroupFile {
    GroupFile::Parity(record.id, u8::try_from(n).expect("a unit of a shape"))
}

/// The file that has the bytes of a unit now.
pub fn unit_path(group: &TableGroup, unit: usize, place: &SourcePlace) -> Option<PathBuf> {
    let record = &group.record;
    if let Some(parity) = unit.checked_sub(record.shape.data()) {
        return Some(parity_file(record, parity).path(place.root()));
    }
    let id = record.members.get(unit)?.block_id;
    match (group.members.get(unit)?, place) {
        (MemberState::Kept, _) => Some(kept_file(record, unit).path(place.root())),
        (MemberState::Live, SourcePlace::Attended(place)) => replica_path(place, &record.pool, id),
        (MemberState::Live, SourcePlace::Unattended(dir)) => {
            Some(dir.replica_path(&record.pool, id))
        }
        (MemberState::Absent, _) => None,
    }
}

/// The data file of a replica on this volume, in whatever state it is.
fn replica_path(place: &UnitPlace, pool: &PoolId, id: i64) -> Option<PathBuf> {
    let pool = place.store.pool(pool).ok()?;
    match pool.map.get(id)? {
        Slot::Finalized(replica) if replica.volume == place.volume.index => {
            let slice = pool.slice(replica.volume).ok()?;
            Some(Pair::finalized(&slice.paths, id, replica.generation_stamp).data())
        }
        Slot::Live(live) if live.slice.volume.index == place.volume.index => {
            Some(live.pair().data())
        }
        _ => None,
    }
}
