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
        "Silence on a data connection after which it is given up; 0 for never.")
        .millis().aliases(&["dfs.socket.timeout"]);
    SOCKET_WRITE_TIMEOUT: Duration = ("dfs.datanode.socket.write.timeout", "480000",
        "How long a peer may refuse to take data; 0 for ever.").millis();
    SOCKET_KEEPALIVE: Duration = ("dfs.datanode.socket.reuse.keepalive", "4000",
        "How long a connection waits for its next operation; 0 closes it at once.").millis();
    TRANSFER_SEND_BUFFER: u32 = ("dfs.datanode.transfer.socket.send.buffer.size", "0",
        "Socket send buffer; 0 leaves it to the system.").bytes().max(1 << 30);
    TRANSFER_RECV_BUFFER: u32 = ("dfs.datanode.transfer.socket.recv.buffer.size", "0",
        "Socket receive buffer; 0 leaves it to the system.").bytes().max(1 << 30);
    TRANSFER_TCP_NODELAY: bool = ("dfs.data.transfer.server.tcpnodelay", "true",
        "TCP_NODELAY on data connections.");
    LOCAL_UNPACED: bool = ("hayloft.transfer.local.unpaced", "true",
        "Whether data connections within this host use a congestion control without pacing (Reno) where the system's paces (BBR). Connections to other hosts keep the system's.");
    MAX_PACKET_SIZE: u32 = ("dfs.data.transfer.max.packet.size", "16777216",
        "Largest packet accepted.").bytes().min(4096).max(1 << 30);
    READAHEAD_BYTES: u64 = ("dfs.datanode.readahead.bytes", "4194304",
        "0: one piece of 1 to 4 MiB is read ahead of who reads a long range; anything else: two, or four where one or two read from flash.").bytes();
    TRANSFER_TO_ALLOWED: bool = ("dfs.datanode.transferTo.allowed", "true",
        "Whether what the page cache has is sent from there (sendfile), without a copy.");
    DROP_CACHE_BEHIND_READS: bool = ("dfs.datanode.drop.cache.behind.reads", "false",
        "Drop what was read from the page cache, unless the client says otherwise.");
    DROP_CACHE_BEHIND_WRITES: bool = ("dfs.datanode.drop.cache.behind.writes", "false",
        "Drop what was written from the page cache, unless the client says otherwise; nothing to do where writes go around it (engines direct and uring).");
    SYNC_BEHIND_WRITES: bool = ("dfs.datanode.sync.behind.writes", "false",
        "Start write-back of what was written at once, where it goes through the page cache.");
    SYNC_ON_CLOSE: bool = ("dfs.datanode.synconclose", "false",
        "Force replica and checksums to the disk when a block is finalized.");
    BALANCE_BANDWIDTH: u64 = ("dfs.datanode.balance.bandwidthPerSec", "100m",
        "Share of the balancer; `dfsadmin -setBalancerBandwidth` changes it while running.")
        .bytes_per_second().min(1).aliases(&["dfs.balance.bandwidthPerSec"]);
    BALANCE_MAX_MOVES: u32 = ("dfs.datanode.balance.max.concurrent.moves", "100",
        "Balancer moves at the same time; more are refused.").min(1).reconfigurable();
    DATA_TRANSFER_BANDWIDTH: u64 = ("dfs.datanode.data.transfer.bandwidthPerSec", "0",
        "Limit on copies between nodes for re-replication; 0 for none.").bytes_per_second().reconfigurable();
    DATA_WRITE_BANDWIDTH: u64 = ("dfs.datanode.data.write.bandwidthPerSec", "0",
        "Limit on client writes; 0 for none.").bytes_per_second().reconfigurable();
    DATA_READ_BANDWIDTH: u64 = ("dfs.datanode.data.read.bandwidthPerSec", "0",
        "Limit on client reads; 0 for none.").bytes_per_second().reconfigurable();
    SLOW_IO_WARNING_THRESHOLD: Duration = ("dfs.datanode.slow.io.warning.threshold.ms", "300",
        "Logged when slower than this: writes to the disk and syncs that an acknowledgement waits for, and peers that take acknowledgements from this node.").millis().min(1).reconfigurable();
    PIPELINE_ECN: bool = ("dfs.pipeline.ecn", "false",
        "Whether acknowledgements say that this node is congested.");
    PIPELINE_CONGESTION_RATIO: f64 = ("dfs.pipeline.congestion.ratio", "1.5",
        "Load average per core from which the node calls itself congested.");
    PIPELINE_SLOWNODE: bool = ("dfs.pipeline.slownode", "false",
        "Whether acknowledgements say that the NameNode calls this node slow.");
    BLOCK_PINNING: bool = ("dfs.datanode.block-pinning.enabled", "false",
        "Whether replicas that a client asked to pin are kept from the balancer.");
    BLOCK_SIZE: u64 = ("dfs.blocksize", "134217728",
        "Space set aside for a block that is being received and whose length is unknown.")
        .bytes().min(1).max(1 << 50).aliases(&["dfs.block.size"]);
    RESTART_REPLICA_EXPIRATION: Duration = ("dfs.datanode.restart.replica.expiration", "50",
        "After a stop for upgrade, replicas that were being written stay open to their writers this long.").seconds();
    CHECKSUM_EC_SOCKET_TIMEOUT: Duration = ("dfs.checksum.ec.socket-timeout", "3000",
        "Silence allowed when a striped file's checksum is gathered from other nodes.").millis();
    EC_RECONSTRUCT_READ_BANDWIDTH: u64 = ("dfs.datanode.ec.reconstruct.read.bandwidthPerSec", "0",
        "Limit on reads for erasure-coding reconstruction; 0 for none.").bytes_per_second();
    EC_RECONSTRUCT_WRITE_BANDWIDTH: u64 = ("dfs.datanode.ec.reconstruct.write.bandwidthPerSec", "0",
        "Limit on writes for erasure-coding reconstruction; 0 for none.").bytes_per_second();
}
