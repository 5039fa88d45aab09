//! The function that makes passwords of identifiers.

use hayloft_conf::{Configuration, KeyGenerator, keys};
use ring::hmac;

use super::secret::Secret;

/// How tokens are checked and made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenSettings {
    /// `hadoop.security.secret-manager.key-generator.algorithm`, the same on all servers of a
    /// cluster.
    pub algorithm: KeyGenerator,
    /// Tokens made here have the protobuf form (`dfs.block.access.token.protobuf.enable`). Both
    /// forms are read.
    pub protobuf: bool,
    /// The user that tokens made here name: the node's own, in its short form.
    pub user: String,
}

impl TokenSettings {
    /// The values of `config`.
    #[must_use]
    pub fn from_config(config: &Configuration) -> Self {
        Self {
            algorithm: config.get(&keys::SECRET_MANAGER_ALGORITHM),
            protobuf: config.get(&keys::BLOCK_TOKEN_PROTOBUF),
            user: hayloft_rpc::current_user(),
        }
    }
}

fn keyed(algorithm: KeyGenerator, key: &Secret) -> hmac::Key {
    let algorithm = match algorithm {
        KeyGenerator::HmacSha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
        KeyGenerator::HmacSha256 => hmac::HMAC_SHA256,
        KeyGenerator::HmacSha384 => hmac::HMAC_SHA384,
        KeyGenerator::HmacSha512 => hmac::HMAC_SHA512,
    };
    hmac::Key::new(algorithm, key.expose())
}

/// The code of `message` under `key`.
pub(super) fn sign(algorithm: KeyGenerator, key: &Secret, message: &[u8]) -> Secret {
    Secret::copied_from(hmac::sign(&keyed(algorithm, key), message).as_ref())
}

/// Whether `code` is the code of `message` under `key`. How long this takes does not depend on
/// where the two differ.
pub(super) fn verify(algorithm: KeyGenerator, key: &Secret, message: &[u8], code: &[u8]) -> bool {
    hmac::verify(&keyed(algorithm, key), message, code).is_ok()
}
