//! What the NameNode and the node say on their web ports: `/jmx`, whose names both nodes serve.
//! With Kerberos only the NameNode is asked, by RPC.

use std::time::{Duration, Instant};

use hayloft_cluster::http::HttpLimits;
use serde_json::{Map, Value};

use super::ask_by_rpc;
use super::host::SwapHost;
use super::view::{LiveNode, NameServiceView, OwnNode};
use crate::top::fetch;

/// What an answer may cost.
fn limits(until: Instant) -> HttpLimits {
    let left = until.saturating_duration_since(Instant::now());
    // None at all would be no limit to ask with.
    let left = left.max(Duration::from_millis(1));
    HttpLimits {
        connect: left.min(Duration::from_secs(5)),
        whole: left.min(Duration::from_secs(20)),
        // The list of a large cluster's nodes.
        bytes: 16 << 20,
    }
}

/// Asks the active NameNode of each name service. It ends at `until`, with an answer or without.
///
/// # Errors
/// In words: the configuration, or a name service without an active NameNode; with Kerberos no
/// proof for it.
pub fn name_services(host: &SwapHost, until: Instant) -> Result<Vec<NameServiceView>, String> {
    let own = OwnNode::of(host);
    if host.config.has_kerberos() {
        return ask_by_rpc::name_services(host, &own, until);
    }
    let services = hayloft_conf::namenodes(&host.config).map_err(|error| error.to_string())?;
    let mut views = Vec::new();
    for service in services {
        let id = service.id.as_deref();
        let web = |namenode| hayloft_conf::namenode_web_address(&host.config, id, namenode);
        let mut refused = Vec::new();
        let ask = |address: String| match view(&address, &own, until) {
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

/// Full block reports that NameNodes took of the node since it started, by its web port.
///
/// # Errors
/// In words.
pub fn full_reports(web: &str, until: Instant) -> Result<u64, String> {
    let beans = beans(web, "DataNode,name=DataNodeActivity*", until)?;
    let mut reports = beans
        .iter()
        .filter_map(|bean| bean["BlockReportsNumOps"].as_u64());
    let lacks = || format!("{web}: its counts lack BlockReportsNumOps");
    reports.next().ok_or_else(lacks)
}

fn beans(address: &str, of: &str, until: Instant) -> Result<Vec<Value>, String> {
    let page = format!("/jmx?qry=Hadoop:service={of}");
    let page = fetch(address, &page, limits(until))?;
    let mut page: Value = serde_json::from_str(&page).map_err(|error| error.to_string())?;
    match page["beans"].take() {
        Value::Array(beans) => Ok(beans),
        _ => Err(format!("{address}: no beans")),
    }
}

/// `None` when it is not active.
fn view(address: &str, own: &OwnNode, until: Instant) -> Result<Option<NameServiceView>, String> {
    // In one answer: a NameNode may become a standby between two.
    let beans = beans(address, "NameNode,name=NameNode*", until)?;
    let bean = |name: &str| {
        let ends = |bean: &&Value| {
            let known = bean["name"].as_str();
            known.is_some_and(|known| known.ends_with(&format!("name={name}")))
        };
        beans.iter().find(ends).ok_or_else(|| format!("no {name}"))
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
    let is_own = |of: &Value| {
        let address = of["xferaddr"].as_str().unwrap_or_default();
        own.is(of["uuid"].as_str(), address)
    };
    let dead = dead.filter(|(_, of)| gone(of) && !is_own(of));
    let live = nodes("LiveNodes").into_iter().find(|(_, of)| is_own(of));
    Ok(Some(NameServiceView {
        address: address.to_owned(),
        safe_mode: text("Safemode"),
        missing_blocks: info["NumberOfMissingBlocks"].as_u64().unwrap_or(0),
        dead: dead.map(|(name, _)| name).collect(),
        node: live.map(|(name, of)| live_node(name, &of, address)),
    }))
}

fn live_node(name: String, of: &Value, namenode: &str) -> LiveNode {
    let text = |key: &str| of[key].as_str().unwrap_or_default().to_owned();
    LiveNode {
        name,
        blocks: of["numBlocks"].as_u64(),
        last_contact: Some(of["lastContact"].as_u64().unwrap_or(u64::MAX)),
        state: text("adminState"),
        web: Some(text("infoAddr")),
        transfer: text("xferaddr"),
        namenode: namenode.to_owned(),
        heard: None,
    }
}
