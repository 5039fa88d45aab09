//! Every command ends quietly when its output has no reader, as any filter does.

use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use hayloft_protection::ParityStatus;

/// What shells make of a filter that SIGPIPE ended.
const CLOSED: i32 = 141;

/// A pipe without a reader.
fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    writer.into()
}

fn hayloft(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hayloft"));
    for name in [
        "HADOOP_CONF_DIR",
        "HADOOP_HOME",
        "HAYLOFT_STATE",
        "HAYLOFT_LOG",
    ] {
        command.env_remove(name);
    }
    command.args(args).stdin(Stdio::null());
    command
}

/// Runs a command whose standard output has no reader; what it said, and how it ended.
fn unread(args: &[&str], dir: &Path) -> (ExitStatus, String) {
    let mut command = hayloft(args);
    let done = command.current_dir(dir).stdout(closed()).output();
    let done = done.expect("the binary runs");
    (
        done.status,
        String::from_utf8_lossy(&done.stderr).into_owned(),
    )
}

/// The same with both outputs unread.
fn all_unread(args: &[&str], dir: &Path) -> ExitStatus {
    let mut command = hayloft(args);
    command.current_dir(dir).stdout(closed()).stderr(closed());
    command.status().expect("the binary runs")
}

fn expect_quiet(args: &[&str], dir: &Path, codes: &[i32]) {
    let (status, said) = unread(args, dir);
    let code = status.code();
    assert!(
        code.is_some_and(|code| codes.contains(&code)),
        "{args:?}: {status}, {said}"
    );
    for word in ["panicked", "Broken pipe", "os error 32"] {
        assert!(!said.contains(word), "{args:?}: {said}");
    }
    let status = all_unread(args, dir);
    assert!(
        status.code().is_some_and(|code| codes.contains(&code)),
        "{args:?}: {status}"
    );
}

/// The subcommands that `--help` names, below `path`.
fn subcommands(path: &[String]) -> Vec<Vec<String>> {
    let mut args: Vec<&str> = path.iter().map(String::as_str).collect();
    args.push("--help");
    let help = hayloft(&args).output().expect("the binary runs").stdout;
    let help = String::from_utf8_lossy(&help).into_owned();
    let Some((_, listed)) = help.split_once("\nCommands:\n") else {
        return Vec::new();
    };
    let lines = listed.lines().take_while(|line| !line.is_empty());
    // Names stand two spaces in; what is told of them goes on further right.
    let names = lines.filter_map(|line| line.strip_prefix("  ").filter(|l| !l.starts_with(' ')));
    let names = names.filter_map(|line| line.split_whitespace().next());
    let below = names.filter(|name| *name != "help");
    below
        .map(|name| [path, &[name.to_owned()]].concat())
        .collect()
}

#[test]
fn the_help_of_each_command_may_stay_unread() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut waiting = vec![Vec::new()];
    let mut seen = 0;
    while let Some(path) = waiting.pop() {
        waiting.extend(subcommands(&path));
        let mut args: Vec<&str> = path.iter().map(String::as_str).collect();
        args.push("--help");
        expect_quiet(&args, dir.path(), &[0, CLOSED]);
        // Without what it needs, or what it needs is not there: said on standard error.
        args.pop();
        args.push("--no-such-option");
        expect_quiet(&args, dir.path(), &[2]);
        seen += 1;
    }
    assert!(seen > 20, "{seen} commands");
    expect_quiet(&["--version"], dir.path(), &[0, CLOSED]);
}

/// A configuration of two virtual nodes with parity, whose node has said something of it.
fn conf(dir: &Path) {
    let property = |name: &str, value: &str| {
        format!("<property><name>{name}</name><value>{value}</value></property>")
    };
    let data = dir.join("data");
    let text = [
        property("fs.defaultFS", "hdfs://127.0.0.1:1"),
        property("dfs.datanode.data.dir", &data.display().to_string()),
        property("hayloft.parity", "2+1"),
        property("dfs.datanode.hostname", "here"),
    ];
    let text = format!("<configuration>{}</configuration>", text.join("\n"));
    std::fs::write(dir.join("hdfs-site.xml"), text).expect("written");
    std::fs::create_dir_all(data.join("hayloft-parity")).expect("made");
    let status = serde_json::to_string(&ParityStatus::default()).expect("JSON");
    std::fs::write(data.join("hayloft-parity/status.json"), status).expect("written");
}

#[test]
fn what_commands_report_may_stay_unread() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = dir.path();
    conf(at);
    let more = at.join("virtual");
    std::fs::create_dir(&more).expect("made");
    let nodes = "<configuration><property><name>hayloft.nodes</name><value>a,b</value></property>\
        <property><name>dfs.datanode.hostname</name><value>here</value></property>\
        <property><name>dfs.datanode.data.dir</name><value>/x</value></property></configuration>";
    std::fs::write(more.join("hdfs-site.xml"), nodes).expect("written");
    for args in [
        &["node", "--print-config", "--conf", "."][..],
        &["node", "--print-config", "--json", "--conf", "."],
        &["node", "--print-config", "--markdown"],
        &["node", "--check-swap", "--conf", "."],
        &["parity", "status", "--conf", "."],
        &["parity", "status", "--json", "--conf", "."],
        &["engine", "list"],
        &["engine", "list", "--json"],
        &["engine", "list", "--markdown"],
        &["super", "topology", "--conf", "virtual"],
        &["super", "topology", "--conf", "virtual", "--json"],
        &["topology", "suits"],
        &["topology", "suits", "--json"],
        &["plan", "super", "--disk-rate", "200", "--disks", "12"],
        &[
            "calibrate",
            ".",
            "--seconds",
            "1",
            "--space",
            "64MiB",
            "--dry-run",
        ],
        &["status", "--state", "none"],
        &["status", "--state", "none", "--json"],
    ] {
        // A command that would have found something, or lacks something, says so with its code.
        expect_quiet(args, at, &[CLOSED, 1, 2]);
    }
    // Some of them print for certain, and so end as a filter does.
    for args in [
        &["node", "--print-config", "--conf", "."][..],
        &["parity", "status", "--conf", "."],
        &["engine", "list"],
        &["super", "topology", "--conf", "virtual"],
    ] {
        assert_eq!(unread(args, at).0.code(), Some(CLOSED), "{args:?}");
        assert_eq!(all_unread(args, at).code(), Some(CLOSED), "{args:?}");
    }
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_node_goes_on_when_its_log_has_no_reader() {
    let dir = tempfile::tempdir().expect("a directory");
    conf(dir.path());
    let mut command = hayloft(&["node", "--conf", ".", "-D", "hayloft.parity="]);
    for port in [
        "dfs.datanode.address",
        "dfs.datanode.ipc.address",
        "dfs.datanode.http.address",
    ] {
        command.args(["-D", &format!("{port}=127.0.0.1:0")]);
    }
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    command
        .current_dir(dir.path())
        .stdout(closed())
        .stderr(writer);
    let mut node = Killed(command.spawn().expect("the binary runs"));
    drop(command);
    // The reader leaves after the first lines, as `head` does. There are more: no NameNode answers.
    let mut some = [0; 10];
    reader.read_exact(&mut some).expect("a line");
    drop(reader);
    let until = Instant::now() + Duration::from_secs(8);
    while Instant::now() < until {
        let ended = node.0.try_wait().expect("ours");
        assert!(ended.is_none(), "{ended:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
    let pid = rustix::process::Pid::from_child(&node.0);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("signalled");
    let ended = node.0.wait().expect("ours");
    assert_eq!(ended.code(), Some(0), "{ended}");
}
