//! What is left of what was acknowledged, after each of the events that a node may meet: the stock
//! DataNode and Hayloft side by side, in one cluster, at the same moments, under the same writers.
//!
//! Every file has one replica, on the node under test: whatever that node loses is lost.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use crate::report;
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::hadoop::scratch;
use hayloft_testkit::node::Kind;
use hayloft_testkit::power::tally::{OLD, OLDER};
use hayloft_testkit::power::writers::{Dice, Syncs};
use hayloft_testkit::power::{Count, Event, FileSystem, PowerDisk, PowerTally, Rig, Round, disk};

/// Its name.
pub const NAME: &str = "durability";
/// What it shows.
pub(super) const ABOUT: &str =
    "what is left of acknowledged data after kills, power cuts and bad disks";

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct DurabilityOptions {
    /// How often each event happens.
    pub rounds: u64,
    /// How long clients write before a power cut; before other events a third of it.
    pub writing: Duration,
    /// Of file sizes and contents.
    pub seed: u64,
}

/// One line of events: its name, what happens, who starts then, what clients ask for.
struct Line {
    name: &'static str,
    event: Event,
    next: Option<Kind>,
    syncs: Syncs,
}

const LINES: [Line; 7] = [
    line("kill -9", Event::Killed, Syncs::Some),
    Line {
        next: Some(Kind::Apache),
        ..line(
            "kill -9, then Apache's DataNode",
            Event::Killed,
            Syncs::Some,
        )
    },
    line(
        "container gone: kill -9, shared memory emptied",
        Event::ContainerGone,
        Syncs::Some,
    ),
    line(
        "power cut, no client asks for a sync",
        Event::PowerCut,
        Syncs::None,
    ),
    line(
        "power cut, some clients hsync or close with SYNC_BLOCK",
        Event::PowerCut,
        Syncs::Some,
    ),
    line("disk full, then kill -9", Event::DiskFull, Syncs::Some),
    line(
        "disk answers with EIO, then kill -9",
        Event::DiskFails,
        Syncs::Some,
    ),
];

const fn line(name: &'static str, event: Event, syncs: Syncs) -> Line {
    Line {
        name,
        event,
        next: None,
        syncs,
    }
}

/// What one kind of node lost on one file system after one sort of event.
#[derive(Clone, Debug, Serialize)]
pub struct DurabilityRow {
    /// The event.
    pub event: String,
    /// The file system.
    pub file_system: String,
    /// `stock` or `Hayloft`.
    pub node: String,
    /// The sums over all rounds.
    pub sums: PowerTally,
}

/// The raw data.
#[derive(Debug, Serialize)]
struct Record<'a> {
    command: &'a str,
    machine: std::collections::BTreeMap<String, String>,
    seed: u64,
    rows: &'a [DurabilityRow],
}

/// Carries out every event and writes table and raw data to `out`; the page. What is missing on
/// this machine is an error before anything is made.
///
/// # Errors
/// When the cluster does not start, a node does not come back, or the lab itself fails.
pub fn run(
    options: &DurabilityOptions,
    command: &str,
    out: &Path,
    tell: &mut dyn FnMut(&str),
) -> Result<String> {
    let lacking = disk::missing()
        .or_else(|| FileSystem::Ext4.missing())
        .or_else(|| FileSystem::Xfs.missing());
    if let Some(missing) = lacking {
        return Err(TestkitError::Missing {
            what: missing,
            todo: "run this as root on a machine that has it".into(),
        });
    }
    tell("starting a cluster of four nodes on disks of their own");
    let base = scratch("durability-disks-")?;
    let mut nodes = Vec::new();
    for on in [FileSystem::Ext4, FileSystem::Xfs] {
        for kind in [Kind::Apache, Kind::Hayloft] {
            let name = format!("{}-{}", on.name(), name_of(kind));
            let image = base.path().join(format!("{name}.image"));
            nodes.push((
                kind,
                PowerDisk::on_image(&image, &base.path().join(name), on)?,
            ));
        }
    }
    let whose: Vec<(Kind, FileSystem)> = nodes
        .iter()
        .map(|(kind, disk)| (*kind, disk.file_system()))
        .collect();
    let mut rig = Rig::start("durability", nodes)?;
    let mut dice = Dice::new(options.seed);
    let mut rows = Vec::new();
    let mut text = String::new();
    for line in &LINES {
        let sums = all_rounds(&mut rig, line, options, &mut dice, tell)?;
        rows.extend(
            whose
                .iter()
                .zip(sums)
                .map(|((kind, on), sums)| DurabilityRow {
                    event: line.name.into(),
                    file_system: on.name().into(),
                    node: name_of(*kind).into(),
                    sums,
                }),
        );
        text = page(options, command, &rows);
        let machine = hayloft_testkit::machine::describe();
        let record = Record {
            command,
            machine,
            seed: options.seed,
            rows: &rows,
        };
        report::save_page(out, &text, "durability.json", &record)?;
    }
    let (cluster, _disks) = rig.into_cluster();
    cluster.succeed();
    Ok(text)
}

fn name_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Apache => "stock",
        Kind::Hayloft => "Hayloft",
    }
}

/// The sums of each node over all rounds of an event.
fn all_rounds(
    rig: &mut Rig,
    line: &Line,
    options: &DurabilityOptions,
    dice: &mut Dice,
    tell: &mut dyn FnMut(&str),
) -> Result<Vec<PowerTally>> {
    let mut sums = vec![PowerTally::default(); rig.disks().len()];
    for number in 1..=options.rounds {
        tell(&format!("{} ({number} of {})", line.name, options.rounds));
        let longest = match line.event {
            Event::PowerCut => options.writing,
            _ => options.writing / 3,
        };
        // Not in step with the kernel's own intervals.
        let less = Duration::from_millis(dice.below(5000)).min(longest / 4);
        let round = Round {
            event: line.event,
            next: line.next,
            syncs: line.syncs,
            writing: longest - less,
            seed: dice.below(u64::MAX >> 1),
        };
        for (sum, found) in sums.iter_mut().zip(rig.run(&round)?) {
            sum.add(&found);
        }
    }
    Ok(sums)
}

/// The table, and how to read it.
#[must_use]
pub fn page(options: &DurabilityOptions, command: &str, rows: &[DurabilityRow]) -> String {
    let (old, older) = (OLD.as_secs(), OLDER.as_secs());
    let mut text = format!(
        "# Durability\n\nCommand: `{command}` (seed {})\n\n\
         Each cell: how many acknowledgements are not readable afterwards, of how many. One\n\
         replica of everything, {} rounds an event, stock NameNode and client. The last column:\n\
         replicas that the NameNode counts on afterwards and that cannot be read.\n\n\
         | event | file system | node | hflushed records | {old} s and older | closed blocks \
         | {old} s and older | {older} s and older | hsynced records | closed with SYNC_BLOCK \
         | unreadable of those counted on |\n|---|---|---|---|---|---|---|---|---|---|---|\n",
        options.seed, options.rounds
    );
    for row in rows {
        let sums = &row.sums;
        let counts = [
            sums.flushed,
            sums.flushed_old,
            sums.closed,
            sums.closed_old,
            sums.closed_older,
            sums.hsynced,
            sums.closed_synced,
            Count {
                acknowledged: sums.counted_on,
                lost: sums.unreadable,
            },
        ];
        let cells: Vec<String> = counts.iter().map(cell).collect();
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} |",
            row.event,
            row.file_system,
            row.node,
            cells.join(" | ")
        );
    }
    text
}

/// Nothing acknowledged is no promise kept.
fn cell(count: &Count) -> String {
    match count {
        Count {
            acknowledged: 0, ..
        } => "-".into(),
        Count { lost: 0, .. } => count.to_string(),
        _ => format!("**{count}**"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_a_row_a_node_and_losses_in_bold() {
        let count = |acknowledged, lost| Count { acknowledged, lost };
        let row = DurabilityRow {
            event: LINES[0].name.into(),
            file_system: FileSystem::Xfs.name().into(),
            node: name_of(Kind::Apache).into(),
            sums: PowerTally {
                closed: count(10, 3),
                hsynced: count(7, 0),
                ..PowerTally::default()
            },
        };
        let options = DurabilityOptions {
            rounds: 2,
            writing: Duration::from_secs(60),
            seed: 9,
        };
        let text = page(&options, "c", &[row.clone(), row]);
        let wanted = "| kill -9 | XFS | stock | - | - | **3 of 10** | - | - | 0 of 7 | - | - |\n";
        assert_eq!(text.matches(wanted).count(), 2, "{text}");
        assert!(text.contains("`c` (seed 9)"), "{text}");
    }
}
