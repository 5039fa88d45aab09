//! Disks that die by halves. [`cuts`]: a part of a disk gives EIO, also slowly, and as a device of
//! blocks. [`engines`]: engines that give EIO. [`groups`]: a volume of parity.

#[path = "../../../io/tests/plugin/compile.rs"]
mod compile;
mod cuts;
mod engines;
mod groups;

use hayloft_testkit::error::Result;
use hayloft_testkit::mounts::{TestMount, in_own_namespace, run};
use hayloft_testkit::node::Kind;
use hayloft_testkit::{Cluster, Driver, Outcome, Suite};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Block size of the clusters' clients, bytes.
const BLOCK: u64 = 1 << 20;

fn main() -> ExitCode {
    in_own_namespace();
    Suite::run("halfdead", |suite| {
        if !suite.may_mount_disks("everything") {
            return Ok(());
        }
        for (name, hundredth) in [("nearly_all", 3), ("two_thirds", 33), ("a_third", 66)] {
            suite.case(format!("cut_of_{name}_is_told"), move || {
                cuts::cut(hundredth)
            });
        }
        suite.case("a_slow_cut_is_told", || ours_only(cuts::slow));
        suite.case("a_cut_of_a_device_is_told", || ours_only(cuts::device));
        suite.case("a_cut_of_a_volume_of_parity_is_rebuilt", || {
            ours_only(groups::cut)
        });
        let end = |lab: engines::Lab, failed| lab.conclude(failed);
        let mut on = suite.group(engines::start, end);
        on.case("an_engine_that_fails_writes_costs_its_volume", |lab| {
            lab.fails(&["write"])
        });
        on.case("an_engine_that_fails_reads_costs_its_volume", |lab| {
            lab.fails(&["read"])
        });
        on.case("an_engine_that_fails_both_costs_its_volume", |lab| {
            lab.fails(&["read", "write"])
        });
        on.case(
            "an_engine_that_fails_after_a_time_costs_its_volume",
            |lab| lab.fails_later(),
        );
        on.case("a_volume_whose_errors_stop_is_used_again", |lab| {
            lab.errors_stop()
        });
        on.case("a_volume_with_too_many_errors_is_given_up", |lab| {
            lab.too_many()
        });
        Ok(())
    })
}

fn ours_only(case: impl FnOnce() -> Result<Outcome>) -> Result<Outcome> {
    match Kind::under_test() {
        Kind::Apache => Ok(Outcome::Skipped("the stock node has no such thing".into())),
        Kind::Hayloft => case(),
    }
}

/// Replicas that the NameNode knows to be bad.
fn known_bad(cluster: &Cluster) -> Result<u64> {
    let bean = cluster.namenode_bean(0, "FSNamesystem")?;
    Ok(bean["CorruptBlocks"].as_u64().unwrap_or(0))
}

/// Volumes that failed, as nodes have told the NameNode.
fn failed_volumes(cluster: &Cluster) -> Result<u64> {
    let bean = cluster.namenode_bean(0, "FSNamesystemState")?;
    Ok(bean["VolumeFailuresTotal"].as_u64().unwrap_or(0))
}

/// Where files lie on their device: path, first and last byte.
fn places(files: &[PathBuf]) -> Result<Vec<(PathBuf, u64, u64)>> {
    let mut all = Vec::new();
    for file in files {
        let said = run(Command::new("filefrag").args(["-e", "-s", "-b1"]).arg(file))?;
        let mut ends = Vec::new();
        // "   0:        0..    8197:   34816..   43013:   8198:  last,eof"
        for line in said.lines().filter(|line| line.contains("..")) {
            let numbers = line
                .split([':', '.', ' '])
                .filter_map(|n| n.parse::<u64>().ok());
            let numbers: Vec<u64> = numbers.collect();
            if let [_, _, _, first, last, ..] = numbers[..] {
                ends.extend([first, last]);
            }
        }
        let first = ends.iter().min().copied().unwrap_or(0);
        all.push((file.clone(), first, ends.iter().max().copied().unwrap_or(0)));
    }
    Ok(all)
}

/// Fills the disk, so that no write makes it whole again, and cuts it so that this part of the
/// files lies before the cut. Gives the data and the checksum files that cannot be read any more,
/// by block.
fn cut_at(disk: &TestMount, files: &[PathBuf], hundredth: usize) -> Result<(Vec<i64>, Vec<i64>)> {
    disk.fill()?;
    run(Command::new("sync").arg("-f").arg(disk.path()))?;
    let found = places(files)?;
    let mut firsts: Vec<u64> = found.iter().map(|(_, first, _)| *first).collect();
    firsts.sort_unstable();
    // Directories stay: without them it would be a dead disk.
    let dirs = places(&directories(disk.path())?)?;
    let kept = dirs.iter().map(|(.., last)| last + 1).max().unwrap_or(0);
    let at = firsts[firsts.len() * hundredth / 100].max(kept);
    disk.cut(at)?;
    let bad = |meta: bool| {
        let here = found.iter().filter(|(path, _, last)| {
            path.extension().is_some_and(|e| e == "meta") == meta && *last >= at
        });
        let ids = here.filter_map(|(path, ..)| block_of(path));
        let mut ids: Vec<i64> = ids.collect();
        ids.sort_unstable();
        ids
    };
    Ok((bad(false), bad(true)))
}

/// All directories below one.
fn directories(below: &Path) -> Result<Vec<PathBuf>> {
    let said = run(Command::new("find").arg(below).args(["-type", "d"]))?;
    Ok(said.lines().map(PathBuf::from).collect())
}

fn block_of(path: &Path) -> Option<i64> {
    let name = path.file_name()?.to_str()?.strip_prefix("blk_")?;
    name.split(['_', '.']).next()?.parse().ok()
}

/// A value of `/prom` of a node, by the beginning of its line; the sum of all such.
fn metric(cluster: &mut Cluster, node: usize, begin: &str) -> Result<f64> {
    let port = cluster.node(node).http_port();
    let text = hayloft_testkit::http::get(([127, 0, 0, 1], port).into(), "/prom")?;
    let lines = text.lines().filter(|line| line.starts_with(begin));
    Ok(lines
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum())
}

/// Reads all files; each must have its bytes.
fn read_all(fs: &Driver, files: u64) -> Result<()> {
    (0..files).try_for_each(|n| fs.check(&format!("/f{n}"), BLOCK, n))
}
