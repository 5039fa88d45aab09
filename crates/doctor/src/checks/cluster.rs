//! What the NameNode believes of hosts and racks.

use std::collections::{BTreeMap, BTreeSet};

use hayloft_conf::HostPort;
use serde_json::Value;

use crate::facts::Facts;
use crate::finding::{Verdicts, count};

/// What the NameNode calls the rack of nodes that no script or table knows.
const DEFAULT_RACK: &str = "/default-rack";

pub fn shared_hosts(facts: &Facts, out: &mut Verdicts) {
    let Some(network) = &facts.network else {
        return;
    };
    // One that answers is enough.
    if network.active().next().is_none() {
        for of in &network.namenodes {
            out.look(&of.rpc, &of.info);
        }
    }
    for (namenode, info) in network.active() {
        // With these no two replicas go to one host, whatever their racks.
        let chooser = namenode.chooser.as_deref().unwrap_or_default();
        if chooser.contains("hayloft") || chooser.contains("NodeGroup") {
            continue;
        }
        let hosts = hosts_of(info);
        let shared = hosts.iter().filter(|(_, (nodes, _))| *nodes > 1);
        let shared: Vec<_> = shared.collect();
        let Some((host, (nodes, _))) = shared.first() else {
            continue;
        };
        let racks: BTreeSet<&String> = hosts.values().flat_map(|(_, racks)| racks).collect();
        let effect = "the replicas of a block may all be on one host, and go with it";
        let mend = "tell the NameNode which nodes share a host (hayloft super), and set \
            dfs.block.replicator.classname to Hayloft's policy, or make each host a rack";
        let carry = count(
            shared.len(),
            "host carries several nodes",
            "hosts carry several nodes",
        );
        if racks.len() == 1 && racks.iter().all(|rack| *rack == DEFAULT_RACK) {
            let seen = format!("{carry} ({host} has {nodes}), and all nodes are in {DEFAULT_RACK}");
            out.bad(&namenode.rpc, [&seen, effect, mend]);
        } else if racks.len() < hosts.len() {
            let seen = format!(
                "{carry} ({host} has {nodes}), and {} are in {}",
                count(hosts.len(), "host", "hosts"),
                count(racks.len(), "rack", "racks")
            );
            let effect = "two of three replicas may be on one host";
            out.slow(&namenode.rpc, [&seen, effect, mend]);
        }
    }
}

/// Hosts by address: how many nodes they have, in which racks.
fn hosts_of(info: &Value) -> BTreeMap<String, (usize, BTreeSet<String>)> {
    let live = info["LiveNodes"].as_str().unwrap_or("{}");
    let live: Value = serde_json::from_str(live).unwrap_or_default();
    let mut hosts: BTreeMap<String, (usize, BTreeSet<String>)> = BTreeMap::new();
    for node in live.as_object().into_iter().flat_map(|live| live.values()) {
        let address = node["xferaddr"].as_str().unwrap_or_default();
        let Ok(address) = HostPort::parse_with_default(address, None) else {
            continue;
        };
        let host = hosts.entry(address.host).or_default();
        host.0 += 1;
        host.1
            .insert(node["location"].as_str().unwrap_or(DEFAULT_RACK).to_owned());
    }
    hosts
}
