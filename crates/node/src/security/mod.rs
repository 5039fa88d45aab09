//! Who is who, and what is allowed: block tokens.
//!
//! A NameNode gives clients a token for each block that they may read or write. This node checks
//! it with keys that the NameNode handed out, and makes tokens of its own where it is the client
//! of another node.
//!
//! - `access`: what a request asks for, held against what a token permits
//! - `algorithm`: the function that makes passwords of identifiers
//! - `block_keys`: the keys of one block pool
//! - `block_tokens`: the tokens of all block pools of a node
//! - `refused`: why a token is not believed
//! - `secret`: bytes that no log shows
//!
//! Whether tokens are on, the NameNode says, not the node's own file: the first one that registers
//! the node decides. Until then every request is refused, and a NameNode that says otherwise later
//! is not served. The user that a token names is not checked, as in Apache's node.
//!
//! SASL connections ask for the passwords of what a peer names:
//! [`BlockTokens::token_password`] for a block token, and
//! [`BlockTokens::encryption_password`] for a key of encrypted data transfer.

mod access;
mod algorithm;
mod block_keys;
mod block_tokens;
mod refused;
mod secret;
#[cfg(test)]
mod tests;

pub use access::Access;
pub use algorithm::TokenSettings;
pub use block_keys::BlockKeysOfPool;
pub use block_tokens::{BlockTokens, Disagreement};
pub use refused::TokenRefused;
pub use secret::Secret;

use hayloft_wire::block_token::BlockTokenIdentifier;
use hayloft_wire::ids::PoolId;

/// What a token's identifier says, and the password that belongs to it. The holder of the token
/// has the same one; whether the token is for what its holder asks is checked apart.
#[derive(Debug)]
pub struct TokenPassword {
    /// The identifier, decoded. It is not expired.
    pub identifier: BlockTokenIdentifier,
    /// The password.
    pub password: Secret,
}

/// A key of encrypted data transfer (`dfs.encrypt.data.transfer`), as its maker holds it. The
/// other side makes the same of the number and the nonce.
#[derive(Debug)]
pub struct DataEncryptionKey {
    /// Number of the block key that it was made with.
    pub key_id: i32,
    /// The pool whose block key that is.
    pub pool: PoolId,
    /// Eight random bytes.
    pub nonce: [u8; 8],
    /// The code of the nonce under the block key.
    pub key: Secret,
    /// When it expires, in milliseconds since the epoch.
    pub expiry_millis: i64,
}
