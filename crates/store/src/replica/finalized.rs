//! A finalized replica, as the map has it.

/// A finalized replica. Its files are found from the block id and the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FinalReplica {
    /// Generation stamp.
    pub generation_stamp: u64,
    /// Length in bytes.
    pub len: u64,
    /// Number of the volume.
    pub volume: u16,
    /// Pinned to this node.
    pub pinned: bool,
}
