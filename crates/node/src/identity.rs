//! What this node calls itself.

use std::net::{IpAddr, SocketAddr};

use hayloft_wire::proto::hdfs::DatanodeId;

use hayloft_conf::{Configuration, Key, keys};

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
    /// What NameNodes are told in the place of these.
    pub registered: Registered,
    /// The address that connections to NameNodes and other nodes come from. Virtual nodes have
    /// one, unless they serve all addresses of the host; for others the system chooses.
    pub local: Option<IpAddr>,
}

/// Names and ports at which others reach a node that has others itself, as behind a service of
/// Kubernetes. None of a port is 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registered {
    host: Option<String>,
    xfer_port: u16,
    info_port: u16,
    info_secure_port: u16,
    ipc_port: u16,
}

impl Registered {
    /// As the keys say. Virtual nodes would all be told the same.
    fn new(config: &Configuration) -> Self {
        if config.node_name().is_some() {
            return Self::default();
        }
        // A key's bounds make it a port.
        let port = |key: &Key<u32>| u16::try_from(config.get(key)).unwrap_or(0);
        Self {
            host: config.get(&keys::REGISTERED_HOSTNAME),
            xfer_port: port(&keys::REGISTERED_PORT),
            info_port: port(&keys::REGISTERED_HTTP_PORT),
            info_secure_port: port(&keys::REGISTERED_HTTPS_PORT),
            ipc_port: port(&keys::REGISTERED_IPC_PORT),
        }
    }
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
            registered: Registered::new(config),
            local: (config.node_name().is_some() && !xfer.ip().is_unspecified()).then(|| xfer.ip()),
        }
    }

    /// As registrations and reports carry it.
    #[must_use]
    pub fn to_wire(&self) -> DatanodeId {
        let told = &self.registered;
        let host = |own: &String| told.host.as_ref().unwrap_or(own).clone();
        let port = |told: u16, own: u16| u32::from(if told == 0 { own } else { told });
        DatanodeId {
            ip_addr: host(&self.ip_addr),
            host_name: host(&self.host_name),
            datanode_uuid: self.datanode_uuid.clone(),
            xfer_port: port(told.xfer_port, self.xfer_port),
            info_port: port(told.info_port, self.info_port),
            ipc_port: port(told.ipc_port, self.ipc_port),
            info_secure_port: Some(port(told.info_secure_port, self.info_secure_port)),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn told(more: &[(&str, &str)]) -> DatanodeId {
        let name = ("dfs.datanode.hostname", "own");
        let pairs = [&[name], more].concat();
        let config = Configuration::from_properties(pairs).expect("valid");
        let [xfer, ipc] = ["0.0.0.0:9866", "0.0.0.0:9867"].map(|at| at.parse().expect("one"));
        Identity::new(&config, "uuid".to_owned(), xfer, ipc, (9864, 0)).to_wire()
    }

    #[test]
    fn namenodes_are_told_what_is_bound_unless_keys_say_otherwise() {
        let own = told(&[]);
        assert_eq!((&*own.ip_addr, &*own.host_name), ("0.0.0.0", "own"));
        assert_eq!(
            (own.xfer_port, own.ipc_port, own.info_port),
            (9866, 9867, 9864)
        );
        assert_eq!(own.info_secure_port, Some(0));
        let some = told(&[
            ("dfs.datanode.registered.hostname", "worker-1"),
            ("dfs.datanode.registered.port", "30866"),
            ("dfs.datanode.registered.ipc.port", "30867"),
            ("dfs.datanode.registered.https.port", "30865"),
        ]);
        assert_eq!((&*some.ip_addr, &*some.host_name), ("worker-1", "worker-1"));
        assert_eq!(
            (some.xfer_port, some.ipc_port, some.info_port),
            (30866, 30867, 9864)
        );
        assert_eq!(some.info_secure_port, Some(30865));
    }
}
