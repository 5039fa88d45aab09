//! Old snapshots removed, and objects that no snapshot names.
//!
//! The newest snapshot that lacks nothing stays, however old it is: it may be the last that has
//! what a disk has lost since. Where none is there, all stay.
//!
//! First manifests go, then objects: a process killed between leaves objects that the next run
//! removes, and no manifest that names one that is gone.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde::Serialize;

use crate::catalog;
use crate::claim::{Claim, ClaimFor};
use crate::error::{SnapshotError, SnapshotErrorKind};
use crate::names::{BlockName, taken_at};
use crate::target::Target;

/// Objects that are removed at a time; the claim is looked at between.
const BATCH: usize = 1000;
/// A file that is not whole and was not written for so long belongs to a killed process.
const UNFINISHED_FOR: Duration = Duration::from_secs(3600);

/// What is kept.
#[derive(Clone, Debug)]
pub struct PruneOptions {
    /// Uuid of the node; all that are there by default.
    pub node: Option<String>,
    /// So many of the newest snapshots are kept, one at least.
    pub keep: usize,
    /// Those that are younger are kept, too.
    pub keep_within: Option<Duration>,
    /// Remove; else only say what would be.
    pub remove: bool,
    /// Milliseconds since 1970.
    pub now_ms: u64,
}

/// What came of it, for one node.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PruneReport {
    /// Uuid of the node.
    pub node: String,
    /// Snapshots that stay.
    pub kept: Vec<String>,
    /// Snapshots that went, or would.
    pub pruned: Vec<String>,
    /// Objects that went, or would, and their bytes.
    pub objects: u64,
    /// Likewise.
    pub bytes: u64,
    /// They are gone.
    pub removed: bool,
    /// Why nothing of this node was looked at: another process is at work on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Removes old snapshots of each node, and objects that none of those that stay names. Of all nodes
/// those are left out on which another process is at work: their reports say so.
///
/// # Errors
/// There is no such node, or another process is at work on the one that is named; a snapshot that
/// stays cannot be read, so that it is not known what it names; the store fails. What was removed
/// before stays so.
pub async fn prune(
    target: &Target,
    options: &PruneOptions,
) -> Result<Vec<PruneReport>, SnapshotError> {
    let mut reports = Vec::new();
    for node in catalog::nodes(target, options.node.as_deref()).await? {
        let claim = match Claim::take(target, &node, ClaimFor::Prune).await {
            Err(error) if error.kind() == SnapshotErrorKind::AtWork && options.node.is_none() => {
                reports.push(PruneReport {
                    node,
                    problem: Some(error.to_string()),
                    ..PruneReport::default()
                });
                continue;
            }
            claim => claim?,
        };
        let pruned = prune_node(target, &node, options, &claim).await;
        claim.release().await;
        reports.push(pruned?);
    }
    if options.remove
        && let Some(dir) = target.unfinished()
    {
        let clean = tokio::task::spawn_blocking(move || remove_unfinished(&dir)).await;
        let clean = clean.unwrap_or_else(|e| Err(io::Error::other(e)));
        clean.map_err(|e| SnapshotError::of_file("remove left-overs", target, &e))?;
    }
    Ok(reports)
}

async fn prune_node(
    target: &Target,
    node: &str,
    options: &PruneOptions,
    claim: &Claim,
) -> Result<PruneReport, SnapshotError> {
    let names = catalog::snapshots(target, node).await?;
    let newest = names.len().saturating_sub(options.keep.max(1));
    let is_young = |name: &String| {
        let age = options.now_ms.saturating_sub(taken_at(name).unwrap_or(0));
        options
            .keep_within
            .is_some_and(|within| u128::from(age) < within.as_millis())
    };
    let mut report = PruneReport {
        node: node.to_owned(),
        removed: options.remove,
        ..PruneReport::default()
    };
    for (place, name) in names.into_iter().enumerate() {
        match place >= newest || is_young(&name) {
            true => report.kept.push(name),
            false => report.pruned.push(name),
        }
    }
    let named = named_by_kept(target, node, &mut report).await?;
    let mut unnamed = Vec::new();
    for (name, there) in catalog::stored(target, node).await? {
        if named.contains(&name) {
            continue;
        }
        report.bytes += there.data.unwrap_or(0) + there.meta.unwrap_or(0);
        unnamed.extend(there.data.map(|_| name.data(node)));
        unnamed.extend(there.meta.map(|_| name.meta(node)));
    }
    report.objects = unnamed.len() as u64;
    if !options.remove {
        return Ok(report);
    }
    let manifests = report.pruned.iter();
    let manifests = manifests.map(|name| catalog::path_of(node, name)).collect();
    claim.stands().await?;
    target.remove(manifests).await?;
    target.sync().await?;
    for batch in unnamed.chunks(BATCH) {
        claim.stands().await?;
        target.remove(batch.to_vec()).await?;
    }
    Ok(report)
}

/// What the snapshots name that stay: also the newest that lacks nothing, or all of them.
async fn named_by_kept(
    target: &Target,
    node: &str,
    report: &mut PruneReport,
) -> Result<HashSet<BlockName>, SnapshotError> {
    let mut named: HashSet<BlockName> = HashSet::new();
    let mut whole = false;
    for name in &report.kept {
        let manifest = catalog::manifest(target, node, name).await?;
        whole |= manifest.header.left_out == 0;
        named.extend(manifest.replicas.into_iter().map(|r| r.name));
    }
    // Their names are in the order of their times.
    let mut lacking = Vec::new();
    let mut named_by_lacking = HashSet::new();
    while !whole && let Some(name) = report.pruned.pop() {
        let manifest = catalog::manifest(target, node, &name).await?;
        whole = manifest.header.left_out == 0;
        let replicas = manifest.replicas.into_iter().map(|r| r.name);
        if whole {
            named.extend(replicas);
            report.kept.insert(0, name);
        } else {
            named_by_lacking.extend(replicas);
            lacking.insert(0, name);
        }
    }
    if whole {
        report.pruned.append(&mut lacking);
    } else {
        named.extend(named_by_lacking);
        report.kept.splice(0..0, lacking);
    }
    Ok(named)
}

/// Removes what killed processes left of files that were never whole. Blocking.
fn remove_unfinished(dir: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let meta = entry.metadata()?;
        let age = SystemTime::now().duration_since(meta.modified()?);
        if meta.is_file() && age.is_ok_and(|age| age > UNFINISHED_FOR) {
            match fs::remove_file(entry.path()) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
        }
    }
    Ok(())
}
