//! Service-level authorization: who may open connections to which protocol, and from where.
//!
//! With `hadoop.security.authorization`, the lists of `hadoop-policy.xml` count. They are read
//! once, when the node starts: Apache's `DataNode` has no `RefreshAuthorizationPolicyProtocol`
//! either, so `dfsadmin -refreshServiceAcl` is for `NameNodes`.

use std::net::IpAddr;

use hayloft_client::login;
use hayloft_conf::{Configuration, SharedConfig, keys};
use hayloft_rpc::log_limit::words;
use hayloft_rpc::server::Caller;
use hayloft_wire::rpc::names;
use tracing::warn;

use super::permissions::Users;
use crate::security::{AccessList, FoundHosts, HostList};

/// The file with the lists, in the directory of the configuration.
const FILE: &str = "hadoop-policy.xml";
/// What counts for a protocol that has no list of its own.
const DEFAULT: &str = "security.service.authorization.default";

/// The class that tells the groups of users.
const GROUP_MAPPING: &str = "hadoop.security.group.mapping";
/// Its values, by a part of their names, that ask the system, and for no netgroups.
const OF_THE_SYSTEM: [&str; 2] = ["ShellBasedUnixGroupsMapping", "JniBasedUnixGroupsMapping"];

/// The protocols that this port serves, with their keys but for the end `.acl`.
const SERVED: [(&str, &str); 3] = [
    (
        names::CLIENT_DATANODE_PROTOCOL.name,
        "security.client.datanode.protocol",
    ),
    (
        names::INTER_DATANODE_PROTOCOL.name,
        "security.inter.datanode.protocol",
    ),
    (
        names::RECONFIGURATION_PROTOCOL.name,
        "security.reconfiguration.protocol",
    ),
];

/// Protocols of other servers that Hadoop's `HDFSPolicyProvider` knows. Apache's node lets them
/// connect, and has none of their methods.
const OF_OTHERS: [(&str, &str); 13] = [
    (
        "org.apache.hadoop.hdfs.protocol.ClientProtocol",
        "security.client.protocol",
    ),
    (
        "org.apache.hadoop.hdfs.server.protocol.DatanodeProtocol",
        "security.datanode.protocol",
    ),
    (
        "org.apache.hadoop.hdfs.server.protocol.NamenodeProtocol",
        "security.namenode.protocol",
    ),
    (
        "org.apache.hadoop.hdfs.qjournal.protocol.QJournalProtocol",
        "security.qjournal.service.protocol",
    ),
    (
        "org.apache.hadoop.hdfs.qjournal.protocol.InterQJournalProtocol",
        "security.interqjournal.service.protocol",
    ),
    (
        "org.apache.hadoop.ha.HAServiceProtocol",
        "security.ha.service.protocol",
    ),
    (
        "org.apache.hadoop.ha.ZKFCProtocol",
        "security.zkfc.protocol",
    ),
    (
        "org.apache.hadoop.security.authorize.RefreshAuthorizationPolicyProtocol",
        "security.refresh.policy.protocol",
    ),
    (
        "org.apache.hadoop.security.RefreshUserMappingsProtocol",
        "security.refresh.user.mappings.protocol",
    ),
    (
        "org.apache.hadoop.tools.GetUserMappingsProtocol",
        "security.get.user.mappings.protocol",
    ),
    (
        "org.apache.hadoop.ipc.RefreshCallQueueProtocol",
        "security.refresh.callqueue.protocol",
    ),
    (
        "org.apache.hadoop.ipc.GenericRefreshProtocol",
        "security.refresh.generic.protocol",
    ),
    (
        "org.apache.hadoop.hdfs.server.protocol.DatanodeLifelineProtocol",
        "security.datanode.lifeline.protocol",
    ),
];

/// Who may use which protocol.
#[derive(Debug)]
pub struct ServicePolicy {
    config: SharedConfig,
    /// [`SERVED`], then [`OF_OTHERS`].
    protocols: Vec<OfProtocol>,
}

#[derive(Debug)]
struct OfProtocol {
    name: &'static str,
    users: AccessList,
    blocked_users: AccessList,
    hosts: HostList,
    blocked_hosts: HostList,
}

impl ServicePolicy {
    /// Reads the lists; `None` where everyone may do what the methods allow.
    ///
    /// # Errors
    /// Which file, key and value cannot be used, and why.
    pub async fn load(config: &SharedConfig) -> Result<Option<Self>, String> {
        let current = config.current();
        if !current.get(&keys::SECURITY_AUTHORIZATION) {
            return Ok(None);
        }
        // A disk that hangs holds up this start alone.
        let read = tokio::task::spawn_blocking(move || -> Result<Vec<OfProtocol>, String> {
            let file = policy_file()?;
            let policy = current.over(&file).map_err(|error| error.to_string())?;
            if !current.has_file(&file) {
                warn!(
                    "{} is true and there is no {file}: every user may call this node",
                    keys::SECURITY_AUTHORIZATION.name()
                );
            }
            let protocols = SERVED
                .iter()
                .chain(&OF_OTHERS)
                .map(|(name, key)| OfProtocol::read(&policy, name, key))
                .collect::<Result<Vec<_>, String>>()?;
            refuse_groups_of_others(&current, &protocols)?;
            Ok(protocols)
        });
        let mut protocols = read.await.map_err(|error| error.to_string())??;
        let mut found = FoundHosts::new();
        for protocol in &mut protocols {
            for host in protocol.hosts.resolve(&mut found).await {
                let protocol = protocol.name;
                warn!(host, protocol, "{FILE} lets a host in that has no address");
            }
            if let [host, ..] = &protocol.blocked_hosts.resolve(&mut found).await[..] {
                return Err(format!(
                    "{FILE} blocks the host {host}, which has no address: mend the name, or give \
                     its address"
                ));
            }
        }
        Ok(Some(Self {
            config: config.clone(),
            protocols,
        }))
    }

    /// Whether a caller may use a protocol.
    ///
    /// # Errors
    /// What Apache's node would say.
    pub(super) async fn authorize(
        &self,
        caller: &Caller,
        protocol: Option<&str>,
        users: &Users,
    ) -> Result<(), String> {
        let Some(protocol) = protocol else {
            return Err("Null protocol not authorized".to_owned());
        };
        let of_protocol = self.protocols.iter().find(|of| of.name == protocol);
        let Some(lists) = of_protocol else {
            return Err(format!("Unknown protocol: {}", words(protocol)));
        };
        let address = caller.address.ip();
        let expected = self.expected(protocol, address).await;
        let user = caller.user.as_deref().unwrap_or_default();
        let is_expected = expected.as_deref().is_none_or(|name| name == user);
        if !(is_expected && lists.allow(caller, users).await) {
            let why = expected.map_or_else(
                || ": denied by configured ACL".to_owned(),
                |name| format!(": this service is only accessible by {name}"),
            );
            return Err(format!(
                "User {} is not authorized for protocol interface {protocol}{why}",
                self.described(caller)
            ));
        }
        if !lists.hosts.has(address) || lists.blocked_hosts.has(address) {
            return Err(format!(
                "Host {} is not authorized for protocol interface {protocol}",
                address.to_canonical()
            ));
        }
        Ok(())
    }

    /// With Kerberos, who alone may use the protocol of `DataNodes` from an address.
    async fn expected(&self, protocol: &str, address: IpAddr) -> Option<String> {
        if protocol != names::INTER_DATANODE_PROTOCOL.name {
            return None;
        }
        login::datanode_at(&self.config.current(), address).await
    }

    /// A caller as Java writes it.
    fn described(&self, caller: &Caller) -> String {
        let kerberos = self.config.current().has_kerberos();
        let proof = if kerberos { "KERBEROS" } else { "SIMPLE" };
        let user = words(caller.user.as_deref().unwrap_or_default());
        match &caller.real_user {
            None => format!("{user} (auth:{proof})"),
            Some(real) => format!("{user} (auth:PROXY) via {} (auth:{proof})", words(real)),
        }
    }
}

/// Refuses lists that keep groups out which this node does not know as Apache's does: their members
/// would come in. The groups of lists that let users in are only warned about.
fn refuse_groups_of_others(config: &Configuration, protocols: &[OfProtocol]) -> Result<(), String> {
    let Some(class) = config.text(GROUP_MAPPING) else {
        return Ok(());
    };
    if OF_THE_SYSTEM.iter().any(|name| class.contains(name)) {
        return Ok(());
    }
    let blocked = protocols.iter().find_map(|of| match &of.blocked_users {
        AccessList::Named { groups, .. } => groups.iter().next(),
        AccessList::Everyone => None,
    });
    let Some(group) = blocked else { return Ok(()) };
    Err(format!(
        "{FILE} keeps the group {} out, and {GROUP_MAPPING} is {}: groups are those of this \
         system here. Have the system know them, as by SSSD, and set {GROUP_MAPPING} to \
         ShellBasedUnixGroupsMapping for this node; or block users",
        words(group),
        words(&class)
    ))
}

/// The name of the file with the lists. Hadoop's scripts give it by a property of the JVM.
fn policy_file() -> Result<String, String> {
    let name = std::env::var("HADOOP_POLICYFILE").unwrap_or_default();
    match &*name {
        "" => Ok(FILE.to_owned()),
        name if name.contains('/') => Err(format!(
            "HADOOP_POLICYFILE is {name}: name a file of the configuration's directory, without it"
        )),
        name => Ok(name.to_owned()),
    }
}

impl OfProtocol {
    fn read(policy: &Configuration, name: &'static str, key: &str) -> Result<Self, String> {
        let hosts = |end, otherwise| read(policy, (key, end), otherwise, HostList::parse);
        let users = |end, otherwise| read(policy, (key, end), otherwise, AccessList::parse);
        Ok(Self {
            name,
            users: users("acl", "*")?,
            blocked_users: users("acl.blocked", "")?,
            hosts: hosts("hosts", "*")?,
            blocked_hosts: hosts("hosts.blocked", "")?,
        })
    }

    async fn allow(&self, caller: &Caller, users: &Users) -> bool {
        // Where groups are not known, neither list lets anyone in.
        users.in_list(caller, &self.users).await == Some(true)
            && users.in_list(caller, &self.blocked_users).await == Some(false)
    }
}

/// Reads the list of a key, else that of the default's key, else `otherwise`.
fn read<T>(
    policy: &Configuration,
    (key, end): (&str, &str),
    otherwise: &str,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<T, String> {
    for key in [format!("{key}.{end}"), format!("{DEFAULT}.{end}")] {
        let text = policy.untrimmed(&key).map_err(|error| error.to_string())?;
        if let Some(text) = text {
            return parse(&text).map_err(|allowed| {
                format!(
                    "{key} ({}) is {text:?}; allowed: {allowed}",
                    policy.origin(&key)
                )
            });
        }
    }
    parse(otherwise)
}

#[cfg(test)]
#[path = "service_policy_tests.rs"]
mod tests;
