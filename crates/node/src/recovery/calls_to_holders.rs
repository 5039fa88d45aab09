//! The nodes that hold replicas, as the primary of a recovery talks to them.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use hayloft_store::{StoreError, StoreErrorKind};
use hayloft_wire::ids::{Block, ExtendedBlock, PoolId, ReplicaState};
use hayloft_wire::proto::datanode::CommitBlockSynchronizationRequest;
use hayloft_wire::proto::hdfs as pb;
use hayloft_wire::proto::hdfs_server::RecoveringBlock;
use hayloft_wire::proto::interdatanode::{
    InitReplicaRecoveryRequest, InitReplicaRecoveryResponse, UpdateReplicaUnderRecoveryRequest,
    UpdateReplicaUnderRecoveryResponse,
};

use super::when_another_leads;
use super::which_replicas_stay::Replica;
use crate::ipc::host::Host;
use hayloft_client::login;
use hayloft_conf::keys;
use hayloft_rpc::{INTER_DATANODE_PROTOCOL, RpcClient, RpcError, RpcOptions};

/// Why a participant did not do its part.
#[derive(Debug, thiserror::Error)]
pub(super) enum PeerError {
    /// A newer recovery owns its replica: this one has to stop.
    #[error("a newer recovery is under way: {0}")]
    RecoveryInProgress(String),
    /// This node lacks what its own part takes. Its replica is as good as before: without it the
    /// block would lose one.
    #[error("{0}")]
    Lacking(String),
    /// Anything else.
    #[error("{0}")]
    Failed(String),
}

impl From<StoreError> for PeerError {
    fn from(error: StoreError) -> Self {
        match error.kind() {
            StoreErrorKind::RecoveryInProgress => Self::RecoveryInProgress(error.to_string()),
            StoreErrorKind::Retry => Self::Lacking(error.to_string()),
            _ => Self::Failed(error.to_string()),
        }
    }
}

impl From<RpcError> for PeerError {
    fn from(error: RpcError) -> Self {
        if error.is_remote("RecoveryInProgressException") {
            Self::RecoveryInProgress(error.brief())
        } else {
            Self::Failed(error.brief())
        }
    }
}

/// What a recovery does to its participants and the NameNode.
pub(super) trait Peers: Send + Sync {
    /// `initReplicaRecovery` at one location; `None` when it has no replica.
    fn init(
        &self,
        at: &pb::DatanodeId,
        block: &ExtendedBlock,
        recovery_id: u64,
    ) -> impl Future<Output = Result<Option<Replica>, PeerError>> + Send;

    /// `updateReplicaUnderRecovery` at one location; gives back the id of the storage.
    fn update(
        &self,
        at: &pb::DatanodeId,
        block: &ExtendedBlock,
        recovery_id: u64,
        new_block_id: i64,
        new_length: u64,
    ) -> impl Future<Output = Result<String, PeerError>> + Send;

    /// `commitBlockSynchronization` at the active NameNode.
    fn commit(
        &self,
        pool: &PoolId,
        request: CommitBlockSynchronizationRequest,
    ) -> impl Future<Output = Result<(), RpcError>> + Send;
}

/// The real ones: this node directly, others over their IPC port.
pub(super) struct Network {
    host: Arc<dyn Host>,
    /// Uuid under which this node is registered for the pool.
    own_uuid: String,
    use_hostname: bool,
    options: RpcOptions,
}

impl Network {
    /// `None` while this node is not registered for the pool.
    pub(super) fn new(host: Arc<dyn Host>, pool: &PoolId) -> Option<Self> {
        let own_uuid = host.registration(pool)?.datanode_uuid;
        let config = host.config().current();
        let timeout: Duration = config.get(&keys::CLIENT_SOCKET_TIMEOUT);
        let options = RpcOptions {
            security: login::node_to_nodes(&config),
            connect_timeout: timeout,
            call_timeout: Some(timeout),
            local: host.local_address(),
            ..RpcOptions::default()
        };
        Some(Self {
            use_hostname: config.get(&keys::USE_DATANODE_HOSTNAME),
            own_uuid,
            options,
            host,
        })
    }

    fn is_self(&self, at: &pb::DatanodeId) -> bool {
        at.datanode_uuid == self.own_uuid
    }

    fn client(&self, at: &pb::DatanodeId) -> RpcClient {
        let host = if self.use_hostname {
            &at.host_name
        } else {
            &at.ip_addr
        };
        let address = if host.contains(':') {
            format!("[{host}]:{}", at.ipc_port)
        } else {
            format!("{host}:{}", at.ipc_port)
        };
        RpcClient::new(address, INTER_DATANODE_PROTOCOL, self.options.clone())
    }
}

impl Peers for Network {
    async fn init(
        &self,
        at: &pb::DatanodeId,
        block: &ExtendedBlock,
        recovery_id: u64,
    ) -> Result<Option<Replica>, PeerError> {
        if self.is_self(at) {
            let found = when_another_leads::init(self.host.as_ref(), block, recovery_id).await?;
            return Ok(found.map(|info| Replica {
                block: info.block,
                state: info.original_state,
            }));
        }
        let request = InitReplicaRecoveryRequest {
            block: RecoveringBlock {
                new_gen_stamp: recovery_id,
                block: pb::LocatedBlock {
                    b: block.into(),
                    ..pb::LocatedBlock::default()
                },
                ..RecoveringBlock::default()
            },
        };
        let client = self.client(at);
        let answer: InitReplicaRecoveryResponse =
            client.call("initReplicaRecovery", &request).await?;
        client.disconnect().await;
        if !answer.replica_found {
            return Ok(None);
        }
        let state = answer
            .state
            .and_then(|state| ReplicaState::try_from(state).ok());
        let found = answer.block.as_ref().map(Block::try_from);
        let (Some(Ok(found)), Some(state)) = (found, state) else {
            return Err(PeerError::Failed(
                "it answered with a replica without block or state".to_owned(),
            ));
        };
        if found.id != block.block.id {
            return Err(PeerError::Failed(format!(
                "it answered for block {} when asked for {}",
                found.id, block.block.id
            )));
        }
        Ok(Some(Replica {
            block: found,
            state,
        }))
    }

    async fn update(
        &self,
        at: &pb::DatanodeId,
        block: &ExtendedBlock,
        recovery_id: u64,
        new_block_id: i64,
        new_length: u64,
    ) -> Result<String, PeerError> {
        if self.is_self(at) {
            let host = self.host.as_ref();
            let storage =
                when_another_leads::update(host, block, recovery_id, new_block_id, new_length)
                    .await?;
            return Ok(storage);
        }
        let request = UpdateReplicaUnderRecoveryRequest {
            block: block.into(),
            recovery_id,
            new_length,
            new_block_id: Some(new_block_id.cast_unsigned()),
        };
        let client = self.client(at);
        let answer: UpdateReplicaUnderRecoveryResponse =
            client.call("updateReplicaUnderRecovery", &request).await?;
        client.disconnect().await;
        Ok(answer.storage_uuid.unwrap_or_default())
    }

    async fn commit(
        &self,
        pool: &PoolId,
        request: CommitBlockSynchronizationRequest,
    ) -> Result<(), RpcError> {
        self.host.commit_block_synchronization(pool, request).await
    }
}
