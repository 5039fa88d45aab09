//! How connections to Hadoop's servers behave: user, limits of time and of size.

use std::net::IpAddr;
use std::time::Duration;

use hayloft_wire::limits::MAX_RPC_FRAME_BYTES;

use crate::security::{RpcSecurity, TokenProof};

/// How a connection behaves. `Default` holds Apache's defaults.
#[derive(Clone, Debug)]
pub struct RpcOptions {
    /// Kerberos; `None` for SIMPLE authentication, where a server believes what we say.
    pub security: Option<RpcSecurity>,
    /// A token, by which alone the server knows the caller; it counts before all else here.
    pub token: Option<TokenProof>,
    /// The user on connections with SIMPLE authentication.
    pub user: String,
    /// Who acts for `user`, when another does: a server asks whether that one may.
    pub real_user: Option<String>,
    /// Time to establish a connection (`ipc.client.connect.timeout`, 20 s).
    pub connect_timeout: Duration,
    /// Time to wait for an answer (`ipc.client.rpc-timeout.ms`, 120 s); `None` waits forever.
    pub call_timeout: Option<Duration>,
    /// While calls wait and the server is silent, a ping goes out in this interval
    /// (`ipc.ping.interval`, 60 s); `None` sends no pings.
    pub ping_interval: Option<Duration>,
    /// Largest answer accepted, in bytes (`ipc.maximum.response.length`, 128 MiB).
    pub response_max_bytes: usize,
    /// Largest request sent, in bytes (`ipc.maximum.data.length`, 128 MiB).
    pub request_max_bytes: usize,
    /// The address of this host that connections come from; `None` leaves it to the system. A
    /// NameNode takes a node's address from where its connection comes from.
    pub local: Option<IpAddr>,
}

impl Default for RpcOptions {
    fn default() -> Self {
        Self {
            security: None,
            token: None,
            user: super::current_user(),
            real_user: None,
            connect_timeout: Duration::from_secs(20),
            call_timeout: Some(Duration::from_secs(120)),
            ping_interval: Some(Duration::from_secs(60)),
            response_max_bytes: MAX_RPC_FRAME_BYTES,
            request_max_bytes: MAX_RPC_FRAME_BYTES,
            local: None,
        }
    }
}
