//! Figures 3 and 11: jobs on YARN over `pfs://` and HDFS, and what each module of the shim brings
//! to a grep.

use std::path::Path;

use serde::Serialize;
use serde_json::{Value, json};

use super::layouts;
use super::moosefs::{self, MooseFs};
use super::session::{self, Way};
use crate::experiments::ExperimentOptions;
use crate::report::spread;
use crate::up::Testbed;
use crate::workload::{self, PHASE_LIMIT};
use hayloft_testkit::conf::Conf;
use hayloft_testkit::driver::{Driver, ToolRun};
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::hadoop::class;
use hayloft_testkit::yarn::{FinishedJob, Yarn};

/// Hosts, each with a chunk server, a DataNode and a NodeManager.
const SERVERS: usize = 4;
/// Copies of every file.
const COPIES: usize = 2;
/// Map tasks that write, each a file of `--mib`.
pub(super) const FILES: u32 = 8;
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

/// What a job took, over all rounds.
#[derive(Clone, Debug, Serialize)]
pub(super) struct PfsJobRow {
    pub way: &'static str,
    pub job: &'static str,
    /// From submission to end.
    pub seconds: (f64, f64, f64),
    /// Map tasks that ran where their data are, of all; none for jobs without data to read.
    pub local_maps: Option<(u64, u64)>,
}

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

/// A job over a way that was seen.
type Seen = (&'static str, &'static str, FinishedJob);

/// Where jobs run.
struct On<'a> {
    moose: &'a MooseFs,
    yarn: &'a Yarn,
    client: &'a Driver,
    mib: u32,
}

/// Carries it out in `dir`.
pub(super) fn run(
    options: &ExperimentOptions,
    dir: &Path,
    tell: &mut dyn FnMut(&str),
) -> Result<Vec<PfsJobRow>> {
    let described = layouts::described(options, SERVERS, false);
    crate::up::down(&described.name, dir)?;
    let mut testbed = Testbed::up(described, dir, false, tell)?;
    let moose = MooseFs::start(&testbed)?;
    tell("starting YARN");
    let yarn = start_yarn(&testbed, &moose)?;
    let clients = session::clients(&testbed, &["s0".into()])?;
    let mut seen: Vec<Seen> = Vec::new();
    for kind in [Way::STOCK, Way::HAYLOFT] {
        if kind == Way::HAYLOFT {
            testbed.exchange_nodes("hayloft")?;
        }
        let on = On {
            moose: &moose,
            yarn: &yarn,
            client: &clients[0].1,
            mib: options.mib,
        };
        for round in 0..options.rounds {
            tell(&format!("jobs, {kind}: round {round}"));
            on.all((kind, json!({}), "/jobs"), &JOBS, &mut seen)?;
            if kind == Way::STOCK {
                on.over_pfs(tell, &mut seen)?;
            }
        }
    }
    Ok(rows(&seen))
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
    /// All jobs over `pfs://` as it shall be, and the grep without modules.
    fn over_pfs(&self, tell: &mut dyn FnMut(&str), seen: &mut Vec<Seen>) -> Result<()> {
        for modules in MODULES {
            tell(modules.name);
            let way = (modules.name, self.conf(modules), "pfs:///jobs");
            if modules.buffer && modules.map {
                self.jobs(&way, &JOBS, seen)?;
            } else {
                self.jobs(&way, &JOBS[2..3], seen)?;
            }
        }
        self.remove("pfs:///jobs", self.conf(MODULES[0]))
    }

    /// What a job over `pfs://` is configured with; each container fills in its own host.
    fn conf(&self, modules: Modules) -> Value {
        let direct = !modules.buffer;
        let mut conf = self.moose.conf("s0", COPIES, "hybrid", direct);
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

    fn all(
        &self,
        way: (&'static str, Value, &str),
        jobs: &[Job],
        seen: &mut Vec<Seen>,
    ) -> Result<()> {
        self.jobs(&way, jobs, seen)?;
        self.remove(way.2, way.1)
    }

    fn remove(&self, path: &str, conf: Value) -> Result<()> {
        let request = json!({"path": path, "conf": conf});
        self.client.call("delete", request).map(drop)
    }

    /// Runs jobs one after the other, each with cold caches.
    fn jobs(
        &self,
        (way, conf, dir): &(&'static str, Value, &str),
        jobs: &[Job],
        seen: &mut Vec<Seen>,
    ) -> Result<()> {
        for job in jobs {
            workload::empty_page_cache()?;
            let before = self.yarn.finished(self.client)?.len();
            let arguments = (job.arguments)(dir);
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let request = self.request(conf);
            let begun = self.client.begin_tool(job.class, &arguments, request)?;
            ToolRun::from(begun.wait_at_most(PHASE_LIMIT)?).ok()?;
            // A grep's second job sorts what was found.
            let ended = self.yarn.finished(self.client)?.into_iter().nth(before);
            let ended = ended.filter(|ended| ended.succeeded);
            let ended = ended.ok_or_else(|| {
                TestkitError::Expectation(format!("{} over {way} left no history", job.name))
            })?;
            seen.push((way, job.name, ended));
            if job.name == GREP {
                self.remove(&format!("{dir}/found"), conf.clone())?;
            }
        }
        Ok(())
    }

    fn request(&self, more: &Value) -> Value {
        let mut request = self.yarn.job_conf();
        let each = u64::from(self.mib) << 20;
        let own = json!({
            "mapreduce.randomwriter.bytespermap": each,
            "mapreduce.randomwriter.totalbytes": each * u64::from(FILES),
            "dfs.replication": COPIES,
            "dfs.blocksize": 64 << 20,
        });
        for part in [own, more.clone()] {
            if let (Some(into), Value::Object(part)) = (request["conf"].as_object_mut(), part) {
                into.extend(part);
            }
        }
        request
    }
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn rows(seen: &[Seen]) -> Vec<PfsJobRow> {
    let mut rows: Vec<PfsJobRow> = Vec::new();
    for (way, job, _) in seen {
        if rows.iter().any(|row| row.way == *way && row.job == *job) {
            continue;
        }
        let all = || seen.iter().filter(|(w, j, _)| w == way && j == job);
        let count = |name| all().map(|(_, _, ended)| ended.counter(name)).sum();
        let reads = JOBS.iter().any(|one| one.name == *job && one.reads);
        rows.push(PfsJobRow {
            way,
            job,
            seconds: spread(all().map(|(_, _, e)| e.millis as f64 / 1e3).collect()),
            local_maps: reads.then(|| (count("DATA_LOCAL_MAPS"), count("TOTAL_LAUNCHED_MAPS"))),
        });
    }
    rows
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
            counters: counters.map(|(name, n)| (name.to_owned(), n)).into(),
        }
    }

    #[test]
    fn rounds_of_a_job_become_a_row_and_writers_have_no_place() {
        let seen = [
            (BOTH, "write", ended(1000, 0, 8)),
            (BOTH, GREP, ended(2000, 7, 8)),
            (NEITHER, GREP, ended(9000, 0, 8)),
            (BOTH, GREP, ended(4000, 8, 8)),
        ];
        let rows = rows(&seen);
        let of = |at: usize| (rows[at].way, rows[at].job, rows[at].local_maps);
        assert_eq!(of(0), (BOTH, "write", None));
        assert_eq!(of(1), (BOTH, GREP, Some((15, 16))));
        assert_eq!(of(2), (NEITHER, GREP, Some((0, 8))));
        assert!((rows[1].seconds.1 - 2.0).abs() < 1e-9 && (rows[1].seconds.2 - 4.0).abs() < 1e-9);
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
