//! Keys of `core-site.xml`, and of Hadoop's RPC, that the code of Apache's DataNode reads.
//!
//! Found in the constants of its packages (datanode, ipc, security, net, http of 3.5.0). Keys that
//! only NameNodes and clients read are left out. So are those whose effect cannot be seen from
//! outside (buffer sizes, hash functions).

use super::{KERBEROS, Unsupported, always, key};

const GROUPS: &str =
    "groups come from the system's users and hadoop.user.group.static.mapping.overrides";
const GROUPS_CACHE: &str = "groups are kept for hadoop.security.groups.cache.secs, found or not";
const HOST_NAME: &str = "the host name is the system's or dfs.datanode.hostname";
const SOCKET: &str = "connections are plain TCP";
const CALL_QUEUE: &str = "calls are served in order of arrival";
const IDLE: &str = "idle connections close after ipc.client.connection.maxidletime";
const RETRIES: &str = "the node tries to reach a NameNode for ever";
const METRICS: &str = "the RPC server has no such figures yet";
const HTTP: &str = "the web port has no such setting yet";
const NO_SASL: &str = "RPC has no SASL here";

/// The table.
pub(super) static COMMON: &[Unsupported] = &[
    // Who is who.
    key(
        "hadoop.security.group.mapping",
        "org.apache.hadoop.security.JniBasedUnixGroupsMappingWithFallback",
        GROUPS,
    ),
    key("hadoop.security.group.mapping.", "", GROUPS),
    key(
        "hadoop.security.groups.negative-cache.secs",
        "30",
        GROUPS_CACHE,
    ),
    key(
        "hadoop.security.groups.cache.warn.after.ms",
        "5000",
        GROUPS_CACHE,
    ),
    key(
        "hadoop.security.groups.cache.background.reload",
        "false",
        GROUPS_CACHE,
    ),
    key(
        "hadoop.security.groups.cache.background.reload.threads",
        "3",
        GROUPS_CACHE,
    ),
    key(
        "hadoop.security.groups.shell.command.timeout",
        "0s",
        GROUPS_CACHE,
    ),
    key(
        "hadoop.user.group.metrics.percentiles.intervals",
        "",
        METRICS,
    ),
    key("hadoop.security.auth_to_local", "", KERBEROS),
    key(
        "hadoop.security.auth_to_local.mechanism",
        "hadoop",
        KERBEROS,
    ),
    key(
        "hadoop.security.impersonation.provider.class",
        "",
        "who may act for whom is read from hadoop.proxyuser.* only",
    ),
    key("hadoop.kerberos.", "", KERBEROS),
    key("hadoop.security.saslproperties.resolver.class", "", NO_SASL),
    key("hadoop.security.sasl.", "", NO_SASL),
    key(
        "ipc.client.fallback-to-simple-auth-allowed",
        "false",
        NO_SASL,
    ),
    key("ipc.client.connect.max.retries.on.sasl", "5", NO_SASL),
    // Names and sockets.
    key("hadoop.security.dns.interface", "", HOST_NAME),
    key("hadoop.security.dns.nameserver", "", HOST_NAME),
    key(
        "hadoop.security.dns.log-slow-lookups.enabled",
        "false",
        HOST_NAME,
    ),
    key(
        "hadoop.security.resolver.impl",
        "org.apache.hadoop.net.DNSDomainNameResolver",
        HOST_NAME,
    ),
    key(
        "hadoop.rpc.socket.factory.class.default",
        "org.apache.hadoop.net.StandardSocketFactory",
        SOCKET,
    ),
    key(
        "hadoop.rpc.socket.factory.class.DatanodeProtocol",
        "",
        SOCKET,
    ),
    key(
        "hadoop.rpc.socket.factory.class.InterDatanodeProtocol",
        "",
        SOCKET,
    ),
    key("hadoop.socks.server", "", SOCKET),
    key("ipc.client.bind.wildcard.addr", "false", SOCKET),
    key("ipc.client.low-latency", "false", SOCKET),
    always(
        "ipc.client.tcpnodelay",
        "true",
        "true",
        "small packets are always sent at once",
    ),
    always(
        "ipc.server.tcpnodelay",
        "true",
        "true",
        "small packets are always sent at once",
    ),
    key("ipc.server.reuseaddr", "true", SOCKET),
    // Calls of this node.
    key("ipc.client.connect.max.retries.on.timeouts", "45", RETRIES),
    key(
        "ipc.client.ping",
        "true",
        "the node connects again after ipc.client.rpc-timeout.ms",
    ),
    key(
        "ipc.client.async.calls.max",
        "100",
        "calls of a kind follow one another",
    ),
    // Calls to this node.
    key("ipc.<port>.", "", CALL_QUEUE),
    key(
        "ipc.callqueue.impl",
        "java.util.concurrent.LinkedBlockingQueue",
        CALL_QUEUE,
    ),
    key(
        "ipc.scheduler.impl",
        "org.apache.hadoop.ipc.DefaultRpcScheduler",
        CALL_QUEUE,
    ),
    key(
        "ipc.identity-provider.impl",
        "org.apache.hadoop.ipc.UserIdentityProvider",
        CALL_QUEUE,
    ),
    key(
        "ipc.cost-provider.impl",
        "org.apache.hadoop.ipc.DefaultCostProvider",
        CALL_QUEUE,
    ),
    key("ipc.backoff.enable", "false", CALL_QUEUE),
    key(
        "ipc.callqueue.overflow.trigger.failover",
        "false",
        CALL_QUEUE,
    ),
    key("ipc.server.read.threadpool.size", "1", CALL_QUEUE),
    key("ipc.server.read.connection-queue.size", "100", CALL_QUEUE),
    key("ipc.client.connection.idle-scan-interval.ms", "10000", IDLE),
    key("ipc.client.kill.max", "10", IDLE),
    key(
        "ipc.server.max.response.size",
        "1048576",
        "slow calls and large answers are not logged",
    ),
    key(
        "ipc.server.log.slow.rpc",
        "false",
        "slow calls and large answers are not logged",
    ),
    key(
        "ipc.server.log.slow.rpc.threshold.ms",
        "0",
        "slow calls and large answers are not logged",
    ),
    key(
        "ipc.server.purge.interval",
        "15",
        "untaken answers end with their connection",
    ),
    key("ipc.server.metrics.update.runner.interval", "5000", METRICS),
    key("rpc.metrics.quantile.enable", "false", METRICS),
    key("rpc.metrics.percentiles.intervals", "", METRICS),
    key("rpc.metrics.timeunit", "MILLISECONDS", METRICS),
    key("dfs.metrics.percentiles.intervals", "", METRICS),
    key(
        "hadoop.caller.context.enabled",
        "false",
        "callers' contexts are not logged",
    ),
    // The process.
    key(
        "hadoop.service.shutdown.timeout",
        "30s",
        "a stop takes 10 s at most",
    ),
    key(
        "jvm.pause.",
        "",
        "there is no Java virtual machine to watch",
    ),
    key("hadoop.http.", "", HTTP),
    key("hadoop.prometheus.endpoint.enabled", "false", HTTP),
    key(
        "hadoop.security.instrumentation.requires.admin",
        "false",
        HTTP,
    ),
    key("dfs.xframe.enabled", "true", HTTP),
    key("dfs.xframe.value", "SAMEORIGIN", HTTP),
    key("dfs.web.authentication.", "", HTTP),
    key("dfs.webhdfs.netty.low.watermark", "32768", HTTP),
    key("dfs.webhdfs.netty.high.watermark", "65535", HTTP),
    key("hadoop.ssl.server.conf", "ssl-server.xml", HTTP),
    key("hadoop.ssl.enabled.protocols", "TLSv1.2", HTTP),
];
