//! Protection of data transfer that the files ask for, and this version has not.

use super::configuration::Configuration;
use super::keys;

/// Resolvers that Apache's node uses when none is set: they say what the other keys say.
const PLAIN_RESOLVERS: [&str; 2] = [
    "org.apache.hadoop.hdfs.protocol.datatransfer.TrustedChannelResolver",
    "org.apache.hadoop.security.SaslPropertiesResolver",
];

/// Keys that name a resolver.
const RESOLVERS: [&str; 3] = [
    keys::TRUSTED_CHANNELS.name(),
    keys::TRANSFER_PROPERTIES.name(),
    "hadoop.security.saslproperties.resolver.class",
];

/// Qualities of SASL.
const QUALITIES: [&str; 3] = ["authentication", "integrity", "privacy"];

impl Configuration {
    /// The values of `dfs.data.transfer.protection`, the most wanted first.
    #[must_use]
    pub fn transfer_qualities(&self) -> Vec<String> {
        let value = self.get(&keys::DATA_TRANSFER_PROTECTION);
        let value = value.unwrap_or_default();
        let names = value.split(',').map(str::trim);
        let names = names.filter(|name| !name.is_empty());
        names.map(str::to_ascii_lowercase).collect()
    }

    /// The key whose protection of data transfer is not served, and what it asks for.
    pub(super) fn unserved_transfer_protection(&self) -> Option<(&'static str, &'static str)> {
        let qualities = self.transfer_qualities();
        let served = |name: &String| QUALITIES.contains(&name.as_str());
        if !qualities.iter().all(served) {
            let what = "a protection other than authentication, integrity and privacy";
            return Some((keys::DATA_TRANSFER_PROTECTION.name(), what));
        }
        let proves = self.has_kerberos() || self.get(&keys::ENCRYPT_DATA_TRANSFER);
        if !qualities.is_empty() && !proves {
            let what = "a protection that needs Kerberos, without which all goes in clear";
            return Some((keys::DATA_TRANSFER_PROTECTION.name(), what));
        }
        let algorithm = self.get(&keys::ENCRYPT_ALGORITHM);
        if algorithm.is_some_and(|name| !["3des", "rc4"].contains(&name.as_str())) {
            return Some((
                keys::ENCRYPT_ALGORITHM.name(),
                "a cipher other than 3des and rc4",
            ));
        }
        let suite = self.get(&keys::ENCRYPT_CIPHER_SUITES);
        if suite.is_some_and(|name| name != "AES/CTR/NoPadding") {
            return Some((
                keys::ENCRYPT_CIPHER_SUITES.name(),
                "a cipher other than AES/CTR/NoPadding",
            ));
        }
        if ![128, 192, 256].contains(&self.get(&keys::ENCRYPT_KEY_BITS)) {
            return Some((
                keys::ENCRYPT_KEY_BITS.name(),
                "keys of AES that have not 128, 192 or 256 bits",
            ));
        }
        let set = |name: &str| self.text(name).filter(|value| !value.is_empty());
        let other = |name: &&&str| {
            set(name).is_some_and(|class| !PLAIN_RESOLVERS.contains(&class.as_str()))
        };
        if let Some(key) = RESOLVERS.iter().find(other) {
            return Some((key, "a class that decides who is trusted without proof"));
        }
        let mechanism = "hadoop.security.sasl.mechanism";
        if set(mechanism).is_some_and(|name| name != "DIGEST-MD5") {
            return Some((mechanism, "a mechanism of SASL other than DIGEST-MD5"));
        }
        self.get(&keys::DOWNSTREAM_QUALITY).then_some((
            keys::DOWNSTREAM_QUALITY.name(),
            "another protection for the rest of a pipeline",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(properties: &[(&str, &str)]) -> Option<String> {
        let config = Configuration::from_properties(properties.iter().copied()).expect("valid");
        config.refuse_unprotected().err().map(|why| why.to_string())
    }

    #[test]
    fn what_is_served_starts_and_all_else_is_named() {
        for (key, value) in [
            ("dfs.encrypt.data.transfer", "true"),
            ("dfs.encrypt.data.transfer.algorithm", "rc4"),
            (
                "dfs.encrypt.data.transfer.cipher.suites",
                "AES/CTR/NoPadding",
            ),
            ("dfs.encrypt.data.transfer.cipher.key.bitlength", "256"),
            ("dfs.trustedchannel.resolver.class", PLAIN_RESOLVERS[0]),
            (
                "dfs.data.transfer.saslproperties.resolver.class",
                PLAIN_RESOLVERS[1],
            ),
        ] {
            assert_eq!(refused(&[(key, value)]), None);
        }
        let protection = ("dfs.data.transfer.protection", "Privacy, integrity");
        let kerberos = ("hadoop.security.authentication", "kerberos");
        assert_eq!(refused(&[protection, kerberos]), None);
        let in_clear = refused(&[protection]).unwrap_or_default();
        assert!(in_clear.contains("in clear"), "{in_clear}");
        for (key, value) in [
            ("dfs.data.transfer.protection", "privacy,secret"),
            ("dfs.encrypt.data.transfer.algorithm", "des"),
            (
                "dfs.encrypt.data.transfer.cipher.suites",
                "SM4/CTR/NoPadding",
            ),
            ("dfs.encrypt.data.transfer.cipher.key.bitlength", "64"),
            ("dfs.trustedchannel.resolver.class", "Whitelist"),
            (
                "dfs.data.transfer.saslproperties.resolver.class",
                "Whitelist",
            ),
            ("hadoop.security.sasl.mechanism", "SCRAM-SHA-256"),
            ("dfs.encrypt.data.overwrite.downstream.derived.qop", "true"),
        ] {
            let why = refused(&[(key, value)]).unwrap_or_default();
            assert!(why.contains(key) && why.contains(value), "{key}: {why}");
        }
    }
}
