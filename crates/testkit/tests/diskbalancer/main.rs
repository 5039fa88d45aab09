//! The disk balancer of a node by Apache's command `hdfs diskbalancer`, beside a stock node that
//! gets the same orders. [`refusals`]: plans that are wrong. [`kills`]: nodes that are killed in a
//! move.

mod kills;
mod refusals;

use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::{class, scratch};
use hayloft_testkit::http;
use hayloft_testkit::mounts::{TestMount, in_own_namespace};
use hayloft_testkit::node::Kind;
use hayloft_testkit::suite::{expect, expect_eq, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Cluster, Driver, NodeSpec, Outcome, Suite, TestkitError, VolumeSpec};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

/// Block size of the cluster's clients, bytes.
const BLOCK: u64 = 1 << 20;
/// Size of each disk, MiB.
const DISK_MIB: u32 = 192;
/// Files of two blocks each, with a replica on both nodes.
const FILES: u64 = 20;
/// The node under test, and the stock node beside it.
const NODES: [usize; 2] = [0, 1];

fn main() -> ExitCode {
    in_own_namespace();
    Suite::run("diskbalancer", |suite| {
        if !suite.may_mount_disks("everything") {
            return Ok(());
        }
        let mut on = suite.group(Lab::start, |lab, failed| lab.cluster.conclude(failed));
        on.case("a_slow_plan_is_queried_and_cancelled", Lab::cancelled)
            .case("a_plan_balances_under_readers", Lab::balances)
            .case("wrong_plans_are_refused_in_the_same_words", Lab::refusals)
            .case("a_report_names_nodes_and_volumes", Lab::report)
            .case("only_superusers_give_orders", Lab::strangers)
            .case("keys_change_while_it_runs", Lab::reconfigured)
            .case("killed_in_a_move_and_handed_to_apache", Lab::killed)
            .case("a_disk_that_fails_ends_its_step", Lab::failed_disk);
        kills::cases(suite);
        Ok(())
    })
}

struct Lab {
    // Dropped first to last: the nodes end before their disks go.
    fs: Driver,
    cluster: Cluster,
    disks: Vec<TestMount>,
    _base: tempfile::TempDir,
}

fn path_of(file: u64) -> String {
    format!("/files/{file}")
}

impl Lab {
    /// Nodes with two disks each. The files that are given back fill the second ones, if wanted.
    fn with(kinds: &[Kind], filled: bool) -> Result<(Self, Vec<PathBuf>)> {
        let base = scratch("diskbalancer-")?;
        let mut disks = Vec::new();
        let mut builder = Cluster::builder("diskbalancer")
            .conf("dfs.blocksize", BLOCK)
            .conf("dfs.replication", 2)
            .conf("dfs.datanode.failed.volumes.tolerated", 1)
            .conf(
                "dfs.datanode.round-robin-volume-choosing-policy.additional-available-space",
                0,
            );
        for (node, kind) in kinds.iter().enumerate() {
            let mut volumes = Vec::new();
            for volume in 0..2 {
                let name = format!("disk-{node}-{volume}");
                let at = base.path().join(&name);
                let image = base.path().join(format!("{name}.img"));
                disks.push(TestMount::ext4(&image, &at, DISK_MIB)?);
                volumes.push(VolumeSpec::at(at.join("data")));
            }
            builder = builder.node(NodeSpec::new(*kind).volumes(volumes));
        }
        let mut fillers = Vec::new();
        for disk in disks.iter().skip(1).step_by(2).filter(|_| filled) {
            fillers.push(disk.fill_but(BLOCK / 2)?);
        }
        let cluster = builder.start()?;
        let lab = Self {
            fs: cluster.driver()?,
            cluster,
            disks,
            _base: base,
        };
        Ok((lab, fillers))
    }

    /// Two nodes. All that there is lies on the first disk of each.
    fn start() -> Result<Self> {
        let (lab, fillers) = Self::with(&[Kind::under_test(), Kind::Apache], true)?;
        for file in 0..FILES {
            lab.fs.put(&path_of(file), 2 * BLOCK, file, json!({}))?;
        }
        for filler in fillers {
            std::fs::remove_file(&filler).map_err(TestkitError::file("removing", &filler))?;
        }
        for node in NODES {
            expect_eq("replicas on the second disk", lab.counts(node)[1], 0)?;
        }
        // The NameNode is to know how much room there is.
        std::thread::sleep(seconds(3));
        Ok(lab)
    }

    /// Replicas on each disk of a node.
    fn counts(&self, node: usize) -> [usize; 2] {
        let files = self.cluster.nodes().nth(node).map(|n| n.all_block_files());
        let files = files.unwrap_or_default();
        [0, 1].map(|volume| {
            let dir = self.disks[node * 2 + volume].path();
            let data = |path: &&std::path::PathBuf| {
                path.starts_with(dir) && path.extension().is_none_or(|e| e != "meta")
            };
            files.iter().filter(data).count()
        })
    }

    /// One value of a node's first VERSION file.
    fn version_of(&mut self, node: usize, volume: usize, name: &str) -> Result<String> {
        let path = self.disks[node * 2 + volume].path();
        let path = path.join("data/current/VERSION");
        let text = std::fs::read_to_string(&path).map_err(TestkitError::file("reading", &path))?;
        let line = text
            .lines()
            .find_map(|l| l.strip_prefix(name)?.strip_prefix('='));
        line.map(str::to_owned)
            .ok_or_else(|| TestkitError::Expectation(format!("no {name} in {text}")))
    }

    /// `hdfs diskbalancer ARGS`: what it prints.
    fn run(&self, args: &[&str]) -> Result<String> {
        let run = self.fs.tool(class::DISK_BALANCER, args)?.ok()?;
        Ok(run.out)
    }

    /// `hdfs diskbalancer ARGS`, which must fail: why.
    fn refused(&self, args: &[&str]) -> Result<String> {
        match self.run(args) {
            Ok(out) => Err(TestkitError::Expectation(format!("{args:?}: {out}"))),
            Err(error) => Ok(error.to_string()),
        }
    }

    /// Has the command plan for a node; the plan's file.
    fn plan(&mut self, node: usize, bandwidth: &str) -> Result<String> {
        let uuid = self.version_of(node, 0, "datanodeUuid")?;
        let dir = format!("/plans/{node}-{bandwidth}");
        let mut args = vec!["-plan", &uuid, "-out", &dir, "-thresholdPercentage", "2"];
        args.extend(["-bandwidth", bandwidth]);
        let out = self.run(&args)?;
        let file = out.lines().find(|line| line.ends_with(".plan.json"));
        file.map(|line| line.trim().to_owned())
            .ok_or_else(|| TestkitError::Expectation(format!("no plan: {out}")))
    }

    fn query(&mut self, node: usize, more: &[&str]) -> Result<String> {
        let ipc = self.cluster.node(node).ipc();
        self.run(&[&["-query", &ipc], more].concat())
    }

    /// Waits until a plan is done; the steps as `-query -v` prints them.
    fn done(&mut self, node: usize) -> Result<Value> {
        let wanted = "the end of the plan";
        let out = wait::until(wanted, seconds(120), || {
            let out = self.query(node, &["-v"])?;
            Ok(if out.contains("Result: PLAN_UNDER_PROGRESS") {
                Seen::NotYet(out)
            } else {
                Seen::Done(out)
            })
        })?;
        expect(out.contains("Result: PLAN_DONE"), || out.clone())?;
        let json = out.find("[ {").map_or("", |at| out[at..].trim());
        serde_json::from_str(json).map_err(|e| TestkitError::Expectation(format!("{e}: {out}")))
    }

    fn check_files(&self) -> Result<()> {
        (0..FILES).try_for_each(|file| self.fs.check(&path_of(file), 2 * BLOCK, file))
    }

    /// One plan at a time, as slow as it says, until an operator cancels it.
    fn cancelled(&mut self) -> Result<Outcome> {
        let mut said = Vec::new();
        for node in NODES {
            let ipc = self.cluster.node(node).ipc();
            let idle = self.query(node, &[])?;
            expect(idle.contains("Result: NO_PLAN"), || idle.clone())?;
            let file = self.plan(node, "1")?;
            self.run(&["-execute", &file])?;
            let running = self.query(node, &["-v"])?;
            expect(running.contains("Result: PLAN_UNDER_PROGRESS"), || {
                running.clone()
            })?;
            expect(running.contains("\"bandwidth\" : 1"), || running.clone())?;
            let second = self.refused(&["-execute", &file])?;
            expect(second.contains("Executing another plan"), || second.clone())?;
            let other = self.refused(&["-cancel", &"0".repeat(40), "-node", &ipc])?;
            expect(other.contains("No such plan."), || other.clone())?;
            self.run(&["-cancel", &file])?;
            let cancelled = self.query(node, &[])?;
            expect(cancelled.contains("Result: PLAN_CANCELLED"), || {
                cancelled.clone()
            })?;
            let moved = self.counts(node);
            expect(moved[0] > moved[1], || format!("{moved:?} after a cancel"))?;
            let uuid = self.version_of(node, 0, "datanodeUuid")?;
            let plain = |text: &str| text.replace(&ipc, "IPC").replace(&uuid, "UUID");
            let lines = |text: &str| -> Vec<String> {
                let of_plan = |line: &&str| !line.starts_with("Plan ");
                plain(text)
                    .lines()
                    .filter(of_plan)
                    .map(str::to_owned)
                    .collect()
            };
            // The stock node sends where in its sources it was, too.
            let why = |text: &str| plain(text.lines().next().unwrap_or_default());
            said.push((lines(&idle), lines(&cancelled), why(&second), why(&other)));
        }
        expect_eq("what both kinds say", &said[0], &said[1])?;
        passed()
    }

    /// Readers see every byte while replicas move, and both disks are as full in the end.
    fn balances(&mut self) -> Result<Outcome> {
        let mut fields = Vec::new();
        for node in NODES {
            let file = self.plan(node, "20")?;
            let before = self.counts(node);
            self.run(&["-execute", &file])?;
            self.check_files()?;
            let steps = self.done(node)?;
            self.check_files()?;
            let after = self.counts(node);
            let sum = |counts: [usize; 2]| counts[0] + counts[1];
            expect_eq("replicas of the node", sum(after), sum(before))?;
            expect(after[0].abs_diff(after[1]) <= 8, || {
                format!("{before:?} -> {after:?}")
            })?;
            let names = |value: &Value| -> BTreeSet<String> {
                let map = value.as_object();
                map.map(|m| m.keys().cloned().collect()).unwrap_or_default()
            };
            // A step that ends with an error says why, one that takes a second says how long it
            // took; which do is chance.
            let mut item = names(&steps[0]["workItem"]);
            for by_chance in ["errMsg", "secondsElapsed"] {
                item.remove(by_chance);
            }
            let web = SocketAddr::from(([127, 0, 0, 1], self.cluster.node(node).http_port()));
            let bean = http::jmx(web, "Hadoop:service=DataNode,name=DataNodeInfo")?;
            let status = bean["DiskBalancerStatus"].as_str().unwrap_or_default();
            let status: Value = serde_json::from_str(status).unwrap_or_default();
            expect_eq("the bean's result", &status["result"], &json!("PLAN_DONE"))?;
            expect_eq("the bean's steps", &status["currentState"], &steps)?;
            let paths = [&steps[0]["sourcePath"], &steps[0]["destPath"]];
            let disks = [0, 1].map(|v| {
                json!(format!(
                    "{}/data/",
                    self.disks[node * 2 + v].path().display()
                ))
            });
            expect_eq("paths", paths, [&disks[0], &disks[1]])?;
            fields.push((names(&steps[0]), item, names(&status)));
        }
        expect_eq("fields of both kinds", &fields[0], &fields[1])?;
        for file in 0..FILES {
            self.fs.wait_replicas(&path_of(file), 2, seconds(30))?;
        }
        self.fs.wait_healthy("/files", seconds(30))?;
        for node in self.cluster.nodes() {
            self.fs.verify_metas(node)?;
        }
        passed()
    }

    fn report(&mut self) -> Result<Outcome> {
        let report = self.run(&["-report", "-top", "2"])?;
        let both = report.matches("2 volumes with node data density").count();
        expect(both == 2, || {
            format!("no two nodes of two volumes in: {report}")
        })?;
        passed()
    }

    fn strangers(&mut self) -> Result<Outcome> {
        let stranger = json!({"user": "a-stranger"});
        for node in NODES {
            let ipc = self.cluster.node(node).ipc();
            for args in [["-query", &ipc], ["-cancel", "0123"]] {
                let mut args = args.to_vec();
                if args[0] == "-cancel" {
                    args.extend(["-node", &ipc]);
                }
                let run = self
                    .fs
                    .tool_with(class::DISK_BALANCER, &args, stranger.clone());
                let text = match run {
                    Ok(run) => format!("{run:?}"),
                    Err(error) => error.to_string(),
                };
                expect(text.contains("Permission denied"), || text.clone())?;
            }
        }
        passed()
    }

    fn reconfigured(&mut self) -> Result<Outcome> {
        for node in NODES {
            let ipc = self.cluster.node(node).ipc();
            for (on, says) in [(false, "Disk Balancer is not enabled."), (true, "")] {
                let conf = self.cluster.node(node).conf_mut();
                conf.set("dfs.disk.balancer.enabled", on)
                    .set("dfs.disk.balancer.plan.valid.interval", "1ms");
                self.cluster.rewrite_node_conf(node)?;
                let status = self.fs.reconfigure(&ipc, seconds(30))?;
                let done = "SUCCESS: Changed property dfs.disk.balancer.enabled";
                expect(status.contains(done), || status.clone())?;
                if on {
                    let file = self.by_hand(node, (0, 1), BLOCK, 1)?;
                    let old = self.refused(&["-execute", &file])?;
                    let says = "Plan was generated more than 1ms ago";
                    expect(old.contains(says), || old.clone())?;
                    self.run(&["-execute", &file, "-skipDateCheck"])?;
                    self.done(node)?;
                } else {
                    let off = self.refused(&["-query", &ipc])?;
                    expect(off.contains(says), || off.clone())?;
                }
            }
        }
        passed()
    }

    /// A plan that moves from one disk of a node to the other, as a file in HDFS.
    fn by_hand(
        &mut self,
        node: usize,
        (source, target): (usize, usize),
        bytes: u64,
        bandwidth: u64,
    ) -> Result<String> {
        let plan = self.plan_json(node, (source, target), bytes, bandwidth)?;
        let path = format!("/plans/by-hand-{node}-{source}-{bytes}");
        let put = json!({"stdin": plan.to_string()});
        let args = ["-put", "-f", "-", path.as_str()];
        self.fs.tool_with(class::FS_SHELL, &args, put)?.ok()?;
        Ok(path)
    }

    fn failed_disk(&mut self) -> Result<Outcome> {
        if Kind::under_test() == Kind::Apache {
            return Ok(Outcome::Skipped(
                "the stock node looks for disks at times only".into(),
            ));
        }
        self.cluster.heal()?;
        let _broken = self.query(0, &[]);
        let counts = self.counts(0);
        let (source, target) = if counts[0] > counts[1] {
            (0, 1)
        } else {
            (1, 0)
        };
        let file = self.by_hand(0, (source, target), 15 * BLOCK, 2)?;
        self.run(&["-execute", &file, "-skipDateCheck"])?;
        self.disks[target].abort()?;
        let steps = self.done(0)?;
        let error = steps[0]["workItem"]["errMsg"].as_str().unwrap_or_default();
        let gone = error.contains("Unable to find dest volume") || error.contains("Error count");
        expect(gone, || steps.to_string())?;
        self.fs.wait_healthy("/files", seconds(60))?;
        self.check_files()?;
        passed()
    }
}
