//! Lists of qualities where others have one, and principals with `_HOST`: stock NameNode, stock
//! clients, nodes of both kinds.

use hayloft_rpc::{CLIENT_DATANODE_PROTOCOL, RpcClient, RpcQuality};
use hayloft_testkit::error::Result;
use hayloft_testkit::node::{Kind, NodeSpec};
use hayloft_testkit::realm::REALM;
use hayloft_testkit::suite::{expect, passed};
use hayloft_testkit::{Outcome, Suite};
use hayloft_wire::proto::clientdatanode::{GetDatanodeInfoRequest, GetDatanodeInfoResponse};

use crate::both_sides::{on_threads, proving};
use crate::{Lab, at_localhost, realm, secure};

/// What is asked for, the most wanted first.
const LIST: &str = "privacy,authentication";

pub fn cases(suite: &mut Suite) {
    let mut on = suite.group(Lab::with_lists, |lab, failed| lab.cluster.conclude(failed));
    on.case("lists_of_qualities_and_hosts_by_name", |lab| {
        lab.work().passes(|work| work.files(4, 2))
    });
    on.case("nodes_know_each_other_by_host", |lab| {
        lab.work().passes(|work| work.leases())
    });
    on.case("each_quality_of_a_list_is_served", Lab::each);
}

impl Lab {
    fn with_lists() -> Result<Self> {
        let realm = realm()?;
        let at_host = |service: &str| format!("{service}/_HOST@{REALM}");
        // The name for _HOST, where the nodes of other suites have an address.
        let node = |kind| NodeSpec::new(kind).conf("dfs.datanode.hostname", "localhost");
        let cluster = secure(&realm, LIST)?
            .conf("dfs.data.transfer.protection", LIST)
            .conf("dfs.namenode.kerberos.principal", at_host("nn"))
            .conf("dfs.datanode.kerberos.principal", at_host("dn"))
            // NameNodes and nodes hold the principals of nodes against their addresses.
            .conf("hadoop.security.authorization", true)
            .node(node(Kind::Hayloft))
            .node(node(Kind::Hayloft))
            .node(node(Kind::Apache))
            .start()?;
        let fs = cluster.driver()?;
        Ok(Self { cluster, fs, realm })
    }

    /// Callers with one quality each hear the same from nodes of both kinds.
    fn each(&mut self) -> Result<Outcome> {
        let keytab = self.realm.keytab("listed.keytab", &["listed"])?;
        for node in 0..self.cluster.node_count() {
            let ipc = self.cluster.node(node).ipc();
            for (quality, served) in [
                (RpcQuality::Privacy, true),
                (RpcQuality::Authentication, true),
                (RpcQuality::Integrity, false),
            ] {
                let of = ("listed", keytab.as_path());
                let options = proving(of, &at_localhost("dn"), &[quality]);
                let told = on_threads(async {
                    let client = RpcClient::new(&ipc, CLIENT_DATANODE_PROTOCOL, options);
                    let answer: std::result::Result<GetDatanodeInfoResponse, _> = client
                        .call("getDatanodeInfo", &GetDatanodeInfoRequest {})
                        .await;
                    let told = answer.err().map(|error| error.to_string());
                    Ok(told.unwrap_or_default())
                })?;
                let as_expected = match served {
                    true => told.is_empty(),
                    false => told.contains("offers none of hadoop.rpc.protection = integrity"),
                };
                let name = quality.name();
                expect(as_expected, || format!("node {node}, {name}: {told}"))?;
            }
        }
        passed()
    }
}
