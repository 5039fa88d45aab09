//! Which nodes there are: those named, or those that NameNodes know.

use std::collections::BTreeMap;
use std::net::ToSocketAddrs as _;
use std::path::Path;
use std::time::{Duration, Instant};

use hayloft_cluster::http::{self, HttpLimits};
use hayloft_conf::{Configuration, HostPort};
use serde_json::Value;

use super::parse_live::shown;
use crate::error::CliError;
use crate::given::{asks_in_clear, conf_dir};

/// Nodes that are looked at; of a larger cluster the first by name.
const NODES_MAX: usize = 1024;
/// Addresses of one name that are tried.
const ADDRESSES_MAX: usize = 2;
/// Characters of an address: a host name has at most 253.
const ADDRESS_MAX: usize = 262;
/// Where a NameNode says which nodes it has.
const NODES_PAGE: &str = "/jmx?qry=Hadoop:service=NameNode,name=NameNodeInfo";
/// What to do where pages are for TLS alone, or for callers with tickets.
const ASK_YOURSELF: &str = "open the page of a node in a browser, or have curl ask its /live: with \
    --cacert over HTTPS, with --negotiate -u : by a ticket";
/// What the list of a large cluster may cost.
const LIST_LIMITS: HttpLimits = HttpLimits {
    connect: Duration::from_secs(2),
    whole: Duration::from_secs(5),
    bytes: 16 << 20,
};

/// Where the list of nodes comes from.
#[derive(Debug)]
pub enum NodeSource {
    /// The command line.
    Named(Vec<String>),
    /// The web ports of NameNodes: of each group, one has to answer.
    NameNodes(Vec<Vec<HostPort>>),
}

/// A node before it is asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownNode {
    /// What its NameNode calls it; empty when none was asked.
    pub state: String,
    /// Why it is not asked.
    pub unasked: Option<String>,
}

/// The nodes by the address of their web port, and what went wrong in finding them.
pub type NodeList = (BTreeMap<String, KnownNode>, Vec<String>);

impl NodeSource {
    /// What the command line asks for: nodes, a NameNode, or a directory of configuration.
    ///
    /// # Errors
    /// No node is named and no NameNode is configured, or the configuration has web pages answer
    /// TLS alone, or callers with tickets.
    pub fn of(
        nodes: &[HostPort],
        namenode: Option<&HostPort>,
        conf: Option<&Path>,
    ) -> Result<Self, CliError> {
        if !nodes.is_empty() {
            let names = nodes.iter().map(ToString::to_string);
            return Ok(Self::Named(names.collect()));
        }
        if let Some(namenode) = namenode {
            return Ok(Self::NameNodes(vec![vec![namenode.clone()]]));
        }
        let dir = conf_dir(conf).map_err(|_| {
            let advice = "give --conf DIR, --namenode HOST:PORT or --node HOST:PORT";
            CliError::new("no configuration", "HADOOP_CONF_DIR is not set", advice)
        })?;
        let config = Configuration::load(&dir, &[])?;
        asks_in_clear(&config, &["/jmx", "/live"], ASK_YOURSELF)?;
        let services = hayloft_conf::namenodes(&config)?;
        let group = |service: &hayloft_conf::NameService| {
            let id = service.id.as_deref();
            let web = |namenode| hayloft_conf::namenode_web_address(&config, id, namenode);
            service.namenodes.iter().filter_map(web).collect()
        };
        Ok(Self::NameNodes(services.iter().map(group).collect()))
    }

    /// Asks for the nodes. Blocking: some seconds for each NameNode that does not answer.
    pub fn find(&self) -> NodeList {
        let (mut nodes, mut problems) = (BTreeMap::new(), Vec::new());
        match self {
            Self::Named(names) => {
                let named = names
                    .iter()
                    .map(|name| (name.clone(), KnownNode::default()));
                nodes.extend(named);
            }
            Self::NameNodes(groups) => {
                for group in groups {
                    // A standby hears of the nodes too: the first that answers will do.
                    let mut failed = Vec::new();
                    let ask = |address: &HostPort| {
                        let listed = listed(address);
                        listed.map_err(|why| failed.push(why)).ok()
                    };
                    match group.iter().find_map(ask) {
                        Some(found) => nodes.extend(found),
                        None => problems.append(&mut failed),
                    }
                }
            }
        }
        if nodes.len() > NODES_MAX {
            problems.push(format!(
                "{} nodes: the first {NODES_MAX} are looked at; name others with --node",
                nodes.len()
            ));
            nodes = nodes.into_iter().take(NODES_MAX).collect();
        }
        (nodes, problems)
    }
}

/// What one NameNode says.
fn listed(address: &HostPort) -> Result<Vec<(String, KnownNode)>, String> {
    let name = address.to_string();
    let told = |why: String| format!("NameNode {name}: {why}");
    let page = fetch(&name, NODES_PAGE, LIST_LIMITS).map_err(told)?;
    read_list(&page).ok_or_else(|| told("its /jmx has no NameNodeInfo".to_owned()))
}

/// The nodes of a page of `/jmx`.
fn read_list(page: &str) -> Option<Vec<(String, KnownNode)>> {
    let page: Value = serde_json::from_str(page).ok()?;
    let bean = page["beans"].get(0)?;
    let nodes =
        |attribute: &str| -> Option<Value> { serde_json::from_str(bean[attribute].as_str()?).ok() };
    let mut found = Vec::new();
    for node in nodes("LiveNodes")?.as_object()?.values() {
        let Some(address) = node["infoAddr"].as_str().and_then(usable) else {
            continue;
        };
        let state = shown(node["adminState"].as_str().unwrap_or_default());
        let unasked = None;
        found.push((address, KnownNode { state, unasked }));
    }
    let dead = nodes("DeadNodes").unwrap_or_default();
    for (name, node) in dead.as_object().into_iter().flatten() {
        // Its web port is not told.
        let Some(name) = usable(name) else { continue };
        let silent = node["lastContact"].as_u64().unwrap_or(0);
        let unasked = format!("dead for its NameNode, which heard of it {silent} s ago");
        let known = KnownNode {
            state: "Dead".to_owned(),
            unasked: Some(unasked),
        };
        found.push((name, known));
    }
    Some(found)
}

/// An address that may be asked and shown.
fn usable(address: &str) -> Option<String> {
    let fits = address.len() <= ADDRESS_MAX && !address.contains(|c: char| c.is_control());
    let address = HostPort::parse_with_default(address, None).ok()?;
    (fits && address.port != 0).then(|| address.to_string())
}

/// A page of a server.
///
/// # Errors
/// In words, without the address.
pub fn fetch(address: &str, path: &str, limits: HttpLimits) -> Result<String, String> {
    let found = address.to_socket_addrs();
    let found = found.map_err(|error| format!("its name is not found: {error}"))?;
    let mut failed = "its name has no address".to_owned();
    let end = Instant::now() + limits.whole;
    for address in found.take(ADDRESSES_MAX) {
        // What the first took is not left for the second.
        let whole = end.saturating_duration_since(Instant::now());
        let whole = whole.max(Duration::from_millis(1));
        match http::get_within(address, path, HttpLimits { whole, ..limits }) {
            Ok(page) => return Ok(page),
            Err(error) => failed = error.to_string(),
        }
    }
    // The address is said beside it.
    let why = failed.rsplit_once(&format!("{path}: "));
    Err(shown(why.map_or(&*failed, |(_, why)| why)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namenodes_list_is_read() {
        let live = r#"{"a:9866":{"infoAddr":"10.0.0.1:9864","adminState":"In Service"},
            "b:9866":{"infoAddr":"b:0"},"c:9866":{},"d:9866":{"infoAddr":"x\u001b[2J:1"}}"#;
        let dead = r#"{"e:9866":{"lastContact":700}}"#;
        let page = serde_json::json!({"beans": [{"LiveNodes": live, "DeadNodes": dead}]});
        let found = read_list(&page.to_string()).expect("a list");
        let names: Vec<&str> = found.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["10.0.0.1:9864", "e:9866"]);
        assert_eq!(found[0].1.state, "In Service");
        assert!(found[1].1.unasked.as_ref().expect("dead").contains("700 s"));
        for wrong in [
            "",
            "{}",
            r#"{"beans":[]}"#,
            r#"{"beans":[{"LiveNodes":"["}]}"#,
        ] {
            assert_eq!(read_list(wrong), None, "{wrong}");
        }
    }
}
