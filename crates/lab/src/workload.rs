//! Clients of a testbed write at the same time, then read at the same time.

use std::time::Duration;

use serde::Serialize;
use serde_json::json;

use super::counters::{self, HostClocks};
use super::describe::WorkloadSpec;
use super::disks::{DiskCounters, Mounted};
use super::sample::{Sample, Watch};
use super::up::Testbed;
use super::warm;
use hayloft_testkit::driver::{Driver, PendingCall};
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::machine;

/// No phase takes longer.
pub(super) const PHASE_LIMIT: Duration = Duration::from_secs(900);

/// Clients and nodes that wait for a processor for a smaller share of the time in which they could
/// go on are not held up by it.
pub(super) const WAITED_LITTLE: f64 = 0.2;
/// Most that a client writes and reads in a round that warms up, MiB.
const WARM_UP_MIB: u32 = 256;

/// What one phase of one round gave.
#[derive(Clone, Debug, Serialize)]
pub struct WorkloadPhase {
    /// One of [`WHATS`].
    pub what: &'static str,
    /// Counted from 0.
    pub round: usize,
    /// MB/s of all clients together: all bytes over the time until the last one was done.
    pub mbs: f64,
    /// Bytes of all clients.
    pub bytes: u64,
    /// MB/s of each client.
    pub client_mbs: Vec<f64>,
    /// Mean utilisation of each disk, 0 to 1.
    pub disk_busy: Vec<f64>,
    /// Share of the time in which two streams were on one disk while another had none, 0 to 1.
    pub conflicts: f64,
    /// Mean MB/s on the busiest storage link.
    pub link_mbs: f64,
    /// Mean share of the processors in use, 0 to 1, without what ran at a lower priority.
    pub cpu: f64,
    /// Mean share of the processors that ran at a lower priority: others' work.
    pub cpu_low: f64,
    /// Processor seconds of each host's processes, in the order of the description.
    pub host_cpu_s: Vec<f64>,
    /// Seconds that they waited for a processor meanwhile, all threads together.
    pub host_waited_s: Vec<f64>,
    /// What each modelled disk says of itself.
    pub model: Vec<DiskCounters>,
    /// Seconds after watching began: begin and end.
    pub span: (f64, f64),
}

/// Kinds of phases: a client reads its own file, or the next client's.
pub const WHATS: [&str; 3] = ["write", "read", "read other"];

/// Everything that a run gave.
#[derive(Clone, Debug, Serialize)]
pub struct WorkloadOutcome {
    /// `host.node/disk` of every disk.
    pub disks: Vec<String>,
    /// Every phase.
    pub phases: Vec<WorkloadPhase>,
    /// Every look at disks, links and processors.
    pub samples: Vec<Sample>,
    /// Whether clients and nodes were warm before it began; `None` when that was not asked for.
    pub warm: Option<bool>,
}

/// Carries out the workload of the testbed's description.
///
/// # Errors
/// When a client fails, or reads something else than was written.
pub fn run(testbed: &Testbed, tell: &mut dyn FnMut(&str)) -> Result<WorkloadOutcome> {
    run_when(testbed, false, tell)
}

/// As [`run`], after rounds of at most 256 MiB a client that do not count: until two in a row take
/// about as much processor time, see [`warm::up`].
///
/// # Errors
/// As [`run`].
pub fn run_warm(testbed: &Testbed, tell: &mut dyn FnMut(&str)) -> Result<WorkloadOutcome> {
    run_when(testbed, true, tell)
}

fn run_when(testbed: &Testbed, warm: bool, tell: &mut dyn FnMut(&str)) -> Result<WorkloadOutcome> {
    let clients = start_clients(testbed, tell)?;
    load_classes(&clients)?;
    let watch = Watch::begin(testbed)?;
    let on = (testbed, clients.as_slice(), &watch);
    let workload = &testbed.described().workload;
    let mut is_warm = None;
    if warm {
        let small = WorkloadSpec {
            mib: workload.mib.min(WARM_UP_MIB),
            ..workload.clone()
        };
        is_warm = Some(warm::up(|number| {
            let phases = round(on, &small, number, &mut |what| {
                tell(&format!("warming up, {what}"));
            })?;
            Ok(phases.iter().map(WorkloadPhase::cpu_s).sum())
        })?);
    }
    let mut phases = Vec::new();
    for number in 0..workload.rounds {
        phases.extend(round(on, workload, number, tell)?);
    }
    Ok(WorkloadOutcome {
        warm: is_warm,
        ..outcome(watch, phases)
    })
}

/// Resident clients on the hosts that the description has for them.
///
/// # Errors
/// When no host is a client's, or one does not start.
pub(super) fn start_clients(testbed: &Testbed, tell: &mut dyn FnMut(&str)) -> Result<Vec<Driver>> {
    let described = testbed.described();
    let hosts: Vec<&str> = described
        .hosts()
        .filter(|(_, host)| host.client)
        .map(|(_, host)| host.name.as_str())
        .take(described.clients())
        .collect();
    if hosts.is_empty() {
        return Err(TestkitError::Expectation(
            "no host has client = true: no client can run the workload".into(),
        ));
    }
    tell(&format!("starting {} clients", hosts.len()));
    hosts.iter().map(|host| testbed.client(host)).collect()
}

/// Ends watching; what was seen goes to the phases.
pub(super) fn outcome(watch: Watch, mut phases: Vec<WorkloadPhase>) -> WorkloadOutcome {
    let disks = watch.disk_names().to_vec();
    let samples = watch.end();
    for phase in &mut phases {
        describe(phase, &samples);
    }
    WorkloadOutcome {
        disks,
        phases,
        samples,
        warm: None,
    }
}

/// Makes reads cold, for every peer alike.
///
/// # Errors
/// When this is not root's process.
pub(super) fn empty_page_cache() -> Result<()> {
    if machine::drop_caches() {
        return Ok(());
    }
    Err(TestkitError::Talk(
        "the page cache cannot be emptied: be root".into(),
    ))
}

/// A testbed, its clients, and what watches it.
pub(super) type On<'a> = (&'a Testbed, &'a [Driver], &'a Watch);

/// All write, then read, then remove what they wrote.
fn round(
    on: On<'_>,
    workload: &WorkloadSpec,
    round: usize,
    tell: &mut dyn FnMut(&str),
) -> Result<Vec<WorkloadPhase>> {
    tell(&format!("round {}: writing", round + 1));
    let mut phases = vec![write(on, workload, round)?];
    let reads: &[(&'static str, usize)] = match workload.read.as_str() {
        "none" => &[],
        "other" => &[("read other", 1)],
        "both" => &[("read", 0), ("read other", 1)],
        _ => &[("read", 0)],
    };
    for (what, shift) in reads {
        empty_page_cache()?;
        tell(&format!("round {}: {what}", round + 1));
        phases.push(read(on, workload, round, (what, *shift))?);
    }
    for (at, client) in on.1.iter().enumerate() {
        client.fs(&["-rm", "-r", "-skipTrash", &path(round, at)])?;
    }
    Ok(phases)
}

/// A little of everything, so that the first round does not load classes.
fn load_classes(clients: &[Driver]) -> Result<()> {
    let begun: Vec<PendingCall> = clients
        .iter()
        .enumerate()
        .map(|(at, client)| {
            let path = format!("/warm-up/c{at}");
            client.begin(
                "writeStreams",
                json!({"path": path, "streams": 1, "bytes": 8 << 20, "replication": 1, "blockSize": 4 << 20}),
            )
        })
        .collect::<Result<_>>()?;
    begun.into_iter().try_for_each(|p| p.wait().map(drop))?;
    for (at, client) in clients.iter().enumerate() {
        client.call(
            "readStreams",
            json!({"path": format!("/warm-up/c{at}"), "streams": 1}),
        )?;
    }
    clients[0]
        .fs(&["-rm", "-r", "-skipTrash", "/warm-up"])
        .map(drop)
}

/// Where a client has what it wrote in a round.
pub(super) fn path(round: usize, client: usize) -> String {
    format!("/run/r{round}/c{client}")
}

/// All clients write as the workload says.
///
/// # Errors
/// When one fails.
pub(super) fn write(
    (testbed, clients, watch): On<'_>,
    workload: &WorkloadSpec,
    round: usize,
) -> Result<WorkloadPhase> {
    let begin = |(at, client): (usize, &Driver)| {
        let request = json!({
            "path": path(round, at),
            "streams": workload.streams,
            "bytes": u64::from(workload.mib) << 20,
            "replication": workload.replication,
            "blockSize": u64::from(workload.block_mib) << 20,
        });
        client.begin("writeStreams", request)
    };
    observe(testbed, ("write", round), watch, || {
        moved(clients.iter().enumerate().map(begin).collect())
    })
}

fn read(
    (testbed, clients, watch): On<'_>,
    workload: &WorkloadSpec,
    round: usize,
    (what, shift): (&'static str, usize),
) -> Result<WorkloadPhase> {
    let begin = |(at, client): (usize, &Driver)| {
        let whose = (at + shift) % clients.len();
        client.begin(
            "readStreams",
            json!({"path": path(round, whose), "streams": workload.streams}),
        )
    };
    observe(testbed, (what, round), watch, || {
        moved(clients.iter().enumerate().map(begin).collect())
    })
}

/// What a client moved.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moved {
    /// So much.
    pub bytes: u64,
    /// In this time.
    pub nanos: u64,
}

/// What clients answer when they are done; an error also when one read what was not written.
pub(super) fn moved(begun: Result<Vec<PendingCall>>) -> Result<Vec<Moved>> {
    let answer = |pending: PendingCall| {
        let answer = pending.wait_at_most(PHASE_LIMIT)?;
        if answer["equal"].as_bool() == Some(false) {
            return Err(TestkitError::Expectation(
                "a client read something else than was written".into(),
            ));
        }
        Ok(Moved {
            bytes: answer["bytes"].as_u64().unwrap_or(0),
            nanos: answer["nanos"].as_u64().unwrap_or(u64::MAX),
        })
    };
    begun?.into_iter().map(answer).collect()
}

/// Has clients do `work`, and what it took; what was seen meanwhile, [`outcome`] fills in.
///
/// # Errors
/// Those of `work`.
#[expect(clippy::cast_precision_loss, reason = "rates for people")]
pub(super) fn observe(
    testbed: &Testbed,
    (what, round): (&'static str, usize),
    watch: &Watch,
    work: impl FnOnce() -> Result<Vec<Moved>>,
) -> Result<WorkloadPhase> {
    let disks = || testbed.nodes().iter().flat_map(|node| &node.disks);
    disks().for_each(Mounted::forget_seen);
    let mut clocks = HostClocks::of(testbed.described());
    let before = clocks.look();
    let from = watch.now();
    let moved = clocks.look_during(work)?;
    let to = watch.now();
    let after = clocks.look();
    let times = || before.iter().zip(&after);
    let bytes = moved.iter().map(|m| m.bytes).sum();
    let rate = |m: &Moved| m.bytes as f64 / 1e6 / (m.nanos as f64 / 1e9);
    Ok(WorkloadPhase {
        what,
        round,
        mbs: bytes as f64 / 1e6 / (to - from),
        client_mbs: moved.iter().map(rate).collect(),
        disk_busy: Vec::new(),
        conflicts: 0.0,
        link_mbs: 0.0,
        cpu: 0.0,
        cpu_low: 0.0,
        host_cpu_s: times().map(|(a, b)| b.used - a.used).collect(),
        host_waited_s: times().map(|(a, b)| b.waited - a.waited).collect(),
        bytes,
        model: disks().filter_map(Mounted::seen).collect(),
        span: (from, to),
    })
}

/// Fills in what was seen during a phase.
#[expect(
    clippy::cast_precision_loss,
    reason = "shares of a few thousand samples"
)]
fn describe(phase: &mut WorkloadPhase, samples: &[Sample]) {
    let (from, to) = phase.span;
    let seen: Vec<&Sample> = samples
        .iter()
        .filter(|s| s.at > from && s.at <= to)
        .collect();
    let Some(first) = seen.first() else { return };
    let mean = |of: &dyn Fn(&Sample) -> f64| {
        seen.iter().map(|sample| of(sample)).sum::<f64>() / seen.len() as f64
    };
    phase.disk_busy = (0..first.disks.len())
        .map(|at| mean(&|s: &Sample| s.disks[at].busy))
        .collect();
    phase.link_mbs = (0..first.links_mbs.len())
        .map(|at| mean(&|s: &Sample| s.links_mbs[at]))
        .fold(0.0, f64::max);
    phase.cpu = mean(&|s: &Sample| s.cpu);
    phase.cpu_low = mean(&|s: &Sample| s.cpu_low);
    let active = seen.iter().filter(|sample| sample.is_active()).count();
    let conflicts = seen.iter().filter(|sample| sample.is_conflict()).count();
    phase.conflicts = conflicts as f64 / active.max(1) as f64;
}

impl WorkloadPhase {
    /// Processor seconds of clients and nodes.
    #[must_use]
    pub fn cpu_s(&self) -> f64 {
        self.host_cpu_s.iter().sum()
    }

    /// Share of the time in which clients and nodes wanted a processor and waited for one, 0 to 1:
    /// what tells whether processors were the limit, whichever process used them.
    #[must_use]
    pub fn waited(&self) -> f64 {
        counters::waited_share(self.cpu_s(), self.host_waited_s.iter().sum())
    }

    /// What limited this phase, as far as the figures tell. Processors that others kept busy were
    /// no limit as long as clients and nodes got one nearly whenever they wanted.
    #[must_use]
    pub fn limit(&self, link_mbit: u32) -> &'static str {
        let link = self.link_mbs * 8.0 / f64::from(link_mbit);
        let disk = self.disk_busy.iter().copied().fold(0.0, f64::max);
        let told = self.host_waited_s.iter().any(|waited| *waited > 0.0);
        let processors = if told && self.waited() < WAITED_LITTLE {
            0.0
        } else {
            self.cpu
        };
        let most = [
            ("processors", processors),
            ("a link", link),
            ("a disk", disk),
        ];
        let most = most.into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
        match most {
            Some((what, share)) if share > 0.8 => what,
            _ => "none above 80 %",
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A phase with these shares and seconds of processors.
    pub(in super::super) fn phase(cpu: f64, used: f64, waited: f64) -> WorkloadPhase {
        WorkloadPhase {
            what: "write",
            round: 0,
            mbs: 1.0,
            bytes: 1,
            client_mbs: Vec::new(),
            disk_busy: vec![0.85],
            conflicts: 0.0,
            link_mbs: 1.0,
            cpu,
            cpu_low: 0.0,
            host_cpu_s: vec![used],
            host_waited_s: vec![waited],
            model: Vec::new(),
            span: (0.0, 1.0),
        }
    }

    #[test]
    fn busy_processors_are_the_limit_only_for_those_who_wait() {
        assert_eq!(phase(0.95, 1.0, 1.0).limit(100), "processors");
        assert_eq!(phase(0.95, 1.0, 0.1).limit(100), "a disk", "others' work");
        assert_eq!(phase(0.95, 1.0, 0.0).limit(100), "processors", "not told");
        assert_eq!(phase(0.50, 1.0, 1.0).limit(100), "a disk");
    }
}
