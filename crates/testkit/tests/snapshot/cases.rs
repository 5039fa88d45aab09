//! What an operator does with the command, and what goes wrong.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hayloft_testkit::error::{Result, expect};
use hayloft_testkit::files::flip_byte;
use hayloft_testkit::mounts::TestMount;
use hayloft_testkit::s3_server::{self, S3Server};
use hayloft_testkit::suite::passed;
use hayloft_testkit::{Outcome, TestkitError};
use serde_json::Value;

use crate::lab::{BLOCK, Lab, Said, VIRTUAL};

/// Leaves a case when there is no server.
macro_rules! needs_server {
    ($lab:expr) => {
        if let Err(why) = &$lab.server {
            return Ok(Outcome::Skipped(why.clone()));
        }
    };
}

fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or(u64::MAX)
}

/// An error with this exit code, which says this and what to do.
fn refused(said: &Said, code: i32, says: &str) -> Result<()> {
    let well = said.code == Some(code) && said.stderr.contains(says);
    expect(well, || {
        format!("not refused with {code} and {says:?}: {said:?}")
    })
}

pub fn a_lost_node_is_back(lab: &mut Lab) -> Result<Outcome> {
    needs_server!(lab);
    let to = lab.prefix();
    let first = lab.well("create", &to, &[])?;
    let blocks = number(&first[0], "replicas");
    expect(
        blocks == 7 && number(&first[0], "uploaded_replicas") == 7,
        || format!("six files, one empty, one of three blocks: {first}"),
    )?;
    // A second run of an unchanged node writes a manifest alone.
    let second = lab.well("create", &to, &[])?;
    expect(number(&second[0], "uploaded_replicas") == 0, || {
        format!("{second}")
    })?;
    expect(lab.manifests(&to)? == 2, || "not two snapshots".into())?;
    let kept = lab.well("prune", &to, &["--keep", "2"])?;
    expect(number(&kept[0], "objects") == 0, || {
        format!("objects beside: {kept}")
    })?;
    // What is written and appended to while the node runs comes with the next.
    lab.files.put(&lab.fs, "/second", BLOCK + 5)?;
    lab.files.wait_replicas(&lab.fs, 1)?;
    let third = lab.well("create", &to, &[])?;
    expect(number(&third[0], "uploaded_replicas") == 2, || {
        format!("{third}")
    })?;
    lab.well("verify", &to, &[])?;
    refused(&lab.snapshot("restore", &to, &[])?, 1, "uses the directory")?;
    lab.lose_the_node()?;
    let restored = lab.well("restore", &to, &[])?;
    expect(number(&restored, "restored_replicas") == 9, || {
        format!("{restored}")
    })?;
    expect(restored["identity"] == restored["node"], || {
        format!("{restored}")
    })?;
    expect(number(&restored, "other_type") == 0, || {
        format!("{restored}")
    })?;
    lab.read_all_back()?;
    // It is a node as any other: it takes files, and a snapshot of it finds all in the store.
    lab.files.put(&lab.fs, "/third", 100)?;
    let fourth = lab.well("create", &to, &[])?;
    expect(number(&fourth[0], "uploaded_replicas") == 1, || {
        format!("{fourth}")
    })?;
    passed()
}

pub fn under_a_new_identity(lab: &mut Lab) -> Result<Outcome> {
    let (to, _) = lab.directory()?;
    lab.well("create", &to, &[])?;
    lab.lose_the_node()?;
    let restored = lab.well("restore", &to, &["--new-identity"])?;
    expect(restored["identity"] != restored["node"], || {
        format!("{restored}")
    })?;
    lab.read_all_back()?;
    // Its snapshots are another node's from now on.
    let created = lab.well("create", &to, &[])?;
    expect(created[0]["node"] == restored["identity"], || {
        format!("{created}")
    })?;
    refused(&lab.snapshot("verify", &to, &[])?, 2, "--node")?;
    passed()
}

/// Each of a process has a folder and a snapshot of its own, and comes back by itself.
pub fn of_virtual_nodes(lab: &mut Lab) -> Result<Outcome> {
    let (to, _) = lab.directory()?;
    let created = lab.well("create", &to, &[])?;
    let nodes: Vec<&str> = created
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|report| report["node"].as_str())
        .collect();
    let replicas: u64 = (0..2).map(|at| number(&created[at], "replicas")).sum();
    expect(nodes.len() == 2 && replicas == 7, || format!("{created}"))?;
    lab.lose_the_node()?;
    refused(
        &lab.snapshot("restore", &to, &["--node", nodes[0]])?,
        2,
        "--virtual-node",
    )?;
    for (name, node) in VIRTUAL.iter().zip(&nodes) {
        let which = ["--virtual-node", name, "--node", node];
        let restored = lab.well("restore", &to, &which)?;
        expect(restored["identity"] == **node, || format!("{restored}"))?;
    }
    lab.read_all_back()?;
    passed()
}

/// Kills the command after ever longer, until it ends by itself before.
fn kill_all_along(lab: &mut Lab, command: &str, to: &str, more: &[&str]) -> Result<usize> {
    for (killed, tenths) in (0..100).enumerate() {
        let mut child = lab.begin(command, to, more)?;
        let until = Instant::now() + Duration::from_millis(20 + tenths * 60);
        let talk = |e| TestkitError::Talk(format!("waiting for {command}: {e}"));
        loop {
            if let Some(status) = child.try_wait().map_err(talk)? {
                expect(status.success(), || {
                    format!("{command} ended with {status}")
                })?;
                return Ok(killed);
            }
            if Instant::now() > until {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        child.kill().map_err(talk)?;
        child.wait().map_err(talk)?;
    }
    let why = format!("{command} does not end within seconds");
    Err(TestkitError::Expectation(why))
}

pub fn killed_anywhere(lab: &mut Lab) -> Result<Outcome> {
    let (to, dir) = lab.directory()?;
    let slowly = ["--rate", "30MiB"];
    let killed = kill_all_along(lab, "create", &to, &slowly)?;
    expect(killed > 2, || format!("create was killed {killed} times"))?;
    lab.well("verify", &to, &[])?;
    lab.lose_the_node()?;
    let killed = kill_all_along(lab, "restore", &to, &slowly)?;
    expect(killed > 2, || format!("restore was killed {killed} times"))?;
    lab.read_all_back()?;
    // No prune runs beside what may be at work; once that is dead, it cleans up.
    refused(
        &lab.snapshot("prune", &to, &["--keep", "1", "--yes"])?,
        1,
        "at work",
    )?;
    age_claims(&dir)?;
    lab.well("prune", &to, &["--keep", "1", "--yes"])?;
    lab.well("verify", &to, &[])?;
    let again = lab.well("create", &to, &[])?;
    expect(number(&again[0], "uploaded_replicas") == 0, || {
        format!("{again}")
    })?;
    passed()
}

/// Makes the claims of killed processes as old as they are after eleven minutes.
fn age_claims(dir: &Path) -> Result<()> {
    for file in objects(dir, "running")? {
        let open = std::fs::File::options().write(true).open(&file);
        let set = open
            .and_then(|f| f.set_modified(std::time::SystemTime::now() - Duration::from_secs(660)));
        set.map_err(TestkitError::file("ageing", &file))?;
    }
    Ok(())
}

/// Files below a directory whose paths have this part.
fn objects(dir: &Path, part: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut left = vec![dir.to_owned()];
    while let Some(dir) = left.pop() {
        let entries = std::fs::read_dir(&dir).map_err(TestkitError::file("listing", &dir))?;
        for entry in entries {
            let path = entry.map_err(TestkitError::file("listing", &dir))?.path();
            if path.is_dir() {
                left.push(path);
            } else if path.to_string_lossy().contains(part) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

pub fn missing_and_altered(lab: &mut Lab) -> Result<Outcome> {
    let (to, dir) = lab.directory()?;
    lab.well("create", &to, &[])?;
    let blocks = objects(&dir, "blk_")?;
    let data: Vec<&PathBuf> = blocks
        .iter()
        .filter(|path| path.extension().is_none() && path.metadata().is_ok_and(|m| m.len() > 1000))
        .collect();
    expect(data.len() >= 3, || format!("{data:?}"))?;
    let aside = dir.join("aside");
    let rename = |from: &Path, to: &Path| {
        std::fs::rename(from, to).map_err(TestkitError::file("renaming", from))
    };
    flip_byte(data[0], 700)?;
    rename(data[1], &aside)?;
    let said = lab.snapshot("verify", &to, &[])?;
    refused(&said, 1, "is missing")?;
    refused(&said, 1, "differs from its checksum")?;
    expect(number(&said.json, "broken") == 2, || format!("{said:?}"))?;
    // A restore has all but these, and says so.
    lab.lose_the_node()?;
    let said = lab.snapshot("restore", &to, &[])?;
    refused(&said, 1, "is missing")?;
    expect(number(&said.json, "broken") == 2, || format!("{said:?}"))?;
    let all = number(&said.json, "replicas");
    expect(number(&said.json, "restored_replicas") == all - 2, || {
        format!("{said:?}")
    })?;
    // Put right again, the rest comes, to a node that has registered meanwhile.
    lab.cluster.start_node(0)?;
    lab.cluster.node(0).stop()?;
    flip_byte(data[0], 700)?;
    rename(&aside, data[1])?;
    let said = lab.snapshot("restore", &to, &[])?;
    expect(number(&said.json, "restored_replicas") == 2, || {
        format!("{said:?}")
    })?;
    lab.read_all_back()?;
    let manifest = objects(&dir, "manifests")?.remove(0);
    flip_byte(&manifest, 30)?;
    refused(&lab.snapshot("verify", &to, &[])?, 1, "cannot be used")?;
    refused(&lab.snapshot("list", &to, &[])?, 1, "cannot be used")?;
    passed()
}

pub fn credentials_that_end(lab: &mut Lab) -> Result<Outcome> {
    let program = match s3_server::program() {
        Ok(program) => program,
        Err(why) => return Ok(Outcome::Skipped(why)),
    };
    let to = lab.prefix();
    // So many requests of the snapshot are answered: the claim is there, and some objects.
    let ending = S3Server::start(&program, lab.cluster.dir(), Some(12))?;
    let said = lab.snapshot_on(&ending, "create", &to)?;
    refused(&said, 2, "give credentials that are valid now")?;
    refused(&lab.snapshot_on(&ending, "list", &to)?, 2, "credentials")?;
    passed()
}

pub fn a_server_that_is_gone(lab: &mut Lab) -> Result<Outcome> {
    let program = match s3_server::program() {
        Ok(program) => program,
        Err(why) => return Ok(Outcome::Skipped(why)),
    };
    let to = lab.prefix();
    let mut gone = S3Server::start(&program, lab.cluster.dir(), None)?;
    let unknown = to.replace(s3_server::BUCKET, "not-made");
    refused(
        &lab.snapshot_on(&gone, "create", &unknown)?,
        2,
        "check --to",
    )?;
    gone.kill()?;
    let said = lab.snapshot_on(&gone, "create", &to)?;
    refused(&said, 2, "when the store answers")?;
    passed()
}

pub fn a_full_bucket(lab: &mut Lab) -> Result<Outcome> {
    let at = lab.cluster.dir().join("full");
    let full = TestMount::tmpfs(&at, 20)?;
    let to = format!("file://{}", full.path().display());
    let said = lab.snapshot("create", &to, &[])?;
    refused(&said, 2, "make room in the store")?;
    expect(lab.manifests(&to)? == 0, || {
        "a snapshot in spite of that".into()
    })?;
    passed()
}
