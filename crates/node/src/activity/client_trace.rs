//! The audit trail: a line for each block that a client wrote or read, in Apache's format.

use std::fmt;
use std::net::SocketAddr;

use hayloft_wire::ids::ExtendedBlock;

use super::{OpParts, nanos};

/// The part of the log that has these lines. As in Apache's node, writes are logged from INFO on
/// and reads from DEBUG on: a node serves far more reads than it receives blocks.
pub const TARGET: &str = "hayloft_node::clienttrace";

/// Characters of a client's name that are logged; a client chooses it.
const CLIENT_MAX: usize = 256;

/// What a client did with a block.
#[derive(Clone, Debug)]
pub struct ClientTrace<'a> {
    /// Where the data came from.
    pub from: Option<SocketAddr>,
    /// Where it went.
    pub to: Option<SocketAddr>,
    /// Directory of the volume; empty for a read, as in Apache's.
    pub volume: &'a str,
    /// Bytes sent, or the length of the block that was written.
    pub bytes: u64,
    /// The name that the client gave itself.
    pub client: &'a str,
    /// Where a read began.
    pub offset: u64,
    /// Uuid of this node.
    pub node: &'a str,
    /// The block.
    pub block: &'a ExtendedBlock,
    /// All of it, in nanoseconds.
    pub nanos: u64,
}

impl ClientTrace<'_> {
    /// Whether lines about reads are wanted.
    #[must_use]
    pub fn wants_reads() -> bool {
        tracing::enabled!(target: TARGET, tracing::Level::DEBUG)
    }

    /// Whether lines about writes are wanted.
    #[must_use]
    pub fn wants_writes() -> bool {
        tracing::enabled!(target: TARGET, tracing::Level::INFO)
    }

    /// Logs a read.
    pub fn read(&self, parts: &OpParts) {
        tracing::debug!(target: TARGET, "{}", self.line("HDFS_READ"));
        self.parts(parts);
    }

    /// Logs a write.
    pub fn written(&self, parts: &OpParts) {
        tracing::info!(target: TARGET, "{}", self.line("HDFS_WRITE"));
        self.parts(parts);
    }

    /// The parts are a line of their own: programs take Apache's line to end with the duration.
    fn parts(&self, parts: &OpParts) {
        tracing::trace!(target: TARGET, "parts of blockid: {}, waiting(ns): {}, disk(ns): {}, \
            network(ns): {}", self.block, nanos(parts.waiting), nanos(parts.disk),
            nanos(parts.network));
    }

    fn line(&self, op: &'static str) -> Line<'_> {
        Line { trace: self, op }
    }
}

struct Line<'a> {
    trace: &'a ClientTrace<'a>,
    op: &'static str,
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ClientTrace {
            from,
            to,
            volume,
            bytes,
            client,
            offset,
            node,
            block,
            nanos,
        } = self.trace;
        write!(
            f,
            "src: {}, dest: {}, volume: {volume}, bytes: {bytes}, op: {}, cliID: {}, \
             offset: {offset}, srvID: {node}, blockid: {block}, duration(ns): {nanos}",
            Address(*from),
            Address(*to),
            self.op,
            Name(client),
        )
    }
}

/// As Java prints it.
struct Address(Option<SocketAddr>);

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(address) => write!(f, "/{address}"),
            None => f.write_str("unknown"),
        }
    }
}

/// A client's name, so that it cannot make up lines or fields.
struct Name<'a>(&'a str);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write as _;
        for c in self.0.chars().take(CLIENT_MAX) {
            f.write_char(if c.is_control() || c == ',' { '_' } else { c })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use hayloft_wire::ids::{Block, PoolId};

    use super::*;

    #[test]
    fn a_line_is_apache_s_and_a_name_is_no_line() {
        let pool = PoolId::new("BP-1-127.0.0.1-1").expect("a pool");
        let block = ExtendedBlock {
            pool,
            block: Block::new(7, 1001, 5),
        };
        let trace = ClientTrace {
            from: Some(([127, 0, 0, 1], 9866).into()),
            to: None,
            volume: "",
            bytes: 5,
            client: "DFSClient_1\n, op: HDFS_WRITE",
            offset: 2,
            node: "u-1",
            block: &block,
            nanos: 9,
        };
        assert_eq!(
            trace.line("HDFS_READ").to_string(),
            "src: /127.0.0.1:9866, dest: unknown, volume: , bytes: 5, op: HDFS_READ, \
             cliID: DFSClient_1__ op: HDFS_WRITE, offset: 2, srvID: u-1, \
             blockid: BP-1-127.0.0.1-1:blk_7_1001, duration(ns): 9"
        );
    }
}
