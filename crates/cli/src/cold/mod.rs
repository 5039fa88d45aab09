//! `hayloft cold`: files that are not used any more, and their storage policy.
//!
//! | module | what it is |
//! |---|---|
//! | `age` | what counts as cold |
//! | `image` | the scan of a NameNode's image |
//! | `scan_listings` | the scan of the living namespace |
//! | `cold_directories` | directories and their sums; which are wholly cold |
//! | `spool` | cold files until it is known which directories cover them |
//! | `choose_targets` | from a scan to the targets of `--apply` |
//! | `undo` | the file that says what was there |
//! | `set_policies` | setting policies, and putting them back |
//! | `ask_namenode` | the calls |
//! | `namenode_conf` | what a NameNode says of its own configuration |
//! | `report` | text and JSON |

mod age;
mod ask_namenode;
mod choose_targets;
mod cold_directories;
mod image;
mod namenode_conf;
mod report;
mod scan_listings;
mod set_policies;
mod spool;
mod undo;

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
use self::ask_namenode::{ActiveNameNode, PolicyNames, refused};
use self::choose_targets::Planner;
use self::cold_directories::DirTree;
use self::image::Image;
use self::report::{Applied, ColdReport};
use self::scan_listings::LiveScan;
use self::set_policies::{ChangeSums, PolicyChange, change_all};
use self::spool::{Spool, unspooled};
use self::undo::{UndoFile, UndoWriter};

/// The policy that is set: replicas on ARCHIVE storages alone.
const POLICY: &str = "COLD";
/// Its number in every Hadoop (`HdfsConstants.StoragePolicy.COLD`), for images without a NameNode.
const POLICY_NUMBER: u8 = 2;

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
    let ColdCommand::Scan(args) = &args.command;
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
        Some(config) if asks => Some(Cluster::of(args, config).await?),
        _ => None,
    };
    let undo = args.apply.then(|| undo_path(args));
    let mut spool = match &undo {
        Some(undo) => Some(Spool::create(directory_of(undo)).map_err(|e| unspooled(&e))?),
        None => None,
    };
    let tree = match (&args.image, &cluster) {
        (Some(image), _) => of_image(args, image, cutoff, spool.as_mut())?,
        (None, Some(cluster)) => cluster.scan(&args.path, cutoff, spool.as_mut()).await?,
        (None, None) => return Err(CliError::new("no NameNode is known", "", "give --conf DIR")),
    };
    let found = ColdReport::new(&tree, cutoff, &precision, args.depth, args.list);
    found.warn_of_unread();
    let applied = match (&cluster, undo, spool) {
        (Some(cluster), Some(undo), Some(spool)) => {
            Some(cluster.apply(args, &tree, spool, cutoff, &undo).await?)
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

fn of_image(
    args: &ScanArgs,
    image: &Path,
    cutoff: Cutoff,
    spool: Option<&mut Spool>,
) -> Result<DirTree, CliError> {
    let image = Image::open(image)?;
    let step = ProgressStep::bytes("reading the image", image.bytes_to_read());
    let told = |read: u64, whole: u64| step.at_of(read, whole);
    let tree = image::scan(&image, &args.path, cutoff, POLICY_NUMBER, spool, &told)?;
    step.done(&report::seen(&tree));
    Ok(tree)
}

/// The cluster whose namespace is looked at or changed.
struct Cluster {
    namenode: Arc<ActiveNameNode>,
    names: PolicyNames,
    cold_policy: u8,
}

impl Cluster {
    async fn of(args: &ScanArgs, config: &Configuration) -> Result<Self, CliError> {
        let namenode = Arc::new(ActiveNameNode::of(config, args.nameservice.as_deref())?);
        let names = namenode.policies().await;
        let names = names.map_err(|e| refused("ask for storage policies", namenode.name(), &e))?;
        let cold_policy = names.number(POLICY).ok_or_else(|| {
            let advice = "set dfs.storage.policy.enabled on the NameNode";
            CliError::new("the NameNode knows no policy COLD", namenode.name(), advice)
        })?;
        Ok(Self {
            namenode,
            names,
            cold_policy,
        })
    }

    async fn scan(
        &self,
        path: &str,
        cutoff: Cutoff,
        spool: Option<&mut Spool>,
    ) -> Result<DirTree, CliError> {
        let step = ProgressStep::spinner(format!("looking at {path}"));
        let told = |files: u64, dirs: u64| step.note(&format!("{files} files, {dirs} directories"));
        let scan = LiveScan {
            namenode: &self.namenode,
            cutoff,
            cold_policy: self.cold_policy,
            spool,
            told: &told,
        };
        let tree = scan.run(path).await?;
        step.done(&report::seen(&tree));
        Ok(tree)
    }

    /// Refuses when there is no place for cold files: what is created in a directory of policy COLD
    /// would have none either.
    async fn check_archive(&self, bytes: u64) -> Result<(), CliError> {
        let space = self.namenode.archive_space().await;
        let place = self.namenode.name();
        let space = space.map_err(|e| refused("ask for storages", place, &e))?;
        if space.storages == 0 {
            return Err(CliError::new(
                "no live DataNode has a storage of type ARCHIVE, and COLD allows no other",
                place,
                "add [ARCHIVE] directories to dfs.datanode.data.dir",
            ));
        }
        if space.free < bytes {
            say(&format!(
                "warning: the ARCHIVE storages have {} free, and one replica of what is cold \
                 takes {}: the mover cannot move all of it",
                hayloft_console::size::show(space.free),
                hayloft_console::size::show(bytes)
            ));
        }
        Ok(())
    }

    async fn apply(
        &self,
        args: &ScanArgs,
        tree: &DirTree,
        spool: Spool,
        cutoff: Cutoff,
        undo: &Path,
    ) -> Result<Applied, CliError> {
        self.check_archive(tree.total().cold_bytes).await?;
        let mut writer = UndoWriter::create(undo, self.namenode.name(), POLICY, now_ms() / 1000)?;
        let planner = Planner {
            namenode: &self.namenode,
            names: &self.names,
            cold_policy: self.cold_policy,
            cutoff,
            spool_dir: directory_of(undo),
            told: &|_, _| {},
        };
        if args.live {
            planner.of_live(tree, spool, &mut writer).await?;
        } else {
            let step = ProgressStep::spinner("looking again at what the image says is cold");
            planner.of_image(tree, spool, &mut writer).await?;
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
        let sums = self
            .change(&file, PolicyChange::Set(POLICY.to_owned()))
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

    async fn change(&self, file: &UndoFile, change: PolicyChange) -> Result<ChangeSums, CliError> {
        let step = ProgressStep::spinner("changing storage policies");
        let told = |done: u64| step.note(&format!("{done} of {}", file.targets));
        let sums = change_all(&self.namenode, file.targets()?, &change, &told).await?;
        step.done(&format!("{} changed", sums.changed));
        Ok(sums)
    }
}

async fn put_back(args: &ScanArgs, path: &Path) -> Result<ExitCode, CliError> {
    let file = UndoFile::open(path)?;
    let config = configuration(args)?;
    let config = config.ok_or_else(|| CliError::new("no configuration", "", "give --conf DIR"))?;
    let cluster = Cluster::of(args, &config).await?;
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
    let sums = cluster
        .change(&file, PolicyChange::PutBack(cluster.cold_policy))
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

/// An absolute path of HDFS, without a slash at its end.
fn hdfs_path(text: &str) -> Result<String, String> {
    let names: Vec<&str> = text.split('/').skip(1).filter(|n| !n.is_empty()).collect();
    let plain = names.iter().all(|name| !matches!(*name, "." | ".."));
    if !text.starts_with('/') || !plain {
        return Err("must be an absolute path of HDFS, such as /data/logs".to_owned());
    }
    Ok(format!("/{}", names.join("/")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_absolute_and_plain() {
        for (text, path) in [("/", "/"), ("/a/b/", "/a/b"), ("//a//b", "/a/b")] {
            assert_eq!(hdfs_path(text).as_deref(), Ok(path));
        }
        for wrong in ["", "a", "hdfs://nn/a", "/a/../b", "/."] {
            assert!(hdfs_path(wrong).is_err(), "{wrong}");
        }
    }
}
