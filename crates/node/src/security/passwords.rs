//! What the holder of a token, or of a key of encrypted data transfer, has to prove.

use hayloft_wire::block_token::BlockTokenIdentifier;
use hayloft_wire::encryption_user::EncryptionUser;
use hayloft_wire::ids::PoolId;

use super::secret::Secret;

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

impl DataEncryptionKey {
    /// As whom its holder comes to a node.
    #[must_use]
    pub fn user(&self) -> String {
        let named = EncryptionUser {
            key_id: self.key_id,
            pool: self.pool.as_str(),
            nonce: self.nonce.to_vec(),
        };
        named.to_string()
    }
}
