//! Figures 5 and 7 to 10: clients, one on each server, write files of their own with two copies,
//! read them, and read another client's. Figure 6: the same writers on memory.

use std::path::Path;

use serde_json::{Value, json};

use super::moosefs::MooseFs;
use super::session::{self, PfsRow, Session, Way};
use crate::describe::{Description, DiskSpec};
use crate::experiments::ExperimentOptions;
use crate::experiments::scaling::storage_host;
use crate::up::Testbed;
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
/// Not a limit beside memory and processors.
const MEMORY_LINK_MBIT: u32 = 100_000;
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
    let mbit = if memory {
        MEMORY_LINK_MBIT
    } else {
        options.link_mbit
    };
    Description {
        conf: options.conf.clone(),
        ..Description::one_rack("pfs", "stock", mbit, hosts)
    }
}

/// One number of servers on modelled disks, in `dir`.
pub(super) fn run(
    options: &ExperimentOptions,
    servers: usize,
    dir: &Path,
    tell: &mut dyn FnMut(&str),
) -> Result<Vec<PfsRow>> {
    let ways = LAYOUTS.map(|layout| Way::Copies(layout, COPIES));
    let described = described(options, servers, false);
    let hosts: Vec<String> = (0..servers).map(|at| format!("s{at}")).collect();
    in_turn(
        "5, 7 to 10",
        described,
        (&ways, COPIES),
        &hosts,
        dir,
        tell,
        &mut |session, ways, tell| {
            for round in 0..=options.rounds {
                tell(&format!("{servers} servers: round {round}"));
                for &way in ways {
                    files(
                        session,
                        way,
                        u64::from(options.mib) << 20,
                        round.checked_sub(1),
                    )?;
                }
            }
            Ok(())
        },
    )
}

/// Figure 6: one client on tmpfs, three copies, in `dir`.
pub(super) fn run_on_memory(
    options: &ExperimentOptions,
    dir: &Path,
    tell: &mut dyn FnMut(&str),
) -> Result<Vec<PfsRow>> {
    let ways = LAYOUTS.map(|layout| Way::Copies(layout, MEMORY_COPIES));
    let described = described(options, MEMORY_SERVERS, true);
    let bytes = u64::from(options.mib) << 20;
    let hosts = ["s0".to_owned()];
    in_turn(
        "6",
        described,
        (&ways, MEMORY_COPIES),
        &hosts,
        dir,
        tell,
        &mut |session, ways, tell| {
            for round in 0..=options.rounds {
                tell(&format!("on memory: round {round}"));
                for &way in ways {
                    for (streams, what, each) in
                        [(1, ONE_STREAM, bytes * 4), (4, FOUR_STREAMS, bytes)]
                    {
                        let request =
                            |_| ("run".into(), json!({"streams": streams, "bytes": each}));
                        session.all((way, what), round.checked_sub(1), "writeStreams", request)?;
                        session.remove(way, "run")?;
                    }
                }
            }
            Ok(())
        },
    )
}

type Measure<'a> = dyn FnMut(&mut Session<'_>, &[Way], &mut dyn FnMut(&str)) -> Result<()> + 'a;

/// Measures `ways` and stock HDFS on the disks of a testbed, then HDFS of Hayloft nodes on them.
fn in_turn(
    figure: &'static str,
    described: Description,
    (ways, copies): (&[Way], usize),
    hosts: &[String],
    dir: &Path,
    tell: &mut dyn FnMut(&str),
    measure: &mut Measure<'_>,
) -> Result<Vec<PfsRow>> {
    crate::up::down(&described.name, dir)?;
    let mut testbed = Testbed::up(described, dir, false, tell)?;
    let moose = MooseFs::start(&testbed)?;
    let clients = session::clients(&testbed, hosts)?;
    let mut all = ways.to_vec();
    all.push(Way::Hdfs(Way::STOCK, copies));
    let mut session = Session::begin(figure, (&testbed, &moose), &clients)?;
    measure(&mut session, &all, tell)?;
    let mut rows = session.end();
    testbed.exchange_nodes("hayloft")?;
    let mut session = Session::begin(figure, (&testbed, &moose), &clients)?;
    measure(&mut session, &[Way::Hdfs(Way::HAYLOFT, copies)], tell)?;
    rows.extend(session.end());
    Ok(rows)
}

/// Every client writes its file, reads it, and reads the next client's.
fn files(session: &mut Session<'_>, way: Way, bytes: u64, round: Option<usize>) -> Result<()> {
    let clients = session.clients.len();
    let own = |more: Value| move |at: usize| (format!("run/c{at}"), more.clone());
    session.all(
        (way, WRITE),
        round,
        "writeStreams",
        own(json!({ "bytes": bytes })),
    )?;
    session.all((way, READ), round, "readStreams", own(json!({})))?;
    let other = |at: usize| (format!("run/c{}", (at + 1) % clients), json!({}));
    session.all((way, READ_OTHER), round, "readStreams", other)?;
    session.remove(way, "run")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::scaling::tests::is_right;

    #[test]
    fn every_step_is_a_right_description_with_stock_nodes_first() {
        let options = ExperimentOptions::default();
        for (servers, memory) in [(2, false), (6, false), (MEMORY_SERVERS, true)] {
            let described = described(&options, servers, memory);
            is_right(&described);
            let mut nodes = described.hosts().flat_map(|(_, host)| &host.nodes);
            assert!(nodes.all(|node| node.kind == "apache" && node.disks[0].memory == memory));
            assert_eq!(described.clients(), servers);
        }
    }
}
