//! `hayloft snapshot`: closed replicas of a node in an object store, and back.

#[cfg(feature = "snapshots")]
mod report;
#[cfg(feature = "snapshots")]
mod work;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use hayloft_console::size;

use crate::error::CliError;
use crate::given::WhereArgs;

/// `hayloft snapshot`.
#[derive(Debug, Args)]
pub struct SnapshotArgs {
    /// What to do.
    #[command(subcommand)]
    command: SnapshotCommand,
}

#[derive(Debug, Subcommand)]
enum SnapshotCommand {
    /// Take a snapshot of each node on the data directories, running or not. What the store has
    /// already is not written again (exit code 1 if a replica is damaged, and left out).
    Create(CreateArgs),
    /// List the snapshots that are there (exit code 1 if one cannot be used).
    List(ListArgs),
    /// Read a snapshot back and compare it with its checksums (exit code 1 if something of it is
    /// missing or altered).
    Verify(VerifyArgs),
    /// Put a snapshot on the data directories of a node that does not run; on empty ones, too.
    /// What lies there stays (exit code 1 if something of it is missing or altered).
    Restore(RestoreArgs),
    /// Say which old snapshots and which objects that none names would go; with --yes remove them.
    Prune(PruneArgs),
}

/// Where snapshots are, and how the command works.
#[derive(Debug, Args)]
struct StoreArgs {
    #[command(flatten)]
    place: WhereArgs,
    /// Where snapshots are: s3://BUCKET/PREFIX, gs://.., azblob://.. or file:///DIR
    /// [default: hayloft.snapshot.to].
    #[arg(long, visible_alias = "from", value_name = "URL")]
    to: Option<String>,
    /// Only the snapshots of this node, by its uuid.
    #[arg(long, value_name = "UUID")]
    node: Option<String>,
}

/// How fast bytes go.
#[derive(Debug, Args)]
struct SpeedArgs {
    /// At most so many bytes a second, such as 50MiB; 0 for no limit
    /// [default: hayloft.snapshot.rate].
    #[arg(long, value_name = "BYTES", value_parser = size::parse)]
    rate: Option<u64>,
    /// Replicas on their way at a time; each takes up to 32 MiB of memory.
    #[arg(long, value_name = "N", default_value_t = 4,
        value_parser = clap::value_parser!(u8).range(1..=32))]
    jobs: u8,
}

#[derive(Debug, Args)]
struct CreateArgs {
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    speed: SpeedArgs,
}

#[derive(Debug, Args)]
struct ListArgs {
    #[command(flatten)]
    store: StoreArgs,
}

#[derive(Debug, Args)]
struct VerifyArgs {
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    speed: SpeedArgs,
    /// The snapshot, by the name that `list` gives it [default: the newest].
    #[arg(long, value_name = "NAME")]
    snapshot: Option<String>,
    /// Compare names and lengths alone, and read no block.
    #[arg(long)]
    quick: bool,
}

#[derive(Debug, Args)]
struct RestoreArgs {
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    speed: SpeedArgs,
    /// The snapshot, by the name that `list` gives it [default: the newest].
    #[arg(long, value_name = "NAME")]
    snapshot: Option<String>,
    /// The data directories are another node's from now on, whose uuid is made up if they are
    /// empty. Without it they are those of the node that was lost.
    #[arg(long)]
    new_identity: bool,
    /// The virtual node whose directories are meant, where hayloft.nodes has several.
    #[arg(long, value_name = "NAME")]
    virtual_node: Option<String>,
}

#[derive(Debug, Args)]
struct PruneArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// Keep so many of the newest snapshots of each node.
    #[arg(long, value_name = "N", default_value_t = 7,
        value_parser = clap::value_parser!(u16).range(1..))]
    keep: u16,
    /// Keep those of the last days, too.
    #[arg(long, value_name = "DAYS")]
    keep_days: Option<u16>,
    /// Remove them; without it nothing is changed.
    #[arg(long)]
    yes: bool,
}

/// Does what was asked for.
#[cfg(feature = "snapshots")]
pub fn run(args: &SnapshotArgs) -> Result<ExitCode, CliError> {
    work::run(&args.command)
}

/// Says that this build cannot.
#[cfg(not(feature = "snapshots"))]
pub fn run(args: &SnapshotArgs) -> Result<ExitCode, CliError> {
    // Every argument has been checked, so that scripts can be tried out.
    let _ = (&args.command, size::show);
    Err(CliError::new(
        "this build of hayloft has no snapshots",
        "cargo feature snapshots",
        "use target/release/hayloft, which 'make build' makes",
    ))
}
