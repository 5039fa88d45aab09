//! `hayloft up` and `down` with real processes: a stock NameNode, nodes, stock clients.
//!
//! Nodes are Hayloft's, or Apache's with `HAYLOFT_LAB_PEER=apache`.

use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use hayloft_testkit::ports;
use serde_json::Value;

struct Cluster {
    state: PathBuf,
    kind: &'static str,
    _dir: tempfile::TempDir,
}

impl Cluster {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let apache = std::env::var("HAYLOFT_LAB_PEER").is_ok_and(|peer| peer == "apache");
        let kind = if apache { "apache" } else { "hayloft" };
        Self {
            state: dir.path().join("state"),
            kind,
            _dir: dir,
        }
    }

    fn hayloft(&self, command: &str, args: &[&str]) -> Output {
        self.hayloft_with(command, args, None)
    }

    /// As [`Self::hayloft`], with an installed Hadoop in `HADOOP_HOME`.
    fn hayloft_with(&self, command: &str, args: &[&str], home: Option<&Path>) -> Output {
        let built = || PathBuf::from(env!("CARGO_BIN_EXE_hayloft"));
        let binary = std::env::var_os("HAYLOFT_BIN").map_or_else(built, PathBuf::from);
        let mut program = Command::new(binary);
        program
            .arg(command)
            .arg("--state")
            .arg(&self.state)
            .args(args);
        if let Some(home) = home {
            program.env("HADOOP_HOME", home);
        }
        program.output().expect("the binary runs")
    }

    fn up(&self, more: &[&str]) -> Value {
        let output = self.hayloft("up", &[&["--json", "--kind", self.kind], more].concat());
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        serde_json::from_slice(&output.stdout).expect("stdout is JSON and nothing else")
    }

    /// Kills a process by its place in the state file.
    fn kill(&self, role: &str) {
        let pid = self.state_file().pointer(role).expect("recorded")["process"]["pid"].to_string();
        let killed = Command::new("kill").args(["-KILL", &pid]).status();
        assert!(killed.expect("kill runs").success());
    }

    fn state_file(&self) -> Value {
        let text = std::fs::read(self.state.join("cluster.json")).expect("there");
        serde_json::from_slice(&text).expect("JSON")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.hayloft("down", &[]);
    }
}

fn source(dir: &Path) -> PathBuf {
    let root = dir.join("things to copy");
    std::fs::create_dir_all(root.join("sub/empty")).expect("created");
    let mut bytes: Vec<u8> = (0..3_000_001_u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 13).to_le_bytes()[0])
        .collect();
    std::fs::write(root.join("sub/data.bin"), &bytes).expect("written");
    bytes.truncate(511);
    std::fs::write(root.join("short"), &bytes).expect("written");
    std::fs::write(root.join("nothing"), b"").expect("written");
    std::fs::write(
        root.join("poem.txt"),
        "hay hay loft\nloft loft hayloft\n".repeat(1000),
    )
    .expect("written");
    root
}

#[test]
fn a_cluster_comes_up_goes_down_loses_nothing_and_survives_a_crash() {
    let cluster = Cluster::new();
    let files = tempfile::tempdir().expect("a temporary directory");
    let put = source(files.path()).display().to_string();

    let first = cluster.up(&["--put", &put]);
    assert_eq!(first["tour"]["every_byte_equal"], true);
    assert_eq!(first["tour"]["copied_in"]["files"], 4);
    assert_eq!(first["tour"]["search"]["word"], "loft");
    assert_eq!(first["tour"]["search"]["matches"], 4000);
    assert_eq!(first["cluster"]["live_nodes"], 3);

    let second = cluster.up(&[]);
    assert_eq!(second["already_running"], true);
    let secured = cluster.hayloft("up", &["--secure"]);
    let refused = String::from_utf8_lossy(&secured.stderr).into_owned();
    assert!(
        secured.status.code() == Some(2) && refused.contains("was made without --secure"),
        "{refused}"
    );
    let listed = cluster.hayloft("fs", &["-cat", "/hayloft/things to copy/poem.txt"]);
    assert!(
        listed.status.success() && listed.stdout.len() == 31_000,
        "{listed:?}"
    );
    assert!(
        !cluster.hayloft("fs", &["-cat", "/nope"]).status.success(),
        "the shell's exit code is ours"
    );
    assert!(cluster.hayloft("status", &[]).status.success());

    let down = cluster.hayloft("down", &[]);
    assert!(down.status.success(), "{down:?}");
    assert_eq!(cluster.hayloft("status", &[]).status.code(), Some(1));

    // The recorded pid now belongs to someone else: this test. It must not be harmed or trusted.
    let mut kept = cluster.state_file();
    let (boot, pid) = (
        std::fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("there"),
        std::process::id(),
    );
    kept["namenode"]["process"] =
        serde_json::json!({ "pid": pid, "start_ticks": 1, "boot": boot.trim() });
    std::fs::write(cluster.state.join("cluster.json"), kept.to_string()).expect("written");

    let again = cluster.up(&["--put", &put]);
    assert_eq!(
        again["tour"]["copied_in"],
        Value::Null,
        "the data is found, not copied again"
    );
    assert_eq!(again["tour"]["every_byte_equal"], true);

    // A node dies; `up` starts what is missing and nothing else.
    let before = cluster.state_file();
    cluster.kill("/nodes/1");
    assert_eq!(cluster.hayloft("status", &[]).status.code(), Some(1));
    let mended = cluster.up(&["--no-tour"]);
    assert_eq!(mended["already_running"], false);
    let after = cluster.state_file();
    assert_eq!(before["namenode"]["process"], after["namenode"]["process"]);
    assert_ne!(before["nodes"][1]["process"], after["nodes"][1]["process"]);
}

/// Hadoop's jars laid out as an unpacked distribution has them.
fn distribution(home: &Path) {
    let share = home.join("share/hadoop");
    for dir in ["common/lib", "hdfs", "mapreduce"] {
        std::fs::create_dir_all(share.join(dir)).expect("created");
    }
    let hadoop = hayloft_testkit::hadoop::Hadoop::locate().expect("scripts/fetch-hadoop has run");
    for jar in hadoop.jars() {
        let name = jar.file_name().and_then(|n| n.to_str()).expect("a name");
        let dir = match name {
            _ if name.starts_with("hadoop-common-") => "common",
            _ if name.starts_with("hadoop-hdfs") => "hdfs",
            _ if name.starts_with("hadoop-mapreduce") => "mapreduce",
            _ => "common/lib",
        };
        std::os::unix::fs::symlink(jar, share.join(dir).join(name)).expect("linked");
    }
}

#[test]
fn the_default_tour_runs_on_an_installed_hadoop_and_says_where_everything_answers() {
    let cluster = Cluster::new();
    let home = tempfile::tempdir().expect("a temporary directory");
    distribution(home.path());
    let up = cluster.hayloft_with("up", &["--kind", cluster.kind], Some(home.path()));
    let (out, err) = (
        String::from_utf8_lossy(&up.stdout).into_owned(),
        String::from_utf8_lossy(&up.stderr).into_owned(),
    );
    assert!(up.status.success(), "{out}\n{err}");
    for said in [
        "cluster is up: hdfs://127.0.0.1:",
        " 3 live nodes",
        "; every byte is equal",
        "MapReduce   found '",
        ", as counted here",
        "HADOOP_CONF_DIR=",
        "stop it:",
    ] {
        assert!(out.contains(said), "{said:?} is missing:\n{out}");
    }
    let copied = out
        .lines()
        .find(|l| l.starts_with("copied in"))
        .expect("said");
    let jars = home.path().join("share/hadoop/common");
    assert!(
        copied.contains(&jars.display().to_string()) && copied.contains("MB/s"),
        "{copied}"
    );
    assert!(err.contains("checksumming"), "progress is silent:\n{err}");
    let state = cluster.state_file();
    let nodes = state["nodes"].as_array().expect("nodes");
    assert_eq!(nodes.len(), 3);
    for node in nodes {
        let (data, rpc) = (&node["port"], &node["ipc_port"]);
        let http = format!("HTTP http://127.0.0.1:{}/", node["http_port"]);
        let line = format!("data 127.0.0.1:{data}  RPC 127.0.0.1:{rpc}  {http}");
        assert!(out.contains(&line), "{line:?} is missing:\n{out}");
    }
    let namenode = &state["namenode"];
    let line = format!(
        "RPC 127.0.0.1:{}  HTTP http://127.0.0.1:{}/",
        namenode["port"], namenode["http_port"]
    );
    assert!(out.contains(&line), "{line:?} is missing:\n{out}");
    let status = cluster.hayloft("status", &[]);
    let text = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(
        status.status.success() && text.contains("cluster is up"),
        "{text}"
    );
}

#[test]
fn one_process_of_virtual_nodes_comes_up_and_says_where_each_answers() {
    let cluster = Cluster::new();
    let up = || cluster.hayloft("up", &["--json", "--super", "3", "--no-tour"]);
    let first = up();
    let said = String::from_utf8_lossy(&first.stderr).into_owned();
    assert!(first.status.success(), "{said}");
    let report: Value = serde_json::from_slice(&first.stdout).expect("JSON");
    assert_eq!(report["cluster"]["live_nodes"], 3);
    let state = cluster.state_file();
    assert_eq!(state["nodes"].as_array().map(Vec::len), Some(1));
    let status = cluster.hayloft("status", &[]);
    let text = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(
        status.status.success() && text.contains("3 virtual nodes"),
        "{text}"
    );
    for node in state["nodes"][0]["virtual_nodes"]
        .as_array()
        .expect("listed")
    {
        let line = format!("data 127.0.0.1:{}", node["xfer_port"]);
        assert!(text.contains(&line), "{line:?} is missing:\n{text}");
    }
    assert!(cluster.hayloft("down", &[]).status.success());
    let other = cluster.hayloft("up", &["--super", "2", "--no-tour"]);
    let refused = String::from_utf8_lossy(&other.stderr).into_owned();
    assert!(
        other.status.code() == Some(2) && refused.contains("not made with"),
        "{refused}"
    );
    assert!(up().status.success());
    assert!(cluster.hayloft("status", &[]).status.success());
}

/// Why no realm can be made here, told so that a run says that a case is missing.
fn without_realm(case: &str) -> bool {
    let Some(why) = hayloft_testkit::realm::Realm::missing() else {
        return false;
    };
    // Past the harness, which keeps what a test that passes prints.
    let _ = writeln!(std::io::stderr(), "test {case} ... ignored ({why})");
    true
}

#[test]
fn a_secure_cluster_comes_up_and_outlives_the_end_of_its_kdc() {
    if without_realm("a_secure_cluster_comes_up_and_outlives_the_end_of_its_kdc") {
        return;
    }
    let cluster = Cluster::new();
    let files = tempfile::tempdir().expect("a temporary directory");
    let put = source(files.path()).display().to_string();
    let first = cluster.up(&["--secure", "--put", &put]);
    assert_eq!(first["tour"]["every_byte_equal"], true);
    assert_eq!(first["tour"]["search"], Value::Null, "no native library");
    assert_eq!(first["cluster"]["live_nodes"], 3);
    answers_over_tls_alone(&first["cluster"]);
    let keys = cluster.state.join("kdc").metadata().expect("made");
    assert_eq!(keys.permissions().mode() & 0o777, 0o700);
    reads_the_poem(&cluster);
    let again = cluster.up(&["--secure"]);
    assert_eq!(again["already_running"], true);

    outlives_its_kdc(&cluster);

    let down = cluster.hayloft("down", &["--json"]);
    let ended: Value = serde_json::from_slice(&down.stdout).expect("JSON");
    let last = ended.as_array().and_then(|all| all.last());
    let kdc = serde_json::json!({"name": "kdc", "ended": "cleanly"});
    assert_eq!(last, Some(&kdc), "{ended}");
    let plain = cluster.hayloft("up", &["--no-tour"]);
    let refused = String::from_utf8_lossy(&plain.stderr).into_owned();
    assert!(
        plain.status.code() == Some(2) && refused.contains("was made with --secure"),
        "{refused}"
    );
}

fn answers_over_tls_alone(report: &Value) {
    let processes = report["processes"].as_array().expect("listed");
    let kdc = &processes[0];
    assert!(kdc["name"] == "kdc" && kdc["kind"] == "MIT", "{kdc}");
    for process in &processes[1..] {
        let http = process["http"].as_str().expect("a web port");
        assert!(http.starts_with("https://"), "{process}");
        let port = http.trim_end_matches('/').rsplit(':').next();
        let port: u16 = port.and_then(|port| port.parse().ok()).expect("a port");
        let clear = hayloft_testkit::http::get(ports::local(port), "/jmx");
        assert!(clear.is_err(), "it answers in clear: {process}");
    }
}

fn reads_the_poem(cluster: &Cluster) {
    let read = cluster.hayloft("fs", &["-cat", "/hayloft/things to copy/poem.txt"]);
    assert!(
        read.status.success() && read.stdout.len() == 31_000,
        "{read:?}"
    );
}

/// A listener on a port whose process was killed just now.
fn take(port: u16) -> TcpListener {
    let mut tries = (0..100).map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        TcpListener::bind(ports::local(port)).ok()
    });
    tries.find_map(|taken| taken).expect("the port is free")
}

fn outlives_its_kdc(cluster: &Cluster) {
    // It dies, and another program takes its port.
    let before = cluster.state_file();
    cluster.kill("/kdc");
    let port = before["kdc"]["port"].as_u64().expect("a port");
    let taken = take(u16::try_from(port).expect("a port"));
    assert_eq!(cluster.hayloft("status", &[]).status.code(), Some(1));
    let mended = cluster.up(&["--secure", "--no-tour"]);
    assert_eq!(mended["cluster"]["live_nodes"], 3);
    assert_ne!(before["kdc"]["port"], cluster.state_file()["kdc"]["port"]);
    drop(taken);
    reads_the_poem(cluster);
    // Without another program it has the same port again, and what runs goes on.
    let before = cluster.state_file();
    cluster.kill("/kdc");
    let gone = cluster.hayloft("fs", &["-ls", "/"]);
    let said = String::from_utf8_lossy(&gone.stderr).into_owned();
    assert!(
        !gone.status.success() && said.contains("no ticket"),
        "{said}"
    );
    cluster.up(&["--secure", "--no-tour"]);
    let after = cluster.state_file();
    assert_eq!(before["namenode"]["process"], after["namenode"]["process"]);
    assert_eq!(before["kdc"]["port"], after["kdc"]["port"]);
    assert!(cluster.hayloft("status", &[]).status.success());
}
