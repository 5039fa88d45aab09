//! Replicas of a running node, read through its store: so the disks' schedulers give them what
//! clients leave, and what a lost disk had is decoded where parity has it.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use hayloft_io::{AlignedBuf, IoClass};
use hayloft_snapshot::{
    LocalReplica, NodeReplicas, ReadFailure, Reading, ReplicaBytes, Replicas, SnapshotError,
};
use hayloft_store::{ReplicaReader, Store, StoreError, StoreErrorKind};
use hayloft_wire::ids::{ExtendedBlock, ReplicaState};

/// Bytes of one request to the disk. A client's waits for those that are under way, which take a
/// hard disk 2.5 ms each.
const REQUEST_BYTES: usize = 256 << 10;
/// Largest part of a meta file that is read at a time, in checksums.
const SUMS_AT_ONCE: u64 = 1 << 20;

/// The closed replicas of a node.
pub struct StoreSource(pub Store);

impl Replicas for StoreSource {
    fn list(&self) -> BoxFuture<'_, Result<NodeReplicas, SnapshotError>> {
        let store = self.0.clone();
        // It walks through all replicas: a while, for a million.
        let look = tokio::task::spawn_blocking(move || look(&store));
        async move { Ok(look.await.expect("looking at replicas does not panic")) }.boxed()
    }

    fn open<'a>(&'a self, replica: &'a LocalReplica) -> Reading<'a, Box<dyn ReplicaBytes>> {
        async move {
            let block = ExtendedBlock::new(replica.pool.clone(), replica.block);
            let opened = self.0.open_verifiable(&block).await;
            let reader = opened.map_err(failure)?.with_class(IoClass::Scan);
            if reader.block() != &block {
                return Err(ReadFailure::Changed);
            }
            let opened = StoreReplica {
                reader: Arc::new(reader),
                at: 0,
            };
            Ok(Box::new(opened) as Box<dyn ReplicaBytes>)
        }
        .boxed()
    }
}

/// Replicas and storages as the store has them, and what it lacks.
fn look(store: &Store) -> NodeReplicas {
    let pools = store.pool_versions();
    let mut all = NodeReplicas {
        datanode_uuid: store.datanode_uuid(),
        cluster_id: store.storage_info().cluster_id,
        ..NodeReplicas::default()
    };
    for volume in store.volume_report() {
        let storage = &volume.storage;
        all.storages
            .push((storage.id.to_string(), storage.storage_type));
        let on_disk = hayloft_store::offline::volume_on_disk(&volume.path);
        let on_disk = on_disk.ok().flatten();
        for pool in on_disk.into_iter().flat_map(|volume| volume.pools) {
            if !pools.iter().any(|loaded| loaded.pool == pool.pool) {
                let (volume, pool) = (volume.path.display(), &pool.pool);
                all.problems.push(format!(
                    "{volume}: its block pool {pool} is not loaded, and left out: does its \
                     NameNode answer?"
                ));
            }
        }
    }
    let failed = store.failure_summary().failed_locations;
    all.problems.extend(failed.iter().map(|volume| {
        let volume = volume.display();
        format!("{volume}: the volume has failed: what only it had is in earlier snapshots alone")
    }));
    for pool in &pools {
        for (storage, replicas) in store.block_report(&pool.pool) {
            let place = all.storages.iter().position(|(id, _)| **id == *storage.id);
            let Some(place) = place.filter(|_| !storage.storage_type.is_transient()) else {
                continue;
            };
            let closed = replicas
                .iter()
                .filter(|r| r.state == ReplicaState::Finalized);
            all.replicas.extend(closed.map(|replica| {
                LocalReplica {
                    pool: pool.pool.clone(),
                    block: replica.block,
                    storage: place,
                    pinned: store
                        .replica(&pool.pool, replica.block.id)
                        .is_some_and(|known| known.pinned),
                    changed_ms: 0,
                    elsewhere: None,
                }
            }));
        }
    }
    all.pools = pools;
    all
}

fn failure(error: StoreError) -> ReadFailure {
    match error.kind() {
        StoreErrorKind::NotFound
        | StoreErrorKind::UnexpectedGenerationStamp
        | StoreErrorKind::NotReady
        | StoreErrorKind::Closed => ReadFailure::Changed,
        _ => ReadFailure::Damaged(error.to_string()),
    }
}

struct StoreReplica {
    reader: Arc<ReplicaReader>,
    at: u64,
}

impl ReplicaBytes for StoreReplica {
    fn meta(&mut self) -> Reading<'_, Bytes> {
        async move {
            let checksum = self.reader.checksum();
            let chunk = u64::from(checksum.bytes_per_checksum());
            let chunks = self.reader.block().block.num_bytes.div_ceil(chunk);
            let mut bytes = BytesMut::from(&checksum.encode_meta_header()[..]);
            let mut first = 0;
            while first < chunks {
                let count = SUMS_AT_ONCE.min(chunks - first);
                let sums = self.reader.read_sums(first, count).await;
                bytes.extend_from_slice(&sums.map_err(failure)?);
                first += count;
            }
            Ok(bytes.freeze())
        }
        .boxed()
    }

    fn data(&mut self, len: usize) -> Reading<'_, Bytes> {
        let (reader, at) = (Arc::clone(&self.reader), self.at);
        self.at += len as u64;
        async move {
            let mut bytes = BytesMut::with_capacity(len);
            let mut buf = AlignedBuf::unpooled(len.min(REQUEST_BYTES));
            while bytes.len() < len {
                let now = REQUEST_BYTES.min(len - bytes.len());
                let read = reader.read_data(buf, at + bytes.len() as u64, now).await;
                buf = read.map_err(failure)?;
                bytes.extend_from_slice(&buf.as_ref()[..now]);
            }
            Ok(bytes.freeze())
        }
        .boxed()
    }
}
