//! A load client that costs little: data transfer as a stock client speaks it, from plain threads.
//!
//! - `cli`: `hayloft-load`: a load by hand, and a node to profile
//! - `data`: what the load client writes, and expects to read back
//! - `link`: a blocking connection to a data transfer port
//! - `read`: READ_BLOCK as a client: whole blocks one after the other, or small ranges anywhere
//! - `serve`: a node without a NameNode: store and data transfer port in one process, for profiling
//! - `tally`: what a load took: counts, and times in histograms
//! - `write`: WRITE_BLOCK as a client: packets ahead of their acknowledgements, up to a window
//!
//! A JVM client uses up a processor of its own and hides what a node can do. Here the data and its
//! checksums are computed once, a packet goes out of them in one gathered write, and what is read
//! is compared with them. Nothing is cached between runs.
//!
//! - [`data`]: the pattern; [`tally`]: counts and latencies;
//! - [`write_block`], [`Reader`]: one operation each;
//! - [`run_write`], [`run_read`], [`run_pread`]: several streams at a time;
//! - [`serve`]: a node's store and data transfer port without a NameNode, for profiling;
//! - [`cli`]: the command `hayloft-load`.

pub mod cli;
pub mod data;
mod link;
mod read;
pub mod serve;
pub mod tally;
mod write;

pub use data::Data;
pub use read::{Offsets, Reader};
pub use tally::{Latency, LatencyTally, LoadLatencies};
pub use write::{packet_data, write_block};

use crate::error::{Result, TestkitError};
use hayloft_wire::ids::ExtendedBlock;
use hayloft_wire::proto::hdfs::DatanodeInfo;
use std::time::{Duration, Instant};

/// How blocks are written.
#[derive(Clone, Copy, Debug)]
pub struct LoadSettings {
    /// Packet with header and checksums, bytes (`dfs.client-write-packet-size`).
    pub packet_bytes: usize,
    /// Packets that may be unacknowledged (`dfs.client.write.max-packets-in-flight`).
    pub window: u32,
    /// After so many packets, wait for all acknowledgements (hflush); 0: only at the end.
    pub hflush_every: u32,
    /// Every so many packets, ask for the medium (hsync) and wait; 0: never.
    pub sync_every: u32,
}

impl Default for LoadSettings {
    fn default() -> Self {
        Self {
            packet_bytes: 65536,
            window: 80,
            hflush_every: 0,
            sync_every: 0,
        }
    }
}

impl LoadSettings {
    /// After how many packets everything must be acknowledged.
    fn flush_every(&self) -> Option<u64> {
        let either = [self.hflush_every, self.sync_every];
        either
            .into_iter()
            .filter(|&every| every > 0)
            .min()
            .map(u64::from)
    }
}

/// A block, where it is or shall be, and how long it is or shall be.
#[derive(Clone, Debug)]
pub struct LoadPlace {
    /// Pool, id and generation stamp.
    pub block: ExtendedBlock,
    /// Length, bytes.
    pub len: u64,
    /// Its nodes in the order of the pipeline.
    pub nodes: Vec<DatanodeInfo>,
    /// The storages that the NameNode chose, in the same order; empty without a NameNode.
    pub storage_ids: Vec<String>,
    /// Name of the client, as the NameNode knows it.
    pub client: String,
}

/// What is done with data that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// Nothing: packets are taken off the socket.
    Nothing,
    /// Compared byte by byte with what was written.
    Bytes,
    /// Checked against the checksums that came with it, as stock clients do.
    Sums,
}

/// What a load did, all streams together.
#[derive(Clone, Debug, Default)]
pub struct LoadOutcome {
    /// Counts and times.
    pub tally: LatencyTally,
    /// From the first request to the last answer.
    pub took: Duration,
}

/// Writes the blocks of each stream one after the other, the streams at the same time.
///
/// # Errors
/// The first stream's error.
pub fn run_write(
    settings: &LoadSettings,
    data: &Data,
    streams: &[Vec<LoadPlace>],
) -> Result<LoadOutcome> {
    each_stream(streams, |_, places, tally| {
        places
            .iter()
            .try_for_each(|place| write_block(settings, data, place, tally))
    })
}

/// What is received at once by a client that reads whole blocks, bytes.
const READ_BUFFER_BYTES: usize = 512 << 10;

/// Reads the blocks of each stream one after the other, the streams at the same time.
///
/// # Errors
/// The first stream's error; [`TestkitError::Expectation`] when bytes differ.
pub fn run_read(data: &Data, check: Check, streams: &[Vec<LoadPlace>]) -> Result<LoadOutcome> {
    each_stream(streams, |_, places, tally| {
        let mut reader = Reader::new(data, check, READ_BUFFER_BYTES);
        places
            .iter()
            .try_for_each(|place| reader.read(place, 0, 0, place.len, tally))
    })
}

/// A run of random positional reads.
#[derive(Clone, Copy, Debug)]
pub struct Preads {
    /// Reads in flight, each on a connection of its own.
    pub in_flight: usize,
    /// Bytes each.
    pub bytes: u64,
    /// Reads, all connections together.
    pub ops: u64,
    /// Where: the same seed reads the same places.
    pub seed: u64,
    /// What is done with the data.
    pub check: Check,
}

/// Reads ranges at random places of `blocks`.
///
/// # Errors
/// The first connection's error; [`TestkitError::Expectation`] when bytes differ or no block is
/// long enough.
pub fn run_pread(data: &Data, preads: &Preads, blocks: &[LoadPlace]) -> Result<LoadOutcome> {
    if blocks.is_empty() || blocks.iter().any(|place| place.len < preads.bytes) {
        return Err(TestkitError::Expectation(format!(
            "positional reads of {} bytes need blocks that are as long",
            preads.bytes
        )));
    }
    let seats: Vec<()> = vec![(); preads.in_flight];
    let share = preads.ops.div_ceil(preads.in_flight.max(1) as u64);
    let buffer = usize::try_from(preads.bytes).unwrap_or(READ_BUFFER_BYTES);
    let buffer = (2 * buffer).min(READ_BUFFER_BYTES);
    each_stream(&seats, |seat, (), tally| {
        let mut offsets = Offsets::new(preads.seed.wrapping_add((seat as u64) << 32));
        let mut reader = Reader::new(data, preads.check, buffer);
        for _ in 0..share {
            let which = usize::try_from(offsets.below(blocks.len() as u64)).unwrap_or(0);
            let place = &blocks[which];
            let offset = offsets.below(place.len - preads.bytes + 1);
            reader.read(place, 0, offset, preads.bytes, tally)?;
        }
        Ok(())
    })
}

/// Runs `work` for every stream in a thread of its own; they begin together.
pub fn each_stream<S: Sync>(
    streams: &[S],
    work: impl Fn(usize, &S, &mut LatencyTally) -> Result<()> + Sync,
) -> Result<LoadOutcome> {
    let start = std::sync::Barrier::new(streams.len() + 1);
    let (work, start) = (&work, &start);
    std::thread::scope(|scope| {
        let spawn = |(index, stream)| {
            scope.spawn(move || {
                start.wait();
                let mut tally = LatencyTally::default();
                work(index, stream, &mut tally).map(|()| tally)
            })
        };
        let threads: Vec<_> = streams.iter().enumerate().map(spawn).collect();
        start.wait();
        let began = Instant::now();
        let mut all = LatencyTally::default();
        for thread in threads {
            let tally = thread.join();
            all.add(&tally.map_err(|_| TestkitError::Talk("a load thread panicked".into()))??);
        }
        Ok(LoadOutcome {
            tally: all,
            took: began.elapsed(),
        })
    })
}
