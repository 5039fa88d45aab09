//! Taking a snapshot.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use futures_util::{StreamExt as _, TryStreamExt as _};
use hayloft_wire::ids::{Block, PoolId};
use serde::Serialize;
use tracing::warn;

use crate::SnapshotProgress;
use crate::catalog::{self, Stored};
use crate::claim::{Claim, ClaimFor};
use crate::error::{SnapshotError, SnapshotErrorKind};
use crate::manifest::{Manifest, ManifestHeader, ManifestReplica, ManifestStorage};
use crate::names::{BlockName, is_node, snapshot_name, taken_at};
use crate::rate::Rate;
use crate::source::{LocalReplica, NodeReplicas, ReadFailure, Replicas};
use crate::target::Target;
use crate::upload::{Uploaded, Way};

/// Replicas that are on their way at a time, at most.
const AT_ONCE_MAX: usize = 32;
/// A clock that was so far ahead of this one, in milliseconds, is worth a word.
const AHEAD_MS: u64 = 60_000;
/// Problems that a report names; the others are counted.
pub const PROBLEMS_MAX: usize = 100;

/// How a snapshot is taken.
#[derive(Debug)]
pub struct CreateOptions {
    /// Name of the host, for people.
    pub host: String,
    /// Bytes a second.
    pub rate: Rate,
    /// Replicas on their way at a time.
    pub at_once: usize,
    /// Milliseconds since 1970.
    pub now_ms: u64,
}

/// What came of it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CreateReport {
    /// Uuid of the node.
    pub node: String,
    /// The snapshot's name.
    pub snapshot: String,
    /// Replicas in it.
    pub replicas: u64,
    /// Bytes of these, data and meta files.
    pub bytes: u64,
    /// Replicas whose files were written to the store now, and their bytes.
    pub uploaded_replicas: u64,
    /// Likewise.
    pub uploaded_bytes: u64,
    /// Replicas that were deleted or written again meanwhile, and are left out.
    pub changed: u64,
    /// Replicas that are damaged and left out, and what could not be looked at.
    pub damaged: u64,
    /// The first of these, in words.
    pub problems: Vec<String>,
    /// Which replicas it has.
    #[serde(skip)]
    pub covered: Covered,
}

impl CreateReport {
    fn problem(&mut self, text: String) {
        self.damaged += 1;
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(text);
        }
    }
}

/// Which closed replicas a snapshot has. A number of 64 bits stands for each: that two have the
/// same is as likely as nothing.
#[derive(Clone, Debug, Default)]
pub struct Covered(HashSet<u64>);

impl Covered {
    fn of<'a>(names: impl Iterator<Item = &'a BlockName>) -> Self {
        Self(names.map(number_of).collect())
    }

    /// Whether it has this replica, as it is.
    #[must_use]
    pub fn has(&self, pool: &PoolId, block: Block) -> bool {
        self.0.contains(&number_of(&BlockName::new(pool, block)))
    }
}

fn number_of(name: &BlockName) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

/// What the newest snapshot of a node has; nothing where there is none that can be used.
///
/// # Errors
/// Of the store.
pub async fn covered(target: &Target, node: &str) -> Result<Covered, SnapshotError> {
    let last = last(target, node).await?;
    Ok(last.map_or_else(Covered::default, |last| {
        Covered::of(last.replicas.iter().map(|replica| &replica.name))
    }))
}

/// The newest snapshot of a node that can be used.
async fn last(target: &Target, node: &str) -> Result<Option<Manifest>, SnapshotError> {
    let names = catalog::snapshots(target, node).await?;
    for name in names.iter().rev() {
        match catalog::manifest(target, node, name).await {
            Ok(manifest) => return Ok(Some(manifest)),
            // `verify` tells of it; what it named is looked at anew.
            Err(error) if error.kind() == SnapshotErrorKind::Finding => {
                warn!("{error}");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Takes a snapshot of a node. What is in the store already is not written again.
///
/// # Errors
/// The node's earlier snapshots are of another cluster; another process is at work; the store, or
/// the node's directories, fail. Replicas that cannot be read are left out and reported.
pub async fn create(
    source: &dyn Replicas,
    target: &Target,
    options: &CreateOptions,
    progress: &SnapshotProgress,
) -> Result<CreateReport, SnapshotError> {
    let local = source.list().await?;
    if !is_node(&local.datanode_uuid) {
        return Err(SnapshotError::finding(
            "the node has no uuid that can be a folder's name",
            &local.datanode_uuid,
            "correct datanodeUuid in the VERSION files",
        ));
    }
    let claim = Claim::take(target, &local.datanode_uuid, ClaimFor::Create).await?;
    let taking = Taking {
        source,
        target,
        options,
        progress,
        local: &local,
    };
    let taken = taking.take(&claim).await;
    claim.release().await;
    taken
}

/// A snapshot that is being taken.
struct Taking<'a> {
    source: &'a dyn Replicas,
    target: &'a Target,
    options: &'a CreateOptions,
    progress: &'a SnapshotProgress,
    local: &'a NodeReplicas,
}

/// What is known of a replica before it is read.
enum Known {
    /// The last snapshot has it, and its objects are there.
    Listed(ManifestReplica),
    /// Its objects are there, with so many bytes of meta file.
    Stored(u64),
    /// It has to be written.
    No,
}

impl Taking<'_> {
    fn node(&self) -> &str {
        &self.local.datanode_uuid
    }

    async fn take(&self, claim: &Claim) -> Result<CreateReport, SnapshotError> {
        let name_ms = self.name_ms().await?;
        let before = self.last().await?;
        let stored = catalog::stored(self.target, self.node()).await?;
        let mut report = CreateReport {
            node: self.node().to_owned(),
            ..CreateReport::default()
        };
        for problem in &self.local.problems {
            report.problem(problem.clone());
        }
        let known = self.sort_out(before, &stored);
        drop(stored);
        let replicas = self.bring(known, &mut report).await?;
        let mut header = self.header();
        header.left_out = report.damaged;
        let manifest = Manifest::new(header, replicas);
        report.covered = Covered::of(manifest.replicas.iter().map(|replica| &replica.name));
        report.replicas = manifest.header.replicas;
        report.bytes = manifest.header.bytes;
        report.snapshot = snapshot_name(name_ms);
        let path = catalog::path_of(self.node(), &report.snapshot);
        let bytes = manifest.encode().map_err(|e| {
            let advice = "take snapshots of fewer volumes at a time";
            SnapshotError::finding(e.to_string(), self.target.at(&path), advice)
        })?;
        self.target.sync().await?;
        claim.stands().await?;
        self.target.write(&path, bytes).await?;
        self.target.sync().await?;
        // One that took this process for dead removed its claim first: then objects may be gone.
        if let Err(error) = claim.stands().await {
            self.target.remove(vec![path]).await?;
            return Err(error);
        }
        Ok(report)
    }

    /// The time that the snapshot is named after: behind all that are there, whatever a clock
    /// said. Else one of a time to come would be the newest for ever.
    async fn name_ms(&self) -> Result<u64, SnapshotError> {
        let names = catalog::snapshots(self.target, self.node()).await?;
        let newest = names.last().and_then(|name| taken_at(name)).unwrap_or(0);
        let now = self.options.now_ms;
        if newest.saturating_sub(now) > AHEAD_MS {
            warn!(
                newest = names.last(),
                "a clock is or was wrong: the newest snapshot is of a \
                time to come, and this one is named as if it came right after"
            );
        }
        Ok(now.max(newest.saturating_add(1)))
    }

    /// The replicas of the node's last snapshot that can be used.
    async fn last(&self) -> Result<HashMap<BlockName, ManifestReplica>, SnapshotError> {
        let Some(manifest) = last(self.target, self.node()).await? else {
            return Ok(HashMap::new());
        };
        let theirs = &manifest.header.cluster_id;
        if *theirs != self.local.cluster_id {
            return Err(SnapshotError::finding(
                format!(
                    "the snapshots of this node are of the cluster {theirs}, and it is of {}",
                    self.local.cluster_id
                ),
                self.target.at(self.node()),
                "use a prefix for each cluster",
            ));
        }
        let replicas = manifest.replicas.into_iter();
        Ok(replicas.map(|r| (r.name.clone(), r)).collect())
    }

    fn sort_out(
        &self,
        mut before: HashMap<BlockName, ManifestReplica>,
        stored: &HashMap<BlockName, Stored>,
    ) -> Vec<(&LocalReplica, Known)> {
        let known = self.local.replicas.iter().map(|replica| {
            let name = BlockName::new(&replica.pool, replica.block);
            let there = stored.get(&name).copied().unwrap_or_default();
            let whole = there.data == Some(name.len);
            let known = match (before.remove(&name), there.meta) {
                (Some(listed), Some(meta)) if whole && meta == listed.meta_len => {
                    Known::Listed(ManifestReplica {
                        storage: replica.storage,
                        pinned: replica.pinned,
                        ..listed
                    })
                }
                (_, Some(meta)) if whole => Known::Stored(meta),
                _ => Known::No,
            };
            if matches!(known, Known::No) {
                self.progress.expect(replica.block.num_bytes);
            }
            (replica, known)
        });
        known.collect()
    }

    /// Writes what is not there yet; gives all that the snapshot consists of.
    async fn bring(
        &self,
        known: Vec<(&LocalReplica, Known)>,
        report: &mut CreateReport,
    ) -> Result<Vec<ManifestReplica>, SnapshotError> {
        let way = Way {
            source: self.source,
            target: self.target,
            node: self.node(),
            rate: &self.options.rate,
            progress: self.progress,
        };
        let mut replicas = Vec::with_capacity(known.len());
        let mut missing = Vec::new();
        for (replica, known) in known {
            match known {
                Known::Listed(listed) => replicas.push(listed),
                Known::Stored(meta) => missing.push((replica, Some(meta))),
                Known::No => missing.push((replica, None)),
            }
        }
        let at_once = self.options.at_once.clamp(1, AT_ONCE_MAX);
        // By number: the compiler does not see that a closure over a reference may be sent.
        let missing = &missing[..];
        let one = |number: usize| async move {
            let (replica, stored) = missing[number];
            if let Some(meta) = stored
                && let Some(known) = way.known(replica, meta).await?
            {
                return Ok((replica, Uploaded::Stored(known), false));
            }
            let outcome = way.upload(replica).await?;
            Ok::<_, SnapshotError>((replica, outcome, true))
        };
        let mut coming = futures_util::stream::iter(0..missing.len())
            .map(one)
            .buffer_unordered(at_once);
        while let Some((replica, outcome, written)) = coming.try_next().await? {
            match outcome {
                Uploaded::Stored(stored) => {
                    report.uploaded_replicas += u64::from(written);
                    report.uploaded_bytes += if written { stored.bytes() } else { 0 };
                    replicas.push(stored);
                }
                Uploaded::LeftOut(ReadFailure::Changed) => report.changed += 1,
                Uploaded::LeftOut(ReadFailure::Damaged(why)) => {
                    let LocalReplica { pool, block, .. } = replica;
                    report.problem(format!("{pool}:{block}: {why}: it is left out"));
                }
            }
        }
        Ok(replicas)
    }

    fn header(&self) -> ManifestHeader {
        let local = self.local;
        let storages = local.storages.iter().map(|(id, kind)| ManifestStorage {
            id: id.clone(),
            storage_type: kind.name().to_owned(),
        });
        ManifestHeader::new(
            (&local.cluster_id, &local.datanode_uuid, &self.options.host),
            self.options.now_ms,
            &local.pools,
            storages.collect(),
        )
    }
}
