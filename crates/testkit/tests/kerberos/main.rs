//! A secure stock NameNode, nodes of both kinds and stock clients with tickets. [`logins`]: nodes
//! that cannot log in, and tickets that run out. [`both_sides`]: the RPC client and server of ours
//! with each other. [`protected`]: data transfer that block tokens protect. [`policy`]: who may
//! call which protocol. [`pages`]: who sees which web page. [`webhdfs`]: files for holders of
//! delegation tokens.
//!
//! The suite runs in a process of its own, below one that made a realm and set the variables by
//! which everything finds it.

mod both_sides;
#[path = "../saslport/by_curl.rs"]
mod by_curl;
mod logins;
mod pages;
mod policy;
mod protected;
mod webhdfs;

use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::{class, scratch};
use hayloft_testkit::node::Kind;
use hayloft_testkit::realm::{REALM, Realm};
use hayloft_testkit::shared_work::SharedWork;
use hayloft_testkit::suite::{expect, passed};
use hayloft_testkit::{Cluster, ClusterBuilder, Driver, Outcome, Suite, TestkitError, ports};
use serde_json::json;
use std::path::Path;
use std::process::{Command, ExitCode};

/// Tells the process of the suite where the realm is: its directory and port.
const MADE: &str = "HAYLOFT_TEST_REALM";
/// Block size of the cluster's clients, bytes.
const BLOCK: u64 = 1 << 20;

fn main() -> ExitCode {
    if let Some(why) = Realm::missing() {
        return Suite::run("kerberos", |suite| {
            suite.case("kerberos", || Ok(Outcome::Skipped(why)));
            Ok(())
        });
    }
    if std::env::var_os(MADE).is_none() {
        return below_a_realm().unwrap_or_else(|error| {
            eprintln!("kerberos: {error}");
            ExitCode::FAILURE
        });
    }
    Suite::run("kerberos", |suite| {
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
            }
        }
        both_sides::cases(suite);
        logins::cases(suite);
        protected::cases(suite);
        policy::cases(suite);
        pages::cases(suite);
        webhdfs::cases(suite);
        Ok(())
    })
}

/// Makes a realm, and runs this program again where the realm is found.
fn below_a_realm() -> Result<ExitCode> {
    let dir = scratch("realm-")?;
    let port = ports::free()?;
    let realm = Realm::create(dir.path(), port)?;
    let own = std::env::current_exe().map_err(TestkitError::file("finding", Path::new("self")))?;
    let mut again = Command::new(&own);
    again
        .args(std::env::args_os().skip(1))
        .envs(realm.variables());
    again.env(MADE, format!("{port}:{}", dir.path().display()));
    let status = again
        .status()
        .map_err(TestkitError::file("running", &own))?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(1)))
}

/// The realm that the process above made, with its KDC running.
fn realm() -> Result<Realm> {
    let made = std::env::var(MADE).unwrap_or_default();
    let (port, dir) = made.split_once(':').unwrap_or_default();
    let port = port
        .parse()
        .map_err(|_| TestkitError::Expectation(made.clone()))?;
    let mut realm = Realm::at(Path::new(dir), port);
    realm.start()?;
    Ok(realm)
}

/// The principal of a service on this host.
fn at_localhost(service: &str) -> String {
    format!("{service}/localhost@{REALM}")
}

/// A secure cluster that does not run yet, with a ticket for its superuser.
fn secure(realm: &Realm, protection: &str) -> Result<ClusterBuilder> {
    let names = ["nn/localhost", "dn/localhost", "HTTP/localhost", "hdfs"];
    let keytab = realm.keytab("services.keytab", &names)?;
    realm.kinit("hdfs", &keytab)?;
    let keytab = keytab.display();
    Ok(Cluster::builder("kerberos")
        .conf("dfs.blocksize", BLOCK)
        .conf("hadoop.security.authentication", "kerberos")
        .conf("hadoop.rpc.protection", protection)
        .conf("dfs.namenode.kerberos.principal", at_localhost("nn"))
        .conf("dfs.namenode.keytab.file", &keytab)
        .conf("dfs.datanode.kerberos.principal", at_localhost("dn"))
        .conf("dfs.datanode.keytab.file", &keytab)
        .conf(
            "dfs.web.authentication.kerberos.principal",
            at_localhost("HTTP"),
        )
        .conf("dfs.web.authentication.kerberos.keytab", &keytab)
        .conf("dfs.block.access.token.enable", true)
        .conf("ignore.secure.ports.for.testing", true)
        .conf(
            "hadoop.user.group.static.mapping.overrides",
            "hdfs=supergroup;nn=supergroup;dn=users;ann=users",
        ))
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
