//! Counts of operations and the audit trail beside a stock node's, after the same work on both.

use crate::ask::kind;
use crate::{BLOCK, Lab, OURS, STOCK};
use hayloft_testkit::error::Result;
use hayloft_testkit::http;
use hayloft_testkit::suite::{expect, expect_eq, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Outcome, TestkitError};
use serde_json::{Value, json};
use std::io::Write as _;
use std::process::{Command, Stdio};

const ACTIVITY: &str = "DataNodeActivity-";
/// How long a stock node may show numbers that are old: its cache of beans, and some.
const STALE: u64 = 40;
/// Blocks of the file that is written to each node.
const BLOCKS: u64 = 2;

/// Beans whose attributes are all Apache's, none less.
const WHOLE: [&str; 7] = [
    "DataNodeInfo",
    "DataNodeVolume-",
    "FSDatasetState",
    "FSDatasetState-",
    ACTIVITY,
    "RpcActivityForPort-",
    "RpcDetailedActivityForPort-",
];

/// What grows by the same on both nodes, and by how much at least.
const SAME: [(&str, u64); 15] = [
    ("WriteBlockOpNumOps", 2 * BLOCKS + 1),
    ("ReadBlockOpNumOps", BLOCKS),
    ("BlockChecksumOpNumOps", BLOCKS),
    ("CreateRbwOpNumOps", BLOCKS + 1),
    ("CreateTemporaryOpNumOps", BLOCKS),
    ("FinalizeBlockOpNumOps", 2 * BLOCKS + 1),
    ("BlocksRead", BLOCKS),
    ("BlocksReplicated", BLOCKS),
    ("BlocksRemoved", 2 * BLOCKS),
    ("BytesRead", BLOCKS * BLOCK),
    ("BytesWritten", 2 * BLOCKS * BLOCK),
    ("ReadsFromLocalClient", BLOCKS),
    ("WritesFromLocalClient", 2 * BLOCKS + 1),
    ("FsyncCount", 1),
    ("ReadTransferRateNumOps", BLOCKS),
];

/// What grows on both nodes, by as much as each has to do. Apache's node counts a copy between
/// nodes as two blocks written.
const GROWING: [&str; 8] = [
    "BlocksWritten",
    "HeartbeatsNumOps",
    "HeartbeatsTotalNumOps",
    "IncrementalBlockReportsNumOps",
    "PacketsReceived",
    "FlushNanosNumOps",
    "SendDataPacketBlockedOnNetworkNanosNumOps",
    "SendDataPacketTransferNanosNumOps",
];

/// What is above 0 on both, at least for a period.
const THERE: [&str; 6] = [
    "BlockReportsNumOps",
    "WriteBlockOpAvgTime",
    "FsyncNanosNumOps",
    "FlushNanosAvgTime",
    "HeartbeatsAvgTime",
    "ReadTransferRateAvgTime",
];

/// A line of the audit trail as analyzers take it apart, from its first field to its end.
const TRACE: &str = "src: /[0-9.]+:[0-9]+, dest: /[0-9.]+:[0-9]+, volume: [^,]*, bytes: [0-9]+, \
    op: (HDFS_READ|HDFS_WRITE), cliID: [^ ,]+, offset: [0-9]+, srvID: [^ ,]+, \
    blockid: BP-[^ ,:]+:blk_-?[0-9]+_[0-9]+, duration\\(ns\\): [0-9]+$";

/// The lines that fit an extended regular expression.
fn fitting(pattern: &str, text: &str) -> Result<Vec<String>> {
    let failed = |error| TestkitError::Talk(format!("grep: {error}"));
    let mut child = Command::new("grep")
        .args(["-oE", pattern])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let mut stdin = child.stdin.take();
    let text = text.to_owned();
    let writing =
        std::thread::spawn(move || stdin.as_mut().map(|stdin| stdin.write_all(text.as_bytes())));
    let output = child.wait_with_output().map_err(failed)?;
    let _written = writing.join();
    let lines = String::from_utf8_lossy(&output.stdout);
    Ok(lines.lines().map(str::to_owned).collect())
}

impl Lab {
    fn bean_of(&mut self, node: usize, begins: &str) -> Result<Value> {
        let beans = self.all_beans(node)?;
        // Ports differ: what begins so, and is followed by anything, where a dash says so.
        let is_whole = !begins.ends_with('-');
        let wanted = format!(
            "Hadoop:service=DataNode,name={}",
            begins.trim_end_matches('-')
        );
        let found = beans.into_iter().find(|bean| {
            let name = bean["name"].as_str().unwrap_or_default();
            name.starts_with(&wanted) && is_whole == (name == wanted)
        });
        found.ok_or_else(|| TestkitError::Expectation(format!("node {node} has no {wanted}")))
    }

    /// Every attribute of the beans that count is there, as the same kind of value.
    pub fn whole_beans(&mut self) -> Result<Outcome> {
        self.ask_rpc()?;
        for begins in WHOLE {
            let (own, apache) = (self.bean_of(OURS, begins)?, self.bean_of(STOCK, begins)?);
            for (name, theirs) in apache.as_object().into_iter().flatten() {
                expect(kind(&own[name]) == kind(theirs), || {
                    format!("{begins} {name}: {} is not as {theirs}", own[name])
                })?;
            }
            let count = |bean: &Value| bean.as_object().map_or(0, serde_json::Map::len);
            println!("web: {begins}: {} of {}", count(&own), count(&apache));
        }
        passed()
    }

    /// A call to the RPC port of each node.
    pub fn ask_rpc(&mut self) -> Result<()> {
        for node in [OURS, STOCK] {
            let ipc = self.cluster.node(node).ipc();
            self.fs.dfsadmin(&["-getDatanodeInfo", &ipc])?;
        }
        Ok(())
    }

    /// The same work on both nodes moves their counts by the same.
    pub fn same_work(&mut self) -> Result<Outcome> {
        wait::until("numbers that are not old", seconds(STALE), || {
            std::thread::sleep(seconds(12));
            Ok(Seen::Done(()))
        })?;
        let before = [OURS, STOCK].map(|node| self.bean_of(node, ACTIVITY));
        let [ours, stock] = before;
        let before = [ours?, stock?];
        for node in [OURS, STOCK] {
            self.work_on(node)?;
        }
        for node in [OURS, STOCK] {
            let path = format!("/work-{node}/s0");
            self.fs.fs(&["-setrep", "2", &path])?;
            self.fs.wait_replicas(&path, 2, seconds(60))?;
            self.fs.fs(&["-rm", "-skipTrash", &path])?;
        }
        let grown = |now: &Value, before: &Value, name: &str| {
            let of = |bean: &Value| bean[name].as_u64().unwrap_or(0);
            of(now).saturating_sub(of(before))
        };
        let mut there = [[false; THERE.len()]; 2];
        wait::until("the same counts on both nodes", seconds(3 * STALE), || {
            let (ours, stock) = (
                self.bean_of(OURS, ACTIVITY)?,
                self.bean_of(STOCK, ACTIVITY)?,
            );
            let mut odd = Vec::new();
            for (name, least) in SAME {
                let by = [
                    grown(&ours, &before[0], name),
                    grown(&stock, &before[1], name),
                ];
                if by[0] != by[1] || by[0] < least {
                    odd.push(format!("{name} {by:?}, at least {least}"));
                }
            }
            for name in GROWING {
                let by = [
                    grown(&ours, &before[0], name),
                    grown(&stock, &before[1], name),
                ];
                if by.contains(&0) {
                    odd.push(format!("{name} {by:?}"));
                }
            }
            for (seen, now) in there.iter_mut().zip([&ours, &stock]) {
                for (seen, name) in seen.iter_mut().zip(THERE) {
                    *seen |= now[name].as_f64().is_some_and(|n| n > 0.0);
                    if !*seen {
                        odd.push(format!("{name} {}", now[name]));
                    }
                }
            }
            Ok(if odd.is_empty() {
                Seen::Done(())
            } else {
                Seen::NotYet(odd.join("; "))
            })
        })?;
        passed()
    }

    fn work_on(&mut self, node: usize) -> Result<()> {
        let path = format!("/work-{node}");
        let favored = [self.cluster.node(node).xfer()];
        let write = json!({
            "path": path, "streams": 1, "bytes": BLOCKS * BLOCK, "replication": 1,
            "blockSize": BLOCK, "favored": favored,
        });
        self.fs.call("writeStreams", write)?;
        let read = json!({"path": path, "streams": 1});
        self.fs.call("readStreams", read)?;
        let file = format!("{path}/s0");
        self.fs.call("checksum", json!({ "path": file }))?;
        // Each node has a replica of this one: it counts on both, once for each of them.
        if node == OURS {
            self.fs
                .create("h", "/synced", 9, json!({"replication": 2}))?;
            self.fs.write("h", 1000)?;
            self.fs.handle("hsync", "h")?;
            self.fs.handle("close", "h")?;
        }
        Ok(())
    }

    /// Calls to the RPC port are counted, in all and by method.
    pub fn rpc_counts(&mut self) -> Result<Outcome> {
        let begins = "RpcActivityForPort-";
        let before = self.bean_of(OURS, begins)?;
        self.ask_rpc()?;
        let after = self.bean_of(OURS, begins)?;
        let by = |name: &str| {
            let of = |bean: &Value| bean[name].as_u64().unwrap_or(0);
            of(&after) - of(&before)
        };
        for name in [
            "RpcProcessingTimeNumOps",
            "RpcQueueTimeNumOps",
            "RpcCallSuccesses",
        ] {
            expect_eq(name, by(name), 1)?;
        }
        for name in ["ReceivedBytes", "SentBytes", "RpcAuthorizationSuccesses"] {
            expect(by(name) > 0, || format!("{name} did not grow: {after}"))?;
        }
        let methods = self.bean_of(OURS, "RpcDetailedActivityForPort-")?;
        let calls = methods["GetDatanodeInfoNumOps"].as_u64();
        expect(calls > Some(0), || methods.to_string())?;
        passed()
    }

    /// Lines of the audit trail from both nodes fit one expression.
    pub fn trail(&mut self) -> Result<Outcome> {
        let class = "org.apache.hadoop.hdfs.server.datanode.DataNode.clienttrace";
        let set = |lab: &mut Self, level: &str| -> Result<()> {
            for node in [OURS, STOCK] {
                let web = lab.web(node);
                http::get(web, &format!("/logLevel?log={class}&level={level}"))?;
            }
            Ok(())
        };
        let traced = |lab: &mut Self, node: usize| {
            let log = lab.cluster.node(node).log();
            let text = std::fs::read_to_string(&log);
            let text = text.map_err(TestkitError::file("reading", &log))?;
            let all = text.lines().filter(|line| line.contains("duration(ns)"));
            let all = all.collect::<Vec<_>>().join("\n");
            let lines = fitting(TRACE, &all)?;
            expect_eq("lines that fit", lines.len(), all.lines().count())?;
            let of = |op: &str| lines.iter().filter(|line| line.contains(op)).count();
            Ok::<_, TestkitError>((of("op: HDFS_READ"), of("op: HDFS_WRITE"), lines.clone()))
        };
        let before = [traced(self, OURS)?, traced(self, STOCK)?];
        expect_eq("reads in the log at INFO", before[0].0, 0)?;
        set(self, "DEBUG")?;
        for node in [OURS, STOCK] {
            self.work_again(node)?;
        }
        let bytes = (BLOCK + BLOCK / 512 * 4).to_string();
        for node in [OURS, STOCK] {
            let (reads, writes, lines) = traced(self, node)?;
            let (reads_before, writes_before, _) = &before[node];
            expect_eq("reads in the log", reads - reads_before, 1)?;
            expect_eq("writes in the log", writes - writes_before, 1)?;
            let has = |wanted: &str| lines.iter().any(|line| line.contains(wanted));
            let read = format!("bytes: {bytes}, op: HDFS_READ");
            let written = format!("bytes: {BLOCK}, op: HDFS_WRITE");
            expect(has(&read) && has(&written), || {
                format!("{node}: {lines:#?}")
            })?;
        }
        set(self, "INFO")?;
        passed()
    }

    fn work_again(&mut self, node: usize) -> Result<()> {
        let path = format!("/traced-{node}");
        let favored = [self.cluster.node(node).xfer()];
        let write = json!({
            "path": path, "streams": 1, "bytes": BLOCK, "replication": 1, "blockSize": BLOCK,
            "favored": favored,
        });
        self.fs.call("writeStreams", write)?;
        let read = json!({"path": path, "streams": 1});
        self.fs.call("readStreams", read)?;
        Ok(())
    }
}
