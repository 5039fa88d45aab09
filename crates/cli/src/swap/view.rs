//! What NameNodes see of this host's node, however they were asked, and how it is told from others.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use hayloft_conf::keys;
use hayloft_wire::proto::hdfs::DatanodeId;
use serde::Serialize;

use super::host::SwapHost;

/// What a NameNode says of a node that gets blocks.
pub const IN_SERVICE: &str = "In Service";

/// A name service, as its active NameNode sees it.
#[derive(Debug)]
pub struct NameServiceView {
    /// The NameNode that told all of it: its web address, or that of its RPC.
    pub address: String,
    /// What it says of its safe mode; empty outside.
    pub safe_mode: String,
    /// Blocks without a replica.
    pub missing_blocks: u64,
    /// Nodes that should be there and are not, by name.
    pub dead: Vec<String>,
    /// This host's node, if it is live.
    pub node: Option<LiveNode>,
}

/// A node among those that a NameNode calls live.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LiveNode {
    pub name: String,
    /// Of this name service; `None` where the NameNode does not say it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocks: Option<u64>,
    /// Seconds since its last heartbeat, where the web port says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_contact: Option<u64>,
    pub state: String,
    /// Its web address without TLS, empty where it has none; `None` where it is not asked.
    #[serde(skip)]
    pub web: Option<String>,
    #[serde(skip)]
    pub transfer: String,
    /// The NameNode that says so.
    #[serde(skip)]
    pub namenode: String,
    /// What the NameNode heard of it; `None` where the web ports are asked.
    #[serde(skip)]
    pub heard: Option<Heard>,
}

/// What a NameNode heard of a node, by its own clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heard {
    /// The last heartbeat, milliseconds since 1970.
    pub heartbeat: u64,
    /// From the last full block report to that heartbeat; `None`: there was none.
    pub since_report: Option<Duration>,
}

/// A node that was started, and what tells its reports from those of the node before it.
#[derive(Debug)]
pub struct StartedNode {
    /// When the node before it was told to stop.
    began: Instant,
    /// What each NameNode had heard when it was first asked while the node ran.
    first: BTreeMap<String, Heard>,
}

impl StartedNode {
    /// One that is about to be started, in the place of another.
    pub fn from_now() -> Self {
        Self {
            began: Instant::now(),
            first: BTreeMap::new(),
        }
    }

    /// Whether each NameNode heard its heartbeat and a full block report of it, once it runs. What
    /// one says is compared with its own words alone: after a fail-over another one answers.
    pub fn has_reported(&mut self, nodes: &[LiveNode]) -> bool {
        let runs_for = self.began.elapsed();
        let mut all = true;
        for node in nodes {
            let Some(now) = node.heard else {
                return false;
            };
            let first = self.first.entry(node.namenode.clone()).or_insert(now);
            let is_new = now.since_report.is_some_and(|since| since < runs_for);
            all &= is_new && now.heartbeat != first.heartbeat;
        }
        all
    }
}

/// By what this host's node is known among others.
pub struct OwnNode {
    /// Of its directories; `None` while no node has used them.
    uuid: Option<String>,
    port: u16,
}

impl OwnNode {
    pub fn of(host: &SwapHost) -> Self {
        let version = |dir: &std::path::PathBuf| {
            let text = std::fs::read_to_string(dir.join("current/VERSION")).ok()?;
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix("datanodeUuid="));
            line.map(|uuid| uuid.trim().to_owned())
        };
        Self {
            uuid: host.volumes.iter().find_map(version),
            port: host.config.get(&keys::DATANODE_ADDRESS).port,
        }
    }

    /// NameNodes before 3.4 do not tell who a node is: there its address says it.
    pub fn is(&self, uuid: Option<&str>, transfer: &str) -> bool {
        if let (Some(own), Some(uuid)) = (&self.uuid, uuid) {
            return own == uuid;
        }
        let address: Option<SocketAddr> = transfer.parse().ok();
        address.is_some_and(|at| at.port() == self.port && is_of_this_host(at.ip()))
    }
}

fn is_of_this_host(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

/// Where the data transfer port of a node is, as the NameNode's pages have it.
pub fn transfer_address(id: &DatanodeId) -> String {
    match id.ip_addr.contains(':') {
        true => format!("[{}]:{}", id.ip_addr, id.xfer_port),
        false => format!("{}:{}", id.ip_addr, id.xfer_port),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_of_the_node_before_are_not_those_of_the_new_one() {
        let seconds = Duration::from_secs;
        let node = |namenode: &str, heartbeat, since_report| LiveNode {
            name: String::new(),
            blocks: Some(1),
            last_contact: None,
            state: String::new(),
            web: None,
            transfer: String::new(),
            namenode: namenode.to_owned(),
            heard: Some(Heard {
                heartbeat,
                since_report,
            }),
        };
        let mut started = StartedNode {
            began: Instant::now() - seconds(10),
            first: BTreeMap::new(),
        };
        let mut reported =
            |namenode, heartbeat, since| started.has_reported(&[node(namenode, heartbeat, since)]);
        // The last heartbeat of the node before, which had just reported.
        assert!(!reported("a", 1000, Some(seconds(1))));
        assert!(!reported("a", 1000, Some(seconds(1))));
        // Of the new one, which has not reported.
        assert!(!reported("a", 4000, Some(seconds(3600))));
        // After a fail-over: the node before had just reported to this one as well.
        assert!(!reported("b", 900, Some(seconds(1))));
        assert!(!reported("b", 4100, None));
        assert!(reported("b", 7000, Some(seconds(2))));
        assert!(reported("a", 7100, Some(seconds(2))), "and back");
    }

    #[test]
    fn a_node_is_known_by_its_id_and_else_by_its_address() {
        let own = OwnNode {
            uuid: Some("u-1".into()),
            port: 9866,
        };
        assert!(own.is(Some("u-1"), "192.0.2.1:1"));
        assert!(!own.is(Some("u-2"), "127.0.0.1:9866"));
        assert!(own.is(None, "127.0.0.1:9866"));
        assert!(!own.is(None, "127.0.0.1:9867"));
        assert!(!own.is(None, "192.0.2.1:9866"), "of another host");
        assert!(!own.is(None, ""));
    }
}
