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
        let nodes = self.rig.addresses(seat, 1);
        self.expect_at(&nodes, read, ready)?;
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

    /// All blocks of the stage have to be on one of `nodes`: the NameNode takes the nodes that a
    /// client favors for a wish, and another one's replica would be read as well.
    fn expect_at(&self, nodes: &[String], read: LocalRead, files: &Files) -> Result<()> {
        let paths: Vec<String> = match read {
            LocalRead::Descriptors => (0..SMALL_CLIENTS)
                .flat_map(|client| (0..SMALL_FILES).map(move |n| format!("c{client}/s{n}")))
                .collect(),
            _ => vec!["s0".into()],
        };
        paths.into_iter().try_for_each(|path| {
            let path = format!("{}/{path}", files.dir);
            let wrong = misplaced(&self.rig.names.locations(&path)?, nodes);
            wrong.map_or(Ok(()), |wrong| {
                let problem = format!("{path}: {wrong}, so this would measure another node");
                Err(TestkitError::Expectation(problem))
            })
        })
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

/// What is wrong with where a file's blocks are; `None` when each is on one of `wanted` alone.
fn misplaced(blocks: &[Vec<String>], wanted: &[String]) -> Option<String> {
    if blocks.is_empty() {
        return Some("it has no block".into());
    }
    let is_wrong =
        |nodes: &&Vec<String>| nodes.is_empty() || nodes.iter().any(|node| !wanted.contains(node));
    let nodes = blocks.iter().find(is_wrong)?;
    Some(format!("a block is on {nodes:?}, not on {wanted:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_block_is_on_the_node_that_is_measured() {
        let at = |ports: &[u16]| -> Vec<String> {
            let ports = ports.iter();
            ports.map(|port| format!("127.0.0.1:{port}")).collect()
        };
        let wanted = at(&[1]);
        assert_eq!(misplaced(&[at(&[1]), at(&[1])], &wanted), None);
        for wrong in [
            vec![],
            vec![at(&[1]), at(&[2])],
            vec![at(&[1, 2])],
            vec![at(&[])],
        ] {
            assert!(misplaced(&wrong, &wanted).is_some(), "{wrong:?}");
        }
    }
}
