//! A fresh Debian in a directory, with the package and a Hadoop in it, and commands inside.

use crate::hadoop_shell;
use crate::systemd::Systemd;
use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::{hayloft_binary, repository_root};
use hayloft_testkit::mounts;
use hayloft_testkit::wait::{Seen, until};
use hayloft_testkit::{Cluster, TestkitError};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Where Hadoop is inside.
pub const HADOOP_HOME: &str = "/opt/hadoop";

/// Mounts what the first argument lists, a line each, below the second, and runs the others there.
const ENTER: &str = r#"
set -e
root=$2
printf '%s\n' "$1" | while read -r dir; do mount --rbind "$dir" "$root$dir"; done
mount -t proc proc "$root/proc"
shift 2
exec chroot "$root" "$@"
"#;

/// Packages of the program under test.
pub struct Packages {
    pub dir: PathBuf,
}

impl Packages {
    /// Packs it.
    pub fn make() -> Result<Self> {
        let binary = hayloft_binary()?;
        let root = repository_root();
        mounts::run(
            Command::new(root.join("scripts/packages"))
                .arg("--of")
                .arg(binary),
        )?;
        let dir = root.join("target/packages-of");
        Ok(Self { dir })
    }

    /// Those that `HAYLOFT_PACKAGES` names the directory of, else those of this run: packed once.
    pub fn ready() -> Result<Self> {
        if let Some(dir) = std::env::var_os("HAYLOFT_PACKAGES") {
            return Ok(Self { dir: dir.into() });
        }
        static PACKED: Mutex<Option<PathBuf>> = Mutex::new(None);
        let mut packed = PACKED.lock().unwrap_or_else(PoisonError::into_inner);
        let dir = match packed.take() {
            Some(dir) => dir,
            None => Self::make()?.dir,
        };
        *packed = Some(dir.clone());
        Ok(Self { dir })
    }

    /// The one with this ending.
    pub fn file(&self, ending: &str) -> Result<PathBuf> {
        let entries = fs::read_dir(&self.dir).map_err(TestkitError::file("reading", &self.dir))?;
        let paths = entries.flatten().map(|entry| entry.path());
        let found = paths
            .into_iter()
            .find(|path| path.to_string_lossy().ends_with(ending));
        found.ok_or_else(|| TestkitError::Expectation(format!("no package ends with {ending}")))
    }
}

/// The host, and the cluster that its node belongs to.
pub struct DebianHost {
    /// Where it runs, commands run beside it. It ends before the root is removed.
    systemd: Option<Systemd>,
    root: tempfile::TempDir,
    /// What is seen inside, too.
    shared: Vec<PathBuf>,
    /// The node's configuration.
    pub conf: PathBuf,
    pub logs: PathBuf,
}

impl DebianHost {
    /// Unpacks a Debian and installs the package there.
    pub fn make(tar: &Path, deb: &Path, cluster: &Cluster, conf: &Path) -> Result<Self> {
        let host = Self::without_package(tar, cluster, conf)?;
        fs::copy(deb, host.at("/tmp/hayloft.deb")).map_err(TestkitError::file("copying", deb))?;
        host.run(&["dpkg", "--install", "/tmp/hayloft.deb"])?;
        Ok(host)
    }

    /// Unpacks a Debian, with Hadoop's shell alone.
    pub fn without_package(tar: &Path, cluster: &Cluster, conf: &Path) -> Result<Self> {
        let root = hayloft_testkit::hadoop::scratch("debian-")?;
        mounts::run(
            Command::new("tar")
                .args(["--numeric-owner", "-xf"])
                .arg(tar)
                .arg("-C")
                .arg(root.path()),
        )?;
        // The host's own name has an address.
        fs::copy("/etc/hosts", root.path().join("etc/hosts"))
            .map_err(TestkitError::file("copying", "/etc/hosts"))?;
        let java = fs::canonicalize(hadoop_shell::java_home()?)
            .map_err(TestkitError::file("finding", "java"))?;
        let mut shared = vec![
            PathBuf::from("/dev"),
            cluster.dir().to_owned(),
            java.clone(),
        ];
        let own = PathBuf::from("/etc").join(java.file_name().unwrap_or_default());
        shared.extend(
            fs::read_dir("/etc")
                .into_iter()
                .flatten()
                .flatten()
                .filter_map(|of| {
                    let name = of.file_name().into_string().ok()?;
                    (name.starts_with("java-") && of.path() != own).then(|| of.path())
                }),
        );
        let jars = cluster.hadoop().jars();
        let mut dirs: Vec<_> = jars.iter().filter_map(|jar| jar.parent()).collect();
        dirs.dedup();
        shared.extend(dirs.into_iter().map(Path::to_owned));
        let host = Self {
            systemd: None,
            logs: cluster.dir().join("host-logs"),
            conf: cluster.dir().join("host-conf"),
            root,
            shared,
        };
        host.install_hadoop(cluster, conf, &java)?;
        Ok(host)
    }

    /// Has systemd run on it, as process 1 of its own; what it says goes into `logs`.
    pub fn boot(&mut self, logs: &Path) -> Result<()> {
        let name = rustix::system::uname();
        let name = name.nodename().to_string_lossy().into_owned();
        self.write(&self.at("/etc/hostname"), &format!("{name}\n"))?;
        let log = logs.join("systemd.log");
        self.systemd = Some(Systemd::boot(self.root.path(), &self.shared, &log)?);
        Ok(())
    }

    /// A path inside, as it is outside.
    pub fn at(&self, inside: impl AsRef<Path>) -> PathBuf {
        let inside = inside.as_ref();
        self.root
            .path()
            .join(inside.strip_prefix("/").unwrap_or(inside))
    }

    fn install_hadoop(&self, cluster: &Cluster, conf: &Path, java: &Path) -> Result<()> {
        for dir in &self.shared {
            make_dir(&self.at(dir))?;
        }
        let pids = cluster.dir().join("host-pids");
        for dir in [&self.conf, &self.logs, &pids] {
            make_dir(dir)?;
        }
        // With the pages of its web port.
        let all = conf.join(".");
        mounts::run(Command::new("cp").arg("-rL").arg(all).arg(&self.conf))?;
        let text = hadoop_shell::environment(cluster.hadoop(), java, &self.logs, &pids);
        self.write(&self.conf.join("hadoop-env.sh"), &text)?;
        hadoop_shell::put_shell(&self.at(HADOOP_HOME))
    }

    /// Adds a line to the node's hadoop-env.sh; gives what was there.
    pub fn add_to_environment(&self, line: &str) -> Result<String> {
        let path = self.conf.join("hadoop-env.sh");
        let was = fs::read_to_string(&path).map_err(TestkitError::file("reading", &path))?;
        self.write(&path, &format!("{was}{line}\n"))?;
        Ok(was)
    }

    /// Writes a file.
    pub fn write(&self, path: &Path, text: &str) -> Result<()> {
        fs::write(path, text).map_err(TestkitError::file("writing", path))
    }

    /// A command inside, not run yet.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = match &self.systemd {
            Some(systemd) => systemd.enter(),
            None => self.change_root(),
        };
        command.args(words);
        command.env_clear();
        command.env(
            "PATH",
            "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        );
        command
            .env("USER", "root")
            .env("HOME", "/root")
            .env("LANG", "C.UTF-8");
        command
    }

    fn change_root(&self) -> Command {
        let shared = self.shared.iter().map(|dir| dir.display().to_string());
        let shared: Vec<_> = shared.collect();
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private"]);
        command.args(["sh", "-c", ENTER, "sh", &shared.join("\n")]);
        command.arg(self.root.path());
        command
    }

    /// Runs a command inside that has to succeed.
    pub fn run(&self, words: &[&str]) -> Result<String> {
        mounts::run(&mut self.command(words))
    }

    /// `hdfs --daemon ACTION datanode`; its exit code.
    pub fn daemon(&self, action: &str) -> Result<i32> {
        let conf = self.conf.display().to_string();
        let hdfs = format!("{HADOOP_HOME}/bin/hdfs");
        let mut command = self.command(&[&hdfs, "--config", &conf, "--daemon", action, "datanode"]);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let status = command
            .status()
            .map_err(TestkitError::file("running", "hdfs"))?;
        Ok(status.code().unwrap_or(-1))
    }

    /// `hayloft swap`, not run yet.
    pub fn swap_command(&self, words: &[&str]) -> Command {
        let conf = self.conf.display().to_string();
        let fixed = ["/usr/bin/hayloft", "swap"];
        let place = ["--conf", &*conf, "--hadoop-home", HADOOP_HOME, "--json"];
        self.command(&[&fixed, words, &place].concat())
    }

    /// `hayloft swap`; its exit code and its report.
    pub fn swap(&self, words: &[&str]) -> Result<(i32, Value)> {
        hadoop_shell::report_of(&mut self.swap_command(words))
    }

    /// Begins a swap that is not waited for.
    pub fn begin_swap(&self, words: &[&str]) -> Result<Child> {
        let mut command = self.swap_command(words);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
            .spawn()
            .map_err(TestkitError::file("running", "hayloft swap"))
    }

    /// Waits until `swap status` says that this node runs; `None` is either.
    pub fn wait_runs(&self, node: Option<&str>, limit: Duration) -> Result<String> {
        until("a node of the host", limit, || {
            let (_, report) = self.swap(&["status"])?;
            let runs = report["runs"]["node"].as_str().unwrap_or_default();
            Ok(match node {
                Some(node) if runs == node => Seen::Done(runs.to_owned()),
                None if !runs.is_empty() => Seen::Done(runs.to_owned()),
                _ => Seen::NotYet(report.to_string()),
            })
        })
    }
}

fn make_dir(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).map_err(TestkitError::file("making", dir))
}
