//! The node's key and certificates, from a keystore of Java's.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use p12_keystore::{KeyStore, Pkcs12ImportPolicy};

use super::jks;

/// Bytes of a keystore, at most.
const BYTES_MAX: u64 = 1 << 20;

/// A key and who vouches for it.
pub(super) struct KeyPair {
    /// PKCS#8, DER.
    pub(super) key: Vec<u8>,
    /// The certificate of the key first, each as DER.
    pub(super) chain: Vec<Vec<u8>>,
}

/// Reads the first key of a keystore, whichever of Java's two formats it has.
///
/// # Errors
/// In words for the operator.
pub(super) fn read(path: &Path, password: &str, key_password: &str) -> Result<KeyPair, String> {
    let file = File::open(path).map_err(|e| e.to_string())?;
    let mut bytes = Vec::new();
    let read = file.take(BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|e| e.to_string())?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(format!("it has more than {BYTES_MAX} bytes"));
    }
    if bytes.starts_with(&jks::MAGIC) {
        return jks::read(&bytes, password, key_password);
    }
    let store = KeyStore::from_pkcs12(&bytes, password, Pkcs12ImportPolicy::Relaxed);
    let store = store
        .map_err(|e| format!("it is neither JKS nor a PKCS12 that the password opens ({e})"))?;
    let (_, pair) = store.private_key_chain().ok_or("it has no key")?;
    Ok(KeyPair {
        key: pair.key().as_der().to_vec(),
        chain: pair.certs().iter().map(|c| c.as_der().to_vec()).collect(),
    })
}
