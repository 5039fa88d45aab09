//! A connection to the data transfer port of a node, and what can go wrong on it.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::BytesMut;
use hayloft_rpc::client::connection::connect_from;
use hayloft_wire::limits::MAX_PACKET_BYTES;
use hayloft_wire::proto::datatransfer::OpBlockChecksumResponse;
use hayloft_wire::proto::hdfs::{DatanodeId, DatanodeInfo, LocatedBlock, StorageType};
use hayloft_wire::proto::security::Token;
use hayloft_wire::transfer::{self, BlockOpResponse, OpMessage, Status};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::node_stream::NodeStream;
use super::prove_to_node::{NodeCredential, Protected, prove_to_node};
use super::transfer_protection::TransferProof;
use super::{ClientSettings, FileClient};

/// Room for what a node sends; new room is made when so little of it is left.
const RECEIVE_BYTES: usize = 64 << 10;
const RECEIVE_BYTES_MIN: usize = 16 << 10;
/// A node that waits for others in its pipeline takes so much longer for each.
const PER_HOP: Duration = Duration::from_secs(5);

/// What went wrong with a node.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{node}: {reason}")]
pub struct NodeTrouble {
    /// The node's transfer address.
    pub node: String,
    /// What failed, or what the node answered.
    pub reason: String,
    /// Whether the node's replica is corrupt.
    pub corrupt: bool,
}

/// What is allowed to the other end of a connection.
#[derive(Clone, Copy, Debug)]
pub struct LinkLimits {
    /// How long it may be silent while its answer is awaited; `None` is for ever.
    pub read: Option<Duration>,
    /// How long it may take nothing of what is sent; `None` is for ever.
    pub write: Option<Duration>,
    /// Bytes of the largest packet that it may send.
    pub packet: u32,
}

/// A node of a block with its storage there.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) node: DatanodeInfo,
    pub(super) storage_id: String,
    pub(super) storage_type: i32,
}

impl Target {
    /// The nodes of a block in the order of its pipeline.
    pub(super) fn all_of(block: &LocatedBlock) -> Vec<Self> {
        let of = |(index, node): (usize, &DatanodeInfo)| Self {
            node: node.clone(),
            storage_id: block.storage_ids.get(index).cloned().unwrap_or_default(),
            storage_type: block
                .storage_types
                .get(index)
                .copied()
                .unwrap_or(StorageType::Disk.into()),
        };
        block.locs.iter().enumerate().map(of).collect()
    }

    pub(super) fn is(&self, node: &DatanodeInfo) -> bool {
        self.node.id.datanode_uuid == node.id.datanode_uuid
    }
}

/// A connection. It holds what came of a packet: its checksums and a chunk, some 64 KiB, and with
/// the largest chunks 16 MiB.
pub struct NodeLink {
    node: String,
    stream: NodeStream,
    /// What came and was not taken.
    pub(super) buffer: BytesMut,
    pub(super) limits: LinkLimits,
}

impl NodeLink {
    /// Takes over `stream`, which is connected to the transfer port `node`.
    #[must_use]
    pub fn over(stream: NodeStream, node: String, limits: LinkLimits) -> Self {
        Self {
            node,
            stream,
            buffer: BytesMut::new(),
            limits,
        }
    }

    /// Connects to a node behind which `hops` more are in a pipeline, as the holder of `token`.
    pub(super) async fn connect(
        client: &FileClient,
        node: &DatanodeId,
        hops: usize,
        token: &Token,
    ) -> Result<Self, NodeTrouble> {
        let settings = &client.settings;
        let name = node.xfer_addr();
        let trouble = |reason: String| NodeTrouble {
            node: name.clone(),
            reason,
            corrupt: false,
        };
        let hops = u32::try_from(hops).unwrap_or(u32::MAX);
        let patience = settings.socket_timeout + PER_HOP.saturating_mul(hops);
        let connected = timeout(settings.socket_timeout, dial(settings, node)).await;
        let mut stream = connected
            .unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))
            .map_err(|error| trouble(format!("cannot connect: {error}")))?;
        let proved = prove(client, &mut stream, node.xfer_port, token).await;
        let protected = proved.map_err(trouble)?;
        let limits = LinkLimits {
            read: Some(patience),
            write: Some(patience),
            packet: MAX_PACKET_BYTES,
        };
        Ok(Self::over(
            NodeStream::over(stream, protected),
            name,
            limits,
        ))
    }

    pub(super) fn trouble(&self, reason: impl std::fmt::Display) -> NodeTrouble {
        NodeTrouble {
            node: self.node.clone(),
            reason: reason.to_string(),
            corrupt: false,
        }
    }

    /// Waits for more bytes.
    pub(super) async fn fill(&mut self) -> Result<(), NodeTrouble> {
        if self.buffer.capacity() - self.buffer.len() < RECEIVE_BYTES_MIN {
            self.buffer.reserve(RECEIVE_BYTES);
        }
        let limit = self.limits.read.unwrap_or(Duration::MAX);
        match timeout(limit, self.stream.read_buf(&mut self.buffer)).await {
            Ok(Ok(0)) => Err(self.trouble("it closed the connection")),
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(self.trouble(error)),
            Err(_) => Err(self.trouble(format_args!("silent for {limit:?}"))),
        }
    }

    /// Sends all of `bytes`; takes in what comes meanwhile, so that neither side waits for the
    /// other to read.
    pub(super) async fn send(&mut self, bytes: &[u8]) -> Result<(), NodeTrouble> {
        let buffer = &mut self.buffer;
        let limit = self.limits.write.unwrap_or(Duration::MAX);
        let sent = match &mut self.stream {
            NodeStream::Plain(stream) => {
                let (read, write) = stream.split();
                timeout(limit, send_and_take(read, write, bytes, buffer)).await
            }
            NodeStream::Protected(stream) => {
                let (read, write) = tokio::io::split(&mut **stream);
                timeout(limit, send_and_take(read, write, bytes, buffer)).await
            }
        };
        match sent {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(self.trouble(format_args!("sending: {error}"))),
            Err(_) => Err(self.trouble(format_args!("takes nothing for {limit:?}"))),
        }
    }

    /// Sends a request and waits for the answer, whatever it says.
    pub(super) async fn ask<M: OpMessage>(
        &mut self,
        message: &M,
    ) -> Result<BlockOpResponse, NodeTrouble> {
        let mut out = BytesMut::new();
        transfer::encode_request(message, &mut out);
        self.send(&out).await?;
        loop {
            let decoded = transfer::decode_response(&mut self.buffer);
            match decoded.map_err(|error| self.trouble(error))? {
                Some(response) => return Ok(response),
                None => self.fill().await?,
            }
        }
    }

    /// Asks for the checksum of a block or of a block group.
    ///
    /// # Errors
    /// The node does not answer in time, or has no checksum to give.
    pub async fn checksum<M: OpMessage>(
        &mut self,
        message: &M,
    ) -> Result<OpBlockChecksumResponse, NodeTrouble> {
        let response = self.ask(message).await?;
        let response = self.success(response)?;
        let answer = response.checksum_response;
        answer.ok_or_else(|| self.trouble("an answer without a checksum"))
    }

    /// The answer, when it is a success.
    pub(super) fn success(
        &self,
        response: BlockOpResponse,
    ) -> Result<BlockOpResponse, NodeTrouble> {
        match response.outcome() {
            Status::Success => Ok(response),
            status => {
                let message = response.message.unwrap_or_default();
                Err(self.trouble(format_args!("{status:?} {message}")))
            }
        }
    }
}

/// Sends all of `bytes`, and takes in what comes meanwhile, as far as there is room for it.
async fn send_and_take(
    mut read: impl AsyncRead + Unpin,
    mut write: impl AsyncWrite + Unpin,
    bytes: &[u8],
    buffer: &mut BytesMut,
) -> std::io::Result<()> {
    let writing = async {
        write.write_all(bytes).await?;
        write.flush().await
    };
    let mut writing = std::pin::pin!(writing);
    loop {
        let room = buffer.len() < RECEIVE_BYTES;
        tokio::select! {
            biased;
            sent = &mut writing => return sent,
            read = read.read_buf(buffer), if room => {
                if read? == 0 {
                    return Err(std::io::ErrorKind::ConnectionReset.into());
                }
            }
        }
    }
}

/// Proves to the node on its port who is there, where it asks for that.
async fn prove(
    client: &FileClient,
    stream: &mut TcpStream,
    port: u32,
    token: &Token,
) -> Result<Option<Protected>, String> {
    let protection = &client.settings.protection;
    let key;
    let credential = match protection.towards(port) {
        TransferProof::None => return Ok(None),
        TransferProof::BlockToken => NodeCredential::BlockToken(token),
        TransferProof::EncryptionKey => {
            key = client.transfer_key().await.map_err(|e| e.to_string())?;
            key.credential()
        }
    };
    let proved = Box::pin(prove_to_node(stream, protection, credential)).await;
    if proved.is_err() && credential.proof() == TransferProof::EncryptionKey {
        // The node may know no such key any more: the next connection has another one.
        client.forget_transfer_key().await;
    }
    proved.map_err(|error| error.to_string())
}

async fn dial(settings: &ClientSettings, node: &DatanodeId) -> std::io::Result<TcpStream> {
    let mut failed = None;
    for peer in addresses(settings, node).await? {
        match connect_from(settings.rpc.local, peer).await {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => failed = Some(error),
        }
    }
    Err(failed.unwrap_or_else(|| std::io::ErrorKind::AddrNotAvailable.into()))
}

async fn addresses(
    settings: &ClientSettings,
    node: &DatanodeId,
) -> std::io::Result<Vec<SocketAddr>> {
    let no_port = |_| std::io::Error::other(format!("{} is no port", node.xfer_port));
    let port = u16::try_from(node.xfer_port).map_err(no_port)?;
    if let (false, Ok(ip)) = (settings.use_hostname, node.ip_addr.parse()) {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    let found = tokio::net::lookup_host((node.host_name.as_str(), port)).await?;
    Ok(found.collect())
}
