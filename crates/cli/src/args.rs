//! The command line.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::given::{environment, property};

/// Native storage nodes for Apache Hadoop.
#[derive(Debug, Parser)]
#[command(name = "hayloft", version = env!("HAYLOFT_VERSION"), max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a storage node, configured by core-site.xml and hdfs-site.xml.
    Node(NodeArgs),
    /// Put Hayloft in the place of this host's DataNode, or take it out again.
    Swap(crate::swap::SwapArgs),
    /// Start a cluster on this machine: a stock NameNode and storage nodes, and try it out.
    Up(UpArgs),
    /// Stop the cluster; its data stays for the next `up`.
    Down(DownArgs),
    /// Say what runs, where it answers, and whether it is well (exit code 1 if not).
    Status(StatusArgs),
    /// Run the stock `hadoop fs` on the running cluster: `hayloft fs -ls /`.
    Fs(FsArgs),
    /// Ask the cloud, Kubernetes or a file where this node is, and write what NameNodes read.
    Topology(Box<crate::topology::TopologyArgs>),
    /// Find and mend blocks that break the rule on failure domains.
    Placement(crate::placement::PlacementArgs),
    /// Say where files lie on a parallel file system, and check and heal their copies.
    Pfs(crate::pfs::PfsArgs),
    /// Show how parity over the disks of a node stands, scrub it, or rebuild lost units.
    Parity(crate::parity::ParityArgs),
    /// Show what the nodes of a cluster do now: space, disks, what is slow and why.
    Top(crate::top::TopArgs),
    /// Show what upgrades left in trash and previous, and remove what no file needs.
    Trash(crate::trash::TrashArgs),
    /// Copy a node's blocks to an object store (S3, GCS, Azure, a directory), and bring them back.
    #[cfg_attr(not(feature = "snapshots"), command(hide = true))]
    Snapshot(crate::snapshot::SnapshotArgs),
    /// Print what the rest of a cluster has to know of the virtual nodes of a host.
    Super(crate::super_node::SuperArgs),
    /// Describe the I/O engines, test a plug-in, and check a disk without a file system.
    Engine(crate::engine::EngineArgs),
    /// For this program itself: work of a plug-in in a process of its own.
    #[command(hide = true)]
    PluginTrial(crate::plugin_trial::TrialArgs),
    /// For packages of this program: write its manual and its completions.
    #[command(hide = true)]
    Papers(crate::papers::PapersArgs),
    /// Find what makes this host, its disks or its network slow or unsafe, and what mends it.
    Doctor(crate::doctor::DoctorArgs),
    /// Measure a volume's device and propose quantum, queue depth and engine.
    Calibrate(crate::calibrate::CalibrateArgs),
    /// Reckon which disks and links fit, what a cluster costs, and how much data a year loses.
    Plan(crate::plan::PlanArgs),
    /// Print what Spark, MapReduce, Tez or Flink should set where storage has hosts of its own.
    Profile(crate::profile::ProfileArgs),
    /// Find files that are not used any more, once or day by day, and give them the policy COLD.
    Cold(crate::cold::ColdArgs),
}

/// `hayloft node`.
#[derive(Debug, Args)]
pub struct NodeArgs {
    /// Directory of core-site.xml and hdfs-site.xml (and hayloft-site.xml, if there)
    /// [default: $HADOOP_CONF_DIR, $HADOOP_HOME/etc/hadoop or /etc/hadoop/conf].
    #[arg(long, value_name = "DIR")]
    pub conf: Option<PathBuf>,
    /// Set a property over the files, `final` ones included. May be repeated.
    #[arg(short = 'D', value_name = "KEY=VALUE", value_parser = property)]
    pub define: Vec<(String, String)>,
    /// Print every key with its value, where it came from and what it does, and stop.
    #[arg(long)]
    pub print_config: bool,
    /// With --print-config, print JSON.
    #[arg(long, requires = "print_config", conflicts_with = "markdown")]
    pub json: bool,
    /// With --print-config, print the page of the documentation: defaults without values.
    #[arg(long, requires = "print_config")]
    pub markdown: bool,
    /// Say whether Apache's DataNode may start on the data directories now, and stop
    /// (exit code 1 if not).
    #[arg(long, conflicts_with_all = ["print_config", "regular", "rollback", "rollingupgrade"])]
    pub check_swap: bool,
    /// Say whether the node of this configuration answers on this host, and stop (exit code 1 if
    /// not).
    #[arg(long, conflicts_with_all = ["print_config", "check_swap", "regular", "rollback",
        "rollingupgrade"])]
    pub check_live: bool,
    /// Start as usual; the default. Apache's form `-regular` is accepted too.
    #[arg(long, conflicts_with_all = ["rollback", "rollingupgrade"])]
    pub regular: bool,
    /// Return to the state before an upgrade. Apache's form `-rollback` is accepted too.
    #[arg(long, conflicts_with = "rollingupgrade")]
    pub rollback: bool,
    /// Rolling upgrade action. Apache's form `-rollingupgrade rollback` is accepted too.
    #[arg(long, value_name = "ACTION")]
    pub rollingupgrade: Option<RollingUpgrade>,
}

/// What to do about a rolling upgrade at start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RollingUpgrade {
    /// Put back what was deleted since the upgrade began.
    Rollback,
}

/// Where a cluster is kept.
#[derive(Debug, Args)]
pub struct StateArgs {
    /// Directory of the cluster's configuration, logs and data
    /// [default: $HAYLOFT_STATE or .hayloft].
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// An installed Hadoop to use
    /// [default: $HADOOP_HOME, else the one that scripts/fetch-hadoop fetched].
    #[arg(long, value_name = "DIR")]
    hadoop_home: Option<PathBuf>,
}

impl StateArgs {
    /// The directory asked for, else the usual one.
    pub fn state(&self) -> PathBuf {
        let usual = || environment("HAYLOFT_STATE").unwrap_or_else(|| PathBuf::from(".hayloft"));
        self.state.clone().unwrap_or_else(usual)
    }

    /// The directory given on the command line, if one was.
    pub fn given_state(&self) -> Option<&Path> {
        self.state.as_deref()
    }

    /// The installed Hadoop asked for, if one was.
    pub fn hadoop_home(&self) -> Option<PathBuf> {
        self.hadoop_home
            .clone()
            .or_else(|| environment("HADOOP_HOME"))
    }
}

/// Whose storage nodes a cluster has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Nodes {
    /// Hayloft's.
    Hayloft,
    /// Apache's, to compare with.
    Apache,
    /// Hayloft's and Apache's in turn.
    Mixed,
}

/// `hayloft up`.
#[derive(Debug, Args)]
pub struct UpArgs {
    /// Where the cluster is kept.
    #[command(flatten)]
    pub place: StateArgs,
    /// Directory or file to copy in and read back; Hadoop's own jars by default.
    #[arg(long, value_name = "PATH")]
    pub put: Option<PathBuf>,
    /// Number of storage nodes.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub nodes: u16,
    /// Start one process of so many virtual nodes instead (hayloft.nodes).
    #[arg(
        long = "super",
        value_name = "N",
        conflicts_with_all = ["nodes", "kind"],
        value_parser = clap::value_parser!(u16).range(1..=64),
    )]
    pub virtual_nodes: Option<u16>,
    /// Whose storage nodes to start. A stopped cluster may come up with the other kind on the same
    /// data.
    #[arg(long, value_enum, default_value_t = Nodes::Hayloft)]
    pub kind: Nodes,
    /// Protect it: Kerberos with a KDC of its own, block tokens, encrypted RPC and data, HTTPS.
    #[arg(long, conflicts_with = "virtual_nodes")]
    pub secure: bool,
    /// Largest heap of the NameNode, in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 512, value_parser = clap::value_parser!(u32).range(128..))]
    pub namenode_heap: u32,
    /// Only start the cluster. Copy, compare and search nothing.
    #[arg(long, conflicts_with = "put")]
    pub no_tour: bool,
    /// Report as JSON on stdout.
    #[arg(long)]
    pub json: bool,
}

/// `hayloft down`.
#[derive(Debug, Args)]
pub struct DownArgs {
    /// Where the cluster is kept.
    #[command(flatten)]
    pub place: StateArgs,
    /// Report as JSON on stdout.
    #[arg(long)]
    pub json: bool,
}

/// `hayloft status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Where the cluster is kept.
    #[command(flatten)]
    pub place: StateArgs,
    /// Report as JSON on stdout.
    #[arg(long)]
    pub json: bool,
}

/// `hayloft fs`.
#[derive(Debug, Args)]
pub struct FsArgs {
    /// Where the cluster is kept.
    #[command(flatten)]
    pub place: StateArgs,
    /// Arguments of the stock shell, such as `-ls /`.
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGS"
    )]
    pub args: Vec<OsString>,
}

/// Turns the single-dash options that start scripts pass to Apache's DataNode into ours. The mark
/// `-Dproc_datanode` is for Hadoop's scripts alone, which look for it among a process's words.
pub fn accept_apache_forms(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = arguments.collect();
    if arguments.get(1).is_some_and(|command| command == "node") {
        arguments.retain(|argument| !argument.as_encoded_bytes().starts_with(b"-Dproc_"));
        for argument in arguments.iter_mut().skip(2) {
            let lower = argument.to_string_lossy().to_ascii_lowercase();
            if matches!(lower.as_str(), "-regular" | "-rollback" | "-rollingupgrade") {
                *argument = OsString::from(format!("-{lower}"));
            }
        }
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(accept_apache_forms(arguments.iter().map(OsString::from)))
    }

    #[test]
    fn the_definition_is_consistent() {
        use clap::CommandFactory as _;
        Cli::command().debug_assert();
    }

    #[test]
    fn apache_forms_are_accepted() {
        let node = |arguments: &[&str]| match parse(arguments).expect("accepted").command {
            Command::Node(args) => args,
            other => panic!("{other:?}"),
        };
        assert!(node(&["hayloft", "node", "-regular"]).regular);
        assert!(node(&["hayloft", "node", "-Dproc_datanode", "-rollback"]).rollback);
        let upgrade = node(&["hayloft", "node", "-rollingUpgrade", "rollback"]).rollingupgrade;
        assert_eq!(upgrade, Some(RollingUpgrade::Rollback));
        assert!(parse(&["hayloft", "node", "-rollingupgrade", "started"]).is_err());
    }

    #[test]
    fn shell_arguments_pass_untouched() {
        let cli = parse(&["hayloft", "fs", "--state", "/s", "-ls", "-R", "/"]).expect("accepted");
        let Command::Fs(args) = cli.command else {
            panic!("not fs")
        };
        assert_eq!(args.args, ["-ls", "-R", "/"]);
        assert_eq!(args.place.state(), PathBuf::from("/s"));
    }
}
