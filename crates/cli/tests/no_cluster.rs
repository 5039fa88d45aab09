//! Commands on a small cluster of this machine where there is none, or no Hadoop for it.

use std::path::Path;
use std::process::{Command, Output};

fn hayloft(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hayloft"));
    command.args(args).output().expect("the binary runs")
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn commands_on_a_cluster_that_is_not_there_say_what_to_do() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let state = dir.path().join("state").display().to_string();
    for command in ["down", "status", "fs"] {
        let output = hayloft(&[command, "--state", &state]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(told(&output).contains("hayloft up"), "{output:?}");
    }
    assert!(!Path::new(&state).exists(), "asking leaves nothing behind");
}

#[test]
fn a_cluster_without_hadoop_says_how_to_get_it() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let home = dir.path().display().to_string();
    let output = hayloft(&[
        "up",
        "--state",
        &format!("{home}/s"),
        "--hadoop-home",
        &home,
    ]);
    assert_eq!(output.status.code(), Some(2));
    assert!(told(&output).contains("scripts/fetch-hadoop"), "{output:?}");
}
