//! Bytes of one replica, verified as they come.

use bytes::{Buf as _, Bytes};
use hayloft_wire::checksum::DataChecksum;
use hayloft_wire::frame;
use hayloft_wire::ids::ExtendedBlock;
use hayloft_wire::packet::PacketParser;
use hayloft_wire::proto::datatransfer as pb;
use hayloft_wire::proto::hdfs::DatanodeId;
use hayloft_wire::proto::security::Token;
use hayloft_wire::transfer::{self, Status};

use super::FileClient;
use super::node_link::{NodeLink, NodeTrouble};

/// What is read of a replica.
#[derive(Clone, Debug)]
pub(super) struct BlockRange {
    pub(super) block: ExtendedBlock,
    pub(super) token: Token,
    pub(super) from: u64,
    /// Behind the last byte.
    pub(super) end: u64,
}

/// A replica that is being read.
pub(super) struct RangeStream {
    link: NodeLink,
    checksum: DataChecksum,
    /// Offset of the next byte to give out.
    at: u64,
    end: u64,
    /// Offset at which the next packet begins.
    packet_at: u64,
    /// The node was told that all is well.
    finished: bool,
}

impl RangeStream {
    /// Begins to read.
    pub(super) async fn open(
        client: &FileClient,
        node: &DatanodeId,
        range: BlockRange,
    ) -> Result<Self, NodeTrouble> {
        let BlockRange {
            block,
            token,
            from,
            end,
        } = range;
        let mut link = NodeLink::connect(&client.settings, node, 0).await?;
        let request = pb::OpReadBlock {
            header: transfer::client_header(&block, token, &client.name),
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
            packet_at: first,
            finished: false,
        })
    }

    /// The next bytes, some of them; `None` at the end of the range.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, NodeTrouble> {
        while !self.finished {
            let parsed = PacketParser::default().parse(&mut self.link.buffer);
            let Some(packet) = parsed.map_err(|error| self.link.trouble(error))? else {
                self.link.fill().await?;
                continue;
            };
            if packet.header.is_heartbeat() {
                continue;
            }
            if packet.header.last_packet_in_block {
                self.finish().await?;
                break;
            }
            let begins = packet.header.offset_in_block;
            if begins != self.packet_at {
                let text = format!("a packet at {begins}, not at {}", self.packet_at);
                return Err(self.link.trouble(text));
            }
            if let Err(mismatch) = self.checksum.verify(&packet.data, &packet.sums) {
                return Err(NodeTrouble {
                    corrupt: true,
                    ..self.link.trouble(mismatch)
                });
            }
            self.packet_at += packet.data.len() as u64;
            let mut data = packet.data;
            let before = self.at.saturating_sub(begins);
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
