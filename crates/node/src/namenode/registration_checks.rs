//! Who this node is, and what it checks before it registers.

use bytes::Bytes;
use hayloft_store::PoolSpec;
use hayloft_wire::ids::PoolId;
use hayloft_wire::proto::datanode::DatanodeRegistration;
use hayloft_wire::proto::hdfs_server::{
    BlockKey, ExportedBlockKeys, NamespaceInfo, NnHaState, StorageInfo,
};

use super::version;
use crate::identity::{Identity, SOFTWARE_VERSION};
use hayloft_rpc::RpcError;

/// Layout version of Apache's DataNode directories, which registrations carry.
const DATANODE_LAYOUT_VERSION: i32 = -57;

/// The NameNode reads block reports as buffers (bit 0 of its capabilities).
const CAPABILITY_REPORT_BUFFERS: u64 = 1;

/// A NameNode's namespace, as its handshake told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Namespace {
    pub(super) pool: PoolId,
    pub(super) cluster_id: String,
    pub(super) namespace_id: u32,
    pub(super) ctime: u64,
    pub(super) software_version: String,
    pub(super) report_buffers: bool,
    pub(super) claims_active: bool,
    /// It said that it is a standby or an observer.
    pub(super) claims_standby: bool,
}

impl Namespace {
    /// Checks what a NameNode says of itself. `Err`: why this node cannot serve it.
    pub(super) fn from_wire(info: &NamespaceInfo, oldest: &str) -> Result<Self, String> {
        if version::compare(&info.software_version, oldest).is_lt() {
            return Err(format!(
                "it runs version {}, older than {oldest} \
                 (dfs.datanode.min.supported.namenode.version)",
                info.software_version
            ));
        }
        Ok(Self {
            pool: PoolId::new(&info.block_pool_id).map_err(|error| error.to_string())?,
            cluster_id: info.storage_info.cluster_id.clone(),
            namespace_id: info.storage_info.namespce_id,
            ctime: info.storage_info.c_time,
            software_version: info.software_version.clone(),
            report_buffers: info.capabilities() & CAPABILITY_REPORT_BUFFERS != 0,
            claims_active: info.state == Some(NnHaState::Active.into()),
            claims_standby: [NnHaState::Standby, NnHaState::Observer]
                .iter()
                .any(|&state| info.state == Some(state.into())),
        })
    }

    /// The NameNodes of one name service must agree. `Err`: in what `other` differs.
    pub(super) fn same_as(&self, other: &Self) -> Result<(), String> {
        let differ = |what: &str, ours: &dyn std::fmt::Display, theirs: &dyn std::fmt::Display| {
            Err(format!(
                "{what} mismatch: this node serves {ours}, it says {theirs}; it was reformatted or \
                 belongs to another cluster"
            ))
        };
        if self.pool != other.pool {
            return differ("block pool id", &self.pool, &other.pool);
        }
        if self.namespace_id != other.namespace_id {
            return differ("namespace id", &self.namespace_id, &other.namespace_id);
        }
        if self.cluster_id != other.cluster_id {
            return differ("cluster id", &self.cluster_id, &other.cluster_id);
        }
        if self.ctime != other.ctime {
            return Err(format!(
                "creation time mismatch: this node serves {}, it says {}; the NameNode was \
                    upgraded, \
                 restart this node to upgrade its directories",
                self.ctime, other.ctime
            ));
        }
        Ok(())
    }

    /// The pool to add to the store.
    pub(super) fn spec(&self) -> PoolSpec {
        PoolSpec {
            pool: self.pool.clone(),
            cluster_id: self.cluster_id.clone(),
            namespace_id: self.namespace_id,
            ctime: self.ctime,
        }
    }

    /// The registration of this node with the namespace.
    pub(super) fn registration(&self, identity: &Identity) -> DatanodeRegistration {
        DatanodeRegistration {
            datanode_id: identity.to_wire(),
            storage_info: StorageInfo {
                layout_version: DATANODE_LAYOUT_VERSION.cast_unsigned(),
                namespce_id: self.namespace_id,
                cluster_id: self.cluster_id.clone(),
                c_time: self.ctime,
            },
            keys: no_keys(),
            software_version: SOFTWARE_VERSION.to_owned(),
        }
    }
}

/// What a registration carries where there are no keys: the field is required.
pub(super) fn no_keys() -> ExportedBlockKeys {
    ExportedBlockKeys {
        current_key: BlockKey {
            key_bytes: Some(Bytes::new()),
            ..BlockKey::default()
        },
        ..ExportedBlockKeys::default()
    }
}

/// Whether a failed registration is worth repeating as it is.
pub(super) fn may_succeed_later(error: &RpcError) -> bool {
    match error {
        RpcError::Remote { .. } => error.is_remote("RetriableException") || error.is_standby(),
        RpcError::TooLarge { .. } => false,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use hayloft_wire::proto::hdfs_server::{NamespaceInfo, StorageInfo};

    use super::Namespace;

    fn info() -> NamespaceInfo {
        NamespaceInfo {
            block_pool_id: "BP-1-127.0.0.1-1".to_owned(),
            storage_info: StorageInfo {
                layout_version: (-67i32).cast_unsigned(),
                namespce_id: 7,
                cluster_id: "CID-1".to_owned(),
                c_time: 0,
            },
            software_version: "3.5.0".to_owned(),
            capabilities: Some(3),
            ..NamespaceInfo::default()
        }
    }

    fn namespace(info: &NamespaceInfo) -> Namespace {
        Namespace::from_wire(info, "2.1.0-beta").expect("acceptable")
    }

    #[test]
    fn an_old_namenode_and_a_bad_pool_are_refused() {
        assert!(namespace(&info()).report_buffers);
        let old = NamespaceInfo {
            software_version: "2.0.4".to_owned(),
            ..info()
        };
        assert!(
            Namespace::from_wire(&old, "2.1.0-beta")
                .expect_err("old")
                .contains("2.0.4")
        );
        let bad = NamespaceInfo {
            block_pool_id: "../x".to_owned(),
            ..info()
        };
        assert!(Namespace::from_wire(&bad, "2.1.0-beta").is_err());
    }

    #[test]
    fn namenodes_of_a_service_must_agree() {
        let ours = namespace(&info());
        assert!(ours.same_as(&ours).is_ok());
        let mut other = ours.clone();
        other.namespace_id = 8;
        assert!(
            ours.same_as(&other)
                .expect_err("differs")
                .contains("namespace id")
        );
        let mut other = ours.clone();
        other.cluster_id = "CID-2".to_owned();
        assert!(
            ours.same_as(&other)
                .expect_err("differs")
                .contains("cluster id")
        );
    }
}
