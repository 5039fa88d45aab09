//! What `hayloft trash` says.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use hayloft_console::size;
use hayloft_store::UpgradeLeftovers;
use hayloft_wire::ids::PoolId;
use serde::Serialize;

use super::namenode::PoolNameNode;
use crate::error::{CliError, FINDING};

/// What is on one data directory.
pub struct VolumeLeftovers {
    /// The directory.
    pub volume: PathBuf,
    /// What upgrades left there of one pool.
    pub left: UpgradeLeftovers,
}

/// Everything; as JSON it is what it is here.
#[derive(Debug, Serialize)]
pub struct TrashReport {
    /// What was asked: nothing was to go, or it was shown, or done.
    #[serde(skip)]
    purge: Option<bool>,
    pub pools: Vec<TrashPool>,
    pub volumes: Vec<TrashVolume>,
    pub problems: Vec<String>,
}

/// How a pool stands.
#[derive(Debug, Serialize)]
pub struct TrashPool {
    pool: String,
    /// The active NameNode.
    namenode: Option<String>,
    /// Why nothing may go; nothing when what the NameNode does not know may.
    kept_because: Option<String>,
}

/// A pool on a volume.
#[derive(Debug, Serialize)]
pub struct TrashVolume {
    volume: String,
    pool: String,
    /// The marker of a rolling upgrade is there.
    marker: bool,
    trash: Replicas,
    /// Of these, what the NameNode knows: a start with `-rollback` brings it back.
    known: Replicas,
    /// What it does not know.
    unknown: Replicas,
    /// There is more than was looked at.
    more: bool,
    previous: bool,
    /// Bytes that only `previous` has.
    previous_bytes: u64,
    /// Bytes that were let go.
    freed_bytes: Option<u64>,
}

#[derive(Debug, Default, Serialize)]
struct Replicas {
    blocks: u64,
    bytes: u64,
}

impl Replicas {
    fn add(&mut self, bytes: u64) {
        self.blocks += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }

    fn shown(&self) -> String {
        format!("{} blocks, {}", self.blocks, size::show(self.bytes))
    }
}

impl TrashPool {
    /// Of what the NameNode says, and what went wrong in asking.
    pub fn new(pool: &PoolId, active: Option<&PoolNameNode>, failed: Option<String>) -> Self {
        let unsettled = active.and_then(|active| active.unsettled);
        Self {
            pool: pool.to_string(),
            namenode: active.map(|active| active.address.clone()),
            kept_because: failed.or_else(|| unsettled.map(str::to_owned)),
        }
    }

    /// What the NameNode does not know may go.
    pub fn settled(&self) -> bool {
        self.kept_because.is_none()
    }
}

impl TrashVolume {
    pub fn of(
        found: &VolumeLeftovers,
        known: &HashMap<i64, bool>,
        freed_bytes: Option<u64>,
    ) -> Self {
        let left = &found.left;
        let mut row = Self {
            volume: found.volume.display().to_string(),
            pool: left.pool.to_string(),
            marker: left.marker,
            trash: Replicas::default(),
            known: Replicas::default(),
            unknown: Replicas::default(),
            more: left.more,
            previous: left.previous,
            previous_bytes: left.previous_bytes,
            freed_bytes,
        };
        for (id, replica) in &left.trash {
            row.trash.add(replica.bytes);
            match known.get(id) {
                Some(true) => row.known.add(replica.bytes),
                Some(false) => row.unknown.add(replica.bytes),
                None => {}
            }
        }
        row
    }

    fn holds(&self) -> bool {
        self.trash.blocks > 0 || self.previous
    }
}

impl TrashReport {
    pub fn new(purge: Option<bool>) -> Self {
        Self {
            purge,
            pools: Vec::new(),
            volumes: Vec::new(),
            problems: Vec::new(),
        }
    }

    pub fn problem(&mut self, volume: &Path, what: &str) {
        self.problems.push(format!("{}: {what}", volume.display()));
    }

    /// Prints it; the exit code.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn tell(&self, json: bool) -> Result<ExitCode, CliError> {
        if json {
            crate::json::print_json(self)?;
        } else {
            self.print();
        }
        for problem in &self.problems {
            eprintln!("hayloft: warning: {problem}");
        }
        let holds = self.volumes.iter().any(TrashVolume::holds);
        let kept = holds && self.pools.iter().any(|pool| !pool.settled());
        let finding = match self.purge {
            None => holds,
            Some(_) => kept,
        };
        Ok(match finding || !self.problems.is_empty() {
            true => ExitCode::from(FINDING),
            false => ExitCode::SUCCESS,
        })
    }

    fn print(&self) {
        if !self.volumes.iter().any(TrashVolume::holds) {
            println!("neither trash nor previous hold anything");
        }
        for pool in &self.pools {
            let here = |row: &&TrashVolume| row.pool == pool.pool && row.holds();
            let rows: Vec<&TrashVolume> = self.volumes.iter().filter(here).collect();
            if rows.is_empty() {
                continue;
            }
            let namenode = pool.namenode.as_deref().unwrap_or("no NameNode");
            match &pool.kept_because {
                None => println!("{}, {namenode}: no upgrade can be rolled back", pool.pool),
                Some(why) => println!("{}, {namenode}: all is kept: {why}", pool.pool),
            }
            rows.iter().for_each(|row| self.print_volume(row));
            if rows.iter().any(|row| row.known.blocks > 0) {
                println!("  A start of the node with -rollback brings back what is known.");
            }
        }
    }

    fn print_volume(&self, row: &TrashVolume) {
        println!("  {}", row.volume);
        let more = if row.more { ", and more" } else { "" };
        for (what, replicas) in [
            ("in trash", &row.trash),
            ("known to the NameNode", &row.known),
            ("not known to it", &row.unknown),
        ] {
            if replicas.blocks > 0 {
                println!("    {what:<24}{}{more}", replicas.shown());
            }
        }
        if row.previous {
            let bytes = size::show(row.previous_bytes);
            println!(
                "    {:<24}{bytes} of its own, until it is finalized",
                "previous"
            );
        }
        match (self.purge, row.freed_bytes) {
            (Some(true), Some(bytes)) => println!("    {:<24}{}", "let go", size::show(bytes)),
            (Some(false), _) if row.unknown.blocks > 0 => {
                println!("    {:<24}{}", "--yes lets go", row.unknown.shown());
            }
            _ => {}
        }
    }
}
