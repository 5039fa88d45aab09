//! `hayloft cold`: files that are not used any more, and their storage policy.
//!
//! | module | what it is |
//! |---|---|
//! | `age` | what counts as cold |
//! | `image` | the scan of a NameNode's image |
//! | `scan_listings` | the scan of the living namespace |
//! | `cold_cluster` | the cluster that is scanned and changed, or an image of it |
//! | `scanned_file` | a file as a scan finds it |
//! | `directory_uses` | when directories were last used, where access times do not tell |
//! | `cold_directories` | directories and their sums; which are wholly cold |
//! | `spool` | cold files until it is known which directories cover them |
//! | `choose_targets` | from a scan to the targets of `--apply` |
//! | `undo` | the file that says what was there |
//! | `set_policies` | setting policies, and putting them back |
//! | `ask_namenode` | the calls |
//! | `namenode_conf` | what a NameNode says of its own configuration |
//! | `report` | text and JSON |
//! | `watch` | the scan again and again, as a service |

mod age;
mod ask_namenode;
mod choose_targets;
mod cold_cluster;
mod cold_directories;
mod directory_uses;
mod image;
mod namenode_conf;
mod report;
mod scan_listings;
mod scanned_file;
mod set_policies;
mod spool;
mod undo;
mod watch;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use hayloft_conf::Configuration;
use hayloft_console::progress::{ProgressStep, say};
use hayloft_store::now_ms;

use crate::error::{CliError, FINDING};

use self::age::{Cutoff, Precision, TimesAsked};
use self::ask_namenode::{ActiveNameNode, hdfs_path};
use self::choose_targets::{Planned, Planner};
use self::cold_cluster::{ColdCluster, POLICY, scan_image};
use self::cold_directories::DirTree;
use self::report::{Applied, ColdReport};
use self::set_policies::PolicyChange;
use self::spool::{Spool, unspooled};
use self::undo::{UndoFile, UndoWriter};
use self::watch::ColdWatchArgs;

/// `hayloft cold`.
#[derive(Debug, Args)]
pub struct ColdArgs {
    /// What to do.
    #[command(subcommand)]
    command: ColdCommand,
}

#[derive(Debug, Subcommand)]
enum ColdCommand {
    /// Find files that were not used for a while; with --apply give them the policy COLD.
    ///
    /// A file is cold when it was neither read nor changed for the time that --older-than gives.
    /// Without --apply nothing is changed. With it, directories in which everything is cold and
    /// single cold files get the storage policy COLD; what they had is written to a file first,
    /// from which --undo puts it back. No data moves before the stock 'hdfs mover' runs.
    Scan(Box<ScanArgs>),
    /// Look again and again, and archive what stays cold.
    ///
    /// A pass looks at the paths as 'scan' does. What is cold in --after-passes passes running is
    /// due. With --apply it gets the policy COLD, as much a pass as --files-per-pass and
    /// --bytes-per-pass say. What it had is on disk first, in a file undo-N.jsonl of the state
    /// directory, from which 'scan --undo' puts it back. What is read again in --back-after passes
    /// gets back what it had. No data moves before the stock 'hdfs mover' runs.
    Watch(Box<ColdWatchArgs>),
}

#[derive(Debug, Args)]
struct ScanArgs {
    /// The directory to look at.
    #[arg(default_value = "/", value_parser = hdfs_path)]
    path: String,
    /// How long ago a file was last used: 180d, 26w, 36h, 2y.
    #[arg(long, value_name = "TIME", required_unless_present = "undo", value_parser = age::parse)]
    older_than: Option<Duration>,
    /// Look at an image of the namespace: what 'hdfs dfsadmin -fetchImage DIR' fetched.
    #[arg(long, value_name = "FILE", required_unless_present_any = ["live", "undo"],
        conflicts_with = "live")]
    image: Option<PathBuf>,
    /// Ask the NameNode for the listings of every directory, four at a time.
    #[arg(long)]
    live: bool,
    /// Set the policy COLD on what is found.
    #[arg(long, conflicts_with = "undo")]
    apply: bool,
    /// Where --apply writes what was there
    /// [default: hayloft-cold-undo-SECONDS.jsonl in this directory].
    #[arg(long, value_name = "FILE", requires = "apply")]
    undo_file: Option<PathBuf>,
    /// Put back what a file says that --apply wrote, where the policy is still COLD.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["image", "live", "older_than"])]
    undo: Option<PathBuf>,
    /// Which times decide whether a file is cold.
    #[arg(long, value_enum, default_value_t = TimesAsked::Auto)]
    times: TimesAsked,
    /// Directory of core-site.xml and hdfs-site.xml
    /// [default: $HADOOP_CONF_DIR, $HADOOP_HOME/etc/hadoop or /etc/hadoop/conf].
    #[arg(long, value_name = "DIR")]
    conf: Option<PathBuf>,
    /// Which of several name services to look at.
    #[arg(long, value_name = "ID")]
    nameservice: Option<String>,
    /// Show directories down to so many levels below the path.
    #[arg(long, value_name = "N", default_value_t = 2)]
    depth: usize,
    /// Show so many directories, those with the most cold bytes.
    #[arg(long, value_name = "N", default_value_t = 20)]
    list: usize,
    /// Report as JSON on stdout.
    #[arg(long)]
    json: bool,
}

/// Scans, applies, or undoes.
pub fn run(args: &ColdArgs) -> Result<ExitCode, CliError> {
    let args = match &args.command {
        ColdCommand::Scan(args) => args,
        ColdCommand::Watch(args) => return watch::run(args),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CliError::new(format!("cannot start: {error}"), "", ""))?;
    match &args.undo {
        Some(file) => runtime.block_on(put_back(args, file)),
        None => runtime.block_on(scan(args)),
    }
}

async fn scan(args: &ScanArgs) -> Result<ExitCode, CliError> {
    let config = configuration(args)?;
    let asks = args.live || args.apply;
    let of_namenode = config.as_ref().filter(|_| asks);
    let of_namenode =
        of_namenode.and_then(|c| namenode_conf::precision(c, args.nameservice.as_deref()));
    let precision = of_namenode.unwrap_or_else(|| Precision::of(config.as_ref()));
    let age = args.older_than.unwrap_or_default();
    let cutoff = Cutoff::new(age, now_ms(), args.times, &precision);
    report::warn_of_times(&precision, cutoff.by, age);
    let cluster = match &config {
        Some(config) if asks => Some(cluster_of(args, config).await?),
        _ => None,
    };
    let undo = args.apply.then(|| undo_path(args));
    let mut spool = match &undo {
        Some(undo) => Some(Spool::create(directory_of(undo)).map_err(|e| unspooled(&e))?),
        None => None,
    };
    let tree = match (&args.image, &cluster) {
        (Some(image), _) => {
            let tree = scan_image(image, &args.path, cutoff, spool.as_mut())?;
            tree.ok_or_else(|| {
                let advice = "give a directory that was there when the image was saved";
                CliError::new("no such directory in the image", &*args.path, advice)
            })?
        }
        (None, Some(cluster)) => {
            let spool = spool.as_mut();
            cluster.scan(&args.path, cutoff, None, spool).await?
        }
        (None, None) => return Err(CliError::new("no NameNode is known", "", "give --conf DIR")),
    };
    let found = ColdReport::new(&tree, cutoff, &precision, args.depth, args.list);
    found.warn_of_unread();
    let applied = match (&cluster, undo, spool) {
        (Some(cluster), Some(undo), Some(spool)) => {
            Some(apply(cluster, args, &tree, spool, cutoff, &undo).await?)
        }
        _ => None,
    };
    report::print(&args.path, age, &found, applied.as_ref(), args.json)?;
    let failed = applied.is_some_and(|applied| applied.sums.failed > 0);
    Ok(if failed {
        ExitCode::from(FINDING)
    } else {
        ExitCode::SUCCESS
    })
}

/// The configuration: needed to reach a NameNode, welcome otherwise for what it says of times.
fn configuration(args: &ScanArgs) -> Result<Option<Configuration>, CliError> {
    let needed = args.live || args.apply || args.undo.is_some() || args.conf.is_some();
    match crate::given::conf_dir(args.conf.as_deref()) {
        Ok(dir) => Ok(Some(Configuration::load(&dir, &[])?)),
        Err(error) if needed => Err(error),
        Err(_) => Ok(None),
    }
}

async fn cluster_of(args: &ScanArgs, config: &Configuration) -> Result<ColdCluster, CliError> {
    let namenode = ActiveNameNode::of(config, args.nameservice.as_deref())?;
    ColdCluster::of(Arc::new(namenode)).await
}

async fn apply(
    cluster: &ColdCluster,
    args: &ScanArgs,
    tree: &DirTree,
    spool: Spool,
    cutoff: Cutoff,
    undo: &Path,
) -> Result<Applied, CliError> {
    cluster.check_archive(tree.total().cold_bytes).await?;
    let mut writer = UndoWriter::create(undo, cluster.namenode.name(), POLICY, now_ms() / 1000)?;
    let planner = Planner {
        namenode: &cluster.namenode,
        names: &cluster.names,
        cold_policy: cluster.cold_policy,
        cutoff,
        spool_dir: directory_of(undo),
        told: &|_, _| {},
    };
    let mut sink = |found| match found {
        Planned::Target { target, .. } => writer.push(&target),
        Planned::Reread { .. } => Ok(()),
    };
    if args.live {
        planner.of_live(tree, spool, &mut sink).await?;
    } else {
        let step = ProgressStep::spinner("looking again at what the image says is cold");
        planner.of_image(tree, spool, &mut sink).await?;
        step.done("");
    }
    let (directories, files) = writer.counts();
    if directories + files == 0 {
        writer.discard();
        return Ok(Applied::default());
    }
    writer.finish()?;
    say(&format!("what is there now is in {}", undo.display()));
    let file = UndoFile::open(undo)?;
    let sums = cluster
        .change(
            file.targets()?,
            file.targets,
            PolicyChange::Set(POLICY.to_owned()),
        )
        .await;
    let sums = sums.inspect_err(|_| {
        let undo = undo.display();
        say(&format!(
            "stopped half-way: 'hayloft cold scan --undo {undo}' puts it back"
        ));
    })?;
    Ok(Applied {
        directories,
        files,
        undo_file: Some(undo.to_owned()),
        sums,
    })
}

async fn put_back(args: &ScanArgs, path: &Path) -> Result<ExitCode, CliError> {
    let file = UndoFile::open(path)?;
    let config = configuration(args)?;
    let config = config.ok_or_else(|| CliError::new("no configuration", "", "give --conf DIR"))?;
    let cluster = cluster_of(args, &config).await?;
    if cluster.namenode.name() != file.head.namenode {
        return Err(CliError::new(
            format!(
                "the undo file is of {}, the configuration of {}",
                file.head.namenode,
                cluster.namenode.name()
            ),
            path.display().to_string(),
            "give the configuration of that cluster with --conf DIR",
        ));
    }
    let change = PolicyChange::PutBack(cluster.cold_policy);
    let sums = cluster
        .change(file.targets()?, file.targets, change)
        .await?;
    report::print_undone(&sums, args.json)?;
    Ok(if sums.failed > 0 {
        ExitCode::from(FINDING)
    } else {
        ExitCode::SUCCESS
    })
}

fn undo_path(args: &ScanArgs) -> PathBuf {
    let usual = || PathBuf::from(format!("hayloft-cold-undo-{}.jsonl", now_ms() / 1000));
    args.undo_file.clone().unwrap_or_else(usual)
}

fn directory_of(path: &Path) -> &Path {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    dir.unwrap_or(Path::new("."))
}
