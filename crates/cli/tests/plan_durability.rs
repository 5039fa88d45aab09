//! `hayloft plan durability` as a process: what it prints and what it refuses.

use std::process::{Command, Output};

use serde_json::Value;

fn plan(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hayloft"));
    command.args(["plan", "durability"]).args(args);
    command.output().expect("runs")
}

fn text(args: &[&str]) -> String {
    let output = plan(args);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {said}");
    String::from_utf8(output.stdout).expect("text")
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&text(&[args, &["--json"]].concat())).expect("JSON")
}

#[test]
fn the_table_and_its_verdict() {
    let said = text(&[]);
    assert!(
        said.contains("100 nodes of 12 disks in 5 failure domains"),
        "{said}"
    );
    assert!(said.contains("and do not do for three in all"), "{said}");
    let rows = said
        .lines()
        .filter(|line| line.contains("not told") && line.contains("  "));
    assert!(rows.count() >= 4, "{said}");
    assert!(!said.contains("against the simulation"), "{said}");
}

#[test]
fn figures_as_json_with_the_simulation_beside_them() {
    let plan = json(&["--keep=2", "--simulate", "--seed=3", "--years=160"]);
    assert_eq!(plan["rows"].as_array().map(Vec::len), Some(2));
    assert_eq!(
        (&plan["rows"][0]["keeping"], &plan["rows"][0]["apart"]),
        (&"2".into(), &true.into())
    );
    let share = plan["rows"][0]["lost_share"].as_f64().expect("a share");
    assert!(share > 0.0 && share < 1e-3, "{share}");
    assert_eq!(
        (&plan["checked"][0]["seed"], &plan["checked"][0]["years"]),
        (&3.into(), &160.0.into())
    );
    assert!(plan["checked"][0]["blocks"][1].as_f64().expect("counted") > 0.0);
    let none = json(&[
        "--keep=3",
        "--disk-afr=0",
        "--host-loss=0",
        "--domain-loss=0",
        "--latent=0",
        "--outages=0",
    ]);
    assert_eq!(none["rows"][0]["lost_share"], 0.0);
    assert_eq!(none["rows"][0]["nines"], Value::Null);
}

#[test]
fn what_cannot_be_planned_is_refused_in_a_sentence() {
    for (args, what) in [
        (&["--nodes=0"][..], "--nodes"),
        (&["--disk-afr=-1"], "must be a number from 0 to 99"),
        (&["--capacity=0"], "--capacity"),
        (&["--capacity=NaN"], "must be a number"),
        (&["--keep=7"], "1 to 6 replicas"),
        (&["--keep=0"], "1 to 6 replicas"),
        (&["--keep=2x6"], "not K+M"),
        (&["--keep=2x0+1"], "cannot be"),
        (&["--keep=2x12+1"], "needs 13 disks"),
        (
            &["--keep=3", "--domains=2"],
            "cannot lie in different domains",
        ),
        (&["--nodes=3", "--domains=4"], "need as many nodes"),
        (
            &["--block=1048576", "--capacity=0.001"],
            "less than one block",
        ),
        (
            &["--rebuild-share=0.001", "--nodes=20000"],
            "raise --rebuild-share",
        ),
        (&["--seed=2"], "--simulate"),
    ] {
        let output = plan(args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains(what), "{args:?}: {said}");
    }
}
