//! Protection of data transfer that the files ask for, and this version has not.

use super::configuration::Configuration;
use super::kerberos::PRIVILEGED_BELOW;
use super::key::Key;
use super::keys;

/// Trusts no one without proof: the default.
const TRUSTS_NONE: &str = "org.apache.hadoop.hdfs.protocol.datatransfer.TrustedChannelResolver";

/// Says what the keys of protection say, for every peer: the default.
const SAME_FOR_ALL: &str = "org.apache.hadoop.security.SaslPropertiesResolver";

/// Gives some ports of NameNodes a protection of their own. For the data port, and as a client, it
/// says what the default says.
const BY_PORT: &str = "org.apache.hadoop.security.IngressPortBasedResolver";

/// What a key asks for and this version does not do.
pub(super) struct Unserved {
    /// The key.
    pub(super) key: &'static str,
    /// What it asks for.
    pub(super) what: &'static str,
    /// What to do.
    pub(super) instead: &'static str,
}

impl Unserved {
    /// Protection that Apache's node has.
    pub(super) fn of(key: &'static str, what: &'static str) -> Self {
        let instead = "use Apache's DataNode on this host until it does";
        Self { key, what, instead }
    }
}

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

    /// Whether the number of the data port takes away what `dfs.data.transfer.protection` asks for.
    /// As Apache's, both sides trust what root of a host opened, and speak in clear there.
    #[must_use]
    pub fn port_has_no_protection(&self) -> bool {
        let low = (1..PRIVILEGED_BELOW).contains(&self.get(&keys::DATANODE_ADDRESS).port);
        let asked = self.has_kerberos() && !self.transfer_qualities().is_empty();
        low && asked && !self.get(&keys::ENCRYPT_DATA_TRANSFER)
    }

    /// A line for each such data port, of the node or of its virtual nodes.
    pub(super) fn ports_without_protection(&self) -> Vec<String> {
        let nodes = self.virtual_nodes().unwrap_or_default();
        let own = nodes.is_empty().then_some(self).into_iter();
        let all = own.chain(nodes.iter().map(|node| &node.config));
        let line = |config: &Self| {
            let key = keys::DATA_TRANSFER_PROTECTION.name();
            format!(
                "{key} ({}) has no effect at {}: data goes in clear on a port below \
                 {PRIVILEGED_BELOW}, as on Apache's node: take one from {PRIVILEGED_BELOW} on, or \
                 set {} on every node and client",
                self.origin(key),
                config.get(&keys::DATANODE_ADDRESS),
                keys::ENCRYPT_DATA_TRANSFER.name()
            )
        };
        all.filter(|config| config.port_has_no_protection())
            .map(line)
            .collect()
    }

    /// The key whose protection of data transfer, or of RPC with tokens, is not served.
    pub(super) fn unserved_transfer_protection(&self) -> Option<Unserved> {
        let other = |key, what| Some(Unserved::of(key, what));
        let qualities = self.transfer_qualities();
        let served = |name: &String| QUALITIES.contains(&name.as_str());
        if !qualities.iter().all(served) {
            let what = "a protection other than authentication, integrity and privacy";
            return other(keys::DATA_TRANSFER_PROTECTION.name(), what);
        }
        let proves = self.has_kerberos() || self.get(&keys::ENCRYPT_DATA_TRANSFER);
        if !qualities.is_empty() && !proves {
            let what = "a protection that needs Kerberos, without which all goes in clear";
            return other(keys::DATA_TRANSFER_PROTECTION.name(), what);
        }
        let algorithm = self.get(&keys::ENCRYPT_ALGORITHM);
        if algorithm.is_some_and(|name| !["3des", "rc4"].contains(&name.as_str())) {
            let what = "a cipher other than 3des and rc4";
            return other(keys::ENCRYPT_ALGORITHM.name(), what);
        }
        let suite = self.get(&keys::ENCRYPT_CIPHER_SUITES);
        if suite.is_some_and(|name| name != "AES/CTR/NoPadding") {
            let what = "a cipher other than AES/CTR/NoPadding";
            return other(keys::ENCRYPT_CIPHER_SUITES.name(), what);
        }
        if ![128, 192, 256].contains(&self.get(&keys::ENCRYPT_KEY_BITS)) {
            let what = "keys of AES that have not 128, 192 or 256 bits";
            return other(keys::ENCRYPT_KEY_BITS.name(), what);
        }
        let mechanism = self.get(&keys::SASL_MECHANISM);
        if mechanism.is_some_and(|name| name != "DIGEST-MD5") {
            let what = "a mechanism of SASL other than DIGEST-MD5";
            return other(keys::SASL_MECHANISM.name(), what);
        }
        if self.get(&keys::DOWNSTREAM_QUALITY) {
            let what = "another protection for the rest of a pipeline";
            return other(keys::DOWNSTREAM_QUALITY.name(), what);
        }
        self.unserved_resolver()
    }

    /// The key with a class that says who is trusted on data ports, by addresses. Lists of Apache's
    /// classes that are missing, or cannot be read, tell less apart than their names say, and
    /// without a word: such a black list trusts everyone.
    pub(super) fn unserved_trust(&self) -> Option<Unserved> {
        let class = self.get(&keys::TRUSTED_CHANNELS)?;
        (class != TRUSTS_NONE).then_some(Unserved {
            key: keys::TRUSTED_CHANNELS.name(),
            what: "a class that decides who is trusted without proof",
            instead: "unset it on every node and client, so that each proves who it is",
        })
    }

    /// The key with a class that tells peers apart by their addresses, as the one of
    /// [`unserved_trust`](Self::unserved_trust) does.
    fn unserved_resolver(&self) -> Option<Unserved> {
        let is_other = |key: &Key<Option<String>>, served: &[&str]| {
            let class = self.get(key);
            class.is_some_and(|class| !served.contains(&class.as_str()))
        };
        let of_peers = [&keys::TRANSFER_PROPERTIES, &keys::RPC_PROPERTIES];
        let of_peers = of_peers.into_iter();
        let mut of_peers = of_peers.filter(|key| is_other(key, &[SAME_FOR_ALL, BY_PORT]));
        if let Some(key) = of_peers.next() {
            return Some(Unserved {
                key: key.name(),
                what: "a class that decides whose protection differs",
                instead: "unset it, and have dfs.data.transfer.protection and \
                          hadoop.rpc.protection say what the strictest of its peers have",
            });
        }
        if self.get(&keys::RPC_PROPERTIES).as_deref() != Some(BY_PORT) {
            return None;
        }
        let differing = self.get(&keys::INGRESS_PORTS).unwrap_or_default();
        let differing: Vec<_> = differing.split(',').map(str::trim).collect();
        let nodes = self.virtual_nodes().unwrap_or_default();
        let all = nodes.iter().map(|node| &node.config).chain([self]);
        let mut own = all.map(|node| node.get(&keys::DATANODE_IPC_ADDRESS).port);
        own.any(|port| differing.iter().any(|text| text.parse() == Ok(port)))
            .then_some(Unserved {
                key: keys::INGRESS_PORTS.name(),
                what: "another protection for the RPC port of this node",
                instead: "take that port out, and set hadoop.rpc.protection for it",
            })
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
            ("dfs.trustedchannel.resolver.class", TRUSTS_NONE),
            (
                "dfs.data.transfer.saslproperties.resolver.class",
                SAME_FOR_ALL,
            ),
            ("dfs.data.transfer.saslproperties.resolver.class", BY_PORT),
            ("hadoop.security.saslproperties.resolver.class", BY_PORT),
            ("hadoop.security.saslproperties.resolver.class", ""),
            ("hadoop.security.sasl.mechanism", "DIGEST-MD5"),
            ("ingress.port.sasl.configured.ports", "9867"),
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
            ("dfs.trustedchannel.resolver.class", SAME_FOR_ALL),
            (
                "dfs.data.transfer.saslproperties.resolver.class",
                "Whitelist",
            ),
            ("hadoop.security.saslproperties.resolver.class", "Whitelist"),
            ("hadoop.security.sasl.mechanism", "SCRAM-SHA-256"),
            ("dfs.encrypt.data.overwrite.downstream.derived.qop", "true"),
        ] {
            let why = refused(&[(key, value)]).unwrap_or_default();
            assert!(why.contains(key) && why.contains(value), "{key}: {why}");
        }
    }

    #[test]
    fn a_port_that_takes_the_protection_away_is_warned_of() {
        let kerberos = ("hadoop.security.authentication", "kerberos");
        let privacy = ("dfs.data.transfer.protection", "privacy");
        let address = |address| ("dfs.datanode.address", address);
        let low = address("0.0.0.0:1004");
        let warned = |properties: &[(&str, &str)]| {
            let config = Configuration::from_properties(properties.iter().copied());
            let lines = config.expect("valid").warnings();
            let about = |line: &String| line.starts_with("dfs.data.transfer.protection");
            lines.into_iter().filter(about).collect::<Vec<_>>()
        };
        for properties in [
            &[kerberos, low][..],
            &[kerberos, privacy],
            &[kerberos, privacy, address("0.0.0.0:0")],
            &[
                kerberos,
                privacy,
                low,
                ("dfs.encrypt.data.transfer", "true"),
            ],
        ] {
            assert_eq!(warned(properties), Vec::<String>::new(), "{properties:?}");
        }
        let lines = warned(&[kerberos, privacy, low]);
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains("at 0.0.0.0:1004: data goes in clear"));
        let lines = warned(&[
            kerberos,
            privacy,
            low,
            ("hayloft.nodes", "a,b"),
            ("dfs.datanode.data.dir", "/d"),
            ("dfs.datanode.address.b", "0.0.0.0:5004"),
        ]);
        assert_eq!(lines.len(), 1, "of a alone: {lines:?}");
    }

    #[test]
    fn who_tells_peers_apart_is_refused_with_what_to_do() {
        for (class, what, instead) in [
            (
                "dfs.trustedchannel.resolver.class",
                "who is trusted without proof",
                "unset it on every node and client",
            ),
            (
                "hadoop.security.saslproperties.resolver.class",
                "whose protection differs",
                "unset it, and have dfs.data.transfer.protection",
            ),
        ] {
            let why = refused(&[(class, "org.example.BlackList")]).unwrap_or_default();
            assert!(why.contains(what) && why.contains(instead), "{why}");
        }
        // Who only calls NameNodes has no data port to trust.
        for (class, goes_on) in [
            ("dfs.trustedchannel.resolver.class", true),
            ("hadoop.security.saslproperties.resolver.class", false),
        ] {
            let config = Configuration::from_properties([(class, "org.example.BlackList")]);
            let calls = config.expect("valid").refuse_unprotected_calls();
            assert_eq!(calls.is_ok(), goes_on, "{class}");
        }
    }

    #[test]
    fn ports_of_namenodes_may_have_a_protection_of_their_own_and_ours_may_not() {
        let by_port = ("hadoop.security.saslproperties.resolver.class", BY_PORT);
        let ports = |ports| ("ingress.port.sasl.configured.ports", ports);
        assert_eq!(refused(&[by_port, ports("8020, 9000")]), None);
        let own = ("dfs.datanode.ipc.address", "0.0.0.0:1867");
        for properties in [
            &[by_port, ports("8020, 9867")][..],
            &[by_port, ports("1867"), own],
            &[
                by_port,
                ports("1868"),
                own,
                ("hayloft.nodes", "a,b"),
                ("dfs.datanode.data.dir", "/d"),
            ],
        ] {
            let why = refused(properties).unwrap_or_default();
            assert!(why.contains("take that port out"), "{properties:?}: {why}");
        }
    }
}
