//! Writes, cold and warm reads, by number of streams.

use super::report::{Report, Sample};
use super::{Options, drop_caches, one_node, order};
use crate::cluster::Cluster;
use crate::driver::Driver;
use crate::error::Result;
use crate::node::Kind;
use crate::procfs;
use crate::suite::expect;
use crate::wait::{self, Seen};
use serde_json::json;
use std::time::Duration;

pub(super) fn measure(options: &Options, report: &mut Report) -> Result<()> {
    let (mut cluster, driver) = one_node("bench", options)?;
    for round in 0..options.rounds {
        for kind in order(round) {
            cluster.swap_node(0, kind)?;
            cluster.wait_all_live()?;
            warm_up(&driver, &cluster)?;
            for &streams in &options.streams {
                rows(
                    options,
                    report,
                    &mut cluster,
                    &driver,
                    (kind, round, streams),
                )?;
            }
            let usage = procfs::usage(cluster.node(0).process()?.pid())?;
            report.peak(kind, round, usage.rss_peak_kib);
            println!(
                "bench: round {round} {kind:?}: peak {} MiB",
                usage.rss_peak_kib / 1024
            );
        }
    }
    cluster.succeed();
    Ok(())
}

/// Lets the client's and a stock node's code be compiled before anything counts.
fn warm_up(driver: &Driver, cluster: &Cluster) -> Result<()> {
    let request = json!({"path": "/warm-up", "streams": 2, "bytes": 96 << 20});
    driver.call("writeStreams", request.clone())?;
    driver.call("readStreams", request)?;
    remove(driver, cluster, "/warm-up")
}

fn rows(
    options: &Options,
    report: &mut Report,
    cluster: &mut Cluster,
    driver: &Driver,
    (kind, round, streams): (Kind, u32, u32),
) -> Result<()> {
    let pid = cluster.node(0).process()?.pid();
    let bytes = (options.mib << 20) / u64::from(streams);
    let request = json!({"path": "/bench", "streams": streams, "bytes": bytes});
    for operation in ["write", "cold read", "warm read"] {
        let cold = operation == "cold read";
        if cold && !drop_caches() {
            continue; // the report says why the row is missing
        }
        if operation == "write" {
            rustix::fs::sync(); // earlier dirty pages are not this row's
        }
        let call = if operation == "write" {
            "writeStreams"
        } else {
            "readStreams"
        };
        let before = procfs::usage(pid)?;
        let answer = driver.call(call, request.clone())?;
        let after = procfs::usage(pid)?;
        expect(call == "writeStreams" || answer["equal"] == true, || {
            format!("bytes differ: {kind:?} {operation}")
        })?;
        let moved = answer["bytes"].as_f64().unwrap_or_default();
        let seconds = answer["nanos"].as_f64().unwrap_or(f64::NAN) / 1e9;
        let gib = moved / f64::from(1 << 30);
        let sample = Sample {
            kind: format!("{kind:?}"),
            round,
            row: format!(
                "{operation}, {streams} stream{}",
                if streams == 1 { "" } else { "s" }
            ),
            mib_per_s: moved / f64::from(1 << 20) / seconds,
            user_s_per_gib: (after.user_s - before.user_s) / gib,
            system_s_per_gib: (after.system_s - before.system_s) / gib,
        };
        println!(
            "bench: round {round} {:8} {:22} {:8.1} MiB/s  cpu/GiB {:.2} user {:.2} system",
            sample.kind,
            sample.row,
            sample.mib_per_s,
            sample.user_s_per_gib,
            sample.system_s_per_gib
        );
        report.samples.push(sample);
    }
    remove(driver, cluster, "/bench")
}

/// Deletes files and waits until their blocks are off the disk.
fn remove(driver: &Driver, cluster: &Cluster, path: &str) -> Result<()> {
    driver.fs(&["-rm", "-r", "-skipTrash", path])?;
    wait::until(
        "the benchmark's blocks to be deleted",
        Duration::from_secs(120),
        || {
            let left: usize = cluster
                .nodes()
                .map(|node| node.all_block_files().len())
                .sum();
            Ok(if left == 0 {
                Seen::Done(())
            } else {
                Seen::NotYet(format!("{left} files"))
            })
        },
    )
}
