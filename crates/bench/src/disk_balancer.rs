//! The disk balancer of a node: what is measured of it, and the order to move blocks from one
//! volume to another with no bandwidth that holds it back.

use hayloft_node::disk_balancer::plan_id;
use hayloft_rpc::{CLIENT_DATANODE_PROTOCOL, RpcOptions, current_user};
use hayloft_testkit::blocking_rpc::BlockingRpc;
use hayloft_testkit::error::{Result, TestkitError, expect};
use hayloft_testkit::node::Node;
use hayloft_wire::proto::clientdatanode::{
    QueryPlanStatusRequest, QueryPlanStatusResponse, SubmitDiskBalancerPlanRequest,
    SubmitDiskBalancerPlanResponse,
};
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

/// MiB a second that a plan allows: no disk gives as much.
const BANDWIDTH: u32 = 1_000_000;
/// Volumes of a node.
pub(super) const VOLUMES: usize = 2;
/// A plan under way, as a node tells it.
const UNDER_WAY: u32 = 1;
/// A node is asked so often whether it is done: a move takes a second or more.
const EVERY: Duration = Duration::from_millis(10);
/// Longest that a move may take.
const LIMIT: Duration = Duration::from_secs(600);

/// What is done with the blocks of two volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Balancing {
    /// Those of one are read, and nothing moves.
    Idle,
    /// They are read while those of the other move to them.
    Readers,
    /// Those of one move to the other.
    Move,
}

impl Balancing {
    /// All of them, in an order in which files are written twice, not three times.
    pub const ALL: [Self; 3] = [Self::Idle, Self::Readers, Self::Move];

    /// The name of its row.
    #[must_use]
    pub const fn row(self) -> &'static str {
        match self {
            Self::Idle => "disk-balancer-idle",
            Self::Readers => "disk-balancer-readers",
            Self::Move => "disk-balancer",
        }
    }

    /// What it is, in a line.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::Idle => "4 readers of 64 KiB at random, no disk balancer",
            Self::Readers => "the same beside a disk balancer that is not throttled",
            Self::Move => "blocks that it moves to another directory of the disk",
        }
    }

    /// Whether blocks are read.
    #[must_use]
    pub const fn reads(self) -> bool {
        !matches!(self, Self::Move)
    }

    /// Whether blocks move.
    #[must_use]
    pub const fn moves(self) -> bool {
        !matches!(self, Self::Idle)
    }
}

/// Configuration of nodes that are not held back.
pub(super) fn nodes_conf() -> (&'static str, String) {
    let key = "dfs.disk.balancer.max.disk.throughputInMBperSec";
    (key, BANDWIDTH.to_string())
}

/// What a move came to: bytes, and how long it took.
pub(super) type Moved = (u64, Duration);

/// A plan for a node, and the way to it. `hdfs diskbalancer` would say no more, but plans by shares
/// of a disk, and both volumes are on one.
pub(super) struct Order {
    rpc: BlockingRpc,
    plan: String,
    bytes: u64,
}

impl Order {
    /// To move so many bytes from one volume to the other.
    ///
    /// # Errors
    /// When a volume does not tell its storage, or threads cannot be started.
    pub(super) fn new(node: &Node, volumes: (&Path, &Path), bytes: u64) -> Result<Self> {
        let options = RpcOptions {
            user: current_user(),
            ..RpcOptions::default()
        };
        Ok(Self {
            rpc: BlockingRpc::new("DataNode", &node.ipc(), CLIENT_DATANODE_PROTOCOL, options)?,
            plan: plan(node, volumes, bytes)?.to_string(),
            bytes,
        })
    }

    /// Has the node do it, and waits for the end; what it says it has moved.
    ///
    /// # Errors
    /// When the node refuses, or leaves out more than it tolerates.
    pub(super) fn carry_out(&self) -> Result<Moved> {
        let began = Instant::now();
        let request = SubmitDiskBalancerPlanRequest {
            plan_id: plan_id(&self.plan),
            plan: self.plan.clone(),
            plan_version: Some(1),
            ignore_date_check: Some(true),
            plan_file: "/bench".to_owned(),
        };
        let _: SubmitDiskBalancerPlanResponse =
            self.rpc.call("submitDiskBalancerPlan", &request)?;
        loop {
            let asked: QueryPlanStatusResponse = self
                .rpc
                .call("queryDiskBalancerPlan", &QueryPlanStatusRequest {})?;
            let (took, steps) = (began.elapsed(), asked.current_status.unwrap_or_default());
            if asked.result != Some(UNDER_WAY) {
                return Ok((moved_bytes(&steps, self.bytes)?, took));
            }
            if took > LIMIT {
                return Err(TestkitError::Timeout {
                    what: "the end of a disk balancer plan".into(),
                    waited: took,
                    last: steps,
                });
            }
            std::thread::sleep(EVERY);
        }
    }
}

/// Bytes that the steps of a plan have moved.
///
/// # Errors
/// When a step had errors, or left out more than the tenth that nodes tolerate.
fn moved_bytes(steps: &str, wanted: u64) -> Result<u64> {
    let all: Value = serde_json::from_str(steps).unwrap_or_default();
    let number = |name: &str| -> u64 {
        let items = all.as_array().into_iter().flatten();
        let numbers = items.filter_map(|step| step["workItem"][name].as_u64());
        numbers.sum()
    };
    let moved = number("bytesCopied");
    let is_whole = number("errorCount") == 0 && moved.saturating_mul(10) >= wanted * 9;
    expect(is_whole, || {
        format!("of {wanted} bytes {moved} were moved: {steps}")
    })?;
    Ok(moved)
}

/// A plan of one step, as Hadoop's planner writes it.
fn plan(node: &Node, (source, target): (&Path, &Path), bytes: u64) -> Result<Value> {
    let volume = |path: &Path| -> Result<Value> {
        Ok(json!({
            "path": format!("{}/", path.display()), "capacity": 1_000_000, "storageType": "DISK",
            "used": 10, "reserved": 0, "uuid": version(path, "storageID")?,
        }))
    };
    let step = json!({
        "@class": "org.apache.hadoop.hdfs.server.diskbalancer.planner.MoveStep",
        "sourceVolume": volume(source)?, "destinationVolume": volume(target)?,
        "idealStorage": 0.5, "bytesToMove": bytes, "volumeSetID": "bench",
        "bandwidth": BANDWIDTH,
    });
    let port = node
        .ipc()
        .rsplit(':')
        .next()
        .and_then(|port| port.parse::<u16>().ok());
    Ok(json!({
        "volumeSetPlans": [step], "nodeName": "127.0.0.1", "port": port,
        "nodeUUID": version(source, "datanodeUuid")?, "timeStamp": 1,
    }))
}

/// A value of a volume's file VERSION.
fn version(volume: &Path, name: &str) -> Result<String> {
    let path = volume.join("current/VERSION");
    let text = std::fs::read_to_string(&path).map_err(TestkitError::file("reading", &path))?;
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    value
        .map(str::to_owned)
        .ok_or_else(|| TestkitError::Talk(format!("{} has no {name}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_move_counts_when_nodes_took_it_for_done() {
        let steps = |copied: u64, errors: u64| {
            let item = json!({"bytesCopied": copied, "errorCount": errors, "errMsg": "why"});
            json!([{"sourcePath": "/a/", "workItem": item}]).to_string()
        };
        assert_eq!(moved_bytes(&steps(90, 0), 100).expect("a tenth"), 90);
        for wrong in [steps(89, 0), steps(100, 1), "[]".into(), String::new()] {
            let error = moved_bytes(&wrong, 100)
                .expect_err("too little")
                .to_string();
            assert!(
                error.contains("of 100 bytes") && error.contains(&wrong),
                "{error}"
            );
        }
    }

    #[test]
    fn a_plan_names_the_storages_of_the_volumes() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(dir.path().join("current")).expect("made");
        let text = "#x\nstorageID=DS-1\ndatanodeUuid=u-1\n";
        std::fs::write(dir.path().join("current/VERSION"), text).expect("written");
        assert_eq!(version(dir.path(), "storageID").expect("there"), "DS-1");
        let error = version(dir.path(), "cTime").expect_err("not there");
        assert!(error.to_string().contains("no cTime"), "{error}");
    }
}
