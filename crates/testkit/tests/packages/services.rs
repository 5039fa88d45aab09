//! `hayloft swap` on the host of a node that has two name services: both are tried, and one that
//! does not answer costs no more than the time that was given.

use crate::BLOCK;
use crate::shell_host::ShellHost;
use hayloft_testkit::error::Result;
use hayloft_testkit::node::Kind;
use hayloft_testkit::process::Signal;
use hayloft_testkit::suite::{expect, expect_eq, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Cluster, Driver, Outcome, Suite};
use serde_json::{Value, json};
use std::time::Instant;

pub fn cases(suite: &mut Suite) {
    let mut on = suite.group(Services::start, Services::end);
    on.case("two_name_services_have_blocks", |lab| lab.fill());
    on.case("a_mute_namenode_takes_no_more_than_the_time", |lab| {
        lab.mute()
    });
    on.case("both_name_services_are_tried", |lab| lab.swap_in());
    on.case("a_name_service_that_takes_no_block", |lab| lab.refused());
    on.case("a_name_service_that_takes_no_file", |lab| lab.stays());
}

struct Services {
    cluster: Cluster,
    fs: Driver,
    shell: ShellHost,
}

impl Services {
    fn start() -> Result<Self> {
        let mut cluster = Cluster::builder("services")
            .nameservices(2)
            .nodes(1, Kind::Apache)
            .conf("dfs.replication", 1)
            .conf("dfs.blocksize", BLOCK)
            .start()?;
        let fs = cluster.driver()?;
        let shell = ShellHost::of(&mut cluster, 0)?;
        shell.daemon("start")?;
        Ok(Self { cluster, fs, shell })
    }

    fn end(self, failed: bool) {
        self.shell.end(failed);
        self.cluster.conclude(failed);
    }

    fn path(&mut self, service: usize, path: &str) -> String {
        format!("{}{path}", self.cluster.namenode(service).uri())
    }

    fn fill(&mut self) -> Result<Outcome> {
        wait::until("a node of the host", seconds(60), || {
            let (_, report) = self.shell.swap(&["status"], &[])?;
            let live = report["live"].as_array().map_or(0, Vec::len);
            Ok(match ShellHost::runs(&report, "apache", "apache") {
                Ok(()) if live == 2 => Seen::Done(()),
                _ => Seen::NotYet(report.to_string()),
            })
        })?;
        for service in 0..2 {
            let path = self.path(service, "/before");
            // Of the first, more blocks than are read in all.
            let bytes = [30 * BLOCK, 2 * BLOCK][service];
            self.fs.put(&path, bytes, service as u64, json!({}))?;
        }
        passed()
    }

    fn mute(&mut self) -> Result<Outcome> {
        self.cluster.namenode(1).process()?.signal(Signal::STOP)?;
        let began = Instant::now();
        let asked = self.shell.swap(&["in", "--within", "10"], &[]);
        let took = began.elapsed();
        self.cluster.namenode(1).process()?.signal(Signal::CONT)?;
        let (code, report) = asked?;
        expect(code == 1 && took < seconds(20), || {
            format!("after {took:?}: {report}")
        })?;
        ShellHost::runs(&report, "apache", "apache")?;
        passed()
    }

    fn said(report: &Value, words: &str) -> Result<()> {
        let steps = report["steps"].to_string();
        expect(steps.contains(words), || format!("no {words:?}: {report}"))
    }

    fn swap_in(&mut self) -> Result<Outcome> {
        let (code, report) = self.shell.swap(&["in"], &[])?;
        expect(code == 0, || report.to_string())?;
        ShellHost::runs(&report, "hayloft", "hayloft")?;
        expect_eq("blocks", &report["blocks_after"], &report["blocks_before"])?;
        Self::said(&report, "a new block in each of 2 name services")?;
        for service in 0..2 {
            let path = self.path(service, "/before");
            let bytes = [30 * BLOCK, 2 * BLOCK][service];
            self.fs.check(&path, bytes, service as u64)?;
            let left = self.path(service, "/tmp");
            let left = self.fs.fs(&["-ls", &left])?;
            expect(!left.contains("hayloft-swap"), || left.clone())?;
        }
        passed()
    }

    /// Where the second one refuses the write, the node that was there comes back.
    fn refused(&mut self) -> Result<Outcome> {
        let second = self.cluster.namenode(1).uri();
        let quota = ["-setSpaceQuota", "1", "/tmp"];
        self.fs
            .dfsadmin(&[&["-fs", &*second], &quota[..]].concat())?;
        let (code, report) = self.shell.swap(&["out"], &[])?;
        expect(code == 1 && report["went_back"] == true, || {
            report.to_string()
        })?;
        ShellHost::runs(&report, "hayloft", "hayloft")?;
        Self::said(&report, "ns2: ")?;
        passed()
    }

    /// Where it refuses files, too, no node is stopped for it.
    fn stays(&mut self) -> Result<Outcome> {
        let path = self.path(1, "/tmp");
        self.fs.fs(&["-rm", "-r", "-f", "-skipTrash", &path])?;
        self.fs.fs(&["-touchz", &path])?;
        let (_, before) = self.shell.swap(&["status"], &[])?;
        let (code, report) = self.shell.swap(&["out"], &[])?;
        expect(code == 1 && report["went_back"] == false, || {
            report.to_string()
        })?;
        Self::said(&report, "ns2: ")?;
        expect_eq("process", &report["runs"]["pid"], &before["runs"]["pid"])?;
        passed()
    }
}
