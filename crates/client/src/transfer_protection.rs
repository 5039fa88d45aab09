//! What protects connections to and from data transfer ports, by the configuration.
//!
//! Apache's rules: with `dfs.encrypt.data.transfer` all are encrypted. Else, with Kerberos, those
//! of ports that any user could have opened have what `dfs.data.transfer.protection` says. What a
//! peer does on a privileged port, root of its host answers for.

use std::sync::Arc;

use hayloft_conf::{Configuration, keys};
use hayloft_sasl::{DigestOffer, KeyLength, LayerCipher, SaslQuality};

/// Ports below it are for root alone to open.
const PRIVILEGED_BELOW: u32 = 1024;

/// First half of the address that both sides of a handshake name.
const PROTOCOL: &str = "hdfs";
/// Second half of it, and the realm.
const HOST: &str = "0";

/// How a client proves who it is on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferProof {
    /// Not at all: requests go in clear.
    None,
    /// By the block token of its request.
    BlockToken,
    /// By a key of encrypted data transfer.
    EncryptionKey,
}

/// The values of the keys of protection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransferProtection {
    encrypt: bool,
    /// There is Kerberos, and a protection is asked for.
    proves: bool,
    /// The most wanted first. A name of none is none: then nothing can be agreed on.
    qualities: Arc<[SaslQuality]>,
    /// What this side wants as a client.
    ciphers: Arc<[LayerCipher]>,
    /// AES, if it is wanted.
    counter: Option<KeyLength>,
    /// Of this node's data transfer.
    own_port: u32,
}

impl TransferProtection {
    /// The values of `config`. One that the start refuses leaves nothing to agree on, so that
    /// nothing goes out in clear that should not.
    #[must_use]
    pub fn from_config(config: &Configuration) -> Self {
        let names = config.transfer_qualities();
        let quality = |name: &String| match name.as_str() {
            "authentication" => Some(SaslQuality::Authentication),
            "integrity" => Some(SaslQuality::Integrity),
            "privacy" => Some(SaslQuality::Privacy),
            _ => None,
        };
        let encrypt = config.get(&keys::ENCRYPT_DATA_TRANSFER);
        let algorithm = config.get(&keys::ENCRYPT_ALGORITHM).filter(|_| encrypt);
        let ciphers = match algorithm {
            Some(name) => LayerCipher::by_name(&name).into_iter().collect(),
            None => LayerCipher::ALL.to_vec(),
        };
        let suite = config.get(&keys::ENCRYPT_CIPHER_SUITES);
        let length = KeyLength::of_bits(config.get(&keys::ENCRYPT_KEY_BITS));
        Self {
            encrypt,
            proves: config.has_kerberos() && !names.is_empty(),
            qualities: names.iter().filter_map(quality).collect(),
            ciphers: ciphers.into(),
            counter: suite.and(length),
            own_port: u32::from(config.get(&keys::DATANODE_ADDRESS).port),
        }
    }

    /// What clients of this node's port have to prove.
    #[must_use]
    pub fn of_own_port(&self) -> TransferProof {
        // Port 0 is any that is free, and so above.
        match self.own_port {
            0 => self.towards(PRIVILEGED_BELOW),
            port => self.towards(port),
        }
    }

    /// What a client proves to the node at this port.
    #[must_use]
    pub fn towards(&self, port: u32) -> TransferProof {
        if self.encrypt {
            TransferProof::EncryptionKey
        } else if !self.proves || port < PRIVILEGED_BELOW {
            TransferProof::None
        } else {
            TransferProof::BlockToken
        }
    }

    /// What this side accepts with such a proof.
    #[must_use]
    pub fn qualities(&self, proof: TransferProof) -> &[SaslQuality] {
        match proof {
            TransferProof::None => &[],
            TransferProof::BlockToken => &self.qualities,
            TransferProof::EncryptionKey => &[SaslQuality::Privacy],
        }
    }

    /// What a node offers to its clients, which choose the cipher: the one that the configuration
    /// names, and none that is weaker. The choice is no part of the proof, so who alters the
    /// network could have both sides agree on any that is on offer. Apache's node offers all.
    #[must_use]
    pub fn offer<'a>(&'a self, qualities: &'a [SaslQuality]) -> DigestOffer<'a> {
        DigestOffer {
            protocol: PROTOCOL,
            host: HOST,
            qualities,
            ciphers: match *self.ciphers {
                [LayerCipher::Rc4] => &LayerCipher::ALL,
                _ => &self.ciphers,
            },
        }
    }

    /// What this side wants as a client.
    pub(super) fn wish<'a>(&'a self, qualities: &'a [SaslQuality]) -> DigestOffer<'a> {
        DigestOffer {
            ciphers: &self.ciphers,
            ..self.offer(qualities)
        }
    }

    /// The length of keys of AES, if it is wanted.
    #[must_use]
    pub fn counter(&self) -> Option<KeyLength> {
        self.counter
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KERBEROS: (&str, &str) = ("hadoop.security.authentication", "kerberos");

    fn with(properties: &[(&str, &str)]) -> TransferProtection {
        let config = Configuration::from_properties(properties.iter().copied());
        TransferProtection::from_config(&config.expect("valid"))
    }

    #[test]
    fn what_is_proved_goes_by_keys_and_ports() {
        use TransferProof::{BlockToken, EncryptionKey, None};
        let quality = ("dfs.data.transfer.protection", "privacy,integrity");
        let encrypt = ("dfs.encrypt.data.transfer", "true");
        let low = ("dfs.datanode.address", "0.0.0.0:1004");
        for (properties, own, low, high) in [
            (&[][..], None, None, None),
            (&[quality], None, None, None),
            (&[KERBEROS, quality], BlockToken, None, BlockToken),
            (&[KERBEROS, quality, low], None, None, BlockToken),
            (&[KERBEROS], None, None, None),
            (&[encrypt], EncryptionKey, EncryptionKey, EncryptionKey),
            (
                &[KERBEROS, quality, encrypt, low],
                EncryptionKey,
                EncryptionKey,
                EncryptionKey,
            ),
        ] {
            let protection = with(properties);
            let found = (
                protection.of_own_port(),
                protection.towards(1004),
                protection.towards(9866),
            );
            assert_eq!(found, (own, low, high), "{properties:?}");
        }
        let unknown = with(&[KERBEROS, ("dfs.data.transfer.protection", "secrecy")]);
        assert_eq!(unknown.towards(9866), BlockToken, "nothing goes in clear");
        assert_eq!(unknown.qualities(BlockToken), []);
        let protection = with(&[KERBEROS, quality]);
        let wanted = [SaslQuality::Privacy, SaslQuality::Integrity];
        assert_eq!(protection.qualities(BlockToken), wanted);
        assert_eq!(protection.qualities(EncryptionKey), [SaslQuality::Privacy]);
    }

    #[test]
    fn ciphers_are_as_the_keys_say() {
        let algorithm = ("dfs.encrypt.data.transfer.algorithm", "rc4");
        let encrypt = ("dfs.encrypt.data.transfer", "true");
        let suite = (
            "dfs.encrypt.data.transfer.cipher.suites",
            "AES/CTR/NoPadding",
        );
        let stronger = ("dfs.encrypt.data.transfer.algorithm", "3des");
        let unknown = ("dfs.encrypt.data.transfer.algorithm", "des");
        let all = &LayerCipher::ALL[..];
        for (properties, wished, offered) in [
            (&[][..], all, all),
            // As with Apache's, the key counts with encryption alone.
            (&[stronger], all, all),
            (&[encrypt], all, all),
            // No client loses by a stronger one.
            (&[encrypt, algorithm], &[LayerCipher::Rc4], all),
            (
                &[encrypt, stronger],
                &[LayerCipher::TripleDes],
                &[LayerCipher::TripleDes],
            ),
            (&[encrypt, unknown], &[], &[]),
        ] {
            let protection = with(properties);
            assert_eq!(protection.wish(&[]).ciphers, wished, "{properties:?}");
            assert_eq!(protection.offer(&[]).ciphers, offered, "{properties:?}");
        }
        assert_eq!(with(&[]).counter(), None);
        assert_eq!(with(&[suite]).counter(), Some(KeyLength::Bits128));
    }
}
