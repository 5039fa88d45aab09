//! The paper's three jobs, on workers that have the disks or have none.

use serde::Serialize;
use serde_json::{Value, json};

use super::latency::LatencySpread;
use crate::describe::{DataNodeSpec, Description, HostSpec};
use crate::experiments::ExperimentOptions;
use crate::experiments::scaling::{one_rack, storage_host};
use crate::report::{self, spread};
use crate::sample::Watch;
use crate::up::Testbed;
use crate::workload::{self, Moved, PHASE_LIMIT, WorkloadOutcome, WorkloadPhase};
use hayloft_testkit::driver::{Driver, ToolRun};
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::hadoop::class;
use hayloft_testkit::yarn::{FinishedJob, Yarn};

/// Disks in all, and stock DataNodes.
pub(in crate::experiments) const DISKS: usize = 8;
/// Virtual nodes of the one process, each with a link of its own.
pub(super) const NAMES: [&str; 4] = ["a", "b", "c", "d"];
pub(super) const REPLICAS: u16 = 2;
/// Map tasks of a worker at a time.
pub(super) const MAPS: u32 = 2;
/// Most of a worker in the round that does not count, MiB.
const WARM_UP_MIB: u32 = 16;

/// Whose disks the workers use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Storage {
    /// Eight stock DataNodes with a disk each, in the workers' hosts.
    Stock,
    /// One process of virtual nodes with all disks, in a host of its own.
    Super,
}

impl Storage {
    pub const ALL: [Self; 2] = [Self::Stock, Self::Super];

    pub fn name(self) -> &'static str {
        match self {
            Self::Stock => "8 stock DataNodes",
            Self::Super => "one process of Hayloft",
        }
    }

    pub fn described(self, options: &ExperimentOptions) -> Description {
        let workers = options.largest.min(DISKS);
        let mut options = options.clone();
        let mut set = |key: &str, value: String| options.conf.insert(key.into(), value);
        set("dfs.replication", REPLICAS.to_string());
        set("dfs.blocksize", (16_u32 << 20).to_string());
        let hosts = match self {
            Self::Stock => {
                options.kind = "apache".into();
                let host = |at| storage_host(at, at < workers, &options);
                (0..DISKS).map(host).collect()
            }
            Self::Super => {
                options.kind = "hayloft".into();
                let links = u8::try_from(NAMES.len() - 1).expect("a few links");
                let mut hosts = vec![all_disks(&options, &NAMES)];
                hosts[0].more_links = links;
                hosts.extend((0..workers).map(|at| HostSpec::client(format!("w{at}"))));
                hosts
            }
        };
        one_rack(&options, "stock", hosts, "own")
    }
}

/// A host with all disks, and these virtual nodes on them.
pub(in crate::experiments) fn all_disks(options: &ExperimentOptions, names: &[&str]) -> HostSpec {
    let one = storage_host(0, false, options);
    let disk = one.nodes[0].disks[0].clone();
    HostSpec {
        nodes: vec![DataNodeSpec {
            kind: options.kind.clone(),
            disks: vec![disk; DISKS],
            virtual_nodes: names.iter().map(ToString::to_string).collect(),
            ..DataNodeSpec::default()
        }],
        ..one
    }
}

/// A job of the paper's Figure 2.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub name: &'static str,
    class: &'static str,
    /// Its arguments, for a number of workers.
    arguments: fn(usize) -> Vec<String>,
    /// How much faster the paper's SuperDataNode was, in its words.
    pub paper: &'static str,
}

pub(super) const JOBS: [Job; 3] = [
    Job {
        name: "RandomWriter",
        class: class::RANDOM_WRITER,
        arguments: |_| words(&["/super/in"]),
        paper: "92 % slower",
    },
    Job {
        name: "Sort",
        class: class::SORT,
        arguments: |workers| words(&["-r", &workers.to_string(), "/super/in", "/super/sorted"]),
        paper: "17 % faster",
    },
    Job {
        name: "Grep",
        class: class::GREP,
        arguments: |_| words(&["/super/in", "/super/found", "hay[a-z]+"]),
        paper: "54 % faster",
    },
];

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}

/// How far map tasks were from their data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct MapPlaces {
    /// In a host that has it.
    pub local: u64,
    /// In a rack that has it.
    pub rack: u64,
    /// Elsewhere, or without data to read.
    pub other: u64,
}

impl MapPlaces {
    fn count(jobs: &[FinishedJob]) -> Self {
        let sum = |name: &str| jobs.iter().map(|job| job.counter(name)).sum();
        Self {
            local: sum("DATA_LOCAL_MAPS"),
            rack: sum("RACK_LOCAL_MAPS"),
            other: sum("OTHER_LOCAL_MAPS"),
        }
    }

    fn add(&mut self, other: Self) {
        self.local += other.local;
        self.rack += other.rack;
        self.other += other.other;
    }
}

/// What a job took, over all rounds.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct JobFinding {
    pub job: String,
    /// Of each round, until the last worker was done.
    pub seconds: Vec<f64>,
    /// Median share of the time in which the disks served a request, 0 to 1.
    pub disk_busy: f64,
    /// Median share of the time in which processes could have gone on and had no processor, 0 to 1.
    pub waited: f64,
    /// Requests that the disks answered late.
    pub late: u64,
    /// What limited the middle round.
    pub limit: String,
    /// What the disks' reads took.
    pub read: LatencySpread,
    /// What their writes took.
    pub write: LatencySpread,
    /// Where its map tasks ran, all rounds together.
    pub maps: MapPlaces,
}

impl JobFinding {
    pub fn of(outcome: &WorkloadOutcome, (job, maps): (&str, MapPlaces), link_mbit: u32) -> Self {
        let all: Vec<&WorkloadPhase> = report::phases(outcome, job).collect();
        let disks = || all.iter().flat_map(|phase| &phase.model);
        let limit = all.get(all.len() / 2).map(|phase| phase.limit(link_mbit));
        Self {
            job: job.into(),
            seconds: all.iter().map(|p| p.span.1 - p.span.0).collect(),
            disk_busy: spread(disks().map(|disk| disk.utilisation).collect()).0,
            waited: spread(all.iter().map(|phase| phase.waited()).collect()).0,
            late: disks().map(|disk| disk.late).sum(),
            limit: limit.unwrap_or_default().into(),
            read: LatencySpread::of(&all, |disk| &disk.read.latency),
            write: LatencySpread::of(&all, |disk| &disk.write.latency),
            maps,
        }
    }
}

/// The workers of a testbed: hosts with a NodeManager, on the first of which jobs are submitted.
pub(super) struct Workers {
    pub yarn: Yarn,
    pub client: Driver,
    pub count: usize,
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

    /// All rounds after one that does not count, and where the map tasks of each job ran.
    pub fn measure(
        &self,
        testbed: &Testbed,
        options: &ExperimentOptions,
        tell: &mut dyn FnMut(&str),
    ) -> Result<(WorkloadOutcome, [MapPlaces; 3])> {
        let watch = Watch::begin(testbed)?;
        tell("a round that does not count");
        self.round((testbed, &watch), 0, options.mib.min(WARM_UP_MIB))?;
        let (mut phases, mut places) = (Vec::new(), [MapPlaces::default(); 3]);
        for number in 0..options.rounds {
            tell(&format!("round {}", number + 1));
            for (at, (phase, maps)) in self
                .round((testbed, &watch), number, options.mib)?
                .into_iter()
                .enumerate()
            {
                phases.push(phase);
                places[at].add(maps);
            }
        }
        Ok((workload::outcome(watch, phases), places))
    }

    /// All jobs, one after the other, each with cold caches; then their files go.
    fn round(
        &self,
        (testbed, watch): (&Testbed, &Watch),
        number: usize,
        mib: u32,
    ) -> Result<Vec<(WorkloadPhase, MapPlaces)>> {
        let mut phases = Vec::new();
        for job in JOBS {
            let before = self.yarn.finished(&self.client)?.len();
            workload::empty_page_cache()?;
            let once = || Ok(vec![self.run(job, mib)?]);
            let phase = workload::observe(testbed, (job.name, number), watch, once)?;
            let ended = self.yarn.finished(&self.client)?.split_off(before);
            phases.push((phase, MapPlaces::count(&ended)));
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
    request
}

/// Where all jobs have their files.
const ROOT: &str = "/super";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::scaling::tests::is_right;

    #[test]
    fn both_have_as_many_disks_and_workers() {
        for storage in Storage::ALL {
            let described = storage.described(&ExperimentOptions::default());
            is_right(&described);
            let disks = described.hosts().flat_map(|(_, host)| &host.nodes);
            assert_eq!(disks.map(|node| node.disks.len()).sum::<usize>(), DISKS);
            assert_eq!(described.clients(), DISKS, "{storage:?}");
        }
    }

    #[test]
    fn the_one_process_has_a_link_for_each_virtual_node() {
        let described = Storage::Super.described(&ExperimentOptions::default());
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
