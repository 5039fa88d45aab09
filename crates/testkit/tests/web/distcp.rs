//! DistCp between `hdfs://` and the web port, both ways.

use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::class;
use hayloft_testkit::suite::{expect_eq, passed};
use hayloft_testkit::{Cluster, Driver, Outcome};
use serde_json::json;
use std::path::Path;

/// Names and lengths: nothing, less than a chunk, several blocks and a bit.
const FILES: [(&str, u64); 3] = [("empty", 0), ("small", 10), ("below/large", (3 << 20) + 7)];
const BLOCK: u64 = 1 << 20;
const ADDED: u64 = 100_000;

/// Copies there and back; DistCp compares checksums, and this the bytes. `web` is the address of
/// the NameNode's web port with its scheme.
pub fn both_ways(cluster: &mut Cluster, fs: &Driver, web: &str) -> Result<Outcome> {
    let hdfs = cluster.namenode(0).uri();
    let dir = cluster.dir().join("distcp");
    let copy = |options: &[&str], from: &str, to: &str| distcp(fs, &dir, options, from, to);
    let block = json!({"blockSize": BLOCK});
    for (name, bytes) in FILES {
        fs.put(&format!("/from/{name}"), bytes, 3, block.clone())?;
    }
    copy(&[], &format!("{hdfs}/from"), &format!("{web}/there"))?;
    copy(&[], &format!("{web}/there"), &format!("{hdfs}/back"))?;
    // Nothing has changed: checksums of both sides are equal, and no file is written again.
    let before = times(fs)?;
    copy(
        &["-update"],
        &format!("{hdfs}/from"),
        &format!("{web}/there"),
    )?;
    copy(
        &["-update"],
        &format!("{web}/there"),
        &format!("{hdfs}/back"),
    )?;
    expect_eq("times", times(fs)?, before)?;
    let (large, bytes) = FILES[2];
    fs.append("more", &format!("/from/{large}"), 3, json!({}))?;
    fs.write("more", ADDED)?;
    fs.handle("close", "more")?;
    copy(
        &["-update", "-append"],
        &format!("{hdfs}/from"),
        &format!("{web}/there"),
    )?;
    for (name, bytes) in [FILES[0], FILES[1], (large, bytes + ADDED)] {
        fs.check(&format!("/there/{name}"), bytes, 3)?;
    }
    for (name, bytes) in FILES {
        fs.check(&format!("/back/{name}"), bytes, 3)?;
    }
    let sum = |path: String| {
        let line = fs.fs(&["-checksum", &path])?;
        Ok::<_, hayloft_testkit::TestkitError>(line.split_whitespace().last().map(str::to_owned))
    };
    let sums = (
        sum(format!("/from/{large}"))?,
        sum(format!("{web}/there/{large}"))?,
    );
    expect_eq("checksum", &sums.1, &sums.0)?;
    fs.fs(&["-rm", "-r", "-skipTrash", "/from", "/there", "/back"])?;
    passed()
}

/// When copies were written.
fn times(fs: &Driver) -> Result<String> {
    let paths = ["/there", "/back"].map(|dir| FILES.map(|(name, _)| format!("{dir}/{name}")));
    let mut arguments = vec!["-stat", "%n %Y"];
    arguments.extend(paths.iter().flatten().map(String::as_str));
    fs.fs(&arguments)
}

fn distcp(fs: &Driver, dir: &Path, options: &[&str], from: &str, to: &str) -> Result<()> {
    // A file's checksum depends on the size of its blocks.
    let arguments = [&["-pb"], options, &[from, to]].concat();
    let run = fs.tool_with(class::DISTCP, &arguments, Driver::local_jobs(dir))?;
    run.ok().map(|_| ())
}
