//! Who may do what: the superuser check of administrative calls, and acting for other users.

use std::net::IpAddr;

use tracing::debug;

use hayloft_client::login;
use hayloft_conf::{SharedConfig, keys};
use hayloft_rpc::current_user;
use hayloft_rpc::log_limit::words;
use hayloft_rpc::server::Caller;
use hayloft_rpc::server::fault::{RpcFault, java};

use crate::security::{AccessList, FoundHosts, HostList, ShortNames, UserGroups};

/// Decides about callers.
#[derive(Debug)]
pub(super) struct Users {
    config: SharedConfig,
    /// The user of this process, or with Kerberos its full principal; it may do everything. As in
    /// Apache's node, other nodes' principals of the same short name may not.
    node_user: String,
    names: ShortNames,
    groups: UserGroups,
}

impl Users {
    pub(super) fn new(config: SharedConfig) -> Self {
        let current = config.current();
        Self {
            node_user: login::node_principal(&current).unwrap_or_else(current_user),
            names: ShortNames::new(&current),
            groups: UserGroups::new(config.clone()),
            config,
        }
    }

    /// The user of the node and members of `dfs.permissions.superusergroup` pass, and every user
    /// when `dfs.permissions.enabled` is false. Who is known by a block token alone does not.
    pub(super) async fn require_superuser(&self, caller: &Caller) -> Result<(), RpcFault> {
        let config = self.config.current();
        if caller.token.is_none() && !config.get(&keys::PERMISSIONS_ENABLED) {
            return Ok(());
        }
        let user = caller.user.as_deref().filter(|_| caller.token.is_none());
        let Some(user) = user.and_then(|user| self.names.of(user).ok()) else {
            return Err(RpcFault::access_denied("Permission denied."));
        };
        let named = match &self.names {
            ShortNames::Cut => Some(&user),
            ShortNames::Rules(_) => caller.user.as_ref(),
        };
        if named == Some(&self.node_user) {
            return Ok(());
        }
        let supergroup = config.get(&keys::SUPERUSER_GROUP);
        if self.groups.of(&user).await.contains(&supergroup) {
            return Ok(());
        }
        debug!(user, supergroup, "an administrative call was refused");
        Err(RpcFault::access_denied("Permission denied."))
    }

    /// With Kerberos, replicas are recovered by other `DataNodes` alone. Apache's node checks that
    /// with `hadoop.security.authorization` only.
    pub(super) async fn require_datanode(&self, caller: &Caller) -> Result<(), RpcFault> {
        if let ShortNames::Cut = self.names {
            return Ok(());
        }
        // No ticket, no principal: a token has the user's name alone.
        let user = caller.user.as_deref().unwrap_or_default();
        let address = caller.address.ip();
        let config = self.config.current();
        let by_ticket = caller.real_user.is_none() && caller.token.is_none();
        if by_ticket && login::is_datanode(&config, user, address).await {
            return Ok(());
        }
        Err(RpcFault::application(
            java::AUTHORIZATION,
            format!(
                "User {user} at {address} is not authorized for InterDatanodeProtocol: this \
                 service is only accessible by {}",
                config.get(&keys::DATANODE_PRINCIPAL).unwrap_or_default()
            ),
        ))
    }

    /// The short name of a caller's user; `None` when it has none.
    pub(super) fn short_name(&self, caller: &Caller) -> Option<String> {
        caller
            .user
            .as_deref()
            .and_then(|user| self.names.of(user).ok())
    }

    /// Whether the caller may act for the user it names, by `hadoop.proxyuser.*`.
    pub(super) async fn may_connect(&self, caller: &Caller) -> Result<(), String> {
        if caller.token.is_some() {
            return Ok(());
        }
        let (Some(user), Some(real)) = (&caller.user, &caller.real_user) else {
            // A caller without a short name cannot be anyone here.
            let named = caller.user.as_deref().map(|user| self.names.of(user));
            return named.transpose().map(drop);
        };
        let (short_user, short_real) = (self.names.of(user)?, self.names.of(real)?);
        let config = self.config.current();
        let rule = |what: &str| {
            config
                .text(&format!("hadoop.proxyuser.{short_real}.{what}"))
                .unwrap_or_default()
        };
        let allowed_user = listed(&rule("users"), &short_user);
        if !allowed_user && !self.in_any_group(&short_user, &rule("groups")).await {
            let (user, real) = (words(user), words(real));
            return Err(format!("User: {real} is not allowed to impersonate {user}"));
        }
        let address = caller.address.ip().to_canonical();
        if from_allowed_host(&rule("hosts"), address).await {
            return Ok(());
        }
        let real = words(real);
        Err(format!(
            "Unauthorized connection for super-user: {real} from IP /{address}"
        ))
    }

    async fn in_any_group(&self, user: &str, allowed: &str) -> bool {
        if allowed.trim().is_empty() {
            return false;
        }
        if allowed.trim() == "*" {
            return true;
        }
        let groups = self.groups.of(user).await;
        groups.iter().any(|group| listed(allowed, group))
    }

    /// Whether a list has the user that a caller acts as; `None` where its groups are unknown.
    pub(super) async fn in_list(&self, caller: &Caller, list: &AccessList) -> Option<bool> {
        match self.short_name(caller) {
            Some(user) => {
                list.has(&user, caller.real_user.is_some(), &self.groups)
                    .await
            }
            None => Some(*list == AccessList::Everyone),
        }
    }
}

/// Whether a comma-separated list has the name, or is `*`.
fn listed(list: &str, name: &str) -> bool {
    list.trim() == "*" || list.split(',').any(|entry| entry.trim() == name)
}

/// Hosts are addresses, networks or names, looked up when no address or network fits. A list that
/// cannot be read has none.
async fn from_allowed_host(allowed: &str, address: IpAddr) -> bool {
    let mut hosts = match HostList::parse(allowed) {
        Ok(hosts) => hosts,
        Err(why) => {
            debug!(allowed, "a list of hosts of hadoop.proxyuser takes {why}");
            return false;
        }
    };
    if hosts.has(address) {
        return true;
    }
    let _unknown = hosts.resolve(&mut FoundHosts::new()).await;
    hosts.has(address)
}

#[cfg(test)]
mod tests {
    use hayloft_conf::Configuration;
    use hayloft_rpc::security::name_rules::NameRules;

    use super::*;

    fn users(properties: &[(&str, &str)]) -> Users {
        let config = Configuration::from_properties(properties.iter().copied()).expect("valid");
        Users {
            node_user: "hdfs".to_owned(),
            ..Users::new(SharedConfig::new(config))
        }
    }

    fn caller(user: &str, real: Option<&str>) -> Caller {
        Caller {
            user: Some(user.to_owned()),
            real_user: real.map(str::to_owned),
            protocol: None,
            token: None,
            address: ([127, 0, 0, 1], 50_000).into(),
        }
    }

    #[tokio::test]
    async fn the_node_user_and_the_supergroup_are_superusers() {
        let users = users(&[
            ("dfs.permissions.superusergroup", "admins"),
            (keys::STATIC_GROUPS.name(), "ann=staff,admins;bob=staff;"),
        ]);
        assert!(users.require_superuser(&caller("hdfs", None)).await.is_ok());
        assert!(users.require_superuser(&caller("ann", None)).await.is_ok());
        assert!(
            users
                .require_superuser(&caller("ann@REALM", None))
                .await
                .is_ok()
        );
        let refused = users.require_superuser(&caller("bob", None)).await;
        assert_eq!(refused, Err(RpcFault::access_denied("Permission denied.")));
        let unnamed = Caller {
            user: None,
            ..caller("x", None)
        };
        assert!(users.require_superuser(&unnamed).await.is_err());
        let by_token = Caller {
            token: Some(std::sync::Arc::default()),
            ..caller("hdfs", None)
        };
        assert!(users.require_superuser(&by_token).await.is_err());
    }

    #[tokio::test]
    async fn refusals_repeat_few_words_of_strangers() {
        let long = format!("x\n{}", "y".repeat(10_000));
        let refused = users(&[]).may_connect(&caller(&long, Some(&long))).await;
        let told = refused.expect_err("no proxy user");
        assert!(told.contains("not allowed to impersonate"), "{told}");
        assert!(told.len() < 500 && !told.contains('\n'), "{told}");
        let from_nowhere = [("hadoop.proxyuser.ann.users", "*")];
        let ann = format!("ann@{long}");
        let (users, caller) = (users(&from_nowhere), caller("bob", Some(&ann)));
        let refused = users.may_connect(&caller).await;
        let told = refused.expect_err("no host");
        assert!(told.contains("Unauthorized connection"), "{told}");
        assert!(told.len() < 500 && !told.contains('\n'), "{told}");
    }

    /// What a node `dn/here@R` makes of callers that proved who they are.
    fn secure_users() -> Users {
        let rules = NameRules::parse("DEFAULT", "hadoop", "R").expect("rules");
        Users {
            node_user: "dn/here@R".to_owned(),
            names: ShortNames::Rules(Ok(rules)),
            ..users(&[
                ("hadoop.security.authentication", "kerberos"),
                ("dfs.datanode.kerberos.principal", "dn/here@R"),
                ("dfs.permissions.superusergroup", "admins"),
                (keys::STATIC_GROUPS.name(), "ann=admins;dn=users;bob=users"),
            ])
        }
    }

    #[tokio::test]
    async fn the_key_of_another_node_administers_nothing() {
        let users = secure_users();
        for (user, may) in [
            ("dn/here@R", true),
            ("ann@R", true),
            ("dn/other@R", false),
            ("dn@R", false),
            ("dn", false),
            ("dn/here@ELSEWHERE", false),
        ] {
            let heard = users.require_superuser(&caller(user, None)).await;
            assert_eq!(heard.is_ok(), may, "{user}");
        }
    }

    #[tokio::test]
    async fn nodes_alone_recover_replicas() {
        let users = secure_users();
        assert!(
            users
                .require_datanode(&caller("dn/here@R", None))
                .await
                .is_ok()
        );
        for other in [
            caller("ann@R", None),
            caller("dn/other@R", None),
            caller("dn/here@R", Some("gate@R")),
        ] {
            let refused = users.require_datanode(&other).await.unwrap_err();
            assert_eq!(refused.class, java::AUTHORIZATION);
        }
    }

    #[tokio::test]
    async fn without_permissions_every_user_is() {
        let users = users(&[("dfs.permissions.enabled", "false")]);
        let anyone = caller("anyone", None);
        assert!(users.require_superuser(&anyone).await.is_ok());
        let by_token = Caller {
            token: Some(std::sync::Arc::default()),
            ..anyone
        };
        assert!(users.require_superuser(&by_token).await.is_err());
    }

    #[tokio::test]
    async fn groups_come_from_the_system() {
        let users = users(&[("dfs.permissions.superusergroup", "root")]);
        assert!(users.require_superuser(&caller("root", None)).await.is_ok());
        assert!(
            users
                .require_superuser(&caller("no-such-user-here", None))
                .await
                .is_err()
        );
        assert!(
            users
                .require_superuser(&caller("--version", None))
                .await
                .is_err()
        );
    }

    #[tokio::test]
    async fn proxy_users_need_user_and_host() {
        let users = users(&[
            ("hadoop.proxyuser.gate.users", "ann, bob"),
            ("hadoop.proxyuser.gate.hosts", "10.0.0.1,127.0.0.1"),
            ("hadoop.proxyuser.far.groups", "*"),
            ("hadoop.proxyuser.far.hosts", "10.0.0.1"),
            ("hadoop.proxyuser.near.groups", "*"),
            ("hadoop.proxyuser.near.hosts", "10.0.0.1, 127.0.0.0/8"),
            ("hadoop.proxyuser.named.users", "ann"),
            ("hadoop.proxyuser.named.hosts", "localhost"),
            ("hadoop.proxyuser.odd.users", "ann"),
            ("hadoop.proxyuser.odd.hosts", "127.0.0.0/99"),
        ]);
        assert!(users.may_connect(&caller("zoe", None)).await.is_ok());
        for (real, may) in [("near", true), ("named", true), ("odd", false)] {
            let heard = users.may_connect(&caller("ann", Some(real))).await;
            assert_eq!(heard.is_ok(), may, "{real}: {heard:?}");
        }
        assert!(
            users
                .may_connect(&caller("ann", Some("gate")))
                .await
                .is_ok()
        );
        assert_eq!(
            users.may_connect(&caller("zoe", Some("gate"))).await,
            Err("User: gate is not allowed to impersonate zoe".to_owned())
        );
        assert_eq!(
            users.may_connect(&caller("ann", Some("far"))).await,
            Err("Unauthorized connection for super-user: far from IP /127.0.0.1".to_owned())
        );
        // As a port for both kinds of addresses has it.
        let mapped = Caller {
            address: "[::ffff:127.0.0.1]:50000".parse().expect("an address"),
            ..caller("ann", Some("gate"))
        };
        assert!(users.may_connect(&mapped).await.is_ok());
    }
}
