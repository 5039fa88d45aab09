//! Keys of `core-site.xml`, and of Hadoop's RPC, that the code of Apache's DataNode reads.
//!
//! Found in the constants of its packages (datanode, ipc, security, net, http of 3.5.0). Keys that
//! only NameNodes and clients read are left out. So are those whose effect cannot be seen from
//! outside (buffer sizes, hash functions).

use super::{Group, ignoring};

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
const NO_RESOLVER: &str = "RPC is protected as hadoop.rpc.protection says, for every address";
const LOGIN: &str = "the node logs in again at 80 % of its ticket's life, and at most each minute";
const NO_FALLBACK: &str = "with Kerberos, a server that proves nothing is never called";
const SASL_RETRIES: &str = "the node tries to reach a NameNode for ever";

/// The table.
pub(super) static COMMON: &[Group] = &[
    // Who is who.
    ignoring(GROUPS).of(&[
        "hadoop.security.group.mapping=org.apache.hadoop.security.\
                JniBasedUnixGroupsMappingWithFallback",
        "hadoop.security.group.mapping.=",
    ]),
    ignoring(GROUPS_CACHE).of(&[
        "hadoop.security.groups.negative-cache.secs=30",
        "hadoop.security.groups.cache.warn.after.ms=5000",
        "hadoop.security.groups.cache.background.reload=false",
        "hadoop.security.groups.cache.background.reload.threads=3",
        "hadoop.security.groups.shell.command.timeout=0s",
    ]),
    ignoring(METRICS).of(&["hadoop.user.group.metrics.percentiles.intervals="]),
    ignoring("who may act for whom is read from hadoop.proxyuser.* only")
        .of(&["hadoop.security.impersonation.provider.class="]),
    ignoring(LOGIN).of(&["hadoop.kerberos.="]),
    ignoring(NO_RESOLVER).of(&[
        "hadoop.security.sasl.fixedwhitelist.file=",
        "hadoop.security.sasl.variablewhitelist.=",
        "hadoop.rpc.protection.non-whitelist=",
    ]),
    ignoring("DIGEST-MD5 asks for nothing else")
        .of(&["hadoop.security.sasl.CustomizedCallbackHandler.class="]),
    ignoring(NO_FALLBACK).of(&["ipc.client.fallback-to-simple-auth-allowed=false"]),
    ignoring(SASL_RETRIES).of(&["ipc.client.connect.max.retries.on.sasl=5"]),
    // Names and sockets.
    ignoring(HOST_NAME).of(&[
        "hadoop.security.dns.interface=",
        "hadoop.security.dns.nameserver=",
        "hadoop.security.dns.log-slow-lookups.enabled=false",
        "hadoop.security.resolver.impl=org.apache.hadoop.net.DNSDomainNameResolver",
    ]),
    ignoring(SOCKET).of(&[
        "hadoop.rpc.socket.factory.class.default=org.apache.hadoop.net.StandardSocketFactory",
        "hadoop.rpc.socket.factory.class.DatanodeProtocol=",
        "hadoop.rpc.socket.factory.class.InterDatanodeProtocol=",
        "hadoop.socks.server=",
        "ipc.client.bind.wildcard.addr=false",
        "ipc.client.low-latency=false",
    ]),
    ignoring("small packets are always sent at once").of(&[
        "ipc.client.tcpnodelay=true|true",
        "ipc.server.tcpnodelay=true|true",
    ]),
    ignoring(SOCKET).of(&["ipc.server.reuseaddr=true"]),
    // Calls of this node.
    ignoring(RETRIES).of(&["ipc.client.connect.max.retries.on.timeouts=45"]),
    ignoring("the node connects again after ipc.client.rpc-timeout.ms")
        .of(&["ipc.client.ping=true"]),
    ignoring("calls of a kind follow one another").of(&["ipc.client.async.calls.max=100"]),
    // Calls to this node.
    ignoring(CALL_QUEUE).of(&[
        "ipc.<port>.=",
        "ipc.callqueue.impl=java.util.concurrent.LinkedBlockingQueue",
        "ipc.scheduler.impl=org.apache.hadoop.ipc.DefaultRpcScheduler",
        "ipc.identity-provider.impl=org.apache.hadoop.ipc.UserIdentityProvider",
        "ipc.cost-provider.impl=org.apache.hadoop.ipc.DefaultCostProvider",
        "ipc.backoff.enable=false",
        "ipc.callqueue.overflow.trigger.failover=false",
        "ipc.server.read.threadpool.size=1",
        "ipc.server.read.connection-queue.size=100",
    ]),
    ignoring(IDLE).of(&[
        "ipc.client.connection.idle-scan-interval.ms=10000",
        "ipc.client.kill.max=10",
    ]),
    ignoring("slow calls and large answers are not logged").of(&[
        "ipc.server.max.response.size=1048576",
        "ipc.server.log.slow.rpc=false",
        "ipc.server.log.slow.rpc.threshold.ms=0",
    ]),
    ignoring("untaken answers end with their connection").of(&["ipc.server.purge.interval=15"]),
    ignoring(METRICS).of(&[
        "ipc.server.metrics.update.runner.interval=5000",
        "rpc.metrics.quantile.enable=false",
        "rpc.metrics.percentiles.intervals=",
        "rpc.metrics.timeunit=MILLISECONDS",
        "dfs.metrics.percentiles.intervals=",
    ]),
    ignoring("callers' contexts are not logged").of(&["hadoop.caller.context.enabled=false"]),
    // The process.
    ignoring("a stop takes 10 s at most").of(&["hadoop.service.shutdown.timeout=30s"]),
    ignoring("there is no Java virtual machine to watch").of(&["jvm.pause.="]),
    ignoring(HTTP).of(&[
        "hadoop.http.=",
        "dfs.xframe.enabled=true",
        "dfs.xframe.value=SAMEORIGIN",
        "dfs.web.authentication.=",
        "dfs.webhdfs.netty.low.watermark=32768",
        "dfs.webhdfs.netty.high.watermark=65535",
        "hadoop.ssl.server.conf=ssl-server.xml",
        "hadoop.ssl.enabled.protocols=TLSv1.2",
    ]),
];
