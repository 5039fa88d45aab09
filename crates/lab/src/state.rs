//! What is remembered of a testbed that stays, for the next command.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::describe::Description;
use super::disks::Mounted;
use super::up::RunningNode;
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::node::Kind;

/// Version of the file.
const FORMAT: u32 = 1;
const FILE: &str = "state.json";

/// The contents of `state.json`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct State {
    format: u32,
    /// What was described.
    pub described: Description,
    nodes: Vec<NodeState>,
}

#[derive(Debug, Serialize, Deserialize)]
struct NodeState {
    name: String,
    namespace: String,
    host: String,
    apache: bool,
    address: String,
    pid: u32,
    disks: Vec<(PathBuf, Option<String>)>,
}

impl State {
    pub(super) fn of(described: &Description, nodes: &[RunningNode]) -> Self {
        let node = |node: &RunningNode| NodeState {
            name: node.name.clone(),
            namespace: node.namespace.clone(),
            host: node.host.clone(),
            apache: node.kind == Kind::Apache,
            address: node.address.clone(),
            pid: node.pid(),
            disks: node
                .disks
                .iter()
                .map(|disk| (disk.dir.clone(), disk.device.clone()))
                .collect(),
        };
        Self {
            format: FORMAT,
            described: described.clone(),
            nodes: nodes.iter().map(node).collect(),
        }
    }

    pub(super) fn write(&self, dir: &Path) -> Result<()> {
        let path = dir.join(FILE);
        let text = serde_json::to_string_pretty(self)
            .map_err(|e| TestkitError::Talk(format!("writing {}: {e}", path.display())))?;
        std::fs::write(&path, text).map_err(TestkitError::file("writing", path))
    }

    pub(super) fn read(dir: &Path) -> Result<Self> {
        let path = dir.join(FILE);
        let text = std::fs::read_to_string(&path).map_err(TestkitError::file("reading", &path))?;
        let bad = |why: String| {
            TestkitError::Talk(format!(
                "{}: {why}: take the testbed down and bring it up again",
                path.display()
            ))
        };
        let state: Self = serde_json::from_str(&text).map_err(|e| bad(e.to_string()))?;
        if state.format != FORMAT {
            return Err(bad(format!("version {} instead of {FORMAT}", state.format)));
        }
        Ok(state)
    }

    /// Forgets it; what is not there is no error.
    pub(super) fn remove(dir: &Path) {
        let _not_there = std::fs::remove_file(dir.join(FILE));
    }

    pub(super) fn nodes(self) -> Vec<RunningNode> {
        let node = |node: NodeState| {
            let disks = node.disks.into_iter();
            let disks = disks.map(|(dir, device)| Mounted::attached(dir, device));
            RunningNode::attached(
                node.name,
                node.namespace,
                node.host,
                if node.apache {
                    Kind::Apache
                } else {
                    Kind::Hayloft
                },
                node.address,
                disks.collect(),
                node.pid,
            )
        };
        self.nodes.into_iter().map(node).collect()
    }
}
