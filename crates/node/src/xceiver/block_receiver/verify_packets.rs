//! How packets follow each other in a block, and whether their data is what was sent.

use hayloft_store::PacketData;
use hayloft_wire::checksum::ChecksumMismatch;
use hayloft_wire::ids::ExtendedBlock;
use hayloft_wire::proto::hdfs::DatanodeInfo;

use crate::xceiver::packet::{CheckedPacket, PacketBatch};

/// A block being received: how far it came, and how its packets are checked.
#[derive(Debug)]
pub struct IncomingBlock {
    /// The block as it was announced.
    pub block: ExtendedBlock,
    /// Compare data with checksums here. Nodes in the middle of a pipeline leave that to the last
    /// one.
    pub verify: bool,
    /// End of the data received so far.
    pub received: u64,
    /// The node that the data is copied from.
    pub source: Option<DatanodeInfo>,
}

/// Why a packet was not accepted.
#[derive(Debug)]
pub enum BadPacket {
    /// It leaves a gap in the block.
    Gap(String),
    /// Data and checksums do not match.
    Corrupt {
        /// Its sequence number.
        seqno: i64,
        /// What does not match.
        reason: String,
    },
}

impl IncomingBlock {
    /// Checks one packet against those before it, and counts its data. What a packet says of itself
    /// was checked where it was parsed.
    fn accept(&mut self, packet: &CheckedPacket) -> Result<(), BadPacket> {
        let body = &packet.body;
        let offset = body.offset();
        if offset > self.received {
            return Err(BadPacket::Gap(format!(
                "a packet at {offset} of {} leaves a gap: only {} bytes were received",
                self.block, self.received
            )));
        }
        if self.verify {
            verify(body).map_err(|mismatch| BadPacket::Corrupt {
                seqno: packet.seqno,
                reason: format!(
                    "packet {} at {offset} of {}: {mismatch}",
                    packet.seqno, self.block
                ),
            })?;
        }
        self.received = self.received.max(body.end());
        Ok(())
    }

    /// Checks the packets of a batch; those from the first bad one on, or behind the last of the
    /// block, are cut off.
    ///
    /// # Errors
    /// What is wrong with the first bad one.
    pub fn accept_batch(&mut self, batch: &mut PacketBatch) -> Result<(), BadPacket> {
        for at in 0..batch.packets.len() {
            if let Err(bad) = self.accept(&batch.packets[at]) {
                batch.packets.truncate(at);
                return Err(bad);
            }
            if batch.packets[at].last {
                batch.packets.truncate(at + 1);
                return Ok(());
            }
        }
        Ok(())
    }
}

/// Compares data with checksums, piece by piece: a piece that is not the last one ends with a
/// chunk.
fn verify(body: &PacketData) -> Result<(), ChecksumMismatch> {
    let checksum = body.checksum();
    let mut sums = &body.sums()[..];
    let mut at = 0;
    for piece in body.data().iter().filter(|piece| !piece.is_empty()) {
        let len = checksum.sums_len(piece.len()).min(sums.len());
        let (now, behind) = sums.split_at(len);
        checksum
            .verify(piece, now)
            .map_err(|mismatch| ChecksumMismatch {
                offset: at + mismatch.offset,
                ..mismatch
            })?;
        at += piece.len();
        sums = behind;
    }
    Ok(())
}
