//! The format of keystores in which Hadoop's credential providers keep passwords (JCEKS): secret
//! keys are Java objects, sealed with triple DES and a key made of the store's password.

use des::TdesEde3;
use des::cipher::{BlockCipherDecrypt as _, KeyInit as _};
use md5::{Digest as _, Md5};
use zeroize::Zeroizing;

use super::der::{INTEGER, OCTETS, Rest, SEQUENCE};
use super::java_objects::JavaObject;
use super::jks::{self, Entry};

/// The one way in which Java seals secrets there.
const SEAL: &[u8] = b"PBEWithMD5AndTripleDES";
const SEALED: &str = "com.sun.crypto.provider.SealedObjectForKeyProtector";
/// Rounds that the making of a key may take: Java takes 200,000, and allows 5,000,000.
const ROUNDS_MAX: u32 = 5_000_000;
const BLOCK: usize = 8;

/// The secret with that alias, if there is one.
///
/// # Errors
/// In words: another form, a wrong password.
pub(super) fn secret(
    bytes: &[u8],
    password: &str,
    alias: &str,
) -> Result<Option<Zeroizing<String>>, String> {
    if !bytes.starts_with(&jks::JCEKS_MAGIC) {
        return Err("it is no JCEKS keystore".to_owned());
    }
    // Java writes aliases in lower case.
    let alias = alias.to_lowercase();
    let mut entries = jks::entries(bytes, Some(password))?.into_iter();
    let sealed = |entry| match entry {
        Entry::Secret(name, sealed) => (name == alias.as_bytes()).then_some(sealed),
        Entry::Key(..) | Entry::Trusted(_) => None,
    };
    let found = entries.find_map(sealed);
    found.map(|sealed| unsealed(&sealed, password)).transpose()
}

fn unsealed(sealed: &JavaObject<'_>, password: &str) -> Result<Zeroizing<String>, String> {
    if !sealed.is_a(SEALED) || sealed.field("sealAlg")? != SEAL {
        return Err("a secret is sealed in another way than Java's".to_owned());
    }
    let mut parameters = Rest(Rest(sealed.field("encodedParams")?).value(SEQUENCE)?);
    let salt: [u8; BLOCK] = parameters
        .value(OCTETS)?
        .try_into()
        .map_err(|_| "a salt has another length than 8")?;
    let rounds = parameters.value(INTEGER)?;
    let rounds = rounds
        .iter()
        .fold(0u32, |sum, byte| sum.saturating_mul(256) | u32::from(*byte));
    if rounds > ROUNDS_MAX || !parameters.0.is_empty() {
        return Err(format!("a secret takes {rounds} rounds"));
    }
    let content = opened(sealed.field("encryptedContent")?, password, salt, rounds)?;
    let key = JavaObject::read(&mut Rest(&content))?;
    if !key.is_a("javax.crypto.spec.SecretKeySpec") {
        return Err("a secret is no SecretKeySpec".to_owned());
    }
    let text = String::from_utf8(key.field("key")?.to_vec());
    text.map(Zeroizing::new)
        .map_err(|_| "a secret is no text".to_owned())
}

/// Decrypts, and takes the filling away.
fn opened(
    sealed: &[u8],
    password: &str,
    salt: [u8; BLOCK],
    rounds: u32,
) -> Result<Zeroizing<Vec<u8>>, String> {
    let damaged = || "a secret is damaged".to_owned();
    let made = key_and_iv(password, salt, rounds);
    let (key, iv) = made.split_at(3 * BLOCK);
    let cipher = TdesEde3::new_from_slice(key).map_err(|_| damaged())?;
    let mut before: [u8; BLOCK] = iv.try_into().map_err(|_| damaged())?;
    let mut plain = Zeroizing::new(Vec::with_capacity(sealed.len()));
    let (blocks, rest) = sealed.as_chunks::<BLOCK>();
    for sealed in blocks {
        let mut block = *sealed;
        cipher.decrypt_block((&mut block).into());
        plain.extend(block.iter().zip(before).map(|(byte, before)| byte ^ before));
        before = *sealed;
    }
    let filling = usize::from(plain.last().copied().ok_or_else(damaged)?);
    let length = plain.len().checked_sub(filling).ok_or_else(damaged)?;
    let well = (1..=BLOCK).contains(&filling)
        && plain
            .iter()
            .skip(length)
            .all(|byte| usize::from(*byte) == filling);
    if !rest.is_empty() || !well {
        return Err(damaged());
    }
    plain.truncate(length);
    Ok(plain)
}

/// Key and initial vector for a password: MD5 over and over, for each half of the salt. Where the
/// halves are the same, Java does another thing: once in four billion secrets.
fn key_and_iv(password: &str, salt: [u8; BLOCK], rounds: u32) -> Zeroizing<[u8; 4 * BLOCK]> {
    let (first, second) = salt.split_at(BLOCK / 2);
    let mut made = Zeroizing::new([0; 4 * BLOCK]);
    let halves = made.chunks_mut(2 * BLOCK).zip([first, second]);
    for (half, salt) in halves {
        let mut hash = salt.to_vec();
        for _ in 0..rounds {
            let mut digest = Md5::new();
            digest.update(&hash);
            digest.update(password.as_bytes());
            hash = digest.finalize().to_vec();
        }
        for (to, from) in half.iter_mut().zip(&hash) {
            *to = *from;
        }
    }
    made
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// By `hadoop credential create ... -provider localjceks://file/...`, twice, without a
    /// password.
    const STORE: &[u8] = include_bytes!("jceks_of_hadoop.jceks");
    const PASSWORD: &str = "none";

    #[test]
    fn what_hadoop_wrote_is_read() {
        let of = |alias: &str| secret(STORE, PASSWORD, alias).expect("readable");
        let first = of("ssl.server.keystore.password").expect("there");
        assert_eq!(first.as_str(), "Changeit-ü");
        let second = of("SSL.server.keystore.keypassword").expect("there");
        assert_eq!(second.as_str(), "other");
        assert_eq!(of("ssl.server.truststore.password"), None);
    }

    #[test]
    fn a_wrong_password_is_told() {
        let refused = secret(STORE, "nine", "ssl.server.keystore.password");
        assert!(refused.unwrap_err().contains("the password is wrong"));
        let jks = [&[0xFE, 0xED, 0xFE, 0xED], &STORE[4..]].concat();
        assert!(secret(&jks, PASSWORD, "x").is_err());
    }

    /// The first object of the store, after the heads of the store and of its first entry.
    fn object(store: &[u8]) -> Result<JavaObject<'_>, String> {
        let mut rest = Rest(store);
        rest.take(54)?;
        JavaObject::read(&mut rest)
    }

    proptest! {
        #[test]
        fn damaged_objects_are_read_or_refused(
            at in 54usize..500,
            byte: u8,
            cut in 54usize..500,
        ) {
            let mut store = STORE.to_vec();
            store[at] = byte;
            let _ = object(&store);
            let _ = object(&STORE[..cut]);
        }
    }

    #[test]
    fn damaged_secrets_are_refused() {
        for at in [0x11C, 0x137, 0x1C4] {
            let mut store = STORE.to_vec();
            store[at] ^= 1;
            let sealed = object(&store).expect("an object");
            assert!(unsealed(&sealed, PASSWORD).is_err(), "{at}");
        }
        let sealed = object(STORE).expect("an object");
        assert!(unsealed(&sealed, "nine").is_err());
    }
}
