//! Virtual nodes (`hayloft.nodes`): several DataNodes in one process, each with a configuration of
//! its own.
//!
//! The configuration of node `a` is that of the files with three things changed. Its volumes are
//! the directories `a` below those of `dfs.datanode.data.dir`. Where `<key>.a` is set for an
//! address or the host name, it counts. An address without such a key is the plain one, its port
//! higher by the node's place in the list.

use std::path::Path;

use super::address::HostPort;
use super::configuration::Configuration;
use super::data_dir::DataDir;
use super::error::ConfigError;
use super::keys;
use super::node_name::{Derived, NodeName};
use super::value::{Unit, Value};

/// Steps between the ports of one node and the next. Where ports of different keys lie so close
/// together that consecutive ones meet, as Hadoop's defaults do, they go on in tens.
const STEPS: [u16; 2] = [1, 10];

/// A virtual node and its configuration.
#[derive(Clone, Debug)]
pub struct VirtualNode {
    /// Its name in `hayloft.nodes`.
    pub name: NodeName,
    /// Its configuration: like that of a process of its own.
    pub config: Configuration,
}

/// Names of the keys that may be set for one virtual node by a suffix.
fn of_one_node() -> [&'static str; 4] {
    let [xfer, ipc, http] = addresses();
    [xfer, ipc, http, keys::DATANODE_HOSTNAME.name()]
}

/// Those of them that are addresses.
fn addresses() -> [&'static str; 3] {
    [
        keys::DATANODE_ADDRESS.name(),
        keys::DATANODE_IPC_ADDRESS.name(),
        keys::DATANODE_HTTP_ADDRESS.name(),
    ]
}

/// The key and the node that `name` is made of, if it is a key of one virtual node.
fn split_suffix(name: &str) -> Option<(&'static str, &str)> {
    of_one_node()
        .into_iter()
        .find_map(|base| Some((base, name.strip_prefix(base)?.strip_prefix('.')?)))
}

impl Configuration {
    /// The virtual nodes in the order of `hayloft.nodes`; none when the process is one node.
    ///
    /// # Errors
    /// A key for a node that is not listed, an address that cannot be read, a port beyond 65535,
    /// and two ports that would meet.
    pub fn virtual_nodes(&self) -> Result<Vec<VirtualNode>, ConfigError> {
        let names = self.get(&keys::NODES);
        if names.is_empty() {
            return Ok(Vec::new());
        }
        self.refuse_shared_mounts()?;
        self.refuse_strange_suffixes(&names)?;
        let mut refused = None;
        for step in STEPS {
            match self.nodes_in_steps(&names, step) {
                Ok(nodes) => return Ok(nodes),
                // What is wrong whatever the step is what the operator has to correct.
                Err(error) => refused = Some(error),
            }
        }
        Err(refused.expect("there is more than one step"))
    }

    fn nodes_in_steps(
        &self,
        names: &[NodeName],
        step: u16,
    ) -> Result<Vec<VirtualNode>, ConfigError> {
        let mut nodes = Vec::with_capacity(names.len());
        for (place, name) in (0..).zip(names) {
            let derived = Derived {
                name: name.clone(),
                place,
                step,
            };
            self.refuse_high_ports(&derived)?;
            nodes.push(VirtualNode {
                name: name.clone(),
                config: self.derived(derived).validated()?,
            });
        }
        refuse_shared_ports(&nodes)?;
        Ok(nodes)
    }

    /// Whether `name` is a key of a virtual node that is listed.
    pub(super) fn is_of_virtual_node(&self, name: &str) -> bool {
        let names = self.get(&keys::NODES);
        split_suffix(name).is_some_and(|(_, node)| names.iter().any(|n| n.as_str() == node))
    }

    /// Virtual nodes share the space of a mount among themselves, not by types of storage yet.
    fn refuse_shared_mounts(&self) -> Result<(), ConfigError> {
        if !self.get(&keys::SAME_DISK_TIERING) {
            return Ok(());
        }
        let (tiering, nodes) = (keys::SAME_DISK_TIERING.name(), keys::NODES.name());
        let what = format!(
            "{tiering} ({}) does not go together with {nodes} ({}) yet: remove one of the two",
            self.origin(tiering),
            self.origin(nodes)
        );
        Err(ConfigError::Conflict { what })
    }

    fn refuse_strange_suffixes(&self, names: &[NodeName]) -> Result<(), ConfigError> {
        for key in self.names() {
            let Some((base, node)) = split_suffix(key) else {
                continue;
            };
            if !names.iter().any(|name| name.as_str() == node) {
                let what = format!(
                    "{key} ({}) is for a node that {} ({}) does not list: correct one of the two",
                    self.origin(key),
                    keys::NODES.name(),
                    self.origin(keys::NODES.name())
                );
                return Err(ConfigError::Conflict { what });
            }
            if addresses().contains(&base) && self.text(key).is_some() {
                self.parse_as(key, |text| HostPort::parse(text, Unit::None))?;
            }
        }
        Ok(())
    }

    fn refuse_high_ports(&self, node: &Derived) -> Result<(), ConfigError> {
        for base in addresses() {
            let own = format!("{base}.{}", node.name);
            let plain = self.text(base).and_then(|text| parsed(&text));
            let Some(plain) = plain.filter(|_| self.text(&own).is_none()) else {
                continue;
            };
            if shifted(&plain, node.offset()).is_none() {
                let what = format!(
                    "{base} ({}) leaves no port for node {}: {} and {} more is above 65535; set a \
                     lower one, or {own}",
                    self.origin(base),
                    node.name,
                    plain.port,
                    node.offset()
                );
                return Err(ConfigError::Conflict { what });
            }
        }
        Ok(())
    }

    /// The same sources read anew: files as they are now, the same `-D`, for the same virtual node.
    /// Values are not looked at: one that is not allowed must not hide what else has changed. Only
    /// texts may be asked of the result.
    pub(super) fn reread_texts(&self) -> Result<Self, ConfigError> {
        let plain = self.reread_sources()?;
        Ok(match &self.node {
            Some(node) => plain.derived(node.clone()),
            None => plain,
        })
    }

    /// The texts of the node's configuration. What cannot be read stays as it is, for the
    /// validation to name.
    fn derived(&self, node: Derived) -> Self {
        let mut own = self.clone();
        for base in of_one_node() {
            let name = format!("{base}.{}", node.name);
            if let Some(text) = self.text(&name) {
                own.set_as(base, text, self.origin(&name));
            } else if addresses().contains(&base)
                && let Some(plain) = self.text(base).and_then(|text| parsed(&text))
                && let Some(own_address) = shifted(&plain, node.offset())
            {
                own.set_as(base, own_address.to_string(), self.origin(base));
            }
        }
        let dirs = keys::DATA_DIRS.name();
        let listed = self.text(dirs);
        if let Some(Ok(plain)) = listed.map(|text| Vec::<DataDir>::parse(&text, Unit::None)) {
            let below = plain.iter().map(|dir| dir.of_node(&node.name).to_string());
            let text = below.collect::<Vec<_>>().join(",");
            own.set_as(dirs, text, self.origin(dirs));
        }
        own.node = Some(node);
        own
    }

    /// The name of the virtual node whose configuration this is.
    #[must_use]
    pub fn node_name(&self) -> Option<&NodeName> {
        self.node.as_ref().map(|node| &node.name)
    }

    /// The directory of the configuration that `dir` belongs to: keys of single volumes go by it.
    #[must_use]
    pub fn configured_dir(&self, dir: &DataDir) -> DataDir {
        let Some(name) = self.node_name() else {
            return dir.clone();
        };
        match (dir.path.file_name(), dir.path.parent()) {
            (Some(last), Some(parent)) if last == name.as_str() => DataDir {
                storage_type: dir.storage_type,
                path: parent.to_path_buf(),
            },
            _ => dir.clone(),
        }
    }
}

impl DataDir {
    /// The part of it that a virtual node has.
    #[must_use]
    pub fn of_node(&self, node: &NodeName) -> Self {
        Self {
            storage_type: self.storage_type,
            path: self.path.join(Path::new(node.as_str())),
        }
    }
}

fn parsed(text: &str) -> Option<HostPort> {
    HostPort::parse(text, Unit::None).ok()
}

/// The address with a port that is higher by `offset`. A port that the system chooses stays 0.
fn shifted(plain: &HostPort, offset: u16) -> Option<HostPort> {
    let port = match plain.port {
        0 => 0,
        port => port.checked_add(offset)?,
    };
    Some(HostPort {
        host: plain.host.clone(),
        port,
    })
}

/// Whether both could be listened on: other ports, or other addresses of the host.
fn meet(one: &HostPort, other: &HostPort) -> bool {
    let all = |address: &HostPort| {
        let ip = address.host.parse::<std::net::IpAddr>();
        ip.is_ok_and(|ip| ip.is_unspecified())
    };
    let hosts = all(one) || all(other) || one.host.eq_ignore_ascii_case(&other.host);
    one.port != 0 && one.port == other.port && hosts
}

fn refuse_shared_ports(nodes: &[VirtualNode]) -> Result<(), ConfigError> {
    let mut seen: Vec<(String, HostPort)> = Vec::new();
    for node in nodes {
        for base in addresses() {
            let Some(address) = node.config.text(base).and_then(|text| parsed(&text)) else {
                continue; // Validated: it is always there.
            };
            let own = format!("{base}.{}", node.name);
            if let Some((other, taken)) = seen.iter().find(|(_, taken)| meet(taken, &address)) {
                let what = format!(
                    "two ports of {} would be one: {other} is {taken}, and {own} is {address}; \
                     set {own} to another",
                    keys::NODES.name()
                );
                return Err(ConfigError::Conflict { what });
            }
            seen.push((own, address));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
