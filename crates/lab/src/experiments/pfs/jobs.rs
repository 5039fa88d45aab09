//! Figures 3 and 11: jobs on YARN over `pfs://` and HDFS, and what each module of the shim brings
//! to a grep.

use hayloft_bench::fair::stock::Medium;
use serde_json::{Value, json};

use super::layouts;
use super::moosefs::{self, MooseFs};
use super::session::{Hosts, Session, Way};
use crate::experiments::testbeds::peers_on;
use crate::runner::record::PeerFigures;
use crate::runner::{PeerTurn, Run};
use crate::up::Testbed;
use crate::workload::{self, Moved, PHASE_LIMIT};
use hayloft_testkit::driver::{Driver, ToolRun};
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::hadoop::class;
use hayloft_testkit::hadoop_conf::Conf;
use hayloft_testkit::yarn::{FinishedJob, Yarn};

/// What the part is called.
pub(super) const PART: &str = "jobs";
/// Hosts, each with a chunk server, a DataNode and a NodeManager.
const SERVERS: usize = 4;
/// Copies of every file.
const COPIES: usize = 2;
/// Map tasks that write, each a file.
pub(super) const FILES: u32 = 8;
/// A file is so many times `--mib` long: its disk time is above the start of a container. Where the
/// first round counts nothing is compared, and half of it is enough.
pub(super) const FILE_OF_MIB: u32 = 3;
/// Containers of a host.
pub(super) const CONTAINERS: u32 = 3;
/// Variables by which a container knows its own host's mounts.
const ROOT: &str = "HAYLOFT_PFS_ROOT";
const DIRECT_ROOT: &str = "HAYLOFT_PFS_DIRECT_ROOT";
const HOST: &str = "HAYLOFT_PFS_HOST";
/// Reads a file without doing anything with it.
const LOAD_GENERATOR: &str = "org.apache.hadoop.mapreduce.GenericMRLoadGenerator";
pub(super) const GREP: &str = "grep";

/// Which modules of the shim a job has; HDFS has neither.
#[derive(Clone, Copy, Debug)]
struct Modules {
    name: &'static str,
    buffer: bool,
    map: bool,
}

impl Modules {
    /// Takes away what a job shall not have. Copies name servers too: without `map` the file is
    /// read as any other, and what a job writes has one copy.
    fn turn_off(self, conf: &mut Conf) {
        if !self.map {
            conf.set("fs.pfs.layout", "posix")
                .set("fs.pfs.targets", "")
                .set("fs.pfs.copies", 1);
        }
        if !self.buffer {
            let option = "mapreduce.job.input.file.option.fs.option.openfile.read.policy";
            conf.set(option, "random");
        }
    }
}

pub(super) const BOTH: &str = "pfs://";
pub(super) const NEITHER: &str = "pfs://, neither";
const MODULES: [Modules; 4] = [
    Modules {
        name: BOTH,
        buffer: true,
        map: true,
    },
    Modules {
        name: "pfs://, buf only",
        buffer: true,
        map: false,
    },
    Modules {
        name: "pfs://, map only",
        buffer: false,
        map: true,
    },
    Modules {
        name: NEITHER,
        buffer: false,
        map: false,
    },
];

/// A job with its class and arguments, for a directory.
struct Job {
    name: &'static str,
    class: &'static str,
    arguments: fn(&str) -> Vec<String>,
    reads: bool,
}

const JOBS: [Job; 4] = [
    Job {
        name: "write",
        class: class::RANDOM_WRITER,
        arguments: |dir| vec![format!("{dir}/in")],
        reads: false,
    },
    Job {
        name: "read",
        class: LOAD_GENERATOR,
        arguments: |dir| {
            let input = "org.apache.hadoop.mapreduce.lib.input.SequenceFileInputFormat";
            let output = "org.apache.hadoop.mapreduce.lib.output.SequenceFileOutputFormat";
            let bytes = "org.apache.hadoop.io.BytesWritable";
            let line = format!(
                "-r 0 -keepmap 0 -keepred 0 -indir {dir}/in -outdir {dir}/read \
                 -inFormat {input} -outFormat {output} -outKey {bytes} -outValue {bytes}"
            );
            line.split(' ').map(String::from).collect()
        },
        reads: true,
    },
    Job {
        name: GREP,
        class: class::GREP,
        arguments: |dir| {
            [&format!("{dir}/in"), &format!("{dir}/found"), "hay[a-z]{6}"]
                .map(String::from)
                .to_vec()
        },
        reads: true,
    },
    Job {
        name: "sort",
        class: class::SORT,
        arguments: |dir| {
            ["-r", "4", &format!("{dir}/in"), &format!("{dir}/sorted")]
                .map(String::from)
                .to_vec()
        },
        reads: true,
    },
];

/// Where a way has its files, with what and which of the jobs it runs.
#[derive(Clone, Copy)]
enum JobWay {
    /// HDFS with nodes of this kind.
    Hdfs(&'static str, &'static str),
    /// `pfs://`: all jobs as it shall be, the grep without modules.
    Pfs(Modules),
}

impl JobWay {
    fn all() -> Vec<Self> {
        let nodes = peers_on(Medium::Rotating).into_iter();
        let nodes = nodes.map(|(name, kind)| Self::Hdfs(name, kind));
        nodes.chain(MODULES.map(Self::Pfs)).collect()
    }

    fn name(self) -> &'static str {
        match self {
            Self::Hdfs(name, _) => name,
            Self::Pfs(modules) => modules.name,
        }
    }

    fn jobs(self) -> &'static [Job] {
        match self {
            Self::Pfs(modules) if !(modules.buffer && modules.map) => &JOBS[2..3],
            _ => &JOBS,
        }
    }
}

/// Carries it out: every way has its turn in each round, the first of which does not count.
pub(super) fn carry_out(run: &mut Run<'_>) -> Result<()> {
    let described = layouts::described(run.options, SERVERS, false);
    let mut hosts = Hosts::start(described, &["s0".into()], &run.work.join(PART), run.tell)?;
    (run.tell)("starting YARN");
    let yarn = start_yarn(&hosts.testbed, &hosts.moose)?;
    let ways = JobWay::all();
    let block_bytes = u64::from(run.options.block_mib) << 20;
    let peers: Vec<_> = ways.iter().map(|way| ("", way.name())).collect();
    run.rounds(PART, &peers, &mut |turn, at| {
        let way = ways[at];
        let kind = match way {
            JobWay::Hdfs(_, kind) => Some(kind),
            JobWay::Pfs(_) => None,
        };
        hosts.be(kind, turn)?;
        // Each container is a new JVM: nodes are what can be warm.
        let warm = match kind {
            Some(_) => hosts.warm(Way::Hdfs(way.name(), COPIES), turn)?,
            None => 1.0,
        };
        let on = On {
            hosts: &hosts,
            yarn: &yarn,
            client: &hosts.clients[0].1,
            mib: match turn.options.first_counts {
                true => (turn.mib() / 2).max(1),
                false => turn.mib() * FILE_OF_MIB,
            },
            block_bytes,
        };
        on.turn(way, turn, warm)
    })
}

/// Where jobs run.
struct On<'a> {
    hosts: &'a Hosts,
    yarn: &'a Yarn,
    client: &'a Driver,
    /// MiB of a file.
    mib: u32,
    block_bytes: u64,
}

/// A NodeManager on every host that knows the host's own mounts.
fn start_yarn(testbed: &Testbed, moose: &MooseFs) -> Result<Yarn> {
    let hosts: Vec<String> = (0..SERVERS).map(|at| format!("s{at}")).collect();
    let mut site = testbed.yarn_site(&hosts, CONTAINERS)?;
    for (host, worker) in hosts.iter().zip(&mut site.workers) {
        let root = |direct| moose.root(host, direct).display().to_string();
        worker.env = vec![
            (ROOT.into(), root(false)),
            (DIRECT_ROOT.into(), root(true)),
            (HOST.into(), worker.place.address().to_string()),
        ];
    }
    let mut conf = testbed.conf();
    let variables = format!("JAVA_HOME,{ROOT},{DIRECT_ROOT},{HOST}");
    conf.set("yarn.nodemanager.env-whitelist", variables);
    let mut hadoop = testbed.hadoop.clone();
    hadoop.add_jar(moosefs::jar()?);
    Yarn::start(&hadoop, &conf, site)
}

impl On<'_> {
    /// All jobs of a way, one after the other, each with cold caches; then its files go. A way that
    /// only reads has its input written before.
    fn turn(&self, way: JobWay, turn: &mut PeerTurn<'_>, warm: f64) -> Result<()> {
        let (conf, dir) = match way {
            JobWay::Hdfs(..) => (json!({}), "/jobs"),
            JobWay::Pfs(modules) => (self.conf(modules), "pfs:///jobs"),
        };
        let mut session = Session::begin(self.hosts)?;
        let jobs = way.jobs();
        let written_before = usize::from(jobs[0].reads);
        if written_before > 0 {
            self.run(&JOBS[0], (&self.conf(MODULES[0]), dir), &mut session)?;
        }
        let mut ended = Vec::new();
        for job in jobs {
            ended.push(self.run(job, (&conf, dir), &mut session)?);
        }
        session.give(turn, warm, written_before);
        for (job, ended) in jobs.iter().zip(ended) {
            turn.add(job.name, figures(job, &ended));
        }
        self.remove(dir, conf)
    }

    /// What a job over `pfs://` is configured with; each container fills in its own host.
    fn conf(&self, modules: Modules) -> Value {
        let direct = !modules.buffer;
        let mut conf = self.hosts.moose.conf("s0", COPIES, "hybrid", direct);
        let own = |variable: &str, conf: &Conf, key: &str| {
            format!("${{env.{variable}:-{}}}", conf.get(key).unwrap_or_default())
        };
        let root = if direct { DIRECT_ROOT } else { ROOT };
        let (root, host) = (
            own(root, &conf, "fs.pfs.root"),
            own(HOST, &conf, "fs.pfs.host"),
        );
        conf.set("fs.pfs.root", root).set("fs.pfs.host", host);
        modules.turn_off(&mut conf);
        conf.iter().map(|(k, v)| (k.to_owned(), json!(v))).collect()
    }

    fn remove(&self, path: &str, conf: Value) -> Result<()> {
        let request = json!({"path": path, "conf": conf});
        self.client.call("delete", request).map(drop)
    }

    /// Runs a job with cold caches; what YARN says of it.
    fn run(
        &self,
        job: &Job,
        (conf, dir): (&Value, &str),
        session: &mut Session<'_>,
    ) -> Result<FinishedJob> {
        workload::empty_page_cache()?;
        let before = self.yarn.finished(self.client)?.len();
        let arguments = (job.arguments)(dir);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let request = self.request(conf);
        session.watched(job.name, || {
            let begun = self.client.begin_tool(job.class, &arguments, request)?;
            let run = ToolRun::from(begun.wait_at_most(PHASE_LIMIT)?).ok()?;
            Ok(vec![Moved {
                bytes: (u64::from(self.mib) << 20) * u64::from(FILES),
                nanos: run.millis.saturating_mul(1_000_000),
            }])
        })?;
        // A grep's second job sorts what was found.
        let ended = self.yarn.finished(self.client)?.into_iter().nth(before);
        let ended = ended.filter(|ended| ended.succeeded);
        let ended = ended.ok_or_else(|| {
            TestkitError::Expectation(format!("{} in {dir} left no history", job.name))
        })?;
        if job.name == GREP {
            self.remove(&format!("{dir}/found"), conf.clone())?;
        }
        Ok(ended)
    }

    fn request(&self, more: &Value) -> Value {
        let mut request = self.yarn.job_conf();
        let each = u64::from(self.mib) << 20;
        let own = json!({
            "mapreduce.randomwriter.bytespermap": each,
            "mapreduce.randomwriter.totalbytes": each * u64::from(FILES),
            "dfs.replication": COPIES,
            "dfs.blocksize": self.block_bytes,
            // A map task reads a whole file, also where the other way's blocks are larger.
            "mapreduce.input.fileinputformat.split.minsize": 1_u64 << 40,
        });
        for part in [own, more.clone()] {
            if let (Some(into), Value::Object(part)) = (request["conf"].as_object_mut(), part) {
                into.extend(part);
            }
        }
        request
    }
}

/// Seconds from submission to end, and map tasks that ran where their data are; none for jobs
/// without data to read.
#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn figures(job: &Job, ended: &FinishedJob) -> PeerFigures {
    let count = |name: &str| job.reads.then(|| ended.counter(name) as f64);
    PeerFigures::of([("seconds", ended.millis as f64 / 1e3)])
        .with_some("maps_local", count("DATA_LOCAL_MAPS"))
        .with_some("maps", count("TOTAL_LAUNCHED_MAPS"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(millis: u64, local: u64, all: u64) -> FinishedJob {
        let counters = [("DATA_LOCAL_MAPS", local), ("TOTAL_LAUNCHED_MAPS", all)];
        FinishedJob {
            id: "job_1_1".into(),
            name: "a job".into(),
            succeeded: true,
            millis,
            mapped: None,
            counters: counters.map(|(name, n)| (name.to_owned(), n)).into(),
        }
    }

    #[test]
    fn writers_have_no_place() {
        let ended = ended(2000, 7, 8);
        assert_eq!(figures(&JOBS[0], &ended).get("maps"), None);
        let grep = figures(&JOBS[2], &ended);
        assert_eq!(
            (grep.get("seconds"), grep.get("maps_local")),
            (Some(2.0), Some(7.0))
        );
    }

    #[test]
    fn every_kind_of_node_runs_all_jobs() {
        let all = JobWay::all();
        let names: Vec<&str> = all.iter().map(|way| way.name()).collect();
        assert_eq!(names[..4], ["stock-sync", "stock-behind", "Hayloft", BOTH]);
        assert!(all[..4].iter().all(|way| way.jobs().len() == JOBS.len()));
        assert!(all[4..].iter().all(|way| way.jobs()[0].name == GREP));
    }

    #[test]
    fn modules_are_turned_off_for_the_grep_alone() {
        assert_eq!(JOBS[2].name, GREP);
        assert_eq!(MODULES[0].name, BOTH);
        assert!(MODULES[0].buffer && MODULES[0].map);
        let all = Conf::new().with("fs.pfs.targets", "a=/a");
        let mut both = all.clone();
        MODULES[0].turn_off(&mut both);
        assert_eq!(both, all);
        let mut neither = all;
        MODULES[3].turn_off(&mut neither);
        assert_eq!(
            neither.get("fs.pfs.targets"),
            Some(""),
            "copies name servers too"
        );
        assert_eq!(neither.get("fs.pfs.layout"), Some("posix"));
    }
}
