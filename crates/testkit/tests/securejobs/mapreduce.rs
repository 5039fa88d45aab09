//! MapReduce on a secure YARN. Tasks have no tickets: delegation tokens open NameNodes to them, and
//! block tokens nodes.
//!
//! `DefaultContainerExecutor` runs tasks as the system's user that a NodeManager has. In a secure
//! shuffle what a map wrote has to belong to the job's user. So that user has the same name; HDFS
//! knows it as an ordinary one. The check of owners needs libhadoop.

use hayloft_testkit::driver::ToolRun;
use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::{class, repository_root};
use hayloft_testkit::node::Kind;
use hayloft_testkit::realm::Realm;
use hayloft_testkit::suite::{expect, expect_eq, passed};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::where_processes_run::Place;
use hayloft_testkit::yarn::{FinishedJob, Yarn, YarnSite, YarnWorker};
use hayloft_testkit::{Cluster, Driver, Outcome, Suite, TestkitError};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::{AES, at_localhost, protected, realm};

/// The ordinary user whose jobs run.
const USER: &str = "root";
/// Records of 100 bytes: two files of two blocks each, so four maps sort.
const RECORDS: u64 = 200_000;
const BLOCK: u64 = 8 << 20;
/// Containers at a time; one of them is the ApplicationMaster.
const CONTAINERS: u32 = 3;
/// How long a job may take on a busy machine.
const JOB_LIMIT: Duration = Duration::from_secs(600);
/// Lines of each log that a failing job shows.
const SHOWN: usize = 12;

pub fn cases(suite: &mut Suite) {
    let name = "mapreduce_on_yarn_aes";
    let native = repository_root().join("target/libhadoop");
    if !native.join("libhadoop.so").is_file() {
        let why = "there is no libhadoop: run scripts/fetch-libhadoop";
        suite.case(name, || Ok(Outcome::Skipped(why.into())));
        return;
    }
    let mut on = suite.group(move || Lab::start(&native), Lab::conclude);
    on.case(name, |lab| {
        let told = lab.tera();
        told.map_err(|error| TestkitError::Expectation(format!("{error}\n{}", lab.complaints())))
    });
}

struct Lab {
    yarn: Yarn,
    /// The superuser's client.
    fs: Driver,
    cluster: Cluster,
    keytab: PathBuf,
    realm: Realm,
}

/// YARN's keys, over those of the file system.
fn of_yarn(keytab: &Path) -> [(&'static str, String); 5] {
    let keytab = keytab.display().to_string();
    [
        ("yarn.resourcemanager.principal", at_localhost("yarn")),
        ("yarn.resourcemanager.keytab", keytab.clone()),
        ("yarn.nodemanager.principal", at_localhost("yarn")),
        ("yarn.nodemanager.keytab", keytab),
        // No ticket cache is among what containers are given.
        (
            "yarn.nodemanager.env-whitelist",
            "JAVA_HOME,JAVA_TOOL_OPTIONS".into(),
        ),
    ]
}

impl Lab {
    fn start(native: &Path) -> Result<Self> {
        let realm = realm()?;
        let cluster = protected(&realm, AES)?
            .conf("dfs.replication", 2)
            .conf("dfs.blocksize", BLOCK)
            .nodes(3, Kind::under_test())
            .start()?;
        let fs = cluster.driver()?;
        fs.fs(&["-mkdir", "-p", "/yarn/staging", "/yarn/history", "/tera"])?;
        fs.fs(&["-chmod", "1777", "/yarn/staging", "/yarn/history"])?;
        fs.fs(&["-chown", USER, "/tera"])?;
        let mut conf = cluster.conf().clone();
        let keytab = realm.keytab("yarn.keytab", &["yarn/localhost"])?;
        for (key, value) in of_yarn(&keytab) {
            conf.set(key, value);
        }
        let mut worker = YarnWorker::at(Place::local());
        let options = format!(
            "{} -Djava.library.path={}",
            realm.java_flag(),
            native.display()
        );
        worker.env.push(("JAVA_TOOL_OPTIONS".into(), options));
        let site = YarnSite {
            dir: cluster.dir().join("yarn"),
            manager: Place::local(),
            workers: vec![worker],
            containers: CONTAINERS,
            stock_intervals: false,
        };
        Ok(Self {
            yarn: Yarn::start(cluster.hadoop(), &conf, site)?,
            fs,
            keytab: realm.keytab("user.keytab", &[USER])?,
            cluster,
            realm,
        })
    }

    fn conclude(self, failed: bool) {
        drop(self.yarn);
        self.cluster.conclude(failed);
    }

    /// A client of the ordinary user, who has a ticket until [`no_ticket`](Self::no_ticket).
    fn client(&self) -> Result<Driver> {
        self.realm.kinit(USER, &self.keytab)?;
        let client = self.cluster.driver()?;
        let denied = client.tool(class::FS_SHELL, &["-touchz", "/not-allowed"])?;
        let said = format!("Permission denied: user={USER}");
        expect(denied.err.contains(&said), || format!("{denied:?}"))?;
        Ok(client)
    }

    /// Destroys the ticket cache that all programs here would find.
    fn no_ticket(&self) -> Result<()> {
        let kdestroy = Path::new("kdestroy");
        let mut command = Command::new(kdestroy);
        command.envs(self.realm.variables_of_programs());
        let ran = command.output();
        let ran = ran.map_err(TestkitError::file("running", kdestroy))?;
        expect(ran.status.success(), || format!("kdestroy: {ran:?}"))
    }

    /// A new client finds none.
    fn no_client(&self) -> Result<()> {
        let still = self.cluster.driver()?;
        let refused = still.tool(class::FS_SHELL, &["-ls", "/tera"])?;
        expect(refused.code != 0, || {
            format!("without a ticket: {refused:?}")
        })
    }

    fn tera(&mut self) -> Result<Outcome> {
        let client = self.client()?;
        let records = RECORDS.to_string();
        let wrote = self.job(&client, "TeraGen", &[&records, "/tera/in"])?;
        expect_eq("generated", wrote.counter("MAP_OUTPUT_RECORDS"), RECORDS)?;
        let sort = self.left_alone(client, "TeraSort", &["/tera/in", "/tera/out"])?;
        expect_eq("maps", sort.counter("TOTAL_LAUNCHED_MAPS"), 4)?;
        expect_eq("read", sort.counter("MAP_INPUT_RECORDS"), RECORDS)?;
        expect_eq("sorted", sort.counter("REDUCE_OUTPUT_RECORDS"), RECORDS)?;
        let client = self.client()?;
        let valid = self.job(&client, "TeraValidate", &["/tera/out", "/tera/report"])?;
        expect_eq("validated", valid.counter("MAP_INPUT_RECORDS"), RECORDS)?;
        // One line with the sum of all keys; errors would be more of them.
        let report = self.fs.fs(&["-cat", "/tera/report/part-r-00000"])?;
        let clean = report.starts_with("checksum") && report.lines().count() == 1;
        expect(clean, || format!("TeraValidate: {report}"))?;
        self.by_tokens()?;
        self.by_block_tokens()?;
        self.fs.expect_healthy("/tera")?;
        passed()
    }

    /// Runs a program of one job beside its client.
    fn job(&self, client: &Driver, name: &str, arguments: &[&str]) -> Result<FinishedJob> {
        let before = self.yarn.finished(&self.fs)?.len();
        let program = format!("org.apache.hadoop.examples.terasort.{name}");
        let run = client.begin_tool(&program, arguments, self.yarn.job_conf())?;
        let run: ToolRun = run.wait_at_most(JOB_LIMIT)?.into();
        run.ok()?;
        self.ended(name, before)
    }

    /// Runs a program of one job whose client dies, and with it the user's last ticket, once the
    /// ResourceManager has accepted the job.
    fn left_alone(&self, client: Driver, name: &str, arguments: &[&str]) -> Result<FinishedJob> {
        let before = self.yarn.finished(&self.fs)?.len();
        let accepted = self.accepted() + 1;
        let program = format!("org.apache.hadoop.examples.terasort.{name}");
        let run = client.begin_tool(&program, arguments, self.yarn.job_conf())?;
        wait::until("an accepted job", JOB_LIMIT, || {
            if let Some(early) = run.wait_briefly(Duration::from_millis(50))? {
                let early = ToolRun::from(early);
                return Err(TestkitError::Expectation(format!(
                    "{name} ended early: {early:?}"
                )));
            }
            Ok(match self.accepted() {
                now if now == accepted => Seen::Done(()),
                now => Seen::NotYet(format!("{now} of {accepted}")),
            })
        })?;
        client.kill()?;
        self.no_ticket()?;
        let ended = self.yarn.finished(&self.fs)?.len();
        expect_eq("jobs that ended with their client", ended, before)?;
        self.no_client()?;
        self.ended(name, before)
    }

    /// Waits for the end of the job behind `before` others.
    fn ended(&self, name: &str, before: usize) -> Result<FinishedJob> {
        let job = wait::until(&format!("the end of {name}"), JOB_LIMIT, || {
            let mut ended = self.yarn.finished(&self.fs)?;
            if let Some(failed) = self.failed() {
                return Err(TestkitError::Expectation(format!("{name}: {failed}")));
            }
            Ok(match ended.len() {
                now if now > before => Seen::Done(ended.remove(before)),
                now => Seen::NotYet(format!("{now} jobs ended")),
            })
        })?;
        expect(job.succeeded, || format!("{name}: {job:?}"))?;
        println!("  {name}: {} ms", job.millis);
        Ok(job)
    }

    fn manager_log(&self) -> String {
        read(&self.yarn.dir().join("resourcemanager/resourcemanager.log"))
    }

    /// How many jobs the ResourceManager has accepted.
    fn accepted(&self) -> usize {
        self.manager_log().matches(" to ACCEPTED on event").count()
    }

    /// What the ResourceManager says of a job that failed.
    fn failed(&self) -> Option<String> {
        let log = self.manager_log();
        let failed = log.lines().find(|line| line.contains(" to FAILED on"));
        failed.map(str::to_owned)
    }

    /// The NameNode's audit: what tasks wrote and read, they did by tokens. The user's clients had
    /// tickets, which the same lines show.
    fn by_tokens(&mut self) -> Result<()> {
        let log = read(&self.cluster.namenode(0).log());
        let of_user = |how: &str| {
            let who = format!("ugi={USER}");
            let with = format!("(auth:{how})");
            let lines = log.lines();
            let lines = lines.filter(move |line| line.contains(&who) && line.contains(&with));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        let count = |lines: &[String], parts: [&str; 2]| {
            let fits = |line: &&String| parts.iter().all(|part| line.contains(part));
            lines.iter().filter(fits).count()
        };
        let (tokens, tickets) = (of_user("TOKEN"), of_user("KERBEROS"));
        let written = count(&tokens, ["cmd=create", "/attempt_"]);
        let read = count(&tokens, ["cmd=open", "src=/tera/in/part-m-"]);
        println!("  by tokens: {written} files written and {read} parts of files opened by tasks");
        expect(written >= 4 && read >= 4, || {
            format!("by tokens: {written} files of tasks, {read} opened")
        })?;
        expect_eq("by tickets", count(&tickets, ["cmd=", "/attempt_"]), 0)?;
        expect(!tickets.is_empty(), || "no client had a ticket".into())
    }

    /// What nodes trace: data transfer asks for a block token, and tasks got their files written.
    /// A sorted file has one replica, by default.
    fn by_block_tokens(&self) -> Result<()> {
        let mut bytes = 0;
        for node in self.cluster.nodes() {
            let log = read(&node.log());
            let refused = log
                .lines()
                .find(|line| line.contains("block token verification"));
            expect(refused.is_none(), || format!("{refused:?}"))?;
            let of_tasks = |line: &str| line.contains("op: HDFS_WRITE, cliID: DFSClient_attempt_");
            for line in log.lines().filter(|line| of_tasks(line)) {
                let count = line
                    .split_once(", bytes: ")
                    .and_then(|(_, rest)| rest.split_once(','));
                bytes += count
                    .and_then(|(count, _)| count.parse::<u64>().ok())
                    .unwrap_or(0);
            }
        }
        println!("  by block tokens: {bytes} bytes written by tasks");
        expect(bytes >= RECORDS * 100 * 3, || {
            format!("by block tokens: {bytes} bytes of tasks")
        })
    }

    /// What the logs of YARN and of containers hold of warnings and worse.
    fn complaints(&self) -> String {
        let mut logs = Vec::new();
        find_logs(self.yarn.dir(), &mut logs);
        let shown = logs.iter().filter_map(|path| {
            let text = read(path);
            let bad = |line: &&str| {
                let marks = [" WARN ", " ERROR ", " FATAL ", "Exception", "Diagnostics"];
                // A NodeManager says so often of what is gone already.
                !line.contains("delete returned false") && marks.iter().any(|m| line.contains(m))
            };
            let lines: Vec<_> = text.lines().filter(bad).collect();
            let last = lines[lines.len().saturating_sub(SHOWN)..].join("\n");
            (!last.is_empty()).then(|| format!("--- {}\n{last}", path.display()))
        });
        shown.collect::<Vec<_>>().join("\n")
    }
}

fn read(path: &Path) -> String {
    let bytes = std::fs::read(path).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The logs of daemons and of containers below `dir`.
fn find_logs(dir: &Path, found: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() && name != "local" {
            find_logs(&path, found);
        } else if name.ends_with(".log") || name == "syslog" || name == "stderr" {
            found.push(path);
        }
    }
}
