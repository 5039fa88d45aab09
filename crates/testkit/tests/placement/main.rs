//! The placement plug-in in the NameNode of a running cluster, and the commands that go with it.

mod racks;

use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::hadoop::{hayloft_binary, placement_jar};
use hayloft_testkit::node::{Kind, Node};
use hayloft_testkit::suite::{expect, expect_eq, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Cluster, Driver, Outcome, Suite};
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// Files of one block; the stock policy puts both replicas of a third of them into one domain.
const FILES: u64 = 30;

fn main() -> ExitCode {
    Suite::run("placement", |suite| {
        let mut on = suite.group(start, |lab, failed| lab.cluster.conclude(failed));
        on.case("check_finds_nothing_under_the_stock_policy", |lab| {
            lab.check_stock()
        });
        on.case("mend_moves_what_shares_a_domain", |lab| lab.mend());
        on.case("a_missing_path_is_said", |lab| lab.missing_path());
        let mut on = suite.group(racks::start, |lab, failed| lab.cluster.conclude(failed));
        on.case("the_table_of_hayloft_topology_places_nodes", |lab| {
            lab.by_table()
        });
        on.case("its_script_and_its_domains_do_too", |lab| lab.by_script());
        Ok(())
    })
}

struct Lab {
    fs: Driver,
    cluster: Cluster,
}

fn start() -> Result<Lab> {
    let cluster = Cluster::builder("placement")
        .nodes(4, Kind::under_test())
        .jar(placement_jar()?)
        .conf("dfs.replication", 2)
        .start()?;
    let fs = cluster.driver()?;
    let local = cluster.dir().join("files");
    let write = |n| std::fs::write(local.join(format!("f{n}")), format!("file {n}"));
    let written = std::fs::create_dir_all(&local).and_then(|()| (0..FILES).try_for_each(write));
    written.map_err(TestkitError::file("writing", &local))?;
    fs.fs(&["-put", &local.display().to_string(), "/files"])?;
    Ok(Lab { fs, cluster })
}

impl Lab {
    /// Exit code and answer of `hayloft placement`; what it said instead of an answer.
    fn placement(&self, words: &[&str]) -> Result<(Option<i32>, Value, String)> {
        let binary = hayloft_binary()?;
        let ran = Command::new(&binary)
            .arg("placement")
            .args(words)
            .arg("--json")
            .arg("--conf")
            .arg(self.cluster.client_conf_dir())
            .output()
            .map_err(TestkitError::file("running", &binary))?;
        let answer = serde_json::from_slice(&ran.stdout).unwrap_or(Value::Null);
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        Ok((ran.status.code(), answer, said))
    }

    fn check_stock(&mut self) -> Result<Outcome> {
        let (code, answer, said) = self.placement(&["check", "/files"])?;
        expect(code == Some(0), || format!("{code:?} {said}"))?;
        expect_eq("blocks", answer["blocks"].as_u64(), Some(FILES))?;
        expect_eq("misplaced", answer["misplaced"].as_u64(), Some(0))?;
        passed()
    }

    /// Says which node is in which domain; `share` nodes are in each.
    fn domains(&self, share: usize) -> Result<PathBuf> {
        let line = |(n, node): (usize, &Node)| format!("{} box{}\n", node.xfer(), n / share);
        let lines: String = self.cluster.nodes().enumerate().map(line).collect();
        let path = self.cluster.dir().join("domains");
        std::fs::write(&path, lines).map_err(TestkitError::file("writing", &path))?;
        Ok(path)
    }

    /// Nodes turn out to share a host: what lies on two of them is misplaced from then on. The
    /// NameNode looks for such blocks by itself only when it starts.
    fn mend(&mut self) -> Result<Outcome> {
        let domains = self.domains(1)?;
        let mut conf = self.cluster.conf().clone();
        conf.set(
            "dfs.block.replicator.classname",
            "io.hayloft.placement.HayloftPlacementPolicy",
        )
        .set("hayloft.placement.domains.file", domains.display())
        .set("hayloft.placement.balance.interval", "200ms");
        let namenode = self.cluster.namenode(0);
        namenode.stop()?;
        namenode.write_conf(&conf, false)?;
        namenode.start(&[])?;
        namenode.wait_live(4, seconds(60))?;
        namenode.wait_out_of_safe_mode(seconds(60))?;
        let (code, answer, said) = self.placement(&["check", "/"])?;
        expect(code == Some(0), || format!("{code:?} {answer} {said}"))?;
        self.domains(2)?;
        let misplaced = wait::until("the file is read anew", seconds(30), || {
            let (code, answer, said) = self.placement(&["check", "/", "--list", "2"])?;
            Ok(match (code, answer["misplaced"].as_u64()) {
                (Some(1), Some(count)) if count > 0 => {
                    let listed = answer["listed"].as_array().map_or(0, Vec::len) as u64;
                    expect_eq("listed", listed, count.min(2))?;
                    Seen::Done(count)
                }
                _ => Seen::NotYet(format!("{code:?} {answer} {said}")),
            })
        })?;
        let (code, answer, said) = self.placement(&["mend", "/", "--patience", "60"])?;
        expect(code == Some(0), || format!("{code:?} {answer} {said}"))?;
        expect_eq(
            "before",
            answer["misplaced_before"].as_u64(),
            Some(misplaced),
        )?;
        let (code, answer, _) = self.placement(&["check"])?;
        expect_eq("exit code", code, Some(0))?;
        expect_eq("misplaced", answer["misplaced"].as_u64(), Some(0))?;
        self.fs.fs(&["-cat", "/files/f7"])?;
        passed()
    }

    fn missing_path(&mut self) -> Result<Outcome> {
        let (code, _, said) = self.placement(&["check", "/nowhere"])?;
        expect(code == Some(2) && said.contains("/nowhere"), || {
            format!("{code:?} {said}")
        })?;
        passed()
    }
}
