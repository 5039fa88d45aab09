//! What the clients do: files written and read by each of them.

use super::figures::Figures;
use super::names::FileSpec;
use super::native_client::NativeClient;
use super::rig::BLOCK_BYTES;
use super::rows::{BenchRow, BenchWorkload, Client};
use super::wal_log::WalLog;
use super::work::{Files, Run, cold, warm_memory};
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::load::{
    Check, LatencyTally, LoadOutcome, LoadPlace, LoadSettings, Preads, each_stream, run_pread,
    run_read,
};
use hayloft_testkit::machine;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Clients that create small files.
pub(super) const SMALL_CLIENTS: usize = 4;
/// Files each of them creates.
pub(super) const SMALL_FILES: usize = 150;
const SMALL_BYTES: u64 = 10_000;

/// How long the Java client waits before it asks again whether a file is complete, ms; 400 unless
/// told.
const PROMPT: [(&str, u32); 1] = [(
    "dfs.client.block.write.locateFollowingBlock.initial.delay.ms",
    10,
)];

/// A packet that carries a record of 1 KiB, and the length of a log of them.
const RECORD_BYTES: usize = 1100;
const LOG_BYTES: u64 = 1 << 20;

/// Records of a log that count, of each thread that writes it. Their writers stay at it together,
/// as those of HBase do.
const FLUSHED_RECORDS: u32 = 4000;
const SYNCED_RECORDS: u32 = 200;

const fn records(synced: bool) -> u32 {
    if synced {
        SYNCED_RECORDS
    } else {
        FLUSHED_RECORDS
    }
}

impl Run<'_> {
    pub(super) fn small_files(
        &self,
        row: BenchRow,
        nodes: &[String],
        dir: &str,
    ) -> Result<LoadOutcome> {
        match row.client {
            Client::Java => {
                let prompt = row.workload == BenchWorkload::PromptSmallFiles;
                let conf = match prompt {
                    true => json!(BTreeMap::from(PROMPT)),
                    false => json!({}),
                };
                let dir = format!("{dir}/{}", row.workload);
                let request = json!({
                    "path": dir, "streams": SMALL_CLIENTS, "files": SMALL_FILES,
                    "bytes": SMALL_BYTES, "favored": nodes, "conf": conf,
                });
                self.java("createFiles", request)
            }
            Client::HdfsNative => {
                let native = self.native(nodes)?;
                native.create(dir, SMALL_CLIENTS, SMALL_FILES, SMALL_BYTES)
            }
            Client::Load | Client::None => {
                let (data, names) = (&self.rig.data, &self.rig.names);
                each_stream(&[(); SMALL_CLIENTS], |client, (), tally| {
                    let dir = format!("{dir}/c{client}");
                    for number in 0..SMALL_FILES {
                        let spec = file(&dir, number, SMALL_BYTES, nodes);
                        let began = Instant::now();
                        let mut blocks = LatencyTally::default();
                        names.write(&spec, &LoadSettings::default(), data, &mut blocks)?;
                        tally.count(SMALL_BYTES, began.elapsed());
                    }
                    Ok(())
                })
            }
        }
    }

    /// Logs that are written at the same time by the Java client.
    pub(super) fn logs(
        &self,
        row: BenchRow,
        logs: u32,
        nodes: &[String],
        dir: &str,
    ) -> Result<LoadOutcome> {
        let sync = matches!(row.workload, BenchWorkload::Hsynced(_));
        let request = json!({
            "path": format!("{dir}/{}", row.workload), "streams": logs, "records": records(sync),
            "bytes": 1024, "sync": sync, "favored": nodes,
        });
        self.java("writeLogs", request)
    }

    /// HBase's log, by HBase. It fails when the log was on other nodes.
    pub(super) fn wal(&self, log: WalLog, nodes: &[String], dir: &str) -> Result<LoadOutcome> {
        let missing = || TestkitError::Talk("HBase does not run".into());
        let hbase = self.rig.hbase.as_ref().ok_or_else(missing)?;
        let answer = hbase.call("wal", log.request(dir, records(log.hsyncs()), nodes))?;
        Ok(outcome_of(&answer))
    }

    /// Two writers and two readers of files that were written before.
    pub(super) fn mixed(
        &mut self,
        row: BenchRow,
        seat: usize,
        dir: &str,
        bytes: u64,
    ) -> Result<Figures> {
        let (old, _) = self.write(row.client, seat, format!("{dir}/old"), (2, bytes), 1)?;
        cold(&self.rig.disk(), 2 * bytes)?;
        let nodes = self.rig.addresses(seat, 1);
        let new = format!("{dir}/new");
        self.measured(row, seat, |run| {
            let (data, names) = (&run.rig.data, &run.rig.names);
            each_stream(&[0, 1, 2, 3], |_, &stream: &usize, tally| {
                if stream < 2 {
                    let spec = file(&new, stream, bytes, &nodes);
                    return names
                        .write(&spec, &LoadSettings::default(), data, tally)
                        .map(drop);
                }
                let outcome = run_read(data, Check::Bytes, &old.places[stream - 2..stream - 1])?;
                tally.add(&outcome.tally);
                Ok(())
            })
        })
    }

    /// A log of records that are hflushed one by one, for as long as four writers are busy.
    pub(super) fn hflush(
        &mut self,
        row: BenchRow,
        seat: usize,
        dir: &str,
        bytes: u64,
    ) -> Result<Figures> {
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
        self.measured(row, seat, |run| {
            let (data, names) = (&run.rig.data, &run.rig.names);
            let busy = AtomicUsize::new(WRITERS);
            let streams: Vec<usize> = (0..=WRITERS).collect();
            each_stream(&streams, |_, &stream: &usize, tally| {
                if stream < WRITERS {
                    let spec = file(&format!("{dir}/bulk"), stream, bytes, &nodes);
                    let mut written = LatencyTally::default();
                    let outcome = names.write(&spec, &LoadSettings::default(), data, &mut written);
                    busy.fetch_sub(1, Ordering::AcqRel);
                    tally.bytes += written.bytes;
                    return outcome.map(drop);
                }
                for log in 0.. {
                    let spec = file(&format!("{dir}/log"), log, LOG_BYTES, &nodes);
                    let mut written = LatencyTally::default();
                    names.write(&spec, &record, data, &mut written)?;
                    tally.bytes += written.bytes;
                    tally.ops += written.ack.summary().count;
                    tally.op.add(&written.ack);
                    if busy.load(Ordering::Acquire) == 0 {
                        break;
                    }
                }
                Ok(())
            })
        })
    }

    fn native(&self, nodes: &[String]) -> Result<NativeClient> {
        NativeClient::new(self.rig.namenode(), nodes)
    }

    /// The files of the stage, written now if no row has written them.
    pub(super) fn ready<'f>(
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
            .ok_or_else(|| TestkitError::Talk("the files of the stage are missing".into()))
    }

    /// Writes `share.0` files of `share.1` bytes at the same time, each to `copies` nodes.
    pub(super) fn write(
        &mut self,
        client: Client,
        seat: usize,
        dir: String,
        share: (u64, u64),
        copies: usize,
    ) -> Result<(Files, LoadOutcome)> {
        let nodes = self.rig.addresses(seat, copies);
        let (streams, bytes) = (as_index(share.0), share.1);
        if client == Client::Load {
            return self.write_places(dir, (streams, bytes), &nodes);
        }
        let outcome = if client == Client::Java {
            let request = json!({
                "path": dir, "streams": streams, "bytes": bytes, "replication": copies,
                "blockSize": BLOCK_BYTES, "favored": nodes,
            });
            self.java("writeStreams", request)?
        } else {
            self.native(&nodes)?.write(&dir, streams, bytes)?
        };
        let places = vec![Vec::new(); streams];
        Ok((Files { dir, places }, outcome))
    }

    /// The same by the load client, which keeps where the blocks are.
    fn write_places(
        &self,
        dir: String,
        (streams, bytes): (usize, u64),
        nodes: &[String],
    ) -> Result<(Files, LoadOutcome)> {
        let (data, names) = (&self.rig.data, &self.rig.names);
        let written: Vec<_> = (0..streams).map(|_| Mutex::new(Vec::new())).collect();
        let outcome = each_stream(&written, |stream, slot, tally| {
            let spec = file(&dir, stream, bytes, nodes);
            let places = names.write(&spec, &LoadSettings::default(), data, tally)?;
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = places;
            Ok(())
        })?;
        let places = written.into_iter().map(Mutex::into_inner);
        let places = places.map(|slot| slot.unwrap_or_else(PoisonError::into_inner));
        let places = places.collect();
        Ok((Files { dir, places }, outcome))
    }

    pub(super) fn read(&self, client: Client, files: &Files) -> Result<LoadOutcome> {
        let streams = files.places.len();
        match client {
            Client::Java => {
                let request = json!({"path": files.dir, "streams": streams});
                self.java("readStreams", request)
            }
            Client::HdfsNative => self.native(&[])?.read(&files.dir, streams),
            Client::Load | Client::None => run_read(&self.rig.data, Check::Bytes, &files.places),
        }
    }

    pub(super) fn pread(
        &self,
        client: Client,
        files: &Files,
        preads: &Preads,
    ) -> Result<LoadOutcome> {
        if client == Client::HdfsNative {
            return self
                .native(&[])?
                .pread(&files.dir, files.places.len(), preads);
        }
        let blocks: Vec<LoadPlace> = files.places.iter().flatten().cloned().collect();
        run_pread(&self.rig.data, preads, &blocks)
    }

    fn java(&self, operation: &str, request: Value) -> Result<LoadOutcome> {
        Ok(outcome_of(&self.ask_java(operation, request)?))
    }

    /// What the Java client says of an operation whose bytes were right.
    pub(super) fn ask_java(&self, operation: &str, request: Value) -> Result<Value> {
        let missing = || TestkitError::Talk("the Java client does not run".into());
        let answer = self
            .rig
            .driver
            .as_ref()
            .ok_or_else(missing)?
            .call(operation, request)?;
        if answer["equal"] == false {
            let problem = format!("{operation}: bytes differ from what was written");
            return Err(TestkitError::Expectation(problem));
        }
        Ok(answer)
    }
}

/// Bytes and times of an answer of the Java client.
pub(super) fn outcome_of(answer: &Value) -> LoadOutcome {
    let mut outcome = LoadOutcome::default();
    outcome.tally.bytes = answer["bytes"].as_u64().unwrap_or(0);
    for micros in answer["micros"].as_array().into_iter().flatten() {
        let micros = Duration::from_micros(micros.as_u64().unwrap_or(u64::MAX));
        outcome.tally.count(0, micros);
    }
    outcome.took = Duration::from_nanos(answer["nanos"].as_u64().unwrap_or(u64::MAX));
    outcome
}

pub(super) fn file(dir: &str, number: usize, len: u64, nodes: &[String]) -> FileSpec {
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
