//! `hayloft swap`: a host's DataNode changed over to Hayloft and back, and which of the two runs.
//!
//! | module | what it is |
//! |---|---|
//! | `host` | what this host has: directories, their user, how its nodes are started |
//! | `limited` | commands that are ended when they hang |
//! | `scripts` | what Hadoop's shell sources of the configuration, and as whom it is asked |
//! | `running` | which node holds the directories |
//! | `profile` | the file that makes Hadoop's shell start Hayloft |
//! | `change` | stop, change the profile, start: in a process that outlives this one |
//! | `ask` | what the NameNode and the node's web port say |
//! | `ask_by_rpc` | the same by RPC, with Kerberos |
//! | `clients` | clients of the name services |
//! | `view` | what both tell of this host's node |
//! | `probe` | blocks read from the node, and one written |
//! | `steps` | what is done in turn |
//! | `report` | what is told of it |
//!
//! A swap that is killed leaves one of the two nodes running: what happens between the stop and the
//! start is done by a process in a session of its own. If that one is killed, `hayloft swap` begins
//! another one.

mod ask;
mod ask_by_rpc;
mod change;
mod clients;
mod host;
mod limited;
mod probe;
mod profile;
mod report;
mod running;
mod scripts;
mod steps;
mod view;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};

use crate::error::CliError;
use host::HostArgs;

/// `hayloft swap`.
#[derive(Debug, Args)]
pub struct SwapArgs {
    /// What to do.
    #[command(subcommand)]
    command: SwapCommand,
}

#[derive(Debug, Subcommand)]
enum SwapCommand {
    /// Put Hayloft's node in the place of Apache's, and go back when it does not serve.
    In(TurnArgs),
    /// Put Apache's node in the place of Hayloft's.
    Out(TurnArgs),
    /// Say which node runs, which starts next, and how NameNodes see it (exit code 3 if none
    /// runs, 1 if a NameNode does not know it).
    Status(HostArgs),
    /// For this program itself: stop one node and start the other.
    #[command(hide = true)]
    Change(change::ChangeArgs),
}

/// `hayloft swap in` and `out`.
#[derive(Debug, Args)]
struct TurnArgs {
    #[command(flatten)]
    host: HostArgs,
    /// Say each step, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Seconds within which the node has to be live and to have reported its blocks.
    #[arg(long, value_name = "S", default_value_t = 300,
        value_parser = clap::value_parser!(u64).range(10..=86_400))]
    within: u64,
    /// Go on although the NameNode misses other nodes or blocks.
    #[arg(long)]
    although_missing: bool,
}

/// Carries the command out.
pub fn run(args: &SwapArgs) -> Result<ExitCode, CliError> {
    let (turn, to) = match &args.command {
        SwapCommand::In(turn) => (turn, running::WhichNode::Hayloft),
        SwapCommand::Out(turn) => (turn, running::WhichNode::Apache),
        SwapCommand::Status(args) => return status(args),
        SwapCommand::Change(args) => return Ok(change::carry_out(args)),
    };
    let host = host::SwapHost::find(&turn.host)?;
    let wanted = steps::Turnover {
        to,
        dry_run: turn.dry_run,
        within: Duration::from_secs(turn.within),
        although_missing: turn.although_missing,
    };
    steps::turn_over(&host, wanted).tell(turn.host.place.json)
}

fn status(args: &HostArgs) -> Result<ExitCode, CliError> {
    let host = host::SwapHost::find(args)?;
    steps::look(&host).tell(args.place.json)
}
