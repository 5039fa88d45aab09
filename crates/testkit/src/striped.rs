//! Erasure-coded files: where their internal blocks are.

use crate::driver::Driver;
use crate::error::Result;
use crate::wait::{self, Seen};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// An erasure coding policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EcPolicy {
    /// Its name in Hadoop.
    pub name: &'static str,
    /// Data units.
    pub data: u64,
    /// Parity units.
    pub parity: u64,
}

/// Bytes of a cell of the policies that Hadoop ships.
pub const EC_CELL: u64 = 1 << 20;

impl EcPolicy {
    /// `RS-3-2-1024k`.
    pub const RS_3_2: Self = Self {
        name: "RS-3-2-1024k",
        data: 3,
        parity: 2,
    };

    /// All that Hadoop ships.
    pub const SHIPPED: [Self; 5] = [
        Self::RS_3_2,
        Self {
            name: "RS-6-3-1024k",
            data: 6,
            parity: 3,
        },
        Self {
            name: "RS-10-4-1024k",
            data: 10,
            parity: 4,
        },
        Self {
            name: "RS-LEGACY-6-3-1024k",
            data: 6,
            parity: 3,
        },
        Self {
            name: "XOR-2-1-1024k",
            data: 2,
            parity: 1,
        },
    ];

    /// The internal blocks that have data in a group of `len` data bytes.
    fn with_data(&self, len: u64) -> impl Iterator<Item = u64> {
        let cells = len.div_ceil(EC_CELL);
        (0..self.data.min(cells)).chain(self.data..self.data + self.parity)
    }
}

/// The internal blocks of a group by index, each with the `127.0.0.1:port` of its nodes.
#[derive(Clone, Debug)]
pub struct GroupOnNodes {
    /// Id of the group.
    pub id: i64,
    /// Bytes of data.
    pub len: u64,
    /// Nodes of each internal block.
    pub nodes: BTreeMap<u64, Vec<String>>,
}

impl Driver {
    /// The groups of a file, as clients see them.
    ///
    /// # Errors
    /// What the stock client throws.
    pub fn groups(&self, path: &str) -> Result<Vec<GroupOnNodes>> {
        let answer = self.call("blocks", json!({ "path": path }))?;
        let groups = answer["blocks"].as_array().cloned().unwrap_or_default();
        Ok(groups.iter().map(group).collect())
    }

    /// Waits until every group of the files has all of its internal blocks on nodes that are not
    /// among `gone`.
    ///
    /// # Errors
    /// [`crate::TestkitError::Timeout`], or what the stock client throws.
    pub fn wait_striped(
        &self,
        paths: &[String],
        policy: EcPolicy,
        gone: &[String],
        limit: Duration,
    ) -> Result<()> {
        let what = format!("all internal blocks of {} files", paths.len());
        wait::until(&what, limit, || {
            for path in paths {
                for group in self.groups(path)? {
                    let missing = group.missing(policy, gone);
                    if !missing.is_empty() {
                        let text = format!("{path}: group {} lacks {missing:?}", group.id);
                        return Ok(Seen::NotYet(text));
                    }
                }
            }
            Ok(Seen::Done(()))
        })
    }
}

impl GroupOnNodes {
    /// Indices of internal blocks with data that no node has, besides those that are `gone`.
    #[must_use]
    pub fn missing(&self, policy: EcPolicy, gone: &[String]) -> Vec<u64> {
        let is_there = |index: &u64| {
            let nodes = self.nodes.get(index);
            nodes.is_some_and(|nodes| nodes.iter().any(|node| !gone.contains(node)))
        };
        policy
            .with_data(self.len)
            .filter(|index| !is_there(index))
            .collect()
    }
}

fn group(value: &Value) -> GroupOnNodes {
    let mut nodes: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    for node in value["nodes"].as_array().into_iter().flatten() {
        let index = node["index"].as_u64().unwrap_or_default();
        let xfer = node["xfer"].as_str().unwrap_or_default().to_owned();
        nodes.entry(index).or_default().push(xfer);
    }
    GroupOnNodes {
        id: value["id"].as_i64().unwrap_or_default(),
        len: value["length"].as_u64().unwrap_or_default(),
        nodes,
    }
}
