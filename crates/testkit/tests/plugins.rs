//! A node whose engine is a plug-in: stock clients cannot tell; Apache's node takes its directories
//! over; a plug-in that is wrong costs its volume, never the node.

#[path = "../../io/tests/plugin/compile.rs"]
mod compile;
#[path = "devices/odd_node.rs"]
#[expect(dead_code, reason = "the suite devices needs more of it")]
mod odd_node;

use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::scratch;
use hayloft_testkit::node::Kind;
use hayloft_testkit::suite::{expect, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Cluster, NodeSpec, Outcome, Suite, TestkitError, VolumeSpec};
use odd_node::{NODES, ODD, OddNode};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Block size of the cluster's clients, bytes.
const BLOCK: u64 = 1 << 20;
/// Ways of `odd.c`.
const OTHER_ABI: u32 = 1;
const HANGING: u32 = 19;
/// Ways of `bad.c`: a constructor that calls exit(0), one that crashes, and none that is bad.
const EXITS: u32 = 1;
const CRASHES: u32 = 5;
const NOTHING: u32 = 0;

fn main() -> ExitCode {
    Suite::run("plugins", |suite| {
        let mut on = suite.group(start, |lab, failed| lab.odd.cluster.conclude(failed));
        on.case("stock_clients_cannot_tell", |lab| lab.served());
        on.case("apache_s_node_takes_the_directories_over", |lab| {
            lab.swapped()
        });
        on.case("one_that_hangs_costs_its_volume", |lab| lab.hanging());
        on.case("other_calls_that_hang_cost_the_volume", |lab| {
            lab.hanging_otherwise()
        });
        on.case("one_that_does_not_open_costs_its_volume", |lab| {
            lab.hanging_at_start()
        });
        on.case("one_of_another_version_costs_its_volume", |lab| {
            lab.other_version()
        });
        on.case("one_that_ends_its_process_costs_its_volume", |lab| {
            lab.bad()
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
        odd: OddNode::new(cluster)?,
        plugin: odd,
        hang,
        _base: base,
    })
}

struct Lab {
    odd: OddNode,
    /// That of the second volume.
    plugin: PathBuf,
    /// While this is there, that one hangs.
    hang: PathBuf,
    // Dropped after the nodes have ended.
    _base: tempfile::TempDir,
}

impl Lab {
    fn served(&mut self) -> Result<Outcome> {
        self.odd.write_all_ways(5, BLOCK)?;
        self.odd.check_all()?;
        self.odd.check_odd()?;
        let log = self.odd.log()?;
        expect(log.contains("plugin:files"), || {
            "the log does not name the engine".into()
        })?;
        passed()
    }

    fn swapped(&mut self) -> Result<Outcome> {
        for kind in [Kind::Apache, Kind::Hayloft] {
            self.odd.cluster.swap_node(ODD, kind)?;
            self.odd.cluster.wait_all_live()?;
            self.odd.check_all()?;
            self.odd.put(&format!("/by-{kind:?}"), 2 * BLOCK)?;
            self.odd.wait_replicas()?;
        }
        self.odd.cluster.node(1).stop()?;
        self.odd.check_all()?;
        self.odd.cluster.start_node(1)?;
        self.odd.cluster.wait_all_live()?;
        passed()
    }

    fn set(flag: &Path) -> Result<()> {
        std::fs::write(flag, "").map_err(TestkitError::file("writing", flag))
    }

    fn clear(flag: &Path) -> Result<()> {
        std::fs::remove_file(flag).map_err(TestkitError::file("removing", flag))
    }

    fn hanging(&mut self) -> Result<Outcome> {
        self.odd.wait_failed(0)?;
        Self::set(&self.hang)?;
        // Blocks go to both volumes in turn; the client's pipeline recovers from those that hang.
        self.odd.put("/while-it-hangs", 4 * BLOCK)?;
        self.odd.wait_failed(1)?;
        self.odd.check_all()?;
        self.odd.check_alive()?;
        self.odd.put("/beside-it", 2 * BLOCK)?;
        Self::clear(&self.hang)?;
        self.odd.wait_replicas()?;
        passed()
    }

    fn hanging_otherwise(&mut self) -> Result<Outcome> {
        for call in ["read", "sync", "file", "length", "close"] {
            self.odd.stop()?;
            self.odd.start()?;
            self.odd.wait_failed(0)?;
            let flag = self.hang.with_extension(call);
            Self::set(&flag)?;
            let path = format!("/hangs-in-{call}");
            self.odd.fs.create("h", &path, 70, json!({}))?;
            for _ in 0..4 {
                self.odd.fs.write("h", BLOCK / 2)?;
                self.odd.fs.handle("hsync", "h")?;
            }
            self.odd.fs.handle("close", "h")?;
            self.odd.files.add(&path, 2 * BLOCK, 70);
            // Replicas are read from any of the two nodes: some from the one that hangs.
            wait::until("a failed volume", seconds(60), || {
                self.odd.check_all()?;
                let bean = self.odd.cluster.namenode_bean(0, "FSNamesystemState")?;
                Ok(if bean["VolumeFailuresTotal"] == 1 {
                    Seen::Done(())
                } else {
                    Seen::NotYet(format!("none yet, hanging in {call}"))
                })
            })?;
            self.odd.check_alive()?;
            Self::clear(&flag)?;
            self.odd.wait_replicas()?;
        }
        passed()
    }

    fn hanging_at_start(&mut self) -> Result<Outcome> {
        self.odd.stop()?;
        let flag = self.hang.with_extension("open");
        Self::set(&flag)?;
        self.odd.cluster.start_node_without_waiting(ODD)?;
        wait::until("a word on the volume", seconds(30), || {
            let said = "its engine gives no answer within 5 s";
            Ok(if self.odd.log()?.contains(said) {
                Seen::Done(())
            } else {
                Seen::NotYet("the log does not name it".into())
            })
        })?;
        self.odd.cluster.wait_all_live()?;
        self.odd.wait_failed(1)?;
        self.odd.check_all()?;
        Self::clear(&flag)?;
        passed()
    }

    /// Objects that would end the node with them, each at a start.
    fn bad(&mut self) -> Result<Outcome> {
        let cut = |so: &Path| {
            let whole = std::fs::File::options().write(true).open(so);
            let cut = whole.and_then(|file| file.set_len(4096));
            cut.map_err(TestkitError::file("cutting", so))
        };
        for (way, words) in [
            (EXITS, "it ended its process itself, with exit code 0"),
            (CRASHES, "it was ended by SIGSEGV"),
            (NOTHING, "it is cut short"),
        ] {
            self.odd.stop()?;
            let so = self.plugin.clone();
            // A new file, so that what is mapped from the old one stays.
            std::fs::remove_file(&so).map_err(TestkitError::file("removing", &so))?;
            let way_of = format!("-DWAY={way}");
            compile::plugin("../io/tests/plugin/bad.c", &so, &[way_of]);
            if way == NOTHING {
                cut(&so)?;
            }
            self.odd.start()?;
            self.odd.wait_failed(1)?;
            let log = self.odd.log()?;
            let said = |line: &&str| line.contains(words) && line.contains("odd.so");
            expect(log.lines().any(|line| said(&line)), || {
                format!("the log does not say that {words}")
            })?;
            self.odd.check_all()?;
            self.odd.put(&format!("/beside-bad-{way}"), 2 * BLOCK)?;
        }
        passed()
    }

    fn other_version(&mut self) -> Result<Outcome> {
        self.odd.stop()?;
        let way = format!("-DWAY={OTHER_ABI}");
        compile::plugin("../io/tests/plugin/odd.c", &self.plugin, &[way]);
        self.odd.start()?;
        self.odd.wait_failed(1)?;
        let log = self.odd.log()?;
        let said = |line: &&str| line.contains("is for version 2 of the interface");
        let lines: Vec<&str> = log.lines().filter(said).collect();
        expect(lines.len() == 1, || {
            format!("said {} times: {lines:?}", lines.len())
        })?;
        self.odd.check_all()?;
        self.odd.put("/on-the-other-volume", 2 * BLOCK)?;
        self.odd.wait_replicas()?;
        passed()
    }
}
