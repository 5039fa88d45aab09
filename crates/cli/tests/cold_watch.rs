//! `hayloft cold watch` where no NameNode answers: it waits, says so once, and ends when told to.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const CORE_SITE: &str = "<configuration><property><name>fs.defaultFS</name>\
    <value>hdfs://127.0.0.1:1</value></property></configuration>";
/// Longest that anything here takes.
const LIMIT: Duration = Duration::from_secs(60);

/// A watch under way, killed when the test fails.
struct Watch(Option<Child>);

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn command(dir: &Path, words: &[&str]) -> Command {
    fs::write(dir.join("core-site.xml"), CORE_SITE).expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_hayloft"));
    command.args(["cold", "watch", "/data", "--older-than=180d"]);
    command.arg("--conf").arg(dir);
    command.arg("--state").arg(dir.join("state")).args(words);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn started(dir: &Path, words: &[&str]) -> Watch {
    Watch(Some(command(dir, words).spawn().expect("the binary runs")))
}

fn ended(mut watch: Watch) -> Output {
    let child = watch.0.take().expect("a process");
    let id = child.id().to_string();
    let sent = Command::new("kill").args(["-TERM", &id]).status();
    assert!(sent.expect("kill runs").success());
    child.wait_with_output().expect("it ends")
}

fn wait_for(what: &str, is: impl Fn() -> bool) {
    let start = Instant::now();
    while !is() {
        assert!(start.elapsed() < LIMIT, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_watch_waits_for_its_namenode_and_ends_when_told_to() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let status = dir.path().join("state/status.json");
    let watch = started(dir.path(), &[]);
    wait_for("the status", || status.exists());
    let second = command(dir.path(), &["--once"]).output().expect("it runs");
    assert_eq!(second.status.code(), Some(2), "{second:?}");
    assert!(told(&second).contains("another watch"), "{second:?}");
    let mut asked = Command::new(env!("CARGO_BIN_EXE_hayloft"));
    asked.args(["cold", "watch", "--status", "--state"]);
    let asked = asked.arg(dir.path().join("state")).output();
    let asked = asked.expect("it runs");
    assert_eq!(asked.status.code(), Some(1), "{asked:?}");
    let text = String::from_utf8_lossy(&asked.stdout).into_owned();
    for part in [
        "no pass has ended",
        "next pass in",
        "the last attempt failed",
    ] {
        assert!(text.contains(part), "{part}: {asked:?}");
    }
    assert!(!text.contains("no watch runs"), "{asked:?}");
    let output = ended(watch);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let waits = told(&output).matches("waits and tries again").count();
    assert_eq!(waits, 1, "{output:?}");
    // The lock went with it.
    let once = command(dir.path(), &["--once"]).output().expect("it runs");
    assert_eq!(once.status.code(), Some(2), "{once:?}");
    assert!(
        told(&once).contains("check that the NameNode runs"),
        "{once:?}"
    );
}

#[test]
fn a_watch_ends_in_the_middle_of_a_pass() {
    // One pass that was asked for and not made is a finding.
    for (words, code) in [(&[][..], 0), (&["--once"][..], 1)] {
        let dir = tempfile::tempdir().expect("temporary directory");
        let watch = started(dir.path(), words);
        let lock = dir.path().join("state/lock");
        wait_for("the lock", || lock.exists());
        // The handlers of signals are there a little later.
        std::thread::sleep(Duration::from_millis(500));
        let start = Instant::now();
        let output = ended(watch);
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        assert!(start.elapsed() < LIMIT / 2);
    }
}

#[test]
fn a_state_that_cannot_be_used_ends_the_watch() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let state = dir.path().join("state");
    fs::create_dir(&state).expect("made");
    let later = "{\"format\":\"hayloft cold watch\",\"version\":9,\"bytes\":0,\"crc32\":0}\n";
    for (text, todo) in [("x", "move it away"), (later, "version of Hayloft")] {
        fs::write(state.join("state"), text).expect("written");
        let output = command(dir.path(), &[]).output().expect("it runs");
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(told(&output).contains(todo), "{output:?}");
    }
}

#[test]
fn a_watch_that_has_said_nothing_has_no_status() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut command = Command::new(env!("CARGO_BIN_EXE_hayloft"));
    let command = command.args(["cold", "watch", "--status", "--state"]);
    let output = command.arg(dir.path()).output().expect("it runs");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(
        told(&output).contains("no watch has said anything"),
        "{output:?}"
    );
}
