//! Messages with a code, or encrypted.
//!
//! | Quality | Message on the wire |
//! |---|---|
//! | integrity | message, code, 0001, number |
//! | privacy | encrypted (message, padding, code), 0001, number |
//!
//! The code is the first ten bytes of an HMAC-MD5 of number and message. Ciphers go on where they
//! were at the end of the message before. Empty messages are not sent, and Java answers one with
//! nothing: it has no code and does not count.

use bytes::{BufMut as _, BytesMut};
use cbc::cipher::{
    Array, Block, BlockModeDecrypt as _, BlockModeEncrypt as _, InnerIvInit as _, KeyInit as _,
    StreamCipher as _,
};
use des::TdesEde2;
use hmac::{Hmac, Mac as _};
use md5_of_hmac::Md5;
use rc4::Rc4;
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

use super::error::SaslError;
use super::quality::LayerCipher;

/// Bytes of a digest, and of keys that are made of one.
pub(crate) const DIGEST: usize = 16;
/// Bytes of a code.
const CODE: usize = 10;
/// What is between code and number.
const VERSION: [u8; 2] = [0, 1];
/// Bytes of version and number.
const TAIL: usize = 6;
/// Bytes of a block of DES.
const DES_BLOCK: usize = 8;

/// By how much a message grows on the wire, at most, in bytes.
pub const MAX_GROWTH_BYTES: usize = CODE + TAIL + DES_BLOCK;

/// The keys of one direction, wiped when they are dropped.
pub(crate) struct Direction {
    pub(crate) signs: Zeroizing<[u8; DIGEST]>,
    pub(crate) seals: Option<(LayerCipher, Zeroizing<[u8; DIGEST]>)>,
}

type Encryptor = cbc::Encryptor<TdesEde2>;
type Decryptor = cbc::Decryptor<TdesEde2>;

impl Direction {
    pub(crate) fn sealer(&self) -> Sealer {
        let cipher = self.seals.as_ref().map(|(cipher, key)| match cipher {
            LayerCipher::TripleDes => {
                let (key, iv) = triple_des(key);
                SealingCipher::TripleDes(Box::new(Encryptor::inner_iv_init(key, &iv)))
            }
            LayerCipher::Rc4 => SealingCipher::Rc4(rc4(key)),
        });
        Sealer {
            codes: Codes::new(&self.signs),
            cipher,
        }
    }

    pub(crate) fn opener(&self) -> Opener {
        let cipher = self.seals.as_ref().map(|(cipher, key)| match cipher {
            LayerCipher::TripleDes => {
                let (key, iv) = triple_des(key);
                OpeningCipher::TripleDes(Box::new(Decryptor::inner_iv_init(key, &iv)))
            }
            LayerCipher::Rc4 => OpeningCipher::Rc4(rc4(key)),
        });
        Opener {
            codes: Codes::new(&self.signs),
            cipher,
        }
    }
}

fn rc4(key: &[u8; DIGEST]) -> Box<Rc4> {
    Box::new(Rc4::new_from_slice(key).expect("RC4 takes keys of 16 bytes"))
}

/// The cipher of a key, and what its first block is mixed with. Seven bytes of the key become
/// eight of DES, whose lowest bits do not count.
fn triple_des(key: &[u8; DIGEST]) -> (TdesEde2, Array<u8, cbc::cipher::consts::U8>) {
    let mut spread = Zeroizing::new([0_u8; DIGEST]);
    let halves = spread.chunks_exact_mut(DES_BLOCK).zip(key.chunks_exact(7));
    for (wide, narrow) in halves {
        let bits = narrow
            .iter()
            .fold(0_u64, |bits, byte| bits << 8 | u64::from(*byte));
        for (at, byte) in wide.iter_mut().enumerate() {
            // Seven bits each, the first ones first.
            let seven = bits >> (49 - 7 * at) & 0x7F;
            *byte = u8::try_from(seven).unwrap_or_default() << 1;
        }
    }
    let cipher = TdesEde2::new_from_slice(&*spread).expect("two keys of eight bytes");
    let mut iv = Array::default();
    iv.copy_from_slice(&key[DIGEST - DES_BLOCK..]);
    (cipher, iv)
}

/// Codes and numbers of messages.
struct Codes {
    keyed: Hmac<Md5>,
    next: u32,
}

impl Codes {
    fn new(key: &[u8; DIGEST]) -> Self {
        Self {
            keyed: Hmac::new_from_slice(key).expect("HMAC takes keys of any length"),
            next: 0,
        }
    }

    /// The code of the next message.
    fn code(&self, message: &[u8]) -> [u8; CODE] {
        let mut mac = self.keyed.clone();
        mac.update(&self.next.to_be_bytes());
        mac.update(message);
        let whole = mac.finalize().into_bytes();
        let mut code = [0; CODE];
        code.copy_from_slice(&whole[..CODE]);
        code
    }

    fn tail(&self) -> [u8; TAIL] {
        let mut tail = [0; TAIL];
        tail[..VERSION.len()].copy_from_slice(&VERSION);
        tail[VERSION.len()..].copy_from_slice(&self.next.to_be_bytes());
        tail
    }
}

enum SealingCipher {
    TripleDes(Box<Encryptor>),
    Rc4(Box<Rc4>),
}

enum OpeningCipher {
    TripleDes(Box<Decryptor>),
    Rc4(Box<Rc4>),
}

/// Protects the messages of one side.
pub struct Sealer {
    codes: Codes,
    cipher: Option<SealingCipher>,
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sealer({})", self.codes.next)
    }
}

impl Sealer {
    /// Adds `message` to `out` as it goes over the wire. Nothing for an empty one.
    pub fn seal(&mut self, message: &[u8], out: &mut BytesMut) {
        self.seal_parts(&[message], out);
    }

    /// As [`seal`](Self::seal), of `parts` that are one message together.
    pub fn seal_parts(&mut self, parts: &[&[u8]], out: &mut BytesMut) {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        if len == 0 {
            return;
        }
        out.reserve(len + MAX_GROWTH_BYTES);
        let start = out.len();
        for part in parts {
            out.extend_from_slice(part);
        }
        let code = self.codes.code(&out[start..]);
        match &mut self.cipher {
            None => out.extend_from_slice(&code),
            Some(SealingCipher::Rc4(cipher)) => {
                out.extend_from_slice(&code);
                cipher.apply_keystream(&mut out[start..]);
            }
            Some(SealingCipher::TripleDes(cipher)) => {
                let padding = DES_BLOCK - (len + CODE) % DES_BLOCK;
                out.put_bytes(u8::try_from(padding).unwrap_or_default(), padding);
                out.extend_from_slice(&code);
                let (blocks, _none) = Array::<u8, _>::slice_as_chunks_mut(&mut out[start..]);
                let blocks: &mut [Block<Encryptor>] = blocks;
                cipher.encrypt_blocks(blocks);
            }
        }
        out.extend_from_slice(&self.codes.tail());
        self.codes.next = self.codes.next.wrapping_add(1);
    }
}

/// Opens the messages of the other side, in their order.
pub struct Opener {
    codes: Codes,
    cipher: Option<OpeningCipher>,
}

impl std::fmt::Debug for Opener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Opener({})", self.codes.next)
    }
}

impl Opener {
    /// The message that came as `sealed`.
    ///
    /// # Errors
    /// `Message`: it was changed, or comes out of order. Nothing after it can be opened: close the
    /// connection.
    pub fn open(&mut self, mut sealed: BytesMut) -> Result<BytesMut, SaslError> {
        if sealed.is_empty() {
            return Ok(sealed);
        }
        let body = sealed.len().checked_sub(TAIL).ok_or(SaslError::Message)?;
        let tail = sealed.split_off(body);
        if *tail != self.codes.tail() || body < CODE {
            return Err(SaslError::Message);
        }
        let padding = match &mut self.cipher {
            None => 0,
            Some(OpeningCipher::Rc4(cipher)) => {
                cipher.apply_keystream(&mut sealed);
                0
            }
            Some(OpeningCipher::TripleDes(cipher)) => {
                let (blocks, rest) = Array::<u8, _>::slice_as_chunks_mut(&mut sealed[..]);
                if !rest.is_empty() {
                    return Err(SaslError::Message);
                }
                let blocks: &mut [Block<Decryptor>] = blocks;
                cipher.decrypt_blocks(blocks);
                padding_of(&sealed)
            }
        };
        let code = sealed.split_off(body - CODE);
        let len = sealed.len().checked_sub(padding);
        sealed.truncate(len.unwrap_or_default());
        let expected = self.codes.code(&sealed);
        if len.is_none() || !bool::from(expected.ct_eq(&code)) {
            return Err(SaslError::Message);
        }
        self.codes.next = self.codes.next.wrapping_add(1);
        Ok(sealed)
    }
}

/// The length of the padding, which each of its bytes says; one that cannot be counts as none, and
/// the code shows it.
fn padding_of(opened: &[u8]) -> usize {
    let last = opened.len().checked_sub(CODE + 1);
    let said = last
        .and_then(|last| opened.get(last))
        .map_or(0, |byte| usize::from(*byte));
    if said <= DES_BLOCK { said } else { 0 }
}
