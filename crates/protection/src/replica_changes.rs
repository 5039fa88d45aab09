//! Hooks: what a change of a replica means for its groups. Called with the right to the block,
//! before its files change.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use hayloft_io::{IoError, IoErrorKind, IoOp, locks};
use hayloft_parity::{GroupFile, KeepData, MemberChange, MemberState, PARITY_DIR, UnitRef};
use hayloft_store::StoreError;
use hayloft_store::inside::{BlockPoolSlice, LiveReplica, StoreState, Volume, make_dir, sync_file};
use hayloft_wire::ids::PoolId;
use tracing::warn;

use super::Parity;
use super::bytes_until_encoded::RecentKey;
use super::unit_files::kept_file;

/// Keeps what groups still need of the data of a replica on `volume`, whose data file is at `data`,
/// before that file leaves its place or is cut. Where that fails, the unit is lost and the change
/// goes on: a client does not wait for parity.
pub async fn before_change(
    parity: &Parity,
    store: &Arc<StoreState>,
    pool: &PoolId,
    (id, volume): (i64, &Arc<Volume>),
    data: std::path::PathBuf,
    change: MemberChange,
) {
    let storage = &volume.info.id;
    parity.recent.forget(&RecentKey {
        storage: Arc::clone(storage),
        pool: pool.clone(),
        id,
    });
    let keep = parity
        .table()
        .change(pool, id, storage, change, parity.config.kept_max);
    for kept in keep {
        let file = {
            let table = parity.table();
            let group = table.get(kept.unit.group);
            group.map(|group| kept_file(&group.record, kept.unit.unit))
        };
        let Some(file) = file else { continue };
        let known = !parity.takes_files(volume);
        if !parity.answers(volume) {
            parity.table().set_member(kept.unit, MemberState::Absent);
            continue;
        }
        if let Err(error) = keep_data(volume, &data, file, kept).await {
            let place = parity.place_on(store, volume);
            if error.kind() != IoErrorKind::NotFound {
                let refusal = StoreError::io("keeping data of a parity group", error.clone());
                parity.note_refusal(&place, &refusal);
            }
            if !known {
                warn!(block = id, %error, "data that a parity group needs cannot be kept: the \
                    group lacks a unit until its replicas are encoded anew");
            }
            parity.table().set_member(kept.unit, MemberState::Absent);
        }
    }
    parity.wake.notify_one();
}

/// Gives the data a second name, or copies it when the file is changed in place.
async fn keep_data(
    volume: &Volume,
    data: &Path,
    file: GroupFile,
    kept: KeepData,
) -> Result<(), IoError> {
    let to = file.path(&volume.root);
    let dir = volume.root.join(PARITY_DIR);
    let meta = volume.meta(hayloft_io::IoClass::ClientWrite);
    let work = meta
        .that_syncs(kept.copy)
        .run(IoOp::Link, data, move |from| {
            let failed = |e: std::io::Error| IoError::from_std(IoOp::Link, from, &e);
            make_dir(&dir).map_err(failed)?;
            match std::fs::remove_file(&to) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(failed(e)),
                _ => {}
            }
            if !kept.copy {
                return std::fs::hard_link(from, &to).map_err(failed);
            }
            let temporary = to.with_file_name(format!("{}.tmp", file.name()));
            let copied = copy_data(from, &temporary, kept.covered);
            let named = copied.and_then(|()| std::fs::rename(&temporary, &to));
            named.map_err(|e| {
                // No round looks for it before the next start.
                let _ = std::fs::remove_file(&temporary);
                failed(e)
            })
        });
    work.await
}

/// Copies the data that a group covers, durably.
fn copy_data(from: &Path, to: &Path, covered: u64) -> std::io::Result<()> {
    let copied = hayloft_io::patiently(|| std::fs::copy(from, to))?;
    if copied < covered {
        let text = format!("it has {copied} bytes, its group covers {covered}");
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, text));
    }
    sync_file(to)
}

/// A client writes: new groups wait.
pub fn note_write(parity: &Parity) {
    *locks::lock(&parity.wrote) = Some(Instant::now());
}

/// What a write of a live replica may leave in memory for its group: `data`, whose memory others
/// wait for. `None` where it is of no use: without a budget, or when the page cache has it.
pub fn keep_written(parity: &Parity, live: &LiveReplica, data: &[Bytes]) -> Option<Vec<Bytes>> {
    let volume = &live.slice.volume;
    let around = !volume.engine.capabilities().page_cache;
    let wanted = parity.recent.is_on();
    let lasting = !volume.info.storage_type.is_transient();
    (wanted && around && lasting).then(|| data.to_vec())
}

/// A live replica has got `data` at `offset`.
pub fn written(parity: &Parity, live: &LiveReplica, offset: u64, data: &[Bytes]) {
    let expected = live.expected_len();
    let key = recent_key(&live.slice, live.id);
    parity.recent.written(&key, (offset, expected), data);
}

/// A replica was finalized with `len` bytes.
pub fn finalized(parity: &Parity, live: &LiveReplica, len: u64) {
    let key = recent_key(&live.slice, live.id);
    parity.recent.finalized(&key, len);
    parity.wake.notify_one();
}

/// What a replica is called in memory.
pub fn recent_key(slice: &BlockPoolSlice, id: i64) -> RecentKey {
    RecentKey {
        storage: Arc::clone(&slice.volume.info.id),
        pool: slice.pool.clone(),
        id,
    }
}

impl Parity {
    /// The unit of a replica on a volume that is in a group which protects all of it.
    pub fn covers(&self, pool: &PoolId, id: i64, storage: &str, len: u64) -> Option<UnitRef> {
        let cover = self.table().cover(pool, id, storage);
        cover
            .filter(|(_, covered)| *covered == len)
            .map(|(unit, _)| unit)
    }
}
