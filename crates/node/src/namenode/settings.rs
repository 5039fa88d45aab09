//! The part of the configuration that the NameNode services use.

use std::net::IpAddr;
use std::time::Duration;

use hayloft_client::login;
use hayloft_conf::{SharedConfig, keys};
use hayloft_rpc::RpcOptions;

/// How connections to NameNodes behave under this configuration. They come from `local`: the
/// NameNode takes that for the node's address.
pub(super) fn rpc_options(config: &SharedConfig, local: Option<IpAddr>) -> RpcOptions {
    let config = config.current();
    let bytes = |limit: u32| usize::try_from(limit).unwrap_or(usize::MAX);
    let call_timeout = config.get(&keys::IPC_RPC_TIMEOUT);
    RpcOptions {
        security: login::node_to_namenodes(&config),
        connect_timeout: config.get(&keys::IPC_CONNECT_TIMEOUT),
        call_timeout: (!call_timeout.is_zero()).then_some(call_timeout),
        ping_interval: Some(config.get(&keys::IPC_PING_INTERVAL)),
        response_max_bytes: bytes(config.get(&keys::IPC_MAXIMUM_RESPONSE_LENGTH)),
        request_max_bytes: bytes(config.get(&keys::IPC_MAXIMUM_DATA_LENGTH)),
        local,
        ..RpcOptions::default()
    }
}

/// Time between heartbeats.
pub(super) fn heartbeat_interval(config: &SharedConfig) -> Duration {
    config.get(&keys::HEARTBEAT_INTERVAL)
}

/// Whether replicas may be cached. Else NameNodes are told nothing of caching.
pub(super) fn caches(config: &SharedConfig) -> bool {
    config.get(&keys::MAX_LOCKED_MEMORY) > 0
}

/// Time between searches for slow peers and disks.
pub(super) fn outliers_interval(config: &SharedConfig) -> Duration {
    config.get(&keys::OUTLIERS_REPORT_INTERVAL)
}

/// Time between lifelines: as configured, else three heartbeat intervals.
pub(super) fn lifeline_interval(config: &SharedConfig) -> Duration {
    config
        .get(&keys::LIFELINE_INTERVAL)
        .unwrap_or_else(|| heartbeat_interval(config) * 3)
}
