//! The rounds of a run: stages of files, and the rows that are measured on them.

use super::clients::{Files, file};
use super::figures::{Figure, Figures};
use super::limits::{Device, LIMIT};
use super::measure::Watch;
use super::record::{BenchRecord, BenchSample};
use super::rig::Rig;
use super::rows::{BenchRow, BenchWorkload, Client, STAGES, Stage};
use super::{BenchOptions, interrupt, limits};
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::load::{
    self, Check, LoadOutcome, LoadPlace, LoadSettings, Preads, each_stream, run_pread, run_read,
};
use hayloft_testkit::machine;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// How often every peer warms up, and with how many writers: the stock node's code is compiled
/// while it runs, buffers find its memory while it is wanted, a little more with each burst.
const WARM_UP_TURNS: u32 = 4;
const WARM_UP_STREAMS: u64 = 4;

/// Bytes of a positional read.
const PREAD_BYTES: u64 = 64 << 10;

/// A packet that carries a record of 1 KiB, and the length of a log of them.
const RECORD_BYTES: usize = 1100;
const LOG_BYTES: u64 = 1 << 20;

/// Memory that is warmed before a row, bytes: the upper one takes ten seconds where the host has to
/// find all of it.
const WARM_MIN: u64 = 768 << 20;
const WARM_MAX: u64 = 4 << 30;

/// A run under way.
pub(super) struct Run<'a> {
    pub(super) options: &'a BenchOptions,
    pub(super) rig: Rig,
    pub(super) record: &'a mut BenchRecord,
    pub(super) rows: Vec<BenchRow>,
    pub(super) done: usize,
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
        for stage in STAGES {
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
                self.rig.clean()?;
            }
        }
        Ok(())
    }

    /// Writes and reads a little with every peer, so that code is compiled and memory is there:
    /// with all nodes of a peer, since those that only copies go to have theirs to find too.
    ///
    /// # Errors
    /// When a peer does not work at all.
    pub(super) fn warm_up(&mut self) -> Result<()> {
        let streams = WARM_UP_STREAMS;
        let bytes = (self.options.mib << 20).min(512 << 20) / streams;
        let seats = (0..WARM_UP_TURNS)
            .flat_map(|turn| (0..self.rig.seats.len()).map(move |seat| (turn, seat)));
        for (turn, seat) in seats.collect::<Vec<_>>() {
            for client in [Client::Native, Client::Java] {
                if !self.rows.iter().any(|row| row.client == client) || interrupt::asked() {
                    continue;
                }
                let dir = format!(
                    "/bench/warm-up-{turn}-{}/{}",
                    client.name(),
                    self.rig.seats[seat].peer.name
                );
                let nodes = self.rig.seats[seat].nodes.len();
                let (files, _) = self.write(client, seat, dir, (streams, bytes), nodes)?;
                if !self.rig.seats[seat].peer.drops_data {
                    self.read(client, &files, Check::Bytes)?;
                }
            }
            self.rig.clean()?;
        }
        Ok(())
    }

    fn wants(&self, workload: BenchWorkload) -> bool {
        self.rows.iter().any(|row| row.workload == workload)
    }

    /// One peer's turn; whether there are files now.
    fn stage(&mut self, stage: Stage, seat: usize, round: u32) -> Result<bool> {
        let peer = &self.rig.seats[seat].peer;
        let mut rows = stage.rows();
        rows.retain(|row| {
            self.rows.contains(row) && (!peer.drops_data || row.workload.writes_only())
        });
        if rows.is_empty() || (stage.nodes() > self.rig.seats[seat].nodes.len()) {
            return Ok(false);
        }
        let dir = format!("/bench/{:?}/{}", rows[0], peer.name)
            .replace([' ', ':', '{', '}', '(', ')', ','], "");
        let mut files = None;
        let mut device = None;
        for row in rows {
            if interrupt::asked() {
                break;
            }
            let outcome = self.row(row, stage, seat, &dir, &mut files);
            let (figures, failed) = match outcome {
                Ok(figures) => (figures, None),
                Err(_) if interrupt::asked() => break,
                Err(error) => (Figures::new(), Some(self.explain(seat, &error)?)),
            };
            let sample = BenchSample {
                workload: row.workload.to_string(),
                client: row.client,
                peer: self.rig.seats[seat].peer.name.clone(),
                round,
                figures,
                failed,
            };
            self.tell(&sample);
            self.record.samples.push(sample);
            self.device_beside(row, round, &mut device)?;
        }
        Ok(true)
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
            figures.extend([(Figure::SentRate, bare.rate), (Figure::NodeCpu, bare.cpu)]);
        }
        let sample = BenchSample {
            workload: row.workload.to_string(),
            client: row.client,
            peer: LIMIT.to_owned(),
            round,
            figures,
            failed: None,
        };
        self.tell(&sample);
        self.record.samples.push(sample);
        Ok(())
    }

    /// Why a row failed, with the log of a node that has ended (which is started again).
    fn explain(&mut self, seat: usize, error: &TestkitError) -> Result<String> {
        let logs = self.rig.revive(seat)?;
        Ok(format!("{error}\n{logs}").trim_end().to_owned())
    }

    fn row(
        &mut self,
        row: BenchRow,
        stage: Stage,
        seat: usize,
        dir: &str,
        files: &mut Option<Files>,
    ) -> Result<Figures> {
        let bytes = self.options.mib << 20;
        match row.workload {
            BenchWorkload::Write(streams) => {
                let share = (streams.into(), bytes / u64::from(streams));
                self.measured_write(row, seat, dir, share, stage, files)
            }
            BenchWorkload::Replicated => {
                self.measured_write(row, seat, dir, (1, bytes), stage, files)
            }
            BenchWorkload::Cold(streams) | BenchWorkload::Warm(streams) => {
                let share = (streams.into(), bytes / u64::from(streams));
                let ready = self.ready(row.client, seat, dir, share, files)?;
                if matches!(row.workload, BenchWorkload::Cold(_)) {
                    cold(&self.rig.disk(), bytes)?;
                } else {
                    // Twice in all: a node may keep out of the page cache what is read only once.
                    let cold_before = BenchRow {
                        workload: BenchWorkload::Cold(streams),
                        ..row
                    };
                    let reads = if self.rows.contains(&cold_before) {
                        1
                    } else {
                        2
                    };
                    for _ in 0..reads {
                        self.read(row.client, ready, Check::Bytes)?;
                    }
                }
                let watched = self.watching(row.client, seat, 1)?;
                watched.run(self, row.workload, |run| {
                    run.read(row.client, ready, Check::Bytes)
                })
            }
            BenchWorkload::ReadBack => {
                let ready = self.ready(row.client, seat, dir, (4, bytes / 4), files)?;
                cold(&self.rig.disk(), bytes)?;
                let one: Vec<LoadPlace> = ready.places.iter().flatten().cloned().collect();
                let one = Files {
                    dir: ready.dir.clone(),
                    places: vec![one],
                };
                let watched = self.watching(row.client, seat, 1)?;
                watched.run(self, row.workload, |run| {
                    run.read(row.client, &one, Check::Bytes)
                })
            }
            BenchWorkload::Pread(in_flight) => {
                let ready = self.ready(row.client, seat, dir, (4, bytes / 4), files)?;
                cold(&self.rig.disk(), bytes)?;
                let blocks: Vec<LoadPlace> = ready.places.iter().flatten().cloned().collect();
                let preads = Preads {
                    in_flight: in_flight as usize,
                    bytes: PREAD_BYTES.min(bytes / 8),
                    ops: if in_flight == 1 { 1000 } else { 4000 },
                    seed: u64::from(in_flight),
                    check: Check::Bytes,
                };
                let watched = self.watching(row.client, seat, 1)?;
                watched.run(self, row.workload, |run| {
                    run_pread(&run.rig.data, &preads, &blocks)
                })
            }
            BenchWorkload::Mixed => self.mixed(row, seat, dir, bytes / 4),
            BenchWorkload::Hflush => self.hflush(row, seat, dir, bytes / 4),
            BenchWorkload::SmallFiles => {
                let nodes = self.rig.addresses(seat, 1);
                let dir = dir.to_owned();
                let watched = self.watching(row.client, seat, 1)?;
                watched.run(self, row.workload, |run| {
                    run.small_files(row.client, &nodes, &dir)
                })
            }
            BenchWorkload::Limits | BenchWorkload::Start => {
                Err(TestkitError::Talk(format!("{row} is not measured here")))
            }
        }
    }

    fn measured_write(
        &mut self,
        row: BenchRow,
        seat: usize,
        dir: &str,
        share: (u64, u64),
        stage: Stage,
        files: &mut Option<Files>,
    ) -> Result<Figures> {
        machine::settle(&self.rig.disk())?;
        machine::await_rest()?;
        warm_memory(share.0 * share.1 * stage.nodes() as u64);
        let watched = self.watching(row.client, seat, stage.nodes())?;
        let mut figures = watched.run(self, row.workload, |run| {
            let written = run.write(row.client, seat, dir.to_owned(), share, stage.nodes())?;
            *files = Some(written.0);
            Ok(written.1)
        })?;
        if !self.rig.seats[seat].peer.drops_data {
            let extents = self.rig.extents_per_block(seat);
            figures.extend(extents.map(|extents| (Figure::Extents, extents)));
        }
        Ok(figures)
    }

    /// Two writers and two readers of files that were written before.
    fn mixed(&mut self, row: BenchRow, seat: usize, dir: &str, bytes: u64) -> Result<Figures> {
        let (old, _) = self.write(row.client, seat, format!("{dir}/old"), (2, bytes), 1)?;
        cold(&self.rig.disk(), 2 * bytes)?;
        let nodes = self.rig.addresses(seat, 1);
        let new = format!("{dir}/new");
        let watched = self.watching(row.client, seat, 1)?;
        watched.run(self, row.workload, |run| {
            let (data, names) = (&run.rig.data, &run.rig.names);
            each_stream(&[0, 1, 2, 3], |_, &stream: &usize, tally| {
                if stream < 2 {
                    let spec = file(&new, stream, bytes, &nodes);
                    return names
                        .write(&spec, &LoadSettings::default(), data, tally)
                        .map(drop);
                }
                let outcome = run_read(data, Check::Bytes, &old.places[stream - 2..stream - 1])?;
                tally.add(outcome.tally);
                Ok(())
            })
        })
    }

    /// A log of records that are hflushed one by one, for as long as four writers are busy.
    fn hflush(&mut self, row: BenchRow, seat: usize, dir: &str, bytes: u64) -> Result<Figures> {
        const WRITERS: usize = 4;
        machine::settle(&self.rig.disk())?;
        machine::await_rest()?;
        warm_memory(bytes * 4);
        let nodes = self.rig.addresses(seat, 1);
        let record = LoadSettings {
            packet_bytes: RECORD_BYTES,
            hflush_every: 1,
            ..LoadSettings::default()
        };
        let watched = self.watching(row.client, seat, 1)?;
        watched.run(self, row.workload, |run| {
            let (data, names) = (&run.rig.data, &run.rig.names);
            let busy = AtomicUsize::new(WRITERS);
            let streams: Vec<usize> = (0..=WRITERS).collect();
            each_stream(&streams, |_, &stream: &usize, tally| {
                if stream < WRITERS {
                    let spec = file(&format!("{dir}/bulk"), stream, bytes, &nodes);
                    let mut written = load::LatencyTally::default();
                    let outcome = names.write(&spec, &LoadSettings::default(), data, &mut written);
                    busy.fetch_sub(1, Ordering::AcqRel);
                    tally.bytes += written.bytes;
                    return outcome.map(drop);
                }
                for log in 0.. {
                    let spec = file(&format!("{dir}/log"), log, LOG_BYTES, &nodes);
                    let mut written = load::LatencyTally::default();
                    names.write(&spec, &record, data, &mut written)?;
                    tally.bytes += written.bytes;
                    tally.ops += written.ack_us.len() as u64;
                    tally.op_us.extend(written.ack_us);
                    if busy.load(Ordering::Acquire) == 0 {
                        break;
                    }
                }
                Ok(())
            })
        })
    }

    fn watching(&mut self, client: Client, seat: usize, nodes: usize) -> Result<Watching> {
        let client = match (client, &self.rig.driver) {
            (Client::Java, Some(driver)) => driver.pid(),
            _ => std::process::id(),
        };
        Ok(Watching {
            nodes: self.rig.pids(seat, nodes)?,
            client,
        })
    }

    fn tell(&mut self, sample: &BenchSample) {
        self.done += 1;
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
        let name = format!("{}/{}", sample.workload, sample.client.name());
        (self.options.progress)(&format!(
            "[{:3}/{} {:4.0} s] {name:22} {:10} {what}",
            self.done,
            self.options.total(&self.rows),
            self.began.elapsed().as_secs_f64(),
            sample.peer,
        ));
    }
}

/// A [`Watch`] without its borrows, so that what is watched may use the run.
struct Watching {
    nodes: Vec<u32>,
    client: u32,
}

impl Watching {
    fn run<'a>(
        self,
        run: &mut Run<'a>,
        workload: BenchWorkload,
        load: impl FnOnce(&mut Run<'a>) -> Result<LoadOutcome>,
    ) -> Result<Figures> {
        let tracer = run.rig.tracer.take();
        let disk = run.rig.disk();
        let watch = Watch {
            nodes: &self.nodes,
            client: self.client,
            tracer: tracer.as_ref(),
            disk: &disk,
        };
        let figures = watch.run(workload, || load(run));
        run.rig.tracer = tracer;
        figures
    }
}

/// What was written is on the device and in no memory: neither staged nor in the page cache, and
/// no process is busy with it. Memory for the `bytes` that will be read is there.
fn cold(disk: &Path, bytes: u64) -> Result<()> {
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
fn warm_memory(bytes: u64) {
    let bytes = (bytes + bytes / 2).clamp(WARM_MIN, WARM_MAX);
    machine::warm_memory(usize::try_from(bytes).unwrap_or(0));
}
