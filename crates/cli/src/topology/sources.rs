//! The options that say whom to ask.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::PathBuf;

use clap::Args;
use hayloft_node::identity::system_host_name;
use hayloft_topology::{
    BaseUrl, NodeKeys, RackPath, SOURCE_NAMES, SafeName, SourcePanel, SourceSettings, Whereabouts,
    sources_by_name,
};

use crate::error::CliError;

/// Whom to ask, and what this node is called.
#[derive(Debug, Args)]
pub struct SourceArgs {
    /// Whom to ask: auto, ec2, gcp, azure, kubernetes, hypervisor or file:PATH.
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = source)]
    source: String,
    /// Name of this node, as NameNodes know it [default: that of this machine].
    #[arg(long, value_name = "NAME", value_parser = str::parse::<SafeName>)]
    node: Option<SafeName>,
    /// Address that NameNodes see this node come from. May be repeated
    /// [default: that of the default route].
    #[arg(long, value_name = "IP", value_parser = address)]
    address: Vec<IpAddr>,
    /// Make one level of a rack, /a-b instead of /a/b.
    #[arg(long)]
    flat: bool,
    /// Another metadata server than the clouds' own, such as a proxy for containers.
    #[arg(long, value_name = "URL", value_parser = str::parse::<BaseUrl>)]
    metadata_url: Option<BaseUrl>,
    /// Another server of EC2's API than the region's, such as a VPC endpoint.
    #[arg(long, value_name = "URL", value_parser = str::parse::<BaseUrl>)]
    ec2_endpoint: Option<BaseUrl>,
    /// The Kubernetes node of this pod, from spec.nodeName of the downward API.
    #[arg(long, value_name = "NAME", env = "NODE_NAME")]
    kubernetes_node: Option<String>,
    /// The node's label whose value is the rack.
    #[arg(long, value_name = "LABEL")]
    kubernetes_label: Option<String>,
    /// Read labels from this file of the downward API, and ask no API server.
    #[arg(long, value_name = "FILE")]
    kubernetes_labels_file: Option<PathBuf>,
    /// The Kubernetes API server, where the environment does not name it.
    #[arg(long, value_name = "URL", value_parser = str::parse::<BaseUrl>)]
    kubernetes_api: Option<BaseUrl>,
    /// Another /sys, such as the host's in a container.
    #[arg(long, value_name = "DIR")]
    sys: Option<PathBuf>,
}

impl SourceArgs {
    /// The sources, ready to be asked.
    pub fn panel(&self) -> Result<SourcePanel, CliError> {
        let settings = SourceSettings {
            metadata: self.metadata_url.clone(),
            ec2_endpoint: self.ec2_endpoint.clone(),
            kubernetes_node: self.kubernetes_node.clone(),
            kubernetes_label: self.kubernetes_label.clone(),
            kubernetes_labels_file: self.kubernetes_labels_file.clone(),
            kubernetes_api: self.kubernetes_api.clone(),
            kubernetes_account: None,
            sys: self.sys.clone(),
            keys: self.keys(),
        };
        let sources = sources_by_name(&self.source, &settings);
        let sources = sources.map_err(|problem| CliError::new(problem, "--source", ""))?;
        Ok(SourcePanel::new(sources))
    }

    /// Whether the operator named one source.
    pub fn is_one(&self) -> bool {
        self.source != "auto"
    }

    /// The names of this node.
    pub fn keys(&self) -> NodeKeys {
        let mut addresses = self.address.clone();
        if addresses.is_empty() {
            addresses.extend(route_address());
        }
        let name = self.node.as_ref().map(ToString::to_string);
        NodeKeys {
            name: name.unwrap_or_else(system_host_name),
            addresses,
        }
    }

    /// The rack of a place, of as many levels as asked for.
    pub fn rack_of(&self, place: &Whereabouts) -> RackPath {
        match self.flat {
            true => place.rack.flat(),
            false => place.rack.clone(),
        }
    }
}

/// The address of the default route. No packet is sent: an address for documentation is not there.
fn route_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    let address = socket.local_addr().ok()?.ip();
    Some(address).filter(|address| !address.is_unspecified())
}

/// One that a connection can come from.
fn address(text: &str) -> Result<IpAddr, String> {
    let address: IpAddr = text.parse().map_err(|_| "is no address, as 10.0.0.1")?;
    match address.is_unspecified() || address.is_multicast() {
        true => Err("no connection comes from it: name the node's own address".to_owned()),
        false => Ok(address),
    }
}

fn source(text: &str) -> Result<String, String> {
    let file = text
        .strip_prefix("file:")
        .is_some_and(|path| !path.is_empty());
    if file || SOURCE_NAMES.contains(&text) {
        return Ok(text.to_owned());
    }
    Err(format!("must be {} or file:PATH", SOURCE_NAMES.join(", ")))
}
