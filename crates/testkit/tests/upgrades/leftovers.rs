//! What an upgrade leaves behind is told, and goes when an operator says so.

use crate::rolling::{Rolling, files_below};
use crate::{Lab, pools};
use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::hayloft_binary;
use hayloft_testkit::suite::{expect, expect_eq, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Outcome, TestkitError, http};
use serde_json::{Value, json};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;

/// `hayloft trash` with this configuration: its exit code and what it said.
fn trash(conf: &Path, args: &[&str]) -> Result<(Option<i32>, Value)> {
    let mut command = Command::new(hayloft_binary()?);
    let command = command.arg("trash").args(args).arg("--json");
    let run = command.arg("--conf").arg(conf).output();
    let run = run.map_err(TestkitError::file("running", conf))?;
    let said = serde_json::from_slice(&run.stdout).map_err(|e| {
        let err = String::from_utf8_lossy(&run.stderr).into_owned();
        TestkitError::Talk(format!("hayloft trash: {e}: {err}"))
    })?;
    Ok((run.status.code(), said))
}

impl Rolling {
    /// A node is down when the upgrade is finalized: nothing of its trash goes on a guess.
    pub fn left_behind(&mut self) -> Result<Outcome> {
        let (kept, gone) = (self.put()?, self.put()?);
        self.prepare()?;
        self.delete(gone)?;
        let conf = self.cluster.node(0).conf_dir();
        let (code, said) = trash(&conf, &["purge", "--yes"])?;
        let why = said["pools"][0]["kept_because"]
            .as_str()
            .unwrap_or_default();
        expect(code == Some(1) && why == "a rolling upgrade runs", || {
            format!("{code:?} {said:#}")
        })?;
        self.expect_trashed(self.files())?;
        self.cluster.node(0).stop()?;
        self.dfsadmin(&["-rollingUpgrade", "finalize"])?;
        self.wait_trashed(4)?;
        self.cluster.start_node(0)?;
        self.cluster.wait_all_live()?;
        self.wait_markers(0)?;
        self.come_and_go()?;
        self.expect_trashed(4)?;
        self.is_told()?;
        let known = self.trash_known(kept)?;
        let blocks = |said: &Value, what: &str| said["volumes"][0][what]["blocks"].clone();
        let counts = |said: &Value| ["trash", "known", "unknown"].map(|what| blocks(said, what));
        for (args, code, counted) in [
            (&["list"][..], 1, [3, 1, 2]),
            (&["purge"], 0, [3, 1, 2]),
            (&["purge", "--yes"], 0, [3, 1, 2]),
            (&["list"], 1, [1, 1, 0]),
        ] {
            let (ended, said) = trash(&conf, args)?;
            let right = ended == Some(code) && counts(&said) == counted.map(|n| json!(n));
            expect(right, || format!("{args:?}: {ended:?} {said:#}"))?;
        }
        expect_eq("files in trash", self.trashed(), known)?;
        // Nothing is known of blocks while no NameNode answers.
        self.cluster.namenode(0).stop()?;
        let (code, said) = trash(&conf, &["purge", "--yes"])?;
        expect(code == Some(1) && counts(&said)[2] == 0, || {
            format!("{said:#}")
        })?;
        expect_eq("files in trash", self.trashed(), known)?;
        self.cluster.namenode(0).start(&[])?;
        self.cluster.wait_all_live()?;
        self.fs.length("/").ok();
        self.check(kept)?;
        // The next upgrade that the node sees from its beginning takes it along.
        self.prepare()?;
        self.finalize()?;
        let (code, said) = trash(&conf, &["list"])?;
        expect(code == Some(0), || format!("{said:#}"))?;
        passed()
    }

    /// Where a Prometheus would look.
    fn is_told(&mut self) -> Result<()> {
        let node = SocketAddr::from((Ipv4Addr::LOCALHOST, self.cluster.node(0).http_port()));
        wait::until("the metric of the trash", seconds(60), || {
            let page = http::get(node, "/prom")?;
            let value = |name: &str| {
                let line = page.lines().find(|line| line.starts_with(name));
                line.and_then(|line| line.rsplit_once(' '))
                    .map(|(_, n)| n.to_owned())
            };
            let bytes = value("hayloft_trash_bytes{").and_then(|n| n.parse::<u64>().ok());
            let runs = value("hayloft_rolling_upgrade{");
            let told = bytes > Some(crate::BLOCK) && runs.as_deref() == Some("0");
            Ok(match told {
                true => Seen::Done(()),
                false => Seen::NotYet(format!("{bytes:?} {runs:?}")),
            })
        })?;
        let page = http::get(node, "/live")?;
        expect(page.contains("hayloft trash list"), || page)
    }

    /// Puts a copy of a replica into the trash of node 0, as if its file had been there before a
    /// rollback; gives the number of files.
    fn trash_known(&mut self, file: u64) -> Result<usize> {
        let path = self.path(file);
        let id = self.fs.blocks(&path)?.remove(0).id;
        let pool = pools(&self.cluster).remove(0);
        let current = pool.join("current");
        let mut copied = 0;
        for from in files_below(&current) {
            let name = from.file_name().unwrap_or_default().to_string_lossy();
            let stem = format!("blk_{id}");
            if name == stem || name.starts_with(&format!("{stem}_")) {
                let below = from.strip_prefix(&current).unwrap_or(&from);
                let to = pool.join("trash").join(below);
                let dir = to.parent().unwrap_or(&to);
                std::fs::create_dir_all(dir).map_err(TestkitError::file("creating", dir))?;
                std::fs::copy(&from, &to).map_err(TestkitError::file("copying", &from))?;
                copied += 1;
            }
        }
        Ok(copied)
    }
}

impl Lab {
    /// The order to finalize comes with a full block report, however late a node is.
    pub fn finalized_while_down(&mut self) -> Result<Outcome> {
        self.stop_all()?;
        self.start_all(&["-upgrade"], [self.ours; crate::NODES], &[])?;
        self.expect_previous(true)?;
        self.cluster.node(0).stop()?;
        self.fs.dfsadmin(&["-finalizeUpgrade"])?;
        self.cluster.start_node(0)?;
        self.cluster.wait_all_live()?;
        wait::until("the end of previous on a late node", seconds(60), || {
            let pool = pools(&self.cluster).remove(0);
            Ok(match pool.join("previous").exists() {
                false => Seen::Done(()),
                true => Seen::NotYet("it is there".into()),
            })
        })?;
        passed()
    }
}
