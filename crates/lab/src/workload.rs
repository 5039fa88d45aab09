//! Clients of a testbed write at the same time, then read at the same time.

use std::time::Duration;

use serde::Serialize;
use serde_json::json;

use super::counters::{HostClocks, cpu_counters, cpu_shares};
use super::describe::WorkloadSpec;
use super::disks::Mounted;
pub use super::phase::WorkloadPhase;
use super::phase::describe;
use super::sample::{Sample, Watch};
use super::up::Testbed;
use super::warm;
use hayloft_testkit::driver::{Driver, PendingCall};
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::machine;

/// No phase takes longer.
pub(super) const PHASE_LIMIT: Duration = Duration::from_secs(900);

/// Most that a client writes and reads in a round that warms up, MiB.
const WARM_UP_MIB: u32 = 256;

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
    run_when(testbed, 0, tell)
}

/// As [`run`], after at most so many rounds of at most 256 MiB a client that do not count: until
/// two in a row take about as much processor time, see [`warm::up`].
///
/// # Errors
/// As [`run`].
pub fn run_warm(
    testbed: &Testbed,
    most: usize,
    tell: &mut dyn FnMut(&str),
) -> Result<WorkloadOutcome> {
    run_when(testbed, most, tell)
}

fn run_when(testbed: &Testbed, most: usize, tell: &mut dyn FnMut(&str)) -> Result<WorkloadOutcome> {
    let clients = start_clients(testbed, tell)?;
    load_classes(&clients)?;
    let watch = Watch::begin(testbed)?;
    let on = (testbed, clients.as_slice(), &watch);
    let workload = &testbed.described().workload;
    let mut is_warm = None;
    if most > 0 {
        let small = WorkloadSpec {
            mib: workload.mib.min(WARM_UP_MIB),
            ..workload.clone()
        };
        is_warm = Some(warm::up(most, |number| {
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
    let ticks = cpu_counters();
    let from = watch.now();
    let moved = clocks.look_during(work)?;
    let to = watch.now();
    let (cpu, cpu_low) = cpu_shares(ticks, cpu_counters());
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
        links_mbs: Vec::new(),
        cpu,
        cpu_low,
        host_cpu_s: times().map(|(a, b)| b.used - a.used).collect(),
        host_waited_s: times().map(|(a, b)| b.waited - a.waited).collect(),
        bytes,
        model: disks().filter_map(Mounted::seen).collect(),
        span: (from, to),
    })
}
