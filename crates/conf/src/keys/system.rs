//! Identity, addresses, security mode and what belongs to the process.

use std::time::Duration;

use super::keys;
use crate::address::HostPort;
use crate::choice::KeyGenerator;
use crate::node_name::NodeName;

keys! {
    DEFAULT_FS: String = ("fs.defaultFS", "file:///",
        "The cluster's file system. It names the NameNode where no dfs.namenode.*rpc-address \
         does.").aliases(&["fs.default.name"]);
    HADOOP_TMP_DIR: String = ("hadoop.tmp.dir", "/tmp/hadoop-${user.name}",
        "Base of default directories.");
    NODES: Vec<NodeName> = ("hayloft.nodes", "",
        "Names of virtual nodes: each a DataNode on its directory below each data directory. Ports \
         count up; append `.<name>` to addresses and host name for one.");
    DATANODE_ADDRESS: HostPort = ("dfs.datanode.address", "0.0.0.0:9866",
        "Address of the data transfer port.");
    DATANODE_IPC_ADDRESS: HostPort = ("dfs.datanode.ipc.address", "0.0.0.0:9867",
        "Address of the RPC server.");
    DATANODE_HOSTNAME: Option<String> = ("dfs.datanode.hostname", "",
        "Host name to register under; the system's own when empty.").aliases(&["slave.host.name"]);
    USE_DATANODE_HOSTNAME: bool = ("dfs.datanode.use.datanode.hostname", "false",
        "Connect to other nodes by host name.");
    REGISTERED_HOSTNAME: Option<String> = ("dfs.datanode.registered.hostname", "",
        "Host name or address that NameNodes are told in the place of this host's, of a node that \
         others reach through it. A key of Stackable's Hadoop, whose NameNode keeps it; Apache's \
         takes the address that it sees. Not for virtual nodes.");
    REGISTERED_PORT: u32 = ("dfs.datanode.registered.port", "0",
        "Port of data transfer that NameNodes are told; 0 for the one that is bound.").max(65_535);
    REGISTERED_IPC_PORT: u32 = ("dfs.datanode.registered.ipc.port", "0",
        "The same of the RPC server.").max(65_535);
    REGISTERED_HTTP_PORT: u32 = ("dfs.datanode.registered.http.port", "0",
        "The same of HTTP.").max(65_535);
    REGISTERED_HTTPS_PORT: u32 = ("dfs.datanode.registered.https.port", "0",
        "The same of HTTPS.").max(65_535);
    HANDLER_COUNT: u32 = ("dfs.datanode.handler.count", "10",
        "RPC calls that run at the same time.").min(1).max(100_000);
    IPC_LISTEN_QUEUE: u32 = ("ipc.server.listen.queue.size", "256",
        "Connections that wait to be accepted, on each port.").min(1).max(65_535);
    IPC_MAX_CONNECTIONS: u32 = ("ipc.server.max.connections", "0",
        "Open RPC connections; more are closed at once. 0 for 4096.").max(1_000_000);
    IPC_HANDLER_QUEUE_SIZE: u32 = ("ipc.server.handler.queue.size", "100",
        "RPC calls that may wait for each handler.").min(1).max(10_000);
    IPC_IDLE_THRESHOLD: u32 = ("ipc.client.idlethreshold", "4000",
        "RPC connections above which idle ones close after twice \
         ipc.client.connection.maxidletime.");
    IPC_MAXIMUM_DATA_LENGTH: u32 = ("ipc.maximum.data.length", "134217728",
        "Largest RPC message accepted or sent.").bytes().min(1024).max(2_147_483_647);
    IPC_MAXIMUM_RESPONSE_LENGTH: u32 = ("ipc.maximum.response.length", "134217728",
        "Largest RPC response accepted.").bytes().min(1024).max(2_147_483_647);
    IPC_CONNECT_TIMEOUT: Duration = ("ipc.client.connect.timeout", "20000",
        "How long opening an RPC connection may take.").millis().min(1);
    IPC_RPC_TIMEOUT: Duration = ("ipc.client.rpc-timeout.ms", "120000",
        "How long an RPC may take; 0 for no limit but the ping's.").millis();
    IPC_PING_INTERVAL: Duration = ("ipc.ping.interval", "60000",
        "Silence after which a waiting RPC connection is pinged.").millis().min(1);
    IPC_MAX_IDLE_TIME: Duration = ("ipc.client.connection.maxidletime", "10000",
        "Idle RPC client connections close after this.").millis().min(1);
    PERMISSIONS_ENABLED: bool = ("dfs.permissions.enabled", "true",
        "Whether administrative RPCs are for superusers only.").aliases(&["dfs.permissions"]);
    SUPERUSER_GROUP: String = ("dfs.permissions.superusergroup", "supergroup",
        "Group whose members are superusers, as is the node's own user.")
        .aliases(&["dfs.permissions.supergroup"]);
    STATIC_GROUPS: String = ("hadoop.user.group.static.mapping.overrides", "dr.who=",
        "Groups set here rather than looked up in the system: `user=group,group;user=`.");
    GROUPS_CACHE: Duration = ("hadoop.security.groups.cache.secs", "300",
        "How long a user's groups are kept.").seconds();
    SECURITY_AUTHORIZATION: bool = ("hadoop.security.authorization", "false",
        "Whether hadoop-policy.xml says who may call the RPC port, and only \
         dfs.cluster.administrators see the log. Read at the start.");
    BLOCK_ACCESS_TOKEN_ENABLE: bool = ("dfs.block.access.token.enable", "false",
        "Block tokens. Whether they are checked, the NameNodes say, as they tell Apache's node.");
    BLOCK_TOKEN_PROTOBUF: bool = ("dfs.block.access.token.protobuf.enable", "false",
        "Block tokens that this node makes for other nodes have the protobuf form. Both are read.");
    SECRET_MANAGER_ALGORITHM: KeyGenerator = (
        "hadoop.security.secret-manager.key-generator.algorithm", "HmacSHA1",
        "How passwords of tokens are made, the same on all servers of a cluster.");
    ENCRYPT_DATA_TRANSFER: bool = ("dfs.encrypt.data.transfer", "false",
        "Data transfer is encrypted, with keys that NameNodes hand out beside block tokens.");
    ENCRYPT_ALGORITHM: Option<String> = ("dfs.encrypt.data.transfer.algorithm", "",
        "Cipher of encrypted data transfer where AES is not agreed on: `3des` or `rc4`. With \
         `3des` clients are offered no other, and else both.");
    ENCRYPT_CIPHER_SUITES: Option<String> = ("dfs.encrypt.data.transfer.cipher.suites", "",
        "`AES/CTR/NoPadding` where clients and nodes agree on it; far cheaper than the others.");
    ENCRYPT_KEY_BITS: u32 = ("dfs.encrypt.data.transfer.cipher.key.bitlength", "128",
        "Length of keys of AES: 128, 192 or 256.");
    DATA_TRANSFER_PROTECTION: Option<String> = ("dfs.data.transfer.protection", "",
        "With Kerberos, what protects data transfer on ports that are not privileged: \
         `authentication`, `integrity` or `privacy`, or several with commas, the most wanted \
         first.");
    TRUSTED_CHANNELS: Option<String> = ("dfs.trustedchannel.resolver.class", "",
        "Who is trusted without proof. A node does not start with a class of one's own.");
    TRANSFER_PROPERTIES: Option<String> = ("dfs.data.transfer.saslproperties.resolver.class", "",
        "Whose protection differs. A node does not start with a class of one's own.");
    RPC_PROPERTIES: Option<String> = ("hadoop.security.saslproperties.resolver.class", "",
        "Whose protection of RPC differs; that of data transfer, too, unless its own key is set. \
         A node starts with the default class or IngressPortBasedResolver.");
    INGRESS_PORTS: Option<String> = ("ingress.port.sasl.configured.ports", "",
        "Ports to which IngressPortBasedResolver gives a protection of their own. A node does not \
         start if its RPC port is among them.");
    SASL_MECHANISM: Option<String> = ("hadoop.security.sasl.mechanism", "",
        "Mechanism of SASL with tokens and keys. A node starts with `DIGEST-MD5` alone.");
    DOWNSTREAM_QUALITY: bool = ("dfs.encrypt.data.overwrite.downstream.derived.qop", "false",
        "Another protection for the rest of a pipeline. A node does not start with it.");
}
