//! A part of a disk cannot be read. Clients read all files again and again.

use super::{BLOCK, block_of, compile, cut_at, failed_volumes, known_bad, metric, read_all};
use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::{lab_binary, scratch};
use hayloft_testkit::modelled::{self, HostedDisk, HostedFileSystem, ModelledDisk, Params};
use hayloft_testkit::mounts::{TestMount, cut_file, loop_device, run};
use hayloft_testkit::node::Kind;
use hayloft_testkit::suite::{expect, expect_eq, passed};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Cluster, Driver, NodeSpec, Outcome, TestkitError, VolumeSpec};
use serde_json::json;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Files of one block.
const FILES: u64 = 45;
const NODES: usize = 3;
const ROOM_AHEAD: &str =
    "dfs.datanode.round-robin-volume-choosing-policy.additional-available-space";
/// A disk that takes seconds for each error has as long after the last look.
const SLOW_WITHIN: Duration = Duration::from_secs(240);
/// When the NameNode is asked, seconds after the cut.
const LOOKS: [u64; 3] = [10, 30, 120];

fn cluster(name: &str, nodes: usize, first: NodeSpec) -> Result<Cluster> {
    Cluster::builder(name)
        .conf("dfs.blocksize", BLOCK)
        .conf("dfs.replication", nodes)
        .conf("dfs.client.socket-timeout", 20_000)
        .node(first)
        .nodes(nodes - 1, Kind::Hayloft)
        .start()
}

fn write_all(fs: &Driver, files: u64, nodes: usize) -> Result<()> {
    for n in 0..files {
        fs.put(&format!("/f{n}"), BLOCK, n, json!({}))?;
    }
    let limit = Duration::from_secs(60);
    (0..files).try_for_each(|n| fs.wait_replicas(&format!("/f{n}"), nodes, limit))
}

/// Reads all files until the last look; what the NameNode knew at each.
fn watch(cluster: &Cluster, fs: &Driver, files: u64) -> Result<Vec<u64>> {
    let began = Instant::now();
    let mut known = Vec::new();
    while known.len() < LOOKS.len() {
        for n in 0..files {
            fs.check(&format!("/f{n}"), BLOCK, n)?;
            if let Some(look) = LOOKS.get(known.len())
                && began.elapsed() >= Duration::from_secs(*look)
            {
                known.push(known_bad(cluster)?);
            }
        }
    }
    Ok(known)
}

fn said(what: &str, known: &[u64], bad: usize) {
    let kind = Kind::under_test();
    let known: Vec<_> = LOOKS
        .iter()
        .zip(known)
        .map(|(s, n)| format!("{n} after {s} s"))
        .collect();
    println!(
        "halfdead: {what}, {kind:?}: of {bad} bad the NameNode knew {}",
        known.join(", ")
    );
}

/// All that is bad is told within 30 seconds, and nothing else.
fn judge(known: &[u64], bad: usize) -> Result<()> {
    if Kind::under_test() == Kind::Apache {
        return Ok(());
    }
    let bad = bad as u64;
    expect(known[1..].iter().all(|n| *n == bad), || {
        format!("of {bad} bad replicas the NameNode knew {known:?}")
    })
}

pub fn cut(hundredth: usize) -> Result<Outcome> {
    let base = scratch("halfdead-")?;
    let at = base.path().join("disk");
    let disk = TestMount::going_on(&base.path().join("image"), &at, 400)?;
    let spec = NodeSpec::new(Kind::under_test())
        .volumes(vec![VolumeSpec::at(at.join("data"))])
        .conf(ROOM_AHEAD, 0);
    let mut cluster = cluster("halfdead", NODES, spec)?;
    let fs = cluster.driver()?;
    write_all(&fs, FILES, NODES)?;
    let files = cluster.node(0).all_block_files();
    let (data, sums) = cut_at(&disk, &files, hundredth)?;
    let bad: BTreeSet<i64> = data.iter().chain(&sums).copied().collect();
    expect(!bad.is_empty(), || "nothing was cut off".into())?;
    let known = watch(&cluster, &fs, FILES)?;
    let what = format!(
        "cut at {hundredth} % ({} data, {} checksum files)",
        data.len(),
        sums.len()
    );
    said(&what, &known, bad.len());
    judge(&known, bad.len())?;
    cluster.node(0).process()?.check_alive()?;
    expect_eq("failed volumes", failed_volumes(&cluster)?, 0)?;
    if Kind::under_test() == Kind::Hayloft {
        // It counts them, and says so.
        let places = metric(&mut cluster, 0, "hayloft_volume_error_files{")?;
        expect(places >= bad.len() as f64, || {
            format!("it counts errors in {places} files")
        })?;
    }
    read_all(&fs, FILES)?;
    drop(fs);
    cluster.succeed();
    Ok(Outcome::Passed)
}

/// A drive that tries for more than a second before it says that it cannot read.
pub fn slow() -> Result<Outcome> {
    if let Some(what) = modelled::missing(HostedFileSystem::Ext4) {
        return Ok(Outcome::Skipped(what.to_string()));
    }
    let base = scratch("halfdead-slow-")?;
    let backing = base.path().join("backing");
    let disk = HostedDisk {
        size: 512 << 20,
        file_system: HostedFileSystem::Raw,
        params: Params {
            read_bytes_s: 400_000_000,
            write_bytes_s: 400_000_000,
            buffer_bytes: 0,
            retries_us: 1_200_000,
            ..Params::default()
        },
        dir: base.path().join("raw"),
        backing: Some(backing.clone()),
    };
    let disk = ModelledDisk::mount(&lab_binary()?, &disk, &base.path().join("disk.log"))?;
    let at = base.path().join("disk");
    let mount = TestMount::going_on_device(&disk.place().device, &at)?;
    let spec = NodeSpec::new(Kind::Hayloft)
        .volumes(vec![VolumeSpec::at(at.join("data"))])
        .conf(ROOM_AHEAD, 0)
        .conf(modelled::MEDIA.0, modelled::MEDIA.1);
    let mut cluster = cluster("halfdead-slow", NODES, spec)?;
    let fs = cluster.driver()?;
    write_all(&fs, FILES, NODES)?;
    mount.fill()?;
    run(Command::new("sync").arg("-f").arg(mount.path()))?;
    let mut places = super::places(&cluster.node(0).all_block_files())?;
    places.sort_by_key(|(_, first, _)| *first);
    // A few: each costs the disk seconds, and all the others wait for it.
    let cut = places[places.len() * 4 / 5].1;
    cut_file(&backing, cut)?;
    let bad = places.iter().filter(|(_, _, last)| *last >= cut);
    let bad: BTreeSet<i64> = bad.filter_map(|(path, ..)| block_of(path)).collect();
    let known = watch(&cluster, &fs, FILES)?;
    said("a slow cut", &known, bad.len());
    // Each error takes the disk seconds, and clients ask for more of them.
    wait::until("all bad replicas at the NameNode", SLOW_WITHIN, || {
        read_all(&fs, FILES)?;
        let known = known_bad(&cluster)?;
        Ok(if known == bad.len() as u64 {
            Seen::Done(())
        } else {
            Seen::NotYet(format!("{known} of {}", bad.len()))
        })
    })?;
    expect_eq("failed volumes", failed_volumes(&cluster)?, 0)?;
    drop(fs);
    cluster.succeed();
    Ok(Outcome::Passed)
}

/// Blocks on a device of which a part cannot be read.
pub fn device() -> Result<Outcome> {
    let base = scratch("halfdead-device-")?;
    let plugin = base.path().join("raw.so");
    compile::plugin("../../plugins/raw.c", &plugin, &[]);
    let image = base.path().join("image");
    let made = std::fs::File::create(&image).and_then(|f| f.set_len(256 << 20));
    made.map_err(TestkitError::file("creating", &image))?;
    let device = Detached(loop_device(&image)?);
    let volume = base.path().join("volume");
    let key = format!("hayloft.io.engine.{}", volume.display());
    let engine = format!("plugin:{} {}", plugin.display(), device.0.display());
    let spec = NodeSpec::new(Kind::Hayloft)
        .volumes(vec![VolumeSpec::at(&volume)])
        .conf(&key, engine);
    let cluster = cluster("halfdead-device", NODES, spec)?;
    let fs = cluster.driver()?;
    write_all(&fs, FILES, NODES)?;
    run(Command::new("sync").args([Path::new("-f"), &volume]))?;
    run(Command::new("blockdev").arg("--flushbufs").arg(&device.0))?;
    // The header, and about fifteen of the blocks.
    cut_file(&image, 16 << 20)?;
    let known = watch(&cluster, &fs, FILES)?;
    said(
        "a cut of a device",
        &known,
        usize::try_from(FILES).unwrap_or(0),
    );
    // Those that lie before it are as they were.
    let last = known.last().copied().unwrap_or(0);
    expect((FILES - 16..FILES).contains(&last), || {
        format!("the NameNode knew {known:?} of some {}", FILES - 15)
    })?;
    expect(known[1] == last, || format!("not within 30 s: {known:?}"))?;
    expect_eq("failed volumes", failed_volumes(&cluster)?, 0)?;
    drop(fs);
    cluster.succeed();
    passed()
}

/// A loop device, detached when this is dropped.
struct Detached(PathBuf);

impl Drop for Detached {
    fn drop(&mut self) {
        let _ = Command::new("losetup")
            .arg("--detach")
            .arg(&self.0)
            .status();
    }
}
