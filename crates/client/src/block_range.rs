//! Bytes of one replica, verified as they come.

use bytes::{Buf as _, Bytes};
use hayloft_wire::checksum::DataChecksum;
use hayloft_wire::frame;
use hayloft_wire::ids::ExtendedBlock;
use hayloft_wire::packet::PacketLayout;
use hayloft_wire::proto::datatransfer as pb;
use hayloft_wire::proto::security::Token;
use hayloft_wire::transfer::{self, Status};

use super::node_link::{NodeLink, NodeTrouble};

/// What is read of a replica.
#[derive(Clone, Debug)]
pub struct BlockRange {
    /// The block, of the replica's generation stamp.
    pub block: ExtendedBlock,
    /// What the node asks a reader for.
    pub token: Token,
    /// Offset of the first byte.
    pub from: u64,
    /// Offset behind the last byte.
    pub end: u64,
}

/// A packet of which bytes are still to come. They are given out as they come: packets may be far
/// larger than what needs to be in memory.
struct OpenPacket {
    left: usize,
    /// Of the chunks that are left.
    sums: Bytes,
}

/// A replica that is being read.
pub struct RangeStream {
    link: NodeLink,
    checksum: DataChecksum,
    /// Offset of the next byte to give out.
    at: u64,
    end: u64,
    /// Offset of the next byte to receive.
    received: u64,
    /// The packet that is coming in.
    packet: Option<OpenPacket>,
    /// The node was told that all is well.
    finished: bool,
}

impl RangeStream {
    /// Begins to read over `link`, as the client of this name; DataNodes have none.
    ///
    /// # Errors
    /// The node has no such replica, does not answer in time, or does not keep to the protocol.
    pub async fn open(
        mut link: NodeLink,
        client: &str,
        range: BlockRange,
    ) -> Result<Self, NodeTrouble> {
        let BlockRange {
            block,
            token,
            from,
            end,
        } = range;
        let request = pb::OpReadBlock {
            header: transfer::client_header(&block, token, client),
            offset: from,
            len: end.saturating_sub(from),
            send_checksums: Some(true),
            caching_strategy: Some(pb::CachingStrategy::default()),
        };
        let response = link.ask(&request).await?;
        let response = link.success(response)?;
        let info = response
            .read_op_checksum_info
            .ok_or_else(|| link.trouble("a read begins without its checksum"))?;
        let checksum =
            DataChecksum::try_from(&info.checksum).map_err(|error| link.trouble(error))?;
        let first = info.chunk_offset;
        if first > from || from - first >= u64::from(checksum.bytes_per_checksum()) {
            let text = format!("a read at {from} begins at {first}, in another chunk");
            return Err(link.trouble(text));
        }
        Ok(Self {
            link,
            checksum,
            at: from,
            end,
            received: first,
            packet: None,
            finished: false,
        })
    }

    /// How the replica is checksummed.
    #[must_use]
    pub fn checksum(&self) -> DataChecksum {
        self.checksum
    }

    /// The next bytes, verified, some of them; `None` when all were given and the node was told
    /// that they arrived well. After an error the stream is of no more use.
    ///
    /// # Errors
    /// The replica is corrupt, the range ends early, or the node fails.
    pub async fn next(&mut self) -> Result<Option<Bytes>, NodeTrouble> {
        while !self.finished {
            let Some(packet) = &mut self.packet else {
                self.begin_packet().await?;
                continue;
            };
            let here = self.link.buffer.len().min(packet.left);
            let chunk = self.checksum.chunk_size();
            let whole = if here == packet.left {
                here
            } else {
                here / chunk * chunk
            };
            if whole == 0 {
                self.link.fill().await?;
                continue;
            }
            let mut data = self.link.buffer.split_to(whole).freeze();
            let sums = packet.sums.split_to(self.checksum.sums_len(whole));
            packet.left -= whole;
            if packet.left == 0 {
                self.packet = None;
            }
            if let Err(mismatch) = self.checksum.verify(&data, &sums) {
                return Err(NodeTrouble {
                    corrupt: true,
                    ..self.link.trouble(mismatch)
                });
            }
            let before = self.at.saturating_sub(self.received);
            self.received += whole as u64;
            let before = usize::try_from(before).unwrap_or(usize::MAX);
            data.advance(before.min(data.len()));
            let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
            data.truncate(left);
            if !data.is_empty() {
                self.at += data.len() as u64;
                return Ok(Some(data));
            }
        }
        Ok(None)
    }

    /// Takes in the head of the next packet, with its checksums.
    async fn begin_packet(&mut self) -> Result<(), NodeTrouble> {
        let layout = loop {
            let seen = PacketLayout::peek(&self.link.buffer, self.link.limits.packet);
            match seen.map_err(|error| self.link.trouble(error))? {
                Some(layout) => break layout,
                None => self.link.fill().await?,
            }
        };
        if layout.sums_len != self.checksum.sums_len(layout.data_len) {
            let (sums, data) = (layout.sums_len, layout.data_len);
            let text = format!("{sums} bytes of checksums for {data} of data");
            return Err(self.link.trouble(text));
        }
        let head = layout.prefix_len + layout.sums_len;
        while self.link.buffer.len() < head {
            self.link.fill().await?;
        }
        self.link.buffer.advance(layout.prefix_len);
        let sums = self.link.buffer.split_to(layout.sums_len).freeze();
        if layout.header.is_heartbeat() {
            return Ok(());
        }
        if layout.header.last_packet_in_block {
            return self.finish().await;
        }
        let begins = layout.header.offset_in_block;
        if begins != self.received {
            let text = format!("a packet at {begins}, not at {}", self.received);
            return Err(self.link.trouble(text));
        }
        if layout.data_len > 0 {
            self.packet = Some(OpenPacket {
                left: layout.data_len,
                sums,
            });
        }
        Ok(())
    }

    async fn finish(&mut self) -> Result<(), NodeTrouble> {
        if self.at < self.end {
            let text = format!("a read ends at {}, not at {}", self.at, self.end);
            return Err(self.link.trouble(text));
        }
        self.finished = true;
        let status = pb::ClientReadStatus {
            status: Status::ChecksumOk.into(),
        };
        // All bytes are here: whether the node hears it changes nothing.
        let _ = self.link.send(&frame::delimited(&status)).await;
        Ok(())
    }
}

#[cfg(test)]
#[path = "block_range_tests.rs"]
mod tests;
