//! One measurement: what the nodes, the client, the machine and the device did while a load ran.

use super::fair::counters;
use super::figures::{Figure, Figures};
use super::rows::BenchWorkload;
use super::scraped::Scraper;
use super::trace::{Requests, Tracer};
use hayloft_testkit::error::Result;
use hayloft_testkit::load::{LoadLatencies, LoadOutcome};
use hayloft_testkit::machine::{self, Device};
use hayloft_testkit::process_usage::{self, Usage};
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

const MIB: f64 = (1_u64 << 20) as f64;
const GIB: f64 = (1_u64 << 30) as f64;

/// Whom to look at.
#[derive(Debug)]
pub(super) struct Watch<'a> {
    /// Process ids of the peer's nodes.
    pub(super) nodes: &'a [u32],
    /// Process id of the client.
    pub(super) client: u32,
    /// Web ports of nodes that are scraped meanwhile.
    pub(super) scraped: &'a [SocketAddr],
    /// The device, when it can be traced.
    pub(super) tracer: Option<&'a Tracer>,
    /// The file system whose dirty pages belong to the load.
    pub(super) disk: &'a Path,
}

/// Everything counted so far.
struct Counts {
    nodes: Usage,
    client: Usage,
    machine_s: f64,
    waited_s: f64,
    /// Milliseconds in which the device had a request; `None` where there is none.
    disk_ms: Option<u64>,
    at: Instant,
}

impl Watch<'_> {
    fn counts(&self) -> Result<Counts> {
        let mut sum = Usage::default();
        for &pid in self.nodes {
            let usage = process_usage::usage(pid)?;
            sum.user_s += usage.user_s;
            sum.system_s += usage.system_s;
            sum.rss_peak_kib = sum.rss_peak_kib.max(usage.rss_peak_kib);
        }
        Ok(Counts {
            nodes: sum,
            client: process_usage::usage(self.client)?,
            machine_s: machine::busy_seconds()?,
            waited_s: self
                .nodes
                .iter()
                .chain([&self.client])
                .map(|pid| counters::waited_s(*pid))
                .sum(),
            disk_ms: Device::under(self.disk)
                .ok()
                .map(|device| counters::device(&device.name).2),
            at: Instant::now(),
        })
    }

    /// Runs `load` and measures it; writes until they are on the device.
    ///
    /// # Errors
    /// Those of the load, and when a process has gone.
    pub(super) fn run(
        &self,
        workload: BenchWorkload,
        load: impl FnOnce() -> Result<LoadOutcome>,
    ) -> Result<Figures> {
        for &pid in self.nodes {
            process_usage::reset_peak(pid);
        }
        if let Some(tracer) = self.tracer {
            tracer.begin()?;
        }
        let agent = (!self.scraped.is_empty()).then(|| Scraper::start(self.scraped.to_vec()));
        let before = self.counts()?;
        let outcome = load();
        let settling = Instant::now();
        let settles = workload.settles();
        if settles && outcome.is_ok() {
            machine::settle(self.disk)?;
        }
        let settled = outcome.as_ref().map(|o| o.took).unwrap_or_default() + settling.elapsed();
        let traffic = self.tracer.map(Tracer::end).transpose()?;
        let outcome = outcome?;
        let after = self.counts()?;
        drop(agent);
        let mut figures = Figures::new();
        speed(&mut figures, &outcome, workload);
        if settles {
            figures.insert(Figure::SettledRate, rate(outcome.tally.bytes, settled));
        }
        let gib = as_f64(outcome.tally.bytes) / GIB;
        let (nodes, earlier) = (after.nodes, before.nodes);
        let user = (nodes.user_s - earlier.user_s) / gib;
        let system = (nodes.system_s - earlier.system_s) / gib;
        let client = cpu(&after.client) - cpu(&before.client);
        figures.extend([
            (Figure::NodeUser, user),
            (Figure::NodeSystem, system),
            (Figure::NodeCpu, user + system),
            (Figure::ClientCpu, client / gib),
            (
                Figure::MachineCpu,
                (after.machine_s - before.machine_s) / gib,
            ),
            (Figure::MemoryPeak, as_f64(nodes.rss_peak_kib) / 1024.0),
        ]);
        shares(&mut figures, &before, &after, workload.streams());
        figures.retain(|figure, _| workload.is_done_by_a_node() || !figure.is_of_nodes_cpu());
        if let Some(traffic) = traffic.filter(|traffic| traffic.lost == 0) {
            let main = if settles {
                traffic.writes
            } else {
                traffic.reads
            };
            let all = traffic.reads.count + traffic.writes.count;
            figures.insert(Figure::Requests, as_f64(all) / gib);
            figures.insert(Figure::Seeks, as_f64(traffic.seeks) / gib);
            requests(&mut figures, &main);
        }
        Ok(figures)
    }
}

/// What was in use meanwhile, as shares of the wall time.
fn shares(figures: &mut Figures, before: &Counts, after: &Counts, streams: Option<u32>) {
    let wall = (after.at - before.at).as_secs_f64().max(1e-9);
    let busy = (after.machine_s - before.machine_s) / wall / counters::processors();
    let own = cpu(&after.nodes) - cpu(&before.nodes);
    figures.extend([
        (Figure::CpuShare, busy.clamp(0.0, 1.0)),
        (
            Figure::Waited,
            ((after.waited_s - before.waited_s) / wall).max(0.0),
        ),
        (Figure::PeerShare, own / wall),
    ]);
    let client = cpu(&after.client) - cpu(&before.client);
    let a_stream = |streams| client / wall / f64::from(streams);
    figures.extend(streams.map(|streams| (Figure::ClientShare, a_stream(streams))));
    let disk = after.disk_ms.zip(before.disk_ms);
    let disk = disk.map(|(now, then)| as_f64(now.saturating_sub(then)) / 1e3 / wall);
    figures.extend(disk.map(|share| (Figure::DiskBusy, share.min(1.0))));
}

fn speed(figures: &mut Figures, outcome: &LoadOutcome, workload: BenchWorkload) {
    let LoadOutcome { tally, took } = outcome;
    figures.insert(Figure::Rate, rate(tally.bytes, *took));
    figures.insert(Figure::Moved, as_f64(tally.bytes) / MIB);
    if workload.counts_operations() {
        figures.extend(latencies(&tally.op, *took));
    }
}

/// Operations a second and their percentiles.
pub(super) fn latencies(times: &LoadLatencies, took: Duration) -> [(Figure, f64); 4] {
    let of = times.summary();
    [
        (Figure::Ops, as_f64(of.count) / took.as_secs_f64()),
        (Figure::P50, as_f64(of.p50_us)),
        (Figure::P99, as_f64(of.p99_us)),
        (Figure::P999, as_f64(of.p999_us)),
    ]
}

fn requests(figures: &mut Figures, main: &Requests) {
    if main.count > 0 {
        let kib = as_f64(main.bytes) / 1024.0;
        figures.insert(Figure::RequestSize, kib / as_f64(main.count));
        figures.insert(Figure::RunLength, kib / as_f64(main.runs.max(1)));
    }
}

/// MB a second.
pub(super) fn rate(bytes: u64, took: Duration) -> f64 {
    as_f64(bytes) / 1e6 / took.as_secs_f64()
}

fn cpu(usage: &Usage) -> f64 {
    usage.user_s + usage.system_s
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^53")]
pub(super) const fn as_f64(count: u64) -> f64 {
    count as f64
}
