//! Every limit on what a peer may send, in one place.

/// Longest block pool id, in bytes. A file name may have 255.
pub const MAX_POOL_ID_BYTES: usize = 255;
