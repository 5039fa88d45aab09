//! Which protocols the port serves, and what their methods share.

use std::sync::Arc;

use bytes::Bytes;
use hayloft_wire::frame;
use hayloft_wire::ids::IdError;
use hayloft_wire::rpc::names;
use hayloft_wire::schema::WireMessage;

use super::host::Host;
use super::reconfiguration::Reconfiguration;
use super::users::Users;
use super::{client_datanode, configure, inter_datanode};
use hayloft_rpc::server::Service;
use hayloft_rpc::server::fault::RpcFault;
use hayloft_rpc::server::{Caller, RpcCall};

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

    async fn call(&self, call: RpcCall) -> Result<Bytes, RpcFault> {
        let served = [
            names::CLIENT_DATANODE_PROTOCOL,
            names::INTER_DATANODE_PROTOCOL,
            names::RECONFIGURATION_PROTOCOL,
        ];
        let named = served.iter().find(|served| served.name == call.protocol);
        let Some(protocol) = named.copied() else {
            return Err(RpcFault::no_such_protocol(&call.protocol));
        };
        if call.version != protocol.version {
            return Err(RpcFault::version_mismatch(
                protocol.name,
                call.version,
                protocol.version,
            ));
        }
        let (method, request) = (call.method.as_str(), call.request);
        match protocol {
            names::CLIENT_DATANODE_PROTOCOL => {
                client_datanode::call(self, &call.caller, method, request).await
            }
            names::INTER_DATANODE_PROTOCOL => inter_datanode::call(self, method, request).await,
            _ => configure::call(self, &call.caller, method, request).await,
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
