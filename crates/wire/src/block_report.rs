//! Full block reports in their compact form: a stream of integers, four a replica, cut into
//! buffers.
//!
//! A replica is its block id (zigzag varint), its bytes on disk, its generation stamp and its state
//! (varints). The stream is cut every [`BUFFER_BYTES`] without regard to where a replica ends; the
//! NameNode puts the buffers together again.

use bytes::{Buf, Bytes, BytesMut};

use crate::ids::{Block, ReplicaState};
use crate::proto::datanode::StorageBlockReport;
use crate::proto::hdfs::DatanodeStorage;
use crate::varint;

/// Where the stream is cut, as Apache's DataNode does.
pub const BUFFER_BYTES: usize = 64 << 10;

/// Bytes of the longest replica: four 64-bit varints.
const MAX_ENTRY_BYTES: usize = 4 * varint::MAX_LEN;

/// A replica in a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportedReplica {
    /// Id, generation stamp and bytes on disk.
    pub block: Block,
    /// State.
    pub state: ReplicaState,
}

/// Why buffers are no report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReportError {
    /// The bytes end inside a replica or hold an overlong integer.
    #[error("a block report breaks off in replica {0}")]
    Broken(u64),
    /// A state of no meaning.
    #[error("replica {index} of a block report has the unknown state {state}")]
    State {
        /// Index of the replica.
        index: u64,
        /// The state.
        state: u64,
    },
    /// A length or generation stamp out of range.
    #[error("replica {0} of a block report is impossible")]
    Block(u64),
}

/// Encodes replicas one by one. Holds the encoded form only: about 12 bytes a replica.
#[derive(Debug, Default)]
pub struct ReportEncoder {
    buffers: Vec<Bytes>,
    current: BytesMut,
    replicas: u64,
    encoded_bytes: u64,
}

impl ReportEncoder {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        ReportEncoder::default()
    }

    /// Adds a replica.
    pub fn push(&mut self, replica: ReportedReplica) {
        let mut entry = [0u8; MAX_ENTRY_BYTES];
        let mut left = &mut entry[..];
        varint::write_u64(&mut left, varint::zigzag(replica.block.id));
        varint::write_u64(&mut left, replica.block.num_bytes);
        varint::write_u64(&mut left, replica.block.generation_stamp);
        varint::write_u64(&mut left, state_number(replica.state));
        let len = MAX_ENTRY_BYTES - left.len();
        self.append(&entry[..len]);
        self.replicas += 1;
        self.encoded_bytes += len as u64;
    }

    fn append(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            if self.current.capacity() == 0 {
                self.current.reserve(BUFFER_BYTES);
            }
            let (now, later) = rest.split_at(rest.len().min(BUFFER_BYTES - self.current.len()));
            self.current.extend_from_slice(now);
            rest = later;
            if self.current.len() == BUFFER_BYTES {
                self.buffers
                    .push(std::mem::take(&mut self.current).freeze());
            }
        }
    }

    /// Number of replicas so far.
    #[must_use]
    pub const fn replicas(&self) -> u64 {
        self.replicas
    }

    /// Bytes of the replicas so far, to be held against the limit on RPC frames.
    #[must_use]
    pub const fn encoded_bytes(&self) -> u64 {
        self.encoded_bytes
    }

    /// The number of replicas and the buffers. Without replicas there is one empty buffer, so that
    /// the NameNode sees the compact form.
    #[must_use]
    pub fn finish(mut self) -> (u64, Vec<Bytes>) {
        if !self.current.is_empty() || self.buffers.is_empty() {
            self.buffers.push(self.current.freeze());
        }
        (self.replicas, self.buffers)
    }

    /// The report of a storage.
    #[must_use]
    pub fn into_report(self, storage: DatanodeStorage) -> StorageBlockReport {
        let (replicas, blocks_buffers) = self.finish();
        StorageBlockReport {
            storage,
            blocks: Vec::new(),
            number_of_blocks: Some(replicas),
            blocks_buffers,
        }
    }
}

impl Extend<ReportedReplica> for ReportEncoder {
    fn extend<I: IntoIterator<Item = ReportedReplica>>(&mut self, replicas: I) {
        for replica in replicas {
            self.push(replica);
        }
    }
}

fn state_number(state: ReplicaState) -> u64 {
    u64::try_from(i32::from(state)).expect("states are not negative")
}

/// Reads buffers back, replica by replica, without joining them. Ends after the first error.
#[derive(Debug)]
pub struct ReportDecoder<'a> {
    buffers: &'a [Bytes],
    at: usize,
    index: u64,
    failed: bool,
}

impl<'a> ReportDecoder<'a> {
    /// Over the buffers of a report.
    #[must_use]
    pub const fn new(buffers: &'a [Bytes]) -> Self {
        ReportDecoder {
            buffers,
            at: 0,
            index: 0,
            failed: false,
        }
    }

    fn skip_empty(&mut self) {
        while self
            .buffers
            .first()
            .is_some_and(|buffer| self.at >= buffer.len())
        {
            self.buffers = &self.buffers[1..];
            self.at = 0;
        }
    }

    fn byte(&mut self) -> Option<u8> {
        self.skip_empty();
        let byte = *self.buffers.first()?.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut bytes = [0u8; varint::MAX_LEN];
        for len in 1..=varint::MAX_LEN {
            let byte = self.byte()?;
            bytes[len - 1] = byte;
            if byte & 0x80 == 0 {
                return varint::read_u64(&mut &bytes[..len]);
            }
        }
        None
    }

    fn replica(&mut self) -> Result<ReportedReplica, ReportError> {
        let index = self.index;
        let broken = ReportError::Broken(index);
        let id = varint::unzigzag(self.varint().ok_or(broken)?);
        let num_bytes = self.varint().ok_or(broken)?;
        let generation_stamp = self.varint().ok_or(broken)?;
        let state = self.varint().ok_or(broken)?;
        let block = Block::from_wire(id.cast_unsigned(), generation_stamp, num_bytes)
            .map_err(|_| ReportError::Block(index))?;
        let state = i32::try_from(state)
            .ok()
            .and_then(|number| ReplicaState::try_from(number).ok())
            .ok_or(ReportError::State { index, state })?;
        Ok(ReportedReplica { block, state })
    }
}

impl Iterator for ReportDecoder<'_> {
    type Item = Result<ReportedReplica, ReportError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.skip_empty();
        if self.failed || !self.buffers.first().is_some_and(Buf::has_remaining) {
            return None;
        }
        let replica = self.replica();
        self.failed = replica.is_err();
        self.index += 1;
        Some(replica)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn replica(id: i64, num_bytes: u64, generation_stamp: u64) -> ReportedReplica {
        ReportedReplica {
            block: Block::new(id, generation_stamp, num_bytes),
            state: ReplicaState::Finalized,
        }
    }

    fn decode(buffers: &[Bytes]) -> Result<Vec<ReportedReplica>, ReportError> {
        ReportDecoder::new(buffers).collect()
    }

    #[test]
    fn bytes_are_hadoops() {
        let mut encoder = ReportEncoder::new();
        encoder.push(replica(-1, 300, 1001));
        assert_eq!(encoder.encoded_bytes(), 6);
        let (replicas, buffers) = encoder.finish();
        assert_eq!(
            (replicas, &buffers[..]),
            (1, &[Bytes::from_static(&[1, 0xAC, 2, 0xE9, 7, 0])][..])
        );
    }

    #[test]
    fn nothing_is_one_empty_buffer() {
        assert_eq!(ReportEncoder::new().finish(), (0, vec![Bytes::new()]));
        assert_eq!(decode(&[Bytes::new()]), Ok(vec![]));
    }

    #[test]
    fn buffers_are_cut_through_entries() {
        let replicas: Vec<_> = (0..20_000)
            .map(|i| replica(1 << 30 | i, 1 << 27, 5_000))
            .collect();
        let mut encoder = ReportEncoder::new();
        encoder.extend(replicas.iter().copied());
        let (count, buffers) = encoder.finish();
        assert_eq!(count, 20_000);
        let (last, full) = buffers.split_last().expect("some");
        assert!(full.iter().all(|buffer| buffer.len() == BUFFER_BYTES));
        assert!(!last.is_empty() && last.len() < BUFFER_BYTES);
        assert_eq!(decode(&buffers), Ok(replicas));
    }

    #[test]
    fn broken_reports_are_refused() {
        assert_eq!(
            decode(&[Bytes::from_static(&[1, 1, 1])]),
            Err(ReportError::Broken(0))
        );
        assert_eq!(
            decode(&[Bytes::from_static(&[1, 1, 1, 9])]),
            Err(ReportError::State { index: 0, state: 9 })
        );
        assert_eq!(
            decode(&[Bytes::from_static(&[0xFF; 12])]),
            Err(ReportError::Broken(0))
        );
    }

    proptest! {
        #[test]
        fn there_and_back_in_any_split(
            ids in prop::collection::vec((any::<i64>(), 0..=i64::MAX, 0..=i64::MAX), 0..50),
            step in 1usize..20,
        ) {
            let replicas: Vec<_> = ids
                .into_iter()
                .map(|(id, len, stamp)| replica(id, len.unsigned_abs(), stamp.unsigned_abs()))
                .collect();
            let mut encoder = ReportEncoder::new();
            encoder.extend(replicas.iter().copied());
            let whole = encoder.finish().1.concat();
            let pieces: Vec<_> = whole.chunks(step).map(Bytes::copy_from_slice).collect();
            prop_assert_eq!(decode(&pieces), Ok(replicas));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _any_outcome = decode(&[Bytes::from(bytes)]);
        }
    }
}
