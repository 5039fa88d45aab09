//! What the RPC port of the node answers: Hadoop RPC on the IPC port (9867), for clients,
//! administrators and other DataNodes.
//!
//! | module | what it is |
//! |---|---|
//! | `served_protocols` | which protocols are served |
//! | `client_datanode` | for clients and administrators: lengths, `dfsadmin` |
//! | `inter_datanode` | this node's part in recoveries that another leads |
//! | `reconfiguration_protocol` | the three methods of `dfsadmin -reconfig` |
//! | [`apply_changed_keys`] | taking over changed configuration files |
//! | `context` | what the methods share |
//! | `permissions` | who may do what |
//! | `service_policy` | who may open connections, by `hadoop-policy.xml` |
//! | [`host`] | what all this needs of the node around it |
//!

pub mod apply_changed_keys;
mod client_datanode;
mod context;
pub mod host;
mod inter_datanode;
mod permissions;
mod reconfiguration_protocol;
mod served_protocols;
mod service_policy;

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use hayloft_conf::{Configuration, keys};
use hayloft_io::Means;
use hayloft_rpc::server::{self, Limits, RpcStats};
pub use host::Host;
pub use service_policy::ServicePolicy;

/// Serves the IPC port until `stop`; calls under way then have 5 s to finish. Limits are taken from
/// the configuration once; no more than `connections_max` connections are open. Calls are counted
/// in `stats`. Who may open them, `policy` says.
pub async fn serve(
    host: Arc<dyn Host>,
    (listener, policy): (TcpListener, Option<ServicePolicy>),
    connections_max: usize,
    stop: CancellationToken,
    stats: Arc<RpcStats>,
) {
    let limits = limits(&host.config().current());
    let limits = Limits {
        connections: limits.connections.min(connections_max),
        ..limits
    };
    let context = context::Context::new(host, policy);
    server::serve_counted(listener, context, limits, stop, stats).await;
}

fn limits(config: &Configuration) -> Limits {
    let defaults = Limits::default();
    let count = |key| usize::try_from(config.get(key)).unwrap_or(usize::MAX);
    let handlers = count(&keys::HANDLER_COUNT).max(1);
    let idle: Duration = config.get(&keys::IPC_MAX_IDLE_TIME);
    let connections = match count(&keys::IPC_MAX_CONNECTIONS) {
        0 => defaults.connections,
        wanted => wanted,
    };
    Limits {
        connections,
        handlers,
        queue: handlers
            .saturating_mul(count(&keys::IPC_HANDLER_QUEUE_SIZE))
            .min(100_000),
        frame_bytes: count(&keys::IPC_MAXIMUM_DATA_LENGTH),
        // A client lets go first, after one idle time of its own.
        idle_crowded: idle.saturating_mul(2).max(Duration::from_secs(1)),
        idle_threshold: count(&keys::IPC_IDLE_THRESHOLD),
        not_accepted: |error| {
            if let Some(means) = Means::lacking(error) {
                means.note();
            }
        },
        ..defaults
    }
}
