//! Bytes that no log shows.

use std::fmt;

use zeroize::Zeroizing;

/// Bytes that are not printed, and wiped when they are dropped.
#[derive(Clone)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Takes a copy of `bytes`.
    #[must_use]
    pub fn copied_from(bytes: &[u8]) -> Self {
        Self(Zeroizing::new(bytes.to_vec()))
    }

    /// The bytes, for what computes with them or sends them to their owner.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}
