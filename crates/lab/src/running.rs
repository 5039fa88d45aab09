//! A storage node of a testbed.

use serde::{Deserialize, Serialize};

use super::disks::Mounted;
use hayloft_testkit::conf::Conf;
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::node::{Kind, Node};
use hayloft_testkit::process::Process;

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

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
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
