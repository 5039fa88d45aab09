//! Data transfer: limits, timeouts, throttles, page cache, pipeline, recovery.

use std::time::Duration;

use super::keys;

keys! {
    MAX_TRANSFER_THREADS: u32 = ("dfs.datanode.max.transfer.threads", "4096",
        "Data transfer operations at the same time; a connection past it is closed.")
        .min(1).max(10_000_000).reconfigurable().aliases(&["dfs.datanode.max.xcievers"]);
    XCEIVER_STOP_TIMEOUT: Duration = ("dfs.datanode.xceiver.stop.timeout.millis", "60000",
        "How long a writer may take to stop when its replica is taken over.").millis();
    CLIENT_SOCKET_TIMEOUT: Duration = ("dfs.client.socket-timeout", "60000",
        "Silence that ends a data connection; 0 for never.")
        .millis().aliases(&["dfs.socket.timeout"]);
    SOCKET_WRITE_TIMEOUT: Duration = ("dfs.datanode.socket.write.timeout", "480000",
        "How long a peer may refuse data; 0 for ever.").millis();
    SOCKET_KEEPALIVE: Duration = ("dfs.datanode.socket.reuse.keepalive", "4000",
        "How long a connection waits for its next operation; 0 closes it at once.").millis();
    TRANSFER_SEND_BUFFER: u32 = ("dfs.datanode.transfer.socket.send.buffer.size", "0",
        "Socket send buffer; 0 leaves it to the system.").bytes().max(1 << 30);
    TRANSFER_RECV_BUFFER: u32 = ("dfs.datanode.transfer.socket.recv.buffer.size", "0",
        "Socket receive buffer; 0 leaves it to the system.").bytes().max(1 << 30);
    DOMAIN_SOCKET_PATH: Option<String> = ("dfs.domain.socket.path", "",
        "Socket for clients of this host; `_PORT` stands for the data transfer port. It is there \
         when one of the next two keys is true. Only root and the node may write above it.");
    SHORT_CIRCUIT_READS: bool = ("dfs.client.read.shortcircuit", "false",
        "Clients of this host get the files of replicas, and read without the node.");
    DOMAIN_DATA_TRAFFIC: bool = ("dfs.client.domain.socket.data.traffic", "false",
        "Clients of this host transfer data over the socket.");
    TRANSFER_TCP_NODELAY: bool = ("dfs.data.transfer.server.tcpnodelay", "true",
        "TCP_NODELAY on data connections.");
    LOCAL_UNPACED: bool = ("hayloft.transfer.local.unpaced", "true",
        "Connections within the host use Reno where the system's congestion control is BBR.");
    MAX_PACKET_SIZE: u32 = ("dfs.data.transfer.max.packet.size", "16777216",
        "Largest packet accepted.").bytes().min(4096).max(1 << 30);
    READAHEAD_BYTES: u64 = ("dfs.datanode.readahead.bytes", "4194304",
        "Read-ahead of long reads. 0 reads one piece ahead. Any other value reads two, or four \
         when a flash disk has at most two readers.").bytes();
    TRANSFER_TO_ALLOWED: bool = ("dfs.datanode.transferTo.allowed", "true",
        "Send what the page cache has by sendfile, without a copy.");
    DROP_CACHE_BEHIND_READS: bool = ("dfs.datanode.drop.cache.behind.reads", "false",
        "Drop what was read from the page cache, unless the client says otherwise.");
    DROP_CACHE_BEHIND_WRITES: bool = ("dfs.datanode.drop.cache.behind.writes", "false",
        "The same for what was written through the page cache.");
    SYNC_BEHIND_WRITES: bool = ("dfs.datanode.sync.behind.writes", "false",
        "Start write-back at once of what is written through the page cache.");
    SYNC_ON_CLOSE: bool = ("dfs.datanode.synconclose", "false",
        "Sync data and checksums when a block is finalized.");
    BALANCE_BANDWIDTH: u64 = ("dfs.datanode.balance.bandwidthPerSec", "100m",
        "Limit on the balancer; `dfsadmin -setBalancerBandwidth` changes it while running.")
        .bytes_per_second().min(1).aliases(&["dfs.balance.bandwidthPerSec"]);
    BALANCE_MAX_MOVES: u32 = ("dfs.datanode.balance.max.concurrent.moves", "100",
        "Balancer moves at the same time; more are refused.").min(1).reconfigurable();
    DATA_TRANSFER_BANDWIDTH: u64 = ("dfs.datanode.data.transfer.bandwidthPerSec", "0",
        "Limit on copies for re-replication; 0 for none.").bytes_per_second().reconfigurable();
    DATA_WRITE_BANDWIDTH: u64 = ("dfs.datanode.data.write.bandwidthPerSec", "0",
        "Limit on client writes; 0 for none.").bytes_per_second().reconfigurable();
    DATA_READ_BANDWIDTH: u64 = ("dfs.datanode.data.read.bandwidthPerSec", "0",
        "Limit on client reads; 0 for none.").bytes_per_second().reconfigurable();
    SLOW_IO_WARNING_THRESHOLD: Duration = ("dfs.datanode.slow.io.warning.threshold.ms", "300",
        "Slower disk writes and syncs before an acknowledgement, and slower takers of \
         acknowledgements, are logged.").millis().min(1).reconfigurable();
    PIPELINE_ECN: bool = ("dfs.pipeline.ecn", "false",
        "Whether acknowledgements say that this node is congested.");
    PIPELINE_CONGESTION_RATIO: f64 = ("dfs.pipeline.congestion.ratio", "1.5",
        "Load average per core from which the node counts as congested.");
    PIPELINE_SLOWNODE: bool = ("dfs.pipeline.slownode", "false",
        "Whether acknowledgements say that the NameNode calls this node slow.");
    BLOCK_PINNING: bool = ("dfs.datanode.block-pinning.enabled", "false",
        "Keep replicas that a client asked to pin from the balancer.");
    BLOCK_SIZE: u64 = ("dfs.blocksize", "134217728",
        "Space reserved for a block being received whose length is unknown.")
        .bytes().min(1).max(1 << 50).aliases(&["dfs.block.size"]);
    RESTART_REPLICA_EXPIRATION: Duration = ("dfs.datanode.restart.replica.expiration", "50",
        "How long replicas stay open to their writers after a stop for upgrade.").seconds();
    CHECKSUM_EC_SOCKET_TIMEOUT: Duration = ("dfs.checksum.ec.socket-timeout", "3000",
        "Silence allowed while a striped file's checksum is gathered.").millis();
    EC_RECONSTRUCTION_THREADS: u32 = ("dfs.datanode.ec.reconstruction.threads", "8",
        "Erasure-coded block groups reconstructed at the same time; others wait.")
        .min(1).max(1024);
    EC_STRIPED_READ_TIMEOUT: Duration = (
        "dfs.datanode.ec.reconstruction.stripedread.timeout.millis", "5000",
        "A source of a reconstruction that is slower is replaced, if there is another.")
        .millis().min(1);
    EC_STRIPED_READ_BUFFER: u32 = ("dfs.datanode.ec.reconstruction.stripedread.buffer.size",
        "65536", "Bytes of each internal block that a reconstruction decodes at a time.")
        .bytes().min(1).max(1 << 26);
    EC_XMITS_WEIGHT: f64 = ("dfs.datanode.ec.reconstruction.xmits.weight", "0.5",
        "Part of a reconstruction's connections that counts in what the NameNode is told of load.");
    EC_VALIDATION: bool = ("dfs.datanode.ec.reconstruction.validation", "false",
        "Decode a source from what was reconstructed, and compare, before it is written.");
    EC_RECONSTRUCT_READ_BANDWIDTH: u64 = ("dfs.datanode.ec.reconstruct.read.bandwidthPerSec", "0",
        "Limit on reads for erasure-coding reconstruction; 0 for none.").bytes_per_second();
    EC_RECONSTRUCT_WRITE_BANDWIDTH: u64 = ("dfs.datanode.ec.reconstruct.write.bandwidthPerSec", "0",
        "Limit on writes for erasure-coding reconstruction; 0 for none.").bytes_per_second();
}
