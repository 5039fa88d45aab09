//! The rounds of a run: stages of files, and the rows that are measured on them.

use super::figures::Figure;
use super::measure::Watch;
use super::names::FileSpec;
use super::record::{Record, Sample};
use super::rig::{BLOCK_BYTES, Rig};
use super::rows::{Client, Row, Workload};
use super::{Options, interrupt, limits, machine};
use crate::error::{LabError, Result};
use crate::load::{
    self, Check, Outcome, Place, Preads, Settings, each_stream, run_pread, run_read,
};
use serde_json::json;
use std::time::{Duration, Instant};

/// Clients that create small files.
const SMALL_CLIENTS: usize = 4;
/// Files each of them creates.
const SMALL_FILES: usize = 150;
const SMALL_BYTES: u64 = 10_000;
/// Bytes of a positional read.
const PREAD_BYTES: u64 = 64 << 10;

/// Memory that is warmed before a row, bytes: the upper one takes ten seconds where the host has to find all of it.
const WARM_MIN: u64 = 768 << 20;
const WARM_MAX: u64 = 4 << 30;

/// Files of one kind, and the rows that they are good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Written by so many writers of a client.
    Files(Client, u32),
    Mixed,
    SmallFiles,
    Replicated(Client),
}

const STAGES: [Stage; 9] = [
    Stage::Files(Client::Native, 1),
    Stage::Files(Client::Native, 4),
    Stage::Files(Client::Native, 16),
    Stage::Replicated(Client::Native),
    Stage::Mixed,
    Stage::SmallFiles,
    Stage::Files(Client::Java, 1),
    Stage::Files(Client::Java, 4),
    Stage::Replicated(Client::Java),
];

impl Stage {
    /// Its rows in the order in which they can be measured.
    fn rows(self) -> Vec<Row> {
        use Workload::{Cold, Pread, ReadBack, Warm, Write};
        let (client, workloads) = match self {
            Self::Files(client, 4) if client == Client::Native => (
                client,
                vec![
                    Write(4),
                    Cold(4),
                    Warm(4),
                    ReadBack,
                    Pread(1),
                    Pread(16),
                    Pread(64),
                ],
            ),
            Self::Files(client, n) => (client, vec![Write(n), Cold(n), Warm(n)]),
            Self::Mixed => (Client::Native, vec![Workload::Mixed]),
            Self::SmallFiles => (Client::Native, vec![Workload::SmallFiles]),
            Self::Replicated(client) => (client, vec![Workload::Replicated]),
        };
        let row = |workload| Row { workload, client };
        workloads.into_iter().map(row).collect()
    }

    /// How many of a peer's nodes take part.
    const fn nodes(self) -> usize {
        match self {
            Self::Replicated(_) => 3,
            _ => 1,
        }
    }
}

/// The file of each stream, by its blocks; a Java client keeps no list of them.
struct Files {
    dir: String,
    places: Vec<Vec<Place>>,
}

/// A run under way.
pub(super) struct Run<'a> {
    pub(super) options: &'a Options,
    pub(super) rig: Rig,
    pub(super) record: &'a mut Record,
    pub(super) rows: Vec<Row>,
    pub(super) done: usize,
    pub(super) began: Instant,
}

impl Run<'_> {
    /// Measures every row once for every peer, who take turns.
    ///
    /// # Errors
    /// When the cluster itself fails; a failed row is recorded and the round goes on.
    pub(super) fn round(&mut self, round: u32) -> Result<()> {
        if self.wants(Workload::Limits) && !interrupt::asked() {
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
                // Whoever was first in one round is last in the next.
                let seat = (turn + round as usize) % count;
                used |= self.stage(stage, seat, round)?;
            }
            if used {
                self.rig.clean()?;
            }
        }
        Ok(())
    }

    /// Writes and reads a little with everybody, so that code is compiled and memory is there.
    ///
    /// # Errors
    /// When a peer does not work at all.
    pub(super) fn warm_up(&mut self) -> Result<()> {
        let streams = 2;
        let bytes = (self.options.mib << 20).min(512 << 20) / streams;
        for seat in 0..self.rig.seats.len() {
            for client in [Client::Native, Client::Java] {
                if !self.rows.iter().any(|row| row.client == client) || interrupt::asked() {
                    continue;
                }
                let dir = format!(
                    "/bench/warm-up-{}/{}",
                    client.name(),
                    self.rig.seats[seat].peer.name
                );
                let (files, _) = self.write(client, seat, dir, (streams, bytes), 1)?;
                if !self.rig.seats[seat].peer.drops_data {
                    self.read(client, &files, Check::Bytes)?;
                }
            }
        }
        self.rig.clean()
    }

    fn wants(&self, workload: Workload) -> bool {
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
        for row in rows {
            if interrupt::asked() {
                break;
            }
            let outcome = self.row(row, stage, seat, &dir, &mut files);
            let (figures, failed) = match outcome {
                Ok(figures) => (figures, None),
                Err(_) if interrupt::asked() => break,
                Err(error) => (
                    super::figures::Figures::new(),
                    Some(self.explain(seat, &error)?),
                ),
            };
            let sample = Sample {
                workload: row.workload.to_string(),
                client: row.client,
                peer: self.rig.seats[seat].peer.name.clone(),
                round,
                figures,
                failed,
            };
            self.tell(&sample);
            self.record.samples.push(sample);
        }
        Ok(true)
    }

    /// Why a row failed, with the log of a node that has ended (which is started again).
    fn explain(&mut self, seat: usize, error: &LabError) -> Result<String> {
        let logs = self.rig.revive(seat)?;
        Ok(format!("{error}\n{logs}").trim_end().to_owned())
    }

    fn row(
        &mut self,
        row: Row,
        stage: Stage,
        seat: usize,
        dir: &str,
        files: &mut Option<Files>,
    ) -> Result<super::figures::Figures> {
        let bytes = self.options.mib << 20;
        match row.workload {
            Workload::Write(streams) => {
                let share = (streams.into(), bytes / u64::from(streams));
                self.measured_write(row, seat, dir, share, stage, files)
            }
            Workload::Replicated => self.measured_write(row, seat, dir, (1, bytes), stage, files),
            Workload::Cold(streams) | Workload::Warm(streams) => {
                let share = (streams.into(), bytes / u64::from(streams));
                let ready = self.ready(row.client, seat, dir, share, files)?;
                if matches!(row.workload, Workload::Cold(_)) {
                    cold(bytes)?;
                } else {
                    // Twice in all: a node may keep out of the page cache what is read only once.
                    let cold_before = Row {
                        workload: Workload::Cold(streams),
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
            Workload::ReadBack => {
                let ready = self.ready(row.client, seat, dir, (4, bytes / 4), files)?;
                cold(bytes)?;
                let one: Vec<Place> = ready.places.iter().flatten().cloned().collect();
                let one = Files {
                    dir: ready.dir.clone(),
                    places: vec![one],
                };
                let watched = self.watching(row.client, seat, 1)?;
                watched.run(self, row.workload, |run| {
                    run.read(row.client, &one, Check::Bytes)
                })
            }
            Workload::Pread(in_flight) => {
                let ready = self.ready(row.client, seat, dir, (4, bytes / 4), files)?;
                cold(bytes)?;
                let blocks: Vec<Place> = ready.places.iter().flatten().cloned().collect();
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
            Workload::Mixed => self.mixed(row, seat, dir, bytes / 4),
            Workload::SmallFiles => {
                let nodes = self.rig.addresses(seat, 1);
                let dir = dir.to_owned();
                let watched = self.watching(row.client, seat, 1)?;
                watched.run(self, row.workload, |run| run.small_files(&nodes, &dir))
            }
            Workload::Limits | Workload::Start => {
                Err(LabError::Talk(format!("{row} is not measured here")))
            }
        }
    }

    fn measured_write(
        &mut self,
        row: Row,
        seat: usize,
        dir: &str,
        share: (u64, u64),
        stage: Stage,
        files: &mut Option<Files>,
    ) -> Result<super::figures::Figures> {
        machine::settle(&self.rig.disk())?;
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
    fn mixed(
        &mut self,
        row: Row,
        seat: usize,
        dir: &str,
        bytes: u64,
    ) -> Result<super::figures::Figures> {
        let (old, _) = self.write(row.client, seat, format!("{dir}/old"), (2, bytes), 1)?;
        cold(2 * bytes)?;
        let nodes = self.rig.addresses(seat, 1);
        let new = format!("{dir}/new");
        let watched = self.watching(row.client, seat, 1)?;
        watched.run(self, row.workload, |run| {
            let (data, names) = (&run.rig.data, &run.rig.names);
            each_stream(&[0, 1, 2, 3], |_, &stream: &usize, tally| {
                if stream < 2 {
                    let spec = file(&new, stream, bytes, &nodes);
                    return names
                        .write(&spec, &Settings::default(), data, tally)
                        .map(drop);
                }
                let outcome = run_read(data, Check::Bytes, &old.places[stream - 2..stream - 1])?;
                tally.add(outcome.tally);
                Ok(())
            })
        })
    }

    fn small_files(&self, nodes: &[String], dir: &str) -> Result<Outcome> {
        let (data, names) = (&self.rig.data, &self.rig.names);
        each_stream(&[(); SMALL_CLIENTS], |client, (), tally| {
            for number in 0..SMALL_FILES {
                let spec = file(&format!("{dir}/c{client}"), number, SMALL_BYTES, nodes);
                let began = Instant::now();
                let mut blocks = load::Tally::default();
                names.write(&spec, &Settings::default(), data, &mut blocks)?;
                tally.op(SMALL_BYTES, began.elapsed());
            }
            Ok(())
        })
    }

    /// The files of the stage, written now if no row has written them.
    fn ready<'f>(
        &mut self,
        client: Client,
        seat: usize,
        dir: &str,
        share: (u64, u64),
        files: &'f mut Option<Files>,
    ) -> Result<&'f Files> {
        if files.is_none() {
            let (written, _) = self.write(client, seat, dir.to_owned(), share, 1)?;
            *files = Some(written);
        }
        files
            .as_ref()
            .ok_or_else(|| LabError::Talk("the files of the stage are missing".into()))
    }

    /// Writes `share.0` files of `share.1` bytes at the same time, each to `copies` nodes.
    fn write(
        &mut self,
        client: Client,
        seat: usize,
        dir: String,
        share: (u64, u64),
        copies: usize,
    ) -> Result<(Files, Outcome)> {
        let nodes = self.rig.addresses(seat, copies);
        let (streams, bytes) = share;
        if client == Client::Java {
            let request = json!({
                "path": dir, "streams": streams, "bytes": bytes, "replication": copies,
                "blockSize": BLOCK_BYTES, "favored": nodes,
            });
            let outcome = self.java("writeStreams", request)?;
            return Ok((
                Files {
                    dir,
                    places: vec![Vec::new(); as_index(streams)],
                },
                outcome,
            ));
        }
        let (data, names) = (&self.rig.data, &self.rig.names);
        let places: Vec<_> = (0..streams)
            .map(|_| std::sync::Mutex::new(Vec::new()))
            .collect();
        let outcome = each_stream(&places, |stream, slot, tally| {
            let spec = file(&dir, stream, bytes, &nodes);
            let written = names.write(&spec, &Settings::default(), data, tally)?;
            *slot
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner) = written;
            Ok(())
        })?;
        let places = places
            .into_iter()
            .map(|slot| {
                slot.into_inner()
                    .unwrap_or_else(std::sync::PoisonError::into_inner)
            })
            .collect();
        Ok((Files { dir, places }, outcome))
    }

    fn read(&self, client: Client, files: &Files, check: Check) -> Result<Outcome> {
        if client == Client::Java {
            let request = json!({"path": files.dir, "streams": files.places.len()});
            return self.java("readStreams", request);
        }
        run_read(&self.rig.data, check, &files.places)
    }

    fn java(&self, operation: &str, request: serde_json::Value) -> Result<Outcome> {
        let missing = || LabError::Talk("the Java client does not run".into());
        let answer = self
            .rig
            .driver
            .as_ref()
            .ok_or_else(missing)?
            .call(operation, request)?;
        if answer["equal"] == false {
            let problem = format!("{operation}: bytes differ from what was written");
            return Err(LabError::Expectation(problem));
        }
        let mut outcome = Outcome::default();
        outcome.tally.bytes = answer["bytes"].as_u64().unwrap_or(0);
        outcome.took = Duration::from_nanos(answer["nanos"].as_u64().unwrap_or(u64::MAX));
        Ok(outcome)
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

    fn tell(&mut self, sample: &Sample) {
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
        workload: Workload,
        load: impl FnOnce(&mut Run<'a>) -> Result<Outcome>,
    ) -> Result<super::figures::Figures> {
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

fn file(dir: &str, number: usize, len: u64, nodes: &[String]) -> FileSpec {
    FileSpec {
        path: format!("{dir}/s{number}"),
        len,
        block_bytes: BLOCK_BYTES,
        nodes: nodes.to_vec(),
    }
}

fn as_index(count: u64) -> usize {
    usize::try_from(count).expect("a few streams")
}

/// Empties the page cache; memory for the `bytes` that will be read is there.
fn cold(bytes: u64) -> Result<()> {
    if !machine::drop_caches() {
        let problem = "the page cache cannot be emptied: run as root to measure cold reads";
        return Err(LabError::Talk(problem.into()));
    }
    warm_memory(bytes);
    Ok(())
}

/// Memory for `bytes` of data, and half as much again for what carries them: sockets, buffers, pages that are read ahead.
fn warm_memory(bytes: u64) {
    let bytes = (bytes + bytes / 2).clamp(WARM_MIN, WARM_MAX);
    machine::warm_memory(usize::try_from(bytes).unwrap_or(0));
}
