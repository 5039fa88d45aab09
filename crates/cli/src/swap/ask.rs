//! What the NameNode and the node say on their web ports: `/jmx`, whose names both nodes serve.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use hayloft_cluster::http::HttpLimits;
use hayloft_conf::keys;
use serde::Serialize;
use serde_json::{Map, Value};

use super::host::SwapHost;
use crate::top::fetch;

const LIMITS: HttpLimits = HttpLimits {
    connect: Duration::from_secs(5),
    whole: Duration::from_secs(30),
    // The list of a large cluster's nodes.
    bytes: 16 << 20,
};

/// A name service, as its active NameNode sees it.
#[derive(Debug)]
pub struct NameServiceView {
    /// The NameNode's web address.
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
    /// Of this name service.
    pub blocks: u64,
    /// Seconds since its last heartbeat.
    pub last_contact: u64,
    pub state: String,
    #[serde(skip)]
    pub web: String,
    #[serde(skip)]
    pub transfer: String,
}

/// What a node counts since it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeCounts {
    /// Full block reports that a NameNode took.
    pub full_reports: u64,
    pub blocks_written: u64,
}

/// Asks the active NameNode of each name service.
///
/// # Errors
/// In words: the configuration, or a name service without an active NameNode.
pub fn name_services(host: &SwapHost) -> Result<Vec<NameServiceView>, String> {
    let services = hayloft_conf::namenodes(&host.config).map_err(|error| error.to_string())?;
    let own = OwnNode::of(host);
    let mut views = Vec::new();
    for service in services {
        let id = service.id.as_deref();
        let web = |namenode| hayloft_conf::namenode_web_address(&host.config, id, namenode);
        let mut refused = Vec::new();
        let ask = |address: String| match view(&address, &own) {
            Ok(Some(view)) => Some(view),
            Ok(None) => {
                refused.push(format!("{address} is not active"));
                None
            }
            Err(why) => {
                refused.push(format!("{address}: {why}"));
                None
            }
        };
        let addresses = service.namenodes.iter().filter_map(web);
        let found = addresses.map(|at| at.to_string()).find_map(ask);
        views.push(found.ok_or_else(|| format!("no active NameNode: {}", refused.join("; ")))?);
    }
    Ok(views)
}

/// Asks the node at its web port.
///
/// # Errors
/// In words.
pub fn counts(web: &str) -> Result<NodeCounts, String> {
    let beans = beans(web, "Hadoop:service=DataNode,name=DataNodeActivity*")?;
    let of = |name: &str| beans.iter().find_map(|bean| bean[name].as_u64());
    let missing = |name| format!("{web}: its counts lack {name}");
    Ok(NodeCounts {
        full_reports: of("BlockReportsNumOps").ok_or_else(|| missing("BlockReportsNumOps"))?,
        blocks_written: of("BlocksWritten").ok_or_else(|| missing("BlocksWritten"))?,
    })
}

fn beans(address: &str, name: &str) -> Result<Vec<Value>, String> {
    let page = fetch(address, &format!("/jmx?qry={name}"), LIMITS)?;
    let mut page: Value = serde_json::from_str(&page).map_err(|error| error.to_string())?;
    match page["beans"].take() {
        Value::Array(beans) => Ok(beans),
        _ => Err(format!("{address}: no beans")),
    }
}

/// `None` when it is not active.
fn view(address: &str, own: &OwnNode) -> Result<Option<NameServiceView>, String> {
    let bean = |name: &str| {
        let found = beans(address, &format!("Hadoop:service=NameNode,name={name}"))?;
        found.into_iter().next().ok_or_else(|| format!("no {name}"))
    };
    if bean("NameNodeStatus")?["State"] != "active" {
        return Ok(None);
    }
    let info = bean("NameNodeInfo")?;
    let text = |name: &str| info[name].as_str().unwrap_or_default().to_owned();
    let nodes = |name: &str| -> Map<String, Value> {
        serde_json::from_str(&text(name)).unwrap_or_default()
    };
    let gone = |of: &Value| of["decommissioned"] != true;
    let dead = nodes("DeadNodes").into_iter();
    let dead = dead.filter(|(_, of)| gone(of) && !own.is(of));
    let live = nodes("LiveNodes").into_iter().find(|(_, of)| own.is(of));
    Ok(Some(NameServiceView {
        address: address.to_owned(),
        safe_mode: text("Safemode"),
        missing_blocks: info["NumberOfMissingBlocks"].as_u64().unwrap_or(0),
        dead: dead.map(|(name, _)| name).collect(),
        node: live.map(|(name, of)| live_node(name, &of)),
    }))
}

fn live_node(name: String, of: &Value) -> LiveNode {
    let text = |key: &str| of[key].as_str().unwrap_or_default().to_owned();
    LiveNode {
        name,
        blocks: of["numBlocks"].as_u64().unwrap_or(0),
        last_contact: of["lastContact"].as_u64().unwrap_or(u64::MAX),
        state: text("adminState"),
        web: text("infoAddr"),
        transfer: text("xferaddr"),
    }
}

/// By what this host's node is known among others.
struct OwnNode {
    /// Of its directories; `None` while no node has used them.
    uuid: Option<String>,
    port: u16,
}

impl OwnNode {
    fn of(host: &SwapHost) -> Self {
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
    fn is(&self, node: &Value) -> bool {
        if let (Some(own), Some(uuid)) = (&self.uuid, node["uuid"].as_str()) {
            return own == uuid;
        }
        let address = node["xferaddr"].as_str().unwrap_or_default();
        let address: Option<SocketAddr> = address.parse().ok();
        address.is_some_and(|at| at.port() == self.port && is_of_this_host(at.ip()))
    }
}

fn is_of_this_host(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_node_is_known_by_its_id_and_else_by_its_address() {
        let own = OwnNode {
            uuid: Some("u-1".into()),
            port: 9866,
        };
        assert!(own.is(&json!({"uuid": "u-1", "xferaddr": "192.0.2.1:1"})));
        assert!(!own.is(&json!({"uuid": "u-2", "xferaddr": "127.0.0.1:9866"})));
        assert!(own.is(&json!({"xferaddr": "127.0.0.1:9866"})));
        assert!(!own.is(&json!({"xferaddr": "127.0.0.1:9867"})));
        assert!(
            !own.is(&json!({"xferaddr": "192.0.2.1:9866"})),
            "of another host"
        );
        assert!(!own.is(&json!({})));
    }
}
