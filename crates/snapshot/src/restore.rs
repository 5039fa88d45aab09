//! A snapshot put back, wherever replicas go.

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use hayloft_wire::ids::{Block, PoolId, StorageType};
use serde::Serialize;

use crate::SnapshotProgress;
use crate::catalog;
use crate::claim::{ChosenSnapshot, Claim};
use crate::create::PROBLEMS_MAX;
use crate::error::SnapshotError;
use crate::fetch::{Broken, Fetch, IncomingReplica};
use crate::manifest::ManifestReplica;
use crate::rate::Rate;
use crate::replica_check::MetaFile;
use crate::target::Target;

/// How a snapshot is put back.
#[derive(Debug)]
pub struct RestoreOptions {
    /// Uuid of the node that it was taken of; the only one that is there by default.
    pub node: Option<String>,
    /// Name of the snapshot; the newest by default.
    pub snapshot: Option<String>,
    /// The directories are, or become, those of another node.
    pub new_identity: bool,
    /// Bytes a second.
    pub rate: Rate,
    /// Replicas on their way at a time.
    pub at_once: usize,
}

/// What came of it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RestoreReport {
    /// Uuid of the node whose snapshot it is.
    pub node: String,
    /// The snapshot's name.
    pub snapshot: String,
    /// Uuid of the node whose directories these are now.
    pub identity: String,
    /// Cluster of both.
    pub cluster_id: String,
    /// Replicas of the snapshot.
    pub replicas: u64,
    /// Replicas that were put back now, and bytes of their data.
    pub restored_replicas: u64,
    /// Likewise.
    pub restored_bytes: u64,
    /// Replicas of blocks that lay there already, whatever their generation stamp.
    pub there_already: u64,
    /// Replicas that went to a volume of another type than they had.
    pub other_type: u64,
    /// Replicas whose objects are missing or altered: they are not put back.
    pub broken: u64,
    /// The first of these, in words.
    pub problems: Vec<String>,
}

/// A replica that is to be put back, and what is known of it before its data.
#[derive(Clone, Debug)]
pub struct Incoming {
    /// Its block pool.
    pub pool: PoolId,
    /// Id, generation stamp, length.
    pub block: Block,
    /// The type of the storage that it was on, where that is known.
    pub storage_type: Option<StorageType>,
    /// It is pinned to its node.
    pub pinned: bool,
    /// Its meta file.
    pub meta: MetaFile,
}

/// Beginning a replica gives what its data goes to.
pub type Begun<'a> = BoxFuture<'a, Result<Box<dyn IncomingReplica>, SnapshotError>>;

/// Where replicas are put back.
pub trait RestoreSink: Send + Sync {
    /// Whether a replica of the block is there, whatever its generation stamp.
    fn has(&self, pool: &PoolId, id: i64) -> bool;
    /// Begins a replica.
    fn begin(&self, replica: Incoming) -> Begun<'_>;
}

/// Puts a snapshot back. Nothing that is there is changed.
///
/// # Errors
/// It is of another cluster; the store or the sink fails. Objects that are missing or altered are
/// reported.
pub async fn restore_to(
    target: &Target,
    sink: &dyn RestoreSink,
    (cluster_id, identity): (&str, &str),
    options: &RestoreOptions,
    progress: &SnapshotProgress,
) -> Result<RestoreReport, SnapshotError> {
    let meant = (options.node.as_deref(), options.snapshot.as_deref());
    let restore = |chosen| {
        restore_chosen(
            target,
            sink,
            (cluster_id, identity),
            chosen,
            (options, progress),
        )
    };
    Claim::reading(target, meant, restore).await
}

/// Puts back the snapshot that was chosen, while it is claimed.
pub async fn restore_chosen(
    target: &Target,
    sink: &dyn RestoreSink,
    (cluster_id, identity): (&str, &str),
    chosen: ChosenSnapshot,
    (options, progress): (&RestoreOptions, &SnapshotProgress),
) -> Result<RestoreReport, SnapshotError> {
    let ChosenSnapshot {
        node,
        snapshot,
        manifest,
    } = chosen;
    let theirs = &manifest.header.cluster_id;
    if theirs != cluster_id {
        return Err(SnapshotError::finding(
            format!("the node is of the cluster {cluster_id}, and the snapshot of {theirs}"),
            target.at(&catalog::path_of(&node, &snapshot)),
            "restore to a node of that cluster",
        ));
    }
    let types: Vec<Option<StorageType>> = manifest
        .header
        .storages
        .iter()
        .map(|storage| storage.storage_type.parse().ok())
        .collect();
    let mut report = RestoreReport {
        identity: identity.to_owned(),
        cluster_id: theirs.clone(),
        replicas: manifest.header.replicas,
        snapshot,
        node,
        ..RestoreReport::default()
    };
    let (there, wanted): (Vec<_>, Vec<_>) = manifest
        .replicas
        .into_iter()
        .partition(|replica| sink.has(&replica.name.pool, replica.name.id));
    report.there_already = there.len() as u64;
    drop(there);
    let bytes = wanted.iter().map(|replica| replica.name.len);
    progress.expect(bytes.fold(0, u64::saturating_add));
    let node = report.node.clone();
    let fetch = Fetch {
        target,
        node: &node,
        rate: &options.rate,
        progress,
    };
    let types = &types;
    let one = |replica: ManifestReplica| async move {
        let wanted = types.get(replica.storage).copied().flatten();
        let brought = bring(fetch, sink, &replica, wanted).await;
        (replica, brought)
    };
    let mut coming = futures_util::stream::iter(wanted)
        .map(one)
        .buffer_unordered(options.at_once.clamp(1, 32));
    while let Some((replica, brought)) = coming.next().await {
        match brought {
            Ok(of_wanted_type) => {
                report.restored_replicas += 1;
                report.restored_bytes += replica.name.len;
                report.other_type += u64::from(!of_wanted_type);
            }
            Err(Broken::Objects(why)) => {
                report.broken += 1;
                if report.problems.len() < PROBLEMS_MAX {
                    let (pool, block) = (&replica.name.pool, replica.name.block());
                    report.problems.push(format!("{pool}:{block}: {why}"));
                }
            }
            Err(Broken::Store(error) | Broken::Sink(error)) => return Err(error),
        }
    }
    Ok(report)
}

/// Puts a replica back; whether its storage has the type that it had.
async fn bring(
    fetch: Fetch<'_>,
    sink: &dyn RestoreSink,
    replica: &ManifestReplica,
    wanted: Option<StorageType>,
) -> Result<bool, Broken> {
    let meta = fetch.meta(replica).await?;
    let incoming = Incoming {
        pool: replica.name.pool.clone(),
        block: replica.name.block(),
        storage_type: wanted,
        pinned: replica.pinned,
        meta: meta.clone(),
    };
    let mut begun = sink.begin(incoming).await.map_err(Broken::Sink)?;
    fetch.data(replica, meta, &mut *begun).await?;
    begun.finish().await.map_err(Broken::Sink)
}
