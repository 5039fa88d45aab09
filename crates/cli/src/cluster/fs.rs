//! `hayloft fs`: the stock shell on the running cluster.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use hayloft_cluster::hadoop::{Hadoop, Jvm, class};

use super::secure::Secured;
use super::state_directory::StateDir;
use crate::args::FsArgs;
use crate::error::CliError;

/// Becomes `org.apache.hadoop.fs.FsShell`: its input, output and exit code are the shell's own.
pub fn run(args: &FsArgs) -> Result<ExitCode, CliError> {
    let state = StateDir::new(&args.place.state())?;
    let cluster = state.require()?;
    if !cluster.namenode.is_alive() {
        let place = state.path().display().to_string();
        return Err(CliError::new(
            "the cluster is not running",
            place,
            format!("start it with '{}'", cluster.up_command()),
        ));
    }
    let mut hadoop = Hadoop::locate_in(args.place.hadoop_home().as_deref())?;
    if let Some(secured) = Secured::of(&state, &cluster) {
        secured.get_ticket()?;
        hadoop.enter(&secured.realm);
    }
    let jvm = Jvm::small(&state.client_conf(), &state.logs(), 512);
    let spawn = hadoop.java("fs", &jvm, class::FS_SHELL, &[]);
    let error = Command::new(&spawn.argv[0])
        .args(&spawn.argv[1..])
        .args(&args.args)
        .envs(spawn.env)
        .exec();
    Err(CliError::no_java(&error, &spawn.argv[0]))
}
