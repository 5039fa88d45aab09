//! SASL's DIGEST-MD5 (RFC 2831) as Java's class library speaks it, without input and output.
//!
//! - `agreed`: what a handshake ends with
//! - `bytes_layer`: the bytes of a connection behind its handshake
//! - `client`: the side that answers a challenge
//! - `counter`: AES in counter mode, which Hadoop puts in the place of the ciphers of DIGEST-MD5
//! - `directives`: the lists of names and values that both sides send
//! - `digests`: what both sides compute from the password
//! - `error`: why a handshake or a message is refused
//! - `layer`: messages with a code, or encrypted
//! - `quality`: what a connection protects, and with which cipher
//! - `server`: the side that asks
//!
//! Hadoop uses it with block tokens and with keys of encrypted data transfer: the user is the
//! base64 of an identifier, the password that of its code. Keys are wiped when they are dropped,
//! and codes are compared in constant time.

mod agreed;
mod bytes_layer;
mod client;
mod counter;
mod digests;
mod directives;
mod error;
mod layer;
mod quality;
mod server;
#[cfg(test)]
mod tests;

pub use agreed::Agreed;
pub use bytes_layer::{ProtectedIn, ProtectedOut};
pub use client::{DigestClient, DigestClientProof};
pub use counter::{CounterCipher, CounterKeys, KeyLength};
pub use error::SaslError;
pub use layer::{MAX_GROWTH_BYTES, Opener, Sealer};
pub use quality::{LayerCipher, SaslQuality};
pub use server::{DigestResponse, DigestServer};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

/// Who offers which protection: the same on both sides of a connection.
#[derive(Clone, Copy, Debug)]
pub struct DigestOffer<'a> {
    /// First half of the digest's address: `hdfs` on the data transfer port.
    pub protocol: &'a str,
    /// Second half of it, and the realm: `0` on the data transfer port.
    pub host: &'a str,
    /// What is accepted; a client prefers the first ones.
    pub qualities: &'a [SaslQuality],
    /// Ciphers for [`SaslQuality::Privacy`]; a client prefers the first ones.
    pub ciphers: &'a [LayerCipher],
}

impl DigestOffer<'_> {
    fn address(&self) -> String {
        format!("{}/{}", self.protocol, self.host)
    }
}

/// Longest answer to a challenge, in bytes: that of Java's.
pub const MAX_RESPONSE_BYTES: usize = 4096;

/// Longest challenge that is read, in bytes (RFC 2831).
pub const MAX_CHALLENGE_BYTES: usize = 2048;

/// `bytes` as Hadoop writes users and passwords: base64 with padding. Wiped when it is dropped.
#[must_use]
pub fn to_base64(bytes: &[u8]) -> Zeroizing<String> {
    Zeroizing::new(STANDARD.encode(bytes))
}

/// The bytes that a peer wrote as base64; `None` when it is none.
#[must_use]
pub fn from_base64(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}
