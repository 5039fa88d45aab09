//! `hayloft plan super` as a process: what it prints, draws, refuses.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

fn plan(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hayloft"));
    command.args(["plan", "super"]).args(args);
    command.output().expect("runs")
}

fn planned(args: &[&str]) -> Value {
    let output = plan(&[args, &["--json"]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// A calibration as `hayloft calibrate` writes it, of a disk with one rate.
fn calibrate(file: &Path, device: &str, read_mb_s: u32, write_mb_s: u32) {
    let rate = |mb: u32| f64::from(mb) * 1e6;
    let run = |bytes: u64| {
        json!({"run_bytes": bytes, "read_bytes_s": rate(read_mb_s),
            "write_bytes_s": rate(write_mb_s)})
    };
    let text = json!({
        "version": 1, "measured_at_s": 1_700_000_000, "device": device, "file_system": "ext4",
        "file_system_bytes": 1_u64 << 40, "media": "rotating", "quantum_bytes": 32 << 20,
        "depth": 4, "engine": "posix", "reason": "a test", "depths": [], "mixes": [],
        "engines": [], "runs": [run(4 << 20), run(64 << 20)],
    });
    std::fs::write(file, text.to_string()).expect("written");
}

#[test]
fn the_numbers_of_the_paper() {
    let plan = planned(&[
        "--disk-rate=50",
        "--links=1Gb",
        "--links=4x1Gb",
        "--links=10Gb",
    ]);
    let column = |name: &str| -> Vec<Value> {
        let rows = plan["links"].as_array().expect("rows");
        rows.iter().map(|row| row[name].clone()).collect()
    };
    assert_eq!(column("disks_per_link"), [2, 2, 20]);
    assert_eq!(column("disks"), [2, 8, 20]);
    assert_eq!(
        column("links_bytes_s"),
        [100_000_000, 400_000_000, 1_000_000_000]
    );
    assert_eq!(column("workers")[2], json!([10, 20]));
    assert_eq!(plan["disks"], 48);
    assert_eq!(column("bound_by"), ["links", "links", "links"]);
    assert_eq!(column("links_for_all_disks"), [24, 24, 3]);
}

#[test]
fn calibrated_disks_are_read_from_volumes_and_from_copies() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let volume = dir.path().join("volume");
    std::fs::create_dir(&volume).expect("created");
    calibrate(&volume.join(".hayloft-calibration.json"), "sda", 120, 60);
    let copy = dir.path().join("other.json");
    calibrate(&copy, "sdb", 40, 40);
    let svg = dir.path().join("plan.svg");
    let [volume, copy, svg] = [&volume, &copy, &svg].map(|path| path.to_str().expect("UTF-8"));
    let svg_arg = format!("--svg={svg}");
    let output = plan(&[volume, copy, "--links=2x1Gb", &svg_arg]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    // 80 and 40 MB/s: two disks of 60.
    assert!(
        text.contains("2 disks of 60 MB/s, together 120 MB/s"),
        "{text}"
    );
    let row: Vec<&str> = text
        .lines()
        .find(|line| line.starts_with("2x1Gb"))
        .expect("the row")
        .split_whitespace()
        .collect();
    assert_eq!(
        row,
        ["2x1Gb", "200", "1", "2", "3", "1-2", "120", "disks"],
        "{text}"
    );
    let drawn = std::fs::read_to_string(svg).expect("drawn");
    assert!(drawn.contains("<svg") && drawn.contains("2x1Gb"), "{drawn}");
    let plan = planned(&[volume, copy, "--reads=100", "--disks=10"]);
    assert_eq!(
        (&plan["disks"], &plan["disk_bytes_s"]),
        (&json!(10), &json!(80_000_000))
    );
    assert_eq!(plan["calibrated"][1]["device"], "sdb");
}

#[test]
fn what_cannot_be_planned_is_refused_with_advice() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let empty = dir.path().to_str().expect("UTF-8");
    let broken = dir.path().join("broken.json");
    std::fs::write(&broken, "{").expect("written");
    let broken = broken.to_str().expect("UTF-8");
    for (args, what) in [
        (&[][..], "DIR|FILE"),
        (&[empty], "hayloft calibrate"),
        (&[broken], "not usable"),
        (&[empty, "--disk-rate=50"], "cannot be used with"),
        (&["--disk-rate=0"], "--disk-rate"),
        (&["--disk-rate=50", "--links=10"], "10Gb"),
        (&["--disk-rate=50", "--disks-per-worker=2-1"], "1-2"),
        (&["--disk-rate=50", "--svg=/none/such.svg"], "cannot draw"),
    ] {
        let output = plan(args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains(what), "{args:?}: {said}");
    }
}
