//! `hayloft super`: virtual nodes of one host (`hayloft.nodes`), as the rest of a cluster has to
//! know them.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use hayloft_conf::{Configuration, NodeName, keys};
use hayloft_node::identity::system_host_name;
use serde::Serialize;

use crate::error::CliError;

/// `hayloft super`.
#[derive(Debug, Args)]
pub struct SuperArgs {
    /// What to do.
    #[command(subcommand)]
    command: SuperCommand,
}

#[derive(Debug, Subcommand)]
enum SuperCommand {
    /// Print which addresses are one host: lines for the file that the NameNodes' key
    /// hayloft.placement.domains.file names. With --rack: lines for hayloft.topology.file.
    Topology(TopologyArgs),
}

#[derive(Debug, Args)]
struct TopologyArgs {
    /// Directory of core-site.xml and hdfs-site.xml
    /// [default: $HADOOP_CONF_DIR, $HADOOP_HOME/etc/hadoop or /etc/hadoop/conf].
    #[arg(long, value_name = "DIR")]
    conf: Option<PathBuf>,
    /// Set a property over the files. May be repeated.
    #[arg(short = 'D', value_name = "KEY=VALUE", value_parser = crate::given::property)]
    define: Vec<(String, String)>,
    /// Name of the host, the failure domain of its nodes [default: that of this machine].
    #[arg(long, value_name = "NAME", value_parser = word)]
    host: Option<String>,
    /// Print `/rack/host` locations below this rack instead of domains.
    #[arg(long, value_name = "/RACK", value_parser = rack)]
    rack: Option<String>,
    /// Report as JSON on stdout.
    #[arg(long)]
    json: bool,
}

/// A virtual node as NameNodes know it.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct KnownNode {
    name: String,
    /// The address that its connections come from; none where it serves all of the host: then the
    /// NameNode sees that of the host.
    address: Option<IpAddr>,
    host_name: String,
    xfer_port: u16,
}

/// The mapping of one host.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct HostMapping {
    host: String,
    /// What a line says after the address.
    value: String,
    nodes: Vec<KnownNode>,
}

/// Answers.
pub fn run(args: &SuperArgs) -> Result<ExitCode, CliError> {
    let SuperCommand::Topology(args) = &args.command;
    let conf = crate::given::conf_dir(args.conf.as_deref())?;
    let config = Configuration::load(&conf, &args.define)?;
    let mapping = mapping(&config, args.host.clone(), args.rack.as_deref())?;
    if args.json {
        crate::json::print_json(&mapping)?;
    } else {
        print!("{mapping}");
    }
    Ok(ExitCode::SUCCESS)
}

fn mapping(
    config: &Configuration,
    host: Option<String>,
    rack: Option<&str>,
) -> Result<HostMapping, CliError> {
    let nodes = config.virtual_nodes()?;
    if nodes.is_empty() {
        return Err(CliError::new(
            "this configuration has no virtual nodes",
            keys::NODES.name(),
            "set it to their names; a node of its own is its own failure domain already",
        ));
    }
    let host = host.unwrap_or_else(system_host_name);
    let known = nodes.iter().map(|node| known(&node.name, &node.config));
    Ok(HostMapping {
        value: rack.map_or_else(|| host.clone(), |rack| format!("{rack}/{host}")),
        host,
        nodes: known.collect::<Result<_, _>>()?,
    })
}

fn known(name: &NodeName, config: &Configuration) -> Result<KnownNode, CliError> {
    let listens = config.get(&keys::DATANODE_ADDRESS);
    let address = match listens.host.parse() {
        Ok(address) => address,
        Err(_) => looked_up(name, &listens.host)?,
    };
    let host_name = config.get(&keys::DATANODE_HOSTNAME);
    Ok(KnownNode {
        name: name.to_string(),
        address: Some(address).filter(|address: &IpAddr| !address.is_unspecified()),
        host_name: host_name.unwrap_or_else(system_host_name),
        xfer_port: listens.port,
    })
}

/// The address that the node will be bound to, the first of the name's.
fn looked_up(node: &NodeName, host: &str) -> Result<IpAddr, CliError> {
    let found = (host, 0).to_socket_addrs();
    let reason = match found.map(|mut found| found.next()) {
        Ok(Some(address)) => return Ok(address.ip()),
        Ok(None) => "the name has no address".to_owned(),
        Err(error) => error.to_string(),
    };
    let what = format!("cannot look up the address of virtual node {node}: {reason}");
    Err(CliError::new(
        what,
        host,
        "set an IP address, or correct the name",
    ))
}

impl KnownNode {
    /// How a file of domains or a topology names it.
    fn key(&self) -> String {
        self.address
            .map_or_else(|| self.host_name.clone(), |address| address.to_string())
    }
}

impl fmt::Display for HostMapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut said = BTreeSet::new();
        for node in &self.nodes {
            if said.insert(node.key()) {
                writeln!(f, "{}    {}", node.key(), self.value)?;
            }
        }
        Ok(())
    }
}

fn word(text: &str) -> Result<String, String> {
    let fits = |c: char| !c.is_whitespace() && c != '#' && c != '/';
    if text.is_empty() || !text.chars().all(fits) {
        return Err("must be one word without # and /".into());
    }
    Ok(text.to_owned())
}

fn rack(text: &str) -> Result<String, String> {
    let levels = text
        .strip_prefix('/')
        .ok_or("must begin with /, as /rack1")?;
    levels
        .split('/')
        .try_for_each(|level| word(level).map(drop))?;
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(rack: Option<&str>, properties: &[(&str, &str)]) -> String {
        let all = [("hayloft.nodes", "a,b,c")].into_iter();
        let all = all.chain(properties.iter().copied());
        let config = Configuration::from_properties(all).expect("valid");
        let host = Some("store1".to_owned());
        mapping(&config, host, rack).expect("known").to_string()
    }

    const OWN: [(&str, &str); 3] = [
        ("dfs.datanode.address.a", "10.0.0.1:9866"),
        ("dfs.datanode.address.b", "10.0.0.2:9866"),
        ("dfs.datanode.address.c", "10.0.0.3:9866"),
    ];

    #[test]
    fn addresses_of_their_own_are_one_host() {
        let lines = "10.0.0.1    store1\n10.0.0.2    store1\n10.0.0.3    store1\n";
        assert_eq!(shown(None, &OWN), lines);
        let below = lines.replace("store1", "/rack7/store1");
        assert_eq!(shown(Some("/rack7"), &OWN), below);
    }

    #[test]
    fn one_address_is_one_line_and_all_addresses_are_the_hosts_name() {
        let one = [("dfs.datanode.address", "10.0.0.1:9866")];
        assert_eq!(shown(None, &one), "10.0.0.1    store1\n");
        let all = [("dfs.datanode.hostname", "dn1")];
        assert_eq!(shown(None, &all), "dn1    store1\n");
        let named = [("dfs.datanode.address", "localhost:9866")];
        let line = shown(None, &named);
        assert!(
            ["127.0.0.1    store1\n", "::1    store1\n"].contains(&line.as_str()),
            "{line}"
        );
    }

    #[test]
    fn a_node_of_its_own_has_no_mapping() {
        let config = Configuration::from_properties([("fs.defaultFS", "hdfs://n")]);
        let error = mapping(&config.expect("valid"), None, None).expect_err("none");
        assert!(error.to_string().contains("hayloft.nodes"), "{error}");
    }

    #[test]
    fn names_that_would_break_the_file_are_refused() {
        assert!(word("a b").is_err() && word("a#b").is_err() && word("a/b").is_err());
        assert!(rack("rack").is_err() && rack("/").is_err() && rack("/a//b").is_err());
        assert_eq!(rack("/dc1/rack1").as_deref(), Ok("/dc1/rack1"));
    }
}
