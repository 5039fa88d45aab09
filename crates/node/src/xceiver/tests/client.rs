//! A client that does one thing at a time and checks everything.

use std::io;

use bytes::{Bytes, BytesMut};
use hayloft_wire::checksum::DataChecksum;
use hayloft_wire::frame;
use hayloft_wire::ids::ExtendedBlock;
use hayloft_wire::packet::{PacketHeader, PacketParser, encode_packet};
use hayloft_wire::pipeline_ack::{Hop, PipelineAck};
use hayloft_wire::proto::datatransfer as pb;
use hayloft_wire::proto::security::Token;
use hayloft_wire::transfer::{self, BlockOpResponse, OpMessage, Stage, Status};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Duration, timeout};

use super::node::Node;
use super::{block, crc32c};

/// Nothing in these tests takes longer.
const PATIENCE: Duration = Duration::from_secs(20);

/// A connection.
#[derive(Debug)]
pub struct Client<S = TcpStream> {
    pub stream: S,
    pub inbox: BytesMut,
}

impl Client {
    pub async fn connect(node: &Node) -> Self {
        let port = u16::try_from(node.id.xfer_port).expect("a port");
        let stream = TcpStream::connect(("127.0.0.1", port))
            .await
            .expect("the node listens");
        Self::on(stream)
    }

    /// A client whose address is not the node's: of another host, as far as the node can tell.
    pub async fn from_elsewhere(node: &Node) -> Self {
        let port = u16::try_from(node.id.xfer_port).expect("a port");
        let socket = TcpSocket::new_v4().expect("a socket");
        socket
            .bind(([127, 0, 0, 2], 0).into())
            .expect("of this host");
        let stream = socket.connect(([127, 0, 0, 1], port).into()).await;
        Self::on(stream.expect("the node listens"))
    }

    fn on(stream: TcpStream) -> Self {
        stream.set_nodelay(true).expect("a TCP socket");
        Self {
            stream,
            inbox: BytesMut::new(),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    pub async fn send(&mut self, bytes: &[u8]) {
        self.stream
            .write_all(bytes)
            .await
            .expect("the node takes it");
    }

    pub async fn request<M: OpMessage>(&mut self, message: &M) {
        let mut out = BytesMut::new();
        transfer::encode_request(message, &mut out);
        self.send(&out).await;
    }

    /// Reads until `decode` has something; `None` when the node closes.
    pub async fn read<T, E: std::fmt::Debug>(
        &mut self,
        mut decode: impl FnMut(&mut BytesMut) -> Result<Option<T>, E>,
    ) -> Option<T> {
        loop {
            if let Some(value) = decode(&mut self.inbox).expect("what the node sends makes sense") {
                return Some(value);
            }
            match timeout(PATIENCE, self.stream.read_buf(&mut self.inbox))
                .await
                .expect("the node answers in time")
            {
                Ok(0) => return None,
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::ConnectionReset => return None,
                Err(e) => panic!("reading from the node: {e}"),
            }
        }
    }

    pub async fn response(&mut self) -> Option<BlockOpResponse> {
        self.read(transfer::decode_response).await
    }

    pub async fn ack(&mut self) -> Option<PipelineAck> {
        self.read(PipelineAck::decode).await
    }

    /// Waits until the node closes the connection; what it still said.
    pub async fn rest(&mut self) -> Bytes {
        while self.read(|_| Ok::<Option<()>, ()>(None)).await.is_some() {}
        self.inbox.split().freeze()
    }

    /// Reads packets up to the last one; the data. Checks checksums and offsets.
    pub async fn packets(&mut self, checksum: DataChecksum, from: u64) -> Option<Vec<u8>> {
        let parser = PacketParser::default();
        let mut data = Vec::new();
        let mut seqno = 0;
        loop {
            let packet = self.read(|buf| parser.parse(buf)).await?;
            assert_eq!(packet.header.seqno, seqno, "packets are numbered");
            assert_eq!(packet.header.offset_in_block, from + data.len() as u64);
            seqno += 1;
            if packet.header.last_packet_in_block {
                assert!(packet.data.is_empty());
                return Some(data);
            }
            checksum
                .verify(&packet.data, &packet.sums)
                .expect("good checksums");
            data.extend_from_slice(&packet.data);
        }
    }
}

/// A write request to `nodes[0]` for all of them.
pub fn write_request(
    block: &ExtendedBlock,
    nodes: &[&Node],
    stage: Stage,
    checksum: DataChecksum,
) -> pb::OpWriteBlock {
    pb::OpWriteBlock {
        header: transfer::client_header(block, Token::default(), "client"),
        targets: nodes[1..].iter().map(|node| node.info()).collect(),
        target_storage_types: vec![1; nodes.len() - 1],
        stage: stage.into(),
        pipeline_size: u32::try_from(nodes.len()).expect("few"),
        requested_checksum: checksum.into(),
        storage_type: Some(1),
        ..pb::OpWriteBlock::default()
    }
}

/// A pipeline that was set up.
#[derive(Debug)]
pub struct Pipeline<S = TcpStream> {
    pub client: Client<S>,
    pub checksum: DataChecksum,
    pub offset: u64,
    pub seqno: i64,
}

impl Pipeline {
    /// Creates a block in `nodes`.
    pub async fn create(id: i64, generation_stamp: u64, nodes: &[&Node]) -> Self {
        let request = write_request(
            &block(id, generation_stamp),
            nodes,
            Stage::PipelineSetupCreate,
            crc32c(),
        );
        Self::set_up(nodes[0], &request)
            .await
            .expect("the pipeline is set up")
    }

    /// Sends a write request; the response when it is no success, or nothing.
    pub async fn set_up(
        node: &Node,
        request: &pb::OpWriteBlock,
    ) -> Result<Self, Option<BlockOpResponse>> {
        Self::set_up_on(Client::connect(node).await, request).await
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Pipeline<S> {
    /// As [`set_up`](Pipeline::set_up), on this connection.
    pub async fn set_up_on(
        mut client: Client<S>,
        request: &pb::OpWriteBlock,
    ) -> Result<Self, Option<BlockOpResponse>> {
        client.request(request).await;
        let response = client.response().await;
        let checksum = DataChecksum::try_from(&request.requested_checksum).expect("valid");
        match response {
            Some(response) if response.outcome() == Status::Success => {
                assert_eq!(response.first_bad_link(), "");
                Ok(Self {
                    client,
                    checksum,
                    offset: 0,
                    seqno: 0,
                })
            }
            other => Err(other),
        }
    }

    /// Sends one packet at the present offset and moves on; does not wait for the acknowledgement.
    pub async fn send(&mut self, data: &[u8], sync: bool) {
        let at = self.offset;
        self.send_at(at, data, sync).await;
        self.offset = at + data.len() as u64;
    }

    pub async fn send_at(&mut self, offset: u64, data: &[u8], sync: bool) {
        let mut sums = Vec::new();
        self.checksum.compute(data, &mut sums);
        self.send_raw(offset, data, &sums, sync, false).await;
    }

    pub async fn send_raw(
        &mut self,
        offset: u64,
        data: &[u8],
        sums: &[u8],
        sync: bool,
        last: bool,
    ) {
        let header = PacketHeader {
            offset_in_block: offset,
            seqno: self.seqno,
            last_packet_in_block: last,
            data_len: u32::try_from(data.len()).expect("a packet"),
            sync_block: sync,
        };
        self.seqno += 1;
        let mut out = BytesMut::new();
        encode_packet(&header, sums, data, &mut out);
        self.client.send(&out).await;
    }

    pub async fn heartbeat(&mut self) {
        let header = PacketHeader {
            seqno: -1,
            ..PacketHeader::default()
        };
        let mut out = BytesMut::new();
        encode_packet(&header, &[], &[], &mut out);
        self.client.send(&out).await;
    }

    /// Waits for the acknowledgement of packet `seqno` by `hops` nodes.
    pub async fn acked(&mut self, seqno: i64, hops: usize) {
        let ack = self.client.ack().await.expect("the pipeline lives");
        assert_eq!(ack.seqno, seqno);
        assert_eq!(statuses(&ack), vec![Status::Success; hops]);
    }

    /// Sends `data` in packets of `packet` bytes and waits for all acknowledgements.
    pub async fn write(&mut self, data: &[u8], packet: usize, hops: usize) {
        for piece in data.chunks(packet) {
            self.send(piece, false).await;
            self.acked(self.seqno - 1, hops).await;
        }
    }

    /// Ends the block.
    pub async fn close(mut self, hops: usize) {
        let at = self.offset;
        self.send_raw(at, &[], &[], false, true).await;
        self.acked(self.seqno - 1, hops).await;
        assert!(
            self.client.rest().await.is_empty(),
            "nothing follows the last acknowledgement"
        );
    }
}

pub fn statuses(ack: &PipelineAck) -> Vec<Status> {
    ack.hops.iter().map(|hop: &Hop| hop.status()).collect()
}

/// A read request.
pub fn read_request(
    block: &ExtendedBlock,
    offset: u64,
    len: u64,
    with_sums: bool,
) -> pb::OpReadBlock {
    pb::OpReadBlock {
        header: transfer::client_header(block, Token::default(), "client"),
        offset,
        len,
        send_checksums: Some(with_sums),
        caching_strategy: None,
    }
}

/// Reads a range and confirms it on the same connection. `Err`: the answer, or nothing.
pub async fn read_on<S: AsyncRead + AsyncWrite + Unpin>(
    client: &mut Client<S>,
    block: &ExtendedBlock,
    offset: u64,
    len: u64,
    with_sums: bool,
) -> Result<Vec<u8>, Option<BlockOpResponse>> {
    client
        .request(&read_request(block, offset, len, with_sums))
        .await;
    let response = client.response().await.ok_or(None)?;
    if response.outcome() != Status::Success {
        return Err(Some(response));
    }
    let info = response
        .read_op_checksum_info
        .expect("a read reply names its checksum");
    let checksum = DataChecksum::try_from(&info.checksum).expect("a valid checksum");
    let data = client
        .packets(checksum, info.chunk_offset)
        .await
        .ok_or(None)?;
    let status = pb::ClientReadStatus {
        status: Status::ChecksumOk.into(),
    };
    client.send(&frame::delimited(&status)).await;
    let skip = usize::try_from(offset - info.chunk_offset).expect("within a chunk");
    let wanted = usize::try_from(len).expect("small");
    assert!(data.len() >= skip + wanted, "the range is covered");
    Ok(data[skip..skip + wanted].to_vec())
}

/// Reads a range over a new connection.
pub async fn read(
    node: &Node,
    block: &ExtendedBlock,
    offset: u64,
    len: u64,
) -> Result<Vec<u8>, Option<BlockOpResponse>> {
    read_on(&mut Client::connect(node).await, block, offset, len, true).await
}
