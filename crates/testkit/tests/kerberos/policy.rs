//! Service-level authorization: a node of ours and a stock one let the same callers through, and
//! say the same to the others.

use hayloft_rpc::{
    CLIENT_DATANODE_PROTOCOL, INTER_DATANODE_PROTOCOL, Protocol, RpcClient, RpcOptions, RpcQuality,
};
use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::{SMALL_JVM_FLAGS, class};
use hayloft_testkit::node::Kind;
use hayloft_testkit::realm::Realm;
use hayloft_testkit::suite::{expect, expect_eq, passed};
use hayloft_testkit::{Cluster, ClusterBuilder, Driver, Outcome, Suite, TestkitError};
use hayloft_wire::proto::clientdatanode::{TriggerBlockReportRequest, TriggerBlockReportResponse};
use hayloft_wire::rpc::names::RECONFIGURATION_PROTOCOL;
use std::path::Path;

use crate::both_sides::{on_threads, proving, report_ordered_by};
use crate::{at_localhost, realm, secure};

const OURS: usize = 0;
const STOCK: usize = 1;
/// Who is in which group.
const GROUPS: &str = "root=supergroup;hdfs=supergroup;nn=supergroup;dn=users;ann=users;\
                      bob=staff,ops;zoe=staff;eve=";
/// A method of a protocol.
type Asked = (Protocol, &'static str);
/// A method of each protocol; what is asked does not matter.
const ASKED: [Asked; 3] = [
    (CLIENT_DATANODE_PROTOCOL, "getDatanodeInfo"),
    (INTER_DATANODE_PROTOCOL, "initReplicaRecovery"),
    (RECONFIGURATION_PROTOCOL, "listReconfigurableProperties"),
];
/// `oper` is called as a user of `staff`, and the key of a host that is no node as the superuser.
const RULES: &str = "RULE:[1:$1@$0](oper@.*)s/.*/zoe/ RULE:[2:$1/$2](dn/spare)s/.*/hdfs/ DEFAULT";
/// A command of `dfsadmin`, and what nodes of both kinds say to it; nothing: it is done.
type Heard = (&'static str, &'static str);
/// Who acts for whom, and what comes of it.
const FOR_OTHERS: [(&str, &str, &[Heard]); 6] = [
    ("gate", "hdfs", &[("-triggerBlockReport", "")]),
    (
        "gate",
        "zoe",
        &[
            ("-getDatanodeInfo", ""),
            ("-triggerBlockReport", "Permission denied"),
        ],
    ),
    (
        "gate",
        "ann",
        &[(
            "-getDatanodeInfo",
            "User ann (auth:PROXY) via gate@HAYLOFT.TEST (auth:KERBEROS) is not authorized for \
             protocol interface org.apache.hadoop.hdfs.protocol.ClientDatanodeProtocol: denied by \
             configured ACL",
        )],
    ),
    (
        "gate",
        "eve",
        &[(
            "-getDatanodeInfo",
            "User: gate@HAYLOFT.TEST is not allowed to impersonate eve",
        )],
    ),
    (
        "far",
        "zoe",
        &[(
            "-getDatanodeInfo",
            "Unauthorized connection for super-user: far@HAYLOFT.TEST from IP /127.0.0.1",
        )],
    ),
    (
        "zoe",
        "hdfs",
        &[(
            "-getDatanodeInfo",
            "User: zoe@HAYLOFT.TEST is not allowed to impersonate hdfs",
        )],
    ),
];
/// The class of all refusals of this kind.
const REFUSED: &str = "AuthorizationException";

pub fn cases(suite: &mut Suite) {
    let mut on = suite.group(Policed::simple, |lab, failed| lab.cluster.conclude(failed));
    on.case("lists_of_users_groups_and_hosts_count", |lab| {
        lab.believed()
    });
    on.case("a_connection_opens_no_other_protocol", |lab| {
        lab.another_protocol()
    });
    on.case("the_policy_is_a_file_read_at_the_start", |lab| lab.a_file());
    let mut on = suite.group(Policed::with_tickets, |lab, failed| {
        lab.cluster.conclude(failed);
    });
    on.case("lists_count_for_callers_with_tickets", |lab| lab.proved());
    on.case("dfsadmin_hears_the_same_from_both", |lab| lab.dfsadmin());
    on.case("short_names_by_rules_count", |lab| lab.short_names());
    on.case("callers_act_for_others_as_far_as_they_may", |lab| {
        lab.for_others()
    });
}

struct Policed {
    cluster: Cluster,
    realm: Option<Realm>,
}

fn policed(builder: ClusterBuilder, more: &[(&str, &str)]) -> Result<Cluster> {
    let mut builder = builder
        .conf("dfs.replication", 2)
        .conf("hadoop.security.authorization", true)
        .conf("hadoop.user.group.static.mapping.overrides", GROUPS);
    for (key, value) in more {
        builder = builder.conf(key, value);
    }
    builder
        .nodes(1, Kind::Hayloft)
        .nodes(1, Kind::Apache)
        .start()
}

impl Policed {
    fn simple() -> Result<Self> {
        let lists = [
            (
                "security.client.datanode.protocol.acl",
                "root,ann,eve staff",
            ),
            ("security.client.datanode.protocol.acl.blocked", " ops"),
            ("security.reconfiguration.protocol.hosts", "10.0.0.0/8"),
            ("security.service.authorization.default.acl", "root,zoe"),
        ];
        // The default's list counts for NameNodes, too: root is all that there is.
        let cluster = policed(Cluster::builder("policy"), &lists)?;
        Ok(Self {
            cluster,
            realm: None,
        })
    }

    fn with_tickets() -> Result<Self> {
        let realm = realm()?;
        let lists = [
            ("security.client.datanode.protocol.acl", "hdfs staff"),
            ("security.reconfiguration.protocol.acl", "hdfs"),
            ("hadoop.security.auth_to_local", RULES),
            ("hadoop.proxyuser.gate.groups", "staff,users,supergroup"),
            ("hadoop.proxyuser.gate.hosts", "10.0.0.1,127.0.0.0/8"),
            ("hadoop.proxyuser.far.groups", "*"),
            ("hadoop.proxyuser.far.hosts", "10.0.0.0/8"),
        ];
        let cluster = policed(secure(&realm, "privacy")?, &lists)?;
        Ok(Self {
            cluster,
            realm: Some(realm),
        })
    }

    /// What both nodes say to a call, of which only refusals of this kind matter.
    fn both(&mut self, asked: Asked, options: &RpcOptions) -> Result<[String; 2]> {
        let [ours, stock] = [OURS, STOCK].map(|node| {
            let ipc = self.cluster.node(node).ipc();
            refusal(&ipc, asked, options.clone())
        });
        Ok([ours?, stock?])
    }

    fn agree(&mut self, who: &str, options: &RpcOptions, may: [bool; 3]) -> Result<()> {
        for (asked, may) in ASKED.into_iter().zip(may) {
            let [ours, stock] = self.both(asked, options)?;
            let what = format!("{} of {who}", asked.1);
            expect_eq(&what, &ours, &stock)?;
            expect_eq(&what, (ours.is_empty(), &ours), (may, &ours))?;
        }
        Ok(())
    }

    fn believed(&mut self) -> Result<Outcome> {
        for (user, may) in [
            ("root", [true, true, false]),
            ("ann", [true, false, false]),
            ("bob", [false, false, false]),
            ("zoe", [true, true, false]),
            ("eve", [true, false, false]),
            ("stranger", [false, false, false]),
        ] {
            let options = RpcOptions {
                user: user.to_owned(),
                ..RpcOptions::default()
            };
            self.agree(user, &options, may)?;
        }
        passed()
    }

    /// Apache's node looks at the list of the protocol that the connection names, and no more.
    fn another_protocol(&mut self) -> Result<Outcome> {
        let ipc = self.cluster.node(OURS).ipc();
        let options = RpcOptions {
            user: "ann".to_owned(),
            ..RpcOptions::default()
        };
        let unknown = Protocol {
            name: "org.example.Protocol",
            ..CLIENT_DATANODE_PROTOCOL
        };
        let told = refusal(&ipc, (unknown, "getDatanodeInfo"), options)?;
        expect(
            told.contains("Unknown protocol: org.example.Protocol"),
            || told.clone(),
        )?;
        passed()
    }

    fn a_file(&mut self) -> Result<Outcome> {
        let text = "<configuration><property><name>security.client.datanode.protocol.acl</name>\
                    <value>eve</value></property></configuration>";
        for node in [OURS, STOCK] {
            let conf = self.cluster.conf().clone();
            let node = self.cluster.node(node);
            let file = node.conf_dir().join("hadoop-policy.xml");
            std::fs::write(&file, text).map_err(TestkitError::file("writing", &file))?;
            node.stop()?;
            node.start(&conf)?;
        }
        self.cluster.wait_all_live()?;
        for (user, may) in [("eve", [true, false, false]), ("ann", [false; 3])] {
            let options = RpcOptions {
                user: user.to_owned(),
                ..RpcOptions::default()
            };
            self.agree(user, &options, may)?;
        }
        passed()
    }

    fn realm(&self) -> Result<&Realm> {
        let realm = self.realm.as_ref();
        realm.ok_or_else(|| TestkitError::Expectation("there is no realm".to_owned()))
    }

    fn proved(&mut self) -> Result<Outcome> {
        for (user, may) in [
            ("hdfs", [true, false, true]),
            ("zoe", [true, false, false]),
            ("ann", [false, false, false]),
            ("dn/localhost", [false, true, false]),
            ("dn/other", [false, false, false]),
        ] {
            let name = format!("policy-{}.keytab", user.replace('/', "-"));
            let keytab = match user {
                // A new key would be another than the nodes have.
                "hdfs" | "dn/localhost" => self.realm()?.dir().join("services.keytab"),
                _ => self.realm()?.keytab(&name, &[user])?,
            };
            let of = (user, keytab.as_path());
            let options = proving(of, &at_localhost("dn"), &[RpcQuality::Privacy]);
            self.agree(user, &options, may)?;
        }
        passed()
    }

    fn dfsadmin(&mut self) -> Result<Outcome> {
        let keytab = self.realm()?.keytab("policy-ann.keytab", &["ann"])?;
        let ipcs = [OURS, STOCK].map(|node| self.cluster.node(node).ipc());
        let allowed = self.cluster.driver()?;
        for ipc in &ipcs {
            for command in [
                vec!["-getDatanodeInfo", ipc],
                vec!["-triggerBlockReport", ipc],
                vec!["-reconfig", "datanode", ipc, "properties"],
            ] {
                allowed.tool(class::DFSADMIN, &command)?.ok()?;
            }
        }
        let told = self.with_ticket_of("ann", &keytab, "", |refused| {
            let tell = |ipc: &String| told_by(refused, "-getDatanodeInfo", ipc);
            ipcs.iter().map(tell).collect::<Result<Vec<_>>>()
        })?;
        let by_list = "User ann@HAYLOFT.TEST (auth:KERBEROS) is not authorized for protocol \
                       interface org.apache.hadoop.hdfs.protocol.ClientDatanodeProtocol: denied by \
                       configured ACL";
        for said in &told {
            expect(said.contains(by_list), || said.clone())?;
        }
        passed()
    }

    /// What comes of `work` with a stock client that has the ticket of `user` and acts for another
    /// one, where one is named. After it clients have the superuser's again.
    fn with_ticket_of<T>(
        &self,
        user: &str,
        keytab: &Path,
        acts_for: &str,
        work: impl FnOnce(&Driver) -> Result<T>,
    ) -> Result<T> {
        let mut flags: Vec<_> = SMALL_JVM_FLAGS.map(String::from).into();
        flags.push("-Xmx256m".to_owned());
        if !acts_for.is_empty() {
            flags.push(format!("-DHADOOP_PROXY_USER={acts_for}"));
        }
        self.realm()?.kinit(user, keytab)?;
        let client = self.cluster.driver_with_flags(flags);
        let done = client.and_then(|client| work(&client));
        let services = self.realm()?.dir().join("services.keytab");
        self.realm()?.kinit("hdfs", &services)?;
        done
    }

    /// Lists and the superuser's group go by the names that rules make of principals.
    fn short_names(&mut self) -> Result<Outcome> {
        for (user, may, refused) in [
            ("oper", [true, false, false], "Permission denied"),
            ("dn/spare", [true, false, true], ""),
        ] {
            let name = format!("named-{}.keytab", user.replace('/', "-"));
            let keytab = self.realm()?.keytab(&name, &[user])?;
            let of = (user, keytab.as_path());
            let options = proving(of, &at_localhost("dn"), &[RpcQuality::Privacy]);
            self.agree(user, &options, may)?;
            for node in [OURS, STOCK] {
                let ipc = self.cluster.node(node).ipc();
                let told = report_ordered_by(&ipc, user, &keytab)?;
                expect(
                    told.contains(refused) && told.is_empty() == refused.is_empty(),
                    || format!("a report ordered by {user} of node {node}: {told}"),
                )?;
            }
        }
        passed()
    }

    fn for_others(&mut self) -> Result<Outcome> {
        let ipcs = [OURS, STOCK].map(|node| self.cluster.node(node).ipc());
        let keytab = self
            .realm()?
            .keytab("acting.keytab", &["gate", "far", "zoe"])?;
        for (real, acts_for, commands) in FOR_OTHERS {
            self.with_ticket_of(real, &keytab, acts_for, |client| {
                for (command, refused) in commands {
                    for ipc in &ipcs {
                        let told = told_by(client, command, ipc)?;
                        expect(
                            told.contains(refused) && told.is_empty() == refused.is_empty(),
                            || format!("{command} {ipc} by {real} for {acts_for}: {told}"),
                        )?;
                    }
                }
                Ok(())
            })?;
        }
        passed()
    }
}

/// What a command of `dfsadmin` printed, without the address; empty when it was done.
fn told_by(client: &Driver, command: &str, ipc: &str) -> Result<String> {
    let run = client.tool(class::DFSADMIN, &[command, ipc])?;
    Ok(match run.code {
        0 => String::new(),
        _ => format!("{}{}", run.out, run.err).replace(ipc, ""),
    })
}

/// The refusal by authorization that a call met; empty when it met none.
fn refusal(ipc: &str, (protocol, method): Asked, options: RpcOptions) -> Result<String> {
    on_threads(async {
        let client = RpcClient::new(ipc, protocol, options);
        let answer: std::result::Result<TriggerBlockReportResponse, _> = client
            .call(method, &TriggerBlockReportRequest::default())
            .await;
        let told = answer.err().map(|error| error.to_string());
        let told = told.unwrap_or_default().replace(ipc, "");
        Ok(if told.contains(REFUSED) {
            told
        } else {
            String::new()
        })
    })
}
