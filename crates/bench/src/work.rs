//! The rounds of a run: stages of files, and the rows that are measured on them.

use super::encryption::BenchCipher;
use super::figures::{Figure, Figures};
use super::limits::{Device, LIMIT};
use super::local_read::PREAD_BYTES;
use super::measure::Watch;
use super::record::{BenchRecord, BenchSample, WarmUp};
use super::rig::{Rig, RigKind};
use super::rows::{BenchRow, BenchWorkload, Client, Stage, stages};
use super::trace::Tracer;
use super::{BenchOptions, interrupt, limits, peers};
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::load::{Check, LoadOutcome, LoadPlace, Preads};
use hayloft_testkit::machine;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Instant;

/// Memory that is warmed before a row, bytes: the upper one takes ten seconds where the host has to
/// find all of it.
const WARM_MIN: u64 = 768 << 20;
const WARM_MAX: u64 = 4 << 30;

/// The file of each stream, by its blocks; only the load client keeps a list of them.
pub(super) struct Files {
    pub(super) dir: String,
    pub(super) places: Vec<Vec<LoadPlace>>,
}

/// A run under way.
pub(super) struct Run<'a> {
    pub(super) options: &'a BenchOptions,
    pub(super) rig: &'a mut Rig,
    pub(super) tracer: Option<&'a Tracer>,
    pub(super) record: &'a mut BenchRecord,
    pub(super) began: Instant,
}

impl Run<'_> {
    /// Measures every row once for every peer, in turns.
    ///
    /// # Errors
    /// When the cluster itself fails; a failed row is recorded and the round goes on.
    pub(super) fn round(&mut self, round: u32) -> Result<()> {
        if self.wants(BenchWorkload::Limits) && !interrupt::asked() {
            let samples = limits::measure(&self.rig.disk(), self.options.mib, round)?;
            for sample in samples {
                self.tell(&sample);
                self.record.samples.push(sample);
            }
        }
        for stage in stages() {
            let count = self.rig.seats.len();
            let mut used = false;
            for turn in 0..count {
                if interrupt::asked() {
                    break;
                }
                // The peer that was first in one round is last in the next.
                let seat = (turn + round as usize) % count;
                used |= self.stage(stage, seat, round)?;
            }
            if used {
                self.rig.clear("/bench", 0..count)?;
            }
        }
        Ok(())
    }

    fn wants(&self, workload: BenchWorkload) -> bool {
        let mut rows = self.options.rows.iter();
        rows.any(|row| row.workload == workload && RigKind::of(row) == self.rig.kind)
    }

    /// One peer's turn; whether there are files now.
    fn stage(&mut self, stage: Stage, seat: usize, round: u32) -> Result<bool> {
        let peer = &self.rig.seats[seat].peer;
        let mut rows = stage.rows();
        for row in &mut rows {
            row.cipher = self.rig.kind.cipher;
        }
        rows.retain(|row| self.options.rows.contains(row) && peer.takes_part(row.workload));
        rows.retain(|row| RigKind::of(row) == self.rig.kind);
        if rows.is_empty() {
            return Ok(false);
        }
        let dir = format!("/bench/{}/{}", rows[0], peer.name);
        let mut files = None;
        let mut device = None;
        for row in rows {
            if round == 0 {
                self.warm_up(row, seat, &dir, &mut files)?;
            }
            if interrupt::asked() {
                break;
            }
            let outcome = self.row(row, seat, &dir, &mut files);
            let (figures, failed) = match outcome {
                Ok(figures) => (figures, None),
                Err(_) if interrupt::asked() => break,
                Err(error) => (Figures::new(), Some(self.explain(seat, &error)?)),
            };
            let peer = self.rig.seats[seat].peer.name.clone();
            self.keep(row, peer, round, figures, failed);
            self.device_beside(row, round, &mut device)?;
        }
        Ok(true)
    }

    /// Repeats a row until two rounds in a row are alike: code is compiled while it works, buffers
    /// find their memory while it is wanted. A row that fails is left to the round that counts.
    fn warm_up(
        &mut self,
        row: BenchRow,
        seat: usize,
        dir: &str,
        files: &mut Option<Files>,
    ) -> Result<()> {
        let mut warm_up = WarmUp {
            workload: row.name(),
            client: row.client,
            peer: self.rig.seats[seat].peer.name.clone(),
            paces: Vec::new(),
        };
        while warm_up.paces.len() < self.options.warm_ups && !warm_up.is_warm() {
            let Ok(figures) = self.row(row, seat, dir, files) else {
                break;
            };
            let pace = figures.get(&Figure::Ops).or(figures.get(&Figure::Rate));
            warm_up.paces.extend(pace);
            if row.workload.settles() {
                *files = None;
                self.rig.clear(dir, seat..seat + 1)?;
            }
            if interrupt::asked() {
                return Ok(());
            }
        }
        let paces: Vec<String> = warm_up.paces.iter().map(|p| format!("{p:.0}")).collect();
        let state = if warm_up.is_warm() {
            "warm"
        } else {
            "NOT warm"
        };
        let paces = paces.join(", ");
        let what = format!("{state} after {paces}");
        self.say((&warm_up.workload, row.client), &warm_up.peer, &what);
        self.record.warm_ups.push(warm_up);
        Ok(())
    }

    /// What the raw device gives right after a row that it may bound, and what it takes to send
    /// that: on a machine that shares its device, the next minute's rate is another one. Not on a
    /// modelled disk, whose rate stays.
    fn device_beside(
        &mut self,
        row: BenchRow,
        round: u32,
        device: &mut Option<Device>,
    ) -> Result<()> {
        let Some(direction) = row.workload.bound_by() else {
            return Ok(());
        };
        if self.record.modelled || !self.wants(BenchWorkload::Limits) || interrupt::asked() {
            return Ok(());
        }
        let device = match device {
            Some(device) => device,
            None => device.insert(Device::new(&self.rig.disk(), self.options.mib)?),
        };
        let mut figures = Figures::from([(Figure::Rate, device.rate(direction)?)]);
        if let BenchWorkload::Cold(streams) = row.workload {
            let bare = device.read_and_send(streams)?;
            figures.extend([(Figure::SentRate, bare.rate), (Figure::SentCpu, bare.cpu)]);
        }
        self.keep(row, LIMIT.to_owned(), round, figures, None);
        Ok(())
    }

    fn keep(
        &mut self,
        row: BenchRow,
        peer: String,
        round: u32,
        figures: Figures,
        failed: Option<String>,
    ) {
        let sample = BenchSample {
            workload: row.name(),
            client: row.client,
            peer,
            round,
            figures,
            failed,
        };
        self.tell(&sample);
        self.record.samples.push(sample);
    }

    /// Why a row failed, with the log of a node that has ended (which is started again).
    fn explain(&mut self, seat: usize, error: &TestkitError) -> Result<String> {
        let logs = self.rig.revive(seat)?;
        Ok(format!("{error}\n{logs}").trim_end().to_owned())
    }

    fn row(
        &mut self,
        row: BenchRow,
        seat: usize,
        dir: &str,
        files: &mut Option<Files>,
    ) -> Result<Figures> {
        let bytes = (self.options.mib << 20) / row.cipher.map_or(1, BenchCipher::divisor);
        let nodes = self.rig.addresses(seat, row.workload.nodes());
        match row.workload {
            BenchWorkload::Write(streams) => {
                let share = (streams.into(), bytes / u64::from(streams));
                self.measured_write(row, seat, dir, share, files)
            }
            BenchWorkload::Replicated => self.measured_write(row, seat, dir, (1, bytes), files),
            BenchWorkload::Cold(streams) | BenchWorkload::Warm(streams) => {
                let share = (streams.into(), bytes / u64::from(streams));
                let ready = self.ready(row.client, seat, dir, share, files)?;
                self.make_cold_or_warm(row, ready, bytes)?;
                self.measured(row, seat, |run| run.read(row.client, ready))
            }
            BenchWorkload::ReadBack => {
                let ready = self.ready(row.client, seat, dir, (4, bytes / 4), files)?;
                cold(&self.rig.disk(), bytes)?;
                let one = Files {
                    dir: ready.dir.clone(),
                    places: vec![ready.places.concat()],
                };
                self.measured(row, seat, |run| run.read(row.client, &one))
            }
            BenchWorkload::Pread(in_flight) => {
                let ready = self.ready(row.client, seat, dir, (4, bytes / 4), files)?;
                cold(&self.rig.disk(), bytes)?;
                let preads = Preads {
                    in_flight: in_flight as usize,
                    bytes: PREAD_BYTES.min(bytes / 8),
                    ops: if in_flight == 1 { 1000 } else { 4000 },
                    seed: u64::from(in_flight),
                    check: Check::Bytes,
                };
                self.measured(row, seat, |run| run.pread(row.client, ready, &preads))
            }
            BenchWorkload::Local { read, tcp } => {
                self.local_row(row, (read, tcp), seat, dir, bytes, files)
            }
            BenchWorkload::DiskBalancer(what) => self.balance(row, what, seat, dir, bytes, files),
            BenchWorkload::Mixed => self.mixed(row, seat, dir, bytes / 4),
            BenchWorkload::Hflush => self.hflush(row, seat, dir, bytes / 4),
            BenchWorkload::Hflushed(logs) | BenchWorkload::Hsynced(logs) => {
                self.measured(row, seat, |run| run.logs(row, logs, &nodes, dir))
            }
            BenchWorkload::Wal(log) => self.measured(row, seat, |run| run.wal(log, &nodes, dir)),
            BenchWorkload::SmallFiles | BenchWorkload::PromptSmallFiles => {
                self.measured(row, seat, |run| run.small_files(row, &nodes, dir))
            }
            BenchWorkload::Limits | BenchWorkload::Start => {
                Err(TestkitError::Talk(format!("{row} is not measured here")))
            }
        }
    }

    /// Empties the page cache for a cold row; reads a warm one's files, twice in all: a node may
    /// keep out of the page cache what is read only once.
    fn make_cold_or_warm(&mut self, row: BenchRow, files: &Files, bytes: u64) -> Result<()> {
        let BenchWorkload::Warm(streams) = row.workload else {
            return cold(&self.rig.disk(), bytes);
        };
        let cold_before = BenchRow {
            workload: BenchWorkload::Cold(streams),
            ..row
        };
        let read_before = self.options.rows.contains(&cold_before);
        for _ in 0..if read_before { 1 } else { 2 } {
            self.read(row.client, files)?;
        }
        Ok(())
    }

    /// Measures a load of those nodes of a seat that take part.
    pub(super) fn measured(
        &mut self,
        row: BenchRow,
        seat: usize,
        load: impl FnOnce(&mut Self) -> Result<LoadOutcome>,
    ) -> Result<Figures> {
        let watched = self.watching(row, seat)?;
        watched.run(self, row.workload, load)
    }

    fn measured_write(
        &mut self,
        row: BenchRow,
        seat: usize,
        dir: &str,
        share: (u64, u64),
        files: &mut Option<Files>,
    ) -> Result<Figures> {
        machine::settle(&self.rig.disk())?;
        machine::await_rest()?;
        let nodes = row.workload.nodes();
        warm_memory(share.0 * share.1 * nodes as u64);
        let watched = self.watching(row, seat)?;
        let mut figures = watched.run(self, row.workload, |run| {
            let written = run.write(row.client, seat, dir.to_owned(), share, nodes)?;
            *files = Some(written.0);
            Ok(written.1)
        })?;
        if !self.rig.seats[seat].peer.drops_data {
            let extents = self.rig.extents_per_block(seat);
            figures.extend(extents.map(|extents| (Figure::Extents, extents)));
        }
        Ok(figures)
    }

    fn watching(&mut self, row: BenchRow, seat: usize) -> Result<Watching> {
        let nodes = row.workload.nodes();
        let client = match (row.client, &self.rig.driver, &self.rig.hbase) {
            (Client::Java, _, Some(hbase)) if row.workload.needs_hbase() => hbase.pid(),
            (Client::Java, Some(driver), _) => driver.pid(),
            _ => std::process::id(),
        };
        let scraped = match self.rig.seats[seat].peer.name.as_str() {
            peers::SCRAPED => self.rig.web_ports(seat, nodes),
            _ => Vec::new(),
        };
        Ok(Watching {
            nodes: self.rig.pids(seat, nodes)?,
            client,
            scraped,
        })
    }

    fn tell(&self, sample: &BenchSample) {
        let show = |figure: Figure, unit: &str| {
            let value = sample.figures.get(&figure)?;
            Some(format!("{value:9.2} {unit}"))
        };
        let what = match &sample.failed {
            Some(reason) => format!("FAILED: {reason}"),
            None => [
                show(Figure::Ops, "ops/s").or_else(|| show(Figure::Rate, "MB/s ")),
                show(Figure::P99, "us p99").or_else(|| show(Figure::SettledRate, "settled")),
                show(Figure::NodeCpu, "node s/GiB"),
                show(Figure::MachineCpu, "all s/GiB"),
                show(Figure::RequestSize, "KiB/request"),
                show(Figure::MemoryPeak, "MiB"),
            ]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join("  "),
        };
        self.say((&sample.workload, sample.client), &sample.peer, &what);
    }

    fn say(&self, (workload, client): (&str, Client), peer: &str, what: &str) {
        let name = format!("{workload}/{}", client.name());
        (self.options.progress)(&format!(
            "[{:4.0} s] {name:24} {peer:10} {what}",
            self.began.elapsed().as_secs_f64(),
        ));
    }
}

/// A [`Watch`] without its borrows, so that what is watched may use the run.
struct Watching {
    nodes: Vec<u32>,
    client: u32,
    scraped: Vec<SocketAddr>,
}

impl Watching {
    fn run<'a>(
        self,
        run: &mut Run<'a>,
        workload: BenchWorkload,
        load: impl FnOnce(&mut Run<'a>) -> Result<LoadOutcome>,
    ) -> Result<Figures> {
        let disk = run.rig.disk();
        let watch = Watch {
            nodes: &self.nodes,
            client: self.client,
            scraped: &self.scraped,
            tracer: run.tracer,
            disk: &disk,
        };
        watch.run(workload, || load(run))
    }
}

/// What was written is on the device, and no process is busy with it.
pub(super) fn at_rest(disk: &Path) -> Result<()> {
    machine::settle(disk)?;
    machine::await_rest()
}

/// What was written is on the device and in no memory: neither staged nor in the page cache, and
/// no process is busy with it. Memory for the `bytes` that will be read is there.
pub(super) fn cold(disk: &Path, bytes: u64) -> Result<()> {
    machine::settle(disk)?;
    if !machine::drop_caches() {
        let problem = "the page cache cannot be emptied: run as root to measure cold reads";
        return Err(TestkitError::Talk(problem.into()));
    }
    machine::await_rest()?;
    warm_memory(bytes);
    Ok(())
}

/// Memory for `bytes` of data, and half as much again for what carries them: sockets, buffers,
/// pages that are read ahead.
pub(super) fn warm_memory(bytes: u64) {
    let bytes = (bytes + bytes / 2).clamp(WARM_MIN, WARM_MAX);
    machine::warm_memory(usize::try_from(bytes).unwrap_or(0));
}
