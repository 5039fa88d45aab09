//! The client side: connections to other nodes.

use std::time::Duration;

use bytes::BytesMut;
use hayloft_client::{
    LinkLimits, NodeCredential, NodeLink, NodeStream, Protected, TransferProof, prove_to_node,
};
use hayloft_wire::ids::PoolId;
use hayloft_wire::limits::MAX_OP_RESPONSE_BYTES;
use hayloft_wire::proto::hdfs::DatanodeId;
use hayloft_wire::proto::security::Token;
use hayloft_wire::transfer::{self, BlockOpResponse, OpMessage, Status};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::xceiver::context::Xceivers;
use crate::xceiver::error::XferError;
use crate::xceiver::net::conn::Conn;
use crate::xceiver::net::{loopback_congestion, stream};
use crate::xceiver::settings::Settings;

/// A node, and the request that it is connected to for.
#[derive(Clone, Copy, Debug)]
pub struct NodeForBlock<'a> {
    /// The node.
    pub node: &'a DatanodeId,
    /// Pool of the request's block.
    pub pool: &'a PoolId,
    /// Token of the request, which proves who this node is, too.
    pub token: &'a Token,
}

/// Connects to a node, with the timeouts of a pipeline of `hops` nodes from there on.
///
/// # Errors
/// `Remote` when the node cannot be reached in time, or does not believe this one.
pub async fn connect(
    x: &Xceivers,
    settings: &Settings,
    to: NodeForBlock<'_>,
    hops: usize,
) -> Result<Conn, XferError> {
    let name = to.node.xfer_addr();
    let (stream, protected) = open(x, settings, to, hops).await?;
    let conn = Conn::new(stream, protected, x.memory(), settings);
    let mut conn = conn.map_err(|e| XferError::remote(&name, e))?;
    conn.set_limits(
        settings.downstream_read_timeout(hops),
        settings.downstream_write_timeout(hops),
    );
    Ok(conn)
}

/// Connects to a node to ask it as a client does. It may be silent for the time `read`; `None` is
/// for ever.
///
/// # Errors
/// `Remote` when the node cannot be reached in time, or does not believe this one.
pub async fn link(
    x: &Xceivers,
    settings: &Settings,
    to: NodeForBlock<'_>,
    read: Option<Duration>,
) -> Result<NodeLink, XferError> {
    let name = to.node.xfer_addr();
    let (stream, protected) = open(x, settings, to, 1).await?;
    stream::set_options(&stream, settings).map_err(|e| XferError::remote(&name, e))?;
    let limits = LinkLimits {
        read,
        write: settings.downstream_write_timeout(1),
        packet: settings.max_packet,
    };
    Ok(NodeLink::over(
        NodeStream::over(stream, protected),
        name,
        limits,
    ))
}

/// Connects to a node and proves to it who this one is, where it asks for that.
async fn open(
    x: &Xceivers,
    settings: &Settings,
    to: NodeForBlock<'_>,
    hops: usize,
) -> Result<(TcpStream, Option<Protected>), XferError> {
    let mut stream = dial(settings, to.node, hops).await?;
    let protection = &settings.protection;
    let name = to.node.xfer_addr();
    let proved = match protection.towards(to.node.xfer_port) {
        TransferProof::None => return Ok((stream, None)),
        TransferProof::BlockToken => {
            let credential = NodeCredential::BlockToken(to.token);
            Box::pin(prove_to_node(&mut stream, protection, credential)).await
        }
        TransferProof::EncryptionKey => {
            let key = x.link().block_tokens().data_encryption_key(to.pool);
            let key = key.ok_or_else(|| {
                let reason = "there is no key of encrypted data transfer: are block tokens on?";
                XferError::remote(&name, reason)
            })?;
            let user = key.user();
            let credential = NodeCredential::EncryptionKey {
                user: &user,
                key: key.key.expose(),
            };
            Box::pin(prove_to_node(&mut stream, protection, credential)).await
        }
    };
    let protected = proved.map_err(|error| XferError::remote(&name, error))?;
    Ok((stream, protected))
}

async fn dial(settings: &Settings, node: &DatanodeId, hops: usize) -> Result<TcpStream, XferError> {
    let name = node.xfer_addr();
    let port = u16::try_from(node.xfer_port)
        .map_err(|_| XferError::remote(&name, format!("{} is no port", node.xfer_port)))?;
    let host = if settings.use_hostname {
        &node.host_name
    } else {
        &node.ip_addr
    };
    let read_limit = settings.downstream_read_timeout(hops);
    let (unpaced, local) = (settings.unpaced_local, settings.local);
    let connecting = loopback_congestion::connect(host, port, unpaced, local);
    timeout(read_limit.unwrap_or(Duration::MAX), connecting)
        .await
        .unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))
        .map_err(|e| XferError::remote(&name, format!("cannot connect: {e}")))
}

/// Sends a request.
///
/// # Errors
/// `Socket` when the connection breaks.
pub async fn request<M: OpMessage>(conn: &Conn, message: &M) -> Result<(), XferError> {
    let mut out = BytesMut::new();
    transfer::encode_request(message, &mut out);
    conn.write_all(&out).await.map_err(|e| conn.socket_error(e))
}

/// Reads the answer to a request.
///
/// # Errors
/// `Socket` and `Protocol`.
pub async fn response(conn: &mut Conn) -> Result<BlockOpResponse, XferError> {
    conn.read_message(MAX_OP_RESPONSE_BYTES).await
}

/// Takes an answer for success, or says what the node answered instead.
///
/// # Errors
/// `Remote` with the status.
pub fn expect_success(node: &str, response: &BlockOpResponse) -> Result<(), XferError> {
    let status = response.outcome();
    if status == Status::Success {
        return Ok(());
    }
    Err(XferError::Remote {
        node: node.to_owned(),
        reason: format!("answered {status:?}: {}", response.message()),
        status: Some(status),
    })
}
