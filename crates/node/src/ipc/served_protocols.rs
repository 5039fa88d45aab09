//! Which protocols the port serves.

use std::sync::Arc;

use bytes::Bytes;
use hayloft_wire::rpc::names;

use super::context::Context;
use super::{client_datanode, inter_datanode, reconfiguration_protocol};
use hayloft_rpc::server::Service;
use hayloft_rpc::server::fault::{RpcFault, java};
use hayloft_rpc::server::{Caller, RpcCall, RpcServerSecurity, RpcTokens, TokenPasswords};
use hayloft_wire::block_token::BlockTokenIdentifier;
use zeroize::Zeroizing;

use crate::security::BlockTokens;

/// What holders of block tokens have to know.
struct Passwords(BlockTokens);

impl TokenPasswords for Passwords {
    fn password_of(
        &self,
        identifier: &[u8],
    ) -> Result<(BlockTokenIdentifier, Zeroizing<Vec<u8>>), String> {
        let known = self.0.token_password(identifier);
        let known = known.map_err(|refused| refused.to_string())?;
        let password = Zeroizing::new(known.password.expose().to_vec());
        Ok((known.identifier, password))
    }
}

impl Service for Context {
    fn security(&self) -> Option<Arc<RpcServerSecurity>> {
        self.security.clone()
    }

    fn tokens(&self) -> Option<RpcTokens> {
        let tokens = self.host.block_tokens().filter(BlockTokens::are_on)?;
        Some(RpcTokens {
            passwords: Arc::new(Passwords(tokens)),
            qualities: self.qualities.clone(),
        })
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
