//! Names that travel as text in RPC: protocols and Java exceptions.

/// A protocol as calls name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Protocol {
    /// Java name that Hadoop declares for the protocol.
    pub name: &'static str,
    /// Version of the protocol on the wire, which is not Java's `versionID`.
    pub version: u64,
}

/// Declares protocols, and the list of them for the comparison with Hadoop.
macro_rules! protocols {
    ($($(#[doc = $doc:literal])* $constant:ident = $name:literal, $version:literal;)*) => {
        $(
            $(#[doc = $doc])*
            pub const $constant: Protocol = Protocol { name: $name, version: $version };
        )*

        /// All of them.
        pub const PROTOCOLS: &[Protocol] = &[$($constant),*];
    };
}

/// Declares exceptions, and the list of them for the comparison with Hadoop.
macro_rules! exceptions {
    ($($(#[doc = $doc:literal])* $constant:ident = $class:literal;)*) => {
        $(
            $(#[doc = $doc])*
            pub const $constant: &str = $class;
        )*

        /// All of them.
        pub const EXCEPTIONS: &[&str] = &[$($constant),*];
    };
}

protocols! {
    /// DataNode to NameNode.
    DATANODE_PROTOCOL = "org.apache.hadoop.hdfs.server.protocol.DatanodeProtocol", 1;

    /// DataNode to NameNode when heartbeats are stuck.
    DATANODE_LIFELINE_PROTOCOL =
        "org.apache.hadoop.hdfs.server.protocol.DatanodeLifelineProtocol", 1;

    /// Balancers to NameNode.
    NAMENODE_PROTOCOL = "org.apache.hadoop.hdfs.server.protocol.NamenodeProtocol", 1;

    /// DataNode to DataNode.
    INTER_DATANODE_PROTOCOL = "org.apache.hadoop.hdfs.server.protocol.InterDatanodeProtocol", 1;

    /// Clients to DataNode.
    CLIENT_DATANODE_PROTOCOL = "org.apache.hadoop.hdfs.protocol.ClientDatanodeProtocol", 1;

    /// Administrators to any daemon.
    RECONFIGURATION_PROTOCOL = "org.apache.hadoop.hdfs.protocol.ReconfigurationProtocol", 1;

    /// Clients to NameNode.
    CLIENT_NAMENODE_PROTOCOL = "org.apache.hadoop.hdfs.protocol.ClientProtocol", 1;

    /// Clients asking any daemon for protocol versions.
    PROTOCOL_INFO = "org.apache.hadoop.ipc.ProtocolMetaInfoPB", 1;
}

exceptions! {
    /// The caller may not do that.
    ACCESS_CONTROL_EXCEPTION = "org.apache.hadoop.security.AccessControlException";

    /// A token that is expired, unknown or for something else.
    INVALID_TOKEN = "org.apache.hadoop.security.token.SecretManager$InvalidToken";

    /// The NameNode is standby; ask another.
    STANDBY_EXCEPTION = "org.apache.hadoop.ipc.StandbyException";

    /// The server is not ready; ask again.
    RETRIABLE_EXCEPTION = "org.apache.hadoop.ipc.RetriableException";

    /// The frame or its header was bad.
    RPC_SERVER_EXCEPTION = "org.apache.hadoop.ipc.RpcServerException";

    /// No such method.
    RPC_NO_SUCH_METHOD = "org.apache.hadoop.ipc.RpcNoSuchMethodException";

    /// No such protocol.
    RPC_NO_SUCH_PROTOCOL = "org.apache.hadoop.ipc.RpcNoSuchProtocolException";

    /// Another version of the RPC or of a protocol.
    RPC_VERSION_MISMATCH = "org.apache.hadoop.ipc.RPC$VersionMismatch";

    /// No replica of the block here.
    REPLICA_NOT_FOUND = "org.apache.hadoop.hdfs.server.datanode.ReplicaNotFoundException";

    /// The replica cannot be recovered in this way now.
    RECOVERY_IN_PROGRESS = "org.apache.hadoop.hdfs.protocol.RecoveryInProgressException";

    /// A disk has failed.
    DISK_ERROR = "org.apache.hadoop.util.DiskChecker$DiskErrorException";

    /// The disks are full.
    DISK_OUT_OF_SPACE = "org.apache.hadoop.util.DiskChecker$DiskOutOfSpaceException";

    /// The NameNode does not know this DataNode; register again.
    UNREGISTERED_NODE = "org.apache.hadoop.hdfs.protocol.UnregisteredNodeException";

    /// The NameNode refuses this DataNode (excluded, or no reverse DNS).
    DISALLOWED_DATANODE = "org.apache.hadoop.hdfs.server.protocol.DisallowedDatanodeException";

    /// Software versions do not fit.
    INCORRECT_VERSION = "org.apache.hadoop.hdfs.server.common.IncorrectVersionException";

    /// The NameNode wants no full report under this lease.
    INVALID_BLOCK_REPORT_LEASE =
        "org.apache.hadoop.hdfs.server.protocol.InvalidBlockReportLeaseException";

    /// A disk balancer request cannot be served.
    DISK_BALANCER_EXCEPTION = "org.apache.hadoop.hdfs.server.diskbalancer.DiskBalancerException";

    /// The request is not served here.
    UNSUPPORTED_OPERATION = "java.lang.UnsupportedOperationException";

    /// An argument makes no sense.
    ILLEGAL_ARGUMENT = "java.lang.IllegalArgumentException";

    /// The server is in no state for the request.
    ILLEGAL_STATE = "java.lang.IllegalStateException";

    /// Anything that failed on input or output.
    IO_EXCEPTION = "java.io.IOException";
}
