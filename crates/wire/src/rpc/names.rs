//! Names that travel as text in RPC: protocols and Java exceptions.

/// A protocol as calls name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Protocol {
    /// Java name that Hadoop declares for the protocol.
    pub name: &'static str,
    /// Version of the protocol on the wire.
    pub version: u64,
}

const fn version_1(name: &'static str) -> Protocol {
    Protocol { name, version: 1 }
}

/// DataNode to NameNode.
pub const DATANODE_PROTOCOL: Protocol =
    version_1("org.apache.hadoop.hdfs.server.protocol.DatanodeProtocol");

/// DataNode to NameNode when heartbeats are stuck.
pub const DATANODE_LIFELINE_PROTOCOL: Protocol =
    version_1("org.apache.hadoop.hdfs.server.protocol.DatanodeLifelineProtocol");

/// Balancers to NameNode.
pub const NAMENODE_PROTOCOL: Protocol =
    version_1("org.apache.hadoop.hdfs.server.protocol.NamenodeProtocol");

/// DataNode to DataNode.
pub const INTER_DATANODE_PROTOCOL: Protocol =
    version_1("org.apache.hadoop.hdfs.server.protocol.InterDatanodeProtocol");

/// Clients to DataNode.
pub const CLIENT_DATANODE_PROTOCOL: Protocol =
    version_1("org.apache.hadoop.hdfs.protocol.ClientDatanodeProtocol");

/// Administrators to any daemon.
pub const RECONFIGURATION_PROTOCOL: Protocol =
    version_1("org.apache.hadoop.hdfs.protocol.ReconfigurationProtocol");

/// Clients to NameNode.
pub const CLIENT_NAMENODE_PROTOCOL: Protocol =
    version_1("org.apache.hadoop.hdfs.protocol.ClientProtocol");

/// Clients asking any daemon for protocol versions.
pub const PROTOCOL_INFO: Protocol = version_1("org.apache.hadoop.ipc.ProtocolMetaInfoPB");

/// The caller may not do that.
pub const ACCESS_CONTROL_EXCEPTION: &str = "org.apache.hadoop.security.AccessControlException";

/// A token that is expired, unknown or for something else.
pub const INVALID_TOKEN: &str = "org.apache.hadoop.security.token.SecretManager$InvalidToken";

/// The NameNode is standby; ask another.
pub const STANDBY_EXCEPTION: &str = "org.apache.hadoop.ipc.StandbyException";

/// The server is not ready; ask again.
pub const RETRIABLE_EXCEPTION: &str = "org.apache.hadoop.ipc.RetriableException";

/// The frame or its header was bad.
pub const RPC_SERVER_EXCEPTION: &str = "org.apache.hadoop.ipc.RpcServerException";

/// No such method.
pub const RPC_NO_SUCH_METHOD: &str = "org.apache.hadoop.ipc.RpcNoSuchMethodException";

/// No such protocol.
pub const RPC_NO_SUCH_PROTOCOL: &str = "org.apache.hadoop.ipc.RpcNoSuchProtocolException";

/// Another version of the RPC or of a protocol.
pub const RPC_VERSION_MISMATCH: &str = "org.apache.hadoop.ipc.RPC$VersionMismatch";

/// No replica of the block here.
pub const REPLICA_NOT_FOUND: &str =
    "org.apache.hadoop.hdfs.server.datanode.ReplicaNotFoundException";

/// The replica cannot be recovered in this way now.
pub const RECOVERY_IN_PROGRESS: &str =
    "org.apache.hadoop.hdfs.protocol.RecoveryInProgressException";

/// A disk has failed.
pub const DISK_ERROR: &str = "org.apache.hadoop.util.DiskChecker$DiskErrorException";

/// The disks are full.
pub const DISK_OUT_OF_SPACE: &str = "org.apache.hadoop.util.DiskChecker$DiskOutOfSpaceException";

/// The NameNode does not know this DataNode; register again.
pub const UNREGISTERED_NODE: &str = "org.apache.hadoop.hdfs.protocol.UnregisteredNodeException";

/// The NameNode refuses this DataNode (excluded, or no reverse DNS).
pub const DISALLOWED_DATANODE: &str =
    "org.apache.hadoop.hdfs.server.protocol.DisallowedDatanodeException";

/// Software versions do not fit.
pub const INCORRECT_VERSION: &str =
    "org.apache.hadoop.hdfs.server.common.IncorrectVersionException";

/// The NameNode wants no full report under this lease.
pub const INVALID_BLOCK_REPORT_LEASE: &str =
    "org.apache.hadoop.hdfs.server.protocol.InvalidBlockReportLeaseException";

/// A disk balancer request cannot be served.
pub const DISK_BALANCER_EXCEPTION: &str =
    "org.apache.hadoop.hdfs.server.diskbalancer.DiskBalancerException";

/// The request is not served here.
pub const UNSUPPORTED_OPERATION: &str = "java.lang.UnsupportedOperationException";

/// An argument makes no sense.
pub const ILLEGAL_ARGUMENT: &str = "java.lang.IllegalArgumentException";

/// The server is in no state for the request.
pub const ILLEGAL_STATE: &str = "java.lang.IllegalStateException";

/// Anything that failed on input or output.
pub const IO_EXCEPTION: &str = "java.io.IOException";
