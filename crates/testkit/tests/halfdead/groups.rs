//! A disk of a node with parity, of which a part cannot be read: no client learns of it, and with
//! enough errors the disk is given up and what it had is rebuilt.

use super::{BLOCK, cut_at, failed_volumes, known_bad, metric, read_all};
use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::scratch;
use hayloft_testkit::mounts::TestMount;
use hayloft_testkit::node::Kind;
use hayloft_testkit::suite::{expect, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Cluster, NodeSpec, Outcome, VolumeSpec};
use serde_json::json;

/// Four of data, one of parity, one to rebuild on.
const DISKS: usize = 6;
const FILES: u64 = 40;

pub fn cut() -> Result<Outcome> {
    let base = scratch("halfdead-groups-")?;
    let mut disks = Vec::new();
    for n in 0..DISKS {
        let at = base.path().join(format!("disk-{n}"));
        let image = base.path().join(format!("image-{n}"));
        disks.push(TestMount::going_on(&image, &at, 200)?);
    }
    let volumes = disks
        .iter()
        .map(|disk| VolumeSpec::at(disk.path().join("data")));
    let spec = NodeSpec::new(Kind::Hayloft)
        .volumes(volumes.collect())
        .conf("hayloft.parity", "4+1")
        .conf("hayloft.disk.errors.limit", 6)
        .conf("dfs.datanode.failed.volumes.tolerated", 1)
        .conf(
            "dfs.datanode.round-robin-volume-choosing-policy.additional-available-space",
            0,
        );
    let mut cluster = Cluster::builder("halfdead-groups")
        .conf("dfs.blocksize", BLOCK)
        .conf("dfs.replication", 1)
        .node(spec)
        .start()?;
    let fs = cluster.driver()?;
    for n in 0..FILES {
        fs.put(&format!("/f{n}"), BLOCK, n, json!({}))?;
    }
    let protected = "hayloft_parity_bytes{state=\"protected\"}";
    wait::until("parity of all", seconds(240), || {
        let now = metric(&mut cluster, 0, protected)?;
        Ok(if now >= (FILES * BLOCK) as f64 {
            Seen::Done(())
        } else {
            Seen::NotYet(now.to_string())
        })
    })?;
    let here = |path: &std::path::PathBuf| path.starts_with(disks[0].path());
    let files: Vec<_> = cluster
        .node(0)
        .all_block_files()
        .into_iter()
        .filter(here)
        .collect();
    let (data, sums) = cut_at(&disks[0], &files, 20)?;
    println!(
        "halfdead: {} data and {} checksum files cannot be read",
        data.len(),
        sums.len()
    );
    wait::until("the disk to be given up", seconds(120), || {
        read_all(&fs, FILES)?;
        Ok(match failed_volumes(&cluster)? {
            1 => Seen::Done(()),
            n => Seen::NotYet(format!("{n} failed volumes")),
        })
    })?;
    wait::until("all to be rebuilt", seconds(120), || {
        read_all(&fs, FILES)?;
        let degraded = metric(&mut cluster, 0, "hayloft_parity_bytes{state=\"degraded\"}")?;
        Ok(if degraded == 0.0 {
            Seen::Done(())
        } else {
            Seen::NotYet(format!("{degraded} bytes"))
        })
    })?;
    // On a full disk no replica can be mended in its place: such a one is told.
    println!(
        "halfdead: the NameNode was told of {} replicas",
        known_bad(&cluster)?
    );
    let lost = metric(&mut cluster, 0, "hayloft_parity_bytes{state=\"lost\"}")?;
    expect(lost == 0.0, || format!("{lost} bytes are lost"))?;
    read_all(&fs, FILES)?;
    drop(fs);
    cluster.succeed();
    Ok(Outcome::Passed)
}
