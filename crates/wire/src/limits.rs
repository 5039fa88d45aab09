//! Every limit on what a peer may send, in one place.

/// Longest block pool id, in bytes. A file name may have 255.
pub const MAX_POOL_ID_BYTES: usize = 255;

/// Largest data transfer packet, checksums and data and the length field of four bytes together, in
/// bytes (`dfs.data.transfer.max.packet.size`).
pub const MAX_PACKET_BYTES: u32 = 16 << 20;

/// Largest chunk, in bytes. A packet holds at least one whole chunk, so larger ones could not travel.
pub const MAX_BYTES_PER_CHECKSUM: u32 = MAX_PACKET_BYTES;
