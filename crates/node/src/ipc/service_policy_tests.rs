//! Who is let through, and what the others hear.

use super::*;

const CLIENT: &str = names::CLIENT_DATANODE_PROTOCOL.name;
const NODES: &str = names::INTER_DATANODE_PROTOCOL.name;
const RECONFIGURATION: &str = names::RECONFIGURATION_PROTOCOL.name;

struct Asked {
    policy: ServicePolicy,
    users: Users,
}

fn config(properties: &[(&str, &str)]) -> SharedConfig {
    let base = [
        ("hadoop.security.authorization", "true"),
        (keys::STATIC_GROUPS.name(), "ann=staff;bob=staff,ops;zoe="),
    ];
    let all = base.into_iter().chain(properties.iter().copied());
    SharedConfig::new(Configuration::from_properties(all).expect("valid"))
}

async fn asked(properties: &[(&str, &str)]) -> Asked {
    let config = config(properties);
    let policy = ServicePolicy::load(&config).await.expect("usable");
    Asked {
        policy: policy.expect("authorization is on"),
        users: Users::new(config),
    }
}

fn caller(user: &str, real: Option<&str>) -> Caller {
    Caller {
        user: Some(user.to_owned()),
        real_user: real.map(str::to_owned),
        token: None,
        protocol: None,
        address: ([127, 0, 0, 1], 50_000).into(),
    }
}

impl Asked {
    async fn may(&self, user: &str, protocol: &str) -> Result<(), String> {
        let caller = caller(user, None);
        self.policy
            .authorize(&caller, Some(protocol), &self.users)
            .await
    }
}

#[tokio::test]
async fn without_authorization_there_is_no_policy() {
    let off = config(&[("hadoop.security.authorization", "false")]);
    assert!(ServicePolicy::load(&off).await.expect("usable").is_none());
}

#[tokio::test]
async fn each_protocol_has_lists_of_its_own_or_the_default() {
    let open = asked(&[]).await;
    for protocol in [CLIENT, NODES, RECONFIGURATION] {
        assert_eq!(open.may("zoe", protocol).await, Ok(()), "{protocol}");
    }
    let asked = asked(&[
        ("security.client.datanode.protocol.acl", " staff"),
        ("security.client.datanode.protocol.acl.blocked", " ops"),
        ("security.service.authorization.default.acl", "zoe"),
    ])
    .await;
    for (user, protocol, may) in [
        ("ann", CLIENT, true),
        ("bob", CLIENT, false),
        ("zoe", CLIENT, false),
        ("zoe", NODES, true),
        ("ann", RECONFIGURATION, false),
    ] {
        let heard = asked.may(user, protocol).await;
        assert_eq!(heard.is_ok(), may, "{user} {protocol}");
    }
    assert_eq!(
        asked.may("zoe", CLIENT).await,
        Err(
            "User zoe (auth:SIMPLE) is not authorized for protocol interface \
             org.apache.hadoop.hdfs.protocol.ClientDatanodeProtocol: denied by configured ACL"
                .to_owned()
        )
    );
}

#[tokio::test]
async fn groups_of_another_directory_keep_no_user_out() {
    let ldap = "org.apache.hadoop.security.LdapGroupsMapping";
    let shell = "org.apache.hadoop.security.ShellBasedUnixGroupsMapping";
    let load = async |class: &str, blocked: &str| {
        let config = config(&[
            (GROUP_MAPPING, class),
            (
                "security.service.authorization.default.acl.blocked",
                blocked,
            ),
        ]);
        ServicePolicy::load(&config).await.map(drop)
    };
    let refused = load(ldap, "bob ops").await.expect_err("a group of LDAP");
    assert!(
        refused.contains("the group ops") && refused.contains("SSSD"),
        "{refused}"
    );
    assert_eq!(load(ldap, "bob").await, Ok(()));
    assert_eq!(load(shell, "bob ops").await, Ok(()));
    assert_eq!(load("", "bob ops").await, Ok(()));
}

#[tokio::test]
async fn hosts_count_after_users() {
    let asked = asked(&[
        ("security.client.datanode.protocol.hosts", "10.0.0.0/8"),
        (
            "security.service.authorization.default.hosts.blocked",
            "localhost",
        ),
    ])
    .await;
    for protocol in [CLIENT, RECONFIGURATION] {
        assert_eq!(
            asked.may("ann", protocol).await,
            Err(format!(
                "Host 127.0.0.1 is not authorized for protocol interface {protocol}"
            ))
        );
    }
}

#[tokio::test]
async fn who_acts_for_another_is_named() {
    let asked = asked(&[("security.client.datanode.protocol.acl", "gate,~ann")]).await;
    let may = async |user, real| {
        let caller = caller(user, real);
        let policy = &asked.policy;
        policy.authorize(&caller, Some(CLIENT), &asked.users).await
    };
    assert_eq!(may("ann", Some("gate")).await, Ok(()));
    assert!(may("ann", None).await.is_err());
    let refused = may("zoe", Some("gate")).await.unwrap_err();
    let named = "User zoe (auth:PROXY) via gate (auth:SIMPLE) is not";
    assert!(refused.starts_with(named), "{refused}");
}

#[tokio::test]
async fn protocols_that_are_none_are_refused() {
    let asked = asked(&[]).await;
    let ann = caller("ann", None);
    let none = asked.policy.authorize(&ann, None, &asked.users);
    assert_eq!(none.await, Err("Null protocol not authorized".to_owned()));
    // No method of it is served, but the connection is, as by Apache's node.
    assert_eq!(asked.may("ann", OF_OTHERS[0].0).await, Ok(()));
    let unknown = asked.may("ann", "org.example.P").await;
    assert_eq!(unknown, Err("Unknown protocol: org.example.P".to_owned()));
}

#[tokio::test]
async fn with_kerberos_nodes_are_known_by_their_principal() {
    let asked = asked(&[
        ("hadoop.security.authentication", "kerberos"),
        ("dfs.datanode.kerberos.principal", "dn/here@R"),
    ])
    .await;
    let refused = asked.may("ann@R", NODES).await.unwrap_err();
    assert!(
        refused.ends_with(": this service is only accessible by dn/here@R"),
        "{refused}"
    );
    assert!(
        refused.starts_with("User ann@R (auth:KERBEROS) is"),
        "{refused}"
    );
}

#[tokio::test]
async fn the_file_is_read_over_the_others() {
    let dir = tempfile::tempdir().expect("a directory");
    let write = |name: &str, properties: &str| {
        let text = format!("<configuration>{properties}</configuration>");
        std::fs::write(dir.path().join(name), text).expect("written");
    };
    let property = |name: &str, value: &str| {
        format!("<property><name>{name}</name><value>{value}</value></property>")
    };
    let core = [
        property("hadoop.security.authorization", "true"),
        property("security.client.datanode.protocol.acl", "zoe"),
        property(keys::STATIC_GROUPS.name(), "ann=;zoe="),
    ];
    write("core-site.xml", &core.concat());
    let loaded = async || {
        let config = Configuration::load(dir.path(), &[]).expect("valid");
        let config = SharedConfig::new(config);
        let policy = ServicePolicy::load(&config).await?;
        Ok::<_, String>(Asked {
            policy: policy.expect("authorization is on"),
            users: Users::new(config),
        })
    };
    let before = loaded().await.expect("usable");
    assert!(before.may("zoe", CLIENT).await.is_ok());
    write(
        FILE,
        &property("security.client.datanode.protocol.acl", "ann"),
    );
    let after = loaded().await.expect("usable");
    assert!(after.may("zoe", CLIENT).await.is_err() && after.may("ann", CLIENT).await.is_ok());
    write(
        FILE,
        &property("security.client.datanode.protocol.hosts", "10.0.0/8"),
    );
    let refused = loaded().await.map(drop).unwrap_err();
    for part in [
        FILE,
        "security.client.datanode.protocol.hosts",
        "\"10.0.0/8\"; allowed: networks of IPv4",
    ] {
        assert!(refused.contains(part), "{refused}");
    }
}
