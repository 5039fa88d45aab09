//! Which protocols the port serves.

use std::sync::Arc;

use bytes::Bytes;
use hayloft_wire::rpc::names;

use super::context::Context;
use super::{client_datanode, inter_datanode, reconfiguration_protocol};
use hayloft_rpc::server::Service;
use hayloft_rpc::server::fault::{RpcFault, java};
use hayloft_rpc::server::{Caller, RpcCall, RpcServerSecurity};

impl Service for Context {
    fn security(&self) -> Option<Arc<RpcServerSecurity>> {
        self.security.clone()
    }

    async fn authorize(&self, caller: &Caller) -> Result<(), String> {
        self.users.may_connect(caller).await?;
        self.may_use(caller, caller.protocol.as_deref()).await
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
        // A connection that was opened for one protocol lets through to no other.
        if call.caller.protocol.as_deref() != Some(protocol.name) {
            let allowed = self.may_use(&call.caller, Some(protocol.name)).await;
            allowed.map_err(|why| RpcFault::application(java::AUTHORIZATION, why))?;
        }
        let (method, request) = (call.method.as_str(), call.request);
        match protocol {
            names::CLIENT_DATANODE_PROTOCOL => {
                client_datanode::call(self, &call.caller, method, request).await
            }
            names::INTER_DATANODE_PROTOCOL => {
                inter_datanode::call(self, &call.caller, method, request).await
            }
            _ => reconfiguration_protocol::call(self, &call.caller, method, request).await,
        }
    }
}
