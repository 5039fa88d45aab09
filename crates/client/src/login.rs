//! Who a node or a command is to servers of Hadoop, by the configuration.
//!
//! Without Kerberos everything here is `None`, and servers believe what they are told.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use hayloft_conf::{Configuration, Key, keys};
use hayloft_rpc::security::{for_host, name_of, names_host};
use hayloft_rpc::server::RpcServerSecurity;
use hayloft_rpc::{KerberosLogin, LoginSource, RpcQuality, RpcSecurity, ServerPrincipal};

/// The name for `_HOST` in this process, once [`find_host`] has found it.
static HOST: OnceLock<String> = OnceLock::new();

/// Finds this host's name for `_HOST`: `dfs.datanode.hostname`, else what DNS makes of the
/// system's name. The first name found counts for the whole process.
pub async fn find_host(config: &Configuration) {
    let wanted = config.get(&keys::DATANODE_PRINCIPAL);
    if !config.has_kerberos() || !wanted.is_some_and(|principal| names_host(&principal)) {
        return;
    }
    let host = match config.get(&keys::DATANODE_HOSTNAME) {
        Some(host) => host,
        None => canonical(system_host_name()).await,
    };
    let _first = HOST.set(host);
}

/// The full name of a host: what its address is called.
async fn canonical(name: String) -> String {
    let found = tokio::net::lookup_host((name.as_str(), 0)).await;
    let address = found.ok().and_then(|mut found| found.next());
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

/// The node's principal with its host, if it has Kerberos.
#[must_use]
pub fn node_principal(config: &Configuration) -> Option<String> {
    let principal = config.get(&keys::DATANODE_PRINCIPAL);
    let principal = principal.filter(|_| config.has_kerberos())?;
    let host = HOST
        .get()
        .cloned()
        .or_else(|| config.get(&keys::DATANODE_HOSTNAME));
    Some(for_host(&principal, &host.unwrap_or_else(system_host_name)))
}

fn node_login(config: &Configuration) -> Option<Arc<KerberosLogin>> {
    let principal = node_principal(config)?;
    let path = PathBuf::from(config.get(&keys::DATANODE_KEYTAB)?);
    Some(KerberosLogin::from(LoginSource::Keytab { principal, path }))
}

/// Logs the node in, before it does anything else. Gives back its full principal.
///
/// # Errors
/// Why it cannot log in, and what to do about it; or a value of `hadoop.rpc.protection` that is
/// none.
pub async fn log_node_in(config: &Configuration) -> Result<Option<String>, String> {
    if !config.has_kerberos() {
        return Ok(None);
    }
    RpcQuality::list(&config.get(&keys::RPC_PROTECTION))?;
    find_host(config).await;
    let login = node_login(config).ok_or_else(|| {
        format!(
            "{} and {} have to be set",
            keys::DATANODE_PRINCIPAL.name(),
            keys::DATANODE_KEYTAB.name()
        )
    })?;
    login.check().await.map(Some)
}

/// Renews the node's login in time. Ends at once without Kerberos, and never with it.
pub async fn keep_node_logged_in(config: &Configuration) {
    if let Some(login) = node_login(config) {
        login.keep_fresh().await;
    }
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
/// A value of `hadoop.rpc.protection` that is none.
pub fn command_to_namenodes(config: &Configuration) -> Result<Option<RpcSecurity>, String> {
    if !config.has_kerberos() {
        return Ok(None);
    }
    RpcQuality::list(&config.get(&keys::RPC_PROTECTION))?;
    Ok(Some(of(config, None, NAMENODE)))
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

/// None at all for a value that is none: then no connection is made. The start has refused it.
fn qualities(config: &Configuration) -> Arc<[RpcQuality]> {
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
