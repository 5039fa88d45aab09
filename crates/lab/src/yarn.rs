//! YARN on the hosts of a testbed.

use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::yarn::{Yarn, YarnSite, YarnWorker};

use super::net;
use super::up::Testbed;

impl Testbed {
    /// Starts the ResourceManager beside the NameNode and a NodeManager on each of these hosts, for
    /// so many containers each at a time. It ends when it is dropped, and with the testbed.
    ///
    /// # Errors
    /// When a host is not described; as [`Yarn::start`].
    pub fn yarn(&self, hosts: &[String], containers: u32) -> Result<Yarn> {
        let site = self.yarn_site(hosts, containers)?;
        Yarn::start(&self.hadoop, &self.conf(), site)
    }

    /// Where [`Testbed::yarn`] runs.
    ///
    /// # Errors
    /// When a host is not described.
    pub(crate) fn yarn_site(&self, hosts: &[String], containers: u32) -> Result<YarnSite> {
        let name = &self.described().name;
        let worker = |host: &String| {
            let position = self.described().hosts().position(|(_, h)| &h.name == host);
            let position = position.ok_or_else(|| {
                TestkitError::Expectation(format!("no host {host} for a NodeManager"))
            })?;
            let place = net::place(name, host, Some(position), false);
            Ok(YarnWorker::at(place))
        };
        let workers = hosts.iter().map(worker).collect::<Result<_>>()?;
        Ok(YarnSite {
            dir: self.dir().join("yarn"),
            manager: net::place(name, net::NAMENODE_HOST, None, false),
            workers,
            containers,
            stock_intervals: false,
        })
    }
}
