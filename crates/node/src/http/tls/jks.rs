//! Java's own format of keystores: big-endian numbers, and keys that are hidden by a keystream of
//! SHA-1 over password and salt.

use sha1::{Digest as _, Sha1};

use super::keystore::KeyPair;

pub(super) const MAGIC: [u8; 4] = [0xFE, 0xED, 0xFE, 0xED];
const KEY: u32 = 1;
const CERTIFICATE: u32 = 2;
/// Certificates of a chain, and entries, at most.
const CHAIN_MAX: u32 = 32;
const ENTRIES_MAX: u32 = 4096;
/// Words that the checksum of the whole has between password and bytes.
const PEPPER: &[u8] = b"Mighty Aphrodite";
const DIGEST: usize = 20;
const SEQUENCE: u8 = 0x30;
const OCTETS: u8 = 0x04;

/// Bytes that are not read yet.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or("it ends early")?;
        self.0 = rest;
        Ok(taken)
    }

    fn number(&mut self) -> Result<u32, String> {
        let bytes = self.take(4)?.try_into().expect("four bytes");
        Ok(u32::from_be_bytes(bytes))
    }

    /// Bytes behind their length.
    fn bytes(&mut self) -> Result<&'a [u8], String> {
        let len = self.number()?;
        self.take(usize::try_from(len).unwrap_or(usize::MAX))
    }

    /// Text behind its length.
    fn text(&mut self) -> Result<&'a [u8], String> {
        let len = self.take(2)?.try_into().expect("two bytes");
        self.take(u16::from_be_bytes(len).into())
    }

    /// The content of the next value, which must be of this kind (DER).
    fn value(&mut self, kind: u8) -> Result<&'a [u8], String> {
        let head = self.take(2)?;
        if head[0] != kind {
            return Err("a key has another form".into());
        }
        let len = match head[1] {
            short @ 0..=0x7F => usize::from(short),
            long @ 0x81..=0x83 => {
                let bytes = self.take(usize::from(long & 0x7F))?;
                bytes.iter().fold(0, |sum, b| sum << 8 | usize::from(*b))
            }
            _ => return Err("a key has a length that cannot be".into()),
        };
        self.take(len)
    }
}

/// Java's text for passwords.
fn utf16(password: &str) -> Vec<u8> {
    password.encode_utf16().flat_map(u16::to_be_bytes).collect()
}

/// The first key of the keystore and its chain.
///
/// # Errors
/// In words: another form, a wrong password, no key.
pub(super) fn read(bytes: &[u8], password: &str, key_password: &str) -> Result<KeyPair, String> {
    let body = checked(bytes, password)?;
    let mut rest = Rest(body);
    rest.take(MAGIC.len())?;
    let version = rest.number()?;
    if !(1..=2).contains(&version) {
        return Err(format!("it has version {version}"));
    }
    let certificate = |rest: &mut Rest<'_>| {
        if version == 2 {
            rest.text()?;
        }
        rest.bytes().map(<[u8]>::to_vec)
    };
    for _ in 0..rest.number()?.min(ENTRIES_MAX) {
        let kind = rest.number()?;
        let _alias = rest.text()?;
        let _made = rest.take(8)?;
        match kind {
            CERTIFICATE => drop(certificate(&mut rest)?),
            KEY => {
                let hidden = rest.bytes()?;
                let chain = rest.number()?;
                if chain > CHAIN_MAX {
                    return Err(format!("a key has {chain} certificates"));
                }
                let chain: Result<Vec<_>, String> =
                    (0..chain).map(|_| certificate(&mut rest)).collect();
                return Ok(KeyPair {
                    key: reveal(hidden, key_password)?,
                    chain: chain?,
                });
            }
            other => return Err(format!("it has an entry of kind {other}")),
        }
    }
    Err("it has no key".into())
}

/// The keystore without its checksum, which shows that the password is right.
fn checked<'a>(bytes: &'a [u8], password: &str) -> Result<&'a [u8], String> {
    let split = bytes.len().checked_sub(DIGEST).ok_or("it ends early")?;
    let (body, sum) = bytes.split_at(split);
    let mut digest = Sha1::new();
    digest.update(utf16(password));
    digest.update(PEPPER);
    digest.update(body);
    if digest.finalize()[..] != *sum {
        return Err("the password is wrong, or the file is damaged".into());
    }
    Ok(body)
}

/// A key (PKCS#8) out of its hiding.
fn reveal(hidden: &[u8], password: &str) -> Result<Vec<u8>, String> {
    let mut outer = Rest(Rest(hidden).value(SEQUENCE)?);
    let _how = outer.value(SEQUENCE)?;
    let mut inner = Rest(outer.value(OCTETS)?);
    let salt = inner.take(DIGEST)?;
    let len = inner
        .0
        .len()
        .checked_sub(DIGEST)
        .ok_or("a key is too short")?;
    let (covered, sum) = (inner.take(len)?, inner.0);
    let password = utf16(password);
    let mut stream = salt.to_vec();
    let mut key = Vec::with_capacity(len);
    for part in covered.chunks(DIGEST) {
        let mut digest = Sha1::new();
        digest.update(&password);
        digest.update(&stream);
        stream = digest.finalize().to_vec();
        key.extend(part.iter().zip(&stream).map(|(a, b)| a ^ b));
    }
    let mut digest = Sha1::new();
    digest.update(&password);
    digest.update(&key);
    if digest.finalize()[..] != *sum {
        return Err("the password of the key (ssl.server.keystore.keypassword) is wrong".into());
    }
    Ok(key)
}
