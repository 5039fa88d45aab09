//! Writing one replica.

use hayloft_io::Advice;
use hayloft_wire::checksum::DataChecksum;
use hayloft_wire::ids::ExtendedBlock;
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};

use crate::error::StoreError;
use crate::types::{PacketData, ReplicaRef, StorageInfo};

/// The exclusive right to write one replica.
///
/// Dropping it without [`finalize`](Self::finalize) leaves an RBW replica as it is, for the pipeline or block
/// recovery to find; a TEMPORARY replica is deleted. Another taker (recovery, a new pipeline)
/// cancels the writer and waits until it is dropped.
#[derive(Debug)]
pub struct ReplicaWriter {}

impl ReplicaWriter {
    /// The block with its present generation stamp; its length is the bytes received.
    pub fn block(&self) -> ExtendedBlock {
        todo!()
    }

    /// The volume.
    pub fn storage(&self) -> &StorageInfo {
        todo!()
    }

    /// Bytes in the data file.
    pub fn bytes_on_disk(&self) -> u64 {
        todo!()
    }

    /// Checksum of the meta file; `None` in a new replica before [`set_checksum`](Self::set_checksum).
    pub fn checksum(&self) -> Option<DataChecksum> {
        todo!()
    }

    /// Says how the packets' data is checksummed. A new replica's meta file gets this header. A replica
    /// with data keeps the checksum it has: packets are verified with the client's and stored with the disk's.
    pub async fn set_checksum(&mut self, _checksum: DataChecksum) -> Result<(), StoreError> {
        todo!()
    }

    /// Accepts a run of verified packets, in order: data that is there already is skipped, a
    /// partial last chunk that is sent again or appended to is completed. One gather write for the run. When
    /// it returns, data and checksums outlive a killed process.
    pub async fn write(&mut self, _packets: Vec<PacketData>) -> Result<(), StoreError> {
        todo!()
    }

    /// hsync: everything written is durable; the first time, the directory entries too.
    pub async fn sync(&mut self) -> Result<(), StoreError> {
        todo!()
    }

    /// Everything below `bytes` was acknowledged by the whole pipeline: readers may see it. Never goes back.
    pub fn set_bytes_acked(&self, _bytes: u64) {
        todo!()
    }

    /// Resolves when another taker wants the replica: stop and drop the writer.
    pub fn cancelled(&self) -> WaitForCancellationFuture<'_> {
        todo!()
    }

    /// A handle to report acknowledgements while the writer is busy writing: the responder of a
    /// pipeline works beside its disk loop.
    pub fn acks(&self) -> AckHandle {
        todo!()
    }

    /// What [`cancelled`](Self::cancelled) waits for, to be watched from beside the writer.
    pub fn cancel_token(&self) -> CancellationToken {
        todo!()
    }

    /// Starts writing a range of the data to the device (`dfs.datanode.sync.behind.writes`); nothing
    /// becomes durable by it. Errors are of no consequence and dropped.
    pub async fn start_writeback(&self, _offset: u64, _len: u64) {
        todo!()
    }

    /// A caching hint about a range of the data (`dfs.datanode.drop.cache.behind.writes`). Errors are of
    /// no consequence and dropped.
    pub async fn advise(&self, _advice: Advice, _offset: u64, _len: u64) {
        todo!()
    }

    /// Completes the replica at the length it has: afterwards it is finalized whatever happens; when this
    /// fails or the process dies on the way, it is still RBW or already finalized, never in between.
    pub async fn finalize(self) -> Result<ReplicaRef, StoreError> {
        todo!()
    }
}

/// Reports what the whole pipeline has acknowledged. Cheap to clone; of no effect once the writer
/// is gone or another one took the replica over.
#[derive(Clone, Debug)]
pub struct AckHandle {}

impl AckHandle {
    /// As [`ReplicaWriter::set_bytes_acked`].
    pub fn set_bytes_acked(&self, _bytes: u64) {
        todo!()
    }
}
