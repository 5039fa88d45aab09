//! A private key with its certificates.

/// A key and who vouches for it.
pub(super) struct KeyPair {
    /// PKCS#8, DER.
    pub(super) key: Vec<u8>,
    /// The certificate of the key first, each as DER.
    pub(super) chain: Vec<Vec<u8>>,
}
