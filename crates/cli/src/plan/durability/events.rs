//! Units of a simulated cluster, and what happens to them.

use std::cmp::Ordering;

/// Block number of a parity unit.
pub const PARITY: u32 = u32::MAX;

/// How a unit is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitState {
    Whole,
    /// Bad, and not noticed.
    Latent,
    /// On a dead disk; its group makes up for it.
    Decoded,
    /// Not to be had from its node.
    Gone,
}

/// A replica of a block, or a parity file.
#[derive(Clone, Debug)]
pub struct SimulatedUnit {
    pub block: u32,
    pub node: u32,
    pub group: u32,
    pub state: UnitState,
    /// Whether the NameNode knows that it is gone.
    pub noticed: bool,
    /// Grows when the unit changes, so that an event of before is known as such.
    pub age: u32,
}

/// What happens to a cluster.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ClusterEvent {
    DiskDies,
    HostDies,
    DomainDies,
    Outage,
    LatentError,
    Scrubbed { unit: u32, age: u32 },
    Noticed { unit: u32, age: u32 },
    Copied { unit: u32, age: u32 },
    Rebuilt { node: u32 },
}

/// An event at its time; the first is the greatest.
#[derive(Debug)]
pub struct DueEvent(pub f64, pub u64, pub ClusterEvent);

impl PartialEq for DueEvent {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for DueEvent {}

impl PartialOrd for DueEvent {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for DueEvent {
    fn cmp(&self, other: &Self) -> Ordering {
        other.0.total_cmp(&self.0).then(other.1.cmp(&self.1))
    }
}
