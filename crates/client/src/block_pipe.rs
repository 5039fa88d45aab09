//! The way of one block's packets to its nodes, and of their acknowledgements back.
//!
//! A packet is kept until all nodes have acknowledged it, so that it can be sent again through a
//! pipeline without the node that failed. At most [`BlockPipe::window`] packets are kept.

use std::collections::VecDeque;

use bytes::{BufMut as _, Bytes, BytesMut};
use hayloft_wire::checksum::DataChecksum;
use hayloft_wire::ids::ExtendedBlock;
use hayloft_wire::packet::{HEARTBEAT_SEQNO, MAX_PREFIX_BYTES, PacketHeader};
use hayloft_wire::pipeline_ack::{PipelineAck, UNKNOWN_SEQNO};
use hayloft_wire::proto::datatransfer as pb;
use hayloft_wire::proto::hdfs::DatanodeInfo;
use hayloft_wire::proto::security::Token;
use hayloft_wire::transfer::{self, Stage, Status};

use super::FileClient;
use super::node_link::{NodeLink, NodeTrouble, Target};

/// A packet that is not acknowledged.
#[derive(Clone, Debug)]
struct Sent {
    seqno: i64,
    /// Offset behind its data.
    end: u64,
    bytes: Bytes,
    last: bool,
}

/// A pipeline that failed.
#[derive(Clone, Debug)]
pub(super) struct PipeTrouble {
    /// Which of its nodes it was.
    pub(super) culprit: usize,
    pub(super) trouble: NodeTrouble,
}

/// A block on its way.
pub(super) struct BlockPipe {
    pub(super) block: ExtendedBlock,
    pub(super) token: Token,
    pub(super) targets: Vec<Target>,
    checksum: DataChecksum,
    /// Packets that may wait for their acknowledgement.
    window: usize,
    link: Option<NodeLink>,
    unacked: VecDeque<Sent>,
    next_seqno: i64,
    /// Offset behind what was sent.
    sent: u64,
    acked: u64,
    closed: bool,
}

impl BlockPipe {
    /// A block of which `len` bytes are there.
    pub(super) fn new(
        block: ExtendedBlock,
        token: Token,
        targets: Vec<Target>,
        checksum: DataChecksum,
        window: usize,
    ) -> Self {
        let len = block.block.num_bytes;
        Self {
            block,
            token,
            targets,
            checksum,
            window,
            link: None,
            unacked: VecDeque::new(),
            next_seqno: 0,
            sent: len,
            acked: len,
            closed: false,
        }
    }

    /// Bytes that all nodes have.
    pub(super) fn acked(&self) -> u64 {
        self.acked
    }

    /// Whether there is a connection.
    pub(super) fn is_open(&self) -> bool {
        self.link.is_some()
    }

    /// Whether the block has begun at its nodes.
    pub(super) fn has_begun(&self) -> bool {
        self.link.is_some() || self.closed
    }

    /// Whether all but its end is acknowledged, and the end was sent.
    pub(super) fn is_closing(&self) -> bool {
        let only_the_end = self.unacked.len() == 1 && self.unacked.iter().all(|sent| sent.last);
        self.closed || only_the_end
    }

    /// All is acknowledged, without asking: the nodes have closed the block by themselves.
    pub(super) fn set_closed(&mut self) {
        self.unacked.clear();
        self.link = None;
        self.closed = true;
    }

    /// Sets the pipeline up for the generation stamp `stamp`.
    pub(super) async fn open(
        &mut self,
        client: &FileClient,
        stage: Stage,
        stamp: u64,
    ) -> Result<(), PipeTrouble> {
        self.link = None;
        let first = self.targets.first().map(|target| target.node.id.clone());
        let Some(first) = first else {
            let trouble = NodeTrouble {
                node: self.block.to_string(),
                reason: "no node is left".to_owned(),
                corrupt: false,
            };
            return Err(self.trouble(0, trouble));
        };
        let hops = self.targets.len();
        let connecting = NodeLink::connect(client, &first, hops, &self.token);
        let mut link = connecting
            .await
            .map_err(|trouble| self.trouble(0, trouble))?;
        let request = self.request(client, stage, stamp);
        let response = link.ask(&request).await;
        let response = response.map_err(|trouble| self.trouble(0, trouble))?;
        if response.outcome() != Status::Success {
            let bad = response.first_bad_link.clone().unwrap_or_default();
            let named = |target: &Target| target.node.id.xfer_addr() == bad;
            let culprit = self.targets.iter().position(named).unwrap_or(0);
            let reason = response.message.clone().unwrap_or_default();
            let trouble = link.trouble(format_args!("{:?} {bad} {reason}", response.outcome()));
            return Err(self.trouble(culprit, trouble));
        }
        self.link = Some(link);
        Ok(())
    }

    fn request(&self, client: &FileClient, stage: Stage, stamp: u64) -> pb::OpWriteBlock {
        let further: Vec<DatanodeInfo> = self
            .targets
            .iter()
            .skip(1)
            .map(|target| target.node.clone())
            .collect();
        let after_first = || self.targets.iter().skip(1);
        let first = self.targets.first();
        pb::OpWriteBlock {
            header: transfer::client_header(&self.block, self.token.clone(), &client.name),
            target_storage_types: after_first().map(|target| target.storage_type).collect(),
            target_storage_ids: after_first().map(|t| t.storage_id.clone()).collect(),
            target_pinnings: vec![false; further.len()],
            targets: further,
            stage: stage.into(),
            pipeline_size: u32::try_from(self.targets.len()).unwrap_or(u32::MAX),
            min_bytes_rcvd: self.acked,
            max_bytes_rcvd: self.sent,
            latest_generation_stamp: stamp,
            requested_checksum: self.checksum.into(),
            storage_type: first.map(|target| target.storage_type),
            storage_id: first.map(|target| target.storage_id.clone()),
            caching_strategy: Some(pb::CachingStrategy::default()),
            ..pb::OpWriteBlock::default()
        }
    }

    fn trouble(&mut self, culprit: usize, trouble: NodeTrouble) -> PipeTrouble {
        self.link = None;
        PipeTrouble { culprit, trouble }
    }

    /// Sends the packet of `data` that comes next, or the empty one that ends the block. When that
    /// fails it goes out with [`resend`](Self::resend).
    pub(super) async fn send(
        &mut self,
        data: &[u8],
        last: bool,
        sync: bool,
    ) -> Result<(), PipeTrouble> {
        let header = PacketHeader {
            offset_in_block: self.sent,
            seqno: self.next_seqno,
            last_packet_in_block: last,
            data_len: u32::try_from(data.len()).expect("packets are far smaller"),
            sync_block: sync,
        };
        let sums_len = self.checksum.sums_len(data.len());
        let mut out = BytesMut::with_capacity(MAX_PREFIX_BYTES + sums_len + data.len());
        header.encode_prefix(sums_len, &mut out);
        self.checksum.compute(data, &mut out);
        out.put_slice(data);
        self.next_seqno += 1;
        self.sent += data.len() as u64;
        let bytes = out.freeze();
        self.unacked.push_back(Sent {
            seqno: header.seqno,
            end: self.sent,
            bytes: bytes.clone(),
            last,
        });
        self.transmit(&bytes).await?;
        while self.unacked.len() > self.window {
            self.take_ack().await?;
        }
        Ok(())
    }

    /// Sends again what is not acknowledged, after the pipeline was set up anew.
    pub(super) async fn resend(&mut self) -> Result<(), PipeTrouble> {
        let waiting: Vec<Bytes> = self.unacked.iter().map(|sent| sent.bytes.clone()).collect();
        for bytes in waiting {
            self.transmit(&bytes).await?;
        }
        Ok(())
    }

    /// Tells the nodes that the writer is still there.
    pub(super) async fn keep_alive(&mut self) -> Result<(), PipeTrouble> {
        let header = PacketHeader {
            seqno: HEARTBEAT_SEQNO,
            ..PacketHeader::default()
        };
        let mut out = BytesMut::new();
        header.encode_prefix(0, &mut out);
        self.transmit(&out).await
    }

    /// Waits until all is acknowledged.
    pub(super) async fn flush(&mut self) -> Result<(), PipeTrouble> {
        while !self.unacked.is_empty() {
            self.take_ack().await?;
        }
        Ok(())
    }

    async fn transmit(&mut self, bytes: &[u8]) -> Result<(), PipeTrouble> {
        let Some(link) = &mut self.link else {
            return Err(self.disconnected());
        };
        match link.send(bytes).await {
            Ok(()) => Ok(()),
            // An acknowledgement may have come that says whose fault it is.
            Err(trouble) => match self.take_known_acks() {
                Err(told) => Err(told),
                Ok(()) => Err(self.trouble(0, trouble)),
            },
        }
    }

    fn disconnected(&mut self) -> PipeTrouble {
        let trouble = NodeTrouble {
            node: self.block.to_string(),
            reason: "there is no connection".to_owned(),
            corrupt: false,
        };
        self.trouble(0, trouble)
    }

    /// Takes the acknowledgements that have come.
    fn take_known_acks(&mut self) -> Result<(), PipeTrouble> {
        while let Some(link) = &mut self.link {
            match PipelineAck::decode(&mut link.buffer) {
                Ok(Some(ack)) => self.acknowledged(&ack)?,
                Ok(None) => break,
                Err(error) => {
                    let trouble = link.trouble(error);
                    return Err(self.trouble(0, trouble));
                }
            }
        }
        Ok(())
    }

    /// Waits for at least one acknowledgement.
    async fn take_ack(&mut self) -> Result<(), PipeTrouble> {
        let before = self.unacked.len();
        self.take_known_acks()?;
        while self.unacked.len() == before {
            let Some(link) = &mut self.link else {
                return Err(self.disconnected());
            };
            if let Err(trouble) = link.fill().await {
                return Err(self.trouble(0, trouble));
            }
            self.take_known_acks()?;
        }
        Ok(())
    }

    fn acknowledged(&mut self, ack: &PipelineAck) -> Result<(), PipeTrouble> {
        let bad = ack
            .hops
            .iter()
            .position(|hop| hop.status() != Status::Success);
        if let Some(culprit) = bad {
            let culprit = culprit.min(self.targets.len().saturating_sub(1));
            let status = ack.hops[culprit.min(ack.hops.len() - 1)].status();
            let node = self
                .targets
                .get(culprit)
                .map(|target| target.node.id.xfer_addr());
            let trouble = NodeTrouble {
                node: node.unwrap_or_default(),
                reason: format!("it answered {status:?}"),
                corrupt: false,
            };
            return Err(self.trouble(culprit, trouble));
        }
        if matches!(ack.seqno, HEARTBEAT_SEQNO | UNKNOWN_SEQNO) {
            return Ok(());
        }
        match self.unacked.front() {
            Some(sent) if sent.seqno == ack.seqno && ack.hops.len() == self.targets.len() => {
                self.acked = sent.end;
                self.closed |= sent.last;
                self.unacked.pop_front();
                Ok(())
            }
            waiting => {
                let waiting = waiting.map(|sent| sent.seqno);
                let trouble = NodeTrouble {
                    node: self.block.to_string(),
                    reason: format!("{ack:?} is no answer to the packet {waiting:?}"),
                    corrupt: false,
                };
                Err(self.trouble(0, trouble))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use hayloft_wire::checksum::ChecksumKind;
    use hayloft_wire::ids::{Block, PoolId};
    use hayloft_wire::pipeline_ack::Hop;
    use hayloft_wire::proto::hdfs::DatanodeId;

    use super::*;

    fn pipe() -> BlockPipe {
        let pool = PoolId::new("BP-1-127.0.0.1-1").expect("valid");
        let target = |port| Target {
            node: DatanodeInfo {
                id: DatanodeId {
                    ip_addr: "127.0.0.1".into(),
                    xfer_port: port,
                    ..DatanodeId::default()
                },
                ..DatanodeInfo::default()
            },
            storage_id: String::new(),
            storage_type: 1,
        };
        let checksum = DataChecksum::new(ChecksumKind::Crc32c, 512).expect("valid");
        let block = ExtendedBlock::new(pool, Block::new(1, 1001, 0));
        let targets = vec![target(1), target(2)];
        BlockPipe::new(block, Token::default(), targets, checksum, 2)
    }

    #[tokio::test]
    async fn acknowledgements_come_in_order_and_name_the_culprit() {
        let mut pipe = pipe();
        // Without a connection the packet is kept all the same.
        pipe.send(&[1; 1000], false, false)
            .await
            .expect_err("no connection");
        pipe.send(&[], true, false)
            .await
            .expect_err("no connection");
        let ack = |seqno, hops: &[Status]| {
            PipelineAck::new(
                seqno,
                hops.iter().map(|&status| Hop::of(status)).collect(),
                0,
            )
        };
        let fine = [Status::Success, Status::Success];
        let bad = ack(0, &[Status::Success, Status::Error]);
        assert_eq!(pipe.acknowledged(&bad).expect_err("bad").culprit, 1);
        let skipped = pipe.acknowledged(&ack(1, &fine));
        assert_eq!(skipped.expect_err("out of order").culprit, 0);
        pipe.acknowledged(&ack(0, &fine[..1]))
            .expect_err("too few nodes");
        pipe.acknowledged(&ack(HEARTBEAT_SEQNO, &fine))
            .expect("a heartbeat");
        assert_eq!((pipe.acked(), pipe.is_closing()), (0, false));
        pipe.acknowledged(&ack(0, &fine)).expect("the first");
        assert_eq!((pipe.acked(), pipe.is_closing()), (1000, true));
        pipe.acknowledged(&ack(1, &fine)).expect("the last");
        assert!(pipe.closed && pipe.unacked.is_empty());
    }
}
