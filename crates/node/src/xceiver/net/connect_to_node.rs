//! The client side: connections to other nodes.

use std::time::Duration;

use bytes::BytesMut;
use hayloft_client::{LinkLimits, NodeLink};
use hayloft_wire::limits::MAX_OP_RESPONSE_BYTES;
use hayloft_wire::proto::hdfs::DatanodeId;
use hayloft_wire::transfer::{self, BlockOpResponse, OpMessage, Status};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::xceiver::error::XferError;
use crate::xceiver::net::conn::{self, Conn};
use crate::xceiver::net::loopback_congestion;
use crate::xceiver::settings::Settings;

/// Connects to a node, with the timeouts of a pipeline of `hops` nodes from there on.
///
/// # Errors
/// `Remote` when the node cannot be reached in time.
pub async fn connect(
    settings: &Settings,
    node: &DatanodeId,
    hops: usize,
) -> Result<Conn, XferError> {
    let name = node.xfer_addr();
    let stream = dial(settings, node, hops).await?;
    let mut conn = Conn::new(stream, settings).map_err(|e| XferError::remote(&name, e))?;
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
/// `Remote` when the node cannot be reached in time.
pub async fn link(
    settings: &Settings,
    node: &DatanodeId,
    read: Option<Duration>,
) -> Result<NodeLink, XferError> {
    let name = node.xfer_addr();
    let stream = dial(settings, node, 1).await?;
    conn::set_options(&stream, settings).map_err(|e| XferError::remote(&name, e))?;
    let limits = LinkLimits {
        read,
        write: settings.downstream_write_timeout(1),
        packet: settings.max_packet,
    };
    Ok(NodeLink::over(stream, name, limits))
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
