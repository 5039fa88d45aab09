//! `hayloft node --check-live`: whether the node of a configuration answers. Probes of containers
//! ask it, so it says nothing of NameNodes: to begin again does not bring those back.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs as _};
use std::process::ExitCode;
use std::time::Duration;

use hayloft_cluster::http::{self, HttpLimits};
use hayloft_conf::{Configuration, HostPort, keys};

use crate::error::{CliError, FINDING};

/// For a port to answer. Probes of Kubernetes have a second unless they name another time.
const PATIENCE: Duration = Duration::from_secs(5);
const LIMITS: HttpLimits = HttpLimits {
    connect: PATIENCE,
    whole: PATIENCE,
    bytes: 1 << 20,
};

/// Prints the answer; exit code 1 where it is no.
pub fn run(config: &Configuration) -> Result<ExitCode, CliError> {
    let nodes = config.virtual_nodes()?;
    let found = match nodes.as_slice() {
        [] => look(config),
        nodes => nodes.iter().try_for_each(|node| look(&node.config)),
    };
    Ok(match found {
        Ok(()) => {
            println!("yes: the node answers");
            ExitCode::SUCCESS
        }
        Err(why) => {
            println!("no: {why}");
            ExitCode::from(FINDING)
        }
    })
}

/// One node: its data transfer port takes a connection, and its web port answers a request.
fn look(config: &Configuration) -> Result<(), String> {
    let transfer = config.get(&keys::DATANODE_ADDRESS);
    connects(&transfer).map_err(|why| format!("data transfer at {transfer}: {why}"))?;
    let tls_alone = config.https_only();
    let web = config.get(match tls_alone {
        true => &keys::DATANODE_HTTPS_ADDRESS,
        false => &keys::DATANODE_HTTP_ADDRESS,
    });
    // Who asks has no certificate.
    let asked = match tls_alone {
        true => connects(&web),
        false => place_of(&web)
            .and_then(|at| http::answers(at, LIMITS).map_err(|error| error.to_string())),
    };
    asked.map_err(|why| format!("the web port at {web}: {why}"))
}

fn connects(address: &HostPort) -> Result<(), String> {
    let stream = TcpStream::connect_timeout(&place_of(address)?, PATIENCE);
    stream.map(drop).map_err(|error| error.to_string())
}

/// Where a node that listens at an address is met on its own host.
fn place_of(address: &HostPort) -> Result<SocketAddr, String> {
    if address.port == 0 {
        return Err("any port may be it: give the node a port".into());
    }
    let found = (address.host.as_str(), address.port).to_socket_addrs();
    let mut found = found.map_err(|error| error.to_string())?;
    let first = found.next().ok_or("its name has no address")?;
    let ip = match first.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    Ok(SocketAddr::new(ip, first.port()))
}
