//! Who asks, and which NameNode: never the node's own user, and none but those that the
//! configuration names.

use std::net::IpAddr;
use std::sync::Mutex;
use std::time::Duration;

use hayloft_conf::{Configuration, HostPort, NameService, keys, namenodes, patterns};
use hayloft_io::locks::lock;
use hayloft_wire::proto::security::Token;
use hayloft_wire::token_text::token_from_text;

use super::parameters::Parameters;
use super::refusal::Refusal;
use hayloft_client::{FileUser, NameNodeGroup};

/// How long a name server may take.
const RESOLVED_WITHIN: Duration = Duration::from_secs(5);
/// Kinds of tokens that NameNodes give to users.
const KINDS: [&str; 3] = [
    "HDFS_DELEGATION_TOKEN",
    "WEBHDFS delegation",
    "SWEBHDFS delegation",
];
/// Groups whose active NameNode is remembered.
const GROUPS_MAX: usize = 64;

/// The user of a request, and on whose behalf.
pub(super) fn identify(
    config: &Configuration,
    parameters: &Parameters,
) -> Result<FileUser, Refusal> {
    let given = |name| parameters.get(name).filter(|value| !value.is_empty());
    let token = given("delegation").map(token_from_text).transpose();
    let token = token.map_err(|why| Refusal::forbidden(why.to_string()))?;
    // As with Apache's node, a token counts where there is Kerberos, and there alone.
    if config.has_kerberos() {
        return holder(token);
    }
    let user = match given("user.name") {
        None => config.get(&keys::HTTP_STATIC_USER),
        Some(name) => {
            let pattern = config.get(&keys::WEBHDFS_USER_PATTERN);
            let allowed = patterns::whole(&pattern).is_some_and(|of| of.is_match(name));
            if !allowed {
                return Err(Refusal::argument(format!(
                    "Invalid value: \"{name}\" does not belong to the domain {pattern}"
                )));
            }
            name.to_owned()
        }
    };
    Ok(match given("doas") {
        None => FileUser {
            user,
            ..FileUser::default()
        },
        Some(other) => FileUser {
            user: other.to_owned(),
            proxied_by: Some(user),
            token: None,
        },
    })
}

/// The user whom a NameNode knows by this token. It may have lost its first kind: a NameNode gives
/// those of its web port kinds of their own, though they are the same. For which service it says
/// that it is does not matter, since the NameNode that is asked knows its own tokens.
fn holder(token: Option<Token>) -> Result<FileUser, Refusal> {
    let token = token.ok_or_else(|| {
        Refusal::forbidden(
            "this cluster has Kerberos, and the parameter delegation is missing: ask the NameNode, \
             which sends clients here with a token",
        )
    })?;
    if !KINDS.contains(&&*token.kind) {
        return Err(Refusal::forbidden(
            "the token is for something else than files: ask a NameNode for one",
        ));
    }
    Ok(FileUser {
        token: Some(token),
        ..FileUser::default()
    })
}

/// The NameNodes that were asked, by what requests call them.
#[derive(Default)]
pub(super) struct NameNodeGroups {
    known: Mutex<Vec<(Vec<String>, NameNodeGroup)>>,
}

impl NameNodeGroups {
    /// The NameNodes that `namenoderpcaddress` means.
    pub(super) async fn find(
        &self,
        config: &Configuration,
        parameters: &Parameters,
    ) -> Result<NameNodeGroup, Refusal> {
        let asked = parameters.get("namenoderpcaddress").unwrap_or_default();
        if asked.is_empty() {
            return Err(Refusal::argument(
                "the parameter namenoderpcaddress is missing: ask a NameNode, which sends clients \
                 here",
            ));
        }
        let services = namenodes(config).map_err(|e| Refusal::internal(e.to_string()))?;
        let found = match named(config, &services, asked) {
            Some(found) => Some(found),
            None => at_address(&services, asked).await,
        };
        let addresses = found.ok_or_else(|| {
            let known: Vec<String> = services.iter().flat_map(names).collect();
            Refusal::forbidden(format!(
                "{asked} is none of the NameNodes of this node ({}): requests for others are not \
                 served",
                known.join(", ")
            ))
        })?;
        Ok(self.group(addresses))
    }

    fn group(&self, addresses: Vec<String>) -> NameNodeGroup {
        let mut known = lock(&self.known);
        if let Some((_, group)) = known.iter().find(|(of, _)| *of == addresses) {
            return group.clone();
        }
        if known.len() == GROUPS_MAX {
            // What is known was of a configuration that has changed since.
            known.clear();
        }
        let group = NameNodeGroup::new(addresses.clone());
        known.push((addresses, group.clone()));
        group
    }
}

/// What requests may call the NameNodes of a name service.
fn names(service: &NameService) -> Vec<String> {
    let addresses = service.namenodes.iter().map(|one| one.rpc.to_string());
    service.id.iter().cloned().chain(addresses).collect()
}

fn addresses(service: &NameService) -> Vec<String> {
    service
        .namenodes
        .iter()
        .map(|one| one.rpc.to_string())
        .collect()
}

/// By the name of a service, or an address as the configuration has it.
fn named(config: &Configuration, services: &[NameService], asked: &str) -> Option<Vec<String>> {
    if let Some(service) = services.iter().find(|one| one.id.as_deref() == Some(asked)) {
        return Some(addresses(service));
    }
    let asked = HostPort::parse_with_default(asked, None).ok()?;
    let same =
        |known: &HostPort| known.port == asked.port && known.host.eq_ignore_ascii_case(&asked.host);
    let all = || services.iter().flat_map(|service| &service.namenodes);
    let exact = all().find(|one| same(&one.rpc) || one.service_rpc.as_ref().is_some_and(same));
    if let Some(one) = exact {
        return Some(vec![one.rpc.to_string()]);
    }
    // A cluster's file system may be named otherwise than its NameNode's address.
    let default = config.get(&keys::DEFAULT_FS);
    let authority = default.strip_prefix("hdfs://")?.split('/').next()?;
    let default = HostPort::parse_with_default(authority, Some(8020)).ok()?;
    let only = services.iter().find(|service| service.id.is_none())?;
    same(&default).then(|| addresses(only))
}

/// By an IP address that one of the configured names stands for. Names in requests are not looked
/// up: that alone would make the node talk to the name servers of others.
async fn at_address(services: &[NameService], asked: &str) -> Option<Vec<String>> {
    let asked = HostPort::parse_with_default(asked, None).ok()?;
    let ip: IpAddr = asked.host.parse().ok()?;
    for one in services.iter().flat_map(|service| &service.namenodes) {
        if one.rpc.port != asked.port {
            continue;
        }
        let found = tokio::net::lookup_host((one.rpc.host.as_str(), one.rpc.port));
        let found = tokio::time::timeout(RESOLVED_WITHIN, found).await;
        if let Ok(Ok(mut found)) = found
            && found.any(|address| address.ip() == ip)
        {
            return Some(vec![one.rpc.to_string()]);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use hayloft_wire::token_text::token_to_text;

    use super::*;

    fn parameters(query: &str) -> Parameters {
        let uri = format!("/webhdfs/v1/a?{query}").parse().expect("a URI");
        Parameters::of(&uri).expect("well")
    }

    fn config(properties: &[(&str, &str)]) -> Configuration {
        Configuration::from_properties(properties.iter().copied()).expect("valid")
    }

    #[test]
    fn callers_are_named_and_never_the_node() {
        let config = config(&[]);
        let of = |query: &str| identify(&config, &parameters(query));
        let caller = |user: &str, proxied_by: Option<&str>| {
            Ok(FileUser {
                user: user.into(),
                proxied_by: proxied_by.map(str::to_owned),
                token: None,
            })
        };
        assert_eq!(of(""), caller("dr.who", None));
        assert_eq!(of("user.name="), caller("dr.who", None));
        assert_eq!(of("user.name=alice"), caller("alice", None));
        assert_eq!(of("user.name=alice&doas=bob"), caller("bob", Some("alice")));
        assert_eq!(of("doas=bob"), caller("bob", Some("dr.who")));
        let bad = of("user.name=1+x").expect_err("no name");
        assert!(format!("{bad:?}").contains("does not belong to the domain ^[A-Za-z_]"));
        let token = token_to_text(&Token::default());
        let ignored = of(&format!("user.name=alice&delegation={token}"));
        assert_eq!(ignored, caller("alice", None), "without Kerberos");
        of("user.name=alice&delegation=abc").expect_err("no token");
    }

    #[test]
    fn with_kerberos_only_tokens_count() {
        let secure = config(&[("hadoop.security.authentication", "kerberos")]);
        for (query, told) in [
            ("", "parameter delegation is missing"),
            ("user.name=hdfs&doas=bob", "parameter delegation is missing"),
            ("delegation=", "parameter delegation is missing"),
            ("delegation=a*b", "no base64"),
            ("delegation=abc", "a bad identifier"),
        ] {
            let refused = identify(&secure, &parameters(query)).expect_err("Kerberos");
            let refused = format!("{refused:?}");
            assert!(refused.contains(told), "{query}: {refused}");
            assert!(!refused.contains("a*b"), "{refused}");
        }
        let with = |kind: &str| {
            let token = Token {
                identifier: b"identifier".to_vec().into(),
                password: b"secret".to_vec().into(),
                kind: kind.to_owned(),
                service: "10.0.0.1:8020".to_owned(),
            };
            let text = token_to_text(&token);
            let query = format!("delegation={text}&user.name=hdfs&doas=bob");
            (token, identify(&secure, &parameters(&query)))
        };
        for kind in KINDS {
            let (token, found) = with(kind);
            let found = found.expect("a token");
            assert!(!format!("{found:?}").contains("secret"), "{found:?}");
            let expected = FileUser {
                token: Some(token),
                ..FileUser::default()
            };
            assert_eq!(found, expected);
        }
        let refused = with("HDFS_BLOCK_TOKEN").1.expect_err("another kind");
        assert!(format!("{refused:?}").contains("something else"));
    }

    #[test]
    fn encrypted_transfers_are_served() {
        let encrypted = config(&[("dfs.encrypt.data.transfer", "true")]);
        let served = identify(&encrypted, &parameters("user.name=alice"));
        assert_eq!(served.expect("served").user, "alice");
    }

    #[tokio::test]
    async fn only_configured_namenodes_are_asked() {
        let config = config(&[
            ("fs.defaultFS", "hdfs://ns1"),
            ("dfs.nameservices", "ns1"),
            ("dfs.ha.namenodes.ns1", "a,b"),
            ("dfs.namenode.rpc-address.ns1.a", "Localhost:8020"),
            ("dfs.namenode.rpc-address.ns1.b", "127.0.0.1:8021"),
        ]);
        let services = namenodes(&config).expect("valid");
        let of = |asked| named(&config, &services, asked);
        let both = vec!["Localhost:8020".to_owned(), "127.0.0.1:8021".to_owned()];
        assert_eq!(of("ns1"), Some(both.clone()));
        assert_eq!(of("localhost:8020"), Some(vec![both[0].clone()]));
        for other in [
            "ns2",
            "localhost:8022",
            "169.254.169.254:80",
            "ns1:8020",
            "",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
        let by_ip = at_address(&services, "127.0.0.1:8020").await;
        assert_eq!(by_ip, Some(vec![both[0].clone()]));
        assert_eq!(at_address(&services, "10.0.0.1:8020").await, None);
        assert_eq!(at_address(&services, "example.com:8020").await, None);
        let asked = parameters("namenoderpcaddress=evil:1");
        let refused = NameNodeGroups::default().find(&config, &asked).await;
        let refused = format!("{:?}", refused.expect_err("another"));
        assert!(refused.contains("none of the NameNodes"), "{refused}");
    }
}
