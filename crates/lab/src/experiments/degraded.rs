//! A disk is gone: what a stream gets whose block was on it, and what the rebuild reads.

use std::path::Path;
use std::time::Instant;

use hayloft_bench::fair::spread::Spread;
use serde_json::json;

use super::parity::{
    MEMBERS, PARITY_LIMIT, block_bytes, described, options, pool_status, wait_groups,
};
use super::testbeds::{DISKS, bring_up};
use crate::disks::Mounted;
use crate::runner::record::PeerFigures;
use crate::runner::table::{Bar, Shown, WantedRatio, pick};
use crate::runner::{Experiment, OURS, PeerTurn};
use crate::workload;
use hayloft_testkit::driver::Driver;
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::wait::{self, Seen};

/// The experiment.
pub const DEGRADED: Experiment = Experiment {
    name: "degraded",
    question: "a stream whose disk is gone, and what the rebuild reads",
    options,
    about: |options| {
        format!(
            "One Hayloft node with {DISKS} modelled hard disks (not real ones) of {} MB/s reading, \
             parity 6+1, blocks of {} MiB. One reader, cold, of {STREAMS} files of one block whose \
             disk is taken away, while the node rebuilds.",
            options.disk_mbs.0, options.block_mib
        )
    },
    measure: |run, part| run.rounds(part, &[("", OURS)], &mut |turn, _| measure(turn)),
    shown: Shown {
        title: "Reads while a disk is missing",
        tables: include_str!("tables/degraded.txt"),
        wants: || {
            vec![WantedRatio {
                text: "a decoded stream to a healthy one".into(),
                of: pick("", "", OURS, "decoded", "mbs"),
                over: pick("", "", OURS, "before", "mbs"),
                bar: Bar::Least(BAR),
            }]
        },
        ..Shown::NOTHING
    },
    ..Experiment::OF_RATES
};

/// Bar: a decoded stream as a share of a healthy one.
const BAR: f64 = 0.5;
/// Files of one block each: as many on each disk.
const FILES: usize = 48;
/// Where they are.
const ROOT: &str = "/gone";
/// Streams that are measured, one after the other.
const STREAMS: usize = 3;

fn measure(turn: &mut PeerTurn<'_>) -> Result<()> {
    let testbed = bring_up(turn, described(Some(1024), turn.options))?;
    let tell = &mut |what: &str| turn.tell(what);
    let clients = workload::start_clients(&testbed, tell)?;
    let client = &clients[0];
    let request = json!({
        "path": ROOT, "streams": FILES, "bytes": block_bytes(), "replication": 1,
        "blockSize": block_bytes(),
    });
    client.call("writeStreams", request)?;
    wait_groups(&testbed, &|now| now >= FILES as u64 / MEMBERS)?;
    let disk = &testbed.nodes()[0].disks[0];
    let on_disk = single_files(client, disk)?;
    // Classes are loaded by a file that is not measured.
    let (first, measured) = on_disk.split_first().ok_or_else(|| short(0))?;
    if measured.len() < STREAMS {
        return Err(short(measured.len()));
    }
    read(client, first)?;
    let each = |paths: &[String]| -> Result<Vec<f64>> {
        paths.iter().map(|path| read(client, path)).collect()
    };
    let healthy = each(&measured[..STREAMS])?;
    let lost_units = units(&disk.dir);
    let disks = || testbed.nodes().iter().flat_map(|node| &node.disks);
    disks().for_each(Mounted::forget_seen);
    tell("its directory is taken away");
    take_away(&disk.dir)?;
    let began = Instant::now();
    let decoded = each(&measured[..STREAMS])?;
    wait::until("the rebuild", PARITY_LIMIT, || {
        std::thread::sleep(std::time::Duration::from_millis(500));
        let now = pool_status(&testbed)?;
        let left = |name: &str| now[name].as_u64().unwrap_or(u64::MAX);
        let done = left("degraded_bytes") == 0 && left("rebuild_remaining_bytes") == 0;
        let volumes = now["volumes"].as_array().into_iter().flatten();
        let left_in_use = volumes.filter(|volume| volume["in_use"] == true).count();
        let noticed = left_in_use == DISKS - 1;
        Ok(if done && noticed {
            Seen::Done(())
        } else {
            Seen::NotYet(now.to_string())
        })
    })?;
    let rebuild_s = began.elapsed().as_secs_f64();
    let read_bytes = disks()
        .filter_map(Mounted::seen)
        .map(|seen| seen.read.bytes);
    let streams = STREAMS as u64 * MEMBERS * block_bytes();
    let read_bytes = read_bytes.sum::<u64>().saturating_sub(streams);
    let of_streams = |mbs| PeerFigures::of([("mbs", Spread::median(mbs))]);
    turn.give("before", of_streams(healthy));
    turn.give("decoded", of_streams(decoded));
    turn.give(
        "rebuild",
        rebuilt(lost_units, read_bytes).with("seconds", rebuild_s),
    );
    Ok(())
}

/// What the other disks gave until all was rebuilt, beside the members that each lost unit needs.
#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn rebuilt(lost_units: u64, read_bytes: u64) -> PeerFigures {
    let needed = (lost_units * MEMBERS * block_bytes()).max(1);
    PeerFigures::of([
        ("lost_units", lost_units as f64),
        ("read_bytes", read_bytes as f64),
        ("of_needed", read_bytes as f64 / needed as f64),
    ])
}

fn short(found: usize) -> TestkitError {
    TestkitError::Expectation(format!("the disk has {found} files to measure with"))
}

/// Paths whose file is one block on the disk, each in a directory of its own.
fn single_files(client: &Driver, disk: &Mounted) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for at in 0..FILES {
        let path = format!("{ROOT}/s{at}");
        let id = client.blocks(&path)?.first().map_or(0, |block| block.id);
        if holds(&disk.dir, &format!("blk_{id}")) {
            let dir = format!("{ROOT}-{at}");
            client.fs(&["-mkdir", &dir])?;
            client.fs(&["-mv", &path, &format!("{dir}/s0")])?;
            found.push(dir);
        }
    }
    Ok(found)
}

fn holds(dir: &Path, name: &str) -> bool {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.into_iter().any(|entry| {
        let path = entry.path();
        path.is_dir() && holds(&path, name) || path.is_file() && path.ends_with(name)
    })
}

/// Replicas and parity files below a directory.
fn units(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let count = |entry: std::fs::DirEntry| {
        let path = entry.path();
        if path.is_dir() {
            return units(&path);
        }
        let name = entry.file_name().to_string_lossy().into_owned();
        let replica = name.starts_with("blk_") && !name.ends_with(".meta");
        u64::from(replica || name.ends_with(".p0"))
    };
    entries.into_iter().map(count).sum()
}

/// MB/s of one cold stream.
#[expect(clippy::cast_precision_loss, reason = "rates for people")]
fn read(client: &Driver, dir: &str) -> Result<f64> {
    workload::empty_page_cache()?;
    let answer = client.call("readStreams", json!({"path": dir, "streams": 1}))?;
    if answer["equal"] != true {
        let text = format!("{dir} reads other than it was written");
        return Err(TestkitError::Expectation(text));
    }
    let of = |name: &str| answer[name].as_u64().unwrap_or(0) as f64;
    Ok(of("bytes") / 1e6 / (of("nanos") / 1e9).max(1e-9))
}

/// All that a node has on a disk gets another name.
fn take_away(disk: &Path) -> Result<()> {
    let entries = std::fs::read_dir(disk).map_err(TestkitError::file("listing", disk))?;
    for entry in entries.flatten() {
        let from = entry.path();
        if from.is_dir() && entry.file_name() != "lost+found" {
            let to = disk.join("taken-away");
            std::fs::rename(&from, &to).map_err(TestkitError::file("renaming", &from))?;
            return Ok(());
        }
    }
    let text = format!("{} has no data directory", disk.display());
    Err(TestkitError::Expectation(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_disk_holds_is_found_and_taken_away() {
        let dir = tempfile::tempdir().expect("a directory");
        let data = dir.path().join("data/current/finalized");
        let parity = dir.path().join("data/hayloft-parity");
        for dir in [&data, &parity] {
            std::fs::create_dir_all(dir).expect("creates");
        }
        for path in [
            data.join("blk_1"),
            data.join("blk_1_7.meta"),
            parity.join("g.p0"),
        ] {
            std::fs::write(path, "").expect("writes");
        }
        assert!(holds(dir.path(), "blk_1") && !holds(dir.path(), "blk_2"));
        assert_eq!(units(dir.path()), 2);
        take_away(dir.path()).expect("renames");
        assert!(!dir.path().join("data").exists());
    }

    #[test]
    fn what_the_rebuild_reads_is_a_share_of_what_it_needs() {
        let figures = rebuilt(2, 3 * MEMBERS * block_bytes());
        assert_eq!(figures.get("of_needed"), Some(1.5));
    }
}
