//! `hayloft swap` on the host of a node with many blocks: each way takes a minute at most.
//! `HAYLOFT_SWAP_BLOCKS` is another number of them, for a machine that has no time for 100,000.

use crate::shell_host::ShellHost;
use hayloft_io::RecordLock;
use hayloft_testkit::error::Result;
use hayloft_testkit::node::Kind;
use hayloft_testkit::suite::{expect, expect_eq, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Cluster, Driver, Outcome, Suite, http, ports};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Blocks of the node where no other number is given.
const BLOCKS: u64 = 100_000;
/// Bytes of each: what a swap costs is in their number.
const BLOCK: u64 = 512;
/// Files that are written at once, each of which is a long row of blocks.
const STREAMS: u64 = 20;
/// For the whole command.
const WITHIN: Duration = Duration::from_secs(60);

pub fn cases(suite: &mut Suite) {
    let mut on = suite.group(Many::start, Many::end);
    on.case("many_blocks_are_there", |many| many.fill());
    on.case("many_blocks_swapped_in", |many| many.swap("in", "hayloft"));
    on.case("many_blocks_swapped_out", |many| many.swap("out", "apache"));
}

struct Many {
    cluster: Cluster,
    fs: Driver,
    shell: Option<ShellHost>,
    blocks: u64,
}

/// What is seen of a swap from outside, in seconds since it began.
#[derive(Debug, Default)]
struct Phases {
    /// No node holds the directories.
    stopped: Option<f64>,
    /// The other one does.
    holds: Option<f64>,
    /// A NameNode took its full report.
    reported: Option<f64>,
}

impl Many {
    fn start() -> Result<Self> {
        let given = std::env::var("HAYLOFT_SWAP_BLOCKS").ok();
        let blocks = given.and_then(|text| text.parse().ok()).unwrap_or(BLOCKS);
        let cluster = Cluster::builder("many")
            .names_in_memory()
            .nodes(1, Kind::Hayloft)
            .conf("dfs.replication", 1)
            .conf("dfs.namenode.fs-limits.max-blocks-per-file", blocks)
            .start()?;
        let fs = cluster.driver()?;
        Ok(Self {
            cluster,
            fs,
            shell: None,
            blocks,
        })
    }

    fn end(self, failed: bool) {
        if let Some(shell) = &self.shell {
            shell.end(failed);
        }
        self.cluster.conclude(failed);
    }

    fn fill(&mut self) -> Result<Outcome> {
        let request = json!({
            "path": "/blocks", "streams": STREAMS, "blockSize": BLOCK,
            "bytes": self.blocks.div_ceil(STREAMS) * BLOCK,
        });
        let began = Instant::now();
        let writing = self.fs.begin("writeStreams", request)?;
        writing.wait_at_most(seconds(1500))?;
        let took = began.elapsed().as_secs_f64();
        println!("{} blocks in {took:.0} s", self.blocks);
        let shell = ShellHost::of(&mut self.cluster, 0)?;
        shell.daemon("start")?;
        self.shell = Some(shell);
        wait::until("Apache's node to have all", seconds(120), || {
            let (_, report) = self.asked(&["status"])?;
            let known = report["live"][0]["blocks"].as_u64();
            let runs = report["runs"]["node"] == "apache" && known >= Some(self.blocks);
            Ok(match runs {
                true => Seen::Done(()),
                false => Seen::NotYet(report.to_string()),
            })
        })?;
        passed()
    }

    fn asked(&self, words: &[&str]) -> Result<(i32, Value)> {
        match &self.shell {
            Some(shell) => shell.swap(words, &[]),
            None => expect(false, || "no host".into()).map(|()| (0, Value::Null)),
        }
    }

    fn swap(&mut self, way: &str, to: &str) -> Result<Outcome> {
        let volumes: Vec<PathBuf> = self
            .cluster
            .node(0)
            .volumes()
            .map(|dir| dir.join("in_use.lock"))
            .collect();
        let port = self.cluster.node(0).http_port();
        let (began, over) = (Instant::now(), AtomicBool::new(false));
        let (swapped, phases) = std::thread::scope(|scope| {
            let watch = scope.spawn(|| watch(&volumes, port, began, &over));
            let swapped = self.asked(&[way]);
            over.store(true, Ordering::Relaxed);
            (swapped, watch.join())
        });
        let took = began.elapsed();
        let (code, report) = swapped?;
        println!("swap {way}: {:.1} s, {phases:?}", took.as_secs_f64());
        for step in report["steps"].as_array().into_iter().flatten() {
            let at = step["seconds"].as_f64().unwrap_or_default();
            println!("  {at:>6.1} s  {}: {}", step["step"], step["said"]);
        }
        expect(code == 0, || report.to_string())?;
        ShellHost::runs(&report, to, to)?;
        expect_eq("blocks", &report["blocks_after"], &report["blocks_before"])?;
        expect(report["blocks_after"].as_u64() >= Some(self.blocks), || {
            report.to_string()
        })?;
        expect(took < WITHIN, || format!("it took {took:?}: {report}"))?;
        passed()
    }
}

fn watch(locks: &[PathBuf], port: u16, began: Instant, over: &AtomicBool) -> Phases {
    let mut phases = Phases::default();
    while !over.load(Ordering::Relaxed) {
        let at = Some(began.elapsed().as_secs_f64());
        let held = locks
            .iter()
            .any(|lock| RecordLock::holder(lock).is_ok_and(|of| of.is_some()));
        match (phases.stopped, phases.holds) {
            (None, _) if !held => phases.stopped = at,
            (Some(_), None) if held => phases.holds = at,
            (Some(_), Some(_)) if phases.reported.is_none() && has_reported(port) => {
                phases.reported = at;
            }
            _ => {}
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    phases
}

fn has_reported(port: u16) -> bool {
    let page = "/jmx?qry=Hadoop:service=DataNode,name=DataNodeActivity*";
    let page = http::get(ports::local(port), page).unwrap_or_default();
    let page: Value = serde_json::from_str(&page).unwrap_or_default();
    page["beans"][0]["BlockReportsNumOps"].as_u64() > Some(0)
}
