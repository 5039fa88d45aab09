//! How an actor registers with its NameNode.

use std::sync::Arc;
use std::time::Duration;

use hayloft_wire::proto::datanode::{
    DatanodeRegistration, RegisterDatanodeRequest, RegisterDatanodeResponse,
};
use hayloft_wire::proto::hdfs_server::{VersionRequest, VersionResponse};
use tokio::time::Instant;

use super::actor_news::{Actor, Phase};
use super::pool_service::PoolService;
use super::registration_checks::{Namespace, may_succeed_later, no_keys};
use super::token_keys;
use hayloft_conf::keys;
use hayloft_rpc::{RpcError, Trouble};

/// Waits between attempts to reach a NameNode during the handshake; the last one repeats.
const RETRY_SECONDS: [u64; 4] = [1, 1, 2, 5];

/// Why a handshake did not end in a registration.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) reason: String,
    /// The NameNode is one that this node cannot serve; asking again changes nothing.
    pub(super) lasting: bool,
}

impl Refusal {
    fn ours(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            lasting: true,
        }
    }
}

/// versionRequest, checks, the pool, registerDatanode. Waits while the NameNode is away.
/// `Err`: why this NameNode cannot be served, now.
pub(super) async fn handshake(actor: &Actor, service: &PoolService) -> Result<(), Refusal> {
    let namespace = ask_version(actor).await.map_err(Refusal::ours)?;
    service
        .accept(actor.id, &namespace)
        .await
        .map_err(Refusal::ours)?;
    let registration = namespace.registration(&actor.node.identity);
    let answer = register(actor, registration).await;
    let mut answer = answer.map_err(|reason| Refusal {
        reason,
        lasting: false,
    })?;
    // Before the pool counts as registered: no heartbeat and no read comes first.
    token_keys::at_registration(service, actor, &namespace, &answer.keys).map_err(Refusal::ours)?;
    // Heartbeats carry the registration, and need not carry keys.
    answer.keys = no_keys();
    let uuid = &answer.datanode_id.datanode_uuid;
    if *uuid != actor.node.identity.datanode_uuid {
        let ours = &actor.node.identity.datanode_uuid;
        return Err(Refusal::ours(format!(
            "it registered this node as {uuid}, not as {ours}"
        )));
    }
    tracing::info!(
        namenode = actor.address,
        pool = %namespace.pool,
        version = namespace.software_version,
        "registered as {uuid} ({}:{})",
        answer.datanode_id.ip_addr,
        answer.datanode_id.xfer_port
    );
    {
        let mut state = actor.state();
        state.phase = Phase::Running;
        state.registration = Some(Arc::new(answer));
        state.report_buffers = namespace.report_buffers;
        state.heard = Some(Instant::now());
    }
    let delay = actor.node.config.get(&keys::BLOCK_REPORT_INITIAL_DELAY);
    actor
        .schedule()
        .registered(Instant::now(), delay, rand::random());
    service.registered(actor);
    Ok(())
}

async fn ask_version(actor: &Actor) -> Result<Namespace, String> {
    let mut said = Trouble::default();
    let mut attempt = 0;
    loop {
        let answer: Result<VersionResponse, _> = actor
            .client
            .call("versionRequest", &VersionRequest {})
            .await;
        match answer {
            Ok(answer) => {
                let oldest = actor.node.config.get(&keys::MIN_SUPPORTED_NAMENODE_VERSION);
                return Namespace::from_wire(&answer.info, &oldest);
            }
            Err(error) => {
                wait_to_retry(actor, &error, &mut said, &mut attempt).await;
            }
        }
    }
}

async fn register(
    actor: &Actor,
    registration: DatanodeRegistration,
) -> Result<DatanodeRegistration, String> {
    let request = RegisterDatanodeRequest { registration };
    let mut said = Trouble::default();
    let mut attempt = 0;
    loop {
        let answer: Result<RegisterDatanodeResponse, _> =
            actor.client.call("registerDatanode", &request).await;
        match answer {
            Ok(answer) => return Ok(answer.registration),
            Err(error) if may_succeed_later(&error) => {
                wait_to_retry(actor, &error, &mut said, &mut attempt).await;
            }
            Err(error) => return Err(error.brief()),
        }
    }
}

async fn wait_to_retry(actor: &Actor, error: &RpcError, said: &mut Trouble, attempt: &mut usize) {
    if said.failed(Instant::now()) {
        tracing::warn!(
            namenode = actor.address,
            "waiting for the NameNode: {}",
            error.brief()
        );
    }
    let wait = RETRY_SECONDS[(*attempt).min(RETRY_SECONDS.len() - 1)];
    *attempt += 1;
    tokio::time::sleep(Duration::from_secs(wait)).await;
}
