//! Stock TestDFSIO on hosts whose disks are their own, or another host's behind the network: the
//! cloud paper's Figure 5. Every host is declared a rack, as the paper does with the hosts of
//! virtual machines.
//!
//! Every host runs a TestDFSIO of its own at the same time, so that map tasks and their files are
//! where a scheduler would put them. The figures are TestDFSIO's formulas over the sums of all.

use std::fmt::Write as _;
use std::path::Path;

use serde::Serialize;
use serde_json::json;

use super::scaling::{hosts_as_racks, one_rack, slug, storage_host};
use super::{ExperimentOptions, in_words, marks};
use crate::describe::{Description, HostSpec};
use crate::report::{self, spread};
use crate::sample::Watch;
use crate::up::Testbed;
use crate::warm;
use crate::workload::{self, Moved, PHASE_LIMIT, WorkloadOutcome, WorkloadPhase};
use hayloft_testkit::driver::{Driver, ToolRun};
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::hadoop::class;

/// Its name.
pub const NAME: &str = "dfsio";
/// What it shows.
pub(super) const ABOUT: &str = "stock TestDFSIO on local and on network disks, every host a rack";

/// Hosts with a storage node each.
const HOSTS: usize = 4;
/// Files of each host, each of them a map task; the paper has two for a node, too.
const FILES: u32 = 2;
const REPLICAS: u16 = 3;
/// Most of a file in a round that does not count, MiB.
const WARM_UP_MIB: u32 = 32;

/// Whose nodes, and where their disks are.
#[derive(Clone, Copy, Debug)]
struct Arrangement {
    name: &'static str,
    kind: &'static str,
    local: bool,
}

const ARRANGEMENTS: [Arrangement; 4] = [
    arrangement("local disks, stock", "apache", true),
    arrangement("network disks, stock", "apache", false),
    arrangement("local disks, Hayloft", "hayloft", true),
    arrangement("network disks, Hayloft", "hayloft", false),
];

const fn arrangement(name: &'static str, kind: &'static str, local: bool) -> Arrangement {
    Arrangement { name, kind, local }
}

/// What TestDFSIO's reducer sums up over its map tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
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

    /// TestDFSIO's three figures, MiB/s.
    fn figures(self) -> DfsioFigures {
        let average = self.rates / 1000.0 / self.tasks;
        let squares = self.squares / 1000.0 / self.tasks;
        DfsioFigures {
            throughput: self.bytes / f64::from(1 << 20) / (self.millis / 1000.0),
            average,
            deviation: (squares - average * average).abs().sqrt(),
        }
    }
}

/// What TestDFSIO reports, MiB/s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct DfsioFigures {
    /// All bytes over the time of all map tasks, summed up.
    pub throughput: f64,
    /// Mean rate of a map task.
    pub average: f64,
    /// Standard deviation of the map tasks' rates.
    pub deviation: f64,
}

/// One direction of an arrangement.
#[derive(Clone, Debug, Default, Serialize)]
pub struct DfsioSide {
    /// Of each round.
    pub rounds: Vec<DfsioFigures>,
    /// Median share of the time in which the disks served a request, 0 to 1.
    pub disk_busy: f64,
    /// Median share of the time in which processes could have gone on and had no processor, 0 to 1.
    pub waited: f64,
    /// Requests that the disks answered late.
    pub late: u64,
    /// What limited the middle round.
    pub limit: String,
}

impl DfsioSide {
    fn of(
        outcome: &WorkloadOutcome,
        what: &str,
        rounds: Vec<DfsioFigures>,
        link_mbit: u32,
    ) -> Self {
        let all: Vec<&WorkloadPhase> = report::phases(outcome, what).collect();
        let busy = all.iter().flat_map(|p| &p.model).map(|d| d.utilisation);
        let limit = all.get(all.len() / 2).map(|p| p.limit(link_mbit));
        Self {
            rounds,
            disk_busy: spread(busy.collect()).0,
            waited: spread(all.iter().map(|p| p.waited()).collect()).0,
            late: all
                .iter()
                .flat_map(|p| &p.model)
                .map(|disk| disk.late)
                .sum(),
            limit: limit.unwrap_or_default().into(),
        }
    }

    fn spread(&self, of: fn(&DfsioFigures) -> f64) -> (f64, f64, f64) {
        spread(self.rounds.iter().map(of).collect())
    }
}

/// What an arrangement gave.
#[derive(Clone, Debug, Serialize)]
pub struct DfsioFinding {
    /// Which.
    pub arrangement: String,
    /// Writing.
    pub write: DfsioSide,
    /// Reading.
    pub read: DfsioSide,
    /// Whether clients and nodes were warm.
    pub warm: Option<bool>,
}

fn described(arrangement: &Arrangement, options: &ExperimentOptions) -> Description {
    let mut options = ExperimentOptions {
        kind: arrangement.kind.into(),
        ..options.clone()
    };
    let mut set = |key: &str, value: String| options.conf.insert(key.into(), value);
    set("dfs.replication", REPLICAS.to_string());
    set("dfs.blocksize", (16_u32 << 20).to_string());
    let mut hosts: Vec<HostSpec> = (0..HOSTS)
        .map(|at| storage_host(at, true, &options))
        .collect();
    if !arrangement.local {
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

/// Carries out every arrangement and writes page and raw data to `out` after each.
///
/// # Errors
/// When a testbed does not come up or TestDFSIO fails; what was measured before is in `out`.
pub fn run(
    options: &ExperimentOptions,
    command: &str,
    (work, out): (&Path, &Path),
    tell: &mut dyn FnMut(&str),
) -> Result<String> {
    let mut findings = Vec::new();
    let mut text = String::new();
    for arrangement in &ARRANGEMENTS {
        tell(arrangement.name);
        let described = described(arrangement, options);
        let slug = slug(arrangement.name);
        let dir = work.join(&slug);
        crate::up::down(&described.name, &dir)?;
        let testbed = Testbed::up(described.clone(), &dir, false, tell)?;
        let (outcome, wrote, read) = measure(&testbed, options, tell)?;
        drop(testbed);
        let side = |what, rounds| DfsioSide::of(&outcome, what, rounds, options.link_mbit);
        findings.push(DfsioFinding {
            arrangement: arrangement.name.into(),
            write: side("write", wrote),
            read: side("read", read),
            warm: outcome.warm,
        });
        report::write(&described, &outcome, command, &out.join(&slug))?;
        text = page(options, command, &findings);
        report::save_page(out, &text, "findings.json", &findings)?;
    }
    Ok(text)
}

/// All rounds: what was seen, and the figures of writing and of reading.
fn measure(
    testbed: &Testbed,
    options: &ExperimentOptions,
    tell: &mut dyn FnMut(&str),
) -> Result<(WorkloadOutcome, Vec<DfsioFigures>, Vec<DfsioFigures>)> {
    let clients = workload::start_clients(testbed, tell)?;
    let watch = Watch::begin(testbed)?;
    let on = On {
        testbed,
        clients: &clients,
        watch: &watch,
    };
    let mib = (options.mib / FILES).max(1);
    let warm = warm::up(|number| {
        tell(&format!("warming up, round {}", number + 1));
        let (wrote, read) = on.round(number, mib.min(WARM_UP_MIB))?;
        Ok(wrote.0.cpu_s() + read.0.cpu_s())
    })?;
    let (mut phases, mut written, mut read) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..options.rounds {
        tell(&format!("round {}", number + 1));
        let (one, other) = on.round(number, mib)?;
        written.push(one.1);
        read.push(other.1);
        phases.extend([one.0, other.0]);
    }
    let outcome = WorkloadOutcome {
        warm: Some(warm),
        ..workload::outcome(watch, phases)
    };
    Ok((outcome, written, read))
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
    ) -> Result<((WorkloadPhase, DfsioFigures), (WorkloadPhase, DfsioFigures))> {
        let wrote = self.all(("write", number), mib)?;
        workload::empty_page_cache()?;
        let read = self.all(("read", number), mib)?;
        self.clients[0].fs(&["-rm", "-r", "-skipTrash", "/dfsio"])?;
        Ok((wrote, read))
    }

    /// A TestDFSIO on every host at the same time.
    fn all(self, of: (&'static str, usize), mib: u32) -> Result<(WorkloadPhase, DfsioFigures)> {
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

fn page(options: &ExperimentOptions, command: &str, findings: &[DfsioFinding]) -> String {
    let mut text = format!(
        "# TestDFSIO on local and on network disks\n\nCommand: `{command}`\n\n\
         {HOSTS} hosts, each a rack, with one storage node and one modelled hard disk (not a real \
         one) of {} MB/s reading and {} MB/s writing. Network disks are on {HOSTS} more hosts, \
         mapped by nbdkit and nbdfuse. Links of {} Mbit/s, {REPLICAS} replicas, {FILES} files of \
         {} MiB for each host in blocks of 16 MiB, {} rounds; median (lowest to highest). {}; \
         caches are dropped before reading.\n\n\
         Every host runs stock TestDFSIO at the same time, its map tasks in the host. Figures are \
         TestDFSIO's over the sums of all hosts, MiB/s of a map task.\n",
        options.disk_mbs.0,
        options.disk_mbs.1,
        options.link_mbit,
        (options.mib / FILES).max(1),
        options.rounds,
        options.listed_conf(),
    );
    type Of = fn(&DfsioFinding) -> &DfsioSide;
    let sides: [(&str, Of); 2] = [("Writing", |f| &f.write), ("Reading", |f| &f.read)];
    for (what, of) in sides {
        let _ = writeln!(
            text,
            "\n## {what}\n\n| | throughput | average rate | standard deviation | disks busy | \
             waited for a processor | late | limited by |\n|---|---|---|---|---|---|---|---|"
        );
        for finding in findings {
            let side = of(finding);
            let _ = writeln!(
                text,
                "| {}{} | {} | {} | {} | {:.0} % | {:.0} % | {} | {} |",
                finding.arrangement,
                marks::signs(side.waited, finding.warm),
                in_words(side.spread(|f| f.throughput)),
                in_words(side.spread(|f| f.average)),
                in_words(side.spread(|f| f.deviation)),
                side.disk_busy * 100.0,
                side.waited * 100.0,
                side.late,
                side.limit,
            );
        }
    }
    text.push_str(&marks::legend(true));
    text.push_str(
        "\nThe paper's Figure 5 (real disks, iSCSI) gives writing as bars without figures: local \
         disks are faster. Reading, it says an average rate of 230 MB/s on local disks, 176 on \
         network disks.\n",
    );
    text
}

#[cfg(test)]
mod tests {
    use super::super::scaling::tests::is_right;
    use super::*;

    #[test]
    fn every_arrangement_is_a_right_description() {
        for arrangement in &ARRANGEMENTS {
            let described = described(arrangement, &ExperimentOptions::default());
            is_right(&described);
            assert_eq!(
                described.mapped(),
                !arrangement.local,
                "{}",
                arrangement.name
            );
            assert_eq!(described.clients(), HOSTS);
            let hosts = described.hosts().count();
            assert_eq!(described.racks.len(), hosts, "virtual racks");
        }
    }

    /// Two map tasks of 10 MiB each, with 5 and 10 MiB/s.
    const PART: &str = "f:rate\t15000.0\nf:sqrate\t125000.0\nl:size\t20971520\nl:tasks\t2\n\
                        l:time\t3000\n";

    #[test]
    fn figures_are_those_of_testdfsio() {
        let one = Sums::parse(PART).expect("it is right");
        let figures = one.figures();
        assert!((figures.throughput - 20.0 / 3.0).abs() < 1e-9);
        assert!((figures.average - 7.5).abs() < 1e-9);
        assert!((figures.deviation - 2.5).abs() < 1e-9);
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

    #[test]
    fn the_page_has_a_row_an_arrangement_and_marks() {
        let figures = Sums::parse(PART).expect("it is right").figures();
        let side = |waited: f64| DfsioSide {
            rounds: vec![figures],
            waited,
            limit: "a disk".into(),
            ..DfsioSide::default()
        };
        let finding = DfsioFinding {
            arrangement: ARRANGEMENTS[0].name.into(),
            write: side(0.5),
            read: side(0.0),
            warm: Some(true),
        };
        let text = page(&ExperimentOptions::default(), "c", &[finding]);
        let wrote = "| local disks, stock † | 6.7 (6.7 to 6.7) | 7.5 (7.5 to 7.5) | 2.5 (2.5 to";
        assert!(text.contains(wrote), "{text}");
        assert!(text.contains("| local disks, stock | 6.7"), "{text}");
    }
}
