//! A storage node of a testbed.

use super::disks::Mounted;
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::node::Kind;
use hayloft_testkit::process::{Process, Spawn};

/// A storage node that runs.
#[derive(Debug)]
pub struct RunningNode {
    /// `host.N`.
    pub name: String,
    /// Its host's namespace.
    pub namespace: String,
    /// Host name.
    pub host: String,
    /// Whose.
    pub kind: Kind,
    /// Where clients reach it.
    pub address: String,
    /// Its disks.
    pub disks: Vec<Mounted>,
    pid: u32,
    /// None when an earlier command started it.
    process: Option<Process>,
    /// How it is started; none when an earlier command did.
    spawn: Option<Spawn>,
}

impl RunningNode {
    pub(super) fn attached(
        name: String,
        namespace: String,
        host: String,
        kind: Kind,
        address: String,
        disks: Vec<Mounted>,
        pid: u32,
    ) -> Self {
        Self {
            name,
            namespace,
            host,
            kind,
            address,
            disks,
            pid,
            process: None,
            spawn: None,
        }
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Remembers who runs it, and how it is started again.
    pub(super) fn started(mut self, process: Process, spawn: Spawn) -> Self {
        self.process = Some(process);
        self.spawn = Some(spawn);
        self
    }

    /// Its process, when this command started it.
    pub(super) fn process_mut(&mut self) -> Option<&mut Process> {
        self.process.as_mut()
    }

    /// SIGKILL. Nothing to do for a node that an earlier command started.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn kill(&mut self) -> Result<()> {
        match self.process.take() {
            Some(mut process) => process.kill().map(drop),
            None => Ok(()),
        }
    }

    /// Starts it again after [`RunningNode::kill`].
    ///
    /// # Errors
    /// When an earlier command started it, or it cannot be started.
    pub fn restart(&mut self) -> Result<()> {
        let Some(spawn) = &self.spawn else {
            return Err(TestkitError::Talk(format!(
                "{} was started by an earlier command: take the testbed down and up again",
                self.name
            )));
        };
        let process = spawn.clone().start()?;
        self.pid = process.pid();
        self.process = Some(process);
        Ok(())
    }
}
