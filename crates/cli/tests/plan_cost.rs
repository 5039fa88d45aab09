//! `hayloft plan cost` as a process: what it prints and what it refuses.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn hayloft(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hayloft"));
    command.args(args).output().expect("runs")
}

fn text(args: &[&str]) -> String {
    let output = hayloft(args);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {said}");
    String::from_utf8(output.stdout).expect("text")
}

/// The example as a file in `dir`, with `from` replaced.
fn example(dir: &Path, from: &str, to: &str) -> String {
    let text = text(&["plan", "cost", "--example"]);
    assert!(text.contains(from), "{from}");
    let path = dir.join("prices.toml");
    std::fs::write(&path, text.replacen(from, to, 1)).expect("written");
    path.display().to_string()
}

#[test]
fn the_example_has_the_prices_of_the_paper() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = example(dir.path(), "", "");
    let said = text(&["plan", "cost", "--prices", &path]);
    assert!(
        said.contains("local disks cost 29 % less than network disks"),
        "{said}"
    );
    let rows = text(&["plan", "cost", "--prices", &path, "--json"]);
    let rows: Value = serde_json::from_str(&rows).expect("JSON");
    let a_host = |row: usize| rows[row]["price_hour"].as_f64().map(|price| price / 4.0);
    let cents = |row: usize| a_host(row).map(|price| (price * 1e6).round() / 1e6);
    assert_eq!((cents(0), cents(1)), (Some(0.24), Some(0.34)), "{rows}");
    assert_eq!(rows[2]["keep"], "2x6+1");
    assert_eq!(rows[2]["compute_hosts"], 4);
}

/// The commands that it names for the prices in this file.
fn commands(path: &str) -> Vec<String> {
    let said = text(&["plan", "cost", "--prices", path]);
    let lines = said.lines();
    let named = lines.filter_map(|line| line.strip_prefix("  hayloft "));
    named.map(str::to_owned).collect()
}

#[test]
fn the_commands_that_it_names_are_of_these_hosts_and_can_be_given() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = example(dir.path(), "usable_tb = 0", "usable_tb = 40");
    let commands = commands(&path);
    let rates = [
        "--disk-rate 60",
        "--disk-rate 30 --link 0.64",
        "--disk-rate 100 --link 8",
    ];
    assert_eq!(commands.len(), rates.len(), "{commands:?}");
    for (command, rates) in commands.iter().zip(rates) {
        assert!(command.ends_with(rates), "{command}");
        let words: Vec<&str> = command.split(' ').collect();
        assert!(text(&words).contains("nines"), "{command}");
    }
}

#[test]
fn commands_that_would_be_refused_are_not_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = example(dir.path(), "disk_gib = 1862", "disk_gib = 1000000");
    let large = std::fs::read_to_string(&path).expect("written");
    let small = large
        .replace("disk_gib = 93 ", "disk_gib = 1 ")
        .replace("fill_percent = 100 ", "fill_percent = 10 ");
    std::fs::write(&path, small).expect("written");
    // The disks of [network] hold less than a block then, those of [super] more than 1000 TB.
    let commands = commands(&path);
    assert_eq!(commands.len(), 1, "{commands:?}");
    assert!(commands[0].contains("--capacity 0.425"), "{commands:?}");
}

#[test]
fn what_cannot_be_read_is_refused_with_place_and_advice() {
    let dir = tempfile::tempdir().expect("a directory");
    let refused = |path: &str| {
        let output = hayloft(&["plan", "cost", "--prices", path]);
        assert_eq!(output.status.code(), Some(2), "{path}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            said.contains("'hayloft plan cost --example' prints"),
            "{said}"
        );
        said
    };
    let missing = dir.path().join("none").display().to_string();
    assert!(refused(&missing).contains("there is no such file"));
    let folder = dir.path().display().to_string();
    assert!(refused(&folder).contains("it is not a file"));
    for wrong in ["-0.5", "nan"] {
        let path = example(
            dir.path(),
            "price_hour = 4.60",
            &format!("price_hour = {wrong}"),
        );
        let said = refused(&path);
        assert!(
            said.contains("line 5") && said.contains("write a number from 0"),
            "{said}"
        );
    }
    assert_eq!(hayloft(&["plan", "cost"]).status.code(), Some(2));
}
