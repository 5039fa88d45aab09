//! Packets as they come in: parsed and checked once, here.
//!
//! - `buffer_wait`: the wait of a stream for a receive buffer
//! - `from_socket`: packets out of a socket, in batches, without copying their data
//! - `in_place`: packets received straight to their place in write buffers

mod buffer_wait;
pub mod from_socket;
pub mod in_place;

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use hayloft_store::{PacketData, PacketDataError, Pieces};
use hayloft_wire::checksum::DataChecksum;
use hayloft_wire::packet::{PacketError, PacketHeader};

/// A packet as received. Whatever a packet says of itself was checked when it was made: later code
/// compares it with the stream and with the replica only.
#[derive(Clone, Debug)]
pub struct CheckedPacket {
    /// Sequence number.
    pub seqno: i64,
    /// The block ends with it.
    pub last: bool,
    /// The data must be on the device before the acknowledgement.
    pub sync: bool,
    /// Offset, data and checksums, which agree. Every piece but the last ends with a chunk.
    pub body: PacketData,
}

/// Why bytes are no packet. The stream cannot be followed further.
#[derive(Debug, thiserror::Error)]
pub enum ParseError {
    /// Lengths or header.
    #[error(transparent)]
    Wire(#[from] PacketError),
    /// Offset, data and checksums.
    #[error(transparent)]
    Body(#[from] PacketDataError),
    /// Its checksums would be of no chunk of the block.
    #[error("packet at {0} begins inside a chunk and goes beyond it")]
    BeyondChunk(u64),
}

impl CheckedPacket {
    /// The packet of `header`, with its `data` and the `sums` that came with it.
    ///
    /// # Errors
    /// The parts do not agree.
    pub fn new(
        header: &PacketHeader,
        checksum: DataChecksum,
        data: Pieces,
        sums: Bytes,
    ) -> Result<Self, ParseError> {
        let offset = header.offset_in_block;
        let chunk = u64::from(checksum.bytes_per_checksum());
        let (in_chunk, len) = (offset % chunk, u64::from(header.data_len));
        if in_chunk != 0 && len > chunk - in_chunk {
            return Err(ParseError::BeyondChunk(offset));
        }
        let sums = match sums.is_empty() {
            true => computed_sums(checksum, &data),
            false => sums,
        };
        Ok(Self {
            seqno: header.seqno,
            last: header.last_packet_in_block,
            sync: header.sync_block,
            body: PacketData::new(checksum, offset, data, sums)?,
        })
    }
}

/// Writers to memory may leave checksums out; on a disk there are always some.
fn computed_sums(checksum: DataChecksum, data: &Pieces) -> Bytes {
    let mut sums = BytesMut::with_capacity(checksum.sums_len(data.len()));
    for piece in data.iter() {
        checksum.compute(piece, &mut sums);
    }
    sums.freeze()
}

/// Packets that arrived together.
#[derive(Clone, Debug)]
pub struct PacketBatch {
    /// The packets as they came, byte for byte: what the next node gets.
    pub raw: Vec<Bytes>,
    /// The packets.
    pub packets: Vec<CheckedPacket>,
    /// The data was received to its place in a write buffer.
    pub in_place: bool,
    /// Counts the batches of a stream that are still in use: to be kept as long as the data.
    pub token: Arc<()>,
}

impl PacketBatch {
    /// Bytes of block data.
    #[must_use]
    pub fn data_len(&self) -> u64 {
        self.packets
            .iter()
            .map(|p| p.body.data().len() as u64)
            .sum()
    }

    /// Whether the block ends with it.
    #[must_use]
    pub fn ends_block(&self) -> bool {
        self.packets.last().is_some_and(|packet| packet.last)
    }
}

#[cfg(test)]
mod tests {
    use hayloft_wire::checksum::ChecksumKind;

    use super::*;

    fn packet(offset: u64, len: u32, sums: usize) -> Result<CheckedPacket, ParseError> {
        let checksum = DataChecksum::new(ChecksumKind::Crc32c, 512).expect("valid");
        let header = PacketHeader {
            offset_in_block: offset,
            data_len: len,
            ..PacketHeader::default()
        };
        let data = vec![7; len as usize];
        CheckedPacket::new(&header, checksum, data.into(), vec![0; sums].into())
    }

    #[test]
    fn parts_that_do_not_agree_are_no_packet() {
        assert!(packet(0, 1024, 8).is_ok());
        assert!(packet(600, 100, 4).is_ok(), "the rest of a chunk");
        let beyond = packet(600, 512, 4).expect_err("two chunks");
        assert!(matches!(beyond, ParseError::BeyondChunk(600)));
        for (offset, len, sums) in [(0, 1024, 4), (0, 512, 8), (512, 1, 3), (u64::MAX, 1, 4)] {
            let error = packet(offset, len, sums).expect_err("refused");
            assert!(!error.to_string().is_empty(), "{offset} {len} {sums}");
        }
    }

    #[test]
    fn checksums_that_were_left_out_are_computed() {
        let packet = packet(512, 700, 0).expect("a packet");
        let mut sums = Vec::new();
        packet.body.checksum().compute(&[7; 700], &mut sums);
        assert_eq!(packet.body.sums()[..], sums[..]);
    }
}
