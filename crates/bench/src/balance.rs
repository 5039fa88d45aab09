//! Blocks that a node's disk balancer moves, and clients that read others meanwhile.

use super::disk_balancer::{Balancing, Moved, Order, VOLUMES};
use super::figures::{Figure, Figures};
use super::local_read::PREAD_BYTES;
use super::measure::rate;
use super::rows::BenchRow;
use super::work::{Files, Run, cold};
use hayloft_testkit::error::{Result, expect};
use hayloft_testkit::load::{
    Check, Data, LatencyTally, LoadOutcome, LoadPlace, Offsets, Preads, Reader, each_stream,
    run_pread,
};
use hayloft_testkit::node::Node;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Clients that read beside a move.
const READERS: usize = 4;
/// What they read without one, all together.
const READS: u64 = 4000;
/// Where they read.
const SEED: u64 = 4;

impl Run<'_> {
    /// Files of twice as many `bytes`, about half of them on each volume; one half is moved, the
    /// other one read, or both.
    pub(super) fn balance(
        &mut self,
        row: BenchRow,
        what: Balancing,
        seat: usize,
        dir: &str,
        bytes: u64,
        files: &mut Option<Files>,
    ) -> Result<Figures> {
        let ready = self.ready(row.client, seat, dir, (4, bytes / 2), files)?;
        let first = self.rig.seats[seat].nodes[0];
        let sides = Sides::of(self.rig.cluster().node(first), ready)?;
        let order = Order::new(
            self.rig.cluster().node(first),
            (&sides.source, &sides.target),
            sides.bytes,
        )?;
        cold(&self.rig.disk(), bytes)?;
        let moved = Mutex::new(None);
        let figures = self.measured(row, seat, |run| {
            let data = &run.rig.data;
            if !what.moves() {
                return read_alone(data, &sides.read);
            }
            if what.reads() {
                return read_beside(data, &sides.read, || {
                    let done = order.carry_out()?;
                    *moved.lock().unwrap_or_else(PoisonError::into_inner) = Some(done);
                    Ok(())
                });
            }
            let (bytes, took) = order.carry_out()?;
            let tally = LatencyTally {
                bytes,
                ..LatencyTally::default()
            };
            Ok(LoadOutcome { tally, took })
        });
        if what.moves() {
            // The next row finds its blocks on both volumes again.
            *files = None;
            self.rig.clear(dir, seat..seat + 1)?;
        }
        let mut figures = figures?;
        let moved: Option<Moved> = moved.into_inner().unwrap_or_else(PoisonError::into_inner);
        figures.extend(moved.map(|(bytes, took)| (Figure::Balanced, rate(bytes, took))));
        Ok(figures)
    }
}

fn read_alone(data: &Data, blocks: &[LoadPlace]) -> Result<LoadOutcome> {
    let preads = Preads {
        in_flight: READERS,
        bytes: piece(blocks),
        ops: READS,
        seed: SEED,
        check: Check::Bytes,
    };
    run_pread(data, &preads, blocks)
}

/// Reads as [`read_alone`] does for as long as `work` takes.
fn read_beside(
    data: &Data,
    blocks: &[LoadPlace],
    work: impl Fn() -> Result<()> + Sync,
) -> Result<LoadOutcome> {
    let (is_busy, bytes) = (AtomicBool::new(true), piece(blocks));
    let streams: Vec<usize> = (0..=READERS).collect();
    each_stream(&streams, |_, &stream: &usize, tally| {
        if stream == READERS {
            let outcome = work();
            is_busy.store(false, Ordering::Release);
            return outcome;
        }
        let mut offsets = Offsets::new(SEED.wrapping_add((stream as u64) << 32));
        let buffer = usize::try_from(2 * bytes).unwrap_or(0);
        let mut reader = Reader::new(data, Check::Bytes, buffer);
        while is_busy.load(Ordering::Acquire) {
            let which = usize::try_from(offsets.below(blocks.len() as u64)).unwrap_or(0);
            let place = &blocks[which];
            let offset = offsets.below(place.len - bytes + 1);
            reader.read(place, 0, offset, bytes, tally)?;
        }
        Ok(())
    })
}

/// What is read at once: less of blocks that are short.
fn piece(blocks: &[LoadPlace]) -> u64 {
    let shortest = blocks.iter().map(|place| place.len).min();
    PREAD_BYTES.min(shortest.unwrap_or(0))
}

/// A node's blocks: those that a plan moves, and those that stay where they are.
struct Sides {
    source: PathBuf,
    target: PathBuf,
    /// Bytes on the source.
    bytes: u64,
    read: Vec<LoadPlace>,
}

impl Sides {
    /// The fuller volume is the source.
    fn of(node: &Node, files: &Files) -> Result<Self> {
        let volumes: Vec<PathBuf> = node.volumes().map(Path::to_owned).collect();
        let places = files.places.iter().flatten();
        let mut sides: Vec<(PathBuf, Vec<LoadPlace>)> = volumes
            .into_iter()
            .map(|volume| {
                let is_on = |place: &&LoadPlace| {
                    let files = node.block_files(place.block.block.id);
                    files.iter().any(|file| file.starts_with(&volume))
                };
                let blocks = places.clone().filter(is_on).cloned().collect();
                (volume, blocks)
            })
            .collect();
        sides.sort_by_key(|(_, blocks)| blocks.len());
        let counts: Vec<usize> = sides.iter().map(|(_, blocks)| blocks.len()).collect();
        expect(counts.len() == VOLUMES && !counts.contains(&0), || {
            format!("blocks to move and to read are on two volumes, not {counts:?}")
        })?;
        let (source, moved) = sides.remove(1);
        let (target, read) = sides.remove(0);
        Ok(Self {
            source,
            target,
            bytes: moved.iter().map(|place| place.len).sum(),
            read,
        })
    }
}
