//! A snapshot put on a node that runs: each replica goes through the store as a copy from another
//! node does, and the NameNodes hear of it as soon as it is whole.

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use hayloft_io::IoClass;
use hayloft_snapshot::{Begun, Incoming, IncomingReplica, MetaFile, RestoreSink, SnapshotError};
use hayloft_store::{
    PacketData, Pieces, ReplicaWriter, Store, StoreError, StoreErrorKind, WriteOptions,
};
use hayloft_wire::ids::{ExtendedBlock, PoolId, StorageType};

use crate::namenode::NameNodes;

/// Bytes of a packet, at least: what goes to the writer at a time.
const PACKET_BYTES: usize = 1 << 20;

/// The replicas of a node that runs.
pub struct StoreSink {
    /// Where they go.
    pub store: Store,
    /// Who hears of them.
    pub namenodes: NameNodes,
}

fn failed(block: &ExtendedBlock, error: &StoreError) -> SnapshotError {
    let what = format!("cannot put a replica back: {error}");
    let advice = match error.kind() {
        StoreErrorKind::OutOfSpace => "make room on the volumes, or add one",
        _ => "see the log; it is tried again",
    };
    SnapshotError::environment(what, block.to_string(), advice)
}

impl RestoreSink for StoreSink {
    fn has(&self, pool: &PoolId, id: i64) -> bool {
        self.store.replica(pool, id).is_some()
    }

    fn begin(&self, replica: Incoming) -> Begun<'_> {
        async move {
            let block = ExtendedBlock::new(replica.pool.clone(), replica.block);
            let (writer, of_type) = self
                .writer(&block, &replica)
                .await
                .map_err(|e| failed(&block, &e))?;
            Ok(Box::new(StoreIncoming {
                namenodes: self.namenodes.clone(),
                meta: replica.meta,
                block,
                writer,
                of_type,
            }) as Box<dyn IncomingReplica>)
        }
        .boxed()
    }
}

impl StoreSink {
    /// A writer on a volume of the type that the replica was on, else of another.
    async fn writer(
        &self,
        block: &ExtendedBlock,
        replica: &Incoming,
    ) -> Result<(ReplicaWriter, bool), StoreError> {
        let wanted = replica.storage_type.unwrap_or(StorageType::Disk);
        let mut types = vec![wanted];
        for volume in self.store.volume_report() {
            let other = volume.storage.storage_type;
            if !types.contains(&other) && !other.is_transient() {
                types.push(other);
            }
        }
        let mut refused = None;
        for storage_type in types {
            let options = WriteOptions {
                storage_type,
                expected_len: Some(replica.block.num_bytes),
                pinned: replica.pinned,
                checksum: Some(replica.meta.checksum()),
                class: IoClass::Replication,
                ..WriteOptions::default()
            };
            match self.store.create_temporary(block, options).await {
                Ok(mut writer) => {
                    writer.set_checksum(replica.meta.checksum()).await?;
                    return Ok((writer, storage_type == wanted));
                }
                Err(error) if error.kind() == StoreErrorKind::OutOfSpace => {
                    refused.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        Err(refused.unwrap_or_else(|| StoreError::closed("there is no volume")))
    }
}

/// A replica that has not come whole yet. One that never does leaves nothing: its writer is
/// dropped.
struct StoreIncoming {
    namenodes: NameNodes,
    meta: MetaFile,
    block: ExtendedBlock,
    writer: ReplicaWriter,
    of_type: bool,
}

impl IncomingReplica for StoreIncoming {
    fn data(&mut self, at: u64, bytes: bytes::Bytes) -> BoxFuture<'_, Result<(), SnapshotError>> {
        async move {
            let piece = self.meta.piece(PACKET_BYTES);
            let mut at = at;
            for start in (0..bytes.len()).step_by(piece) {
                let data = bytes.slice(start..bytes.len().min(start + piece));
                let len = data.len();
                let sums = self.meta.sums(at, len);
                let checksum = self.meta.checksum();
                let packet = PacketData::new(checksum, at, Pieces::from(data), sums);
                let packet = packet.map_err(|e| {
                    SnapshotError::finding(e.to_string(), self.block.to_string(), "report it")
                })?;
                let written = self.writer.write(vec![packet]).await;
                written.map_err(|e| failed(&self.block, &e))?;
                at += len as u64;
            }
            Ok(())
        }
        .boxed()
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<bool, SnapshotError>> {
        async move {
            let finalized = self.writer.finalize().await;
            let finalized = finalized.map_err(|e| failed(&self.block, &e))?;
            self.namenodes
                .notify_finalized(&finalized.block, &finalized.storage, None);
            Ok(self.of_type)
        }
        .boxed()
    }
}
