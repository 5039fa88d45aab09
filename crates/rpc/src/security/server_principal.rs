//! Whom a server has to be.
//!
//! As in Hadoop's client, the server says its service and host, and these are held against
//! `dfs.namenode.kerberos.principal`, in which `_HOST` is the name that DNS gives the server's
//! address, or against `dfs.namenode.kerberos.principal.pattern`, where `*` and `?` stand for any
//! text and any character. Java's patterns also have `{a,b}`, `[x]` and backslashes, which are
//! refused here. Where the realm has a wildcard, it is krb5.conf's default one.

use std::net::IpAddr;
use std::time::Duration;

use super::off_threads::{OffThreads, off_threads};

/// How long a name server may take.
const NAMED_WITHIN: Duration = Duration::from_secs(10);

/// The place of a host's name in configured principals.
const HOST: &str = "_HOST";

/// Whom a server has to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerPrincipal {
    /// The key that says it, for messages.
    pub key: &'static str,
    /// Its value; `None` when it is not set.
    pub principal: Option<String>,
    /// A pattern, which counts instead of the principal where it is set.
    pub pattern: Option<String>,
}

impl ServerPrincipal {
    /// The full name of the server that says it is `service` at `host`, for the ticket to ask for.
    /// `realm` is that of names that have none.
    ///
    /// # Errors
    /// It is not whom the configuration expects, in words.
    pub(crate) async fn check(
        &self,
        (service, host): (&str, &str),
        address: IpAddr,
        realm: &str,
    ) -> Result<String, String> {
        let plain = |text: &str| !text.is_empty() && !text.contains(['/', '@', '\\', '\0']);
        if !plain(service) || !plain(host) {
            return Err("the server names itself by no service and host".to_owned());
        }
        if let Some(pattern) = &self.pattern {
            return self.by_pattern(pattern, service, host, realm);
        }
        let Some(configured) = &self.principal else {
            return Err(format!(
                "{} is not set: give it the principal of the server, with _HOST for its host name",
                self.key
            ));
        };
        let expected = principal_at(configured, address, realm).await;
        let named = expected.rsplit_once('@').map_or("", |(name, _)| name);
        if !named.contains('/') {
            return Err(format!(
                "{} = {configured} has no host part: write it as service/_HOST@REALM",
                self.key
            ));
        }
        if named != format!("{service}/{host}") {
            return Err(format!(
                "the server is {service}/{host}, but {} expects {expected}: another server answers \
                 at this address, or the key is wrong",
                self.key
            ));
        }
        Ok(expected)
    }

    fn by_pattern(
        &self,
        pattern: &str,
        service: &str,
        host: &str,
        realm: &str,
    ) -> Result<String, String> {
        let named = pattern.rsplit_once('@').map(|(_, realm)| realm);
        let literal = named.filter(|realm| !realm.is_empty() && !realm.contains(['*', '?']));
        let full = format!("{service}/{host}@{}", literal.unwrap_or(realm));
        if like(pattern, &full) {
            return Ok(full);
        }
        Err(format!(
            "the server is {full}, which {}.pattern = {pattern} does not allow",
            self.key
        ))
    }
}

/// Whom a configured principal means at an address: with the name of the address for `_HOST`, and
/// with `realm` where it has none.
pub async fn principal_at(configured: &str, address: IpAddr, realm: &str) -> String {
    let named = if names_host(configured) {
        for_host(configured, &name_of(address).await)
    } else {
        configured.to_owned()
    };
    in_realm(named, realm)
}

/// A principal with `realm` where it has none.
#[must_use]
pub fn in_realm(principal: String, realm: &str) -> String {
    if principal.contains('@') {
        return principal;
    }
    format!("{principal}@{realm}")
}

/// Refuses a pattern that would mean something else than it does in Java.
///
/// # Errors
/// What is not served in it.
pub fn usable_pattern(pattern: &str) -> Result<(), String> {
    let odd = pattern.chars().find(|c| "{}[]\\".contains(*c));
    odd.map_or(Ok(()), |c| {
        Err(format!(
            "the pattern {pattern} has {c}, which is not served: only * and ? have a meaning"
        ))
    })
}

/// Whether a principal has `_HOST` for its host.
#[must_use]
pub fn names_host(configured: &str) -> bool {
    let (name, _) = configured.split_once('@').unwrap_or((configured, ""));
    name.split_once('/').is_some_and(|(_, host)| host == HOST)
}

/// A configured principal with `host`, in lower case, where it has `_HOST`.
#[must_use]
pub fn for_host(configured: &str, host: &str) -> String {
    match configured.split_once('/') {
        Some((service, rest)) if names_host(configured) => {
            let realm = rest.strip_prefix(HOST).unwrap_or_default();
            format!("{service}/{}{realm}", host.to_lowercase())
        }
        _ => configured.to_owned(),
    }
}

/// The name that DNS or the hosts file gives an address, when that name has the address, too;
/// otherwise the address as text.
pub async fn name_of(address: IpAddr) -> String {
    let found = off_threads(OffThreads::Names, NAMED_WITHIN, move || {
        let named = || {
            let name = dns_lookup::lookup_addr(&address).ok()?;
            let back = dns_lookup::lookup_host(&name).ok()?;
            let mut back = back.into_iter();
            back.any(|found| found == address).then_some(name)
        };
        Ok(named())
    });
    found
        .await
        .ok()
        .flatten()
        .unwrap_or_else(|| address.to_string())
        .trim_end_matches('.')
        .to_lowercase()
}

/// Whether `text` is like `pattern`, in which `*` is any text and `?` any character.
fn like(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t) = (0, 0);
    // Where the last star was, and how much of the text it stands for.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(&c) if c == '?' || Some(&c) == text.get(t) => {
                p += 1;
                t += 1;
            }
            _ => {
                let Some((at, taken)) = star else {
                    return false;
                };
                star = Some((at, taken + 1));
                p = at + 1;
                t = taken + 1;
            }
        }
    }
    pattern
        .get(p..)
        .is_some_and(|rest| rest.iter().all(|c| *c == '*'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn expecting(principal: Option<&str>, pattern: Option<&str>) -> ServerPrincipal {
        ServerPrincipal {
            key: "dfs.namenode.kerberos.principal",
            principal: principal.map(str::to_owned),
            pattern: pattern.map(str::to_owned),
        }
    }

    #[tokio::test]
    async fn the_configured_name_is_expected() {
        let of = expecting(Some("nn/a.b@R"), None);
        assert_eq!(
            of.check(("nn", "a.b"), LOCAL, "X").await,
            Ok("nn/a.b@R".to_owned())
        );
        let other = of.check(("evil", "a.b"), LOCAL, "X").await.unwrap_err();
        assert!(
            other.contains("is evil/a.b, but dfs.namenode.kerberos.principal"),
            "{other}"
        );
        let without = expecting(Some("nn/a.b"), None);
        assert_eq!(
            without.check(("nn", "a.b"), LOCAL, "X").await,
            Ok("nn/a.b@X".to_owned())
        );
        assert!(
            expecting(Some("nn@R"), None)
                .check(("nn", "a"), LOCAL, "X")
                .await
                .is_err()
        );
        assert!(
            expecting(None, None)
                .check(("nn", "a"), LOCAL, "X")
                .await
                .is_err()
        );
        assert!(of.check(("nn", "a.b@R/x"), LOCAL, "X").await.is_err());
    }

    #[tokio::test]
    async fn the_host_is_the_name_of_the_address() {
        let of = expecting(Some("nn/_HOST@R"), None);
        let name = name_of(LOCAL).await;
        let found = of.check(("nn", &name), LOCAL, "X").await;
        assert_eq!(found, Ok(format!("nn/{name}@R")));
        assert!(of.check(("nn", "other"), LOCAL, "X").await.is_err());
    }

    #[tokio::test]
    async fn a_pattern_counts_instead() {
        let of = expecting(Some("nn/a@R"), Some("nn/*.b@R"));
        assert_eq!(
            of.check(("nn", "x.b"), LOCAL, "Y").await,
            Ok("nn/x.b@R".to_owned())
        );
        assert!(of.check(("nn", "a"), LOCAL, "Y").await.is_err());
        let any = expecting(None, Some("*"));
        assert_eq!(
            any.check(("nn", "a"), LOCAL, "Y").await,
            Ok("nn/a@Y".to_owned())
        );
    }

    #[test]
    fn hosts_go_where_they_are_named() {
        assert_eq!(for_host("dn/_HOST@R", "Node.Example"), "dn/node.example@R");
        assert_eq!(for_host("dn/_HOST", "n"), "dn/n");
        assert_eq!(for_host("dn/x_HOST@R", "n"), "dn/x_HOST@R");
        assert_eq!(for_host("_HOST@R", "n"), "_HOST@R");
        assert_eq!(for_host("x_HOST/_HOST@R", "n"), "x_HOST/n@R");
        assert_eq!(for_host("dn/_HOST@_HOST/R", "n"), "dn/n@_HOST/R");
    }

    #[tokio::test]
    async fn a_principal_without_realm_is_of_the_default_one() {
        assert_eq!(principal_at("dn/a", LOCAL, "R").await, "dn/a@R");
        assert_eq!(principal_at("dn/a@S", LOCAL, "R").await, "dn/a@S");
    }

    #[test]
    fn patterns_of_java_alone_are_refused() {
        assert!(usable_pattern("nn/*.b?@R").is_ok());
        for pattern in ["nn/{a,b}@R", "nn/[ab]@R", "nn/\\*@R"] {
            let refused = usable_pattern(pattern).unwrap_err();
            assert!(refused.contains("only * and ?"), "{refused}");
        }
    }

    #[test]
    fn stars_and_question_marks() {
        for (pattern, text, is) in [
            ("a*c", "abbc", true),
            ("a*c", "abbd", false),
            ("?b", "ab", true),
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("a*b*c", "a-b-b-c", true),
        ] {
            assert_eq!(like(pattern, text), is, "{pattern} {text}");
        }
    }
}
