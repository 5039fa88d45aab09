//! Reading one replica.

use std::os::fd::BorrowedFd;

use bytes::Bytes;
use hayloft_io::{Advice, AlignedBuf, IoClass};
use hayloft_wire::checksum::DataChecksum;
use hayloft_wire::ids::ExtendedBlock;

use crate::error::StoreError;
use crate::types::StorageInfo;

/// One replica opened for reading: a snapshot of its length and of the checksum of its last
/// partial chunk, so that data and checksums always fit together, also while it is being written.
/// It stays readable when the replica is deleted or moved.
#[derive(Debug)]
pub struct ReplicaReader {}

impl ReplicaReader {
    /// The block with the generation stamp of the replica and the visible length.
    pub fn block(&self) -> &ExtendedBlock {
        todo!()
    }

    /// The volume.
    pub fn storage(&self) -> &StorageInfo {
        todo!()
    }

    /// Bytes that a client may ask for.
    pub fn visible_len(&self) -> u64 {
        todo!()
    }

    /// Bytes for which data and checksums of this reader are consistent (at least the visible length).
    /// A range is extended to the end of its last chunk, but not beyond this.
    pub fn readable_len(&self) -> u64 {
        todo!()
    }

    /// How the data is checksummed; NULL without a meta file.
    pub fn checksum(&self) -> DataChecksum {
        todo!()
    }

    /// Reads `len` bytes at `offset` to the start of `buf`. `offset + len` must not go beyond `readable_len`.
    ///
    /// Errors: `Corrupt` when the data file is shorter than it should be, `Illegal`, `Io`.
    pub async fn read_data(
        &self,
        _buf: AlignedBuf,
        _offset: u64,
        _len: usize,
    ) -> Result<AlignedBuf, StoreError> {
        todo!()
    }

    /// Reads the checksums of `count` chunks from chunk number `first` on. Empty with NULL checksums.
    ///
    /// Errors: `Corrupt` when the meta file is shorter than it should be, `Illegal`, `Io`.
    pub async fn read_sums(&self, _first: u64, _count: u64) -> Result<Bytes, StoreError> {
        todo!()
    }

    /// The data file for sendfile, when the engine has one.
    pub fn data_fd(&self) -> Option<BorrowedFd<'_>> {
        todo!()
    }

    /// The meta file, for short-circuit reads, when the engine has one.
    pub fn meta_fd(&self) -> Option<BorrowedFd<'_>> {
        todo!()
    }

    /// A caching hint about a range of the data; `len` 0 means to the end. Errors are of no consequence and dropped.
    pub async fn advise(&self, _advice: Advice, _offset: u64, _len: u64) {
        todo!()
    }

    /// On whose behalf later reads run; `ClientRead` at first.
    #[must_use]
    pub fn with_class(self, _class: IoClass) -> Self {
        todo!()
    }
}
