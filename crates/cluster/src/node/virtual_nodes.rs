//! Virtual nodes: several DataNodes in one process of ours.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::hadoop_conf::Conf;
use crate::ports;

/// A virtual node: its name and where it answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VirtualSite {
    /// Its name in `hayloft.nodes`.
    pub name: String,
    /// The address that it serves, and that its connections come from.
    pub address: Ipv4Addr,
    /// Port of data transfer.
    pub xfer_port: u16,
    /// Port of the RPC server.
    pub ipc_port: u16,
    /// Port of the HTTP server.
    pub http_port: u16,
}

impl VirtualSite {
    /// One on free ports of `address`.
    ///
    /// # Errors
    /// When no port is free.
    pub fn free(name: impl Into<String>, address: Ipv4Addr) -> Result<Self> {
        Ok(Self {
            name: name.into(),
            address,
            xfer_port: ports::free()?,
            ipc_port: ports::free()?,
            http_port: ports::free()?,
        })
    }

    /// Where it listens for data transfer.
    #[must_use]
    pub fn xfer(&self) -> SocketAddr {
        SocketAddr::from((self.address, self.xfer_port))
    }

    /// Where it listens for RPC.
    #[must_use]
    pub fn ipc(&self) -> SocketAddr {
        SocketAddr::from((self.address, self.ipc_port))
    }

    /// Its part of a data directory.
    #[must_use]
    pub fn part_of(&self, data: &Path) -> PathBuf {
        data.join(&self.name)
    }
}

/// Names the virtual nodes in a configuration, and says where each is.
pub(super) fn configure(conf: &mut Conf, sites: &[VirtualSite]) {
    if sites.is_empty() {
        return;
    }
    let names: Vec<&str> = sites.iter().map(|site| site.name.as_str()).collect();
    conf.set("hayloft.nodes", names.join(","));
    for site in sites {
        let http = SocketAddr::from((site.address, site.http_port));
        let name = &site.name;
        conf.set(format!("dfs.datanode.address.{name}"), site.xfer())
            .set(format!("dfs.datanode.ipc.address.{name}"), site.ipc())
            .set(format!("dfs.datanode.http.address.{name}"), http)
            .set(format!("dfs.datanode.hostname.{name}"), site.address);
    }
}
