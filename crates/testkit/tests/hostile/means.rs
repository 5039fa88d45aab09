//! A node that lacks descriptors, threads or memory under load: no volume or replica is to blame
//! for it, NameNodes hear from it all the time, and afterwards all is served again.

use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::hayloft_binary;
use hayloft_testkit::node::{Kind, NodeSpec};
use hayloft_testkit::suite::{expect, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Cluster, Driver, Outcome, Suite, TestkitError, http, ports, process_usage};
use serde_json::{Value, json};
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

/// Bytes of a file, one block.
const FILE: u64 = 1 << 20;
/// Clients at once.
const WRITERS: u64 = 60;
const READERS: u64 = 20;
/// Files that are there before.
const KEPT: u64 = 8;
/// How long the node lacks something. Less than it waits for memory.
const LACKING: Duration = Duration::from_secs(6);
/// Heartbeats come every second.
const SILENT_S: u64 = 10;

pub fn cases(suite: &mut Suite) {
    let mut on = suite.group(|| Squeezed::start(None), Squeezed::conclude);
    // First: the threads of an earlier case would be enough for this one.
    on.case("means_threads_taken_away", |lab| {
        lab.run(Some("threads"), few_threads)
    });
    on.case("means_descriptors_taken_away", |lab| {
        lab.run(Some("descriptors"), few_files)
    });
    on.case("means_memory_taken_away", |lab| {
        lab.run(None, little_memory)
    });
    let mut on = suite.group(|| Squeezed::start(Some(64)), Squeezed::conclude);
    on.case("means_64_descriptors_and_60_writers", |lab| {
        let outcome = lab.run(None, |_, _| Ok(None))?;
        lab.says_what_it_needs()?;
        Ok(outcome)
    });
}

/// The node under test, for threads that watch or squeeze it.
#[derive(Clone, Copy)]
struct Watched {
    pid: u32,
    web: SocketAddr,
    namenode: SocketAddr,
}

struct Squeezed {
    cluster: Cluster,
    fs: Driver,
    node: Watched,
    /// Loads so far.
    round: u64,
}

/// A program that runs the node with so many descriptors.
fn limited(dir: &Path, files: u64) -> Result<PathBuf> {
    let (path, node) = (dir.join("limited"), hayloft_binary()?);
    let node = node.display();
    let text = format!("#!/bin/sh\nexec prlimit --nofile={files}:{files} '{node}' \"$@\"\n");
    let mode = fs::Permissions::from_mode(0o755);
    fs::write(&path, text)
        .and_then(|()| fs::set_permissions(&path, mode))
        .map_err(TestkitError::file("writing", &path))?;
    Ok(path)
}

impl Squeezed {
    fn start(files: Option<u64>) -> Result<Self> {
        let dir = tempfile::tempdir().map_err(TestkitError::file("making", "a directory"))?;
        let mut spec = NodeSpec::new(Kind::Hayloft)
            // A broken volume would end it.
            .conf("dfs.datanode.failed.volumes.tolerated", 0)
            .conf("dfs.datanode.disk.check.min.gap", "0s")
            .conf("dfs.block.scanner.volume.bytes.per.second", 64 << 20);
        spec.binary = files.map(|files| limited(dir.path(), files)).transpose()?;
        let name = if files.is_some() {
            "means-few"
        } else {
            "means"
        };
        let mut cluster = Cluster::builder(name)
            .node(spec)
            .conf("dfs.blocksize", FILE)
            .conf("dfs.replication", 1)
            .conf("dfs.heartbeat.interval", 1)
            .start()?;
        let fs = cluster.driver()?;
        for n in 0..KEPT {
            fs.put(&format!("/kept-{n}"), FILE, n, json!({}))?;
        }
        let namenode = ports::local(cluster.namenode(0).http_port());
        let node = cluster.node(0);
        let web = ports::local(node.http_port());
        let pid = node.process()?.pid();
        Ok(Self {
            cluster,
            fs,
            node: Watched { pid, web, namenode },
            round: 0,
        })
    }

    fn conclude(self, failed: bool) {
        self.cluster.conclude(failed);
    }

    /// Clients of both kinds at once. None of them need be served.
    fn clients(&mut self) -> Result<()> {
        self.round += 1;
        let mut calls = Vec::new();
        for n in 0..WRITERS {
            let path = format!("/load-{}-{n}", self.round);
            let put = json!({"path": path, "bytes": FILE, "seed": n});
            calls.push(self.fs.begin("put", put)?);
        }
        for n in 0..READERS {
            let file = n % KEPT;
            let read = json!({"path": format!("/kept-{file}"), "seed": file});
            calls.push(self.fs.begin("read", read)?);
        }
        let all = calls.len();
        let served = calls
            .into_iter()
            .filter_map(|call| call.wait().ok())
            .count();
        println!("{served} of {all} clients were served");
        Ok(())
    }

    /// Clients, while `squeeze` takes something away and gives it back; `lacking` is counted.
    fn run(
        &mut self,
        lacking: Option<&str>,
        squeeze: fn(Watched, Sender<()>) -> Result<Option<String>>,
    ) -> Result<Outcome> {
        let node = self.node;
        let before = lacking.map(|what| node.shortages(what)).transpose()?;
        let over = AtomicBool::new(false);
        let (skipped, silent) = std::thread::scope(|scope| {
            let watch = scope.spawn(|| node.longest_silence(&over));
            let (ready, begin) = channel();
            let squeezing = scope.spawn(move || squeeze(node, ready));
            // It is ready, or has given up.
            let _ = begin.recv();
            let load = self.clients();
            let squeezed = squeezing.join().expect("does not panic");
            let served = load.and_then(|()| self.all_is_served());
            over.store(true, Ordering::Relaxed);
            let silent = watch.join().expect("does not panic");
            served.and(Ok((squeezed?, silent)))
        })?;
        if let Some(why) = skipped {
            return Ok(Outcome::Skipped(why));
        }
        expect(silent < SILENT_S, || {
            format!("the NameNode heard nothing for {silent} s")
        })?;
        if let (Some(what), Some(before)) = (lacking, before) {
            let now = node.shortages(what)?;
            expect(now > before, || {
                format!("no shortage of {what} was counted")
            })?;
        }
        self.nothing_is_to_blame()?;
        passed()
    }

    /// Within a minute: files of before, and a new one.
    fn all_is_served(&mut self) -> Result<()> {
        self.cluster.node(0).process()?.check_alive()?;
        let fs = &self.fs;
        wait::until("all to be served again", seconds(60), || {
            let put = fs.put("/after", FILE, 99, json!({}));
            let read = put.and_then(|()| fs.check("/after", FILE, 99));
            let kept = read.and_then(|()| {
                (0..KEPT).try_for_each(|n| fs.check(&format!("/kept-{n}"), FILE, n))
            });
            Ok(match kept {
                Ok(()) => Seen::Done(()),
                Err(error) => Seen::NotYet(error.to_string()),
            })
        })
    }

    /// No volume failed, no replica was reported bad, and the log has a few lines of it.
    fn nothing_is_to_blame(&mut self) -> Result<()> {
        let prom = http::get(self.node.web, "/prom")?;
        expect(prom.contains("\nhayloft_failed_volumes 0\n"), || {
            "a volume has failed".into()
        })?;
        for (bean, name, wanted) in [
            ("FSNamesystem", "CorruptBlocks", 0),
            ("FSNamesystemState", "NumLiveDataNodes", 1),
            ("FSNamesystemState", "VolumeFailuresTotal", 0),
        ] {
            let count = self.cluster.namenode_bean(0, bean)?[name].as_u64();
            expect(count == Some(wanted), || format!("{name} is {count:?}"))?;
        }
        let log = self.log()?;
        for words in [
            "volume has failed",
            "damaged",
            "panicked",
            "no longer served",
        ] {
            expect(!log.contains(words), || format!("the log says {words}"))?;
        }
        let said = log.matches("the process lacks something").count();
        expect(said <= 12, || format!("said {said} times"))?;
        let lines = log.matches("os error 24").count() + log.matches("os error 11").count();
        expect(lines < 40, || format!("{lines} lines about single errors"))
    }

    fn log(&self) -> Result<String> {
        let log = self
            .cluster
            .nodes()
            .next()
            .map(hayloft_testkit::node::Node::log);
        let log = log.ok_or_else(|| TestkitError::Talk("no node".into()))?;
        let text = fs::read(&log).map_err(TestkitError::file("reading", &log))?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// The start names the limit, what would be enough, and the key.
    fn says_what_it_needs(&self) -> Result<()> {
        let log = self.log()?;
        let line = log
            .lines()
            .find(|line| line.contains("open files are limited to 64"));
        let names_key = |line: &str| line.contains("dfs.datanode.max.transfer.threads = 4096");
        expect(line.is_some_and(names_key), || {
            "the start says nothing of its limit".into()
        })
    }
}

impl Watched {
    /// How often the node has lacked something.
    fn shortages(self, what: &str) -> Result<u64> {
        let prom = http::get(self.web, "/prom")?;
        let name = format!("hayloft_shortages_total{{what=\"{what}\"}} ");
        let line = prom.lines().find_map(|line| line.strip_prefix(&name));
        let count = line.and_then(|count| count.parse().ok());
        count.ok_or_else(|| TestkitError::Talk(format!("no {name} at the web port")))
    }

    /// Seconds for which the NameNode heard nothing of its node, at most, until it is `over`.
    fn longest_silence(self, over: &AtomicBool) -> u64 {
        let mut longest = 0;
        while !over.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(500));
            let query = "Hadoop:service=NameNode,name=NameNodeInfo";
            // The NameNode may be busy; what it says next counts.
            let Ok(bean) = http::jmx(self.namenode, query) else {
                continue;
            };
            let live = bean["LiveNodes"].as_str().unwrap_or_default();
            let nodes: Value = serde_json::from_str(live).unwrap_or_default();
            let of = |node: &Value| node["lastContact"].as_u64();
            let last = nodes
                .as_object()
                .and_then(|nodes| nodes.values().find_map(of));
            longest = longest.max(last.unwrap_or(u64::MAX));
        }
        longest
    }

    /// Sets a soft limit; the one before.
    fn limit(self, what: Limit, to: &str) -> Result<String> {
        let path = format!("/proc/{}/limits", self.pid);
        let text = fs::read_to_string(&path).map_err(TestkitError::file("reading", &path))?;
        let line = text.lines().find_map(|line| line.strip_prefix(what.title));
        let before = line.and_then(|line| line.split_whitespace().next());
        let before = before.ok_or_else(|| TestkitError::Talk(format!("no {}", what.title)))?;
        let pid = self.pid.to_string();
        let set = format!("--{}={to}:", what.option);
        let done = Command::new("prlimit").args(["--pid", &pid, &set]).status();
        let done = done.map_err(TestkitError::file("running", "prlimit"))?;
        expect(done.success(), || format!("prlimit {set}: {done}"))?;
        Ok(before.to_owned())
    }
}

/// A limit of a process: its name in `/proc`, and for prlimit(1).
#[derive(Clone, Copy)]
struct Limit {
    title: &'static str,
    option: &'static str,
}

const FILES: Limit = Limit {
    title: "Max open files",
    option: "nofile",
};
const ADDRESSES: Limit = Limit {
    title: "Max address space",
    option: "as",
};

/// A limit that is lower, until this is dropped.
struct Lowered(Watched, Limit, String);

impl Lowered {
    fn to(node: Watched, what: Limit, limit: u64) -> Result<Self> {
        let before = node.limit(what, &limit.to_string())?;
        Ok(Self(node, what, before))
    }
}

impl Drop for Lowered {
    fn drop(&mut self) {
        let _ = self.0.limit(self.1, &self.2);
    }
}

/// No more descriptors than the node has when the clients begin.
fn few_files(node: Watched, ready: Sender<()>) -> Result<Option<String>> {
    let usage = process_usage::usage(node.pid)?;
    let now = (usage.descriptors + usage.pipes) as u64;
    let _lowered = Lowered::to(node, FILES, now + 4)?;
    let _ = ready.send(());
    std::thread::sleep(LACKING);
    Ok(None)
}

/// A little more memory than it has mapped.
fn little_memory(node: Watched, ready: Sender<()>) -> Result<Option<String>> {
    let path = format!("/proc/{}/statm", node.pid);
    let text = fs::read_to_string(&path).map_err(TestkitError::file("reading", &path))?;
    let pages = text.split(' ').next().and_then(|n| n.parse::<u64>().ok());
    let mapped = pages.unwrap_or(0) * rustix::param::page_size() as u64;
    let _lowered = Lowered::to(node, ADDRESSES, mapped + (1 << 20))?;
    let _ = ready.send(());
    std::thread::sleep(LACKING);
    Ok(None)
}

/// No thread more than it has, by a control group: root's processes have no other limit.
fn few_threads(node: Watched, ready: Sender<()>) -> Result<Option<String>> {
    let group = PathBuf::from(format!("/sys/fs/cgroup/pids/hayloft-means-{}", node.pid));
    if fs::create_dir(&group).is_err() {
        return Ok(Some(
            "there is no control group for processes (pids)".into(),
        ));
    }
    let write = |file: &str, text: &str| {
        let path = group.join(file);
        fs::write(&path, text).map_err(TestkitError::file("writing", &path))
    };
    let squeezed = write("cgroup.procs", &node.pid.to_string()).and_then(|()| {
        write("pids.max", "1")?;
        let _ = ready.send(());
        std::thread::sleep(LACKING);
        write("pids.max", "max")
    });
    let root = Path::new("/sys/fs/cgroup/pids/cgroup.procs");
    let _ = fs::write(root, node.pid.to_string());
    let _ = fs::remove_dir(&group);
    squeezed.map(|()| None)
}
