//! Nodes and commands with every system call refused that Linux 4.18 lacks, as on RHEL 8: they do
//! without, by themselves. `old_kernel.py` beside this file sets the filter.

use hayloft_testkit::error::Result;
use hayloft_testkit::files::WrittenFiles;
use hayloft_testkit::hadoop::{hayloft_binary, scratch};
use hayloft_testkit::node::Kind;
use hayloft_testkit::suite::{expect, expect_eq, passed, seconds};
use hayloft_testkit::{Cluster, Driver, NodeSpec, Outcome, Suite, TestkitError};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output};

/// Block size of the cluster's clients, bytes.
const BLOCK: u64 = 1 << 20;
/// Each node of the cluster has one.
const ENGINES: [&str; 3] = ["auto", "direct", "posix"];
/// `pidfd_open`, `openat2`, `faccessat2`, `io_uring_setup`, `cachestat`: the numbers are the same
/// on all machines.
const LATER: [u32; 5] = [434, 437, 439, 425, 451];

fn main() -> ExitCode {
    Suite::run("oldkernel", |suite| {
        if let Err(why) = filtered("true").status_or_why() {
            suite.case("nodes_on_an_old_kernel", move || Ok(Outcome::Skipped(why)));
            return Ok(());
        }
        suite.case("later_calls_are_refused", later_calls);
        let mut on = suite.group(Lab::start, |lab, failed| lab.cluster.conclude(failed));
        on.case("nodes_run_under_the_filter", |lab| lab.under_the_filter());
        on.case("files_are_written_and_read", |lab| lab.files());
        on.case("appends_and_syncs", |lab| lab.appends());
        on.case("a_restart_and_a_kill", |lab| lab.restarts());
        on.case("commands_beside_a_node", |lab| lab.commands());
        on.case("an_engine_that_is_gone_is_refused_in_words", |lab| {
            lab.uring()
        });
        suite.case("a_cluster_comes_up_and_goes_down", up_and_down);
        Ok(())
    })
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oldkernel/old_kernel.py")
}

/// A program under the filter.
struct Filtered(Command);

/// `program` under the filter.
fn filtered(program: impl AsRef<std::ffi::OsStr>) -> Filtered {
    let mut command = Command::new("python3");
    command.arg(script()).arg(program);
    Filtered(command)
}

impl Filtered {
    fn args(mut self, args: &[&str]) -> Self {
        self.0.args(args);
        self
    }

    fn output(mut self) -> Result<Output> {
        let ran = self.0.output();
        ran.map_err(TestkitError::file("running", "python3"))
    }

    /// Why nothing can be run under it here.
    fn status_or_why(self) -> std::result::Result<(), String> {
        let ran = self.output().map_err(|error| error.to_string())?;
        match ran.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&ran.stderr).into_owned()),
        }
    }
}

/// Standard output of a command that has to end with this exit code.
fn said(ran: &Output, code: i32) -> Result<String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let all = || format!("{}{}", text(&ran.stdout), text(&ran.stderr));
    expect(ran.status.code() == Some(code), || {
        format!("{}: {}", ran.status, all())
    })?;
    Ok(text(&ran.stdout))
}

fn later_calls() -> Result<Outcome> {
    let ask = format!(
        "import ctypes, errno\n\
         c = ctypes.CDLL(None, use_errno=True)\n\
         for call in {LATER:?}:\n    \
             r = c.syscall(call, -1, 0, 0, 0)\n    \
             print(call, r, errno.errorcode[ctypes.get_errno()])\n"
    );
    let ran = filtered("python3").args(&["-c", &ask]).output()?;
    let lines: String = LATER.map(|call| format!("{call} -1 ENOSYS\n")).concat();
    expect_eq("answers", said(&ran, 0)?, lines)?;
    passed()
}

/// A program that runs the node under the filter.
fn wrapper(dir: &Path) -> Result<PathBuf> {
    let (path, node) = (dir.join("hayloft"), hayloft_binary()?);
    let (node, script) = (node.display(), script());
    let script = script.display();
    let text = format!("#!/bin/sh\nexec python3 '{script}' '{node}' \"$@\"\n");
    fs::write(&path, text)
        .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o755)))
        .map_err(TestkitError::file("writing", &path))?;
    Ok(path)
}

struct Lab {
    // Dropped first to last: the client ends before its cluster.
    fs: Driver,
    cluster: Cluster,
    written: WrittenFiles,
    /// Of the wrapper.
    _dir: tempfile::TempDir,
}

impl Lab {
    fn start() -> Result<Self> {
        let dir = scratch("oldkernel-")?;
        let program = wrapper(dir.path())?;
        let mut builder = Cluster::builder("oldkernel")
            .conf("dfs.replication", 2)
            .conf("dfs.blocksize", BLOCK);
        for engine in ENGINES {
            let mut spec = NodeSpec::new(Kind::Hayloft).conf("hayloft.io.engine", engine);
            spec.binary = Some(program.clone());
            builder = builder.node(spec);
        }
        let cluster = builder.start()?;
        Ok(Self {
            fs: cluster.driver()?,
            cluster,
            written: WrittenFiles::default(),
            _dir: dir,
        })
    }

    /// What the kernel says of their processes.
    fn under_the_filter(&mut self) -> Result<Outcome> {
        for index in 0..ENGINES.len() {
            let pid = self.cluster.node(index).process()?.pid();
            let path = format!("/proc/{pid}/status");
            let status = fs::read_to_string(&path).map_err(TestkitError::file("reading", &path))?;
            expect(status.contains("Seccomp:\t2"), || status.clone())?;
            expect(status.contains("NoNewPrivs:\t1"), || status.clone())?;
            expect(status.starts_with("Name:\thayloft"), || status.clone())?;
        }
        passed()
    }

    fn files(&mut self) -> Result<Outcome> {
        for (name, bytes) in [("/none", 0), ("/small", 777), ("/large", 24 * BLOCK + 4097)] {
            self.written.put(&self.fs, name, bytes)?;
        }
        self.written.check(&self.fs)?;
        // This time they are in the page cache, which no call says there.
        self.written.check(&self.fs)?;
        self.written.wait_replicas(&self.fs, 2)?;
        passed()
    }

    fn appends(&mut self) -> Result<Outcome> {
        let (fs, path) = (&self.fs, "/appended");
        fs.put(path, 1000, 7, json!({}))?;
        for (handle, bytes, sync) in [("a", 100, "hflush"), ("b", BLOCK, "hsync")] {
            fs.append(handle, path, 7, json!({}))?;
            fs.write(handle, bytes)?;
            fs.handle(sync, handle)?;
            fs.handle("close", handle)?;
        }
        self.written.add(path, 1100 + BLOCK, 7);
        self.written.check(&self.fs)?;
        passed()
    }

    fn restarts(&mut self) -> Result<Outcome> {
        for index in 0..ENGINES.len() {
            self.cluster.node(index).stop()?;
            self.cluster.start_node(index)?;
            self.cluster.node(index).kill()?;
            self.cluster.start_node(index)?;
        }
        self.cluster.wait_all_live()?;
        self.written.check(&self.fs)?;
        self.written.put(&self.fs, "/later", 3 * BLOCK + 1)?;
        self.fs.wait_healthy("/", seconds(60))?;
        for index in 0..ENGINES.len() {
            self.fs.verify_metas(self.cluster.node(index))?;
        }
        passed()
    }

    fn commands(&mut self) -> Result<Outcome> {
        let conf = self.cluster.node(0).conf_dir().display().to_string();
        let hayloft = hayloft_binary()?;
        let live = ["node", "--check-live", "--conf", &conf];
        let answer = said(&filtered(&hayloft).args(&live).output()?, 0)?;
        expect_eq("whether it is live", &*answer, "yes: the node answers\n")?;
        let swap = ["node", "--check-swap", "--conf", &conf];
        let answer = said(&filtered(&hayloft).args(&swap).output()?, 1)?;
        expect(answer.starts_with("no: "), || answer.clone())?;
        let doctor = ["doctor", "--json", "--conf", &conf];
        let ran = filtered(&hayloft).args(&doctor).output()?;
        let report = serde_json::from_slice::<Value>(&ran.stdout);
        let text = String::from_utf8_lossy(&ran.stdout).into_owned();
        expect(report.is_ok(), || format!("{}: {text}", ran.status))?;
        expect(text.contains("cachestat"), || text)?;
        self.cluster.node(0).stop()?;
        let answer = said(&filtered(&hayloft).args(&live).output()?, 1)?;
        expect(answer.starts_with("no: data transfer at "), || answer)?;
        let answer = said(&filtered(&hayloft).args(&swap).output()?, 0)?;
        expect(answer.starts_with("yes: "), || answer.clone())?;
        self.cluster.start_node(0)?;
        passed()
    }

    fn uring(&mut self) -> Result<Outcome> {
        let spec = NodeSpec::new(Kind::Hayloft).conf("hayloft.io.engine", "uring");
        let (refused, log) = self.cluster.refused_node(spec)?;
        expect(refused, || log.clone())?;
        expect(
            log.contains("direct, which does all that uring did"),
            || log,
        )?;
        passed()
    }
}

/// NameNode and nodes are started, looked for and stopped without a descriptor of their processes.
fn up_and_down() -> Result<Outcome> {
    let dir = scratch("oldkernel-up-")?;
    let state = dir.path().display().to_string();
    let hayloft = hayloft_binary()?;
    let run = |words: &[&str]| {
        let all = [words, &["--state", &state, "--json"]].concat();
        filtered(&hayloft).args(&all).output()
    };
    let small = ["--nodes", "1", "--no-tour", "--namenode-heap", "192"];
    let up = run(&[&["up"], &small[..]].concat());
    let status = run(&["status"]);
    let down = run(&["down"]);
    said(&up?, 0)?;
    said(&status?, 0)?;
    said(&down?, 0)?;
    let after = run(&["status"])?;
    let after = said(&after, 1)?;
    expect(!after.contains("\"running\": true"), || after.clone())?;
    passed()
}
