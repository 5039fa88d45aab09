//! What parity costs writers, by the memory that new replicas may take until they are encoded: one
//! node with eight modelled disks, which are the limit, and 6+1.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value;

use super::scaling::{one_rack, slug};
use super::super_node::{DISKS, all_disks};
use super::{ExperimentOptions, in_words, marks};
use crate::describe::{Description, HostSpec, WorkloadSpec};
use crate::report::{self, spread};
use crate::sample::Watch;
use crate::up::Testbed;
use crate::workload::{self, WorkloadPhase};
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::hadoop::hayloft_binary;
use hayloft_testkit::wait::{self, Seen};

/// Its name.
pub const NAME: &str = "parity";
/// What it shows.
pub(super) const ABOUT: &str = "writers with parity, by the memory for new replicas";
/// Sequential rates of its disks, MB/s: reading, writing. Two processors carry more than eight.
pub const DISK_MBS: (u32, u32) = (6, 5);

const SHAPE: &str = "6+1";
/// Members of a full group.
pub(super) const MEMBERS: u64 = 6;
/// Writers at once: one for each disk.
const STREAMS: usize = 8;
const BLOCK_MIB: u32 = 16;
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

/// One budget.
#[derive(Clone, Debug, Default, Serialize)]
struct ParityRow {
    /// MiB; `None`: without parity.
    memory_mib: Option<u32>,
    /// MB/s of bursts that are small beside the memory.
    burst_mbs: Vec<f64>,
    /// MB/s until what was written has parity too.
    sustained_mbs: Vec<f64>,
    /// Share of what was encoded that no disk was read for, 0 to 1; with warm-up.
    from_memory: f64,
    /// Share of the time in which processes could have gone on and had no processor, 0 to 1.
    waited: f64,
    /// Requests that the disks answered late.
    late: u64,
}

/// Everything so far.
#[derive(Clone, Debug, Default, Serialize)]
struct ParityFindings {
    rows: Vec<ParityRow>,
}

/// Carries it out and writes page and raw data to `out` after each row.
///
/// # Errors
/// When the testbed does not come up, or a client fails; what was measured before is in `out`.
pub fn run(
    options: &ExperimentOptions,
    command: &str,
    (work, out): (&Path, &Path),
    tell: &mut dyn FnMut(&str),
) -> Result<String> {
    let mut findings = ParityFindings::default();
    let mut text = String::new();
    for memory in BUDGETS {
        let name = row_name(memory);
        tell(&name);
        let row = measure(memory, options, &work.join(slug(&name)), tell)?;
        findings.rows.push(row);
        text = page(options, command, &findings);
        report::save_page(out, &text, "findings.json", &findings)?;
    }
    Ok(text)
}

fn row_name(memory: Option<u32>) -> String {
    memory.map_or("no parity".into(), |mib| format!("{mib} MiB"))
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

fn measure(
    memory: Option<u32>,
    options: &ExperimentOptions,
    work: &Path,
    tell: &mut dyn FnMut(&str),
) -> Result<ParityRow> {
    let described = described(memory, options);
    crate::up::down(&described.name, work)?;
    let testbed = Testbed::up(described, work, false, tell)?;
    let clients = workload::start_clients(&testbed, tell)?;
    let watch = Watch::begin(&testbed)?;
    let long = testbed.described().workload.clone();
    let burst = WorkloadSpec {
        mib: BURST_MIB.min(long.mib),
        ..long.clone()
    };
    let on = (&testbed, clients.as_slice(), &watch);
    for number in 0..WARM_UPS {
        tell(&format!("warming up, round {}", number + 1));
        round(on, &burst, number, memory)?;
    }
    let mut row = ParityRow {
        memory_mib: memory,
        ..ParityRow::default()
    };
    let mut waited = Vec::new();
    for number in 0..options.rounds {
        tell(&format!("round {}: a burst", number + 1));
        row.burst_mbs.push(round(on, &burst, number, memory)?.0.mbs);
        tell(&format!("round {}: until all has parity", number + 1));
        let (phase, sustained) = round(on, &long, number, memory)?;
        row.sustained_mbs.push(sustained);
        waited.push(phase.waited());
        row.late += phase.model.iter().map(|disk| disk.late).sum::<u64>();
    }
    row.waited = spread(waited).0;
    if memory.is_some() {
        let status = pool_status(&testbed)?;
        let of = |name: &str| status[name].as_f64().unwrap_or(0.0);
        row.from_memory = of("encoded_from_memory_bytes") / of("encoded_bytes").max(1.0);
    }
    Ok(row)
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

fn page(options: &ExperimentOptions, command: &str, findings: &ParityFindings) -> String {
    let mut text = format!(
        "# Parity and writers\n\nCommand: `{command}`\n\n\
         One node with {DISKS} modelled hard disks (not real ones) of {} MB/s reading and {} MB/s \
         writing, parity {SHAPE}, one replica in blocks of {BLOCK_MIB} MiB, {STREAMS} writers at \
         once, {} rounds; median (lowest to highest). {}. A burst is {BURST_MIB} MiB of each \
         writer, after which the disks rest; `with parity` is {} MiB of each, until a record of \
         parity lies beside all but the last group.\n\n\
         | memory | burst MB/s | of none | with parity MB/s | of none | encoded from memory | \
         waited for a processor | late |\n|---|---|---|---|---|---|---|---|\n",
        options.disk_mbs.0,
        options.disk_mbs.1,
        options.rounds,
        options.listed_conf(),
        options.mib,
    );
    let median = |of: &[f64]| spread(of.to_vec()).0;
    let none = findings.rows.iter().find(|row| row.memory_mib.is_none());
    for row in &findings.rows {
        let share = |of: fn(&ParityRow) -> &Vec<f64>| {
            none.map_or("-".into(), |none| {
                format!("{:.2}", median(of(row)) / median(of(none)))
            })
        };
        let _ = writeln!(
            text,
            "| {}{} | {} | {} | {} | {} | {:.0} % | {:.0} % | {} |",
            row_name(row.memory_mib),
            marks::signs(row.waited, None),
            in_words(spread(row.burst_mbs.clone())),
            share(|row| &row.burst_mbs),
            in_words(spread(row.sustained_mbs.clone())),
            share(|row| &row.sustained_mbs),
            row.from_memory * 100.0,
            row.waited * 100.0,
            row.late,
        );
    }
    let most = findings.rows.last().zip(none);
    if let Some((most, none)) = most.filter(|(most, _)| most.memory_mib.is_some()) {
        let burst = median(&most.burst_mbs) / median(&none.burst_mbs);
        let met = if burst >= BURST_BAR { "met" } else { "NOT met" };
        let _ = writeln!(
            text,
            "\n- Bursts with {}: {burst:.2} of those without parity (asked: at least \
             {BURST_BAR:.2}): {met}",
            row_name(most.memory_mib)
        );
    }
    text.push_str(&marks::legend(false));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::scaling::tests::is_right;

    #[test]
    fn a_node_has_all_disks_and_the_memory_of_its_row() {
        for memory in BUDGETS {
            let described = described(memory, &ExperimentOptions::default());
            is_right(&described);
            let conf = &described.conf;
            let wanted = memory.map(|mib| format!("{mib}m"));
            assert_eq!(conf.get("hayloft.parity.memory"), wanted.as_ref());
            assert_eq!(conf.contains_key("hayloft.parity"), memory.is_some());
            let (_, host) = described.hosts().next().expect("the node's");
            assert_eq!(host.nodes[0].disks.len(), DISKS);
        }
    }

    fn row(memory_mib: Option<u32>, burst: f64, sustained: f64) -> ParityRow {
        ParityRow {
            memory_mib,
            burst_mbs: vec![burst],
            sustained_mbs: vec![sustained],
            ..ParityRow::default()
        }
    }

    #[test]
    fn rows_are_shares_of_the_one_without_parity() {
        let bars = |burst| {
            let findings = ParityFindings {
                rows: vec![row(None, 40.0, 38.0), row(Some(512), burst, 19.0)],
            };
            page(&ExperimentOptions::default(), "c", &findings)
        };
        let good = bars(38.0);
        assert!(
            good.contains("| 512 MiB | 38.0 (38.0 to 38.0) | 0.95 | 19.0 (19.0 to 19.0) | 0.50 |")
        );
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
