//! What the data transfer service takes from the configuration.

use std::net::IpAddr;
use std::time::Duration;

use crate::store_config::{memory_limit, write_memory};
use hayloft_client::TransferProtection;
use hayloft_conf::{Configuration, keys};

/// Memory for block data on its way between sockets and disks, all connections together, besides
/// [`Settings::reading_memory`]. When it is used up, senders wait; receivers go on with one small
/// buffer each.
pub const DATA_MEMORY: usize = 32 << 20;

/// Values of the keys named with each field.
#[derive(Clone, Debug, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent switches, one key each"
)]
pub struct Settings {
    /// Connections at the same time (`dfs.datanode.max.transfer.threads`).
    pub max_connections: usize,
    /// Silence on a connection during an operation (`dfs.client.socket-timeout`).
    pub read_timeout: Duration,
    /// How long a peer may refuse to take data (`dfs.datanode.socket.write.timeout`).
    pub write_timeout: Duration,
    /// How long a connection may wait for its next operation
    /// (`dfs.datanode.socket.reuse.keepalive`); zero closes it after the first.
    pub keepalive: Duration,
    /// TCP_NODELAY (`dfs.data.transfer.server.tcpnodelay`).
    pub tcp_nodelay: bool,
    /// Connections within this host are not paced (`hayloft.transfer.local.unpaced`).
    pub unpaced_local: bool,
    /// Socket send buffer, bytes; 0 leaves it to the system.
    pub send_buffer: u32,
    /// Socket receive buffer, bytes; 0 leaves it to the system.
    pub recv_buffer: u32,
    /// Connect to other nodes by name (`dfs.datanode.use.datanode.hostname`).
    pub use_hostname: bool,
    /// The address of this host that connections to other nodes come from; `None` leaves it to the
    /// system. Not of the configuration: known when the ports are bound.
    pub local: Option<IpAddr>,
    /// What protects connections.
    pub protection: TransferProtection,
    /// Largest packet accepted (`dfs.data.transfer.max.packet.size`), bytes.
    pub max_packet: u32,
    /// How long the last acknowledgement of a client's block waits for the NameNode to hear of the
    /// block (`hayloft.blockreport.incremental.before-ack`); zero where reports are collected.
    pub report_before_ack: Duration,
    /// How long an operation waits for its block pool (`dfs.datanode.bp-ready.timeout`).
    pub pool_ready_timeout: Duration,
    /// Bytes of `hayloft.memory.limit` for reading ahead, beside [`DATA_MEMORY`]; fixed when the
    /// service starts.
    pub reading_memory: usize,
    /// Bytes to ask the system to read ahead (`dfs.datanode.readahead.bytes`).
    pub readahead: u64,
    /// Cached data is sent from the page cache (`dfs.datanode.transferTo.allowed`).
    pub send_file: bool,
    /// `dfs.datanode.drop.cache.behind.reads`.
    pub drop_behind_reads: bool,
    /// `dfs.datanode.drop.cache.behind.writes`.
    pub drop_behind_writes: bool,
    /// `dfs.datanode.sync.behind.writes`.
    pub sync_behind_writes: bool,
    /// Acknowledgements carry congestion (`dfs.pipeline.ecn`).
    pub ecn: bool,
    /// Load average per processor from which the node is congested
    /// (`dfs.pipeline.congestion.ratio`).
    pub congestion_ratio: f64,
    /// Acknowledgements carry slowness (`dfs.pipeline.slownode`).
    pub slow_flag: bool,
    /// Replicas may be pinned (`dfs.datanode.block-pinning.enabled`).
    pub pinning: bool,
    /// Clients on other hosts may write to memory first, too
    /// (`dfs.datanode.non.local.lazy.persist`).
    pub non_local_lazy_persist: bool,
    /// Length reserved for a block whose length is unknown (`dfs.blocksize`), bytes.
    pub block_size_estimate: u64,
    /// Silence allowed to the nodes of a block group (`dfs.checksum.ec.socket-timeout`).
    pub group_checksum_timeout: Duration,
    /// Reconstruction of striped files.
    pub reconstruction: ReconstructionSettings,
    /// The last nodes of pipelines are measured (`dfs.datanode.peer.stats.enabled`).
    pub peer_stats: bool,
    /// An operation slower than this is logged (`dfs.datanode.slow.io.warning.threshold.ms`).
    pub slow_io: Duration,
}

/// Values of the keys of reconstruction, whose names begin with `dfs.datanode.ec.reconstruction.`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReconstructionSettings {
    /// Groups at the same time (`threads`); fixed when the service starts.
    pub threads: usize,
    /// A slower source is replaced, if there is another (`stripedread.timeout.millis`).
    pub read_timeout: Duration,
    /// Bytes of each internal block that are decoded at a time (`stripedread.buffer.size`).
    pub buffer: usize,
    /// Part of its connections that counts as load (`xmits.weight`).
    pub xmits_weight: f64,
    /// What was decoded is checked before it is written (`validation`).
    pub validation: bool,
}

impl ReconstructionSettings {
    fn from_config(config: &Configuration) -> Self {
        Self {
            threads: config.get(&keys::EC_RECONSTRUCTION_THREADS) as usize,
            read_timeout: config.get(&keys::EC_STRIPED_READ_TIMEOUT),
            buffer: config.get(&keys::EC_STRIPED_READ_BUFFER) as usize,
            xmits_weight: config.get(&keys::EC_XMITS_WEIGHT),
            validation: config.get(&keys::EC_VALIDATION),
        }
    }
}

/// Added to the timeouts of a pipeline for every node further down.
pub const PER_HOP_EXTENSION: Duration = Duration::from_secs(5);

impl Settings {
    /// The values of `config`.
    #[must_use]
    pub fn from_config(config: &Configuration) -> Self {
        Self {
            max_connections: config.get(&keys::MAX_TRANSFER_THREADS) as usize,
            read_timeout: config.get(&keys::CLIENT_SOCKET_TIMEOUT),
            write_timeout: config.get(&keys::SOCKET_WRITE_TIMEOUT),
            keepalive: config.get(&keys::SOCKET_KEEPALIVE),
            tcp_nodelay: config.get(&keys::TRANSFER_TCP_NODELAY),
            unpaced_local: config.get(&keys::LOCAL_UNPACED),
            send_buffer: config.get(&keys::TRANSFER_SEND_BUFFER),
            recv_buffer: config.get(&keys::TRANSFER_RECV_BUFFER),
            use_hostname: config.get(&keys::USE_DATANODE_HOSTNAME),
            local: None,
            protection: TransferProtection::from_config(config),
            max_packet: config.get(&keys::MAX_PACKET_SIZE),
            report_before_ack: report_before_ack(config),
            pool_ready_timeout: config.get(&keys::BP_READY_TIMEOUT),
            reading_memory: usize::try_from(memory_limit(config) - write_memory(config))
                .map_or(0, |rest| rest.saturating_sub(DATA_MEMORY)),
            readahead: config.get(&keys::READAHEAD_BYTES),
            send_file: config.get(&keys::TRANSFER_TO_ALLOWED),
            drop_behind_reads: config.get(&keys::DROP_CACHE_BEHIND_READS),
            drop_behind_writes: config.get(&keys::DROP_CACHE_BEHIND_WRITES),
            sync_behind_writes: config.get(&keys::SYNC_BEHIND_WRITES),
            ecn: config.get(&keys::PIPELINE_ECN),
            congestion_ratio: config.get(&keys::PIPELINE_CONGESTION_RATIO),
            slow_flag: config.get(&keys::PIPELINE_SLOWNODE),
            pinning: config.get(&keys::BLOCK_PINNING),
            non_local_lazy_persist: config.get(&keys::NON_LOCAL_LAZY_PERSIST),
            block_size_estimate: config.get(&keys::BLOCK_SIZE),
            group_checksum_timeout: config.get(&keys::CHECKSUM_EC_SOCKET_TIMEOUT),
            reconstruction: ReconstructionSettings::from_config(config),
            peer_stats: config.get(&keys::PEER_STATS_ENABLED),
            slow_io: config.get(&keys::SLOW_IO_WARNING_THRESHOLD),
        }
    }

    /// Timeout for reading from a pipeline with `hops` nodes ahead; `None` for never.
    #[must_use]
    pub fn downstream_read_timeout(&self, hops: usize) -> Option<Duration> {
        extended(self.read_timeout, hops)
    }

    /// Timeout for writing to a pipeline with `hops` nodes ahead; `None` for never.
    #[must_use]
    pub fn downstream_write_timeout(&self, hops: usize) -> Option<Duration> {
        extended(self.write_timeout, hops)
    }
}

/// An operator who has reports collected does not want every block to wait for its own.
fn report_before_ack(config: &Configuration) -> Duration {
    if config.get(&keys::INCREMENTAL_REPORT_INTERVAL).is_zero() {
        config.get(&keys::REPORT_BEFORE_ACK)
    } else {
        Duration::ZERO
    }
}

/// Zero means "no limit" to Hadoop, and stays so whatever the pipeline's length.
fn extended(base: Duration, hops: usize) -> Option<Duration> {
    let hops = u32::try_from(hops).unwrap_or(u32::MAX);
    (!base.is_zero()).then(|| base.saturating_add(PER_HOP_EXTENSION.saturating_mul(hops)))
}

#[cfg(test)]
impl Default for Settings {
    /// Those of a configuration without properties, with the least memory for readers.
    fn default() -> Self {
        let config = Configuration::from_properties(std::iter::empty::<(String, String)>());
        Self {
            reading_memory: 0,
            ..Self::from_config(&config.expect("defaults are valid"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(properties: &[(&str, &str)]) -> Settings {
        let own = |&(key, value): &(&str, &str)| (key.to_owned(), value.to_owned());
        let config = Configuration::from_properties(properties.iter().map(own));
        Settings::from_config(&config.expect("valid"))
    }

    #[test]
    fn no_client_waits_for_reports_that_are_collected() {
        const BEFORE_ACK: &str = "hayloft.blockreport.incremental.before-ack";
        let wait = |properties| with(properties).report_before_ack.as_millis();
        assert_eq!(wait(&[]), 50);
        assert_eq!(wait(&[(BEFORE_ACK, "7ms")]), 7);
        assert_eq!(wait(&[(BEFORE_ACK, "0")]), 0);
        let collected = ("dfs.blockreport.incremental.intervalMsec", "100");
        assert_eq!(wait(&[(BEFORE_ACK, "7ms"), collected]), 0);
    }

    #[test]
    fn readers_have_what_is_above_the_least_of_two_thirds_of_the_limit() {
        let reading = |limit| with(&[("hayloft.memory.limit", limit)]).reading_memory;
        assert_eq!(reading("96m"), 32 << 20);
        assert_eq!(reading("48m"), 0);
    }
}
