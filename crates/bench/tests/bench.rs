//! The benchmark itself, with tiny sizes: every row, the stock peer included, measures something.

use hayloft_bench::encryption::BenchCipher;
use hayloft_bench::fair::stock::libhadoop;
use hayloft_bench::figures::Figure;
use hayloft_bench::local_read::LocalRead;
use hayloft_bench::record::{BenchRecord, MarkReason};
use hayloft_bench::rows::{self, BenchRow, BenchWorkload, Client};
use hayloft_bench::targets::BenchTargets;
use hayloft_bench::{self, BenchDisk, BenchOptions};
use hayloft_testkit::congestion::{self, CONDITION};
use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::lab_binary;
use hayloft_testkit::hbase;
use hayloft_testkit::process::{Process, Signal, Spawn, tail};
use hayloft_testkit::suite::{expect, expect_eq, passed};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Outcome, Suite, TestkitError};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

fn main() -> ExitCode {
    Suite::run("bench", |suite| {
        let mut on = suite.group(scratch, |dir, _failed| drop(dir));
        on.case("every_row_measures_something", |dir| tiny_run(dir.path()));
        on.case("encrypted_rows_measure_something", |dir| {
            encrypted_run(&dir.path().join("encrypted"))
        });
        on.case("many_blocks_are_reported_and_deleted", |dir| {
            many_blocks(&dir.path().join("many"))
        });
        on.case("an_interrupted_run_leaves_no_blocks", |dir| {
            interrupted(&dir.path().join("interrupted"))
        });
        on.case("congestion_control_of_the_runs_own", |dir| {
            congestion(&dir.path().join("own"))
        });
        on.case(
            "an_unknown_congestion_control_is_told_in_a_sentence",
            |dir| unknown_congestion(dir.path()),
        );
        on.case("a_killed_run_leaves_nothing_in_its_namespace", |dir| {
            killed(&dir.path().join("killed"))
        });
        Ok(())
    })
}

fn scratch() -> Result<tempfile::TempDir> {
    tempfile::tempdir_in(hayloft_testkit::hadoop::repository_root().join("target"))
        .map_err(|error| TestkitError::Talk(format!("a temporary directory: {error}")))
}

/// A run of these rows with these peers.
fn tiny(dir: &Path, rows: Vec<BenchRow>, peers: &[&str]) -> BenchOptions {
    BenchOptions {
        before: None,
        rounds: 1,
        warm_ups: 1,
        mib: 16,
        rows,
        peers: peers.iter().map(|peer| (*peer).to_owned()).collect(),
        blocks: 0,
        volumes: 1,
        jvm_flags: vec!["-Xmx256m".into()],
        define: Vec::new(),
        disk: BenchDisk::Directory(dir.join("disk")),
        network: None,
        out: dir.join("out"),
        command: "a test".into(),
        progress: Arc::new(|line| println!("    {line}")),
    }
}

/// Both kinds of nodes, one and four streams, writing and reading: in clear and with each cipher
/// in the same run, with what both sides used and what limited the row.
fn encrypted_run(dir: &Path) -> Result<Outcome> {
    let by_java = [1, 4].map(|n| [BenchWorkload::Write(n), BenchWorkload::Warm(n)]);
    let by_java = by_java.into_iter().flatten();
    let by_java = by_java.map(|workload| BenchRow::new(workload, Client::Java));
    let by_native = [BenchWorkload::Write(1), BenchWorkload::Warm(4)];
    let by_native = by_native.map(|workload| BenchRow::new(workload, Client::HdfsNative));
    let clear: Vec<BenchRow> = by_java.chain(by_native).collect();
    let ciphers = [BenchCipher::Aes, BenchCipher::Privacy].into_iter();
    let more = ciphers.flat_map(|cipher| clear.iter().filter_map(move |r| r.encrypted(cipher)));
    let rows: Vec<BenchRow> = clear.iter().copied().chain(more).collect();
    let options = BenchOptions {
        warm_ups: 0,
        ..tiny(dir, rows.clone(), &["stock", "direct"])
    };
    let record = hayloft_bench::run(&options, &BenchTargets::load()?)?;
    let failures: Vec<_> = record.failures().collect();
    expect(failures.is_empty(), || format!("{failures:#?}"))?;
    expect_eq("rows", record.rows().len(), rows.len())?;
    let told = [
        (Figure::Rate, 0.0),
        (Figure::ClientShare, 0.0),
        (Figure::CpuShare, 0.0),
        // Of tiny rows it may be nothing.
        (Figure::NodeCpu, -1.0),
        (Figure::ClientCpu, -1.0),
    ];
    for row in rows {
        for peer in ["stock", "direct"] {
            for (figure, above) in told {
                let values = record.values(&row.name(), row.client, peer, figure);
                let good = values.len() == 1 && values.iter().all(|value| *value > above);
                expect(good, || format!("{row}, {peer}, {figure:?}: {values:?}"))?;
            }
        }
    }
    let page = dir.join("out/README.md");
    let text = std::fs::read_to_string(&page).map_err(TestkitError::file("reading", page))?;
    for row in ["| write-4-privacy | java |", "| warm-4-aes | hdfs-native |"] {
        expect(text.contains(row), || {
            format!("no {row} on the page: {text}")
        })?;
    }
    passed()
}

/// Blocks that no client wrote, on three volumes: both kinds of nodes take them for theirs, report
/// and delete them. The second node that deletes finds as many, made again.
fn many_blocks(dir: &Path) -> Result<Outcome> {
    let options = BenchOptions {
        blocks: 2500,
        volumes: 3,
        ..tiny(dir, Vec::new(), &[])
    };
    let record = hayloft_bench::run(&options, &BenchTargets::load()?)?;
    let started = [
        Figure::Listening,
        Figure::Reported,
        Figure::StartCpu,
        Figure::MemoryPeak,
        Figure::MemoryAfter,
    ];
    let rows = [
        ("start-walk-warm", "stock", &started[..]),
        ("start-walk-warm", "direct", &started),
        ("start-list-warm", "stock", &started),
        ("start-list-warm", "direct", &started),
        ("delete-warm", "stock", &[Figure::Deleted]),
        ("delete-warm", "direct", &[Figure::Deleted]),
    ];
    for (row, peer, figures) in rows {
        for figure in figures {
            let values = record.values(row, Client::None, peer, *figure);
            let good = values.len() == 1 && values.iter().all(|value| *value > 0.0);
            expect(good, || format!("{row}, {peer}, {figure:?}: {values:?}"))?;
        }
    }
    // Of so few blocks it may be nothing.
    let sent = record.values("start-walk-warm", Client::None, "stock", Figure::ReportSent);
    expect_eq("times of a report", sent.len(), 1)?;
    let page = dir.join("out/README.md");
    let text = std::fs::read_to_string(&page).map_err(TestkitError::file("reading", page))?;
    for part in ["## Mass delete", "2500 of 512 bytes on 3 volumes"] {
        expect(text.contains(part), || {
            format!("no {part} on the page: {text}")
        })?;
    }
    nothing_is_left(&dir.join("disk"))?;
    passed()
}

/// The directory that was given is there, and empty.
fn nothing_is_left(disk: &Path) -> Result<()> {
    let left = std::fs::read_dir(disk).map_err(TestkitError::file("listing", disk))?;
    expect_eq("directories left on the disk", left.count(), 0)
}

/// A run that an operator ends while it looks for blocks leaves nothing of them.
fn interrupted(dir: &Path) -> Result<Outcome> {
    let more = ["--only", "none", "--blocks", "2000", "--rounds", "50"];
    let mut process = command(&more, dir)?;
    let disk = dir.join("disk");
    wait::until("a start", RUN_LIMIT, || {
        process.check_alive()?;
        let told = std::fs::read_to_string(process.log()).unwrap_or_default();
        Ok(match told.contains("start-walk-warm of ") {
            true => Seen::Done(()),
            false => Seen::NotYet(tail(process.log())),
        })
    })?;
    let inside = std::fs::read_dir(&disk).map_err(TestkitError::file("listing", &disk))?;
    expect(inside.count() == 1, || {
        "the blocks are not where they should be".into()
    })?;
    process.signal(Signal::INT)?;
    process.wait(RUN_LIMIT)?;
    nothing_is_left(&disk)?;
    passed()
}

fn tiny_run(dir: &Path) -> Result<Outcome> {
    let cold = rustix::process::geteuid().is_root();
    let needs_root = |workload: BenchWorkload| {
        matches!(
            workload,
            BenchWorkload::Cold(_)
                | BenchWorkload::Pread(_)
                | BenchWorkload::ReadBack
                | BenchWorkload::Mixed
                | BenchWorkload::DiskBalancer(_)
                | BenchWorkload::Local {
                    read: LocalRead::Cold | LocalRead::Pread,
                    ..
                }
        )
    };
    let mut rows = rows::all();
    if let Err(why) = libhadoop() {
        println!("rows of local reads are left out: {why}");
        rows.retain(|row| !row.workload.needs_libhadoop());
    }
    if let Err(why) = hbase::installed() {
        println!("rows of HBase's logs are left out: {why}");
        rows.retain(|row| !row.workload.needs_hbase());
    }
    // O_DIRECT is a matter of the file system, and has a test of its own.
    rows.retain(|row| row.client != Client::None && (cold || !needs_root(row.workload)));
    let (disk, out) = (dir.join("disk"), dir.join("out"));
    let options = tiny(dir, rows.clone(), &["stock", "posix", "null"]);
    let record = hayloft_bench::run(&options, &BenchTargets::load()?)?;
    let failures: Vec<_> = record.failures().collect();
    expect(failures.is_empty(), || format!("{failures:#?}"))?;
    for row in rows {
        for peer in ["stock", "posix", "null"] {
            let wanted = peer != "null" || row.workload.writes_only();
            let name = row.workload.to_string();
            let rate = record.values(&name, row.client, peer, Figure::Rate);
            let good = rate.len() == usize::from(wanted) && rate.iter().all(|rate| *rate > 0.0);
            expect(good, || format!("{row}, {peer}: {rate:?} MB/s"))?;
        }
    }
    let read = |name: &str| {
        let path = out.join(name);
        std::fs::read_to_string(&path).map_err(TestkitError::file("reading", path))
    };
    let again = BenchRecord::from_json(&read("results.json")?)?;
    expect(again.samples.len() == record.samples.len(), || {
        "results.json holds other samples than were measured".into()
    })?;
    expect(read("README.md")?.contains("## Targets"), || {
        "the page has no targets".into()
    })?;
    expect(
        record.marks.iter().any(|m| m.reason == MarkReason::NotWarm),
        || "one round before a row counts makes nothing warm".into(),
    )?;
    nothing_is_left(&disk)?;
    passed()
}

/// How long a tiny run may take on a busy machine.
const RUN_LIMIT: Duration = Duration::from_secs(180);

/// The command with one tiny row, as a process of its own: it replaces itself on its way.
fn tiny_command(peer: &str, congestion: &str, dir: &Path) -> Result<Process> {
    let row = ["--rounds", "1", "--mib", "4", "--warm-ups", "0"];
    let only = ["--only", "write-1/load", "--peers", peer];
    let network = ["--congestion", congestion];
    command(&[&row[..], &only, &network].concat(), dir)
}

/// The command with these words, and places in a directory.
fn command(words: &[&str], dir: &Path) -> Result<Process> {
    std::fs::create_dir_all(dir).map_err(TestkitError::file("creating", dir))?;
    let mut argv = vec![lab_binary()?.display().to_string(), "bench".to_owned()];
    argv.extend(words.iter().map(|word| (*word).to_owned()));
    for (option, name) in [("--disk", "disk"), ("--out", "out")] {
        argv.extend([option.to_owned(), dir.join(name).display().to_string()]);
    }
    Spawn::new("hayloft-bench", argv, dir.join("log")).start()
}

/// The machine's default, and another one that every kernel has and a run can have of its own here;
/// else why not.
fn other_congestion() -> std::result::Result<(String, &'static str), Outcome> {
    let untold = || Outcome::Skipped("the kernel does not tell its congestion control".into());
    let default = congestion::present().ok_or_else(untold)?;
    let other = if default == "reno" { "cubic" } else { "reno" };
    match congestion::check(other) {
        Ok(()) => Ok((default, other)),
        Err(error) => Err(Outcome::Skipped(error.to_string())),
    }
}

fn congestion(dir: &Path) -> Result<Outcome> {
    let (default, other) = match other_congestion() {
        Ok(both) => both,
        Err(skipped) => return Ok(skipped),
    };
    let mut process = tiny_command("posix", other, dir)?;
    let status = process.wait(RUN_LIMIT)?;
    expect(status.success(), || {
        format!("{status}\n{}", tail(process.log()))
    })?;
    let path = dir.join("out/results.json");
    let text = std::fs::read_to_string(&path).map_err(TestkitError::file("reading", path))?;
    let record = BenchRecord::from_json(&text)?;
    let named = record.origin.conditions.get(CONDITION).map(String::as_str);
    expect_eq("what the run had", named, Some(other))?;
    expect(
        record
            .origin
            .command
            .contains(&format!("--congestion {other}")),
        || {
            format!(
                "the recorded command lacks the option: {}",
                record.origin.command
            )
        },
    )?;
    let rate = record.values("write-1", Client::Load, "posix", Figure::Rate);
    expect(rate.len() == 1, || {
        format!("write-1 by posix: {rate:?} MB/s")
    })?;
    expect_eq("the machine's own", congestion::present(), Some(default))?;
    passed()
}

fn unknown_congestion(dir: &Path) -> Result<Outcome> {
    let dir = dir.join("unknown");
    let mut process = tiny_command("posix", "no-such", &dir)?;
    let status = process.wait(RUN_LIMIT)?;
    expect_eq("the exit code", status.code(), Some(2))?;
    let log =
        std::fs::read_to_string(process.log()).map_err(TestkitError::file("reading", &dir))?;
    let sentence = log.lines().count() == 1 && log.contains("no-such") && log.contains("reno");
    expect(sentence, || {
        format!("not one sentence with what there is: {log}")
    })?;
    expect(!dir.join("disk").exists(), || {
        "it has begun all the same".into()
    })?;
    passed()
}

fn killed(dir: &Path) -> Result<Outcome> {
    let (_, other) = match other_congestion() {
        Ok(both) => both,
        Err(skipped) => return Ok(skipped),
    };
    let outside = network_of("self");
    // The stock node: nothing of it stays in shared memory.
    let mut process = tiny_command("stock", other, dir)?;
    let pid = process.pid().to_string();
    let mut cluster = None;
    let inside = wait::until("a node in a namespace of the run", RUN_LIMIT, || {
        process.check_alive()?;
        let network = network_of(&pid);
        let members = members(network.as_ref());
        cluster = members.iter().find_map(|pid| cluster_of(pid));
        Ok(match network {
            Some(network) if Some(&network) != outside.as_ref() && cluster.is_some() => {
                Seen::Done(network)
            }
            _ => Seen::NotYet(format!("{} processes in {network:?}", members.len())),
        })
    })?;
    process.kill()?;
    wait::until("its processes to end", Duration::from_secs(20), || {
        let left = members(Some(&inside));
        Ok(if left.is_empty() {
            Seen::Done(())
        } else {
            Seen::NotYet(format!("{left:?}"))
        })
    })?;
    // The files of a killed run stay.
    if let Some(cluster) = cluster {
        std::fs::remove_dir_all(&cluster).map_err(TestkitError::file("removing", cluster))?;
    }
    passed()
}

/// The network namespace of a process, as the kernel names it.
fn network_of(pid: &str) -> Option<PathBuf> {
    std::fs::read_link(Path::new("/proc").join(pid).join("ns/net")).ok()
}

/// Ids of the processes in a network namespace.
fn members(network: Option<&PathBuf>) -> Vec<String> {
    let listed = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    listed
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|pid| {
            pid.parse::<u32>().is_ok() && network.is_some() && network_of(pid).as_ref() == network
        })
        .collect()
}

/// The directory of the cluster that a stock DataNode's process belongs to: its class path begins
/// with its configuration.
fn cluster_of(pid: &str) -> Option<PathBuf> {
    let words = std::fs::read(Path::new("/proc").join(pid).join("cmdline")).ok()?;
    let words = String::from_utf8(words).ok()?;
    let mut words = words.split('\0').skip_while(|word| *word != "-cp");
    let conf = Path::new(words.nth(1)?.split(':').next()?);
    let node = conf.parent()?;
    let is_node = node.file_name()?.to_str()?.starts_with("node-");
    is_node.then(|| node.parent().map(Path::to_owned))?
}
