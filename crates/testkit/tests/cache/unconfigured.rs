//! What the cache, files in memory first, short-circuit reads and the disk balancer cost a node
//! that is not configured for them: no thread, no descriptor, no mapping and no system call.
//!
//! The same directories are a node's in turn as they come (the disk balancer is on), with all of it
//! off, and with all of it on, which shows that this test would see a difference.

use super::{BLOCK, LOCKED, SOON};
use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::scratch;
use hayloft_testkit::node::Kind;
use hayloft_testkit::suite::{expect, expect_eq, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Cluster, Driver, NodeSpec, Outcome, TestkitError};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Blocks that are written and read while system calls are counted, and how often.
const BLOCKS: u64 = 2;
const READS: u64 = 10;
/// How long an idle node is watched: several heartbeats.
const IDLE: Duration = Duration::from_secs(10);
/// System calls that only these features make.
const THEIRS: [&str; 5] = ["mlock", "mlock2", "munlock", "mincore", "memfd_create"];
/// Those of reads and writes. Others are made for what comes from time to time.
const OF_DATA: [&str; 7] = [
    "accept4", "pread64", "preadv2", "readv", "recvfrom", "sendfile", "sendto",
];
/// System calls whose number is chance: waiting, waking, and memory of the allocator.
const BY_CHANCE: [&str; 9] = [
    "epoll_pwait",
    "epoll_pwait2",
    "epoll_wait",
    "futex",
    "madvise",
    "poll",
    "ppoll",
    "restart_syscall",
    "sched_yield",
];

/// Things by name, with how many there are.
type Counts = BTreeMap<String, u64>;

fn count(names: impl Iterator<Item = String>) -> Counts {
    let mut counts = Counts::new();
    names.for_each(|name| *counts.entry(name).or_default() += 1);
    counts
}

/// What a process has when it is idle.
#[derive(Debug, PartialEq, Eq)]
struct Has {
    threads: Counts,
    descriptors: Counts,
    mapped: Counts,
    /// Domain sockets that listen.
    sockets: usize,
}

impl Has {
    fn of(pid: u32) -> Result<Self> {
        let dir = |name: &str| {
            let path = format!("/proc/{pid}/{name}");
            let listed = fs::read_dir(&path).map_err(TestkitError::file("listing", &path))?;
            Ok(listed.filter_map(|entry| Some(entry.ok()?.path())))
        };
        let name = |path: &Path| fs::read_to_string(path.join("comm")).unwrap_or_default();
        let threads = count(dir("task")?.map(|thread| name(&thread).trim().to_owned()));
        let targets: Vec<String> = dir("fd")?
            .filter_map(|fd| Some(fs::read_link(fd).ok()?.display().to_string()))
            .collect();
        let path = format!("/proc/{pid}/maps");
        let maps = fs::read_to_string(&path).map_err(TestkitError::file("reading", &path))?;
        let file = |line: &str| line.find('/').map(|at| line[at..].to_owned());
        let unix = fs::read_to_string("/proc/net/unix").unwrap_or_default();
        let listens = |line: &&str| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            // Flags __SO_ACCEPTCON; the inode is the seventh.
            fields.get(3) == Some(&"00010000")
                && fields
                    .get(6)
                    .is_some_and(|inode| targets.contains(&format!("socket:[{inode}]")))
        };
        Ok(Self {
            sockets: unix.lines().filter(listens).count(),
            // The number of a socket says nothing. Threads that send keep a pipe, by chance.
            descriptors: count(
                targets
                    .iter()
                    .filter(|to| !to.starts_with("pipe:") && *to != "/dev/null")
                    .map(|to| to.split(":[").next().unwrap_or(to).to_owned()),
            ),
            threads,
            mapped: count(maps.lines().filter_map(file)),
        })
    }
}

/// System calls of a process, by name, while this is there.
struct Traced {
    strace: Child,
    out: tempfile::TempDir,
}

impl Traced {
    /// `None` where there is no strace.
    fn begin(pid: u32) -> Result<Option<Self>> {
        let out = scratch("strace-")?;
        let mut command = Command::new("strace");
        command
            .args(["-f", "-c", "-qq", "-o"])
            .arg(out.path().join("out"));
        command.args(["-p", &pid.to_string()]).stderr(Stdio::null());
        let Ok(strace) = command.spawn() else {
            return Ok(None);
        };
        let traced = Self { strace, out };
        wait::until("all threads to be traced", seconds(20), || {
            let path = format!("/proc/{pid}/task");
            let threads = fs::read_dir(&path).map_err(TestkitError::file("listing", &path))?;
            let is_traced = |thread: &fs::DirEntry| {
                let status = fs::read_to_string(thread.path().join("status"));
                !status.unwrap_or_default().contains("TracerPid:\t0\n")
            };
            Ok(match threads.flatten().all(|thread| is_traced(&thread)) {
                true => Seen::Done(()),
                false => Seen::NotYet("not all are".into()),
            })
        })?;
        Ok(Some(traced))
    }

    fn end(mut self) -> Result<Counts> {
        let pid = i32::try_from(self.strace.id())
            .ok()
            .and_then(rustix::process::Pid::from_raw);
        let told = pid.map(|pid| rustix::process::kill_process(pid, rustix::process::Signal::INT));
        expect(matches!(told, Some(Ok(()))), || format!("strace: {told:?}"))?;
        let _ended = self.strace.wait();
        let path = self.out.path().join("out");
        let text = fs::read_to_string(&path).map_err(TestkitError::file("reading", &path))?;
        // % time, seconds, usecs/call, calls, errors if there are any, system call
        let row = |line: &str| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let calls = fields.get(3)?.parse().ok()?;
            let name = fields.last().filter(|name| **name != "total")?;
            Some(((*name).to_owned(), calls))
        };
        Ok(text.lines().filter_map(row).collect())
    }
}

/// How many calls of some names were made.
fn sum(calls: &Counts, is_counted: impl Fn(&str) -> bool) -> u64 {
    let counted = calls.iter().filter(|(name, _)| is_counted(name));
    counted.map(|(_, calls)| calls).sum()
}

/// What one configuration comes to.
#[derive(Debug)]
struct Cost {
    has: Has,
    idle: Option<Counts>,
    busy: Option<Counts>,
}

pub struct Lab {
    fs: Driver,
    cluster: Cluster,
    base: tempfile::TempDir,
}

pub fn start() -> Result<Lab> {
    let cluster = Cluster::builder("unconfigured")
        .node(NodeSpec::new(Kind::under_test()))
        .conf("dfs.blocksize", BLOCK)
        .conf("dfs.replication", 1)
        .start()?;
    let (fs, base) = (cluster.driver()?, scratch("sc-")?);
    Ok(Lab { fs, cluster, base })
}

impl Lab {
    pub fn end(self, failed: bool) {
        self.cluster.conclude(failed);
    }

    /// Starts the node anew; its process.
    fn restart(&mut self, change: impl FnOnce(&mut Self)) -> Result<u32> {
        self.cluster.node(0).stop()?;
        change(self);
        self.cluster.start_node(0)?;
        self.cluster.wait_all_live()?;
        Ok(self.cluster.node(0).process()?.pid())
    }

    /// Starts the node anew and lets it become idle; then what it has, and what it calls.
    fn cost(&mut self, name: &str, change: impl FnOnce(&mut Self)) -> Result<Cost> {
        let pid = self.restart(change)?;
        self.work(&format!("/{name}/first"))?;
        let has = idle(pid)?;
        let tracing = Traced::begin(pid)?;
        thread::sleep(if tracing.is_some() {
            IDLE
        } else {
            Duration::ZERO
        });
        let idle = tracing.map(Traced::end).transpose()?;
        let tracing = Traced::begin(pid)?;
        self.work(&format!("/{name}/second"))?;
        let busy = tracing.map(Traced::end).transpose()?;
        println!("{name}: {has:?}\n  idle {idle:?}\n  busy {busy:?}");
        Ok(Cost { has, idle, busy })
    }

    fn work(&self, path: &str) -> Result<()> {
        self.fs.put(path, BLOCKS * BLOCK, 1, json!({}))?;
        (0..READS).try_for_each(|_| self.fs.check(path, BLOCKS * BLOCK, 1))
    }

    pub fn costs(&mut self) -> Result<Outcome> {
        let off = self.cost("off", |lab| {
            let conf = lab.cluster.node(0).conf_mut();
            conf.set("dfs.disk.balancer.enabled", false);
            conf.set("dfs.datanode.max.locked.memory", 0);
        })?;
        let plain = self.cost("plain", |lab| {
            lab.cluster
                .node(0)
                .conf_mut()
                .set("dfs.disk.balancer.enabled", true);
        })?;
        let on = self.restart(|lab| {
            let socket = lab.base.path().join("dn").display().to_string();
            let memory = lab.base.path().join("memory");
            let node = lab.cluster.node(0);
            node.add_volume(Some("RAM_DISK"), &memory);
            let conf = node.conf_mut();
            conf.set("dfs.datanode.max.locked.memory", LOCKED);
            conf.set("dfs.domain.socket.path", socket);
            conf.set("dfs.client.read.shortcircuit", true);
        })?;
        expect_eq("threads", &plain.has.threads, &off.has.threads)?;
        expect_eq("descriptors", &plain.has.descriptors, &off.has.descriptors)?;
        expect_eq("mapped files", &plain.has.mapped, &off.has.mapped)?;
        let on = Has::of(on)?;
        let sockets = [&off.has, &plain.has, &on].map(|has| has.sockets);
        expect_eq("domain sockets", sockets, [0, 0, 1])?;
        let (Some(busy), Some(idle)) = (plain.busy, plain.idle) else {
            return Ok(Outcome::Skipped(
                "system calls are not counted: no strace".into(),
            ));
        };
        for name in THEIRS {
            let made = busy.get(name).or(idle.get(name));
            expect(made.is_none(), || {
                format!("{name} is called {made:?} times")
            })?;
        }
        let of_data = |name: &str| OF_DATA.contains(&name);
        let not_by_chance = |name: &str| !BY_CHANCE.contains(&name);
        let (off_busy, off_idle) = (off.busy.unwrap_or_default(), off.idle.unwrap_or_default());
        // Pieces of what comes in are as long as chance has it.
        for (what, calls, without) in [
            ("busy", sum(&busy, of_data), sum(&off_busy, of_data)),
            (
                "idle",
                sum(&idle, not_by_chance),
                sum(&off_idle, not_by_chance),
            ),
        ] {
            expect(calls > 0 && calls <= without + without / 5 + 50, || {
                format!("{what}: {calls} system calls, {without} with all of it off")
            })?;
        }
        passed()
    }
}

/// What a process has once it has not changed for a while: threads without work have ended.
fn idle(pid: u32) -> Result<Has> {
    let (mut last, mut since) = (Has::of(pid)?, Instant::now());
    wait::until("an idle node", SOON * 2, || {
        let now = Has::of(pid)?;
        if now != last {
            (last, since) = (now, Instant::now());
        }
        Ok(match since.elapsed() > seconds(20) {
            true => Seen::Done(()),
            false => Seen::NotYet(format!("{last:?}")),
        })
    })?;
    Ok(last)
}
