//! The `hayloft` command.
//!
//! | module | what it is |
//! |---|---|
//! | `args` | the command line |
//! | `error` | what users are told when something fails, and exit codes |
//! | `node` | `hayloft node`: the daemon |
//! | `check_live` | whether a node answers |
//! | `calibrate` | `hayloft calibrate`: what a volume's device does |
//! | `plan` | `hayloft plan`: disks and workers of a node, from calibrations |
//! | `doctor` | `hayloft doctor`: what makes a host slow or unsafe for a node |
//! | `cold` | `hayloft cold`: files not used any more, and their storage policy |
//! | `device_check` | `hayloft engine fsck`: stubs compared with their device |
//! | `engine` | `hayloft engine`: the I/O engines, and plug-ins tried out |
//! | `cluster` | a cluster of real processes in one directory: `up`, `down`, `status`, `fs` |
//! | `parity` | `hayloft parity`: parity over the disks of a node |
//! | `papers` | manual and completions, written for a package |
//! | `disk_look_process` | processes that look at disks which may hang |
//! | `plugin_trial` | what a plug-in may crash, in a process of its own |
//! | `pfs` | `hayloft pfs`: files on a parallel file system |
//! | `placement` | `hayloft placement`: blocks that break the rule on failure domains |
//! | `profile` | `hayloft profile`: what jobs need where storage stands apart |
//! | `snapshot` | `hayloft snapshot`: a node's replicas in an object store, and back |
//! | `secure_user` | a start as root, which becomes another user |
//! | `super_node` | `hayloft super`: virtual nodes, as the cluster has to know them |
//! | `swap` | `hayloft swap`: Apache's node changed for ours, and back |
//! | `topology` | `hayloft topology`: where this node is |
//! | `trash` | `hayloft trash`: what upgrades left on the data directories |
//! | `top` | `hayloft top`: what the nodes of a cluster do now |
//! | `svg` | pictures as files |
//! | `json` | reports as JSON |
//! | `log_file`, `log_filter`, `log_line` | the daemon's log: its file, levels and lines |
//! | `given` | what commands take from their environment and arguments: paths, properties |
//!
//! What is printed goes through `hayloft_console`, whose macros bear readers that have left.

#[macro_use]
extern crate hayloft_console;

mod args;
mod calibrate;
mod check_live;
mod cluster;
mod cold;
mod device_check;
mod disk_look_process;
mod doctor;
mod engine;
mod error;
mod given;
mod json;
mod log_file;
mod log_filter;
mod log_line;
mod node;
mod papers;
mod parity;
mod pfs;
mod placement;
mod plan;
mod plugin_trial;
mod profile;
mod secure_user;
mod snapshot;
mod super_node;
mod svg;
mod swap;
mod top;
mod topology;
mod trash;

use std::process::ExitCode;

use hayloft_io::PatientAllocator;

use clap::{CommandFactory as _, Parser as _};

use args::{Cli, Command};
use error::CliError;

/// A node does not end because memory is short for a moment.
#[global_allocator]
static ALLOCATOR: PatientAllocator = PatientAllocator;

fn main() -> ExitCode {
    let arguments = args::accept_apache_forms(std::env::args_os());
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are answers, not errors.
            if !error.use_stderr() {
                let _ = error.print();
                return ExitCode::SUCCESS;
            }
            let text = error.render().to_string();
            eprint!("hayloft: {text}");
            return ExitCode::from(error::USAGE);
        }
    };
    match run(cli) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("hayloft: error: {error}");
            ExitCode::from(error.code())
        }
    }
}

fn run(cli: Cli) -> Result<ExitCode, CliError> {
    if !matches!(cli.command, Command::PluginTrial(_)) {
        plugin_trial::install();
    }
    match cli.command {
        Command::Node(args) => node::run(&args),
        Command::Up(args) => cluster::up::run(&args),
        Command::Down(args) => cluster::down::run(&args),
        Command::Status(args) => cluster::status::run(&args),
        Command::Fs(args) => cluster::fs::run(&args),
        Command::Pfs(args) => pfs::run(&args),
        Command::Placement(args) => placement::run(&args),
        Command::Parity(args) => parity::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Topology(args) => topology::run(&args),
        Command::Trash(args) => trash::run(&args),
        Command::Snapshot(args) => snapshot::run(&args),
        Command::Super(args) => super_node::run(&args),
        Command::Engine(args) => engine::run(&args),
        Command::PluginTrial(args) => plugin_trial::run(&args),
        Command::Swap(args) => swap::run(&args),
        Command::Papers(args) => papers::run(&args, Cli::command()),
        Command::Calibrate(args) => calibrate::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Profile(args) => profile::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Cold(args) => cold::run(&args),
    }
}
