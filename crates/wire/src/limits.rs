//! Every limit on what a peer may send, in one place.

/// Longest block pool id, in bytes. A file name may have 255.
pub const MAX_POOL_ID_BYTES: usize = 255;

/// Largest data transfer packet, checksums and data and the length field of four bytes together, in
/// bytes (`dfs.data.transfer.max.packet.size`).
pub const MAX_PACKET_BYTES: u32 = 16 << 20;

/// Largest chunk, in bytes. A packet holds at least one whole chunk, so larger ones could not
/// travel.
pub const MAX_BYTES_PER_CHECKSUM: u32 = MAX_PACKET_BYTES;

/// Longest header of a packet, in bytes. Hadoop sends 25 or 27; the rest is room for new fields.
pub const MAX_PACKET_HEADER_BYTES: usize = 1 << 10;

/// Longest data transfer operation message, in bytes. Real ones take some hundred bytes a target,
/// most of them tokens.
pub const MAX_OP_BYTES: usize = 1 << 20;

/// Longest message of the SASL handshake of a data transfer connection, in bytes. Java takes
/// answers of up to 4096 bytes; ciphers and keys come on top.
pub const MAX_SASL_MESSAGE_BYTES: usize = 16 << 10;

/// Longest answer to a data transfer operation, in bytes.
pub const MAX_OP_RESPONSE_BYTES: usize = 1 << 20;

/// Longest acknowledgement, in bytes: about 20 for each of [`MAX_TARGETS`] hops.
pub const MAX_ACK_BYTES: usize = 32 << 10;

/// Most targets of a write, and most hops in an acknowledgement. The NameNode's own limit on
/// replication (`dfs.replication.max`) is 512.
pub const MAX_TARGETS: usize = 1024;

/// Longest RPC frame, in bytes (`ipc.maximum.data.length`), both ways. A full block report of 10
/// million replicas on one storage just fits.
pub const MAX_RPC_FRAME_BYTES: usize = 128 << 20;

/// Longest header inside an RPC frame, in bytes. Tokens, caller contexts and error texts live
/// there.
pub const MAX_RPC_HEADER_BYTES: usize = 4 << 20;

/// Longest block token identifier, in bytes.
pub const MAX_TOKEN_BYTES: usize = 64 << 10;

/// Longest identifier of a user's token, in bytes: three names and four numbers. Base64 makes half
/// as much again of it, and it comes twice in an answer of SASL, which Java takes up to 4096 bytes.
pub const MAX_USER_TOKEN_BYTES: usize = 1 << 10;

/// Longest password of a user's token, in bytes. Hadoop's are codes of 20.
pub const MAX_TOKEN_PASSWORD_BYTES: usize = 256;

/// Longest kind and longest service of a user's token, in bytes.
pub const MAX_TOKEN_NAME_BYTES: usize = 512;

/// Most elements of a list inside a block token identifier.
pub const MAX_TOKEN_LIST: usize = 1024;

/// Most keys of block tokens that a NameNode hands out at a time. One that rolls them each minute
/// and lets tokens live ten hours keeps some 600.
pub const MAX_BLOCK_KEYS: usize = 4096;

/// Longest key of block tokens, in bytes. Hadoop's default is 8.
pub const MAX_BLOCK_KEY_BYTES: usize = 1024;
