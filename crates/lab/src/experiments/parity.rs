//! What parity costs writers, by the memory that new replicas may take until they are encoded: one
//! node with eight modelled disks, which are the limit, and 6+1.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::testbeds::{DISKS, SLOW_DISKS_BLOCK_MIB, all_disks, bring_up, one_rack, slow_disks};
use crate::describe::{Description, HostSpec, WorkloadSpec};
use crate::runner::options::ExperimentOptions;
use crate::runner::record::PeerFigures;
use crate::runner::table::{Bar, Shown, WantedRatio, pick};
use crate::runner::{Experiment, PeerTurn, Run};
use crate::sample::Watch;
use crate::up::Testbed;
use crate::workload::{self, WorkloadPhase};
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::hadoop::hayloft_binary;
use hayloft_testkit::wait::{self, Seen};

/// The experiment.
pub const PARITY: Experiment = Experiment {
    name: "parity",
    question: "writers with parity, by the memory for new replicas",
    options,
    about: |options| {
        let (read, write) = options.disk_mbs;
        format!(
            "One Hayloft node with {DISKS} modelled hard disks (not real ones) of {read} MB/s \
             reading and {write} MB/s writing, parity {SHAPE}, one replica in blocks of \
             {BLOCK_MIB} MiB, {STREAMS} writers at once. A burst is {BURST_MIB} MiB of each \
             writer, after which the disks rest; `with parity` is {} MiB of each, until a record \
             of parity lies beside all but the last group. Each turn starts the node anew and \
             writes {WARM_UPS} bursts that do not count: disks are the limit, whatever a JVM \
             still compiles.",
            options.mib
        )
    },
    measure: carry_out,
    shown: Shown {
        title: "Parity and writers",
        tables: include_str!("tables/parity.txt"),
        wants: || {
            vec![WantedRatio {
                text: "bursts with 1024 MiB to those without parity".into(),
                of: pick("", "", "1024 MiB", "burst", "mbs"),
                over: pick("", "", NONE, "burst", "mbs"),
                bar: Bar::Least(BURST_BAR),
            }]
        },
        ..Shown::NOTHING
    },
    ..Experiment::OF_RATES
};

/// Sequential rates of its disks, MB/s: reading, writing. Two processors carry more than eight.
const DISK_MBS: (u32, u32) = (6, 5);
/// The row that others are shares of.
const NONE: &str = "no parity";

pub(super) fn options() -> ExperimentOptions {
    ExperimentOptions {
        disk_mbs: DISK_MBS,
        ..slow_disks()
    }
}

const SHAPE: &str = "6+1";
/// Members of a full group.
pub(super) const MEMBERS: u64 = 6;
/// Writers at once: one for each disk.
const STREAMS: usize = 8;
const BLOCK_MIB: u32 = SLOW_DISKS_BLOCK_MIB;
/// What each writes in a burst, MiB.
const BURST_MIB: u32 = 32;
/// Not the limit here.
const LINK_MBIT: u32 = 10_000;
/// Rounds that do not count: disks are the limit, whatever a JVM still compiles.
const WARM_UPS: usize = 2;
/// The longest wait for parity.
pub(super) const PARITY_LIMIT: Duration = Duration::from_secs(600);

/// Bar: bursts as a share of those without parity.
const BURST_BAR: f64 = 0.95;

/// `hayloft.parity.memory`, MiB; `None`: without parity.
const BUDGETS: [Option<u32>; 5] = [None, Some(0), Some(256), Some(512), Some(1024)];

fn row_name(memory: Option<u32>) -> String {
    memory.map_or(NONE.into(), |mib| format!("{mib} MiB"))
}

/// One node with all disks, and a client.
pub(super) fn described(memory: Option<u32>, options: &ExperimentOptions) -> Description {
    let mut options = ExperimentOptions {
        kind: "hayloft".into(),
        link_mbit: LINK_MBIT,
        ..options.clone()
    };
    let mut set = |key: &str, value: String| options.conf.insert(key.into(), value);
    set("dfs.replication", "1".into());
    if let Some(mib) = memory {
        set("hayloft.parity", SHAPE.into());
        set("hayloft.parity.memory", format!("{mib}m"));
    }
    let hosts = vec![all_disks(&options, &[]), HostSpec::client("w0")];
    let mut described = one_rack(&options, "stock", hosts, "none");
    described.workload.streams = STREAMS;
    described.workload.block_mib = BLOCK_MIB;
    described
}

fn carry_out(run: &mut Run<'_>, part: &str) -> Result<()> {
    let names = BUDGETS.map(|memory| (String::new(), row_name(memory)));
    run.rounds(part, &names, &mut |turn, at| measure(turn, BUDGETS[at]))
}

fn measure(turn: &mut PeerTurn<'_>, memory: Option<u32>) -> Result<()> {
    let mut described = described(memory, turn.options);
    described.workload.mib = turn.mib();
    let testbed = bring_up(turn, described)?;
    let clients = workload::start_clients(&testbed, &mut |what| turn.tell(what))?;
    let watch = Watch::begin(&testbed)?;
    let long = testbed.described().workload.clone();
    let burst = WorkloadSpec {
        mib: BURST_MIB.min(long.mib),
        ..long.clone()
    };
    let on = (&testbed, clients.as_slice(), &watch);
    for number in 0..if turn.counts { WARM_UPS } else { 0 } {
        turn.tell(&format!("warming up, round {}", number + 1));
        round(on, &burst, number, memory)?;
    }
    turn.tell("a burst");
    let (in_burst, _) = round(on, &burst, 0, memory)?;
    turn.tell("until all has parity");
    let (until, sustained) = round(on, &long, 0, memory)?;
    let mut more = PeerFigures::default().with("mbs", sustained);
    if memory.is_some() {
        let status = pool_status(&testbed)?;
        let of = |name: &str| status[name].as_f64().unwrap_or(0.0);
        // With the warm-up.
        let share = of("encoded_from_memory_bytes") / of("encoded_bytes").max(1.0);
        more = more.with("from_memory", share);
    }
    let outcome = workload::outcome(watch, vec![in_burst, until]);
    let [in_burst, until] = &outcome.phases[..] else {
        return Err(TestkitError::Talk("two phases were watched".into()));
    };
    turn.give("burst", in_burst.figures(testbed.described()));
    turn.give("until parity", until.figures(testbed.described()).and(more));
    Ok(())
}

/// Writes, and waits for parity; then what was written goes. Gives MB/s until all but one group
/// had parity, too.
#[expect(clippy::cast_precision_loss, reason = "rates for people")]
fn round(
    on: workload::On<'_>,
    workload: &WorkloadSpec,
    number: usize,
    memory: Option<u32>,
) -> Result<(WorkloadPhase, f64)> {
    workload::empty_page_cache()?;
    let began = Instant::now();
    let phase = workload::write(on, workload, number)?;
    let mut sustained = phase.mbs;
    if memory.is_some() {
        let groups = phase.bytes / block_bytes() / MEMBERS;
        // Those of the last replicas may lack partners.
        let groups = groups.saturating_sub(1);
        wait_groups(on.0, &|now| now >= groups)?;
        let bytes = groups * MEMBERS * block_bytes();
        sustained = bytes as f64 / 1e6 / began.elapsed().as_secs_f64();
    }
    let path = workload::path(number, 0);
    on.1[0].fs(&["-rm", "-r", "-skipTrash", &path])?;
    if memory.is_some() {
        wait_groups(on.0, &|now| now == 0)?;
    }
    Ok((phase, sustained))
}

pub(super) fn block_bytes() -> u64 {
    u64::from(BLOCK_MIB) << 20
}

/// Waits until so many groups have all their copies, by their files on the disks.
pub(super) fn wait_groups(testbed: &Testbed, enough: &dyn Fn(u64) -> bool) -> Result<()> {
    wait::until("parity groups", PARITY_LIMIT, || {
        let mut records = 0;
        for disk in &testbed.nodes()[0].disks {
            records += count_records(&disk.dir);
        }
        // M+1 copies of each.
        let groups = records / 2;
        std::thread::sleep(Duration::from_millis(50));
        Ok(if enough(groups) {
            Seen::Done(())
        } else {
            Seen::NotYet(format!("{groups} groups"))
        })
    })
}

/// Records of groups in the data directories on a disk.
fn count_records(disk: &Path) -> u64 {
    let entries = |dir: &Path| std::fs::read_dir(dir).into_iter().flatten().flatten();
    let dirs = entries(disk).map(|entry| entry.path().join("hayloft-parity"));
    let dirs = dirs.chain([disk.join("hayloft-parity")]);
    let files = dirs.flat_map(|dir| entries(&dir).collect::<Vec<_>>());
    let records = files.filter(|file| file.path().extension().is_some_and(|e| e == "record"));
    records.count() as u64
}

/// What `hayloft parity status` says of the node.
pub(super) fn pool_status(testbed: &Testbed) -> Result<Value> {
    let conf = testbed.nodes()[0].conf_dir();
    let conf = conf.ok_or_else(|| TestkitError::Talk("another command's node".into()))?;
    let binary = hayloft_binary()?;
    let ran = std::process::Command::new(&binary)
        .args(["parity", "status", "--json", "--conf"])
        .arg(conf)
        .output()
        .map_err(TestkitError::file("running", &binary))?;
    serde_json::from_slice(&ran.stdout).map_err(|error| {
        let said = String::from_utf8_lossy(&ran.stderr);
        TestkitError::Talk(format!("pool status is no JSON ({error}): {said}"))
    })
}

#[cfg(test)]
mod tests {
    use super::super::testbeds::tests::is_right;
    use super::*;
    use crate::runner::page::ExperimentPage;
    use crate::runner::record::{PeerSample, Record};

    #[test]
    fn a_node_has_all_disks_and_the_memory_of_its_row() {
        for memory in BUDGETS {
            let described = described(memory, &options());
            is_right(&described);
            let conf = &described.conf;
            let wanted = memory.map(|mib| format!("{mib}m"));
            assert_eq!(conf.get("hayloft.parity.memory"), wanted.as_ref());
            assert_eq!(conf.contains_key("hayloft.parity"), memory.is_some());
            let (_, host) = described.hosts().next().expect("the node's");
            assert_eq!(host.nodes[0].disks.len(), DISKS);
        }
    }

    #[test]
    fn rows_are_shares_of_the_one_without_parity() {
        let bars = |burst| {
            let of = |memory, mbs| {
                PeerSample::first(
                    ("", "", &row_name(memory), "burst"),
                    PeerFigures::of([("mbs", mbs)]),
                )
            };
            let samples = vec![of(None, 40.0), of(Some(1024), burst)];
            let record = Record::signed(samples);
            ExperimentPage::new(&PARITY.shown, &record).body(2)
        };
        let good = bars(38.0);
        assert!(good.contains("| 1024 MiB | 38.0 | 95 % |"), "{good}");
        assert!(good.contains(": met"), "{good}");
        assert!(bars(37.9).contains("NOT met"));
    }

    #[test]
    fn records_are_counted_in_every_data_directory() {
        let dir = tempfile::tempdir().expect("a directory");
        let parity = dir.path().join("data/hayloft-parity");
        std::fs::create_dir_all(&parity).expect("creates");
        for name in ["a.record", "a.p0", "b.record", "status.json"] {
            std::fs::write(parity.join(name), "").expect("writes");
        }
        assert_eq!(count_records(dir.path()), 2);
    }
}
