//! A node whose engine is a plug-in: stock clients cannot tell; Apache's node takes its directories
//! over; a plug-in that is wrong costs its volume, never the node.

#[path = "../../io/tests/plugin/compile.rs"]
mod compile;

use hayloft_testkit::error::Result;
use hayloft_testkit::files::WrittenFiles;
use hayloft_testkit::hadoop::scratch;
use hayloft_testkit::node::Kind;
use hayloft_testkit::suite::{expect, expect_eq, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Cluster, Driver, NodeSpec, Outcome, Suite, TestkitError, VolumeSpec};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Block size of the cluster's clients, bytes.
const BLOCK: u64 = 1 << 20;
/// The node with the plug-ins; the other is as usual.
const ODD: usize = 0;
const NODES: usize = 2;
/// Ways of `odd.c`.
const OTHER_ABI: u32 = 1;
const HANGING: u32 = 19;

fn main() -> ExitCode {
    Suite::run("plugins", |suite| {
        let mut on = suite.group(start, |lab, failed| lab.cluster.conclude(failed));
        on.case("stock_clients_cannot_tell", |lab| lab.served());
        on.case("apache_s_node_takes_the_directories_over", |lab| {
            lab.swapped()
        });
        on.case("one_that_hangs_costs_its_volume", |lab| lab.hanging());
        on.case("one_that_does_not_open_costs_its_volume", |lab| {
            lab.hanging_at_start()
        });
        on.case("one_of_another_version_costs_its_volume", |lab| {
            lab.other_version()
        });
        Ok(())
    })
}

fn start() -> Result<Lab> {
    let base = scratch("plugins-")?;
    let plugin = base.path().join("engine.so");
    compile::plugin("../../plugins/examples/files.c", &plugin, &[]);
    // What the configuration names is replaced while the node is down.
    let odd = base.path().join("odd.so");
    let way = format!("-DWAY={HANGING}");
    compile::plugin("../io/tests/plugin/odd.c", &odd, &[way]);
    let hang = base.path().join("hang");
    let volumes = [base.path().join("plain"), base.path().join("odd")];
    let engine = |dir: &Path, engine: &Path, options: &Path| {
        let value = format!("plugin:{} {}", engine.display(), options.display());
        (format!("hayloft.io.engine.{}", dir.display()), value)
    };
    let (plain, odd_engine) = (
        engine(&volumes[0], &plugin, Path::new("")),
        engine(&volumes[1], &odd, &hang),
    );
    let spec = NodeSpec::new(Kind::Hayloft)
        .volumes(volumes.iter().map(VolumeSpec::at).collect())
        .conf("dfs.datanode.failed.volumes.tolerated", 1)
        .conf("dfs.datanode.disk.check.timeout", "5s")
        .conf(&plain.0, plain.1)
        .conf(&odd_engine.0, odd_engine.1);
    let cluster = Cluster::builder("plugins")
        .conf("dfs.blocksize", BLOCK)
        .conf("dfs.replication", NODES)
        .conf("dfs.client.socket-timeout", 10_000)
        .node(spec)
        .node(NodeSpec::new(Kind::Hayloft))
        .start()?;
    Ok(Lab {
        fs: cluster.driver()?,
        cluster,
        odd,
        hang,
        files: WrittenFiles::default(),
        _base: base,
    })
}

struct Lab {
    fs: Driver,
    cluster: Cluster,
    /// The plug-in of the second volume.
    odd: PathBuf,
    /// While this is there, that one hangs.
    hang: PathBuf,
    files: WrittenFiles,
    // Dropped after the nodes have ended.
    _base: tempfile::TempDir,
}

impl Lab {
    fn put(&mut self, path: &str, bytes: u64) -> Result<()> {
        self.files.put(&self.fs, path, bytes)
    }

    fn check_all(&self) -> Result<()> {
        self.files.check(&self.fs)
    }

    fn wait_replicas(&self) -> Result<()> {
        self.files.wait_replicas(&self.fs, NODES)
    }

    fn served(&mut self) -> Result<Outcome> {
        self.put("/several", 5 * BLOCK + 12_345)?;
        self.put("/small", 10)?;
        self.fs.append("a", "/small", 2, json!({}))?;
        self.fs.write("a", 300_000)?;
        self.fs.handle("hsync", "a")?;
        self.fs.handle("close", "a")?;
        self.files.grew("/small", 300_000)?;
        self.check_all()?;
        self.wait_replicas()?;
        // All reads come from the node with the plug-ins.
        self.cluster.node(1).stop()?;
        self.check_all()?;
        self.cluster.start_node(1)?;
        self.cluster.wait_all_live()?;
        let log = self.cluster.node(ODD).log();
        let log = std::fs::read_to_string(&log).map_err(TestkitError::file("reading", &log))?;
        expect(log.contains("plugin:files"), || {
            "the log does not name the engine".into()
        })?;
        passed()
    }

    fn swapped(&mut self) -> Result<Outcome> {
        for kind in [Kind::Apache, Kind::Hayloft] {
            self.cluster.swap_node(ODD, kind)?;
            self.cluster.wait_all_live()?;
            self.check_all()?;
            self.put(&format!("/by-{kind:?}"), 2 * BLOCK)?;
            self.wait_replicas()?;
        }
        self.cluster.node(1).stop()?;
        self.check_all()?;
        self.cluster.start_node(1)?;
        self.cluster.wait_all_live()?;
        passed()
    }

    /// Volumes that nodes have told the NameNode to have failed.
    fn failed_volumes(&self) -> Result<u64> {
        let bean = self.cluster.namenode_bean(0, "FSNamesystemState")?;
        let failed = bean["VolumeFailuresTotal"].as_u64();
        failed.ok_or_else(|| TestkitError::Expectation(format!("no count of volumes: {bean}")))
    }

    fn wait_failed_volume(&self) -> Result<()> {
        wait::until("a failed volume", seconds(60), || {
            let failed = self.failed_volumes()?;
            Ok(if failed == 1 {
                Seen::Done(())
            } else {
                Seen::NotYet(failed.to_string())
            })
        })
    }

    fn hanging(&mut self) -> Result<Outcome> {
        expect_eq("failed volumes before", self.failed_volumes()?, 0)?;
        std::fs::write(&self.hang, "").map_err(TestkitError::file("writing", &self.hang))?;
        // Blocks go to both volumes in turn; the client's pipeline recovers from those that hang.
        self.put("/while-it-hangs", 4 * BLOCK)?;
        self.wait_failed_volume()?;
        self.check_all()?;
        self.cluster.node(ODD).process()?.check_alive()?;
        self.put("/beside-it", 2 * BLOCK)?;
        std::fs::remove_file(&self.hang).map_err(TestkitError::file("removing", &self.hang))?;
        self.wait_replicas()?;
        passed()
    }

    fn hanging_at_start(&mut self) -> Result<Outcome> {
        self.cluster.node(ODD).stop()?;
        let flag = self.hang.with_extension("open");
        std::fs::write(&flag, "").map_err(TestkitError::file("writing", &flag))?;
        self.cluster.start_node_without_waiting(ODD)?;
        let log = self.cluster.node(ODD).log();
        wait::until("a word on the volume", seconds(30), || {
            let text = std::fs::read_to_string(&log);
            let text = text.map_err(TestkitError::file("reading", &log))?;
            Ok(if text.contains("its engine gives no answer within 5 s") {
                Seen::Done(())
            } else {
                Seen::NotYet("the log does not name it".into())
            })
        })?;
        self.cluster.wait_all_live()?;
        self.wait_failed_volume()?;
        self.check_all()?;
        std::fs::remove_file(&flag).map_err(TestkitError::file("removing", &flag))?;
        passed()
    }

    fn other_version(&mut self) -> Result<Outcome> {
        self.cluster.node(ODD).stop()?;
        let way = format!("-DWAY={OTHER_ABI}");
        compile::plugin("../io/tests/plugin/odd.c", &self.odd, &[way]);
        self.cluster.start_node(ODD)?;
        self.cluster.wait_all_live()?;
        self.wait_failed_volume()?;
        let log = self.cluster.node(ODD).log();
        let log = std::fs::read_to_string(&log).map_err(TestkitError::file("reading", &log))?;
        let said = |line: &&str| line.contains("is for version 2 of the interface");
        let lines: Vec<&str> = log.lines().filter(said).collect();
        expect(lines.len() == 1, || {
            format!("said {} times: {lines:?}", lines.len())
        })?;
        self.check_all()?;
        self.put("/on-the-other-volume", 2 * BLOCK)?;
        self.wait_replicas()?;
        passed()
    }
}
