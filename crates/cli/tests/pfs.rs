//! `hayloft pfs` becomes Hadoop's command, with the jar on its class path.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

fn hayloft(home: Option<&Path>, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hayloft"));
    command
        .arg("pfs")
        .args(arguments)
        .env("PATH", "/usr/bin:/bin");
    command
        .env_remove("HADOOP_HOME")
        .env("HADOOP_CLASSPATH", "/more.jar");
    if let Some(home) = home {
        command.env("HADOOP_HOME", home);
    }
    command.output().expect("runs")
}

#[test]
fn hadoop_gets_the_words_and_the_jar() {
    let dir = tempfile::tempdir().expect("a directory");
    let bin = dir.path().join("bin");
    std::fs::create_dir(&bin).expect("creates");
    let script = "#!/bin/sh\necho \"$@\"\necho \"$HADOOP_CLASSPATH\"\nexit 1\n";
    let hadoop = bin.join("hadoop");
    std::fs::write(&hadoop, script).expect("writes");
    std::fs::set_permissions(&hadoop, std::fs::Permissions::from_mode(0o755)).expect("changes");
    let jar = dir.path().join("a.jar");
    std::fs::write(&jar, "").expect("writes");
    let jar = jar.to_str().expect("text");
    let ran = hayloft(
        Some(dir.path()),
        &[
            "fsck",
            "pfs:///a b",
            "--json",
            "--read",
            "--conf",
            "/etc/h",
            "--jar",
            jar,
        ],
    );
    let said = String::from_utf8_lossy(&ran.stdout);
    let expected = format!(
        "--config /etc/h io.hayloft.pfs.Tool fsck pfs:///a b --json --read\n{jar}:/more.jar\n"
    );
    assert_eq!(
        (said.as_ref(), ran.status.code()),
        (expected.as_str(), Some(1))
    );
}

#[test]
fn what_is_missing_is_named() {
    let dir = tempfile::tempdir().expect("a directory");
    for (home, arguments, wanted) in [
        (None, &["heal", "/"][..], "HADOOP_HOME"),
        (Some(dir.path()), &["layout", "/"], "with bin/hadoop in it"),
        (
            None,
            &["fsck", "/", "--jar", "/nowhere.jar"],
            "there is no such jar",
        ),
    ] {
        let ran = hayloft(home, arguments);
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert!(said.contains(wanted), "{said}");
        assert_eq!(ran.status.code(), Some(2));
    }
}
