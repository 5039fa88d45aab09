//! A token that a caller holds, and what may protect its calls.

use std::sync::Arc;

use hayloft_wire::proto::security::Token;

use super::quality::RpcQuality;

/// A token by which connections prove who calls. Servers take the caller from it alone.
#[derive(Clone)]
pub struct TokenProof {
    pub(crate) token: Token,
    pub(crate) qualities: Arc<[RpcQuality]>,
}

impl TokenProof {
    /// Proves that the caller holds `token`. `qualities`: what may protect the bytes, the most
    /// wanted first (`hadoop.rpc.protection`).
    #[must_use]
    pub fn new(token: Token, qualities: Arc<[RpcQuality]>) -> Self {
        Self { token, qualities }
    }
}

impl std::fmt::Debug for TokenProof {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TokenProof({:?}, {:?})", self.token, self.qualities)
    }
}
