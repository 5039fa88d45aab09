//! What this host has: the configuration, the directories and their user, and how its DataNode is
//! started and stopped.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use hayloft_conf::Configuration;

use crate::error::CliError;
use crate::given::{WhereArgs, conf_dir, environment, volumes};

/// What Bigtop and others call their unit.
const USUAL_UNIT: &str = "hadoop-hdfs-datanode";

/// Which node, and how this host starts and stops it.
#[derive(Debug, Args)]
pub struct HostArgs {
    #[command(flatten)]
    pub place: WhereArgs,
    /// An installed Hadoop 3 [default: $HADOOP_HOME, else that of `hdfs` in PATH].
    #[arg(long, value_name = "DIR")]
    hadoop_home: Option<PathBuf>,
    /// The systemd unit that runs `hdfs datanode` or `hdfs --daemon start datanode`
    /// [default: hadoop-hdfs-datanode, if it is active; else hdfs --daemon].
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
    /// Who owns the directories and runs the node.
    pub user: String,
    /// Whether that is another user than this process has.
    as_other: bool,
    way: Way,
    /// Arguments that have another process find the same, besides the configuration.
    pub again: Vec<String>,
}

/// How this host does it.
#[derive(Debug)]
enum Way {
    /// systemd's unit, which runs Hadoop's `hdfs`.
    Unit(String),
    /// `hdfs --daemon`.
    Daemon(PathBuf),
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
        let owner = volumes.iter().find_map(|dir| dir.metadata().ok());
        let owner = owner.map_or(own.as_raw(), |of| of.uid());
        let as_other = owner != own.as_raw();
        let user = name_of(owner)?;
        let way = Way::of(args)?;
        if !own.is_root() && (as_other || matches!(way, Way::Unit(_))) {
            let what = "this user may not stop and start the node";
            let advice = format!("run it as root, or without a unit as {user}");
            return Err(CliError::new(what, "", advice));
        }
        Ok(Self {
            conf,
            config,
            volumes,
            program,
            user,
            as_other,
            way,
            again: args.again(),
        })
    }

    /// What starts or stops the node on this host.
    pub fn command(&self, action: Action) -> Command {
        let word = action.word();
        let hdfs = match &self.way {
            Way::Unit(unit) => {
                let mut command = Command::new("systemctl");
                command.args([word, unit]);
                return command;
            }
            Way::Daemon(hdfs) => hdfs,
        };
        let mut command = if self.as_other {
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
        command
    }

    /// The same as a line to read.
    pub fn command_line(&self, action: Action) -> String {
        let command = self.command(action);
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
        words.join(" ")
    }
}

impl HostArgs {
    fn again(&self) -> Vec<String> {
        let home = self
            .hadoop_home
            .as_ref()
            .map(|dir| dir.display().to_string());
        let given = [("--hadoop-home", home), ("--unit", self.unit.clone())];
        let pairs = given
            .into_iter()
            .filter_map(|(name, value)| Some([name.into(), value?]));
        pairs.flatten().collect()
    }
}

impl Way {
    fn of(args: &HostArgs) -> Result<Self, CliError> {
        let systemd = Path::new("/run/systemd/system").exists();
        let unit = match &args.unit {
            Some(unit) if !systemd => {
                let what = format!("no systemd runs here for the unit {unit}");
                return Err(CliError::new(what, "--unit", "leave it out"));
            }
            Some(unit) => Some(unit.clone()),
            None => Some(USUAL_UNIT.to_owned()).filter(|unit| systemd && is_active(unit)),
        };
        let Some(unit) = unit else {
            return hdfs_of(args.hadoop_home.as_deref()).map(Self::Daemon);
        };
        let starts = said("systemctl", &["show", "-p", "ExecStart", "--value", &unit]);
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

fn is_active(unit: &str) -> bool {
    let asked = Command::new("systemctl")
        .args(["is-active", "--quiet", unit])
        .status();
    asked.is_ok_and(|status| status.success())
}

/// What a command prints; nothing when it fails.
fn said(program: &str, args: &[&str]) -> String {
    let ran = Command::new(program).args(args).output();
    let text = ran
        .ok()
        .filter(|of| of.status.success())
        .map(|of| of.stdout);
    String::from_utf8_lossy(&text.unwrap_or_default()).into_owned()
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
    let name = said("id", &["-nu", &uid.to_string()]).trim().to_owned();
    if name.is_empty() {
        let what = format!("the data directories belong to user {uid}, who has no name");
        return Err(CliError::new(what, "", "give that user a name"));
    }
    Ok(name)
}
