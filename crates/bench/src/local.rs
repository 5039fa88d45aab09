//! What the Java client reads by itself, and over TCP beside that.

use super::clients::{SMALL_CLIENTS, SMALL_FILES, outcome_of};
use super::figures::Figures;
use super::local_read::{LocalRead, PREAD_BYTES};
use super::rows::{BenchRow, BenchWorkload};
use super::work::{Files, Run, at_rest, cold};
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::load::LoadOutcome;
use serde_json::json;

/// Random reads of a row.
const PREADS: u32 = 1000;
/// Times that each small file is read.
const PASSES: usize = 10;

impl Run<'_> {
    pub(super) fn local_row(
        &mut self,
        row: BenchRow,
        (read, tcp): (LocalRead, bool),
        seat: usize,
        dir: &str,
        bytes: u64,
        files: &mut Option<Files>,
    ) -> Result<Figures> {
        let ready = match read {
            LocalRead::Descriptors => self.small_ready(row, seat, dir, files)?,
            _ => self.ready(row.client, seat, dir, (1, bytes), files)?,
        };
        match read {
            LocalRead::Cold | LocalRead::Pread => cold(&self.rig.disk(), bytes)?,
            LocalRead::Warm | LocalRead::ZeroCopy => {
                at_rest(&self.rig.disk())?;
                for _ in 0..2 {
                    self.read_locally(read, tcp, ready, bytes)?;
                }
            }
            LocalRead::Descriptors => at_rest(&self.rig.disk())?,
        }
        self.measured(row, seat, |run| run.read_locally(read, tcp, ready, bytes))
    }

    /// The small files of the stage, written now if no row has written them.
    fn small_ready<'f>(
        &mut self,
        row: BenchRow,
        seat: usize,
        dir: &str,
        files: &'f mut Option<Files>,
    ) -> Result<&'f Files> {
        if files.is_none() {
            let by = BenchRow::new(BenchWorkload::PromptSmallFiles, row.client);
            let nodes = self.rig.addresses(seat, 1);
            self.small_files(by, &nodes, dir)?;
        }
        Ok(files.get_or_insert_with(|| Files {
            dir: format!("{dir}/{}", BenchWorkload::PromptSmallFiles),
            places: vec![Vec::new(); SMALL_CLIENTS],
        }))
    }

    /// Reads the files of the stage once, the small ones several times. All of it must come in the
    /// way of the row.
    fn read_locally(
        &self,
        read: LocalRead,
        tcp: bool,
        files: &Files,
        bytes: u64,
    ) -> Result<LoadOutcome> {
        let mut request = json!({
            "path": files.dir, "streams": files.places.len(), "conf": read.conf(tcp),
        });
        let operation = match read {
            LocalRead::Cold | LocalRead::Warm => "readStreams",
            LocalRead::ZeroCopy => {
                request["mapped"] = json!(true);
                "readStreams"
            }
            LocalRead::Pread => {
                request["ops"] = json!(PREADS);
                request["bytes"] = json!(PREAD_BYTES.min(bytes / 8));
                "preads"
            }
            LocalRead::Descriptors => {
                request["files"] = json!(SMALL_FILES);
                request["ops"] = json!(SMALL_FILES * PASSES);
                request["bytes"] = json!(1);
                "preads"
            }
        };
        let answer = self.ask_java(operation, request)?;
        let checked = read.check(tcp, &answer);
        checked.map_err(TestkitError::Expectation)?;
        Ok(outcome_of(&answer))
    }
}
