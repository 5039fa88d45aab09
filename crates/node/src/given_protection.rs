//! What protection a node gives under a configuration, in words for its operator.
//!
//! `hayloft node --print-config` and `hayloft swap` say it. Nothing is decided here: what decides
//! about data transfer, RPC and the web port is asked.

use hayloft_client::{TransferProof, TransferProtection, login};
use hayloft_conf::{Configuration, HostPort, Key, keys};
use hayloft_rpc::RpcQuality;
use hayloft_sasl::SaslQuality;

use crate::http::Policy;

/// Ports below it are for root alone to open.
const PRIVILEGED_BELOW: u16 = 1024;

/// A part of a node by a name for JSON, and what protects it.
pub type ProtectedPart = (&'static str, String);

/// What protects each part of a node that this configuration is for. One of virtual nodes has a
/// configuration of its own. Of a configuration that the start refuses it says nothing of use.
#[must_use]
pub fn given_protection(config: &Configuration) -> [ProtectedPart; 6] {
    [
        ("authentication", authentication(config)),
        ("rpc", rpc(config)),
        ("data_port", data_port(config)),
        ("block_tokens", block_tokens(config)),
        ("web_port", web_port(config)),
        ("authorization", authorization(config)),
    ]
}

fn authentication(config: &Configuration) -> String {
    if !config.has_kerberos() {
        return "none: the node believes what callers say of themselves".to_owned();
    }
    let principal = config.get(&keys::DATANODE_PRINCIPAL).unwrap_or_default();
    format!("Kerberos: callers prove who they are, and the node that it is {principal}")
}

fn rpc(config: &Configuration) -> String {
    if !config.has_kerberos() {
        return "in clear".to_owned();
    }
    let all = login::qualities(config);
    let all: Vec<SaslQuality> = all.iter().map(|quality| as_of_data(*quality)).collect();
    let mut said = in_words(&all);
    if all.iter().any(|quality| *quality != SaslQuality::Privacy) {
        said += "; where it is not encrypted, the keys of block tokens can be read as well";
    }
    said
}

fn as_of_data(quality: RpcQuality) -> SaslQuality {
    match quality {
        RpcQuality::Authentication => SaslQuality::Authentication,
        RpcQuality::Integrity => SaslQuality::Integrity,
        RpcQuality::Privacy => SaslQuality::Privacy,
    }
}

/// Qualities, of which the other side has the choice.
fn in_words(qualities: &[SaslQuality]) -> String {
    let word = |quality: &SaslQuality| match quality {
        SaslQuality::Authentication => "in clear after the proof (authentication)",
        SaslQuality::Integrity => "in clear with checksums that have a key (integrity)",
        SaslQuality::Privacy => "encrypted (privacy)",
    };
    let words: Vec<&str> = qualities.iter().map(word).collect();
    words.join(", or ")
}

fn data_port(config: &Configuration) -> String {
    let protection = TransferProtection::from_config(config);
    let proof = protection.of_own_port();
    let by = match proof {
        TransferProof::None => return plain_data_port(config, &protection),
        TransferProof::BlockToken => "the block token of each request",
        TransferProof::EncryptionKey => "keys that NameNodes hand out",
    };
    let qualities = protection.qualities(proof);
    let said = format!("SASL by {by}: {}", in_words(qualities));
    if !qualities.contains(&SaslQuality::Privacy) {
        return said;
    }
    let others = protection.offer(qualities).ciphers.iter();
    let others: Vec<&str> = others.map(|cipher| cipher.name()).collect();
    let others = others.join(" or ");
    let bits = config.get(&keys::ENCRYPT_KEY_BITS);
    match protection.counter() {
        Some(_) => format!("{said}, by AES with {bits} bits, else by {others}"),
        None => format!("{said}, by {others}"),
    }
}

fn plain_data_port(config: &Configuration, protection: &TransferProtection) -> String {
    let port = config.get(&keys::DATANODE_ADDRESS).port;
    let privileged = (1..PRIVILEGED_BELOW).contains(&port);
    let mut said = "in clear".to_owned();
    if config.has_kerberos() {
        said += match privileged {
            true if config.port_has_no_protection() => {
                ", as dfs.data.transfer.protection has no effect on a port that only root can open"
            }
            true => ", on a port that only root can open",
            false => ", on a port that any user of this host could open",
        };
    }
    if protection.towards(PRIVILEGED_BELOW.into()) != TransferProof::None {
        said += "; SASL towards nodes with ports from 1024 on";
    }
    said
}

fn block_tokens(config: &Configuration) -> String {
    let wanted = config.get(&keys::BLOCK_ACCESS_TOKEN_ENABLE);
    let expected = match (wanted, config.has_kerberos()) {
        (true, true) => "refuses those that do not",
        (true, false) => "expects that they do; else blocks are for everyone, and the log says so",
        (false, _) => "expects that they do not",
    };
    format!("checked if the NameNodes say so; this configuration {expected}")
}

fn web_port(config: &Configuration) -> String {
    let policy = match Policy::of(config) {
        Ok(policy) => policy,
        Err(why) => return why,
    };
    let at = |is: bool, what: &str, key: &Key<HostPort>| {
        is.then(|| format!("{what} at {}", config.get(key)))
    };
    let ports = [
        at(
            policy.plain,
            "HTTP, in clear,",
            &keys::DATANODE_HTTP_ADDRESS,
        ),
        at(policy.tls, "HTTPS", &keys::DATANODE_HTTPS_ADDRESS),
    ];
    let ports: Vec<String> = ports.into_iter().flatten().collect();
    let mut said = ports.join(" and ");
    if policy.tls && config.get(&keys::CLIENT_CERT) {
        said += " for clients with a certificate";
    }
    let asks = config.pages_ask_callers();
    let kind = config.get(&keys::HTTP_AUTHENTICATION);
    said += match (asks, kind.as_str(), config.get(&keys::HTTP_ANONYMOUS)) {
        (false, ..) | (true, "simple", true) => "; pages are for everyone",
        (true, "simple", false) => "; pages are for everyone who gives a name",
        (true, ..) => "; pages ask for a ticket",
    };
    if !config.has_kerberos() {
        said += "; WebHDFS believes user.name";
    }
    said
}

fn authorization(config: &Configuration) -> String {
    let callers = match config.get(&keys::SECURITY_AUTHORIZATION) {
        true => "hadoop-policy.xml says who may call",
        false => "everyone may call",
    };
    if !config.get(&keys::PERMISSIONS_ENABLED) {
        let key = keys::PERMISSIONS_ENABLED.name();
        return format!("{callers}, and administer, as {key} is false");
    }
    let group = config.get(&keys::SUPERUSER_GROUP);
    format!("{callers}; the node's own user and the group {group} administer")
}

#[cfg(test)]
mod tests {
    use super::*;

    const KERBEROS: [(&str, &str); 2] = [
        ("hadoop.security.authentication", "kerberos"),
        ("dfs.datanode.kerberos.principal", "dn/_HOST@R"),
    ];

    fn of(properties: &[(&str, &str)], part: &str) -> String {
        let config = Configuration::from_properties(properties.iter().copied()).expect("valid");
        let all = given_protection(&config).into_iter();
        let mut found = all.filter(|(name, _)| *name == part);
        found.next().expect("a part").1
    }

    #[test]
    fn a_node_without_any_says_so() {
        for (part, said) in [
            ("authentication", "none: "),
            ("rpc", "in clear"),
            ("data_port", "in clear"),
            ("block_tokens", "checked if the NameNodes say so; "),
            (
                "web_port",
                "HTTP, in clear, at 0.0.0.0:9864; pages are for everyone; WebHDFS",
            ),
            ("authorization", "everyone may call; "),
        ] {
            let found = of(&[], part);
            assert!(found.starts_with(said), "{part}: {found}");
        }
    }

    /// Every combination of what the data port goes by.
    #[test]
    fn the_data_port_is_said_to_be_what_it_is() {
        let ports = ["0.0.0.0:1004", "0.0.0.0:9866", "0.0.0.0:0"];
        let all = [
            "",
            "authentication",
            "integrity",
            "privacy",
            "privacy,authentication",
        ];
        let switches = [false, true];
        for (kerberos, encrypt, aes) in switches
            .iter()
            .flat_map(|a| switches.iter().map(move |b| (*a, *b)))
            .flat_map(|(a, b)| switches.iter().map(move |c| (a, b, *c)))
        {
            for (port, asked) in ports.iter().flat_map(|p| all.iter().map(move |q| (*p, *q))) {
                let mut properties = vec![("dfs.datanode.address", port)];
                properties.push(("dfs.data.transfer.protection", asked));
                if kerberos {
                    properties.extend(KERBEROS);
                }
                if encrypt {
                    properties.push(("dfs.encrypt.data.transfer", "true"));
                }
                if aes {
                    let suite = "dfs.encrypt.data.transfer.cipher.suites";
                    properties.push((suite, "AES/CTR/NoPadding"));
                }
                let said = of(&properties, "data_port");
                let low = port == "0.0.0.0:1004";
                let sasl = encrypt || (kerberos && !asked.is_empty() && !low);
                assert_eq!(said.starts_with("SASL by"), sasl, "{properties:?}: {said}");
                let private = sasl && (encrypt || asked.contains("privacy"));
                assert_eq!(
                    said.contains("encrypted"),
                    private,
                    "{properties:?}: {said}"
                );
                let clear = !encrypt && asked != "privacy" || !sasl;
                assert_eq!(said.contains("in clear"), clear, "{properties:?}: {said}");
                let with_aes = private && aes;
                assert_eq!(
                    said.contains("AES with 128"),
                    with_aes,
                    "{properties:?}: {said}"
                );
                assert_eq!(
                    said.contains("3des or rc4"),
                    private,
                    "{properties:?}: {said}"
                );
                let root = kerberos && low && !encrypt;
                assert_eq!(said.contains("only root"), root, "{properties:?}: {said}");
                let others = root && !asked.is_empty();
                let in_vain = said.contains("protection has no effect");
                assert_eq!(in_vain, others, "{properties:?}: {said}");
                assert_eq!(
                    said.contains("from 1024 on"),
                    others,
                    "{properties:?}: {said}"
                );
            }
        }
    }

    #[test]
    fn ciphers_are_said_as_they_are_offered() {
        let encrypt = ("dfs.encrypt.data.transfer", "true");
        for (algorithm, said) in [
            ("3des", "encrypted (privacy), by 3des"),
            ("rc4", "by 3des or rc4"),
        ] {
            let algorithm = ("dfs.encrypt.data.transfer.algorithm", algorithm);
            let found = of(&[encrypt, algorithm], "data_port");
            assert!(found.ends_with(said), "{found}");
        }
    }

    #[test]
    fn rpc_is_said_to_be_what_it_is() {
        let said = |value| {
            let quality = ("hadoop.rpc.protection", value);
            of(&[&KERBEROS[..], &[quality]].concat(), "rpc")
        };
        assert_eq!(said("privacy"), "encrypted (privacy)");
        for value in ["authentication", "integrity", "privacy,integrity", ""] {
            let said = said(value);
            assert!(
                said.contains("in clear") && said.contains("keys of block tokens"),
                "{said}"
            );
            assert_eq!(
                said.contains("encrypted (privacy), or"),
                value.contains("privacy")
            );
        }
        assert_eq!(
            of(&[("hadoop.rpc.protection", "privacy")], "rpc"),
            "in clear"
        );
    }

    /// Every policy with every way to ask callers of pages.
    #[test]
    fn the_web_port_is_said_to_be_what_it_is() {
        let filter = "org.apache.hadoop.security.AuthenticationFilterInitializer";
        let filter = ("hadoop.http.filter.initializers", filter);
        let kind = |value| ("hadoop.http.authentication.type", value);
        let named = (
            "hadoop.http.authentication.simple.anonymous.allowed",
            "false",
        );
        let ways = [
            (vec![], "for everyone"),
            (vec![kind("kerberos")], "for everyone"),
            (vec![filter], "for everyone"),
            (vec![filter, named], "who gives a name"),
            (vec![filter, named, kind("kerberos")], "ask for a ticket"),
        ];
        for (policy, plain, tls) in [
            ("HTTP_ONLY", true, false),
            ("HTTPS_ONLY", false, true),
            ("HTTP_AND_HTTPS", true, true),
        ] {
            for (way, told) in &ways {
                for certificates in [false, true] {
                    let mut properties = way.clone();
                    properties.push(("dfs.http.policy", policy));
                    if certificates {
                        properties.push(("hadoop.ssl.require.client.cert", "true"));
                    }
                    let said = of(&properties, "web_port");
                    assert_eq!(
                        said.contains("HTTP, in clear, at 0.0.0.0:9864"),
                        plain,
                        "{said}"
                    );
                    assert_eq!(said.contains("HTTPS at 0.0.0.0:9865"), tls, "{said}");
                    assert_eq!(
                        said.contains("with a certificate"),
                        tls && certificates,
                        "{said}"
                    );
                    assert!(said.contains(told) && said.contains("user.name"), "{said}");
                }
            }
        }
        assert!(!of(&KERBEROS, "web_port").contains("user.name"));
        assert!(of(&[("dfs.http.policy", "FTP")], "web_port").contains("FTP"));
    }

    #[test]
    fn who_may_call_and_administer_is_said() {
        for (authorized, permissions, said) in [
            (
                "false",
                "true",
                "everyone may call; the node's own user and the group supergroup",
            ),
            (
                "true",
                "true",
                "hadoop-policy.xml says who may call; the node's own user",
            ),
            (
                "false",
                "false",
                "everyone may call, and administer, as dfs.permissions.enabled",
            ),
            (
                "true",
                "false",
                "hadoop-policy.xml says who may call, and administer, as",
            ),
        ] {
            let properties = [
                ("hadoop.security.authorization", authorized),
                ("dfs.permissions.enabled", permissions),
            ];
            let found = of(&properties, "authorization");
            assert!(found.starts_with(said), "{found}");
        }
        let on = ("dfs.block.access.token.enable", "true");
        let tokens = |properties: &[(&str, &str)]| of(properties, "block_tokens");
        let [unset, wanted] = [tokens(&[]), tokens(&[on])];
        assert!(unset.ends_with("they do not"), "{unset}");
        assert!(wanted.contains("else blocks are for everyone"), "{wanted}");
        let refused = tokens(&[&KERBEROS[..], &[on]].concat());
        assert!(refused.ends_with("refuses those that do not"), "{refused}");
        let named = of(&KERBEROS, "authentication");
        assert!(
            named.starts_with("Kerberos") && named.ends_with("dn/_HOST@R"),
            "{named}"
        );
    }
}
