//! What the methods of all protocols share.

use std::sync::Arc;

use bytes::Bytes;
use hayloft_client::login;
use hayloft_rpc::RpcQuality;
use hayloft_rpc::server::fault::RpcFault;
use hayloft_rpc::server::{Caller, RpcServerSecurity};
use hayloft_wire::frame;
use hayloft_wire::ids::IdError;
use hayloft_wire::schema::WireMessage;

use super::apply_changed_keys::Reconfiguration;
use super::host::Host;
use super::permissions::Users;
use super::service_policy::ServicePolicy;

/// What the methods work with.
pub(super) struct Context {
    pub(super) host: Arc<dyn Host>,
    pub(super) users: Users,
    /// Who may use which protocol; `None`: every caller may.
    pub(super) policy: Option<ServicePolicy>,
    /// With what callers prove who they are; `None`: they are believed.
    pub(super) security: Option<Arc<RpcServerSecurity>>,
    /// What protects calls of those who hold block tokens.
    pub(super) qualities: Arc<[RpcQuality]>,
    pub(super) reconfiguration: Reconfiguration,
}

impl Context {
    pub(super) fn new(host: Arc<dyn Host>, policy: Option<ServicePolicy>) -> Self {
        Self {
            policy,
            users: Users::new(host.config().clone()),
            security: login::node_for_callers(&host.config().current()),
            qualities: login::qualities(&host.config().current()),
            reconfiguration: Reconfiguration::default(),
            host,
        }
    }

    /// Whether the policy lets a caller use a protocol.
    ///
    /// # Errors
    /// What Apache's node would say.
    pub(super) async fn may_use(
        &self,
        caller: &Caller,
        protocol: Option<&str>,
    ) -> Result<(), String> {
        match &self.policy {
            Some(policy) => policy.authorize(caller, protocol, &self.users).await,
            None => Ok(()),
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
