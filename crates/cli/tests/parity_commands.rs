//! `hayloft parity` on directories that a node has left something in.

use std::path::Path;
use std::process::{Command, Output};
use std::time::{SystemTime, UNIX_EPOCH};

use hayloft_protection::{LackingParityGroup, ParityStatus, VolumeParity};
use serde_json::Value;

fn parity(args: &[&str], conf: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hayloft"))
        .arg("parity")
        .args(args)
        .arg("--conf")
        .arg(conf)
        .output()
        .expect("the binary runs")
}

/// A configuration with two data directories, and parity if it is given.
fn conf(parity: Option<&str>) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (one, two) = (dir.path().join("one"), dir.path().join("two"));
    let parity = parity.map_or(String::new(), |shape| {
        format!("<property><name>hayloft.parity</name><value>{shape}</value></property>")
    });
    let text = format!(
        "<configuration><property><name>dfs.datanode.data.dir</name><value>{},{}</value>\
            </property>{parity}</configuration>",
        one.display(),
        two.display()
    );
    std::fs::write(dir.path().join("hdfs-site.xml"), text).expect("written");
    dir
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn leave(dir: &Path, status: &ParityStatus) {
    let dir = dir.join("hayloft-parity");
    std::fs::create_dir_all(&dir).expect("made");
    let text = serde_json::to_string(status).expect("JSON");
    std::fs::write(dir.join("status.json"), text).expect("written");
}

#[test]
fn without_parity_or_a_node_it_says_what_to_do() {
    let output = parity(&["status"], conf(None).path());
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("hayloft.parity"), "{output:?}");
    let dir = conf(Some("6+1"));
    let output = parity(&["status"], dir.path());
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("start the node"), "{output:?}");
    // What it said long ago: no node is there to do anything.
    leave(&dir.path().join("two"), &ParityStatus::default());
    for order in ["scrub", "rebuild"] {
        let output = parity(&[order], dir.path());
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(said(&output).contains("no node runs"), "{output:?}");
    }
}

#[test]
fn a_disk_that_gives_no_answer_is_left_out() {
    let dir = conf(Some("6+1"));
    // A reader of a pipe waits until a writer comes, as one of a hung disk does.
    let hung = dir.path().join("one/hayloft-parity");
    std::fs::create_dir_all(&hung).expect("made");
    let pipe = hung.join("status.json");
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("runs").success());
    leave(&dir.path().join("two"), &ParityStatus::default());
    let output = parity(&["status"], dir.path());
    // Lets the reader that was left behind go.
    drop(std::fs::OpenOptions::new().write(true).open(&pipe));
    // No node says so as of now.
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(said(&output).contains("one: no answer"), "{output:?}");
}

#[test]
fn the_newest_status_counts_and_a_finding_shows() {
    let dir = conf(Some("6+1"));
    let old = ParityStatus {
        at_ms: 5,
        lost_bytes: 1,
        ..ParityStatus::default()
    };
    let now = ParityStatus {
        at_ms: 6,
        shape: "6+1".to_owned(),
        protected_bytes: 3 << 20,
        unprotected_bytes: 5,
        ..ParityStatus::default()
    };
    leave(&dir.path().join("one"), &old);
    leave(&dir.path().join("two"), &now);
    let output = parity(&["status", "--json"], dir.path());
    assert_eq!(output.status.code(), Some(1), "it is old: {output:?}");
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    for (field, bytes) in [
        ("protected_bytes", 3 << 20),
        ("unprotected_bytes", 5),
        ("degraded_bytes", 0),
        ("lost_bytes", 0),
        ("rebuild_remaining_bytes", 0),
    ] {
        assert_eq!(json[field], bytes, "{field}");
    }
    let degraded = ParityStatus {
        at_ms: 7,
        degraded_bytes: 9,
        rebuild_remaining_bytes: 7,
        rebuilt_bytes: 5,
        rebuild_seconds_left: Some(42),
        lacking_groups: 1,
        groups_that_lack_units: vec![LackingParityGroup {
            group: "abc".to_owned(),
            lacks: 1,
            ..LackingParityGroup::default()
        }],
        volumes: vec![VolumeParity {
            directory: "/data/1".to_owned(),
            ..VolumeParity::default()
        }],
        ..now
    };
    leave(&dir.path().join("one"), &degraded);
    let output = parity(&["status"], dir.path());
    assert_eq!(output.status.code(), Some(1), "a finding");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains("protected") && text.contains("3 MiB"),
        "{text}"
    );
    for said in ["42 s left", "/data/1 (gone)", "abc lacks 1"] {
        assert!(text.contains(said), "{said} in {text}");
    }
}

/// A running node wrote its numbers a moment ago, and hangs since.
#[test]
fn a_node_that_gives_no_answer_is_a_finding() {
    let dir = conf(Some("6+1"));
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let ms = now.expect("after 1970").as_millis();
    let well = ParityStatus {
        at_ms: u64::try_from(ms).expect("small"),
        ..ParityStatus::default()
    };
    leave(&dir.path().join("one"), &well);
    let output = parity(&["status"], dir.path());
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = said(&output);
    assert!(
        text.contains("the node gave no answer within 10 s"),
        "{text}"
    );
}
