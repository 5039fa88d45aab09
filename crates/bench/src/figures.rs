//! What is measured of a row.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A number that a measurement gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// MB (10^6 bytes) a second until the client was done.
    Rate,
    /// MB a second until the bytes were on the device.
    SettledRate,
    /// MB a second by a program that only reads from the device and sends.
    SentRate,
    /// MB a second that the disk balancer moved beside readers.
    Balanced,
    /// MiB of block data that the client moved.
    Moved,
    /// Operations a second.
    Ops,
    /// Median latency of an operation, microseconds.
    P50,
    /// 99 in 100 operations took at most this, microseconds.
    P99,
    /// 999 in 1000 operations took at most this, microseconds.
    P999,
    /// CPU seconds of the nodes per GiB, user mode.
    NodeUser,
    /// CPU seconds of the nodes per GiB, in the kernel.
    NodeSystem,
    /// CPU seconds of the nodes per GiB.
    NodeCpu,
    /// CPU seconds per GiB of a program that only reads from the device and sends.
    SentCpu,
    /// CPU seconds of the client per GiB.
    ClientCpu,
    /// CPU seconds of the whole machine per GiB: nodes, client, NameNode, kernel threads.
    MachineCpu,
    /// Share of all processors in use, 0 to 1.
    CpuShare,
    /// Share of the wall time in which threads of nodes and client waited for a processor, all
    /// threads together.
    Waited,
    /// Share of the time in which the device had a request, 0 to 1.
    DiskBusy,
    /// Share of one processor that the nodes used.
    PeerShare,
    /// Share of one processor that the client used for each stream.
    ClientShare,
    /// Largest resident memory of a node during the row, shared pages included, MiB.
    MemoryPeak,
    /// Requests that the device got, per GiB.
    Requests,
    /// Mean size of a request in the main direction, KiB.
    RequestSize,
    /// Mean length of a run of adjoining requests in the main direction, KiB.
    RunLength,
    /// Times that the device had to go elsewhere, per GiB.
    Seeks,
    /// Extents per block file.
    Extents,
    /// Seconds (start-up): until ports accepted connections.
    Listening,
    /// Seconds (start-up): until the NameNode knew every block.
    Reported,
    /// CPU seconds (start-up).
    StartCpu,
    /// Resident memory of the node when the NameNode knew every block, MiB.
    MemoryAfter,
    /// Seconds that the full report took, from the first of its messages to the last answer, as the
    /// node counts them.
    ReportSent,
    /// Seconds from the client's order to delete every block until its last file was gone.
    Deleted,
}

impl Figure {
    /// Heading in tables, with the unit.
    #[must_use]
    pub const fn heading(self) -> &'static str {
        match self {
            Self::Rate => "MB/s",
            Self::SettledRate => "MB/s until on the device",
            Self::SentRate => "MB/s, read and sent bare",
            Self::Balanced => "MB/s moved beside readers",
            Self::Moved => "MiB moved",
            Self::Ops => "operations/s",
            Self::P50 => "p50, us",
            Self::P99 => "p99, us",
            Self::P999 => "p99.9, us",
            Self::NodeUser => "node CPU s/GiB, user",
            Self::NodeSystem => "node CPU s/GiB, system",
            Self::NodeCpu => "node CPU s/GiB",
            Self::SentCpu => "CPU s/GiB, read and sent bare",
            Self::ClientCpu => "client CPU s/GiB",
            Self::MachineCpu => "whole machine CPU s/GiB",
            Self::CpuShare => "processors in use",
            Self::Waited => "waited for a processor",
            Self::DiskBusy => "device busy",
            Self::PeerShare => "node, of a processor",
            Self::ClientShare => "client, of a processor a stream",
            Self::MemoryPeak => "peak resident memory, MiB",
            Self::Requests => "device requests/GiB",
            Self::RequestSize => "mean request, KiB",
            Self::RunLength => "mean run, KiB",
            Self::Seeks => "seeks/GiB",
            Self::Extents => "extents per block",
            Self::Listening => "ports open, s",
            Self::Reported => "all blocks reported, s",
            Self::StartCpu => "CPU, s",
            Self::MemoryAfter => "resident memory after the report, MiB",
            Self::ReportSent => "full report sent and answered, s",
            Self::Deleted => "all blocks deleted, s",
        }
    }

    /// Whether it is processor time per GiB: the kernel counts it in ticks of 10 ms, so that little
    /// data tells nothing.
    #[must_use]
    pub const fn is_cpu_per_gib(self) -> bool {
        matches!(
            self,
            Self::NodeUser
                | Self::NodeSystem
                | Self::NodeCpu
                | Self::SentCpu
                | Self::ClientCpu
                | Self::MachineCpu
        )
    }

    /// Whether it is processor time of the nodes, which tells nothing of what no node does.
    #[must_use]
    pub const fn is_of_nodes_cpu(self) -> bool {
        matches!(
            self,
            Self::NodeUser | Self::NodeSystem | Self::NodeCpu | Self::PeerShare
        )
    }

    /// Whether a larger value is better.
    #[must_use]
    pub const fn more_is_better(self) -> bool {
        matches!(
            self,
            Self::Rate
                | Self::SettledRate
                | Self::SentRate
                | Self::Balanced
                | Self::Ops
                | Self::RequestSize
                | Self::RunLength
        )
    }
}

/// Figures of one measurement.
pub type Figures = BTreeMap<Figure, f64>;
