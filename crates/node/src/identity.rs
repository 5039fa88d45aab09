//! What this node calls itself.

use std::net::{IpAddr, SocketAddr};

use hayloft_wire::proto::hdfs::DatanodeId;

use hayloft_conf::{Configuration, keys};

/// Version that a registration carries. A stock NameNode refuses one it finds too old, and calls a
/// cluster mixed when versions differ. This is the version of Hadoop whose DataNode we stand in
/// for.
pub const SOFTWARE_VERSION: &str = "3.5.0";

/// Names and ports of this node, fixed when its sockets are bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Uuid from the volumes' VERSION files.
    pub datanode_uuid: String,
    /// Name to register under (`dfs.datanode.hostname`, else the system's).
    pub host_name: String,
    /// Address that the data transfer port is bound to; the NameNode replaces it with the address
    /// that it sees.
    pub ip_addr: String,
    /// Port of data transfer.
    pub xfer_port: u16,
    /// Port of HTTP.
    pub info_port: u16,
    /// Port of HTTPS, 0 without.
    pub info_secure_port: u16,
    /// Port of the RPC server.
    pub ipc_port: u16,
    /// The address that connections to NameNodes and other nodes come from. Virtual nodes have
    /// one, unless they serve all addresses of the host; for others the system chooses.
    pub local: Option<IpAddr>,
}

impl Identity {
    /// The identity that belongs to these sockets, and to these ports of the web (0: none).
    #[must_use]
    pub fn new(
        config: &Configuration,
        datanode_uuid: String,
        xfer: SocketAddr,
        ipc: SocketAddr,
        (http, https): (u16, u16),
    ) -> Self {
        let host_name = config
            .get(&keys::DATANODE_HOSTNAME)
            .unwrap_or_else(system_host_name);
        Self {
            datanode_uuid,
            host_name,
            ip_addr: xfer.ip().to_string(),
            xfer_port: xfer.port(),
            info_port: http,
            info_secure_port: https,
            ipc_port: ipc.port(),
            local: (config.node_name().is_some() && !xfer.ip().is_unspecified()).then(|| xfer.ip()),
        }
    }

    /// As registrations and reports carry it.
    #[must_use]
    pub fn to_wire(&self) -> DatanodeId {
        DatanodeId {
            ip_addr: self.ip_addr.clone(),
            host_name: self.host_name.clone(),
            datanode_uuid: self.datanode_uuid.clone(),
            xfer_port: self.xfer_port.into(),
            info_port: self.info_port.into(),
            ipc_port: self.ipc_port.into(),
            info_secure_port: Some(self.info_secure_port.into()),
        }
    }
}

/// The system's name for itself; `localhost` when it has none that is text.
#[must_use]
pub fn system_host_name() -> String {
    rustix::system::uname()
        .nodename()
        .to_str()
        .ok()
        .filter(|name| !name.is_empty())
        .unwrap_or("localhost")
        .to_owned()
}
