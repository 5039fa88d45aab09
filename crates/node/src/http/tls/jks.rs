//! Java's own format of keystores: big-endian numbers, and keys that are hidden by a keystream of
//! SHA-1 over password and salt.

use sha1::{Digest as _, Sha1};

use super::der::{OCTETS, Rest, SEQUENCE};
use super::java_objects::JavaObject;
use super::key_pair::KeyPair;

pub(super) const MAGIC: [u8; 4] = [0xFE, 0xED, 0xFE, 0xED];
pub(super) const JCEKS_MAGIC: [u8; 4] = [0xCE; 4];
const KEY: u32 = 1;
const CERTIFICATE: u32 = 2;
const SECRET: u32 = 3;
/// Certificates of a chain, and entries, at most.
const CHAIN_MAX: u32 = 32;
const ENTRIES_MAX: u32 = 4096;
/// Words that the checksum of the whole has between password and bytes.
const PEPPER: &[u8] = b"Mighty Aphrodite";
const DIGEST: usize = 20;

/// Java's text for passwords.
fn utf16(password: &str) -> Vec<u8> {
    password.encode_utf16().flat_map(u16::to_be_bytes).collect()
}

/// One entry of a keystore; certificates are DER.
pub(super) enum Entry<'a> {
    /// A key, hidden, and its chain.
    Key(&'a [u8], Vec<&'a [u8]>),
    /// A certificate that is trusted.
    Trusted(&'a [u8]),
    /// The alias of a secret, and the secret, sealed. JCEKS alone has it.
    Secret(&'a [u8], JavaObject<'a>),
}

/// The first key of the keystore and its chain.
///
/// # Errors
/// In words: another form, a wrong password, no key.
pub(super) fn read(bytes: &[u8], password: &str, key_password: &str) -> Result<KeyPair, String> {
    let entries = entries(bytes, Some(password))?.into_iter();
    let key = |entry| match entry {
        Entry::Key(hidden, chain) => Some((hidden, chain)),
        Entry::Trusted(_) | Entry::Secret(..) => None,
    };
    let (hidden, chain) = entries.filter_map(key).next().ok_or("it has no key")?;
    Ok(KeyPair {
        key: reveal(hidden, key_password)?,
        chain: chain.into_iter().map(<[u8]>::to_vec).collect(),
    })
}

/// The certificates that are trusted, as Java has it: those of keys, too.
///
/// # Errors
/// In words: another form, a wrong password. Without a password nothing shows damage.
pub(super) fn trusted(bytes: &[u8], password: Option<&str>) -> Result<Vec<Vec<u8>>, String> {
    let entries = entries(bytes, password)?.into_iter();
    let certificate = |entry| match entry {
        Entry::Key(_, chain) => chain.first().copied(),
        Entry::Trusted(certificate) => Some(certificate),
        Entry::Secret(..) => None,
    };
    Ok(entries
        .filter_map(certificate)
        .map(<[u8]>::to_vec)
        .collect())
}

/// What a keystore has, of this format or of JCEKS, which differs in the kinds of entries alone.
///
/// # Errors
/// In words: another form, a wrong password. Without a password nothing shows damage.
pub(super) fn entries<'a>(
    bytes: &'a [u8],
    password: Option<&str>,
) -> Result<Vec<Entry<'a>>, String> {
    let body = checked(bytes, password)?;
    let mut rest = Rest(body);
    rest.take(MAGIC.len())?;
    let version = rest.number()?;
    if !(1..=2).contains(&version) {
        return Err(format!("it has version {version}"));
    }
    let certificate = |rest: &mut Rest<'a>| {
        if version == 2 {
            rest.text()?;
        }
        rest.bytes()
    };
    let count = rest.number()?;
    if count > ENTRIES_MAX {
        return Err(format!("it has {count} entries"));
    }
    let mut all = Vec::new();
    for _ in 0..count {
        let kind = rest.number()?;
        let alias = rest.text()?;
        let _made = rest.take(8)?;
        match kind {
            CERTIFICATE => all.push(Entry::Trusted(certificate(&mut rest)?)),
            KEY => {
                let hidden = rest.bytes()?;
                let chain = rest.number()?;
                if chain > CHAIN_MAX {
                    return Err(format!("a key has {chain} certificates"));
                }
                let chain: Result<Vec<_>, String> =
                    (0..chain).map(|_| certificate(&mut rest)).collect();
                all.push(Entry::Key(hidden, chain?));
            }
            SECRET if body.starts_with(&JCEKS_MAGIC) => {
                all.push(Entry::Secret(alias, JavaObject::read(&mut rest)?));
            }
            other => return Err(format!("it has an entry of kind {other}")),
        }
    }
    Ok(all)
}

/// The keystore without its checksum, which shows that the password is right.
fn checked<'a>(bytes: &'a [u8], password: Option<&str>) -> Result<&'a [u8], String> {
    let split = bytes.len().checked_sub(DIGEST).ok_or("it ends early")?;
    let (body, sum) = bytes.split_at(split);
    let Some(password) = password else {
        return Ok(body);
    };
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
