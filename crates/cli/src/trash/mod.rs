//! `hayloft trash`: what upgrades left on the data directories, and letting it go.
//!
//! - `look`: what lies on the data directories, each looked at by a process of its own
//! - `namenode`: what the active NameNode of a pool says of upgrades and of blocks, on its web port
//! - `report`: what `hayloft trash` says
//!
//! No file needs a block that the active NameNode does not know while no upgrade can be rolled
//! back. Everything else stays: after a NameNode's rollback it is what is left of files.

mod look;
mod namenode;
mod report;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use hayloft_conf::Configuration;
use hayloft_console::progress::ProgressStep;
use hayloft_wire::ids::PoolId;

use crate::error::CliError;
use crate::given::WhereArgs;
use look::{LookArgs, look, look_at_one};
use namenode::{ConfiguredNameNodes, PoolNameNode};
use report::{TrashPool, TrashReport, TrashVolume, VolumeLeftovers};

/// `hayloft trash`.
#[derive(Debug, Args)]
pub struct TrashArgs {
    /// What to do.
    #[command(subcommand)]
    command: TrashCommand,
}

#[derive(Debug, Subcommand)]
enum TrashCommand {
    /// Say what trash and previous hold, by volume and block pool, and what of the trash the
    /// NameNode still knows (exit code 1 if they hold anything).
    List(WhereArgs),
    /// Say which deleted replicas the NameNode does not know any more; with --yes remove them.
    /// Nothing is removed while an upgrade may be rolled back (exit code 1 if something is in the
    /// way).
    Purge(PurgeArgs),
    /// For this program itself: look at one directory, whose disk may hang.
    #[command(hide = true)]
    Look(LookArgs),
}

#[derive(Debug, Args)]
struct PurgeArgs {
    #[command(flatten)]
    place: WhereArgs,
    /// Remove them; without it nothing is changed.
    #[arg(long)]
    yes: bool,
}

/// Looks at the directories, asks the NameNodes and reports; removes replicas when told so.
pub fn run(args: &TrashArgs) -> Result<ExitCode, CliError> {
    let (place, purge) = match &args.command {
        TrashCommand::List(place) => (place, None),
        TrashCommand::Purge(purge) => (&purge.place, Some(purge.yes)),
        TrashCommand::Look(look) => return look_at_one(look),
    };
    let config = Configuration::load(&crate::given::conf_dir(place.conf.as_deref())?, &[])?;
    let namenodes = ConfiguredNameNodes::of(&config)?;
    let mut report = TrashReport::new(purge);
    let found = look(&crate::given::data_dirs(&config)?, &mut report);
    let pools: BTreeSet<PoolId> = found.iter().map(|of| of.left.pool.clone()).collect();
    let mut fates = BTreeMap::new();
    for pool in pools {
        let blocks = blocks_of(&found, &pool);
        let (row, known) = ask(&namenodes, &pool, &blocks);
        fates.insert(pool, (row, known));
    }
    for of in found {
        let Some((row, known)) = fates.get(&of.left.pool) else {
            continue;
        };
        let freed = match purge {
            Some(true) if row.settled() => let_go(&namenodes, &of, known, &mut report),
            _ => None,
        };
        report.volumes.push(TrashVolume::of(&of, known, freed));
    }
    report.pools = fates.into_values().map(|(row, _)| row).collect();
    report.tell(place.json)
}

/// The blocks of a pool's trash on all volumes.
fn blocks_of(found: &[VolumeLeftovers], pool: &PoolId) -> Vec<i64> {
    let here = found.iter().filter(|of| of.left.pool == *pool);
    let blocks: BTreeSet<i64> = here.flat_map(|of| of.left.trash.keys().copied()).collect();
    blocks.into_iter().collect()
}

/// How the pool stands, and which of the blocks its NameNode knows.
fn ask(
    namenodes: &ConfiguredNameNodes,
    pool: &PoolId,
    blocks: &[i64],
) -> (TrashPool, HashMap<i64, bool>) {
    let nothing = HashMap::new();
    let active = match namenodes.active(pool) {
        Ok(active) => active,
        Err(why) => return (TrashPool::new(pool, None, Some(why)), nothing),
    };
    if blocks.is_empty() {
        return (TrashPool::new(pool, Some(&active), None), nothing);
    }
    let step = ProgressStep::spinner(format!("asking {}", active.address));
    let count = blocks.len();
    let told = |asked| step.note(&format!("{asked} of {count} blocks"));
    match active.known(blocks, told) {
        Ok(known) => {
            step.done(&format!("{count} blocks"));
            (TrashPool::new(pool, Some(&active), None), known)
        }
        Err(why) => (TrashPool::new(pool, Some(&active), Some(why)), nothing),
    }
}

/// Removes what the NameNode does not know from a volume; gives the bytes.
fn let_go(
    namenodes: &ConfiguredNameNodes,
    of: &VolumeLeftovers,
    known: &HashMap<i64, bool>,
    report: &mut TrashReport,
) -> Option<u64> {
    let unknown = |id: &&i64| known.get(id) == Some(&false);
    let blocks: HashSet<i64> = of.left.trash.keys().filter(unknown).copied().collect();
    if blocks.is_empty() {
        return Some(0);
    }
    // Held while the files go: no node starts to roll back meanwhile. One that runs has put
    // nothing of these names there since.
    let _lock = match hayloft_store::hold_volume(&of.volume) {
        Ok(lock) => lock,
        Err(error) => {
            report.problem(&of.volume, &error.to_string());
            return None;
        }
    };
    if let Err(why) = still_settled(namenodes, &of.left.pool) {
        report.problem(&of.volume, &why);
        return None;
    }
    match of.left.let_go(&blocks) {
        Ok(bytes) => Some(bytes),
        Err(error) => {
            report.problem(&of.volume, &format!("cannot remove: {error}"));
            None
        }
    }
}

/// An upgrade may have begun since the blocks were asked for, or another NameNode have taken over.
fn still_settled(namenodes: &ConfiguredNameNodes, pool: &PoolId) -> Result<(), String> {
    let PoolNameNode { address, unsettled } = namenodes.active(pool)?;
    unsettled.map_or(Ok(()), |why| Err(format!("NameNode {address}: {why} now")))
}
