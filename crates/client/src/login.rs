//! Who a node or a command is to servers of Hadoop, by the configuration.
//!
//! Without Kerberos everything here is `None`, and servers believe what they are told.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hayloft_conf::{Configuration, Key, keys};
use hayloft_rpc::security::name_rules::NameRules;
use hayloft_rpc::security::{
    default_realm, for_host, in_realm, name_of, names_host, principal_at, usable_pattern,
};
use hayloft_rpc::server::RpcServerSecurity;
use hayloft_rpc::{KerberosLogin, LoginSource, RpcQuality, RpcSecurity, ServerPrincipal};
use tokio::time::timeout;

/// How long a name server may take.
const RESOLVED_WITHIN: Duration = Duration::from_secs(10);

/// The name for `_HOST` of nodes without `dfs.datanode.hostname`, once [`find_host`] has found it.
static HOST: OnceLock<String> = OnceLock::new();

/// Finds this host's name for `_HOST`, where it is needed: what DNS makes of the system's name. The
/// first name found counts for the whole process.
async fn find_host(config: &Configuration) {
    let wanted = config.get(&keys::DATANODE_PRINCIPAL);
    let wanted = wanted.is_some_and(|principal| names_host(&principal));
    if wanted && config.get(&keys::DATANODE_HOSTNAME).is_none() {
        let _first = HOST.set(canonical(system_host_name()).await);
    }
}

/// The full name of a host: what its address is called.
async fn canonical(name: String) -> String {
    let found = tokio::net::lookup_host((name.as_str(), 0));
    let found = timeout(RESOLVED_WITHIN, found).await.ok();
    let address = found
        .and_then(Result::ok)
        .and_then(|mut found| found.next());
    let Some(address) = address.map(|address| address.ip()) else {
        return name;
    };
    let full = name_of(address).await;
    // An address without a name, or the loop-back's, says less than the system does.
    let says_less = full == address.to_string() || address.is_loopback();
    if says_less { name } else { full }
}

fn system_host_name() -> String {
    let uname = rustix::system::uname();
    let name = uname.nodename().to_str().ok();
    name.filter(|name| !name.is_empty())
        .unwrap_or("localhost")
        .to_owned()
}

/// The node's principal with its host and its realm, if it has Kerberos.
#[must_use]
pub fn node_principal(config: &Configuration) -> Option<String> {
    let principal = config.get(&keys::DATANODE_PRINCIPAL);
    let principal = principal.filter(|_| config.has_kerberos())?;
    // Virtual nodes have names of their own.
    let host = config.get(&keys::DATANODE_HOSTNAME);
    let host = host.or_else(|| HOST.get().cloned());
    let named = for_host(&principal, &host.unwrap_or_else(system_host_name));
    if named.contains('@') {
        return Some(named);
    }
    // Without one it has refused to start.
    Some(in_realm(named, &default_realm().unwrap_or_default()))
}

/// The principal of the web port; `None` where any of its keytab serves. As with Apache's node,
/// `_HOST` is the host of its plain address, also with TLS alone, or this host's full name where
/// that is any.
///
/// # Errors
/// It has no realm, and krb5.conf names none; with what to do.
pub async fn web_principal(config: &Configuration) -> Result<Option<String>, String> {
    let named = config.get(&keys::HTTP_PRINCIPAL);
    let Some(mut named) = named.filter(|named| named != "*") else {
        return Ok(None);
    };
    if names_host(&named) {
        let bound = config.get(&keys::DATANODE_HTTP_ADDRESS).host;
        let any = bound
            .parse()
            .is_ok_and(|bound: IpAddr| bound.is_unspecified());
        let host = if any {
            canonical(system_host_name()).await
        } else {
            bound
        };
        named = for_host(&named, &host);
    }
    if !named.contains('@') {
        named = in_realm(named, &default_realm()?);
    }
    Ok(Some(named))
}

/// Whether a caller from `address` that proved to be `principal` is the `DataNode` there.
pub async fn is_datanode(config: &Configuration, principal: &str, address: IpAddr) -> bool {
    let there = datanode_at(config, address).await;
    there.is_some_and(|there| there == principal)
}

/// The principal of the `DataNode` at an address; `None` without Kerberos.
pub async fn datanode_at(config: &Configuration, address: IpAddr) -> Option<String> {
    let configured = config.get(&keys::DATANODE_PRINCIPAL)?;
    let own = node_principal(config)?;
    let realm = own.rsplit_once('@').map_or("", |(_, realm)| realm);
    Some(principal_at(&configured, address.to_canonical(), realm).await)
}

/// The short names of callers (`hadoop.security.auth_to_local`).
///
/// # Errors
/// A rule cannot be used, or krb5.conf names no realm; with what to do.
pub fn name_rules(config: &Configuration) -> Result<NameRules, String> {
    rules(config, &default_realm()?)
}

fn rules(config: &Configuration, realm: &str) -> Result<NameRules, String> {
    let rules = config.get(&keys::AUTH_TO_LOCAL).unwrap_or_default();
    let mechanism = config.get(&keys::AUTH_TO_LOCAL_MECHANISM);
    NameRules::parse(&rules, &mechanism, realm)
        .map_err(|why| format!("{}: {why}", keys::AUTH_TO_LOCAL.name()))
}

/// Refuses what no call could be made with, or whose callers would all be refused. No file is
/// read.
///
/// # Errors
/// Which key is wrong, and how.
pub fn refuse_unusable(config: &Configuration) -> Result<(), String> {
    if !config.has_kerberos() {
        return Ok(());
    }
    refuse_unusable_calls(config)?;
    rules(config, "").map(drop)
}

fn refuse_unusable_calls(config: &Configuration) -> Result<(), String> {
    RpcQuality::list(&config.get(&keys::RPC_PROTECTION))?;
    let (principal, pattern) = NAMENODE;
    match pattern.and_then(|key| config.get(key)) {
        Some(pattern) => usable_pattern(&pattern),
        None if config.get(principal).is_some() => Ok(()),
        None => Err(format!(
            "{} is kerberos, but {} is not set: no NameNode is called whose principal is not \
             known, as nn/_HOST@REALM",
            keys::SECURITY_AUTHENTICATION.name(),
            principal.name()
        )),
    }
}

fn node_login(config: &Configuration) -> Option<Arc<KerberosLogin>> {
    let principal = node_principal(config)?;
    let path = PathBuf::from(config.get(&keys::DATANODE_KEYTAB)?);
    Some(KerberosLogin::from(LoginSource::Keytab { principal, path }))
}

/// Logs a node in, before it does anything else. Gives back the login, to be kept fresh.
///
/// # Errors
/// Why it cannot log in, and what to do about it; or what [`refuse_unusable`] and [`name_rules`]
/// refuse.
pub async fn log_node_in(config: &Configuration) -> Result<Option<Arc<KerberosLogin>>, String> {
    if !config.has_kerberos() {
        return Ok(None);
    }
    refuse_unusable(config)?;
    name_rules(config)?;
    find_host(config).await;
    let login = node_login(config).ok_or_else(|| {
        format!(
            "{} and {} have to be set",
            keys::DATANODE_PRINCIPAL.name(),
            keys::DATANODE_KEYTAB.name()
        )
    })?;
    login.check().await?;
    Ok(Some(login))
}

/// How a node proves to NameNodes who it is.
#[must_use]
pub fn node_to_namenodes(config: &Configuration) -> Option<RpcSecurity> {
    config
        .has_kerberos()
        .then(|| of(config, node_login(config), NAMENODE))
}

/// How a node proves to other nodes who it is.
#[must_use]
pub fn node_to_nodes(config: &Configuration) -> Option<RpcSecurity> {
    config.has_kerberos().then(|| {
        of(
            config,
            node_login(config),
            (&keys::DATANODE_PRINCIPAL, None),
        )
    })
}

/// How a command proves to NameNodes who runs it: with the ticket that `kinit` got.
///
/// # Errors
/// A value of `hadoop.rpc.protection` that is none, or a pattern that is not served.
pub fn command_to_namenodes(config: &Configuration) -> Result<Option<RpcSecurity>, String> {
    if !config.has_kerberos() {
        return Ok(None);
    }
    refuse_unusable_calls(config)?;
    Ok(Some(of(config, None, NAMENODE)))
}

/// How a command on a node's host proves to NameNodes who runs it: with the ticket that `kinit`
/// got, else as the node itself with its keytab.
///
/// # Errors
/// Neither is of use, and what to do; or as [`command_to_namenodes`].
pub async fn command_or_node_to_namenodes(
    config: &Configuration,
) -> Result<Option<RpcSecurity>, String> {
    let Some(by_ticket) = command_to_namenodes(config)? else {
        return Ok(None);
    };
    let Err(no_ticket) = by_ticket.login.check().await else {
        return Ok(Some(by_ticket));
    };
    match log_node_in(config).await {
        Ok(_) => Ok(node_to_namenodes(config)),
        Err(no_key) => Err(format!(
            "neither a ticket nor the node's keytab can be used: run kinit as a superuser of HDFS, \
             or run this as a user who may read {}. Of the ticket: {no_ticket}. Of the keytab: \
             {no_key}",
            config.get(&keys::DATANODE_KEYTAB).unwrap_or_default()
        )),
    }
}

/// With what callers of a node's RPC port have to prove who they are.
#[must_use]
pub fn node_for_callers(config: &Configuration) -> Option<Arc<RpcServerSecurity>> {
    // Without a principal no caller gets through; the start has refused that.
    config.has_kerberos().then(|| {
        Arc::new(RpcServerSecurity {
            principal: node_principal(config).unwrap_or_default(),
            keytab: config
                .get(&keys::DATANODE_KEYTAB)
                .unwrap_or_default()
                .into(),
            qualities: qualities(config),
        })
    })
}

/// The keys that say whom a server has to be: its principal, and a pattern for it.
type ServerKeys = (
    &'static Key<Option<String>>,
    Option<&'static Key<Option<String>>>,
);

/// Those of NameNodes.
static NAMENODE: ServerKeys = (
    &keys::NAMENODE_PRINCIPAL,
    Some(&keys::NAMENODE_PRINCIPAL_PATTERN),
);

fn of(
    config: &Configuration,
    login: Option<Arc<KerberosLogin>>,
    (server, pattern): ServerKeys,
) -> RpcSecurity {
    RpcSecurity {
        login: login.unwrap_or_else(|| KerberosLogin::from(LoginSource::TicketCache)),
        server: ServerPrincipal {
            key: server.name(),
            principal: config.get(server),
            pattern: pattern.and_then(|key| config.get(key)),
        },
        qualities: qualities(config),
    }
}

/// What protects RPC (`hadoop.rpc.protection`), the most wanted first. None at all for a value that
/// is none: then no connection is made. The start has refused it.
#[must_use]
pub fn qualities(config: &Configuration) -> Arc<[RpcQuality]> {
    RpcQuality::list(&config.get(&keys::RPC_PROTECTION))
        .unwrap_or_default()
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(more: &[(&str, &str)]) -> Configuration {
        let base = [
            ("hadoop.security.authentication", "kerberos"),
            ("dfs.datanode.kerberos.principal", "dn/_HOST@R"),
            ("dfs.datanode.keytab.file", "/k"),
            ("dfs.datanode.hostname", "Node.Example"),
            ("dfs.namenode.kerberos.principal", "nn/_HOST@R"),
        ];
        let all = base.into_iter().chain(more.iter().copied());
        Configuration::from_properties(all).expect("valid")
    }

    #[test]
    fn without_kerberos_there_is_no_login() {
        let simple = config(&[("hadoop.security.authentication", "simple")]);
        assert_eq!(node_principal(&simple), None);
        assert!(node_to_namenodes(&simple).is_none() && node_for_callers(&simple).is_none());
        assert!(command_to_namenodes(&simple).expect("valid").is_none());
    }

    #[tokio::test]
    async fn the_web_port_has_the_principal_of_its_own_address() {
        let named = "hadoop.http.authentication.kerberos.principal";
        let plain = "dfs.datanode.http.address";
        for (more, is) in [
            (vec![], None),
            (vec![(named, "*")], None),
            (vec![(named, "HTTP/here@R")], Some("HTTP/here@R")),
            (
                vec![(named, "HTTP/_HOST@R"), (plain, "Web.example:9864")],
                Some("HTTP/web.example@R"),
            ),
        ] {
            let found = web_principal(&config(&more)).await.expect("a realm");
            assert_eq!(found.as_deref(), is, "{more:?}");
        }
        let any = config(&[(named, "HTTP/_HOST@R"), (plain, "0.0.0.0:9864")]);
        let found = web_principal(&any).await.expect("a realm");
        let found = found.unwrap_or_default();
        assert!(
            found.ends_with("@R") && !found.contains("_HOST") && !found.contains("0.0.0.0"),
            "{found}"
        );
    }

    #[test]
    fn a_node_is_named_after_its_host_and_nodes_share_a_login() {
        let config = config(&[("hadoop.rpc.protection", "privacy,integrity")]);
        assert_eq!(
            node_principal(&config).as_deref(),
            Some("dn/node.example@R")
        );
        let one = node_to_namenodes(&config).expect("Kerberos");
        let other = node_to_nodes(&config).expect("Kerberos");
        assert!(Arc::ptr_eq(&one.login, &other.login));
        assert_eq!(one.server.principal.as_deref(), Some("nn/_HOST@R"));
        assert_eq!(other.server.principal.as_deref(), Some("dn/_HOST@R"));
        assert_eq!(*one.qualities, [RpcQuality::Privacy, RpcQuality::Integrity]);
    }

    #[test]
    fn each_virtual_node_is_named_after_its_own_host() {
        let _of_the_process = HOST.set("first.example".to_owned());
        let other = config(&[("dfs.datanode.hostname", "second.example")]);
        assert_eq!(
            node_principal(&other).as_deref(),
            Some("dn/second.example@R")
        );
        let without = config(&[("dfs.datanode.hostname", "")]);
        assert_eq!(
            node_principal(&without).as_deref(),
            Some("dn/first.example@R")
        );
    }

    #[tokio::test]
    async fn other_nodes_are_known_by_principal_and_address() {
        let local = IpAddr::from([127, 0, 0, 1]);
        let by_host = config(&[]);
        let here = for_host("dn/_HOST@R", &name_of(local).await);
        assert!(is_datanode(&by_host, &here, local).await);
        assert!(!is_datanode(&by_host, "dn/elsewhere@R", local).await);
        assert!(!is_datanode(&by_host, "ann@R", local).await);
        let literal = config(&[("dfs.datanode.kerberos.principal", "dn/all@R")]);
        assert!(is_datanode(&literal, "dn/all@R", local).await);
    }

    #[test]
    fn what_would_refuse_all_callers_and_all_servers_is_refused() {
        assert_eq!(refuse_unusable(&config(&[])), Ok(()));
        for (key, value) in [
            ("hadoop.security.auth_to_local", "RULE:[1:$1]s/(?<=a)b//"),
            ("hadoop.security.auth_to_local.mechanism", "other"),
            ("hadoop.rpc.protection", "auth"),
            ("dfs.namenode.kerberos.principal.pattern", "nn/{a,b}@R"),
        ] {
            assert!(refuse_unusable(&config(&[(key, value)])).is_err(), "{key}");
        }
        let pattern = ("dfs.namenode.kerberos.principal.pattern", "nn/[ab]@R");
        assert!(command_to_namenodes(&config(&[pattern])).is_err());
        let none = ("dfs.namenode.kerberos.principal", "");
        assert!(command_to_namenodes(&config(&[none])).is_err());
        let like = ("dfs.namenode.kerberos.principal.pattern", "nn/*@R");
        assert!(command_to_namenodes(&config(&[none, like])).is_ok());
    }

    #[test]
    fn a_protection_that_is_none_lets_nothing_through() {
        let config = config(&[("hadoop.rpc.protection", "auth")]);
        assert!(command_to_namenodes(&config).is_err());
        assert!(
            node_to_namenodes(&config)
                .expect("Kerberos")
                .qualities
                .is_empty()
        );
    }
}
