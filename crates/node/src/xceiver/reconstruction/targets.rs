//! Where reconstructed blocks go: a stream to each target.

use bytes::BytesMut;
use futures_util::future::join_all;
use hayloft_wire::checksum::DataChecksum;
use hayloft_wire::ids::ExtendedBlock;
use hayloft_wire::proto::datatransfer as pb;
use hayloft_wire::proto::security::Token;
use hayloft_wire::transfer::{self, Stage};

use super::check_order::Target;
use super::decode::Sink;
use crate::xceiver::block_sender::packets::Packets;
use crate::xceiver::block_sender::range::Range;
use crate::xceiver::context::Xceivers;
use crate::xceiver::error::XferError;
use crate::xceiver::net::conn::Conn;
use crate::xceiver::net::connect_to_node::{self, NodeForBlock};
use crate::xceiver::ops::transfer_block::node_info;
use crate::xceiver::settings::Settings;

/// Data in a packet, rounded to whole chunks: Apache's size.
const PACKET_DATA: usize = 64 << 10;

/// The targets of one reconstruction. One that fails is left out from then on; the NameNode misses
/// its block, and orders it again.
pub(super) struct TargetStreams<'a> {
    x: &'a Xceivers,
    checksum: DataChecksum,
    streams: Vec<TargetStream>,
}

/// A block on its way to a node.
struct TargetStream {
    block: ExtendedBlock,
    node: String,
    /// `None` when it failed.
    packets: Option<Packets<Conn>>,
    /// Checksums of the bytes that go next.
    sums: Vec<u8>,
}

impl<'a> TargetStreams<'a> {
    /// Connects to all targets and announces the blocks, each with its length.
    ///
    /// # Errors
    /// No target can be reached.
    pub(super) async fn open(
        x: &'a Xceivers,
        settings: &Settings,
        targets: &[(Target, ExtendedBlock)],
        checksum: DataChecksum,
    ) -> Result<Self, XferError> {
        let opening = targets
            .iter()
            .map(|(target, block)| TargetStream::open(x, settings, target, block, checksum));
        let streams = join_all(opening).await;
        let this = Self {
            x,
            checksum,
            streams,
        };
        this.check_any()?;
        Ok(this)
    }

    /// How many targets have their block in full, as far as this node can tell: as with copies,
    /// they give no answer.
    pub(super) fn complete(&self) -> usize {
        let complete = self
            .streams
            .iter()
            .filter(|stream| stream.packets.is_some());
        complete.count()
    }

    fn check_any(&self) -> Result<(), XferError> {
        if self.complete() == 0 {
            let text = "no target takes its block".to_owned();
            return Err(XferError::Refused(text));
        }
        Ok(())
    }
}

impl Sink for TargetStreams<'_> {
    async fn take(&mut self, blocks: &[&[u8]]) -> Result<(), XferError> {
        let checksum = self.checksum;
        let streams = self.streams.iter_mut().zip(blocks);
        let sending = streams.map(|(stream, bytes)| stream.send(checksum, bytes));
        let sent: usize = join_all(sending).await.into_iter().sum();
        self.check_any()?;
        let limit = &self.x.throttles().reconstruction_write;
        limit.take(sent as u64).await;
        Ok(())
    }
}

impl TargetStream {
    async fn open(
        x: &Xceivers,
        settings: &Settings,
        target: &Target,
        block: &ExtendedBlock,
        checksum: DataChecksum,
    ) -> Self {
        let mut this = Self {
            block: block.clone(),
            node: target.node.id.xfer_addr(),
            packets: None,
            sums: Vec::new(),
        };
        let token = match x.token(block, target.access()) {
            Ok(token) => token,
            Err(error) => {
                this.fail(&error);
                return this;
            }
        };
        let to = NodeForBlock {
            node: &target.node.id,
            pool: &block.pool,
            token: &token,
        };
        match connect_to_node::connect(x, settings, to, 1).await {
            Ok(conn) => {
                let mut head = BytesMut::new();
                let request = write_request(x, target, block, token, checksum);
                transfer::encode_request(&request, &mut head);
                let range = Range {
                    start: 0,
                    end: block.block.num_bytes,
                    checksum,
                };
                let chunk = checksum.chunk_size();
                let packet = (PACKET_DATA / chunk).max(1) * chunk;
                this.packets = Some(Packets::new(conn, range, packet, head.freeze()));
            }
            Err(error) => this.fail(&error),
        }
        this
    }

    /// Sends the next bytes; how many went out.
    async fn send(&mut self, checksum: DataChecksum, bytes: &[u8]) -> usize {
        let Some(packets) = self.packets.as_mut().filter(|_| !bytes.is_empty()) else {
            return 0;
        };
        self.sums.clear();
        checksum.compute(bytes, &mut self.sums);
        if let Err(error) = packets.send(bytes, &self.sums).await {
            self.fail(&error);
            return 0;
        }
        bytes.len()
    }

    fn fail(&mut self, error: &XferError) {
        tracing::warn!(block = %self.block, node = self.node, "a target of a reconstruction \
            failed: {error}");
        self.packets = None;
    }
}

/// WRITE_BLOCK as for a copy, with the one target.
fn write_request(
    x: &Xceivers,
    target: &Target,
    block: &ExtendedBlock,
    token: Token,
    checksum: DataChecksum,
) -> pb::OpWriteBlock {
    pb::OpWriteBlock {
        header: transfer::client_header(block, token, ""),
        storage_type: Some(target.storage_type),
        storage_id: target.storage_id.clone(),
        source: x.link().identity(&block.pool).map(node_info),
        stage: Stage::PipelineSetupCreate.into(),
        requested_checksum: checksum.into(),
        caching_strategy: Some(pb::CachingStrategy::default()),
        allow_lazy_persist: Some(false),
        pinning: Some(false),
        ..pb::OpWriteBlock::default()
    }
}
