//! Who has the ports of the node.

use std::fs;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use hayloft_conf::HostPort;

use crate::seen::text;

/// Entries of `/proc` that are looked at, at most.
const PROCESSES_MAX: usize = 100_000;
/// State of a socket that listens.
const LISTENS: &str = "0A";

/// A port that is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortFacts {
    /// The address that cannot be had.
    pub at: String,
    /// Who listens there, where this user may know.
    pub holder: Option<HolderFacts>,
    /// No socket listens there: an outgoing connection of this host has it as its own end.
    pub outgoing: bool,
}

/// A process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HolderFacts {
    /// Its number.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// Whether it is a DataNode, of whatever kind.
    pub is_node: bool,
}

/// Those of the addresses that others have. It binds each for a moment.
#[must_use]
pub fn taken(addresses: &[HostPort]) -> Vec<PortFacts> {
    let in_use = |at: &&HostPort| {
        let bound = TcpListener::bind((&*at.host, at.port));
        bound.is_err_and(|error| error.kind() == ErrorKind::AddrInUse)
    };
    let taken = addresses.iter().filter(in_use);
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let tables = tables.map(|table| text(Path::new(table)).unwrap_or_default());
    let facts = taken.map(|at| {
        let sockets = || tables.iter().flat_map(|table| sockets_at(table, at.port));
        let (listen, others): (Vec<_>, Vec<_>) =
            sockets().partition(|(state, _)| *state == LISTENS);
        PortFacts {
            at: at.to_string(),
            outgoing: listen.is_empty() && !others.is_empty(),
            holder: holder(&listen.into_iter().map(|(_, link)| link).collect::<Vec<_>>()),
        }
    });
    facts.collect()
}

/// The process that has one of these sockets open.
fn holder(sockets: &[PathBuf]) -> Option<HolderFacts> {
    let all = fs::read_dir("/proc").ok()?.flatten().take(PROCESSES_MAX);
    let mut pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.find_map(|pid| {
        let dir = PathBuf::from(format!("/proc/{pid}"));
        let open = fs::read_dir(dir.join("fd")).ok()?.flatten();
        let mut leads = open.filter_map(|entry| fs::read_link(entry.path()).ok());
        leads
            .any(|lead| sockets.contains(&lead))
            .then(|| HolderFacts {
                pid,
                name: text(&dir.join("comm")).unwrap_or_default(),
                is_node: is_node(&text(&dir.join("cmdline")).unwrap_or_default()),
            })
    })
}

/// The states of the sockets whose own port this is, and the links of their descriptors.
fn sockets_at(table: &str, port: u16) -> impl Iterator<Item = (&str, PathBuf)> {
    let at = format!(":{port:04X}");
    table.lines().skip(1).filter_map(move |line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (local, state, inode) = (words.get(1)?, *words.get(3)?, words.get(9)?);
        let here = local.ends_with(&at);
        here.then(|| (state, PathBuf::from(format!("socket:[{inode}]"))))
    })
}

/// By its command line, whose words end with zeros.
fn is_node(command: &str) -> bool {
    let words: Vec<&str> = command.split('\0').collect();
    let ours = matches!(words[..], [program, "node", ..] if program.contains("hayloft"));
    let apaches = [
        "org.apache.hadoop.hdfs.server.datanode.DataNode",
        "org.apache.hadoop.hdfs.server.datanode.SecureDataNodeStarter",
    ];
    ours || words.iter().any(|word| apaches.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_that_listens_is_named() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let at = HostPort {
            host: "127.0.0.1".into(),
            port,
        };
        let found = taken(std::slice::from_ref(&at));
        let holder = found[0].holder.as_ref().expect("this process");
        assert_eq!((holder.pid, holder.is_node), (std::process::id(), false));
        assert!(!holder.name.is_empty());
        drop(listener);
        assert_eq!(taken(&[at]), []);
    }

    #[test]
    fn a_connection_that_has_the_port_listens_nowhere() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let there = listener.local_addr().expect("bound");
        let connection = std::net::TcpStream::connect(there).expect("connected");
        let at = HostPort {
            host: "127.0.0.1".into(),
            port: connection.local_addr().expect("connected").port(),
        };
        let found = taken(&[at]);
        assert!(found[0].outgoing && found[0].holder.is_none(), "{found:?}");
    }

    #[test]
    fn nodes_are_known_by_their_command_lines() {
        assert!(is_node("/usr/bin/hayloft\0node\0--conf\0/etc/hadoop/conf"));
        assert!(!is_node("/usr/bin/hayloft\0top\0--node\0x"));
        assert!(is_node(
            "java\0-cp\0x\0org.apache.hadoop.hdfs.server.datanode.DataNode"
        ));
        assert!(!is_node("nginx: worker process"));
        assert!(!is_node("python3\0metrics.py\0--of\0DataNode"));
    }
}
