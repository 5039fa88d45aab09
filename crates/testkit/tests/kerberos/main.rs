//! A secure stock NameNode, nodes of both kinds and stock clients with tickets. [`logins`]: nodes
//! that cannot log in, and tickets that run out. [`both_sides`]: the RPC client and server of ours
//! with each other. [`protected`]: data transfer that block tokens protect. [`policy`]: who may
//! call which protocol. [`pages`]: who sees which web page. [`webhdfs`]: files for holders of
//! delegation tokens. [`lists`]: several qualities, and `_HOST`. [`strangers`]: callers that prove
//! nothing.
//!
//! [`in_realm`] has the realm, and what the suite `secure` shares.

mod both_sides;
#[path = "../saslport/by_curl.rs"]
mod by_curl;
mod in_realm;
mod lists;
mod logins;
mod pages;
mod policy;
mod protected;
mod strangers;
mod web_tokens;
mod webhdfs;

use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::class;
use hayloft_testkit::node::Kind;
use hayloft_testkit::realm::Realm;
use hayloft_testkit::shared_work::SharedWork;
use hayloft_testkit::suite::{expect, passed};
use hayloft_testkit::{Cluster, Driver, Outcome};
use in_realm::{BLOCK, at_localhost, realm, secure};
use serde_json::json;
use std::process::ExitCode;

fn main() -> ExitCode {
    in_realm::suite("kerberos", |suite| {
        for protection in ["authentication", "integrity", "privacy"] {
            let name = |what: &str| format!("{what}_{protection}");
            let mut on = suite.group(
                move || Lab::start(protection),
                |lab, failed| lab.cluster.conclude(failed),
            );
            on.case(name("files_are_written_and_read_with_tickets"), |lab| {
                lab.work().passes(|work| work.files(4, 2))
            });
            on.case(name("administrators_with_tickets_are_heard"), |lab| {
                lab.admin()
            });
            on.case(name("leases_are_recovered_among_nodes"), |lab| {
                lab.work().passes(|work| work.leases())
            });
            on.case(name("files_that_are_still_written_are_read"), |lab| {
                lab.open_files()
            });
            if protection == "privacy" {
                on.case("callers_without_proof_are_refused", |lab| lab.unproven());
                on.case("a_recorded_ticket_proves_nothing", |lab| {
                    strangers::recorded(&mut lab.cluster, &lab.realm)
                });
                on.case("callers_without_proof_leave_nothing_behind", |lab| {
                    strangers::come_and_go(&mut lab.cluster, &lab.fs, &lab.realm)
                });
            }
        }
        both_sides::cases(suite);
        lists::cases(suite);
        logins::cases(suite);
        protected::cases(suite);
        policy::cases(suite);
        pages::cases(suite);
        webhdfs::cases(suite);
        Ok(())
    })
}

struct Lab {
    cluster: Cluster,
    fs: Driver,
    realm: Realm,
}

impl Lab {
    fn start(protection: &str) -> Result<Self> {
        let realm = realm()?;
        let cluster = secure(&realm, protection)?
            .nodes(2, Kind::Hayloft)
            .nodes(1, Kind::Apache)
            .start()?;
        let fs = cluster.driver()?;
        Ok(Self { cluster, fs, realm })
    }

    fn work(&mut self) -> SharedWork<'_> {
        SharedWork {
            cluster: &mut self.cluster,
            fs: &self.fs,
            block: BLOCK,
        }
    }

    /// `dfsadmin` to the RPC ports of our nodes.
    fn admin(&mut self) -> Result<Outcome> {
        for index in 0..2 {
            let ipc = self.cluster.node(index).ipc();
            let info = self
                .fs
                .tool(class::DFSADMIN, &["-getDatanodeInfo", &ipc])?
                .ok()?;
            expect(info.out.contains("Software version"), || info.out.clone())?;
            self.fs
                .tool(class::DFSADMIN, &["-triggerBlockReport", &ipc])?
                .ok()?;
            let properties = ["-reconfig", "datanode", &ipc, "properties"];
            let listed = self.fs.tool(class::DFSADMIN, &properties)?.ok()?;
            expect(listed.out.contains("dfs.datanode.data.dir"), || {
                listed.out.clone()
            })?;
        }
        passed()
    }

    /// Readers prove at the nodes' RPC ports that they hold the block's token.
    fn open_files(&mut self) -> Result<Outcome> {
        for seed in 0..6 {
            let path = format!("/open-{seed}");
            self.fs.create("o", &path, seed, json!({}))?;
            self.fs.write("o", BLOCK / 2 + seed)?;
            self.fs.handle("hflush", "o")?;
            self.fs.check(&path, BLOCK / 2 + seed, seed)?;
            self.fs.handle("close", "o")?;
        }
        passed()
    }

    fn unproven(&mut self) -> Result<Outcome> {
        let ipc = self.cluster.node(0).ipc();
        let told = both_sides::info_without_proof(&ipc)?;
        expect(
            told.contains("SIMPLE authentication is not enabled"),
            || told.clone(),
        )?;
        // Someone with a ticket who is no superuser.
        let keytab = self.realm.keytab("ann.keytab", &["ann"])?;
        let told = both_sides::report_ordered_by(&ipc, "ann", &keytab)?;
        expect(told.contains("Permission denied"), || told.clone())?;
        let told = both_sides::recovery_begun_by(&ipc, "ann", &keytab)?;
        expect(
            told.contains("not authorized for InterDatanodeProtocol"),
            || told.clone(),
        )?;
        // Another node's key, of the same short name as this node's.
        let keytab = self.realm.keytab("other-node.keytab", &["dn/other"])?;
        let told = both_sides::report_ordered_by(&ipc, "dn/other", &keytab)?;
        expect(told.contains("Permission denied"), || told.clone())?;
        let told = both_sides::recovery_begun_by(&ipc, "dn/other", &keytab)?;
        expect(
            told.contains("not authorized for InterDatanodeProtocol"),
            || told.clone(),
        )?;
        passed()
    }
}
