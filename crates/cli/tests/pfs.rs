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
        .env_remove("HADOOP_CONF_DIR")
        .env("HAYLOFT_HADOOP_DIR", "/nowhere")
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

/// A program that says what it is started with.
fn echo(at: &Path) {
    std::fs::create_dir_all(at.parent().expect("below")).expect("creates");
    std::fs::write(at, "#!/bin/sh\nfor word; do echo \"$word\"; done\n").expect("writes");
    std::fs::set_permissions(at, std::fs::Permissions::from_mode(0o755)).expect("changes");
}

#[test]
fn without_a_command_it_takes_the_jars_that_were_fetched() {
    let dir = tempfile::tempdir().expect("a directory");
    let (fetched, java) = (dir.path().join("fetched"), dir.path().join("jdk"));
    std::fs::create_dir_all(fetched.join("lib")).expect("creates");
    for jar in ["hadoop-hdfs-3.5.0.jar", "hadoop-common-3.5.0.jar"] {
        std::fs::write(fetched.join("lib").join(jar), "").expect("writes");
    }
    echo(&java.join("bin/java"));
    let jar = dir.path().join("a.jar");
    std::fs::write(&jar, "").expect("writes");
    let run = |path: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hayloft"));
        command.args([
            "pfs",
            "layout",
            "pfs:///data",
            "--json",
            "--conf",
            "/etc/h",
            "--jar",
        ]);
        command.arg(&jar).env_remove("HADOOP_HOME");
        command
            .env("HAYLOFT_HADOOP_DIR", &fetched)
            .env("JAVA_HOME", &java);
        command
            .env("PATH", path)
            .env("HADOOP_CLASSPATH", "/more.jar");
        let ran = command.output().expect("runs");
        String::from_utf8_lossy(&ran.stdout).into_owned()
    };
    let said = run(Path::new("/nowhere"));
    let words: Vec<&str> = said.lines().collect();
    let at = words
        .iter()
        .position(|word| *word == "-cp")
        .expect("a class path");
    let path: Vec<&str> = words[at + 1].split(':').collect();
    assert_eq!(path[0], "/etc/h", "{said}");
    let jar = jar.to_str().expect("text");
    for part in [jar, "/more.jar"] {
        assert!(path.contains(&part), "{part}: {said}");
    }
    let common = path
        .iter()
        .any(|part| part.ends_with("lib/hadoop-common-3.5.0.jar"));
    assert!(common, "{said}");
    let expected = ["io.hayloft.pfs.Tool", "layout", "pfs:///data", "--json"];
    assert_eq!(&words[at + 2..], expected);
    // A command in PATH has Hadoop's own settings, and goes first.
    let bin = dir.path().join("bin");
    echo(&bin.join("hadoop"));
    let said = run(&bin);
    assert!(
        said.starts_with("--config\n/etc/h\nio.hayloft.pfs.Tool\n"),
        "{said}"
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
