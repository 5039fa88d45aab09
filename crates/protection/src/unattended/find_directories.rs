//! Looks at directories of nodes that do not run here: which there are, and what groups have there.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hayloft_io::{Engine, EngineConfig, IoClass, IoError, IoOp, engine_by_name, locks};
use hayloft_parity::{FileStamp, MemberState, UnitRef};
use hayloft_store::inside::StoreState;
use hayloft_wire::ids::PoolId;
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::{LOOK_WITHIN, Unattended, units_on};
use crate::Parity;
use crate::list_and_clean::{Listed, list_dir};
use crate::read_units::stamp_of;
use crate::unit_files::{kept_file, parity_file};

/// A directory is looked at again after so long: another process may have changed it.
const LOOK_EVERY: Duration = Duration::from_secs(60);

impl Parity {
    /// Looks now and then for directories that groups have units in and no store uses, and at what
    /// lies in those that are known.
    pub(crate) async fn look_at_unattended(self: &Arc<Self>) {
        {
            let mut known = locks::write(&self.unattended);
            if known.looked.is_some_and(|at| at.elapsed() < LOOK_EVERY) {
                return;
            }
            known.looked = Some(Instant::now());
        }
        self.find_unattended().await;
        for dir in self.all_unattended() {
            match dir.is_there().await {
                Some(true) => self.look_into(&dir).await,
                None => {}
                Some(false) => {
                    self.give_up_dir(&dir, "its VERSION is not there, or another storage's")
                }
            }
        }
    }

    /// Storages that groups name and that have no place here, with their directories.
    fn missing_storages(&self) -> HashMap<Arc<str>, Arc<str>> {
        let mut named: HashMap<Arc<str>, (Arc<str>, HashSet<PoolId>)> = HashMap::new();
        {
            let table = self.table();
            for group in table.iter() {
                let record = &group.record;
                let members = record.members.iter().map(|m| (&m.storage, &m.root));
                let parity = record.parity.iter().map(|p| (&p.storage, &p.root));
                for (storage, root) in members.chain(parity) {
                    let new = || (Arc::clone(root), HashSet::new());
                    let known = named.entry(Arc::clone(storage)).or_insert_with(new);
                    known.1.insert(record.pool.clone());
                }
            }
        }
        let missing = named.into_iter().filter(|(storage, (root, pools))| {
            if self.unattended(storage).is_some() {
                return false;
            }
            match self.place(storage) {
                Some(place) => pools.iter().any(|pool| place.store.pool(pool).is_err()),
                // A failed volume of a store: its disk may be read no more.
                None => !self.is_ours(storage, root),
            }
        });
        missing
            .map(|(storage, (root, _))| (storage, root))
            .collect()
    }

    async fn find_unattended(self: &Arc<Self>) {
        let Some(store) = self.stores().into_iter().next() else {
            return;
        };
        for (storage, root) in self.missing_storages() {
            let root = PathBuf::from(&*root);
            let Some(engine) = self.engine_of(&store, &root).await else {
                continue;
            };
            let dir = Unattended {
                disk: self.disk_under(&root, &engine),
                storage,
                root,
                engine,
                answer: self.config.answer,
                gone: CancellationToken::new(),
            };
            let failed = locks::read(&self.unattended)
                .failed_disks
                .contains(&dir.disk);
            if failed || dir.is_there().await != Some(true) {
                continue;
            }
            info!(directory = %dir.root.display(), "a directory of a node that does not run here \
                has units of parity groups: they are read there");
            let dir = Arc::new(dir);
            let mut known = locks::write(&self.unattended);
            known.dirs.insert(Arc::clone(&dir.storage), dir);
        }
    }

    /// An engine that reads a directory; `None` when its disk gives no answer, or none yet.
    async fn engine_of(
        self: &Arc<Self>,
        store: &Arc<StoreState>,
        root: &Path,
    ) -> Option<Arc<dyn Engine>> {
        // One thread waits for a disk that hangs, not one more at each look.
        if !locks::write(&self.unattended).asked.insert(root.to_owned()) {
            return None;
        }
        let (parity, store, root) = (Arc::clone(self), Arc::clone(store), root.to_owned());
        let find = move || {
            let disk = store.disk_under(&root);
            locks::write(&parity.unattended).asked.remove(&root);
            engine_by_name("posix", &EngineConfig::new(disk?))
        };
        let found = tokio::time::timeout(LOOK_WITHIN, tokio::task::spawn_blocking(find));
        found.await.ok()?.ok()?.ok()
    }

    /// Compares the files of a directory with what the groups have there.
    async fn look_into(self: &Arc<Self>, dir: &Arc<Unattended>) {
        let root = dir.root.clone();
        let list = dir
            .engine
            .meta(IoClass::Scan)
            .run(IoOp::List, &root, |root| {
                list_dir(root).map_err(|e| IoError::from_std(IoOp::List, root, &e))
            });
        let Ok(listed) = dir.answer(list).await else {
            return;
        };
        let members = self.note_listed(dir, &listed);
        let wanted: Vec<(UnitRef, PathBuf)> = members
            .iter()
            .map(|(unit, pool, id)| (*unit, dir.replica_path(pool, *id)))
            .collect();
        let look = dir
            .engine
            .meta(IoClass::Scan)
            .run(IoOp::Stat, &root, move |_| {
                let there = wanted
                    .into_iter()
                    .map(|(unit, path)| (unit, stamp_of(&path).ok().flatten()));
                Ok(there.collect::<Vec<(UnitRef, Option<FileStamp>)>>())
            });
        let Ok(stamps) = dir.answer(look).await else {
            return;
        };
        for (unit, now) in stamps {
            let (known, state) = {
                let table = self.table();
                let Some(group) = table.get(unit.group) else {
                    continue;
                };
                let record = &group.record.members[unit.unit];
                ((record.stamp, record.covered), group.members[unit.unit])
            };
            if now == Some(known.0) && state == MemberState::Live {
                continue;
            }
            if state == MemberState::Absent {
                if now.is_none_or(|now| now.len < known.1) {
                    continue;
                }
                self.table().set_member(unit, MemberState::Live);
            }
            self.look_at(unit).await;
        }
    }

    /// Takes note of parity and kept files in a directory; gives the members whose replica may be
    /// there.
    fn note_listed(&self, dir: &Unattended, listed: &Listed) -> Vec<(UnitRef, PoolId, i64)> {
        let mut members = Vec::new();
        let mut table = self.table();
        let groups: Vec<_> = table.iter().map(|group| group.record.id).collect();
        for id in groups {
            let Some(group) = table.get_mut(id) else {
                continue;
            };
            let record = Arc::clone(&group.record);
            // The store that uses the directory knows its own pools.
            if self.attends(&dir.storage, &record.pool) {
                continue;
            }
            for (n, parity) in record.parity.iter().enumerate() {
                if parity.storage == dir.storage {
                    let there = listed.files.contains(&parity_file(&record, n));
                    group.given_up |= group.parity[n] && !there;
                    group.parity[n] = there;
                }
            }
            for unit in units_on(&record, &dir.storage) {
                let member = &record.members[unit.unit];
                match listed.files.contains(&kept_file(&record, unit.unit)) {
                    true => table.set_member(unit, MemberState::Kept),
                    false if member.dropped => {}
                    false => members.push((unit, record.pool.clone(), member.block_id)),
                }
            }
        }
        members
    }
}
