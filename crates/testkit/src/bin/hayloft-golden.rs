//! Makes the golden files of the on-disk layout: what a stock DataNode leaves behind.
//!
//! `cargo run -p hayloft-testkit --bin hayloft-golden` writes `crates/store/src/layout/golden`
//! anew: one volume, as a stock DataNode of a stock NameNode left it at a clean stop, without its
//! lock file. The directories alone, which git does not keep, are listed in `tree.txt`.

use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::hadoop::repository_root;
use hayloft_testkit::node::Kind;
use hayloft_testkit::{Cluster, Driver};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Block ids count up from 2^30; past 256 of them the next directory begins.
const FILLERS: u64 = 257;
/// Length of each replica: a few chunks of 512 bytes, the last one cut.
const BYTES: u64 = 1300;

fn main() -> ExitCode {
    match make() {
        Ok(at) => {
            println!("written: {}", at.display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("hayloft-golden: error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn make() -> Result<PathBuf> {
    let mut cluster = Cluster::builder("golden")
        .nodes(1, Kind::Apache)
        .conf("dfs.replication", 1)
        .start()?;
    let fs = cluster.driver()?;
    fill(&fs)?;
    let volume = cluster.node(0).volumes().next().map(Path::to_path_buf);
    let volume = volume.ok_or_else(|| TestkitError::Talk("the node has no volume".into()))?;
    // At SIGTERM the stock node just ends; asked like this it writes its list of replicas.
    let ipc = cluster.node(0).ipc();
    fs.dfsadmin(&["-shutdownDatanode", &ipc])?;
    cluster
        .node(0)
        .wait_ended(std::time::Duration::from_secs(60))?;
    let to = repository_root().join("crates/store/src/layout/golden");
    if to.exists() {
        std::fs::remove_dir_all(&to).map_err(TestkitError::file("removing", &to))?;
    }
    let mut tree = Vec::new();
    copy(&volume, &to.join("volume"), "", &mut tree)?;
    tree.sort();
    let list = to.join("tree.txt");
    std::fs::write(&list, tree.concat()).map_err(TestkitError::file("writing", &list))?;
    cluster.succeed();
    Ok(to)
}

/// A replica of each checksum type at two chunk sizes, one of them appended to.
fn fill(fs: &Driver) -> Result<()> {
    let fillers = json!({"path": "/fillers", "count": FILLERS, "bytes": 1, "seed": 1});
    fs.call("many", fillers)?;
    for kind in ["CRC32", "CRC32C", "NULL"] {
        for chunk in [512, 4096] {
            let conf = json!({"dfs.checksum.type": kind, "dfs.bytes-per-checksum": chunk});
            let path = format!("/{kind}-{chunk}");
            fs.put(&path, BYTES, 5, json!({"conf": conf}))?;
            if (kind, chunk) == ("CRC32C", 512) {
                let more = json!({"conf": conf, "appendTo": true});
                fs.put(&path, 100, 5, more)?;
            }
        }
    }
    fs.fs(&["-rm", "-r", "-skipTrash", "/fillers"])?;
    // Deleted on the node a heartbeat or two later.
    std::thread::sleep(std::time::Duration::from_secs(10));
    Ok(())
}

/// Copies files, and names the directories; empty ones of deleted replicas are left out.
fn copy(from: &Path, to: &Path, name: &str, tree: &mut Vec<String>) -> Result<()> {
    tree.push(format!("{name}/\n"));
    let entries = std::fs::read_dir(from).map_err(TestkitError::file("listing", from))?;
    for entry in entries {
        let path = entry.map_err(TestkitError::file("listing", from))?.path();
        let Some(part) = path.file_name().and_then(|n| n.to_str()) else {
            continue;
        };
        if path.is_dir() {
            copy(&path, &to.join(part), &format!("{name}/{part}"), tree)?;
        } else if part != "in_use.lock" {
            std::fs::create_dir_all(to).map_err(TestkitError::file("creating", to))?;
            std::fs::copy(&path, to.join(part)).map_err(TestkitError::file("copying", &path))?;
        }
    }
    Ok(())
}
