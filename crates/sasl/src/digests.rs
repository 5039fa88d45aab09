//! What both sides compute from the password.

use md5_of_hmac::{Digest as _, Md5};
use zeroize::{Zeroize as _, Zeroizing};

use super::layer::{DIGEST, Direction};
use super::quality::{LayerCipher, SaslQuality};

const CLIENT_SIGNS: &[u8] = b"Digest session key to client-to-server signing key magic constant";
const SERVER_SIGNS: &[u8] = b"Digest session key to server-to-client signing key magic constant";
const CLIENT_SEALS: &[u8] = b"Digest H(A1) to client-to-server sealing key magic constant";
const SERVER_SEALS: &[u8] = b"Digest H(A1) to server-to-client sealing key magic constant";

/// Behind the address where messages have codes.
const NO_BODY: &str = ":00000000000000000000000000000000";

/// MD5 of `parts`, one behind the other.
pub(crate) fn md5(parts: &[&[u8]]) -> [u8; DIGEST] {
    let mut hash = Md5::new();
    for part in parts {
        hash.update(part);
    }
    hash.finalize().into()
}

/// `bytes` in small hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut out = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _never = write!(out, "{byte:02x}");
    }
    out
}

/// What a proof is made of, besides the password.
pub(crate) struct Session<'a> {
    pub user: &'a str,
    pub realm: &'a str,
    pub nonce: &'a str,
    pub client_nonce: &'a str,
    pub address: &'a str,
    /// Whom the client acts as, where it says so: Hadoop's clients say that it is themselves.
    pub act_as: Option<&'a str>,
    pub quality: SaslQuality,
}

impl Session<'_> {
    /// The keys of this session (`algorithm=md5-sess`).
    pub(crate) fn keys(&self, password: &[u8]) -> SessionKeys {
        let mut secret = md5(&[
            self.user.as_bytes(),
            b":",
            self.realm.as_bytes(),
            b":",
            password,
        ]);
        let keys = md5(&[
            &secret,
            b":",
            self.nonce.as_bytes(),
            b":",
            self.client_nonce.as_bytes(),
            if self.act_as.is_some() { b":" } else { b"" },
            self.act_as.unwrap_or_default().as_bytes(),
        ]);
        secret.zeroize();
        SessionKeys(Zeroizing::new(keys))
    }

    /// What the client proves with.
    pub(crate) fn client_proof(&self, keys: &SessionKeys) -> String {
        self.proof(keys, "AUTHENTICATE:")
    }

    /// What the server proves with.
    pub(crate) fn server_proof(&self, keys: &SessionKeys) -> String {
        self.proof(keys, ":")
    }

    fn proof(&self, keys: &SessionKeys, method: &str) -> String {
        let no_body = match self.quality {
            SaslQuality::Authentication => "",
            SaslQuality::Integrity | SaslQuality::Privacy => NO_BODY,
        };
        let request = md5(&[
            method.as_bytes(),
            self.address.as_bytes(),
            no_body.as_bytes(),
        ]);
        let known = Zeroizing::new(hex(&*keys.0));
        let proof = md5(&[
            known.as_bytes(),
            b":",
            self.nonce.as_bytes(),
            b":00000001:",
            self.client_nonce.as_bytes(),
            b":",
            self.quality.name().as_bytes(),
            b":",
            hex(&request).as_bytes(),
        ]);
        hex(&proof)
    }
}

/// The secret of one connection, wiped when it is dropped.
pub(crate) struct SessionKeys(Zeroizing<[u8; DIGEST]>);

impl SessionKeys {
    pub(crate) fn client_to_server(&self, cipher: Option<LayerCipher>) -> Direction {
        self.direction(CLIENT_SIGNS, CLIENT_SEALS, cipher)
    }

    pub(crate) fn server_to_client(&self, cipher: Option<LayerCipher>) -> Direction {
        self.direction(SERVER_SIGNS, SERVER_SEALS, cipher)
    }

    fn direction(&self, signs: &[u8], seals: &[u8], cipher: Option<LayerCipher>) -> Direction {
        Direction {
            signs: Zeroizing::new(md5(&[&*self.0, signs])),
            seals: cipher.map(|cipher| (cipher, Zeroizing::new(md5(&[&*self.0, seals])))),
        }
    }
}
