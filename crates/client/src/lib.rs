//! An HDFS client: files through NameNodes and DataNodes, as a user who is named for each request.
//!
//! | module | what it is |
//! |---|---|
//! | `namenodes` | calls to the active one of a group |
//! | `node_link` | a connection to the data transfer port of any node |
//! | `node_stream` | its stream, plain or protected |
//! | `prove_to_node` | the handshake (SASL) with that port |
//! | `transfer_key` | a user's key for it, where data transfer is encrypted |
//! | `transfer_protection` | what protects connections with it |
//! | `block_range` | bytes of one replica, verified as they come |
//! | [`login`] | who a node or a command is to servers, with Kerberos |
//! | `locate_blocks` | where the blocks of a file are, and how long it is |
//! | `cluster_state` | nodes, safe mode and missing blocks, for commands |
//! | `file_reader` | a range of a file, from replicas that can be read |
//! | `group_reader` | the same of a striped block group, decoded where units are lost |
//! | `block_pipe` | packets to the nodes of one block, and their acknowledgements |
//! | `calls_for_open_file` | what a NameNode is asked of a file that is written |
//! | `file_writer` | a file that is written: its lease, its blocks, its end |
//! | `block_writer` | blocks one after the other |
//! | `rebuild_pipeline` | a pipeline that lost a node |
//! | `group_writer` | the same of striped block groups, while enough units are left |
//! | `file_checksum` | one checksum for a file |
//! | `places_for_files` | so many files at a time; who has to go |
//! | `error` | the exception that a Java client would throw |
//! | [`stripe`] | the shape of erasure-coded block groups |
//!
//! A node never reads or writes files as its own user, and no more of one is in memory than a few
//! packets or one stripe. Reconstruction reads its sources with [`RangeStream`], too.
//!
//! Why not the crate hdfs-native: it takes no user for whom another acts without Kerberos, no flags
//! and no unmasked permission of a new file, tells no length of an open file and no checksum, does
//! without limits on what peers announce, and keeps each client that ever wrote.

mod block_pipe;
mod block_range;
mod block_writer;
mod calls_for_open_file;
mod cluster_state;
mod error;
mod file_checksum;
mod file_reader;
mod file_writer;
mod group_reader;
mod group_writer;
mod locate_blocks;
pub mod login;
mod namenodes;
mod node_link;
mod node_stream;
mod places_for_files;
mod prove_to_node;
mod rebuild_pipeline;
pub mod stripe;
mod transfer_key;
mod transfer_protection;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use hayloft_conf::{Configuration, keys};
use hayloft_rpc::{RpcOptions, RpcQuality, RpcSecurity, TokenProof};
use hayloft_wire::proto::client::{DeleteRequest, DeleteResponse};
use hayloft_wire::proto::hdfs::DatanodeId;
use hayloft_wire::proto::security::Token;
use tokio::sync::Mutex;

pub use block_range::{BlockRange, RangeStream};
pub use calls_for_open_file::CreateFile;
pub use error::FileError;
pub use file_checksum::FileChecksum;
pub use file_reader::FileReader;
pub use file_writer::FileWriter;
pub use namenodes::NameNodeGroup;
pub use node_link::{LinkLimits, NodeLink, NodeTrouble};
pub use node_stream::NodeStream;
pub use places_for_files::{FileTransfer, Turn, Turns};
pub use prove_to_node::{
    HANDSHAKE_WITHIN, MAX_PROTECTED_BYTES, NodeCredential, Protected, prove_to_node, read_handshake,
};
pub use transfer_protection::{TransferProof, TransferProtection};

use namenodes::{NameNodeCalls, Repeat};
use transfer_key::TransferKey;

/// The user whose files are read and written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FileUser {
    /// The user's name.
    pub user: String,
    /// The user who acts for that one, if any; NameNodes check that it may.
    pub proxied_by: Option<String>,
    /// A token that NameNodes gave to the user. With one they take the user from it alone.
    pub token: Option<Token>,
}

/// How long others may take, and where connections come from.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    rpc: RpcOptions,
    use_hostname: bool,
    protection: TransferProtection,
    /// What protects RPC of those who hold tokens.
    qualities: Arc<[RpcQuality]>,
    /// Silence of a DataNode that is too long.
    socket_timeout: Duration,
}

impl ClientSettings {
    /// Reads the settings from the configuration. Connections come from the address `local` of
    /// this host; without one the system chooses.
    #[must_use]
    pub fn new(config: &Configuration, local: Option<IpAddr>) -> Self {
        let bytes = |limit: u32| usize::try_from(limit).unwrap_or(usize::MAX);
        let call_timeout = config.get(&keys::IPC_RPC_TIMEOUT);
        Self {
            rpc: RpcOptions {
                security: None,
                token: None,
                user: String::new(),
                real_user: None,
                connect_timeout: config.get(&keys::IPC_CONNECT_TIMEOUT),
                call_timeout: (!call_timeout.is_zero()).then_some(call_timeout),
                ping_interval: Some(config.get(&keys::IPC_PING_INTERVAL)),
                response_max_bytes: bytes(config.get(&keys::IPC_MAXIMUM_RESPONSE_LENGTH)),
                request_max_bytes: bytes(config.get(&keys::IPC_MAXIMUM_DATA_LENGTH)),
                local,
            },
            use_hostname: config.get(&keys::USE_DATANODE_HOSTNAME),
            protection: TransferProtection::from_config(config),
            qualities: login::qualities(config),
            socket_timeout: config
                .get(&keys::CLIENT_SOCKET_TIMEOUT)
                .max(Duration::from_secs(1)),
        }
    }

    /// With proofs for NameNodes of who calls: not what callers are called, but what they prove.
    #[must_use]
    pub fn proving(mut self, security: Option<RpcSecurity>) -> Self {
        self.rpc.security = security;
        self
    }

    /// A NameNode that has not answered a call within `limit` is left for another one.
    #[must_use]
    pub fn answered_within(mut self, limit: Duration) -> Self {
        let rpc = &mut self.rpc;
        rpc.connect_timeout = rpc.connect_timeout.min(limit);
        rpc.call_timeout = Some(rpc.call_timeout.map_or(limit, |own| own.min(limit)));
        self
    }

    /// How RPC proves that its caller holds a token.
    fn proof(&self, token: &Token) -> TokenProof {
        TokenProof::new(token.clone(), Arc::clone(&self.qualities))
    }

    fn rpc_as(&self, caller: &FileUser) -> RpcOptions {
        RpcOptions {
            token: caller.token.as_ref().map(|token| self.proof(token)),
            user: caller.user.clone(),
            real_user: caller.proxied_by.clone(),
            ..self.rpc.clone()
        }
    }
}

/// A transfer's way to room for stripes in memory: each place is for the cells of one file.
#[derive(Clone, Debug)]
pub struct StripeRoom {
    places: Arc<Turns>,
    transfer: FileTransfer,
}

impl StripeRoom {
    /// Lets this transfer wait for a place among `places`.
    #[must_use]
    pub fn new(places: Arc<Turns>, transfer: FileTransfer) -> Self {
        Self { places, transfer }
    }

    /// Waits for a place, which the transfer may lose to another while its client hardly moves.
    ///
    /// # Errors
    /// `Busy`: none becomes free.
    async fn enter(&self) -> Result<Turn, FileError> {
        let place = self.places.next(&self.transfer).await;
        place.ok_or(FileError::Busy)
    }
}

/// One user's way to one namespace.
#[derive(Clone, Debug)]
pub struct FileClient {
    namenodes: NameNodeCalls,
    settings: Arc<ClientSettings>,
    caller: FileUser,
    stripes: StripeRoom,
    /// For encrypted data transfer, once it was needed.
    key: Arc<Mutex<Option<TransferKey>>>,
    /// Under which NameNodes lease files; no two are equal.
    name: String,
}

impl FileClient {
    /// Makes a client for one user and one namespace. It connects when it is first used.
    #[must_use]
    pub fn new(
        group: &NameNodeGroup,
        settings: Arc<ClientSettings>,
        caller: FileUser,
        stripes: StripeRoom,
    ) -> Self {
        Self {
            namenodes: group.calls(&settings.rpc_as(&caller)),
            settings,
            caller,
            stripes,
            key: Arc::default(),
            name: format!("DFSClient_NONMAPREDUCE_{}", uuid::Uuid::new_v4().simple()),
        }
    }

    /// Deletes a file; one that is not there is none.
    ///
    /// # Errors
    /// What the NameNode says.
    pub async fn delete(&self, path: &str) -> Result<(), FileError> {
        let request = DeleteRequest {
            src: path.to_owned(),
            recursive: false,
        };
        let _: DeleteResponse = self
            .namenodes
            .call("delete", &request, Repeat::Harmless)
            .await?;
        Ok(())
    }

    /// Begins to read from a node.
    async fn read_range(
        &self,
        node: &DatanodeId,
        range: BlockRange,
    ) -> Result<RangeStream, NodeTrouble> {
        let link = NodeLink::connect(self, node, 0, &range.token).await?;
        RangeStream::open(link, &self.name, range).await
    }
}

#[cfg(test)]
mod tests;
