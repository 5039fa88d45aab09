//! Clients of a testbed, and nodes of one kind in the place of the other.

use hayloft_bench::fair::stock::client_flags;
use hayloft_testkit::hadoop_conf::Conf;

use super::super::running::RunningNode;
use super::{Driver, HostSpec, Jvm, Result, START_LIMIT, Testbed, net};

impl Testbed {
    /// A resident stock client on `host`.
    ///
    /// # Errors
    /// When it does not start.
    pub fn client(&self, host: &str) -> Result<Driver> {
        self.client_with(host, &Conf::new(), &[])
    }

    /// As [`Testbed::client`], with more configuration and these jars on its class path.
    ///
    /// # Errors
    /// When it does not start.
    pub fn client_with(
        &self,
        host: &str,
        more: &Conf,
        jars: &[std::path::PathBuf],
    ) -> Result<Driver> {
        let dir = self.dir.join("clients").join(host);
        let mut conf = self.conf();
        conf.overlay(more).write_dir(&dir.join("conf"))?;
        let jvm = Jvm {
            conf_dir: dir.join("conf"),
            log_dir: dir.clone(),
            flags: client_flags(),
        };
        let place = net::place(&self.described.name, host, None, false);
        let mut hadoop = self.hadoop.clone();
        jars.iter().cloned().for_each(|jar| hadoop.add_jar(jar));
        Driver::start_at(&hadoop, &jvm, &place)
    }

    /// Ends every storage node and starts nodes of `kind` (`hayloft`, `apache`) on the same disks,
    /// with what is on them.
    ///
    /// # Errors
    /// When the NameNode does not notice, or a node does not come up.
    pub fn exchange_nodes(&mut self, kind: &str) -> Result<()> {
        let ended = self.nodes.drain(..).map(RunningNode::into_disks);
        let disks: Vec<_> = ended.collect();
        self.namenode.wait_live(0, START_LIMIT)?;
        let racks = &mut self.described.racks;
        let hosts = racks.iter_mut().flat_map(|rack| &mut rack.hosts);
        for node in hosts.flat_map(|host| &mut host.nodes) {
            node.kind = kind.into();
        }
        let hosts: Vec<HostSpec> = self.described.hosts().map(|(_, h)| h.clone()).collect();
        let mut disks = disks.into_iter();
        for (position, host) in hosts.iter().enumerate() {
            for index in 0..host.nodes.len() {
                let own = disks.next().unwrap_or_default();
                self.start_node(position, host, index, own, self.stays)?;
            }
        }
        self.wait_live(self.nodes.iter().map(RunningNode::count).sum())
    }
}
