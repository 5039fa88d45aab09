//! Listing what lies on a volume, and removing what no record names.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use hayloft_io::{IoClass, IoError, IoOp, Means};
use hayloft_parity::{GroupFile, GroupId, GroupRecord, MemberState, PARITY_DIR};
use hayloft_wire::ids::PoolId;
use tracing::warn;

use super::volumes::{UnitPlace, answer};
use super::{Parity, records};
use crate::lifecycle::volume_failure::LACKING;
use crate::locks;

/// Names in the directory of a volume that are looked at; a group has a few.
const NAMES_MAX: usize = 4 << 20;

/// No task writes a file under a name for the time being for so long.
const LEFTOVER: Duration = Duration::from_secs(3600);

/// What one volume holds of groups.
#[derive(Debug)]
pub struct Listed {
    /// Files of groups, also records that cannot be read.
    pub files: HashSet<GroupFile>,
    /// The newest heads of the records among them.
    pub records: HashMap<GroupId, GroupRecord>,
    /// Files under names for the time being that are so old that no task writes them.
    leftovers: Vec<PathBuf>,
}

fn list(root: &Path) -> std::io::Result<Listed> {
    let mut listed = Listed {
        files: HashSet::new(),
        records: HashMap::new(),
        leftovers: Vec::new(),
    };
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
            match records::read_head(&path) {
                Ok(record) if record.id == group => {
                    into.insert(group, record);
                }
                Ok(_) => warn!(path = %path.display(), "a parity record of another group"),
                Err(error) if Means::lacking(&error).is_some() => return Err(error),
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

/// Lists a volume; `None`, with a line in the log, when it cannot be.
pub async fn list_volume(place: &UnitPlace) -> Option<Listed> {
    let root = place.volume.root.clone();
    let meta = place.volume.meta(IoClass::ClientRead);
    let listed = loop {
        let listed = meta.run(IoOp::List, &root, |root| {
            list(root).map_err(|e| IoError::from_std(IoOp::List, root, &e))
        });
        match answer(&place.volume, listed).await {
            Err(error) if error.lacks().is_some() => tokio::time::sleep(LACKING).await,
            listed => break listed,
        }
    };
    match listed {
        Ok(listed) => Some(listed),
        Err(error) => {
            let error = place.failed("looking for parity groups", error);
            warn!(volume = %place.volume.root.display(), %error, "parity on a volume is not known");
            None
        }
    }
}

impl Parity {
    /// Removes files of groups that no record names, once, when all stores have their pools and all
    /// groups are known.
    pub(super) async fn clean_once(&self) {
        let stores = self.stores();
        let ready = self.is_ready();
        let failed: usize = stores
            .iter()
            .map(|s| locks::read(&s.volumes).failed.len())
            .sum();
        if !ready || self.cleaned.load(Ordering::Relaxed) || failed > self.config.shape.parity() {
            return;
        }
        self.cleaned.store(true, Ordering::Relaxed);
        let mut lists = Vec::new();
        let mut named = HashSet::new();
        for place in self.places() {
            let Some(listed) = list_volume(&place).await else {
                continue;
            };
            let loaded: HashSet<PoolId> = stores
                .iter()
                .flat_map(|s| s.pools())
                .map(|p| p.id().clone())
                .collect();
            let unloaded = listed.records.values();
            let unloaded = unloaded.filter(|r| !loaded.contains(&r.pool));
            named.extend(unloaded.map(|r| r.id));
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
