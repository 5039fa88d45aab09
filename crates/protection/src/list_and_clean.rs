//! Listing what lies on a volume, and removing what no record names.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hayloft_io::{IoClass, IoError, IoOp, Means, locks};
use hayloft_parity::{
    GroupFile, GroupId, GroupPhase, GroupRecord, MemberState, PARITY_DIR, RecordError, TableGroup,
};
use hayloft_store::inside::{LACKING, Pool};
use hayloft_wire::ids::PoolId;
use tracing::{info, warn};

use super::volumes::UnitPlace;
use super::{Parity, record_copies};

/// Names in the directory of a volume that are looked at; a group has a few.
const NAMES_MAX: usize = 4 << 20;

/// No task writes a file under a name for the time being for so long.
const LEFTOVER: Duration = Duration::from_secs(3600);

/// A record that outlived its group is removed after so long where a disk was exchanged.
const OUTLIVED: Duration = Duration::from_secs(3600);

/// Files that could not be removed are looked for again after so long.
const CLEAN_AGAIN: Duration = Duration::from_secs(60);

/// A volume that is listed for longer than so many answers may take gives none.
const LISTING_ANSWERS: u32 = 10;

/// What one volume holds of groups.
#[derive(Debug)]
pub struct Listed {
    /// Files of groups, also records that cannot be read.
    pub files: HashSet<GroupFile>,
    /// The newest heads of the records among them.
    pub records: HashMap<GroupId, GroupRecord>,
    /// Groups that a later Hayloft made, by their records: their files wait for it.
    later: HashSet<GroupId>,
    /// Files under names for the time being that are so old that no task writes them.
    leftovers: Vec<PathBuf>,
    /// The directory could not be listed.
    pub unknown: bool,
}

impl Listed {
    fn new(unknown: bool) -> Self {
        Self {
            files: HashSet::new(),
            records: HashMap::new(),
            later: HashSet::new(),
            leftovers: Vec::new(),
            unknown,
        }
    }
}

/// Lists what lies in a directory; blocking.
pub fn list_dir(root: &Path) -> std::io::Result<Listed> {
    let mut listed = Listed::new(false);
    let mut heads = HashMap::new();
    let dir = root.join(PARITY_DIR);
    let entries = match hayloft_io::patiently(|| std::fs::read_dir(&dir)) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(listed),
        entries => entries?,
    };
    for entry in entries.take(NAMES_MAX) {
        let entry = entry?;
        let name = entry.file_name();
        if entry.path().extension().is_some_and(|e| e == "tmp") {
            let changed = entry.metadata()?.modified()?;
            if changed.elapsed().is_ok_and(|age| age > LEFTOVER) {
                listed.leftovers.push(entry.path());
            }
            continue;
        }
        let Some(file) = name.to_str().and_then(GroupFile::parse) else {
            continue;
        };
        if let GroupFile::Record(group) | GroupFile::Head(group) = file {
            let into = match file {
                GroupFile::Record(_) => &mut listed.records,
                _ => &mut heads,
            };
            let path = dir.join(&name);
            match record_copies::read_head(&path) {
                Ok(record) if record.id == group => {
                    into.insert(group, record);
                }
                Ok(_) => warn!(path = %path.display(), "a parity record of another group"),
                Err(error) if Means::lacking(&error).is_some() => return Err(error),
                Err(error) if is_later(&error) => {
                    listed.later.insert(group);
                }
                Err(error) => {
                    warn!(path = %path.display(), %error, "a parity record cannot be used; its \
                        other copies are");
                }
            }
        }
        listed.files.insert(file);
    }
    for (group, head) in heads {
        let copy = listed.records.get_mut(&group);
        if let Some(copy) = copy.filter(|c| c.same_sections(&head) && c.revision < head.revision) {
            *copy = head;
        }
    }
    Ok(listed)
}

fn is_later(error: &std::io::Error) -> bool {
    let record = error.get_ref().and_then(|inner| inner.downcast_ref());
    matches!(record, Some(RecordError::Later(_)))
}

/// Lists a volume; `None` when it cannot be: then it takes no files for a while.
async fn try_to_list(parity: &Parity, place: &UnitPlace) -> Option<Listed> {
    let root = place.volume.root.clone();
    let meta = place.volume.meta(IoClass::ClientRead);
    // However many files there are.
    let limit = tokio::time::sleep(parity.config.answer.saturating_mul(LISTING_ANSWERS));
    tokio::pin!(limit);
    let listed = loop {
        let listed = meta.run(IoOp::List, &root, |root| {
            list_dir(root).map_err(|e| IoError::from_std(IoOp::List, root, &e))
        });
        let listed = tokio::select! {
            biased;
            listed = listed => listed,
            () = place.gone() => return None,
            () = &mut limit => {
                place.troubles.note_hang(&place.store, &place.volume);
                return None;
            }
        };
        match listed {
            Err(error) if error.lacks().is_some() => tokio::time::sleep(LACKING).await,
            listed => break listed,
        }
    };
    let refused = |e| parity.refused(place, "looking for parity groups", e);
    listed.map_err(refused).ok()
}

impl Parity {
    /// Lists a volume. One that cannot be is listed again later; until then nothing of groups
    /// is known to be there.
    pub(super) async fn list_volume(&self, place: &UnitPlace) -> Listed {
        let storage = &place.volume.info.id;
        if let Some(listed) = try_to_list(self, place).await {
            locks::lock(&self.unlisted).remove(storage);
            if !listed.later.is_empty() {
                let (dir, groups) = (place.volume.root.join(PARITY_DIR), listed.later.len());
                warn!(dir = %dir.display(), groups, "parity of a later Hayloft stays and protects \
                    nothing now: start that version, or stop the node and delete this directory");
            }
            return listed;
        }
        locks::lock(&self.unlisted).insert(Arc::clone(storage));
        Listed::new(true)
    }

    /// Lists volumes again that could not be listed.
    pub(super) async fn list_again(self: &Arc<Self>) {
        let unlisted = locks::lock(&self.unlisted).clone();
        for storage in unlisted {
            let Some(place) = self.place(&storage) else {
                // It has failed, or its store has ended.
                locks::lock(&self.unlisted).remove(&storage);
                continue;
            };
            if !self.takes_files(&place.volume) {
                continue;
            }
            let listed = self.list_volume(&place).await;
            if listed.unknown {
                continue;
            }
            let listed = (storage, (place, listed));
            self.take_in_late(listed);
        }
    }

    /// Files that stay are looked for again.
    pub(super) fn clean_later(&self) {
        let mut at = locks::lock(&self.clean_at);
        if at.is_none() {
            *at = Some(Instant::now() + CLEAN_AGAIN);
        }
    }

    /// A pool has joined, or a volume: files that no record names are looked for.
    pub(super) fn clean_soon(&self) {
        *locks::lock(&self.clean_at) = Some(Instant::now());
    }

    /// Removes files of groups that no record names, once all groups are known.
    pub(super) async fn clean(&self) {
        let stores = self.stores();
        let failed: usize = stores.iter().map(|s| s.failed_volumes()).sum();
        if !self.knows_all() || failed > self.config.shape.parity() {
            return;
        }
        {
            let mut at = locks::lock(&self.clean_at);
            if at.is_none_or(|at| at > Instant::now()) {
                return;
            }
            *at = None;
        }
        let mut lists = Vec::new();
        let mut named = HashSet::new();
        let loaded: HashSet<PoolId> = stores
            .iter()
            .flat_map(|s| s.pools())
            .map(|p| p.id().clone())
            .collect();
        let places = self.places();
        if places.iter().any(|place| !self.answers(&place.volume)) {
            self.clean_later();
            return;
        }
        for place in places {
            let Some(listed) = try_to_list(self, &place).await else {
                // What it has may name files of others.
                self.clean_later();
                return;
            };
            let unloaded = listed.records.values();
            let unloaded = unloaded.filter(|r| !loaded.contains(&r.pool));
            named.extend(unloaded.map(|r| r.id));
            named.extend(&listed.later);
            lists.push((place, listed));
        }
        for (place, listed) in lists {
            for leftover in &listed.leftovers {
                self.unlink(&place, leftover).await;
            }
            for file in listed.files {
                if !named.contains(&file.group()) && !self.needs(file, &place) {
                    self.unlink(&place, &file.path(&place.volume.root)).await;
                }
            }
        }
    }

    /// Groups that were dissolved while a volume kept a copy of their record: what the copy says of
    /// their members is out of date, and they would count as lost for ever. They count for nothing
    /// at once, and go when nothing can come back. A disk that dies later tells nothing new.
    pub(super) async fn dissolve_leftovers(&self) {
        let mut gone = Vec::new();
        let places = self.places();
        {
            let mut table = self.table();
            let suspects = table.iter().filter(|group| group.lacks_copy);
            let goes_after = |group: &TableGroup| (group.record.id, self.outlived(group, &places));
            let judged: Vec<_> = suspects.map(goes_after).collect();
            for (id, goes_after) in judged {
                let Some(group) = table.get_mut(id) else {
                    continue;
                };
                if group.decodes() {
                    // It was not dissolved.
                    group.lacks_copy = false;
                    group.leftover = None;
                }
                let Some(goes_after) = goes_after else {
                    continue;
                };
                if group.leftover.is_none() {
                    info!(group = %id, goes_after_s = goes_after.as_secs(), "a parity record has \
                        outlived its group: its members do not count");
                }
                let since = *group.leftover.get_or_insert_with(Instant::now);
                if since.elapsed() >= goes_after {
                    gone.push(id);
                }
            }
        }
        for group in gone {
            self.dissolve(group).await;
        }
    }

    /// After how long a group goes whose record outlived it: a volume has no copy of the record
    /// where there should be one, and what the group has decodes nothing, also with what a disk has
    /// that may come back. `None` where it is not known.
    ///
    /// It goes at once where too many units are not on their own storages, which are there. A
    /// directory that stands for an exchanged disk may be given that disk again.
    fn outlived(&self, group: &TableGroup, places: &[UnitPlace]) -> Option<Duration> {
        let record = &group.record;
        let committed = group.phase == GroupPhase::Committed;
        if !committed || group.decodes() || !locks::lock(&self.unlisted).is_empty() {
            return None;
        }
        let members = record.members.iter().map(|m| (&m.storage, &m.root));
        let parity = record.parity.iter().map(|p| (&p.storage, &p.root));
        let units = members.enumerate();
        let units = units.chain((record.shape.data()..).zip(parity));
        let loaded = |place: &UnitPlace| {
            let pool = place.store.pool(&record.pool);
            let known = |pool: &Arc<Pool>| pool.protection_known.load(Ordering::Acquire);
            let has_slice = place.volume.slice(&record.pool).is_some();
            pool.is_ok_and(|pool| known(&pool)) && has_slice && self.answers(&place.volume)
        };
        let (mut gone, mut away) = (0, false);
        for (unit, (storage, root)) in units {
            let own = places.iter().find(|p| p.volume.info.id == *storage);
            if own.is_some_and(loaded) {
                gone += usize::from(!group.available(unit));
            } else {
                let in_its_place = |p: &&UnitPlace| p.volume.root == Path::new(&**root);
                let exchanged =
                    own.is_none() && places.iter().find(in_its_place).is_some_and(loaded);
                away |= !exchanged;
            }
        }
        match gone > record.shape.parity() {
            true => Some(Duration::ZERO),
            false => (!away).then_some(OUTLIVED),
        }
    }

    /// Whether a group has this file, or may have.
    fn needs(&self, file: GroupFile, place: &UnitPlace) -> bool {
        let table = self.table();
        let Some(group) = table.get(file.group()) else {
            return false;
        };
        let storage = &place.volume.info.id;
        match file {
            GroupFile::Record(_) | GroupFile::Head(_) => {
                group.record.copies.is_empty() || group.record.copies.contains(storage)
            }
            GroupFile::Parity(_, n) => {
                let target = group.record.parity.get(usize::from(n));
                target.is_some_and(|target| target.storage == *storage)
            }
            GroupFile::Kept(_, unit) => {
                group.members.get(usize::from(unit)) == Some(&MemberState::Kept)
            }
        }
    }
}
