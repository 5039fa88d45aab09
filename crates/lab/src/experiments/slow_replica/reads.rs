//! Readers of random places: how long each read took, and whose replica the NameNode named first.

use std::time::Duration;

use hayloft_testkit::driver::Driver;
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::load::{Latency, LoadLatencies};
use serde_json::{Value, json};

use super::hosts::slow_address;
use crate::runner::options::ExperimentOptions;
use crate::runner::record::PeerFigures;
use crate::sample::Watch;
use crate::up::Testbed;
use crate::workload::{self, Moved, PHASE_LIMIT};

/// Streams that read at a time, each a file of its own.
pub(super) const READERS: u64 = 4;
/// Bytes of a read.
pub(super) const READ_BYTES: u64 = 256 << 10;
/// Reads of a stream that count, and in a look.
const READS: u64 = 400;
const READS_OF_A_LOOK: u64 = 150;
/// Reads of a stream that warm a client up.
const WARM_UP: u64 = 40;
/// Block size of the files: of each the NameNode draws anew whose replica is read.
const BLOCK: u64 = 1 << 20;
/// The least of a file, MiB: with fewer blocks the slow node might have none.
const FILE_MIB_LEAST: u32 = 32;
/// Threads that ask other nodes, for each reader.
const HEDGES: u64 = 2;

/// MiB of a file.
pub(super) fn file_mib(options: &ExperimentOptions) -> u32 {
    options.mib.max(FILE_MIB_LEAST)
}

/// Has `client` write the files of all readers below `path`; MB/s.
pub(super) fn write(client: &Driver, path: &str, options: &ExperimentOptions) -> Result<f64> {
    let request = json!({
        "path": path, "streams": READERS, "bytes": u64::from(file_mib(options)) << 20,
        "blockSize": BLOCK, "replication": 3,
    });
    let moved = workload::moved(
        vec![client.begin("writeStreams", request)]
            .into_iter()
            .collect(),
    )?;
    let rate = |moved: &Moved| mbs(moved);
    moved
        .first()
        .map(rate)
        .ok_or_else(|| TestkitError::Talk("nothing was written".into()))
}

#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
fn mbs(moved: &Moved) -> f64 {
    moved.bytes as f64 / 1e6 / (moved.nanos as f64 / 1e9)
}

/// Who reads, and how.
pub(super) struct Readers<'a> {
    /// The client.
    pub client: &'a Driver,
    /// Another node is asked too when one has not answered in this time.
    pub hedge: Option<Duration>,
}

impl Readers<'_> {
    /// Reads what was written below `path` with empty caches; the figures.
    ///
    /// # Errors
    /// When a read fails, or gives other bytes than were written.
    pub fn measure(
        &self,
        (testbed, path, round): (&Testbed, &str, usize),
        options: &ExperimentOptions,
    ) -> Result<PeerFigures> {
        let warm = self.call(path, WARM_UP)?;
        let first_slow = self.first_slow(path)?;
        workload::empty_page_cache()?;
        let reads = match options.first_counts {
            true => READS_OF_A_LOOK,
            false => READS,
        };
        let watch = Watch::begin(testbed)?;
        let mut read = Value::Null;
        let phase = workload::observe(testbed, ("read", round), &watch, || {
            read = self.call(path, reads)?;
            Ok(vec![Moved {
                bytes: read["bytes"].as_u64().unwrap_or(0),
                nanos: read["nanos"].as_u64().unwrap_or(u64::MAX),
            }])
        })?;
        let outcome = workload::outcome(watch, vec![phase]);
        let figures = outcome.phases[0].figures(testbed.described());
        let took = latencies(&latency(&read)?).and(hedged(&warm, &read));
        Ok(figures.and(took).with("first_slow", first_slow))
    }

    fn call(&self, path: &str, reads: u64) -> Result<Value> {
        // Where blocks lie behind each other, a read would else bring what the next ones ask for.
        let mut conf = json!({
            "dfs.client.cache.readahead": 0,
            "dfs.client.cache.drop.behind.reads": true,
        });
        if let Some(hedge) = self.hedge {
            conf["dfs.client.hedged.read.threadpool.size"] = (HEDGES * READERS).into();
            let millis = u64::try_from(hedge.as_millis()).unwrap_or(u64::MAX).max(1);
            conf["dfs.client.hedged.read.threshold.millis"] = millis.into();
        }
        let request = json!({
            "path": path, "streams": READERS, "ops": reads, "bytes": READ_BYTES, "conf": conf,
        });
        let answer = self
            .client
            .begin("preads", request)?
            .wait_at_most(PHASE_LIMIT)?;
        if answer["equal"].as_bool() != Some(true) {
            let what = "a client read something else than was written";
            return Err(TestkitError::Expectation(what.into()));
        }
        Ok(answer)
    }

    /// The share of all blocks of which the slow node's replica is named first.
    fn first_slow(&self, path: &str) -> Result<f64> {
        let mut all = Vec::new();
        for stream in 0..READERS {
            let file = json!({"path": format!("{path}/s{stream}")});
            all.push(self.client.call("blocks", file)?);
        }
        share_first(&all, &slow_address())
            .ok_or_else(|| TestkitError::Talk("the files have no blocks".into()))
    }
}

/// Of the blocks in these answers, the share whose first node has this address.
#[expect(clippy::cast_precision_loss, reason = "a few hundred blocks")]
fn share_first(answers: &[Value], address: &str) -> Option<f64> {
    let blocks = answers
        .iter()
        .filter_map(|answer| answer["blocks"].as_array());
    let first: Vec<bool> = blocks
        .flatten()
        .filter_map(|block| block["nodes"][0]["xfer"].as_str()?.split_once(':'))
        .map(|(host, _)| host == address)
        .collect();
    let slow = first.iter().filter(|is| **is).count();
    (!first.is_empty()).then(|| slow as f64 / first.len() as f64)
}

/// What the reads of an answer took.
fn latency(answer: &Value) -> Result<Latency> {
    let mut times = LoadLatencies::default();
    for micros in answer["micros"].as_array().into_iter().flatten() {
        times.record(Duration::from_micros(micros.as_u64().unwrap_or(u64::MAX)));
    }
    let took = times.summary();
    if took.count == 0 {
        return Err(TestkitError::Talk("a client read nothing".into()));
    }
    Ok(took)
}

/// Reads between two answers of a client for which it asked another node too, and those that the
/// other one answered first; nothing of a client that does not hedge.
#[expect(clippy::cast_precision_loss, reason = "at most a few thousand reads")]
fn hedged(before: &Value, after: &Value) -> PeerFigures {
    let count = |answer: &Value, name: &str| answer[name].as_u64();
    let counts = [("hedged", "hedgedOps"), ("hedges_won", "hedgedWins")];
    counts
        .iter()
        .fold(PeerFigures::default(), |all, (name, of)| {
            let more =
                count(after, of).map(|now| now.saturating_sub(count(before, of).unwrap_or(0)));
            all.with_some(name, more.map(|more| more as f64))
        })
}

#[expect(
    clippy::cast_precision_loss,
    reason = "at most an hour in microseconds"
)]
fn latencies(took: &Latency) -> PeerFigures {
    let ms = |micros: u64| micros as f64 / 1e3;
    PeerFigures::of([
        ("reads", took.count as f64),
        ("p50_ms", ms(took.p50_us)),
        ("p99_ms", ms(took.p99_us)),
        ("longest_ms", ms(took.max_us)),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_all_reads_become_percentiles_in_milliseconds() {
        let micros: Vec<u64> = (1..=100).map(|n| n * 1000).collect();
        let took = latency(&json!({"micros": micros})).expect("there are some");
        let figures = latencies(&took);
        for (name, wanted) in [("reads", 100.0), ("p50_ms", 50.0), ("p99_ms", 99.0)] {
            let is = figures.get(name).expect(name);
            assert!(
                (is - wanted).abs() < wanted / 1000.0 + 0.001,
                "{name}: {is}"
            );
        }
        let error = latency(&json!({"micros": []})).expect_err("none");
        assert!(error.to_string().contains("read nothing"));
    }

    #[test]
    fn replicas_named_first_are_counted_by_their_host() {
        let block = |nodes: &[&str]| {
            let nodes: Vec<Value> = nodes.iter().map(|xfer| json!({"xfer": xfer})).collect();
            json!({"nodes": nodes})
        };
        let (slow, other) = ("10.77.0.1:9866", "10.77.0.11:9866");
        let answers = [
            json!({"blocks": [block(&[slow, other]), block(&[other, slow])]}),
            json!({"blocks": [block(&[other]), block(&[other])]}),
        ];
        assert_eq!(share_first(&answers, "10.77.0.1"), Some(0.25));
        assert_eq!(share_first(&[], "10.77.0.1"), None);
    }

    #[test]
    fn hedges_are_counted_between_two_answers() {
        let of = |ops: u64, wins: u64| json!({"hedgedOps": ops, "hedgedWins": wins});
        let figures = hedged(&of(5, 1), &of(12, 4));
        assert_eq!(figures.get("hedged"), Some(7.0));
        assert_eq!(figures.get("hedges_won"), Some(3.0));
        assert_eq!(hedged(&json!({}), &json!({})), PeerFigures::default());
    }

    #[test]
    fn files_have_enough_blocks_in_a_look_too() {
        let options = ExperimentOptions {
            mib: 16,
            ..ExperimentOptions::default()
        };
        assert_eq!(file_mib(&options), FILE_MIB_LEAST);
    }
}
