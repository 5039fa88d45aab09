//! Figures 5 and 7 to 10: clients, one on each server, write files of their own with two copies,
//! read them, and read another client's. Figure 6: the same writers on memory.

use hayloft_bench::fair::stock::Medium;
use serde_json::{Value, json};

use super::session::{Hosts, Session, Way};
use crate::describe::{Description, DiskSpec};
use crate::experiments::testbeds::{one_rack, peers_on, storage_host};
use crate::runner::Run;
use crate::runner::options::ExperimentOptions;
use hayloft_testkit::error::Result;

/// Servers of the steps.
pub(super) const SERVERS: [usize; 3] = [2, 4, 6];
/// Two servers cannot hold three, and a server's share shall not depend on how many there are.
pub(super) const COPIES: usize = 2;
pub(super) const LAYOUTS: [&str; 3] = ["hybrid", "round-robin", "random"];
pub(super) const WRITE: &str = "write";
pub(super) const READ: &str = "read own";
pub(super) const READ_OTHER: &str = "read other";
/// Servers and copies of Figure 6, as in the paper.
const MEMORY_SERVERS: usize = 4;
const MEMORY_COPIES: usize = 3;
/// The limit, as in the paper: three copies leave a client a third of it, 4.2 MB/s.
pub(super) const MEMORY_LINK_MBIT: u32 = 100;
/// What the figures are called.
pub(super) const FILES: &str = "5, 7 to 10";
pub(super) const MEMORY: &str = "6";
pub(super) const ONE_STREAM: &str = "write, 1 stream";
pub(super) const FOUR_STREAMS: &str = "write, 4 streams";

pub(super) fn described(options: &ExperimentOptions, servers: usize, memory: bool) -> Description {
    let mut options = options.clone();
    options.kind = "apache".into();
    let host = |at| {
        let mut host = storage_host(at, true, &options);
        if memory {
            host.nodes[0].disks = vec![DiskSpec {
                memory: true,
                size_mib: 4096,
                ..DiskSpec::default()
            }];
        }
        host
    };
    let hosts = (0..servers).map(host).collect();
    if memory {
        options.link_mbit = MEMORY_LINK_MBIT;
    }
    Description {
        name: "pfs".into(),
        ..one_rack(&options, "stock", hosts, "own")
    }
}

/// Ways over MooseFS, and HDFS by the kinds of its nodes.
fn ways(copies: usize, memory: bool) -> Vec<(Way, Option<&'static str>)> {
    let medium = if memory {
        Medium::Memory
    } else {
        Medium::Rotating
    };
    let moose = LAYOUTS.map(|layout| (Way::Copies(layout, copies), None));
    let nodes = peers_on(medium).into_iter();
    let nodes = nodes.map(|(name, kind)| (Way::Hdfs(name, copies), Some(kind)));
    moose.into_iter().chain(nodes).collect()
}

/// One number of servers on modelled disks.
pub(super) fn carry_out(run: &mut Run<'_>, servers: usize) -> Result<()> {
    let names: Vec<String> = (0..servers).map(|at| format!("s{at}")).collect();
    let (described, dir) = (
        described(run.options, servers, false),
        run.work.join("layouts"),
    );
    let mut hosts = Hosts::start(described, &names, &dir, run.tell)?;
    let (ways, row) = (ways(COPIES, false), servers.to_string());
    let peers: Vec<_> = ways
        .iter()
        .map(|(way, _)| (row.as_str(), way.name()))
        .collect();
    run.rounds(FILES, &peers, &mut |turn, at| {
        let (way, kind) = ways[at];
        hosts.be(kind, turn)?;
        let warm = hosts.warm(way, turn)?;
        let mut session = Session::begin(&hosts)?;
        files(&mut session, way, (servers, u64::from(turn.mib()) << 20))?;
        session.give(turn, warm, 0);
        Ok(())
    })
}

/// Figure 6: one client on tmpfs, three copies.
pub(super) fn carry_out_on_memory(run: &mut Run<'_>) -> Result<()> {
    let described = described(run.options, MEMORY_SERVERS, true);
    let mut hosts = Hosts::start(
        described,
        &["s0".into()],
        &run.work.join("memory"),
        run.tell,
    )?;
    let (ways, row) = (ways(MEMORY_COPIES, true), MEMORY_SERVERS.to_string());
    let peers: Vec<_> = ways
        .iter()
        .map(|(way, _)| (row.as_str(), way.name()))
        .collect();
    run.rounds(MEMORY, &peers, &mut |turn, at| {
        let (way, kind) = ways[at];
        hosts.be(kind, turn)?;
        let warm = hosts.warm(way, turn)?;
        let mut session = Session::begin(&hosts)?;
        let bytes = u64::from(turn.mib()) << 20;
        for (streams, what, each) in [(1, ONE_STREAM, bytes * 4), (4, FOUR_STREAMS, bytes)] {
            let request = |_| ("run".into(), json!({"streams": streams, "bytes": each}));
            session.all((way, what), "writeStreams", request)?;
            session.remove(way, "run")?;
        }
        session.give(turn, warm, 0);
        Ok(())
    })
}

/// Every client writes its file, reads it, and reads the next client's.
fn files(session: &mut Session<'_>, way: Way, (clients, bytes): (usize, u64)) -> Result<()> {
    let own = |more: Value| move |at: usize| (format!("run/c{at}"), more.clone());
    session.all((way, WRITE), "writeStreams", own(json!({ "bytes": bytes })))?;
    session.all((way, READ), "readStreams", own(json!({})))?;
    let other = |at: usize| (format!("run/c{}", (at + 1) % clients), json!({}));
    session.all((way, READ_OTHER), "readStreams", other)?;
    session.remove(way, "run")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::testbeds::{slow_disks, tests::is_right};

    #[test]
    fn every_step_is_a_right_description_with_stock_nodes_first() {
        let options = slow_disks();
        for (servers, memory) in [(2, false), (6, false), (MEMORY_SERVERS, true)] {
            let described = described(&options, servers, memory);
            is_right(&described);
            let mut nodes = described.hosts().flat_map(|(_, host)| &host.nodes);
            assert!(nodes.all(|node| node.kind == "apache" && node.disks[0].memory == memory));
            assert_eq!(described.clients(), servers);
        }
    }
}
