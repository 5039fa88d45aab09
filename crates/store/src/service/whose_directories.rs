//! What lies in the configured directories, before anything is written to any of them: whose they
//! are, and which of them cannot be used.
//!
//! A directory that cannot be used is a failed volume. Which node and cluster the others are of is
//! decided by evidence, not by their order: a disk of another host in the first place must not give
//! the node that host's identity.

use std::cmp::Reverse;
use std::path::{Path, PathBuf};

use hayloft_io::{locks, mount_of};

use crate::config::VolumeConfig;
use crate::error::{StoreError, StoreErrorKind};
use crate::identity::StoreIdentity;
use crate::layout::dirs::read_small;
use crate::layout::names::{CURRENT, VERSION};
use crate::layout::version::{VERSION_BYTES_MAX, VersionError, VolumeVersion, is_volume};
use crate::state::StoreState;
use crate::volume::OpenedVolume;
use crate::volume::remembered_storages::NodeMemory;

/// What VERSION of a directory says.
#[derive(Clone, Debug)]
enum Found {
    /// There is none: a new directory.
    New,
    /// The identity of a volume.
    Of(VolumeVersion),
    /// It cannot be used, and why; whether it is only damaged.
    Unusable(String, bool),
    /// There is none, and the replicas of other nodes lie above or below; what to do.
    Misplaced(String),
    /// It could not be read: opening the volume tells why.
    Unknown,
}

/// A look at a configured directory.
#[derive(Clone, Debug)]
pub struct Look {
    /// What the configuration says.
    pub config: VolumeConfig,
    found: Found,
    /// What it remembers of the node's storages.
    memory: Option<NodeMemory>,
    /// Where the file system that it lies on, or would be made on, is mounted.
    mount: Option<PathBuf>,
}

/// Looks at all of them side by side. One that gives no answer in time is left to its opening.
pub async fn look_at_all(store: &StoreState) -> Vec<Look> {
    let looks = store.config.volumes.iter().map(|v| look_at(store, v));
    futures_util::future::join_all(looks).await
}

/// Looks at one.
pub async fn look_at(store: &StoreState, config: &VolumeConfig) -> Look {
    let (own, all) = (config.clone(), locks::lock(&store.configured).clone());
    let is_virtual = store.shared.file_systems.are_shared();
    let look = tokio::task::spawn_blocking(move || Look::now(own, &all, is_virtual));
    let answer = tokio::time::timeout(store.config.check_timeout, look).await;
    let look = answer.ok().and_then(Result::ok);
    look.unwrap_or_else(|| Look {
        config: config.clone(),
        found: Found::Unknown,
        memory: None,
        mount: None,
    })
}

fn read_version(root: &Path) -> Found {
    match read_small(&root.join(CURRENT).join(VERSION), VERSION_BYTES_MAX) {
        Ok(None) => Found::New,
        Ok(Some(bytes)) => match VolumeVersion::parse(&bytes) {
            Ok(version) => Found::Of(version),
            Err(VersionError::Missing(_)) if bytes.iter().all(u8::is_ascii_whitespace) => {
                Found::Unusable("is empty, as a power cut may leave it".to_owned(), true)
            }
            Err(error) => {
                let damaged = !matches!(error, VersionError::Layout(_));
                Found::Unusable(format!("cannot be used: {error}"), damaged)
            }
        },
        Err(e) if e.kind() == std::io::ErrorKind::InvalidData => {
            Found::Unusable(format!("cannot be used: {e}"), true)
        }
        Err(_) => Found::Unknown,
    }
}

/// Entries of a data directory that are looked at.
const ENTRIES_MAX: usize = 10_000;

/// Names of the directories below a data directory that a virtual node has used, in order. Those
/// that are `configured` by themselves are not such. Blocking.
#[must_use]
pub fn nodes_below(root: &Path, configured: &[PathBuf]) -> Vec<String> {
    // A directory that cannot be read is a failed volume.
    let entries = std::fs::read_dir(root).into_iter().flatten();
    let paths = entries.take(ENTRIES_MAX).filter_map(Result::ok);
    let used = |path: &PathBuf| !configured.contains(path) && is_volume(path);
    let mut names: Vec<String> = paths
        .map(|entry| entry.path())
        .filter(used)
        .filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()))
        .collect();
    names.sort_unstable();
    names
}

/// Why a directory without VERSION is not simply new: a host with virtual nodes has used it, or one
/// without them the directory above.
fn misplaced(root: &Path, configured: &[PathBuf], is_virtual: bool) -> Option<String> {
    let todo = "take the directory out of dfs.datanode.data.dir, or move its contents away";
    if is_virtual {
        let above = root.parent().filter(|above| is_volume(above))?.display();
        return Some(format!(
            "{above} holds the replicas of a node that is not virtual: if they are this host's, \
             move 'current' into the directory of one virtual node; else {todo}"
        ));
    }
    let below = nodes_below(root, configured);
    let shown = root.display();
    let text = || {
        format!(
            "{shown} holds the replicas of the virtual nodes {}: {todo}",
            below.join(", ")
        )
    };
    (!below.is_empty()).then(text)
}

/// The mount point above a path that need not exist.
fn mount_above(path: &Path) -> Option<PathBuf> {
    let there = path.ancestors().find(|dir| dir.exists())?;
    Some(mount_of(there).ok()?.point)
}

/// Directories that say the same of whose they are.
struct Claim<'a> {
    identity: StoreIdentity,
    /// Those that remember to have been in this place of this host.
    at_home: usize,
    directories: Vec<&'a Path>,
}

impl Claim<'_> {
    fn weight(&self) -> (usize, usize) {
        (self.at_home, self.directories.len())
    }
}

/// Whose the directories are; `None` when all are new. The directories decide that remember to have
/// been in their places of this host, then the number of those that agree.
///
/// # Errors
/// `Incompatible` when they are of different nodes and nothing tells which of them is this host's.
pub fn whose(looks: &[Look]) -> Result<Option<StoreIdentity>, StoreError> {
    let mut claims: Vec<Claim<'_>> = Vec::new();
    for look in looks {
        let Found::Of(version) = &look.found else {
            continue;
        };
        let identity = StoreIdentity {
            datanode_uuid: version.datanode_uuid.clone(),
            cluster_id: version.cluster_id.clone(),
        };
        let path = look.config.path.as_path();
        let memory = look.memory.as_ref();
        let at_home = usize::from(memory.is_some_and(|m| m.is_at_home(path, version)));
        match claims.iter_mut().find(|claim| claim.identity == identity) {
            Some(claim) => {
                claim.directories.push(path);
                claim.at_home += at_home;
            }
            None => claims.push(Claim {
                identity,
                at_home,
                directories: vec![path],
            }),
        }
    }
    // One whose VERSION is damaged may remember all the same whose it was, in this place.
    for look in looks
        .iter()
        .filter(|look| !matches!(look.found, Found::Of(_)))
    {
        let memory = look.memory.as_ref();
        let Some(uuid) = memory.and_then(|memory| memory.home_of(&look.config.path)) else {
            continue;
        };
        let own = |claim: &&mut Claim<'_>| claim.identity.datanode_uuid == uuid;
        if let Some(claim) = claims.iter_mut().find(own) {
            claim.at_home += 1;
        } else if !claims.is_empty() {
            return Err(only_others(&look.config.path, uuid, &claims));
        }
    }
    claims.sort_by_key(|claim| Reverse(claim.weight()));
    match &claims[..] {
        [] => Ok(None),
        [first, second, ..] if first.weight() == second.weight() => Err(undecided(first, second)),
        [first, ..] => Ok(Some(first.identity.clone())),
    }
}

fn undecided(one: &Claim<'_>, other: &Claim<'_>) -> StoreError {
    let told = |claim: &Claim<'_>| {
        let directories = claim
            .directories
            .iter()
            .map(|dir| dir.display().to_string());
        format!(
            "{} (datanodeUuid {}, clusterID {})",
            directories.collect::<Vec<_>>().join(", "),
            claim.identity.datanode_uuid,
            claim.identity.cluster_id
        )
    };
    StoreError::incompatible(format!(
        "the directories belong to different DataNodes, and nothing tells which of them is this \
         host's: {}, and {}. Take those of the other one out of dfs.datanode.data.dir",
        told(one),
        told(other)
    ))
}

/// The refusal where a directory of this host is damaged, and all the others are of other nodes.
fn only_others(path: &Path, uuid: &str, claims: &[Claim<'_>]) -> StoreError {
    let others = claims.iter().flat_map(|claim| &claim.directories);
    let others: Vec<String> = others.map(|dir| dir.display().to_string()).collect();
    StoreError::incompatible(format!(
        "{} is of this host's DataNode {uuid} and has no {VERSION} that can be used; {} belong to \
         others: take those out of dfs.datanode.data.dir, or restore {VERSION}",
        path.display(),
        others.join(", ")
    ))
}

/// Takes over what the directories of the node remember.
pub fn recall(store: &StoreState, looks: &[Look]) {
    let uuid = store.identity().datanode_uuid.clone();
    if let Some(memory) = remembered(looks, &uuid) {
        *locks::lock(&store.memory) = memory;
    }
}

/// What the directories of a node remember.
#[must_use]
pub fn remembered(looks: &[Look], datanode_uuid: &str) -> Option<NodeMemory> {
    let memories = looks.iter().filter_map(|look| look.memory.as_ref());
    NodeMemory::newest(memories, datanode_uuid)
}

impl Look {
    /// Looks at a directory among those that are `configured`. Blocking.
    #[must_use]
    pub fn now(config: VolumeConfig, configured: &[PathBuf], is_virtual: bool) -> Self {
        let root = &config.path;
        let found = match read_version(root) {
            Found::New => match misplaced(root, configured, is_virtual) {
                Some(text) => Found::Misplaced(text),
                None => Found::New,
            },
            found => found,
        };
        let (memory, mount) = (NodeMemory::read(root), mount_above(root));
        Self {
            config,
            found,
            memory,
            mount,
        }
    }

    /// Why the directory cannot be a volume of this node, whose identity is known by now. Nothing
    /// may be written to it then.
    ///
    /// # Errors
    /// `Incompatible`, with what to do.
    pub fn check(&self, store: &StoreState) -> Result<(), StoreError> {
        let memory = locks::lock(&store.memory).clone();
        self.fits(&memory, &mut store.identity())
    }

    /// The same of a node that is this one and remembers so much.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn fits(&self, memory: &NodeMemory, node: &mut StoreIdentity) -> Result<(), StoreError> {
        let path = &self.config.path;
        let known = memory.storage(path);
        match &self.found {
            Found::Unknown => Ok(()),
            Found::Misplaced(text) => Err(StoreError::incompatible(text)),
            Found::Of(version) => node.adopt(path, version),
            Found::Unusable(why, damaged) => {
                let again = match known {
                    Some(known) if *damaged => format!(
                        ": copy that of another data directory to it and set storageID={} there",
                        known.storage_id
                    ),
                    None if *damaged => ": restore it from a backup".to_owned(),
                    _ => String::new(),
                };
                Err(StoreError::incompatible(format!(
                    "{}: {CURRENT}/{VERSION} {why}{again}, or move the contents of the directory \
                     away to have its blocks copied here again",
                    path.display()
                )))
            }
            Found::New => match (known, &self.mount) {
                (Some(known), Some(now)) if is_gone(&known.mount, now) => {
                    Err(StoreError::incompatible(format!(
                        "{}: nothing is mounted on {} any more, where this node's storage {} lay: \
                         mount its disk, or an empty file system. If the directory is to begin \
                         anew without a mount, take it out of dfs.datanode.data.dir, reconfigure \
                         or start the node, and put it back",
                        path.display(),
                        known.mount.display(),
                        known.storage_id
                    )))
                }
                _ => Ok(()),
            },
        }
    }
}

impl Look {
    /// Why the directory cannot be a volume of this node, now that it is open: of one that the look
    /// could not read it is known only now whose it is.
    ///
    /// # Errors
    /// `Incompatible` when it is of another node; `Io` when it has no VERSION, and it is not known
    /// whether it ever had one.
    pub fn confirm(&self, store: &StoreState, opened: &OpenedVolume) -> Result<(), StoreError> {
        match (&self.found, &opened.version) {
            (_, Some(version)) => store.identity().adopt(&self.config.path, version),
            (Found::Unknown, None) => Err(StoreError::new(
                StoreErrorKind::Io,
                format!(
                    "{}: it could not be read at first, and has no {VERSION} now: whether it is \
                     new is not known. Look at its disk, and start the node again",
                    self.config.path.display()
                ),
            )),
            (_, None) => Ok(()),
        }
    }
}

/// Whether a directory that lay on the file system mounted on `then` lies on that of a directory
/// above it `now`.
fn is_gone(then: &Path, now: &Path) -> bool {
    then != now && then.starts_with(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_gone_when_the_directory_lies_on_that_above() {
        let gone = |then: &str, now: &str| is_gone(Path::new(then), Path::new(now));
        assert!(gone("/data/1", "/") && gone("/data/1", "/data"));
        // The same mount, a deeper one, one elsewhere by a link; none that was one.
        assert!(!gone("/data/1", "/data/1") && !gone("/data", "/data/1"));
        assert!(!gone("/data/1", "/mnt") && !gone("/", "/"));
    }
}
