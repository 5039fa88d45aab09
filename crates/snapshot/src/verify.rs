//! A snapshot compared with itself: all that its manifest names is there, and is what it says.

use futures_util::{StreamExt as _, TryStreamExt as _};
use serde::Serialize;

use crate::SnapshotProgress;
use crate::catalog;
use crate::claim::{ChosenSnapshot, Claim};
use crate::create::PROBLEMS_MAX;
use crate::error::SnapshotError;
use crate::fetch::{Broken, Fetch, Nowhere};
use crate::manifest::ManifestReplica;
use crate::rate::Rate;
use crate::target::Target;

/// How a snapshot is verified.
#[derive(Debug)]
pub struct VerifyOptions {
    /// Uuid of the node; the only one that is there by default.
    pub node: Option<String>,
    /// Name of the snapshot; the newest by default.
    pub snapshot: Option<String>,
    /// Compare names and lengths alone.
    pub quick: bool,
    /// Bytes a second.
    pub rate: Rate,
    /// Replicas on their way at a time.
    pub at_once: usize,
}

/// What came of it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct VerifyReport {
    /// Uuid of the node.
    pub node: String,
    /// The snapshot's name.
    pub snapshot: String,
    /// Its cluster.
    pub cluster_id: String,
    /// Replicas in it, and their bytes.
    pub replicas: u64,
    /// Likewise.
    pub bytes: u64,
    /// Replicas whose objects are missing or altered.
    pub broken: u64,
    /// The first of these, in words.
    pub problems: Vec<String>,
}

impl VerifyReport {
    /// What mends its problems, if it has any.
    #[must_use]
    pub fn advice(&self) -> Option<&'static str> {
        (self.broken > 0).then_some("remove their objects, and run 'hayloft snapshot create' again")
    }

    fn problem(&mut self, replica: &ManifestReplica, why: &str) {
        self.broken += 1;
        if self.problems.len() < PROBLEMS_MAX {
            let block = replica.name.block();
            self.problems
                .push(format!("{}:{block}: {why}", replica.name.pool));
        }
    }
}

/// Compares a snapshot with its objects.
///
/// # Errors
/// There is no such snapshot, its manifest was altered, or the store fails. Objects that are
/// missing or altered are reported.
pub async fn verify(
    target: &Target,
    options: &VerifyOptions,
    progress: &SnapshotProgress,
) -> Result<VerifyReport, SnapshotError> {
    let meant = (options.node.as_deref(), options.snapshot.as_deref());
    let verify = |chosen| verify_chosen(target, chosen, options, progress);
    Claim::reading(target, meant, verify).await
}

async fn verify_chosen(
    target: &Target,
    chosen: ChosenSnapshot,
    options: &VerifyOptions,
    progress: &SnapshotProgress,
) -> Result<VerifyReport, SnapshotError> {
    let (node, manifest) = (&chosen.node, &chosen.manifest);
    let mut report = VerifyReport {
        cluster_id: manifest.header.cluster_id.clone(),
        replicas: manifest.header.replicas,
        bytes: manifest.header.bytes,
        snapshot: chosen.snapshot,
        node: node.clone(),
        ..VerifyReport::default()
    };
    if options.quick {
        let stored = catalog::stored(target, node).await?;
        for replica in &manifest.replicas {
            let there = stored.get(&replica.name).copied().unwrap_or_default();
            if there.data != Some(replica.name.len) || there.meta != Some(replica.meta_len) {
                report.problem(replica, "an object is missing, or has another length");
            }
        }
        return Ok(report);
    }
    let data = manifest.replicas.iter().map(|r| r.name.len);
    progress.expect(data.fold(0, u64::saturating_add));
    let fetch = Fetch {
        target,
        node,
        rate: &options.rate,
        progress,
    };
    let one = |replica| async move {
        let read = async {
            let meta = fetch.meta(replica).await?;
            fetch.data(replica, meta, &mut Nowhere).await
        };
        match read.await {
            Ok(()) => Ok((replica, None)),
            Err(Broken::Objects(why)) => Ok((replica, Some(why))),
            Err(Broken::Store(error) | Broken::Sink(error)) => Err(error),
        }
    };
    let mut verified = futures_util::stream::iter(&manifest.replicas)
        .map(one)
        .buffer_unordered(options.at_once.clamp(1, 32));
    while let Some((replica, why)) = verified.try_next().await? {
        if let Some(why) = why {
            report.problem(replica, &why);
        }
    }
    drop(verified);
    Ok(report)
}
