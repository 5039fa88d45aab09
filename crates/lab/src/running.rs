//! A storage node of a testbed.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::describe::{DataNodeSpec, HostSpec};
use super::disks::Mounted;
use super::net;
use hayloft_testkit::driver::Driver;
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::hadoop_conf::Conf;
use hayloft_testkit::http;
use hayloft_testkit::node::{Kind, Node, VirtualSite};
use hayloft_testkit::process::Process;
use hayloft_testkit::where_processes_run::within;

/// The longest wait until a server has taken over a property.
pub(super) const RECONFIGURE_LIMIT: Duration = Duration::from_secs(30);

/// Where the virtual nodes of `node` answer, the links of its host dealt out in turn; none when it
/// has none. Ports begin at `first`, `step` apart.
pub(super) fn sites(
    position: usize,
    host: &HostSpec,
    node: &DataNodeSpec,
    first: u16,
    step: u16,
) -> Vec<VirtualSite> {
    let links = (0..=host.more_links).cycle();
    let ports = (first..).step_by(usize::from(step));
    let names = node.virtual_nodes.iter().zip(links).zip(ports);
    let site = |((name, link), port): ((&String, u8), u16)| VirtualSite {
        name: name.clone(),
        address: net::link_address(position, link),
        xfer_port: port,
        ipc_port: port + 1,
        http_port: port + 2,
    };
    names.map(site).collect()
}

/// A storage node that runs; what a testbed that stays remembers of it.
#[derive(Debug, Serialize, Deserialize)]
pub struct RunningNode {
    /// `host.N`.
    pub name: String,
    /// Its host's namespace.
    pub namespace: String,
    /// Host name.
    pub host: String,
    /// Whether it is the stock DataNode.
    apache: bool,
    /// Where clients reach it.
    pub address: String,
    pid: u32,
    /// Its disks.
    pub disks: Vec<Mounted>,
    /// None when an earlier command started it.
    #[serde(skip)]
    node: Option<(Node, Conf)>,
}

impl RunningNode {
    /// Starts `node` with the cluster's configuration.
    pub(super) fn start(
        mut node: Node,
        cluster: Conf,
        (host, namespace): (String, String),
        disks: Vec<Mounted>,
    ) -> Result<Self> {
        node.start_without_waiting(&cluster)?;
        Ok(Self {
            name: node.name().to_owned(),
            namespace,
            host,
            apache: node.kind() == Kind::Apache,
            address: node.xfer(),
            pid: node.process()?.pid(),
            disks,
            node: Some((node, cluster)),
        })
    }

    /// Ends it; what it leaves are its disks.
    pub(super) fn into_disks(self) -> Vec<Mounted> {
        self.disks
    }

    /// How many nodes it is to the NameNode; one when an earlier command started it.
    pub(super) fn count(&self) -> usize {
        self.node.as_ref().map_or(1, |(node, _)| node.node_count())
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Its configuration directory; `None` when an earlier command started it.
    #[must_use]
    pub fn conf_dir(&self) -> Option<PathBuf> {
        self.node.as_ref().map(|(node, _)| node.conf_dir())
    }

    /// A bean of it, by its full name or the first that a pattern fits.
    ///
    /// # Errors
    /// When an earlier command started it, or it does not answer.
    pub fn jmx(&self, query: &'static str) -> Result<serde_json::Value> {
        let wrong = || TestkitError::Talk(format!("{} has no address to ask", self.name));
        let (node, _) = self.node.as_ref().ok_or_else(wrong)?;
        let mut address: SocketAddr = self.address.parse().map_err(|_| wrong())?;
        address.set_port(node.http_port());
        within(&self.namespace, move || http::jmx(address, query))
    }

    /// Gives it a property over those of `cluster` while it runs, by `client`; what it says of it.
    ///
    /// # Errors
    /// When an earlier command started it, or it does not end with it in half a minute.
    pub(super) fn reconfigure(
        &mut self,
        client: &Driver,
        (key, value): (&str, &str),
    ) -> Result<String> {
        let unknown = || TestkitError::Talk("another command's node has no configuration".into());
        let (node, cluster) = self.node.as_mut().ok_or_else(unknown)?;
        node.conf_mut().set(key, value);
        node.write_conf(cluster)?;
        client.reconfigure(&node.ipc(), RECONFIGURE_LIMIT)
    }

    /// `Ok` while it runs, or was not started by this command.
    pub(super) fn check_alive(&mut self) -> Result<()> {
        let process = self.node.as_mut().and_then(|(node, _)| node.process().ok());
        process.map_or(Ok(()), Process::check_alive)
    }

    /// SIGKILL. Nothing to do for a node that an earlier command started.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn kill(&mut self) -> Result<()> {
        self.node.as_mut().map_or(Ok(()), |(node, _)| node.kill())
    }

    /// Starts it again after [`RunningNode::kill`].
    ///
    /// # Errors
    /// When an earlier command started it, or it cannot be started.
    pub fn restart(&mut self) -> Result<()> {
        let Some((node, conf)) = &mut self.node else {
            return Err(TestkitError::Talk(format!(
                "{} was started by an earlier command: take the testbed down and up again",
                self.name
            )));
        };
        node.start_without_waiting(conf)?;
        self.pid = node.process()?.pid();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_dealt_out_and_no_port_is_twice() {
        let node = DataNodeSpec {
            virtual_nodes: ["a", "b", "c"].map(String::from).to_vec(),
            ..DataNodeSpec::default()
        };
        let host = HostSpec {
            more_links: 1,
            ..HostSpec::default()
        };
        let sites = sites(0, &host, &node, 9866, 10);
        let at: Vec<_> = sites.iter().map(|site| site.xfer().to_string()).collect();
        assert_eq!(at, ["10.77.0.1:9866", "10.77.1.1:9876", "10.77.0.1:9886"]);
    }
}
