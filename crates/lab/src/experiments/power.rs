//! Power: hosts of a split cluster are switched off and on. Compute hosts hold no data, so nothing
//! is copied for them. Storage hosts of one rack go down in the maintenance state, which keeps the
//! NameNode from copying, and once without it.

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hayloft_bench::fair::stock::{Medium, Stock};
use serde_json::json;

use super::node_states::{
    REPLICAS, STORAGE_HOSTS, described, in_maintenance, states, worker, workers, write,
};
use super::replication_counters::{OFF, ReplicationCounters, SETTLE_LIMIT, settle};
use super::testbeds::{bring_up, peers_on};
use crate::counters;
use crate::runner::options::ExperimentOptions;
use crate::runner::record::PeerFigures;
use crate::runner::table::Shown;
use crate::runner::{Experiment, PeerTurn};
use crate::up::{RunningNode, Testbed};
use hayloft_testkit::driver::Driver;
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::wait::{self, Seen};

/// The experiment.
pub const POWER: Experiment = Experiment {
    name: "power",
    question: "hosts of a split cluster are switched off and on: what is copied",
    paper: "the thesis' Section 6.4, the SuperDataNode paper's 2.3 and 2.4",
    rates: false,
    options: || ExperimentOptions {
        rounds: 1,
        blocks: 400,
        ..ExperimentOptions::default()
    },
    about: |options| {
        format!(
            "Two racks of {STORAGE_HOSTS} storage hosts and {} compute hosts in all, {} files of \
             one block of {} KiB with {REPLICAS} replicas, on disks in memory; stock NameNode, \
             with its stock policy, and stock YARN. Off: the processes of a host are killed, so \
             its address refuses and does not keep silent as that of a machine without power. A \
             client in the rack of the storage hosts that go off reads all files meanwhile and \
             compares every byte. The NameNode waits {EXPIRES_S} s for a node instead of Hadoop's \
             630, and looks at the maintenance state each second instead of every 30. It looks \
             for what to copy each second, and heartbeats come each second, both instead of every \
             three. Each time it chooses two blocks for each live node, which is Hadoop's \
             multiplier. {}",
            workers(options),
            options.blocks,
            FILE_BYTES >> 10,
            Stock::EXPLAINED
        )
    },
    measure: |run, part| {
        let kinds = peers_on(Medium::Memory);
        let peers: Vec<_> = kinds.iter().map(|(peer, _)| ("", *peer)).collect();
        run.rounds(part, &peers, &mut |turn, at| measure(turn, kinds[at].1))
    },
    shown: Shown {
        title: "Hosts off and on",
        tables: include_str!("tables/power.txt"),
        paper: "Of compute hosts both papers expect it; the rows of storage hosts are ours. W \
                saved is hosts times `--watts`.",
        ..Shown::NOTHING
    },
    ..Experiment::OF_RATES
};

/// The row of compute hosts.
const COMPUTE: &str = "compute hosts";
/// The row of storage hosts in the maintenance state.
const MAINTENANCE: &str = "storage hosts of a rack, in maintenance";
/// The row of those that are just off.
const PLAIN: &str = "storage hosts of a rack, without";

/// Containers of one at a time: none is used.
const CONTAINERS: u32 = 2;
/// Bytes of a file, which is one block.
const FILE_BYTES: u64 = 16 << 10;
/// Where the files are, and whose bytes the first one has.
const ROOT: &str = "/power";
const SEED: u64 = 11;
/// The NameNode waits for a node for twice its recheck interval and ten heartbeats, seconds.
const EXPIRES_S: u32 = 12;
/// The longest wait for a state of all nodes.
const STATE_LIMIT: Duration = Duration::from_secs(120);
/// How long nodes may stay in maintenance: longer than any run.
const MAINTENANCE_FOR: Duration = Duration::from_secs(6 * 3600);
/// Files that are read each second: all of them, while hosts are off, in half of that time.
const PARTS: u64 = 10;
/// Where a node counts the blocks that it has copied.
const ACTIVITY: &str = "Hadoop:service=DataNode,name=DataNodeActivity-*";

/// What came of hosts that were off.
#[derive(Clone, Debug, Default)]
struct SwitchedOff {
    hosts: usize,
    blocks: u64,
    copied: u64,
    copied_by_nodes: u64,
    low: u64,
    reads: u64,
    reads_failed: u64,
    /// Why the first one did.
    failure: Option<String>,
    entered_s: Option<f64>,
    settled_s: Option<f64>,
    back_s: f64,
    held_up: f64,
}

impl SwitchedOff {
    /// Its figures, where a host draws so many watts; 0: not known.
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^53")]
    fn figures(&self, watts: u32) -> PeerFigures {
        let number = |count: u64| count as f64;
        let off = self.hosts as f64;
        PeerFigures::of([
            ("off", off),
            ("blocks", number(self.blocks)),
            ("copied", number(self.copied)),
            ("copied_by_nodes", number(self.copied_by_nodes)),
            ("low", number(self.low)),
            ("reads", number(self.reads)),
            ("reads_failed", number(self.reads_failed)),
            ("back_s", self.back_s),
            ("held_up", self.held_up),
        ])
        .with_some("entered_s", self.entered_s)
        .with_some("settled_s", self.settled_s.filter(|_| self.copied > 0))
        .with_some("watts_saved", (watts > 0).then(|| off * f64::from(watts)))
    }

    /// Notes a look at the NameNode.
    fn note(&mut self, now: ReplicationCounters, copied_before: u64) {
        self.low = self.low.max(now.low);
        self.copied = now.copied.saturating_sub(copied_before);
    }

    /// Reads the next files, of which there are so many, and compares their bytes.
    fn read(&mut self, client: &Driver) {
        for _ in 0..self.blocks.div_ceil(PARTS) {
            let at = self.reads % self.blocks;
            let request = json!({"path": format!("{ROOT}/f{at}"), "seed": SEED + at});
            let why = match client.call("read", request) {
                Ok(got) if got["bytes"] == FILE_BYTES && got["mismatch"] == -1 => None,
                Ok(got) => Some(format!("it is not as written: {got}")),
                Err(error) => Some(error.to_string()),
            };
            self.reads += 1;
            if let Some(why) = why {
                self.reads_failed += 1;
                self.failure.get_or_insert(why);
            }
        }
    }
}

/// A cluster with its files.
struct SplitCluster {
    testbed: Testbed,
    client: Driver,
    states: PathBuf,
    workers: Vec<String>,
    files: u64,
    off: Duration,
}

fn measure(turn: &mut PeerTurn<'_>, kind: &str) -> Result<()> {
    let dir = turn.dir.canonicalize();
    let dir = dir.map_err(TestkitError::file("looking at", &turn.dir))?;
    let path = dir.join("states.json");
    let described = described(kind, turn.options, &path);
    write(&path, &states(&described, None))?;
    let testbed = bring_up(turn, described)?;
    let client = testbed.client("c0")?;
    let files = turn.options.blocks;
    turn.tell(&format!("writing {files} files"));
    let request = json!({"path": ROOT, "count": files, "bytes": FILE_BYTES, "seed": SEED});
    client.call("many", request)?;
    let mut cluster = SplitCluster {
        testbed,
        client,
        states: path,
        workers: (0..workers(turn.options)).map(worker).collect(),
        files,
        off: if turn.options.first_counts {
            OFF / 2
        } else {
            OFF
        },
    };
    for row in [COMPUTE, MAINTENANCE, PLAIN] {
        turn.tell(&format!("off: {row}"));
        let off = match row {
            COMPUTE => cluster.compute_off()?,
            _ => cluster.storage_off(row == MAINTENANCE)?,
        };
        if let Some(why) = &off.failure {
            turn.tell(&format!("{} reads failed: {why}", off.reads_failed));
        }
        turn.give_in(row, "", off.figures(turn.options.watts));
    }
    Ok(())
}

impl SplitCluster {
    /// NodeManagers end and come back.
    fn compute_off(&mut self) -> Result<SwitchedOff> {
        let mut yarn = Some(self.testbed.yarn(&self.workers, CONTAINERS)?);
        let workers = self.workers.clone();
        self.around(workers.len(), &[], &mut |cluster, step| match step {
            Step::Off => {
                let running = yarn.as_mut();
                running.map_or(Ok(()), |yarn| {
                    (0..workers.len()).try_for_each(|at| yarn.kill_worker(at))
                })
            }
            Step::On => {
                yarn = None;
                yarn = Some(cluster.testbed.yarn(&workers, CONTAINERS)?);
                Ok(())
            }
        })
    }

    /// The nodes of the last rack end and come back.
    fn storage_off(&mut self, in_maintenance: bool) -> Result<SwitchedOff> {
        let all = self.testbed.nodes().len();
        let down: Vec<usize> = (all - STORAGE_HOSTS..all).collect();
        let mut entered_s = None;
        if in_maintenance {
            let begun = Instant::now();
            self.set_maintenance(true)?;
            entered_s = Some(begun.elapsed().as_secs_f64());
        }
        let found = self.around(down.len(), &down, &mut |cluster, step| {
            let nodes = &mut cluster.testbed.nodes_mut()[all - STORAGE_HOSTS..];
            match step {
                Step::Off => nodes.iter_mut().try_for_each(RunningNode::kill),
                Step::On => {
                    nodes.iter_mut().try_for_each(RunningNode::restart)?;
                    cluster.testbed.wait_live(all)?;
                    match in_maintenance {
                        true => cluster.set_maintenance(false),
                        false => Ok(()),
                    }
                }
            }
        });
        Ok(SwitchedOff {
            entered_s,
            ..found?
        })
    }

    /// Switches hosts off and on by `switch`, and counts what happens meanwhile. The nodes that are
    /// `down` count from nothing when they are back.
    fn around(
        &mut self,
        hosts: usize,
        down: &[usize],
        switch: &mut dyn FnMut(&mut Self, Step) -> Result<()>,
    ) -> Result<SwitchedOff> {
        let mut found = SwitchedOff {
            hosts,
            blocks: self.files,
            ..SwitchedOff::default()
        };
        let before = self.settled(Duration::ZERO, &mut |_| ())?.0.copied;
        let mut of_nodes = self.copied_by_nodes()?;
        down.iter().for_each(|at| of_nodes[*at] = 0);
        let times = counters::time_by_host(self.testbed.described());
        switch(self, Step::Off)?;
        let client = &self.client;
        let mut look = |now| {
            found.note(now, before);
            found.read(client);
        };
        let (_, settled_s) = self.settled(self.off, &mut look)?;
        let begun = Instant::now();
        switch(self, Step::On)?;
        found.back_s = begun.elapsed().as_secs_f64();
        found.settled_s = Some(settled_s);
        // What is copied after the return, too.
        self.settled(Duration::ZERO, &mut |now| found.note(now, before))?;
        let after = counters::time_by_host(self.testbed.described());
        found.held_up = counters::waited_between(&times, &after);
        let now = self.copied_by_nodes()?;
        let each = now.iter().zip(&of_nodes);
        found.copied_by_nodes = each.map(|(now, before)| now.saturating_sub(*before)).sum();
        Ok(found)
    }

    /// As [`settle`], and an error where something is left to copy at its limit: a row would have
    /// a part of the copies.
    fn settled(
        &self,
        least: Duration,
        note: &mut dyn FnMut(ReplicationCounters),
    ) -> Result<(ReplicationCounters, f64)> {
        let (now, seconds) = settle(&self.testbed, least, note)?;
        let seconds = seconds.ok_or_else(|| TestkitError::Timeout {
            what: "the NameNode to have nothing to copy: give fewer --blocks".into(),
            waited: SETTLE_LIMIT,
            last: format!("{now:?}"),
        })?;
        Ok((now, seconds))
    }

    /// Has the NameNode take the nodes of the last rack into maintenance or out of it, and waits.
    fn set_maintenance(&self, into: bool) -> Result<()> {
        let end = SystemTime::now() + MAINTENANCE_FOR;
        let end = end
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_millis();
        let until = into.then(|| u64::try_from(end).unwrap_or(u64::MAX));
        write(&self.states, &states(self.testbed.described(), until))?;
        self.client.dfsadmin(&["-refreshNodes"])?;
        let wanted = if into { STORAGE_HOSTS as u64 } else { 0 };
        wait::until("the maintenance state of the nodes", STATE_LIMIT, || {
            let bean = self.testbed.bean("FSNamesystemState")?;
            Ok(match in_maintenance(&bean) {
                Some((nodes, 0)) if nodes == wanted => Seen::Done(()),
                _ => Seen::NotYet(bean.to_string()),
            })
        })
    }

    /// Blocks that each node has sent to another at the NameNode's word since it was started.
    fn copied_by_nodes(&self) -> Result<Vec<u64>> {
        let copied = |node: &RunningNode| {
            let bean = node.jmx(ACTIVITY)?;
            let count = bean["BlocksReplicated"].as_u64();
            let missing = || TestkitError::Talk(format!("{} counts no copies", node.name));
            count.ok_or_else(missing)
        };
        self.testbed.nodes().iter().map(copied).collect()
    }
}

/// What is done to hosts.
#[derive(Clone, Copy)]
enum Step {
    Off,
    On,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::page::ExperimentPage;
    use crate::runner::record::{PeerSample, Record};

    #[test]
    fn the_table_has_failed_reads_in_bold_and_watts_where_they_are_given() {
        let off = SwitchedOff {
            hosts: 2,
            blocks: 400,
            reads: 800,
            reads_failed: 3,
            entered_s: Some(1.5),
            settled_s: Some(0.0),
            ..SwitchedOff::default()
        };
        let page = |watts| {
            let figures = off.figures(watts);
            let samples = vec![PeerSample::first(("", MAINTENANCE, "stock", ""), figures)];
            let record = Record {
                samples,
                ..Record::default()
            };
            ExperimentPage::new(&POWER.shown, &record).body(2)
        };
        let told = page(150);
        let row = "| storage hosts of a rack, in maintenance | stock | 2 | 300 | 400 | 0 | 0 | 0 | \
                   **3/800** | 1.5 | 0.0 | 0 % |";
        assert!(told.contains(row), "{told}");
        for (watts, wanted) in [(0, false), (150, true)] {
            assert_eq!(page(watts).contains("| W saved |"), wanted, "{watts}");
        }
        let about = (POWER.about)(&(POWER.options)());
        let files = "400 files of one block of 16 KiB with 2 replicas";
        assert!(about.contains(files), "{about}");
    }
}
