//! AES in counter mode, which Hadoop puts in the place of the ciphers of DIGEST-MD5.

use aes::{Aes128, Aes192, Aes256};
use ctr::Ctr128BE;
use ctr::cipher::{KeyIvInit as _, StreamCipher as _};
use zeroize::Zeroizing;

/// Bytes of a first counter.
const COUNTER: usize = 16;

/// Length of a key (`dfs.encrypt.data.transfer.cipher.key.bitlength`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyLength {
    /// 128 bits.
    Bits128,
    /// 192 bits.
    Bits192,
    /// 256 bits.
    Bits256,
}

impl KeyLength {
    /// The length of this many bits.
    #[must_use]
    pub fn of_bits(bits: u32) -> Option<Self> {
        match bits {
            128 => Some(Self::Bits128),
            192 => Some(Self::Bits192),
            256 => Some(Self::Bits256),
            _ => None,
        }
    }

    fn bytes(self) -> usize {
        match self {
            Self::Bits128 => 16,
            Self::Bits192 => 24,
            Self::Bits256 => 32,
        }
    }
}

/// A key and its first counter, for one direction. Wiped when it is dropped.
#[derive(Clone)]
pub struct CounterKeys {
    /// The key.
    pub key: Zeroizing<Vec<u8>>,
    /// The first counter, which is no secret.
    pub counter: [u8; COUNTER],
}

impl CounterKeys {
    /// A random key of this length.
    #[must_use]
    pub fn random(length: KeyLength) -> Self {
        let bytes = Zeroizing::new(rand::random::<[u8; 32]>());
        Self {
            key: Zeroizing::new(bytes[..length.bytes()].to_vec()),
            counter: rand::random(),
        }
    }

    /// The key and counter that a peer sent; `None` when their lengths are none of AES's.
    #[must_use]
    pub fn from_peer(key: &[u8], counter: &[u8]) -> Option<Self> {
        let keys = Self {
            key: Zeroizing::new(key.to_vec()),
            counter: counter.try_into().ok()?,
        };
        matches!(key.len(), 16 | 24 | 32).then_some(keys)
    }

    /// The cipher that starts with these; `None` when the key has no length of AES.
    #[must_use]
    pub fn cipher(&self) -> Option<CounterCipher> {
        let (key, iv) = (&self.key[..], &self.counter[..]);
        Some(match key.len() {
            16 => CounterCipher::Aes128(Box::new(Ctr128BE::new_from_slices(key, iv).ok()?)),
            24 => CounterCipher::Aes192(Box::new(Ctr128BE::new_from_slices(key, iv).ok()?)),
            32 => CounterCipher::Aes256(Box::new(Ctr128BE::new_from_slices(key, iv).ok()?)),
            _ => return None,
        })
    }
}

/// Encrypts or decrypts the bytes of one direction, in their order. Nothing notices bytes that
/// were changed, as with Apache's.
pub enum CounterCipher {
    /// With a key of 128 bits.
    Aes128(Box<Ctr128BE<Aes128>>),
    /// With a key of 192 bits.
    Aes192(Box<Ctr128BE<Aes192>>),
    /// With a key of 256 bits.
    Aes256(Box<Ctr128BE<Aes256>>),
}

impl CounterCipher {
    /// Encrypts or decrypts the next bytes where they are.
    pub fn apply(&mut self, bytes: &mut [u8]) {
        match self {
            Self::Aes128(cipher) => cipher.apply_keystream(bytes),
            Self::Aes192(cipher) => cipher.apply_keystream(bytes),
            Self::Aes256(cipher) => cipher.apply_keystream(bytes),
        }
    }
}

impl std::fmt::Debug for CounterCipher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CounterCipher")
    }
}
