//! What keystores of Java's hold: the node's key and its certificates, or those that are trusted.

use std::path::Path;

use p12_keystore::{KeyStore, KeyStoreEntry, Pkcs12ImportPolicy};

use super::key_pair::KeyPair;
use super::{ec_keys, jks};
use crate::http::secret_file;

/// Reads the first key of a keystore, whichever of Java's two formats it has.
///
/// # Errors
/// In words for the operator.
pub(super) fn read(path: &Path, password: &str, key_password: &str) -> Result<KeyPair, String> {
    let bytes = secret_file::read(path).map_err(|e| e.to_string())?;
    let mut pair = if bytes.starts_with(&jks::MAGIC) {
        jks::read(&bytes, password, key_password)?
    } else {
        let store = pkcs12(&bytes, password)?;
        let (_, pair) = store.private_key_chain().ok_or("it has no key")?;
        KeyPair {
            key: pair.key().as_der().to_vec(),
            chain: pair.certs().iter().map(|c| c.as_der().to_vec()).collect(),
        }
    };
    let of = pair.chain.first();
    if let Some(completed) = of.and_then(|of| ec_keys::completed(&pair.key, of)) {
        pair.key = completed;
    }
    Ok(pair)
}

/// Reads the certificates that a truststore trusts, each as DER: those of its keys, too.
///
/// # Errors
/// In words for the operator.
pub(super) fn trusted(path: &Path, password: Option<&str>) -> Result<Vec<Vec<u8>>, String> {
    let bytes = secret_file::read(path).map_err(|e| e.to_string())?;
    if bytes.starts_with(&jks::MAGIC) {
        return jks::trusted(&bytes, password);
    }
    let store = pkcs12(&bytes, password.unwrap_or_default())?;
    let certificate = |entry: &KeyStoreEntry| match entry {
        KeyStoreEntry::Certificate(certificate) => Some(certificate.as_der().to_vec()),
        KeyStoreEntry::PrivateKeyChain(pair) => pair.certs().first().map(|c| c.as_der().to_vec()),
        KeyStoreEntry::Secret(_) => None,
    };
    let entries = store.entries();
    Ok(entries
        .filter_map(|(_, entry)| certificate(entry))
        .collect())
}

fn pkcs12(bytes: &[u8], password: &str) -> Result<KeyStore, String> {
    let store = KeyStore::from_pkcs12(bytes, password, Pkcs12ImportPolicy::Relaxed);
    store.map_err(|e| format!("it is neither JKS nor a PKCS12 that the password opens ({e})"))
}
