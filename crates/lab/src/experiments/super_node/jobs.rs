//! The paper's three jobs, on workers that have the disks or have none.

use serde_json::{Value, json};

use super::super::testbeds::{DISKS, all_disks, bring_up, each_kind, one_rack, storage_host};
use super::latency::LatencySpread;
use super::power;
use crate::describe::{Description, HostSpec};
use crate::runner::options::ExperimentOptions;
use crate::runner::record::PeerFigures;
use crate::runner::{PeerTurn, Run};
use crate::sample::Watch;
use crate::up::Testbed;
use crate::workload::{self, Moved, PHASE_LIMIT, WorkloadOutcome, WorkloadPhase};
use hayloft_testkit::driver::{Driver, ToolRun};
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::hadoop::class;
use hayloft_testkit::yarn::{FinishedJob, Yarn};

/// Virtual nodes of the one process, each with a link of its own.
pub(super) const NAMES: [&str; 4] = ["a", "b", "c", "d"];
pub(super) const REPLICAS: u16 = 2;
/// Map tasks of a worker at a time.
pub(super) const MAPS: u32 = 2;
/// Most of a worker in the round that does not count, MiB.
const WARM_UP_MIB: u32 = 16;
/// What a resident client writes and reads in a round that warms nodes: streams, MiB of each.
const WARM_UP: (u64, u64) = (8, 4);
/// Where.
const WARM_UP_ROOT: &str = "/warm-up";

/// Storage of this kind: eight stock DataNodes with a disk each in the workers' hosts, or one
/// process of ours with all disks in a host of its own.
fn described(kind: &str, options: &ExperimentOptions) -> Description {
    let workers = options.largest.min(DISKS);
    let mut options = options.clone();
    options.kind = kind.into();
    let block = (u64::from(options.block_mib) << 20).to_string();
    let mut set = |key: &str, value: String| options.conf.insert(key.into(), value);
    set("dfs.replication", REPLICAS.to_string());
    set("dfs.blocksize", block);
    let hosts = if kind == "hayloft" {
        let mut hosts = vec![all_disks(&options, &NAMES)];
        hosts[0].more_links = u8::try_from(NAMES.len() - 1).expect("a few links");
        hosts.extend((0..workers).map(|at| HostSpec::client(format!("w{at}"))));
        hosts
    } else {
        let host = |at| storage_host(at, at < workers, &options);
        (0..DISKS).map(host).collect()
    };
    one_rack(&options, "stock", hosts, "own")
}

/// A job of the paper's Figure 2.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub name: &'static str,
    class: &'static str,
    /// Its arguments, for a number of workers.
    arguments: fn(usize) -> Vec<String>,
}

pub(super) const JOBS: [Job; 3] = [
    Job {
        name: "RandomWriter",
        class: class::RANDOM_WRITER,
        arguments: |_| words(&["/super/in"]),
    },
    Job {
        name: "Sort",
        class: class::SORT,
        arguments: |workers| words(&["-r", &workers.to_string(), "/super/in", "/super/sorted"]),
    },
    Job {
        name: "Grep",
        class: class::GREP,
        arguments: |_| words(&["/super/in", "/super/found", "hay[a-z]+"]),
    },
];

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}

/// How far the map tasks of jobs were from their data: in a host that has it, in a rack that has
/// it, elsewhere or without data to read.
fn map_places(jobs: &[FinishedJob]) -> PeerFigures {
    #[expect(clippy::cast_precision_loss, reason = "a few tasks")]
    let sum = |name: &str| jobs.iter().map(|job| job.counter(name)).sum::<u64>() as f64;
    PeerFigures::of([
        ("maps_local", sum("DATA_LOCAL_MAPS")),
        ("maps_rack", sum("RACK_LOCAL_MAPS")),
        ("maps_other", sum("OTHER_LOCAL_MAPS")),
    ])
}

/// Every storage in its turn: the jobs, then half of the workers off and on.
pub(super) fn carry_out(run: &mut Run<'_>, part: &str) -> Result<()> {
    each_kind(run, (part, ""), &mut |turn, kind| {
        let mut testbed = bring_up(turn, described(kind, turn.options))?;
        let mut workers = Workers::start(&testbed, &mut |what| turn.tell(what))?;
        workers.measure(turn, &testbed)?;
        if turn.counts {
            turn.tell("switching half of the workers off and on");
            workers.run(JOBS[0], turn.mib())?;
            let found = power::off_and_on(&mut testbed, &mut workers.yarn, workers.count)?;
            turn.give(super::OFF, found);
        }
        Ok(())
    })
}

/// The workers of a testbed: hosts with a NodeManager, on the first of which jobs are submitted.
struct Workers {
    yarn: Yarn,
    client: Driver,
    count: usize,
}

impl Workers {
    /// Starts YARN on the hosts that the description has for clients.
    pub fn start(testbed: &Testbed, tell: &mut dyn FnMut(&str)) -> Result<Self> {
        let hosts = testbed.described().hosts();
        let hosts = hosts.filter(|(_, host)| host.client);
        let hosts: Vec<String> = hosts.map(|(_, host)| host.name.clone()).collect();
        tell(&format!("starting YARN with {} NodeManagers", hosts.len()));
        Ok(Self {
            yarn: testbed.yarn(&hosts, MAPS + 1)?,
            client: testbed.client(&hosts[0])?,
            count: hosts.len(),
        })
    }

    /// All jobs once, after a round of the same processes that does not count.
    fn measure(&self, turn: &mut PeerTurn<'_>, testbed: &Testbed) -> Result<()> {
        let watch = Watch::begin(testbed)?;
        // Every task is a new JVM, but the nodes are not.
        let warm = turn.warm_up(|number| self.warm_nodes((testbed, &watch), number))?;
        if !turn.options.first_counts {
            turn.tell("a round before it counts");
            self.round((testbed, &watch), 0, turn.mib().min(WARM_UP_MIB))?;
        }
        if !turn.counts {
            return Ok(());
        }
        turn.tell("the jobs");
        let (phases, maps): (Vec<_>, Vec<_>) = self
            .round((testbed, &watch), turn.round, turn.mib())?
            .into_iter()
            .unzip();
        let outcome = WorkloadOutcome {
            warm: Some(warm > 0.0),
            ..workload::outcome(watch, phases)
        };
        turn.give_outcome(testbed.described(), &outcome)?;
        for (phase, maps) in outcome.phases.iter().zip(maps) {
            let read = LatencySpread::of(phase, |disk| &disk.read.latency).figures("read");
            let write = LatencySpread::of(phase, |disk| &disk.write.latency).figures("write");
            turn.add(phase.what, maps.and(read).and(write));
        }
        Ok(())
    }

    /// A resident client writes and reads through the nodes; processor seconds of all.
    fn warm_nodes(&self, (testbed, watch): (&Testbed, &Watch), number: usize) -> Result<f64> {
        let (streams, mib) = WARM_UP;
        let write = json!({
            "path": WARM_UP_ROOT, "streams": streams, "bytes": mib << 20,
            "replication": REPLICAS, "blockSize": mib << 20,
        });
        let read = json!({"path": WARM_UP_ROOT, "streams": streams});
        let mut used = 0.0;
        for (what, request) in [("writeStreams", write), ("readStreams", read)] {
            workload::empty_page_cache()?;
            let phase = workload::observe(testbed, ("warm-up", number), watch, || {
                workload::moved(self.client.begin(what, request).map(|call| vec![call]))
            })?;
            used += phase.cpu_s();
        }
        self.client.fs(&["-rm", "-r", "-skipTrash", WARM_UP_ROOT])?;
        Ok(used)
    }

    /// All jobs, one after the other, each with cold caches; then their files go.
    fn round(
        &self,
        (testbed, watch): (&Testbed, &Watch),
        number: usize,
        mib: u32,
    ) -> Result<Vec<(WorkloadPhase, PeerFigures)>> {
        let mut phases = Vec::new();
        for job in JOBS {
            let before = self.yarn.finished(&self.client)?.len();
            workload::empty_page_cache()?;
            let once = || Ok(vec![self.run(job, mib)?]);
            let phase = workload::observe(testbed, (job.name, number), watch, once)?;
            let ended = self.yarn.finished(&self.client)?.split_off(before);
            phases.push((phase, map_places(&ended)));
        }
        self.client.fs(&["-rm", "-r", "-skipTrash", ROOT])?;
        Ok(phases)
    }

    /// One job on all workers, with so many MiB for each.
    pub fn run(&self, job: Job, mib: u32) -> Result<Moved> {
        let arguments = (job.arguments)(self.count);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let request = sized(self.yarn.job_conf(), mib, self.count);
        let pending = self.client.begin_tool(job.class, &arguments, request)?;
        let run = ToolRun::from(pending.wait_at_most(PHASE_LIMIT)?);
        if run.code != 0 {
            return Err(TestkitError::Expectation(format!(
                "{} ended with {} (what its containers said is below {}): {}",
                job.name,
                run.code,
                self.yarn.dir().display(),
                run.err,
            )));
        }
        Ok(Moved {
            bytes: (u64::from(mib) << 20) * self.count as u64,
            nanos: run.millis.saturating_mul(1_000_000),
        })
    }
}

/// A request of a job with so many MiB for each worker.
fn sized(mut request: Value, mib: u32, workers: usize) -> Value {
    let each = (u64::from(mib) << 20) / u64::from(MAPS);
    let all = each * u64::from(MAPS) * workers as u64;
    request["conf"]["mapreduce.randomwriter.bytespermap"] = json!(each);
    request["conf"]["mapreduce.randomwriter.totalbytes"] = json!(all);
    // A map task reads a whole file: the start of more JVMs would be what is measured.
    request["conf"]["mapreduce.input.fileinputformat.split.minsize"] = json!(1_u64 << 40);
    request
}

/// Where all jobs have their files.
const ROOT: &str = "/super";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::testbeds::{slow_disks, tests::is_right};

    #[test]
    fn all_have_as_many_disks_and_workers() {
        for kind in ["apache", "apache-behind", "hayloft"] {
            let described = described(kind, &slow_disks());
            is_right(&described);
            let disks = described.hosts().flat_map(|(_, host)| &host.nodes);
            assert_eq!(disks.map(|node| node.disks.len()).sum::<usize>(), DISKS);
            assert_eq!(described.clients(), DISKS, "{kind}");
        }
    }

    #[test]
    fn the_one_process_has_a_link_for_each_virtual_node() {
        let described = described("hayloft", &slow_disks());
        let (_, host) = described.hosts().next().expect("it is the first");
        assert_eq!(usize::from(host.more_links) + 1, NAMES.len());
        assert_eq!(host.nodes[0].virtual_nodes, NAMES);
        assert!(!host.client, "workers are elsewhere");
    }

    #[test]
    fn map_tasks_share_a_worker_s_bytes() {
        let request = sized(json!({"conf": {}}), 64, 8);
        let value = |key: &str| request["conf"][key].as_u64();
        assert_eq!(value("mapreduce.randomwriter.bytespermap"), Some(32 << 20));
        assert_eq!(value("mapreduce.randomwriter.totalbytes"), Some(512 << 20));
        let sort = (JOBS[1].arguments)(8);
        assert_eq!(sort, ["-r", "8", "/super/in", "/super/sorted"]);
    }
}
