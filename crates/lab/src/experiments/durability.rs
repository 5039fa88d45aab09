//! What is left of what was acknowledged, after each of the events that a node may meet: the stock
//! DataNode and Hayloft side by side, in one cluster, at the same moments, under the same writers.
//!
//! Every file has one replica, on the node under test: whatever that node loses is lost.

use std::time::Duration;

use hayloft_bench::fair::stock::{Medium, Stock, ours};

use crate::runner::options::ExperimentOptions;
use crate::runner::record::PeerFigures;
use crate::runner::table::Shown;
use crate::runner::{Experiment, OURS, Run};
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::hadoop::scratch;
use hayloft_testkit::node::{Kind, NodeSpec, VolumeSpec};
use hayloft_testkit::power::tally::{OLD, OLDER};
use hayloft_testkit::power::writers::{Dice, Syncs};
use hayloft_testkit::power::{Count, Event, FileSystem, PowerDisk, PowerTally, Rig, Round, disk};

/// The experiment.
pub const DURABILITY: Experiment = Experiment {
    name: "durability",
    question: "what is left of acknowledged data after kills, power cuts and bad disks",
    parts: &["ext4", "XFS"],
    rates: false,
    takes_properties: false,
    options: || ExperimentOptions {
        rounds: 1,
        ..ExperimentOptions::default()
    },
    about: |options| {
        format!(
            "All nodes run side by side in one cluster, meet each event at the same moment, and \
             have writers of their own. One replica of everything, each node on a loop device of \
             its own; seed {}; {} s of writing before a power cut, a third before other events. \
             Old: acknowledged {} s before the event or longer; older: {} s. {}",
            options.seed,
            options.seconds,
            OLD.as_secs(),
            OLDER.as_secs(),
            Stock::EXPLAINED
        )
    },
    measure: carry_out,
    shown: Shown {
        title: "Kills, power cuts and bad disks",
        tables: include_str!("tables/durability.txt"),
        ..Shown::NOTHING
    },
    ..Experiment::OF_RATES
};

/// Settings of the stock node beside ours: with its documentation's advice, and what an operator
/// may add who fears for what is closed.
const SETTINGS: [Stock; 3] = [Stock::Plain, Stock::Sync, Stock::SyncBehind];

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

/// Every node with its name.
fn nodes() -> Vec<(&'static str, NodeSpec)> {
    let stock = |stock: Stock| (stock.name(), stock.node(VolumeSpec::default()));
    let mut own = NodeSpec::new(Kind::Hayloft);
    own.conf = ours(Medium::Own, false);
    SETTINGS
        .map(stock)
        .into_iter()
        .chain([(OURS, own)])
        .collect()
}

/// Every event on one file system. What is missing on this machine is an error before anything is
/// made.
fn carry_out(run: &mut Run<'_>, part: &str) -> Result<()> {
    let on = match part {
        "ext4" => FileSystem::Ext4,
        _ => FileSystem::Xfs,
    };
    if let Some(missing) = disk::missing().or_else(|| on.missing()) {
        return Err(TestkitError::Missing {
            what: missing,
            todo: "run this as root on a machine that has it".into(),
        });
    }
    (run.tell)("starting a cluster of four nodes on disks of their own");
    let base = scratch("durability-disks-")?;
    let (mut names, mut on_disks) = (Vec::new(), Vec::new());
    for (name, spec) in nodes() {
        let image = base.path().join(format!("{name}.image"));
        let disk = PowerDisk::on_image(&image, &base.path().join(name), on)?;
        names.push(name);
        on_disks.push((spec, disk));
    }
    let mut rig = Rig::start_nodes("durability", on_disks)?;
    let mut dice = Dice::new(run.options.seed);
    for line in &LINES {
        run.rounds(part, &[(line.name, "")], &mut |turn, _| {
            let writing = Duration::from_secs(turn.options.seconds);
            let found = one(&mut rig, line, writing, &mut dice)?;
            for (name, found) in names.iter().zip(found) {
                turn.give_of(name, figures(&found));
            }
            Ok(())
        })?;
    }
    let (cluster, _disks) = rig.into_cluster();
    cluster.succeed();
    Ok(())
}

/// What is left of each node's after one event.
fn one(rig: &mut Rig, line: &Line, writing: Duration, dice: &mut Dice) -> Result<Vec<PowerTally>> {
    let longest = match line.event {
        Event::PowerCut => writing,
        _ => writing / 3,
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
    let tally = |found: &_| {
        let mut tally = PowerTally::default();
        tally.add(found);
        tally
    };
    Ok(rig.run(&round)?.iter().map(tally).collect())
}

fn figures(tally: &PowerTally) -> PeerFigures {
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^53")]
    let number = |count: u64| count as f64;
    let counts = [
        ("flushed", "flushed_lost", tally.flushed),
        ("flushed_old", "flushed_old_lost", tally.flushed_old),
        ("closed", "closed_lost", tally.closed),
        ("closed_old", "closed_old_lost", tally.closed_old),
        ("closed_older", "closed_older_lost", tally.closed_older),
        ("hsynced", "hsynced_lost", tally.hsynced),
        ("closed_synced", "closed_synced_lost", tally.closed_synced),
    ];
    let both = |figures: PeerFigures, (all, lost, count): (&str, &str, Count)| {
        figures
            .with(all, number(count.acknowledged))
            .with(lost, number(count.lost))
    };
    let figures = counts.into_iter().fold(PeerFigures::default(), both);
    figures
        .with("counted_on", number(tally.counted_on))
        .with("unreadable", number(tally.unreadable))
        .with("unreadable_open", number(tally.unreadable_open))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::page::ExperimentPage;
    use crate::runner::record::{PeerSample, Record};

    #[test]
    fn the_table_has_a_row_a_node_and_losses_in_bold() {
        let count = |acknowledged, lost| Count { acknowledged, lost };
        let tally = PowerTally {
            closed: count(10, 3),
            hsynced: count(7, 0),
            ..PowerTally::default()
        };
        let one = |peer| PeerSample::first(("XFS", LINES[0].name, peer, ""), figures(&tally));
        let samples = vec![one("stock"), one("stock"), one(OURS)];
        let record = Record {
            samples,
            ..Record::default()
        };
        let text = ExperimentPage::new(&DURABILITY.shown, &record).body(2);
        let stock = "| kill -9 | XFS | stock | 0/0 | 0/0 | **6/20** | 0/0 | 0/0 | 0/14 |";
        assert!(text.contains(stock), "two rounds: {text}");
        assert!(
            text.contains("| kill -9 | XFS | Hayloft | 0/0 | 0/0 | **3/10** |"),
            "{text}"
        );
    }

    #[test]
    fn the_stock_node_has_both_ways_to_be_safe() {
        let names: Vec<&str> = nodes().iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["stock", "stock-sync", "stock-behind", "Hayloft"]);
    }
}
