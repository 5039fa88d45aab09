//! What this host has: the configuration, the directories and their user, and how its DataNode is
//! started and stopped.

use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;
use hayloft_conf::{Configuration, keys};
use hayloft_rpc::RpcSecurity;
use tokio::sync::OnceCell;

use super::limited::said;
use super::running::running;
use super::scripts::{self, may_read};
use crate::error::CliError;
use crate::given::{WhereArgs, conf_dir, environment, volumes};

/// What Bigtop and others call their unit.
const USUAL_UNIT: &str = "hadoop-hdfs-datanode";

/// What has an `hdfs` source scripts of another installation than its own.
const OTHER_HOME: [&str; 5] = [
    "HADOOP_HOME",
    "HADOOP_PREFIX",
    "HADOOP_LIBEXEC_DIR",
    "HADOOP_COMMON_HOME",
    "HADOOP_HDFS_HOME",
];

/// Which node, and how this host starts and stops it.
#[derive(Debug, Args)]
pub struct HostArgs {
    #[command(flatten)]
    pub place: WhereArgs,
    /// An installed Hadoop 3 [default: $HADOOP_HOME, else that of `hdfs` in PATH].
    #[arg(long, value_name = "DIR")]
    hadoop_home: Option<PathBuf>,
    /// The systemd unit that runs `hdfs datanode` or `hdfs --daemon start datanode`
    /// [default: that of the node that runs; else hadoop-hdfs-datanode, unless it is inactive;
    /// else hdfs --daemon].
    #[arg(long, value_name = "NAME")]
    unit: Option<String>,
}

/// A host with one DataNode.
#[derive(Debug)]
pub struct SwapHost {
    pub conf: PathBuf,
    pub config: Configuration,
    pub volumes: Vec<PathBuf>,
    /// This program, as the shell profile names it.
    pub program: PathBuf,
    /// How it proves to NameNodes who asks, once it was needed.
    pub proof: OnceCell<Option<RpcSecurity>>,
    /// Who owns the directories and runs the node.
    pub user: String,
    /// Whether that is another user than this process has.
    as_other: bool,
    /// Whether root starts the node. Where the user is another one, the node becomes that user.
    by_root: bool,
    way: Way,
    /// Held while this process, or one that it began, changes the node over.
    lock: OnceCell<File>,
    /// Arguments that have another process find the same, besides the configuration.
    pub again: Vec<String>,
}

/// How this host does it.
#[derive(Debug)]
enum Way {
    /// systemd's unit, which runs Hadoop's `hdfs`.
    Unit(String),
    /// `hdfs --daemon`.
    Daemon {
        hdfs: PathBuf,
        /// Whether its installation was named, and has the scripts.
        alone: bool,
    },
}

/// What is done to the node.
#[derive(Clone, Copy, Debug)]
pub enum Action {
    Start,
    Stop,
}

impl Action {
    fn word(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Stop => "stop",
        }
    }
}

impl SwapHost {
    /// Finds all of it; changes nothing.
    pub fn find(args: &HostArgs) -> Result<Self, CliError> {
        let conf = conf_dir(args.place.conf.as_deref())?;
        let conf = conf.canonicalize().map_err(CliError::file("find", &conf))?;
        let config = Configuration::load(&conf, &[])?;
        if !config.virtual_nodes()?.is_empty() {
            return Err(CliError::new(
                "this process is several nodes, and Apache's is one each",
                "hayloft.nodes",
                "swap them by hand",
            ));
        }
        let volumes = volumes(&config);
        let program = std::env::current_exe()
            .map_err(|error| CliError::new(format!("no own path: {error}"), "", ""))?;
        let own = rustix::process::geteuid();
        // Where a disk is not mounted its directory is root's.
        let used = volumes
            .iter()
            .find(|dir| dir.join("current/VERSION").exists());
        let owner = used.into_iter().chain(&volumes);
        let owner = { owner }.find_map(|dir| dir.metadata().ok());
        let owner = owner.map_or(own.as_raw(), |of| of.uid());
        let as_other = owner != own.as_raw();
        let user = name_of(owner)?;
        let way = Way::of(args, &volumes)?;
        let again = args.again(&way);
        let asks = (own.is_root() && as_other).then_some(&*user);
        // Where root is the node's user, nothing is asked.
        let by_root = own.is_root() && !as_other || scripts::become_user(&conf, asks)?;
        if !own.is_root() && (as_other || by_root || matches!(way, Way::Unit(_))) {
            let what = "this user may not stop and start the node";
            let advice = format!("run it as root, or without a unit as {user}");
            return Err(CliError::new(what, "", advice));
        }
        Ok(Self {
            conf,
            config,
            volumes,
            program,
            proof: OnceCell::new(),
            user,
            as_other,
            by_root,
            way,
            lock: OnceCell::new(),
            again,
        })
    }

    /// Whether root's shell sources the configuration's scripts to start the node.
    pub fn is_for_roots_shell(&self) -> bool {
        self.by_root && !matches!(self.way, Way::Unit(_))
    }

    /// Keeps other swaps of this host off: each would take the other's stop for a node that does
    /// not serve.
    ///
    /// # Errors
    /// In words: there is one.
    pub fn alone(&self) -> Result<(), String> {
        let place = self.conf.display();
        let dir = File::open(&self.conf).map_err(|error| format!("{place}: {error}"))?;
        match dir.try_lock() {
            Ok(()) => self
                .lock
                .set(dir)
                .map_err(|error| format!("{place}: {error}")),
            Err(_) => Err("another swap of this node is under way: wait for its end".to_owned()),
        }
    }

    /// The lock for another process: other swaps keep off until that has ended, too.
    ///
    /// # Errors
    /// Of the system.
    pub fn shared_lock(&self) -> std::io::Result<Stdio> {
        let lock = self.lock.get().map(File::try_clone).transpose()?;
        Ok(lock.map_or_else(Stdio::null, Stdio::from))
    }

    /// What starts or stops the node on this host.
    pub fn command(&self, action: Action) -> Command {
        let word = action.word();
        let (hdfs, alone) = match &self.way {
            Way::Unit(unit) => {
                let mut command = Command::new("systemctl");
                command.args([word, unit]);
                return command;
            }
            Way::Daemon { hdfs, alone } => (hdfs, *alone),
        };
        let mut command = if self.as_other && !self.by_root {
            // Names of Hadoop's files have the user of these variables.
            let mut command = Command::new("runuser");
            command.args(["-u", &self.user, "--"]).arg(hdfs);
            command.env("USER", &self.user).env("LOGNAME", &self.user);
            command
        } else {
            Command::new(hdfs)
        };
        command.arg("--config").arg(&self.conf);
        command.args(["--daemon", word, "datanode"]);
        if alone {
            OTHER_HOME.iter().for_each(|name| {
                command.env_remove(name);
            });
        }
        command
    }

    /// The same as a line to read.
    pub fn command_line(&self, action: Action) -> String {
        let command = self.command(action);
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
        words.join(" ")
    }

    /// Whether Hayloft's node would start on the directories, which Apache's may hold.
    ///
    /// # Errors
    /// In words: not so.
    pub fn fits_hayloft(&self) -> Result<String, String> {
        let failures = self.config.get(&keys::FAILED_VOLUMES_TOLERATED);
        hayloft_store::check_start(&self.volumes, failures)?;
        Ok("Hayloft starts on them".to_owned())
    }

    /// Whether the user who runs the node may read a file: this process may be root.
    ///
    /// # Errors
    /// In words: not so.
    pub fn node_may_read(&self, path: &Path) -> Result<(), String> {
        match self.as_other {
            true => may_read(&self.user, path),
            false => Ok(()),
        }
    }
}

impl HostArgs {
    /// A unit that was found is named: its state is another in the midst of a swap.
    fn again(&self, way: &Way) -> Vec<String> {
        let home = self
            .hadoop_home
            .as_ref()
            .map(|dir| dir.display().to_string());
        let unit = match way {
            Way::Unit(unit) => Some(unit.clone()),
            Way::Daemon { .. } => None,
        };
        let given = [("--hadoop-home", home), ("--unit", unit)];
        let pairs = given
            .into_iter()
            .filter_map(|(name, value)| Some([name.into(), value?]));
        pairs.flatten().collect()
    }
}

impl Way {
    fn of(args: &HostArgs, volumes: &[PathBuf]) -> Result<Self, CliError> {
        let systemd = Path::new("/run/systemd/system").exists();
        let unit = match &args.unit {
            Some(unit) if !systemd => {
                let what = format!("no systemd runs here for the unit {unit}");
                return Err(CliError::new(what, "--unit", "leave it out"));
            }
            Some(unit) => Some(unit.clone()),
            None if !systemd => None,
            None => match unit_at_work(volumes)? {
                Some(unit) => Some(unit),
                None => has_state(USUAL_UNIT)?.then(|| USUAL_UNIT.to_owned()),
            },
        };
        let Some(unit) = unit else {
            let home = args.hadoop_home.as_deref();
            let alone = home.is_some_and(|home| home.join("libexec").is_dir());
            return hdfs_of(home).map(|hdfs| Self::Daemon { hdfs, alone });
        };
        let starts = what_starts(&unit)?;
        if !starts.contains("hdfs") {
            let what = format!("the unit {unit} does not start its node by Hadoop's hdfs");
            return Err(CliError::new(
                what,
                starts.trim(),
                "swap by hand: see swap.md",
            ));
        }
        Ok(Self::Unit(unit))
    }
}

/// The unit whose process the node is, whatever its name. Nothing where the node was begun from a
/// login, or by a unit that does not start Hadoop's: cron, a server of logins, one of ours.
fn unit_at_work(volumes: &[PathBuf]) -> Result<Option<String>, CliError> {
    // What is said of another holder is said before the first step.
    let Ok(Some(node)) = running(volumes) else {
        return Ok(None);
    };
    let groups = std::fs::read_to_string(format!("/proc/{}/cgroup", node.pid));
    let Some(unit) = unit_in(&groups.unwrap_or_default()) else {
        return Ok(None);
    };
    Ok(what_starts(&unit)?.contains("hdfs").then_some(unit))
}

/// The service of the system that a process belongs to, by its control groups.
fn unit_in(groups: &str) -> Option<String> {
    let service = groups.lines().find_map(|line| {
        let (_, path) = line.rsplit_once(':')?;
        let mut parts = path.rsplit('/').filter(|part| part.ends_with(".service"));
        path.starts_with("/system.slice/").then(|| parts.next())?
    });
    service.and_then(|name| name.strip_suffix(".service").map(str::to_owned))
}

fn what_starts(unit: &str) -> Result<String, CliError> {
    said("systemctl", &["show", "-p", "ExecStart", "--value", unit])
}

/// Whether systemd starts the node by that unit: it runs, starts, stops or has failed.
fn has_state(unit: &str) -> Result<bool, CliError> {
    let state = said("systemctl", &["show", "-p", "ActiveState", "--value", unit])?;
    Ok(!matches!(state.trim(), "" | "inactive"))
}

/// Hadoop's `hdfs`.
fn hdfs_of(home: Option<&Path>) -> Result<PathBuf, CliError> {
    let home = home
        .map(Path::to_owned)
        .or_else(|| environment("HADOOP_HOME"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = match home {
        Some(home) => vec![home.join("bin")],
        None => std::env::split_paths(&path).collect(),
    };
    places.iter_mut().for_each(|dir| dir.push("hdfs"));
    places
        .into_iter()
        .find(|hdfs| hdfs.is_file())
        .ok_or_else(|| {
            let advice =
                "give the directory of Hadoop 3 with --hadoop-home, or name the node's --unit";
            CliError::new("no hdfs found", "HADOOP_HOME, PATH", advice)
        })
}

fn name_of(uid: u32) -> Result<String, CliError> {
    let name = said("id", &["-nu", &uid.to_string()])?.trim().to_owned();
    if name.is_empty() {
        let what = format!("the data directories belong to user {uid}, who has no name");
        return Err(CliError::new(what, "", "give that user a name"));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_known_by_the_nodes_control_group() {
        let of = |text: &str| unit_in(text);
        let unit = Some("hdfs-datanode".to_owned());
        assert_eq!(of("0::/system.slice/hdfs-datanode.service\n"), unit);
        assert_eq!(
            of("2:cpu:/\n1:name=systemd:/system.slice/hdfs-datanode.service\n"),
            unit
        );
        assert_eq!(of("0::/system.slice/hdfs-datanode.service/payload\n"), unit);
        assert_eq!(of("0::/user.slice/user-0.slice/session-3.scope\n"), None);
        assert_eq!(
            of("0::/user.slice/user@0.service/app.slice/a.service\n"),
            None
        );
        assert_eq!(of("0::/docker/1f\n"), None);
        assert_eq!(of(""), None);
    }
}
