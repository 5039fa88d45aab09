//! The power of a node's disk is cut: what it acknowledged, and what is left of it. [`plan`]: how
//! many cuts, and which. [`moves`]: cuts while replicas change their places.
//!
//! Nodes are on file systems of their own on loop devices. The cut is the kernel's own: nothing
//! reaches the device any more, the node is killed with it, what it had in shared memory is gone,
//! and the next mount replays the log. There is one replica of everything. Half of the rounds are
//! without any sync of a client, as one sync takes along what others wrote; after half of each the
//! stock DataNode starts on the directories. Once more with blocks on a device behind stubs.

#[path = "../../../io/tests/plugin/compile.rs"]
mod compile;
mod moves;
mod plan;

use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::hadoop::scratch;
use hayloft_testkit::modelled::{self, Lost, ModelledDisk};
use hayloft_testkit::mounts::in_own_namespace;
use hayloft_testkit::node::Kind;
use hayloft_testkit::power::{Count, FileSystem, PowerDisk, PowerTally, Rig, Round, disk};
use hayloft_testkit::suite::{CaseGroup, expect, passed};
use hayloft_testkit::{Outcome, Suite};
use plan::CutPlan;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Of the device behind stubs: most of its disk.
const DEVICE_BYTES: u64 = disk::DISK_BYTES / 4 * 3;

fn main() -> ExitCode {
    if let Some(code) = modelled::carry_if_asked() {
        return code;
    }
    in_own_namespace();
    Suite::run("power", |suite| {
        if let Some(missing) = disk::missing() {
            suite.case("everything", move || Ok(Outcome::Skipped(missing)));
            return Ok(());
        }
        let plan = CutPlan::from_environment()?;
        eprintln!("power: {plan}");
        let all = [FileSystem::Ext4, FileSystem::Ext4Commit60, FileSystem::Xfs];
        for on in all {
            if let Some(missing) = on.missing() {
                suite.case(on.name(), move || Ok(Outcome::Skipped(missing)));
            }
        }
        let is_here = |on: &FileSystem| on.missing().is_none();
        let systems: Vec<FileSystem> = all.into_iter().filter(is_here).collect();
        shown(suite, Cut::Files, &systems, plan.rounds(systems.len()));
        let default = |on: &FileSystem| *on != FileSystem::Ext4Commit60;
        let systems: Vec<FileSystem> = systems.into_iter().filter(default).collect();
        // Apache's node has no engines.
        if Kind::under_test() != Kind::Apache {
            let rounds = plan.stub_rounds(systems.len());
            shown(suite, Cut::Stubs, &systems, rounds);
        }
        if let Some(on) = systems.first() {
            moves::cases(suite, Cut::Files, *on, plan.of_moves());
        }
        if let Some(missing) = modelled::missing(modelled::HostedFileSystem::Raw) {
            let missing = missing.to_string();
            suite.case("with_a_volatile_cache", move || {
                Ok(Outcome::Skipped(missing))
            });
            return Ok(());
        }
        let rounds = plan.volatile_rounds(systems.len());
        if Kind::under_test() != Kind::Apache {
            shown(suite, Cut::VolatileStubs, &systems, rounds.clone());
        }
        if let Some(on) = systems.first() {
            moves::cases(suite, Cut::Volatile, *on, plan.of_moves());
        }
        shown(suite, Cut::Volatile, &systems, rounds);
        Ok(())
    })
}

fn at(base: &Path, on: FileSystem) -> PathBuf {
    base.join(format!("disk-{}", on as u8))
}

fn on_image(base: &Path, on: FileSystem) -> Result<PowerDisk> {
    let image = base.join(format!("image-{}", on as u8));
    PowerDisk::on_image(&image, &at(base, on), on)
}

/// A disk that loses part of what no flush followed, with a file system on it.
fn volatile(base: &Path, on: FileSystem) -> Result<PowerDisk> {
    let described = modelled::HostedDisk {
        size: disk::DISK_BYTES,
        file_system: modelled::HostedFileSystem::Raw,
        params: plan::fast(),
        dir: base.join(format!("raw-{}", on as u8)),
        backing: None,
    };
    let log = base.join(format!("raw-{}.log", on as u8));
    PowerDisk::on_volatile(ModelledDisk::volatile(&described, &log)?, &at(base, on), on)
}

/// What is cut.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cut {
    /// Replicas in files, as always.
    Files,
    /// Replicas on a device behind stubs.
    Stubs,
    /// Replicas in files, over a device that loses part of what no flush followed.
    Volatile,
    /// Replicas behind stubs, over such a device.
    VolatileStubs,
}

impl Cut {
    /// Of the names of its cases.
    fn suffix(self) -> &'static str {
        match self {
            Self::Files => "",
            Self::Stubs => "_on_stubs",
            Self::Volatile => "_with_a_volatile_cache",
            Self::VolatileStubs => "_on_stubs_with_a_volatile_cache",
        }
    }

    fn disk(self, base: &Path, on: FileSystem) -> Result<PowerDisk> {
        match self {
            Self::Files | Self::Stubs => on_image(base, on),
            Self::Volatile | Self::VolatileStubs => volatile(base, on),
        }
    }

    /// The I/O engine of a node, if not the usual one.
    fn engine(self, disk: &PowerDisk) -> Result<Option<String>> {
        match self {
            Self::Files | Self::Volatile => Ok(None),
            Self::Stubs | Self::VolatileStubs => stubs_on(disk).map(Some),
        }
    }
}

/// The plug-in `raw`: blocks are in one file of the disk, and their names and lengths in stubs.
fn stubs_on(disk: &PowerDisk) -> Result<String> {
    let (plugin, device) = (disk.path().join("raw.so"), disk.path().join("device"));
    compile::plugin("../../plugins/raw.c", &plugin, &[]);
    let made = std::fs::File::create(&device).and_then(|file| file.set_len(DEVICE_BYTES));
    made.map_err(TestkitError::file("creating", &device))?;
    Ok(format!("plugin:{} {}", plugin.display(), device.display()))
}

/// Sums of each node.
struct Sums {
    on: FileSystem,
    /// Of rounds after which the same kind of node started.
    same: PowerTally,
    /// Of rounds after which Apache's node started.
    apache: PowerTally,
}

impl Sums {
    fn promises_kept(&self) -> bool {
        let kept = |tally: &PowerTally| {
            tally.unreadable == tally.unreadable_open
                && [tally.closed_synced, tally.closed_old, tally.hsynced]
                    .iter()
                    .all(|count| count.lost == 0)
        };
        kept(&self.same) && kept(&self.apache)
    }
}

/// Carries out the rounds as a case, and judges what is left in cases of their own.
fn shown(suite: &mut Suite, what: Cut, systems: &[FileSystem], rounds: Vec<Round>) {
    let suffix = what.suffix();
    let sums = |on: &FileSystem| Sums {
        on: *on,
        same: PowerTally::default(),
        apache: PowerTally::default(),
    };
    let sums: Vec<Sums> = systems.iter().map(sums).collect();
    let mut on = suite.group(move || Ok(sums), |_, _| {});
    on.case(format!("cuts{suffix}"), move |sums| {
        cut(what, &rounds, sums)
    });
    judge(&mut on, format!("synced_is_whole{suffix}"), |sums| {
        // Apache's node may drop the last chunk of a replica that was being written.
        expect_none_lost(sums, |sum| {
            vec![
                sum.same.hsynced,
                sum.same.closed_synced,
                sum.apache.closed_synced,
            ]
        })
    });
    if matches!(what, Cut::Volatile | Cut::VolatileStubs) {
        return;
    }
    judge(
        &mut on,
        format!("closed_15_s_before_is_whole{suffix}"),
        |sums| expect_none_lost(sums, |sum| vec![sum.same.closed_old, sum.apache.closed_old]),
    );
    judge(
        &mut on,
        format!("hflushed_15_s_before_is_whole{suffix}"),
        |sums| expect_none_lost(sums, |sum| vec![sum.same.flushed_old]),
    );
    judge(
        &mut on,
        format!("what_is_counted_on_can_be_read{suffix}"),
        |sums| expect_readable(sums.iter().map(|sum| (sum.on, &sum.same)), |_| 0),
    );
    if what == Cut::Stubs {
        return;
    }
    let apache = "what_is_counted_on_can_be_read_by_apaches_node";
    judge(&mut on, apache, |sums| {
        // It verifies the last chunk alone of a replica that was being written, and ext4 may have
        // kept a length without the bytes: its own replicas have that, too.
        let tallies = sums.iter().map(|sum| (sum.on, &sum.apache));
        expect_readable(tallies, |tally| tally.unreadable_open)
    });
}

/// A case about what was printed; nothing is asked of Apache's node.
fn judge(
    on: &mut CaseGroup<'_, Vec<Sums>>,
    name: impl Into<String>,
    case: fn(&[Sums]) -> Result<Outcome>,
) {
    on.case(name, move |sums| {
        if Kind::under_test() == Kind::Apache {
            let why = "the stock node's losses are printed";
            return Ok(Outcome::Skipped(why.into()));
        }
        case(sums)
    });
}

fn cut(what: Cut, rounds: &[Round], sums: &mut [Sums]) -> Result<Outcome> {
    let base = scratch("power-disks-")?;
    let mut nodes = Vec::new();
    for sum in &*sums {
        nodes.push((Kind::under_test(), what.disk(base.path(), sum.on)?));
    }
    let mut rig = Rig::start_with("power", nodes, |disk| what.engine(disk))?;
    let mut sectors = Vec::new();
    for (number, round) in rounds.iter().enumerate() {
        let Round {
            seed, syncs, next, ..
        } = round;
        let next = next.unwrap_or(Kind::under_test());
        let seconds = round.writing.as_secs();
        println!(
            "power:   round {number}, seed {seed}: {seconds} s, syncs: {syncs:?}, then {next:?}"
        );
        let all = rig.run(round)?;
        for Lost { unflushed, lost } in rig.lost() {
            println!("power:     the device lost {lost} of {unflushed} unflushed sectors");
        }
        sectors.extend(rig.lost().iter().map(|one| one.lost));
        for (sum, found) in sums.iter_mut().zip(all) {
            let mut one = PowerTally::default();
            one.add(&found);
            println!("power:     {}: {one}", sum.on.name());
            let all = if round.next.is_none() {
                &mut sum.same
            } else {
                &mut sum.apache
            };
            all.absorb(one);
        }
    }
    for sum in &*sums {
        for (then, tally) in [("", &sum.same), (", then Apache's node", &sum.apache)] {
            if tally.events > 0 {
                println!("power: {}{then}: {tally}", sum.on.name());
            }
            for (sort, examples) in &tally.examples {
                for example in examples {
                    println!("power:   {}{then}: {sort}: {example}", sum.on.name());
                }
            }
        }
    }
    let (cluster, _disks) = rig.into_cluster();
    // What the cases behind this one will complain of is looked for in the logs.
    if sums.iter().all(Sums::promises_kept) {
        cluster.succeed();
    }
    expect(
        sectors.is_empty() || sectors.iter().any(|lost| *lost > 0),
        || "no device lost anything: this shows nothing".into(),
    )?;
    passed()
}

/// Fails unless nothing of what `counts` names is lost, on any file system.
fn expect_none_lost(sums: &[Sums], counts: impl Fn(&Sums) -> Vec<Count>) -> Result<Outcome> {
    let of = |sum| counts(sum).into_iter().map(move |count| (sum.on, count));
    let all: Vec<(FileSystem, Count)> = sums.iter().flat_map(of).collect();
    expect(all.iter().any(|(_, count)| count.acknowledged > 0), || {
        "nothing was acknowledged: this shows nothing".into()
    })?;
    let lost: Vec<String> = all
        .iter()
        .filter(|(_, count)| count.lost > 0)
        .map(|(on, count)| format!("{}: {count} lost", on.name()))
        .collect();
    expect(lost.is_empty(), || lost.join("; "))?;
    passed()
}

/// Fails unless each replica that the NameNode counts on can be read, but for those that are
/// excused.
fn expect_readable<'a>(
    tallies: impl Iterator<Item = (FileSystem, &'a PowerTally)>,
    excused: impl Fn(&PowerTally) -> u64,
) -> Result<Outcome> {
    let (mut counted_on, mut unreadable) = (0, Vec::new());
    for (on, tally) in tallies {
        counted_on += tally.counted_on;
        let bad = tally.unreadable - excused(tally);
        if bad > 0 {
            let all = tally.counted_on;
            unreadable.push(format!("{}: {bad} of {all} unreadable", on.name()));
        }
    }
    expect(counted_on > 0, || {
        "nothing is counted on: this shows nothing".into()
    })?;
    expect(unreadable.is_empty(), || unreadable.join("; "))?;
    passed()
}
