//! A node that is started as root with `HDFS_DATANODE_SECURE_USER`: what it opens as root, and what
//! is left of root afterwards. There is no NameNode.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

/// Every Debian and Red Hat has this user, who has no files.
const USER: &str = "daemon";
/// Limit on every wait.
const WITHIN: Duration = Duration::from_secs(60);

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        println!("skipped: this takes root");
    }
    is_root
}

/// Numbers of the user, as `id` has them.
fn id(option: &str) -> Vec<u32> {
    let told = Command::new("id").args([option, USER]).output();
    let told = String::from_utf8(told.expect("id runs").stdout).expect("numbers");
    told.split_whitespace()
        .map(|id| id.parse().expect("a number"))
        .collect()
}

/// A free port that only root may open.
fn low_port() -> u16 {
    static ASKED: AtomicU16 = AtomicU16::new(0);
    // Programs beside this one begin elsewhere.
    let first = u16::try_from(std::process::id() % 400).expect("small");
    let free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let mut ports = std::iter::repeat_with(|| ASKED.fetch_add(1, Ordering::Relaxed)).take(400);
    let port = ports.find_map(|asked| Some(600 + (first + asked) % 400).filter(free));
    port.expect("a free port below 1024")
}

/// A host's directories: a configuration that root may read, and what belongs to the user.
struct Host {
    dir: tempfile::TempDir,
    port: u16,
}

impl Host {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(dir.path(), open).expect("opened");
        let host = Self {
            dir,
            port: low_port(),
        };
        for name in ["data", "logs"] {
            let path = host.at(name);
            fs::create_dir(&path).expect("made");
            chown(&path, Some(id("-u")[0]), Some(id("-g")[0])).expect("given");
        }
        let data = host.at("data").display().to_string();
        let port = host.port;
        host.configure(&[
            ("dfs.namenode.rpc-address", "127.0.0.1:1"),
            ("dfs.datanode.data.dir", &data),
            ("dfs.datanode.address", &format!("127.0.0.1:{port}")),
            ("dfs.datanode.ipc.address", "127.0.0.1:0"),
            ("dfs.datanode.http.address", "127.0.0.1:0"),
        ]);
        host
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn configure(&self, properties: &[(&str, &str)]) {
        let all: String = properties
            .iter()
            .map(|(name, value)| {
                format!("<property><name>{name}</name><value>{value}</value></property>\n")
            })
            .collect();
        let text = format!("<configuration>\n{all}</configuration>\n");
        fs::write(self.at("hdfs-site.xml"), text).expect("written");
    }

    fn start(&self, user: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hayloft"));
        command.arg("node").arg("--conf").arg(self.dir.path());
        command
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command.env("HDFS_DATANODE_SECURE_USER", user);
        command.env("HAYLOFT_LOG_FILE", self.at("logs/node.log"));
        command.stdin(Stdio::null());
        command
    }

    /// What a start says that is refused.
    fn refused(&self, command: &mut Command) -> String {
        let output = command.output().expect("the binary runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(!self.at("data/in_use.lock").exists(), "{said}");
        said
    }

    fn log(&self) -> String {
        fs::read_to_string(self.at("logs/node.log")).unwrap_or_default()
    }

    /// Waits until the node listens.
    fn wait(&self, node: &mut Child) {
        let until = Instant::now() + WITHIN;
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            let ended = node.try_wait().expect("asked");
            assert!(ended.is_none() && Instant::now() < until, "{}", self.log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// The value of a line of `/proc/PID/status`.
fn of_status<'a>(status: &'a str, name: &str) -> &'a str {
    let mut lines = status.lines().filter_map(|line| line.split_once(":\t"));
    let found = lines.find(|(of, _)| *of == name);
    found.map_or("", |(_, value)| value.trim())
}

fn no_thread_has_root(process: u32) -> usize {
    let four = |id: u32| [id; 4].map(|id| id.to_string()).join("\t");
    let (uid, gid) = (four(id("-u")[0]), four(id("-g")[0]));
    let sorted = |mut groups: Vec<u32>| {
        groups.sort_unstable();
        groups
    };
    let groups = sorted(id("-G"));
    let tasks = fs::read_dir(format!("/proc/{process}/task")).expect("it runs");
    let statuses: Vec<String> = tasks
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("status")).ok())
        .collect();
    for status in &statuses {
        assert_eq!(of_status(status, "Uid"), uid, "{status}");
        assert_eq!(of_status(status, "Gid"), gid, "{status}");
        let found = of_status(status, "Groups").split_whitespace();
        let found = found.map(|id| id.parse().expect("a number")).collect();
        assert_eq!(sorted(found), groups, "{status}");
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(of_status(status, set), "0".repeat(16), "{set}: {status}");
        }
        assert_eq!(of_status(status, "NoNewPrivs"), "1", "{status}");
    }
    statuses.len()
}

fn owner(path: &Path) -> u32 {
    let found = fs::metadata(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    found.uid()
}

#[test]
fn a_start_as_root_opens_a_low_port_and_no_thread_keeps_root() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    // Again on the same directories, and on the port of a node that was killed.
    for round in 0..2 {
        let mut node = host.start(USER).spawn().expect("the binary runs");
        host.wait(&mut node);
        let threads = no_thread_has_root(node.id());
        assert!(threads > 5, "{threads} threads");
        for path in ["data/in_use.lock", "logs/node.log"] {
            assert_eq!(owner(&host.at(path)), id("-u")[0], "{path}");
        }
        let log = host.log();
        assert!(log.contains(&format!("given up for {USER}")), "{log}");
        // As of every process that may not be looked into.
        let memory = format!("/proc/{}/environ", node.id());
        assert_eq!(owner(Path::new(&memory)), 0);
        if round == 0 {
            node.kill().expect("killed");
            node.wait().expect("ended");
        } else {
            let pid = i32::try_from(node.id()).expect("a process");
            let pid = rustix::process::Pid::from_raw(pid).expect("a process");
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("told");
            let ended = node.wait().expect("ended");
            assert_eq!(ended.code(), Some(0), "{}", host.log());
        }
    }
}

#[test]
fn starts_that_cannot_give_up_root_are_refused_before_a_directory_is_touched() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    for (user, told) in [
        ("no-such-user", "no such user"),
        ("root", "this user is root"),
        ("0", "a number is no name of a user"),
    ] {
        let said = host.refused(&mut host.start(user));
        assert!(said.contains(told), "{said}");
        assert!(
            said.contains(&format!("HDFS_DATANODE_SECURE_USER={user}")),
            "{said}"
        );
    }
    // A container may have taken the capabilities from root.
    let mut without = Command::new("setpriv");
    without.args(["--bounding-set=-setuid", "--inh-caps=-setuid"]);
    let start = host.start(USER);
    without.arg(start.get_program()).args(start.get_args());
    without.envs(
        start
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    let said = host.refused(&mut without);
    assert!(
        said.contains("root cannot be given up for daemon"),
        "{said}"
    );
}

#[test]
fn a_port_that_is_taken_is_named() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let _holder = TcpListener::bind(("127.0.0.1", host.port)).expect("free");
    let said = host.refused(&mut host.start(USER));
    let named = said.contains(&format!("127.0.0.1:{} (dfs.datanode.address)", host.port));
    assert!(named && said.contains("in use"), "{said}");
}

#[test]
fn only_root_may_start_so() {
    let host = Host::new();
    let mut start = host.start(USER);
    if rustix::process::geteuid().is_root() {
        start.uid(id("-u")[0]).gid(id("-g")[0]);
    }
    match start.output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(2), "{said}");
            assert!(said.contains("only root may open ports"), "{said}");
            assert!(said.contains("AmbientCapabilities"), "{said}");
        }
        Err(error) => println!("skipped: another user may not run the binary: {error}"),
    }
}
