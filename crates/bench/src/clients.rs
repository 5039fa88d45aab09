//! What the clients do: files written and read by the native and by the Java client.

use super::names::FileSpec;
use super::rig::BLOCK_BYTES;
use super::rows::Client;
use super::work::Run;
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::load::{
    self, Check, LoadOutcome, LoadPlace, LoadSettings, each_stream, run_read,
};
use serde_json::json;
use std::time::{Duration, Instant};

/// Clients that create small files.
const SMALL_CLIENTS: usize = 4;
/// Files each of them creates.
const SMALL_FILES: usize = 150;
const SMALL_BYTES: u64 = 10_000;

/// The file of each stream, by its blocks; a Java client keeps no list of them.
pub(super) struct Files {
    pub(super) dir: String,
    pub(super) places: Vec<Vec<LoadPlace>>,
}

impl Run<'_> {
    pub(super) fn small_files(
        &self,
        client: Client,
        nodes: &[String],
        dir: &str,
    ) -> Result<LoadOutcome> {
        if client == Client::Java {
            let request = json!({
                "path": dir, "streams": SMALL_CLIENTS, "files": SMALL_FILES, "bytes": SMALL_BYTES, "favored": nodes,
            });
            return self.java("createFiles", request);
        }
        let (data, names) = (&self.rig.data, &self.rig.names);
        each_stream(&[(); SMALL_CLIENTS], |client, (), tally| {
            for number in 0..SMALL_FILES {
                let spec = file(&format!("{dir}/c{client}"), number, SMALL_BYTES, nodes);
                let began = Instant::now();
                let mut blocks = load::LatencyTally::default();
                names.write(&spec, &LoadSettings::default(), data, &mut blocks)?;
                tally.op(SMALL_BYTES, began.elapsed());
            }
            Ok(())
        })
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
            let written = names.write(&spec, &LoadSettings::default(), data, tally)?;
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

    pub(super) fn read(&self, client: Client, files: &Files, check: Check) -> Result<LoadOutcome> {
        if client == Client::Java {
            let request = json!({"path": files.dir, "streams": files.places.len()});
            return self.java("readStreams", request);
        }
        run_read(&self.rig.data, check, &files.places)
    }

    fn java(&self, operation: &str, request: serde_json::Value) -> Result<LoadOutcome> {
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
        let mut outcome = LoadOutcome::default();
        outcome.tally.bytes = answer["bytes"].as_u64().unwrap_or(0);
        for micros in answer["micros"].as_array().into_iter().flatten() {
            let micros = Duration::from_micros(micros.as_u64().unwrap_or(u64::MAX));
            outcome.tally.op(0, micros);
        }
        outcome.took = Duration::from_nanos(answer["nanos"].as_u64().unwrap_or(u64::MAX));
        Ok(outcome)
    }
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
