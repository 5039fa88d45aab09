//! As whom the holder of a key of encrypted data transfer comes to a node.
//!
//! ```text
//! number pool nonce     7 BP-1 bm9uY2U=
//! ```
//!
//! The number is that of the block key with which the key was made, the nonce is in Base64. Nothing
//! is proved when a node reads it.

use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

/// What names a key of encrypted data transfer; its holder says it as the user of the handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncryptionUser<'a> {
    /// Number of the block key.
    pub key_id: i32,
    /// The pool whose block key that is, as the peer wrote it.
    pub pool: &'a str,
    /// What the block key made the key of.
    pub nonce: Vec<u8>,
}

impl<'a> EncryptionUser<'a> {
    /// Reads the user of a handshake; `None` when it names no key. The nonce is as long as the
    /// message allowed.
    #[must_use]
    pub fn parse(user: &'a str) -> Option<Self> {
        let mut parts = user.splitn(4, ' ');
        let (key_id, pool, nonce) = (parts.next()?, parts.next()?, parts.next()?);
        if parts.next().is_some() {
            return None;
        }
        Some(Self {
            key_id: key_id.parse().ok()?,
            pool,
            nonce: BASE64_STANDARD.decode(nonce).ok()?,
        })
    }
}

impl fmt::Display for EncryptionUser<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nonce = BASE64_STANDARD.encode(&self.nonce);
        write!(f, "{} {} {nonce}", self.key_id, self.pool)
    }
}

#[cfg(test)]
mod tests {
    use super::EncryptionUser;

    #[test]
    fn a_key_is_named_by_three_words() {
        let user = "-7 BP-1 bm9uY2U=";
        let named = EncryptionUser::parse(user).expect("a key");
        assert_eq!((named.key_id, named.pool), (-7, "BP-1"));
        assert_eq!(named.nonce, b"nonce");
        assert_eq!(named.to_string(), user);
        for other in [
            "",
            "7 BP-1",
            "7 BP-1 bm9uY2U= more",
            "7 BP-1 bm9uY2U= ",
            "7  BP-1 bm9uY2U=",
            "x BP-1 bm9uY2U=",
            "2147483648 BP-1 bm9uY2U=",
            "7 BP-1 bm9uY2U",
            "7 BP-1 !",
        ] {
            assert_eq!(EncryptionUser::parse(other), None, "{other:?}");
        }
    }
}
