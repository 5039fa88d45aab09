//! Which protocols the port serves, and what their methods share.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use hayloft_wire::frame;
use hayloft_wire::ids::IdError;
use hayloft_wire::schema::WireMessage;

use super::fault::RpcFault;
use super::host::Host;
use super::reconfiguration::Reconfiguration;
use super::server::Service;
use super::session::{Call, Caller};
use super::users::Users;
use super::{client_datanode, configure, inter_datanode};
use crate::rpc::{CLIENT_DATANODE_PROTOCOL, INTER_DATANODE_PROTOCOL};

/// Java name of the protocol that takes over changed configuration.
pub(super) const RECONFIGURATION_PROTOCOL: &str =
    "org.apache.hadoop.hdfs.protocol.ReconfigurationProtocol";
/// All protocols of this port are at their first protobuf version.
const VERSION: u64 = 1;

/// What the methods work with.
pub(super) struct Context {
    pub(super) host: Arc<dyn Host>,
    pub(super) users: Users,
    pub(super) reconfiguration: Reconfiguration,
}

impl Context {
    pub(super) fn new(host: Arc<dyn Host>) -> Self {
        Self {
            users: Users::new(host.config().clone()),
            reconfiguration: Reconfiguration::default(),
            host,
        }
    }
}

impl Service for Context {
    async fn authorize(&self, caller: &Caller) -> Result<(), String> {
        self.users.may_connect(caller).await
    }

    async fn call(&self, call: Call) -> Result<Bytes, RpcFault> {
        let protocol = call.protocol.as_str();
        let known = [
            CLIENT_DATANODE_PROTOCOL.name,
            INTER_DATANODE_PROTOCOL.name,
            RECONFIGURATION_PROTOCOL,
        ];
        if !known.contains(&protocol) {
            return Err(RpcFault::no_such_protocol(protocol));
        }
        if call.version != VERSION {
            return Err(RpcFault::version_mismatch(protocol, call.version, VERSION));
        }
        let (method, request) = (call.method.as_str(), call.request);
        if protocol == CLIENT_DATANODE_PROTOCOL.name {
            client_datanode::call(self, &call.caller, method, request).await
        } else if protocol == INTER_DATANODE_PROTOCOL.name {
            inter_datanode::call(self, method, request).await
        } else {
            configure::call(self, &call.caller, method, request).await
        }
    }
}

/// Decodes the request of a method.
pub(super) fn decode<M: WireMessage>(request: Bytes) -> Result<M, RpcFault> {
    frame::decode(request).map_err(|error| RpcFault::io(format!("the request is invalid: {error}")))
}

/// The refusal of a request that names something impossible.
pub(super) fn impossible(error: IdError) -> RpcFault {
    RpcFault::io(error.to_string())
}

/// The first address of a "host:port".
pub(super) async fn resolve(name: &str) -> Result<SocketAddr, RpcFault> {
    let unresolved = |why: String| RpcFault::io(format!("cannot resolve {name:?}: {why}"));
    let mut found = tokio::net::lookup_host(name)
        .await
        .map_err(|error| unresolved(error.to_string()))?;
    found
        .next()
        .ok_or_else(|| unresolved("the name has no address".to_owned()))
}
