//! What lies on the data directories, each looked at by a process of its own: `hayloft trash look`,
//! which this program starts by itself.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::Args;
use hayloft_store::{TrashedReplica, UpgradeLeftovers};
use hayloft_wire::ids::PoolId;
use serde::{Deserialize, Serialize};

use super::report::{TrashReport, VolumeLeftovers};
use crate::disk_look_process::{Apart, OWN_PROGRAM};
use crate::error::CliError;

/// Replicas that are looked at on each volume of a pool; a further call finds the next ones.
const REPLICAS_MAX: usize = 1_000_000;
/// Bytes of an answer: a replica has some 150.
const ANSWER_MAX: u64 = 1 << 30;
/// A disk that does nothing for so long is left out.
const STILL: Duration = Duration::from_secs(10);

/// `hayloft trash look`.
#[derive(Debug, Args)]
pub struct LookArgs {
    /// The data directory.
    volume: PathBuf,
}

/// What a process says of a pool on its volume. Paths go on after the pool's directory.
#[derive(Debug, Serialize, Deserialize)]
struct PoolOnVolume {
    pool: String,
    marker: bool,
    trash: BTreeMap<i64, (Vec<PathBuf>, u64)>,
    more: bool,
    previous: bool,
    previous_bytes: u64,
}

/// What a process prints: what is on its volume, or why that is not known.
type Answer = Result<Vec<PoolOnVolume>, String>;

/// Looks at one directory and prints what is there, or why that is not known.
pub fn look_at_one(args: &LookArgs) -> Result<ExitCode, CliError> {
    let found = hayloft_store::upgrade_leftovers(&args.volume, REPLICAS_MAX);
    let found: Answer = found
        .map(|all| all.into_iter().map(PoolOnVolume::of).collect())
        .map_err(|error| error.to_string());
    serde_json::to_writer(std::io::stdout().lock(), &found)
        .map_err(|error| CliError::new(format!("cannot print: {error}"), "", ""))?;
    Ok(ExitCode::SUCCESS)
}

/// What is on the directories; those that cannot be read, and those whose disks hang, are problems.
pub fn look(volumes: &[PathBuf], report: &mut TrashReport) -> Vec<VolumeLeftovers> {
    let answers: Vec<_> = std::thread::scope(|scope| {
        let asked = volumes.iter().map(|volume| scope.spawn(|| ask(volume)));
        let asked: Vec<_> = asked.collect();
        let answers = asked.into_iter().map(|asked| {
            let answer = asked.join();
            answer.unwrap_or_else(|_| Err("cannot be looked at".to_owned()))
        });
        answers.collect()
    });
    let mut found = Vec::new();
    for (volume, answer) in volumes.iter().zip(answers) {
        match answer {
            Ok(all) => found.extend(all.into_iter().map(|left| VolumeLeftovers {
                volume: volume.clone(),
                left,
            })),
            Err(why) => report.problem(volume, &why),
        }
    }
    found
}

/// What a process of its own finds on a directory.
fn ask(volume: &Path) -> Result<Vec<UpgradeLeftovers>, String> {
    let mut command = Command::new(OWN_PROGRAM);
    command.args(["trash", "look", "--"]).arg(volume);
    let said = Apart::start(&mut command, ANSWER_MAX).while_it_works(STILL);
    let hung = || format!("its disk gave no answer for {} s", STILL.as_secs());
    let answer: Result<Answer, _> = serde_json::from_slice(&said.ok_or_else(hung)??);
    let pools = answer.map_err(|error| error.to_string())??;
    pools.into_iter().map(|pool| pool.on(volume)).collect()
}

impl PoolOnVolume {
    fn of(left: UpgradeLeftovers) -> Self {
        let below = |path: &PathBuf| path.strip_prefix(&left.root).ok().map(Path::to_owned);
        let replica = |of: &TrashedReplica| (of.files.iter().filter_map(below).collect(), of.bytes);
        Self {
            pool: left.pool.to_string(),
            marker: left.marker,
            trash: left
                .trash
                .iter()
                .map(|(id, of)| (*id, replica(of)))
                .collect(),
            more: left.more,
            previous: left.previous,
            previous_bytes: left.previous_bytes,
        }
    }

    fn on(self, volume: &Path) -> Result<UpgradeLeftovers, String> {
        let pool = PoolId::new(&self.pool).map_err(|error| error.to_string())?;
        let root = volume.join("current").join(pool.as_str());
        let trash = self.trash.into_iter().map(|(id, (files, bytes))| {
            let files = files.iter().map(|file| root.join(file)).collect();
            (id, TrashedReplica { files, bytes })
        });
        Ok(UpgradeLeftovers {
            pool,
            marker: self.marker,
            trash: trash.collect(),
            more: self.more,
            previous: self.previous,
            previous_bytes: self.previous_bytes,
            root,
        })
    }
}
