//! What the commands do, in a build that has snapshots.

use std::future::Future;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use hayloft_conf::{Configuration, DataDir, keys};
use hayloft_console::progress::ProgressStep;
use hayloft_snapshot::{
    CreateOptions, PruneOptions, Rate, RestoreOptions, RestoreVolume, SnapshotError,
    SnapshotErrorKind, SnapshotProgress, Target, VerifyOptions,
};
use hayloft_store::now_ms;
use hayloft_wire::ids::StorageType;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

use super::report;
use super::{
    CreateArgs, ListArgs, PruneArgs, RestoreArgs, SnapshotCommand, SpeedArgs, StoreArgs, VerifyArgs,
};
use crate::error::{CliError, INTERRUPTED};
use crate::given::{conf_dir, typed_dirs};
use crate::log_filter;

/// How often the progress is shown.
const SHOW_EVERY: Duration = Duration::from_millis(200);
/// How long an interrupted command takes to say that it is not at work any more.
const RELEASE_WITHIN: Duration = Duration::from_secs(5);

impl From<SnapshotError> for CliError {
    fn from(error: SnapshotError) -> Self {
        let finding = error.kind() != SnapshotErrorKind::Environment;
        // Its message carries place and advice already.
        let error = Self::new(error.to_string(), "", "");
        if finding { error.finding() } else { error }
    }
}

/// Runs a command.
pub fn run(command: &SnapshotCommand) -> Result<ExitCode, CliError> {
    log_filter::warnings();
    match command {
        SnapshotCommand::Create(args) => create(args),
        SnapshotCommand::List(args) => list(args),
        SnapshotCommand::Verify(args) => verify(args),
        SnapshotCommand::Restore(args) => restore(args),
        SnapshotCommand::Prune(args) => prune(args),
    }
}

fn configuration(store: &StoreArgs) -> Result<Configuration, CliError> {
    let dir = conf_dir(store.place.conf.as_deref())?;
    Ok(Configuration::load(&dir, &[])?)
}

/// Where snapshots are. The configuration is read where it has to say that.
fn url(store: &StoreArgs) -> Result<String, CliError> {
    if let Some(url) = &store.to {
        return Ok(url.clone());
    }
    let configured = configuration(store)?.get(&keys::SNAPSHOT_TO);
    configured.ok_or_else(|| {
        let advice = "give it with --to URL, or set hayloft.snapshot.to";
        CliError::new("nothing says where snapshots are", "", advice)
    })
}

fn rate(speed: &SpeedArgs, config: Option<&Configuration>) -> Rate {
    let configured = || config.map_or(0, |config| config.get(&keys::SNAPSHOT_RATE));
    Rate::new(speed.rate.unwrap_or_else(configured))
}

/// Does a work on threads of its own, and shows how far it is. `None` when it was interrupted: what
/// it has done stays good.
fn on_threads<T>(
    what: &str,
    (target, progress): (&Target, &SnapshotProgress),
    work: impl Future<Output = Result<T, SnapshotError>>,
) -> Result<Option<T>, CliError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|e| CliError::new(format!("cannot start threads: {e}"), "", ""))?;
    let step = ProgressStep::bytes(what, 0);
    let done: std::io::Result<_> = runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut work = std::pin::pin!(work);
        let mut show = tokio::time::interval(SHOW_EVERY);
        loop {
            tokio::select! {
                done = &mut work => return Ok(Some(done)),
                _ = interrupt.recv() => return Ok(None),
                _ = terminate.recv() => return Ok(None),
                _ = show.tick() => {
                    let (done, total) = progress.bytes();
                    step.at_of(done, total);
                }
            }
        }
    });
    let (bytes, _) = progress.bytes();
    match done.map_err(|e| CliError::new(format!("cannot listen for signals: {e}"), "", ""))? {
        Some(Ok(done)) => {
            step.done(&hayloft_console::size::show(bytes));
            Ok(Some(done))
        }
        Some(Err(error)) => Err(error.into()),
        None => {
            runtime.block_on(async { timeout(RELEASE_WITHIN, target.release_claims()).await.ok() });
            eprintln!("hayloft: interrupted; the next run goes on where this one was");
            Ok(None)
        }
    }
}

fn interrupted() -> ExitCode {
    ExitCode::from(INTERRUPTED)
}

fn create(args: &CreateArgs) -> Result<ExitCode, CliError> {
    let config = configuration(&args.store)?;
    let target = Target::open(&url(&args.store)?)?;
    let mut dirs: Vec<(PathBuf, StorageType)> = Vec::new();
    for (_, of_node) in typed_dirs(&config)? {
        dirs.extend(of_node.into_iter().map(|dir| (dir.path, dir.storage_type)));
    }
    let mut nodes = hayloft_snapshot::nodes_on(&dirs)?;
    if let Some(uuid) = &args.store.node {
        nodes = hayloft_snapshot::only(nodes, uuid)?;
    }
    if nodes.is_empty() {
        let dirs: Vec<String> = dirs.iter().map(|(d, _)| d.display().to_string()).collect();
        let advice = "start a node once, or name the configuration of another one with --conf";
        let what = "no node has used the data directories";
        return Err(CliError::new(what, dirs.join(", "), advice).finding());
    }
    let host = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    let mut reports = Vec::new();
    for node in nodes {
        let options = CreateOptions {
            host: host.clone(),
            rate: rate(&args.speed, Some(&config)),
            at_once: usize::from(args.speed.jobs),
            now_ms: now_ms(),
        };
        let progress = SnapshotProgress::default();
        let work = hayloft_snapshot::create(&node, &target, &options, &progress);
        let what = format!("a snapshot of {}", node.datanode_uuid());
        match on_threads(&what, (&target, &progress), work)? {
            Some(report) => reports.push(report),
            None => return Ok(interrupted()),
        }
    }
    report::created(&target, &reports, args.store.place.json)
}

fn list(args: &ListArgs) -> Result<ExitCode, CliError> {
    let target = Target::to_read(&url(&args.store)?)?;
    let progress = SnapshotProgress::default();
    let work = hayloft_snapshot::list(&target, args.store.node.as_deref());
    match on_threads("listing snapshots", (&target, &progress), work)? {
        Some(listed) => report::listed(&target, &listed, now_ms(), args.store.place.json),
        None => Ok(interrupted()),
    }
}

fn verify(args: &VerifyArgs) -> Result<ExitCode, CliError> {
    let target = Target::to_read(&url(&args.store)?)?;
    let options = VerifyOptions {
        node: args.store.node.clone(),
        snapshot: args.snapshot.clone(),
        quick: args.quick,
        rate: rate(&args.speed, None),
        at_once: usize::from(args.speed.jobs),
    };
    let progress = SnapshotProgress::default();
    let work = hayloft_snapshot::verify(&target, &options, &progress);
    match on_threads("verifying a snapshot", (&target, &progress), work)? {
        Some(verified) => report::verified(&verified, args.quick, args.store.place.json),
        None => Ok(interrupted()),
    }
}

/// The directories of the one node that is meant.
fn dirs_of_one(config: &Configuration, name: Option<&str>) -> Result<Vec<DataDir>, CliError> {
    let mut all = typed_dirs(config)?;
    if let Some(name) = name {
        all.retain(|(of, _)| of.as_deref() == Some(name));
    }
    match (all.pop(), all.is_empty()) {
        (Some((_, dirs)), true) => Ok(dirs),
        (Some(_), false) => Err(CliError::new(
            "there are several virtual nodes",
            "hayloft.nodes",
            "name the one whose directories are meant with --virtual-node",
        )),
        (None, _) => Err(CliError::new(
            "there is no such virtual node",
            "hayloft.nodes",
            "leave out --virtual-node, or correct the name",
        )),
    }
}

fn restore(args: &RestoreArgs) -> Result<ExitCode, CliError> {
    let config = configuration(&args.store)?;
    let target = Target::to_read(&url(&args.store)?)?;
    let dirs = dirs_of_one(&config, args.virtual_node.as_deref())?;
    let volumes = dirs.into_iter().map(|dir| RestoreVolume {
        root: dir.path,
        storage_type: dir.storage_type,
    });
    let volumes: Vec<RestoreVolume> = volumes.collect();
    let options = RestoreOptions {
        node: args.store.node.clone(),
        snapshot: args.snapshot.clone(),
        new_identity: args.new_identity,
        rate: rate(&args.speed, None),
        at_once: usize::from(args.speed.jobs),
    };
    let progress = SnapshotProgress::default();
    let work = hayloft_snapshot::restore(&target, &volumes, &options, &progress);
    match on_threads("restoring a snapshot", (&target, &progress), work)? {
        Some(restored) => report::restored(&restored, args.store.place.json),
        None => Ok(interrupted()),
    }
}

fn prune(args: &PruneArgs) -> Result<ExitCode, CliError> {
    let target = Target::open(&url(&args.store)?)?;
    let day = Duration::from_secs(86_400);
    let options = PruneOptions {
        node: args.store.node.clone(),
        keep: usize::from(args.keep),
        keep_within: args.keep_days.map(|days| day * u32::from(days)),
        remove: args.yes,
        now_ms: now_ms(),
    };
    let progress = SnapshotProgress::default();
    let work = hayloft_snapshot::prune(&target, &options);
    match on_threads("looking for what can go", (&target, &progress), work)? {
        Some(pruned) => report::pruned(&pruned, args.store.place.json),
        None => Ok(interrupted()),
    }
}
