//! Stock TestDFSIO on hosts whose disks are their own, or another host's behind the network: the
//! cloud paper's Figure 5. Every host is declared a rack, as the paper does with the hosts of
//! virtual machines.
//!
//! Every host runs a TestDFSIO of its own at the same time, so that map tasks and their files are
//! where a scheduler would put them. The figures are TestDFSIO's formulas over the sums of all.

use hayloft_bench::fair::stock::Stock;
use serde_json::json;

use super::testbeds::{
    about, bring_up, each_kind_in, hosts_as_racks, one_rack, slow_disks, storage_host,
};
use crate::describe::{Description, HostSpec};
use crate::runner::options::ExperimentOptions;
use crate::runner::record::PeerFigures;
use crate::runner::table::Shown;
use crate::runner::{Experiment, PeerTurn, Run};
use crate::sample::Watch;
use crate::up::Testbed;
use crate::workload::{self, Moved, PHASE_LIMIT, WorkloadOutcome, WorkloadPhase};
use hayloft_testkit::driver::{Driver, ToolRun};
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::hadoop::class;

/// The experiment.
pub const DFSIO: Experiment = Experiment {
    name: "dfsio",
    question: "stock TestDFSIO on local and on network disks, every host a rack",
    paper: "the cloud paper's Figure 5",
    options: || ExperimentOptions {
        rounds: 5,
        ..slow_disks()
    },
    about: |options| {
        let more = format!(
            "{HOSTS} hosts, each a rack, with one storage node and one disk. Network disks are on \
             {HOSTS} more hosts, mapped by nbdkit and nbdfuse. {REPLICAS} replicas, {FILES} files \
             for each host. Every host runs stock TestDFSIO at the same time, its map tasks in \
             the host. Figures are TestDFSIO's over the sums of all hosts, MiB/s of a map task. {}",
            Stock::EXPLAINED
        );
        about(options, &more)
    },
    measure: carry_out,
    shown: Shown {
        title: "TestDFSIO",
        tables: include_str!("tables/dfsio.txt"),
        paper: "The paper's Figure 5 (real disks, iSCSI) gives writing as bars without figures: \
                local disks are faster. Reading, it says an average rate of 230 MB/s on local \
                disks, 176 on network disks.",
        ..Shown::NOTHING
    },
    ..Experiment::OF_RATES
};

/// Hosts with a storage node each.
const HOSTS: usize = 4;
/// Files of each host, each of them a map task; the paper has two for a node, too.
const FILES: u32 = 2;
const REPLICAS: u16 = 3;
/// Most of a file in a round that does not count, MiB.
const WARM_UP_MIB: u32 = 32;

/// Where the disks are.
const PLACES: [&str; 2] = [LOCAL, "network"];
const LOCAL: &str = "local";

/// What TestDFSIO's reducer sums up over its map tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sums {
    tasks: f64,
    bytes: f64,
    millis: f64,
    /// Rates, MiB/s times 1000.
    rates: f64,
    /// Their squares, times 1000.
    squares: f64,
}

impl Sums {
    /// Reads the reducer's file: a name and a number a line.
    fn parse(text: &str) -> Result<Self> {
        let number = |name: &str| {
            let mut words = text.lines().map(str::split_whitespace);
            let value =
                words.find_map(|mut line| line.next()?.ends_with(name).then(|| line.next()));
            let value = value.flatten().and_then(|n| n.parse::<f64>().ok());
            value
                .filter(|n| n.is_finite() && *n > 0.0)
                .ok_or_else(|| TestkitError::Talk(format!("TestDFSIO says no {name}: {text}")))
        };
        Ok(Self {
            tasks: number(":tasks")?,
            bytes: number(":size")?,
            millis: number(":time")?,
            rates: number(":rate")?,
            squares: number(":sqrate")?,
        })
    }

    fn and(self, other: Self) -> Self {
        Self {
            tasks: self.tasks + other.tasks,
            bytes: self.bytes + other.bytes,
            millis: self.millis + other.millis,
            rates: self.rates + other.rates,
            squares: self.squares + other.squares,
        }
    }

    /// TestDFSIO's three figures, MiB/s: all bytes over the time of all map tasks, the mean rate of
    /// a map task, and the standard deviation of these rates.
    fn figures(self) -> PeerFigures {
        let average = self.rates / 1000.0 / self.tasks;
        let squares = self.squares / 1000.0 / self.tasks;
        PeerFigures::of([
            (
                "throughput",
                self.bytes / f64::from(1 << 20) / (self.millis / 1000.0),
            ),
            ("average", average),
            ("deviation", (squares - average * average).abs().sqrt()),
        ])
    }
}

fn described(options: &ExperimentOptions, kind: &str, local: bool) -> Description {
    let mut options = ExperimentOptions {
        kind: kind.into(),
        ..options.clone()
    };
    let block = (u64::from(options.block_mib) << 20).to_string();
    let mut set = |key: &str, value: String| options.conf.insert(key.into(), value);
    set("dfs.replication", REPLICAS.to_string());
    set("dfs.blocksize", block);
    let mut hosts: Vec<HostSpec> = (0..HOSTS)
        .map(|at| storage_host(at, true, &options))
        .collect();
    if !local {
        for at in 0..HOSTS {
            let name = format!("d{at}");
            hosts[at].nodes[0].disks[0].on = Some(name.clone());
            hosts.push(HostSpec {
                name,
                ..HostSpec::default()
            });
        }
    }
    hosts_as_racks(one_rack(&options, "stock", hosts, "own"))
}

fn carry_out(run: &mut Run<'_>, part: &str) -> Result<()> {
    each_kind_in(run, part, &PLACES, &mut |turn, place, kind| {
        let described = described(turn.options, kind, PLACES[place] == LOCAL);
        let testbed = bring_up(turn, described)?;
        measure(turn, &testbed)
    })
}

/// Both directions once the JVMs are warm.
fn measure(turn: &mut PeerTurn<'_>, testbed: &Testbed) -> Result<()> {
    let clients = workload::start_clients(testbed, &mut |what| turn.tell(what))?;
    let watch = Watch::begin(testbed)?;
    let on = On {
        testbed,
        clients: &clients,
        watch: &watch,
    };
    let mib = (turn.mib() / FILES).max(1);
    let warm = turn.warm_up(|number| {
        let (wrote, read) = on.round(number, mib.min(WARM_UP_MIB))?;
        Ok(wrote.0.cpu_s() + read.0.cpu_s())
    })?;
    let (wrote, read) = on.round(turn.round, mib)?;
    let outcome = WorkloadOutcome {
        warm: Some(warm > 0.0),
        ..workload::outcome(watch, vec![wrote.0, read.0])
    };
    turn.give_outcome(testbed.described(), &outcome)?;
    turn.add("write", wrote.1);
    turn.add("read", read.1);
    Ok(())
}

/// What runs TestDFSIO.
#[derive(Clone, Copy)]
struct On<'a> {
    testbed: &'a Testbed,
    clients: &'a [Driver],
    watch: &'a Watch,
}

impl On<'_> {
    /// Writes files of `mib` MiB, reads them cold, and removes them.
    fn round(
        self,
        number: usize,
        mib: u32,
    ) -> Result<((WorkloadPhase, PeerFigures), (WorkloadPhase, PeerFigures))> {
        let wrote = self.all(("write", number), mib)?;
        workload::empty_page_cache()?;
        let read = self.all(("read", number), mib)?;
        self.clients[0].fs(&["-rm", "-r", "-skipTrash", "/dfsio"])?;
        Ok((wrote, read))
    }

    /// A TestDFSIO on every host at the same time.
    fn all(self, of: (&'static str, usize), mib: u32) -> Result<(WorkloadPhase, PeerFigures)> {
        let what = of.0;
        let phase = workload::observe(self.testbed, of, self.watch, || {
            let begun = self.clients.iter().enumerate().map(|(at, client)| {
                let dir = self.testbed.dir().join(format!("dfsio-{at}"));
                let log = dir.with_extension("log").display().to_string();
                let mut here = Driver::local_jobs(&dir);
                here["conf"]["test.build.data"] = json!(directory(at));
                let (mode, size) = (format!("-{what}"), format!("{mib}MB"));
                let files = FILES.to_string();
                let arguments = [&mode, "-nrFiles", &files, "-size", &size, "-resFile", &log];
                client.begin_tool(class::TEST_DFSIO, &arguments, here)
            });
            let begun = begun.collect::<Result<Vec<_>>>()?;
            let done = begun.into_iter().map(|pending| {
                let run = ToolRun::from(pending.wait_at_most(PHASE_LIMIT)?).ok()?;
                Ok(Moved {
                    bytes: u64::from(FILES * mib) << 20,
                    nanos: run.millis.saturating_mul(1_000_000),
                })
            });
            done.collect()
        })?;
        let mut sums = Sums::default();
        for (at, client) in self.clients.iter().enumerate() {
            let file = format!("{}/io_{what}/part-00000", directory(at));
            sums = sums.and(Sums::parse(&client.fs(&["-cat", &file])?)?);
        }
        Ok((phase, sums.figures()))
    }
}

/// Where a host's TestDFSIO has its files.
fn directory(host: usize) -> String {
    format!("/dfsio/{host}")
}

#[cfg(test)]
mod tests {
    use super::super::testbeds::peers_on;
    use super::super::testbeds::tests::is_right;
    use super::*;
    use crate::runner::OURS;
    use hayloft_bench::fair::stock::Medium;

    #[test]
    fn every_arrangement_is_a_right_description() {
        for (peer, kind) in peers_on(Medium::Rotating) {
            assert_eq!(peer == OURS, kind == "hayloft");
            for local in [true, false] {
                let described = described(&slow_disks(), kind, local);
                is_right(&described);
                assert_eq!(described.mapped(), !local, "{peer}");
                assert_eq!(described.clients(), HOSTS);
                let hosts = described.hosts().count();
                assert_eq!(described.racks.len(), hosts, "virtual racks");
            }
        }
    }

    /// Two map tasks of 10 MiB each, with 5 and 10 MiB/s.
    const PART: &str = "f:rate\t15000.0\nf:sqrate\t125000.0\nl:size\t20971520\nl:tasks\t2\n\
                        l:time\t3000\n";

    #[test]
    fn figures_are_those_of_testdfsio() {
        let one = Sums::parse(PART).expect("it is right");
        let figures = one.figures();
        for (name, wanted) in [
            ("throughput", 20.0 / 3.0),
            ("average", 7.5),
            ("deviation", 2.5),
        ] {
            let figure = figures.get(name).expect(name);
            assert!((figure - wanted).abs() < 1e-9, "{name}: {figure}");
        }
        assert_eq!(one.and(one).figures(), figures, "twice the same");
    }

    #[test]
    fn what_is_no_report_is_named() {
        for (wrong, says) in [("l:tasks\t2", "l:tasks\t0"), ("f:rate", "f:other")] {
            let text = PART.replace(wrong, says);
            let error = Sums::parse(&text).expect_err(says).to_string();
            assert!(error.contains("TestDFSIO says no"), "{error}");
        }
    }
}
