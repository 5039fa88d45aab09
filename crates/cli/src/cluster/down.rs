//! `hayloft down`: stop everything, lose nothing.

use std::process::ExitCode;

use hayloft_console::progress::{ProgressStep, say};
use serde::Serialize;

use super::start_processes::{self, Ended};
use super::state_directory::{Role, StateDir};
use crate::args::DownArgs;
use crate::error::CliError;

#[derive(Debug, Serialize)]
struct Stopped {
    name: String,
    ended: Ended,
}

/// Stops the storage nodes, then the NameNode, then the KDC.
pub fn run(args: &DownArgs) -> Result<ExitCode, CliError> {
    let state = StateDir::new(&args.place.state())?;
    state.require()?;
    let _lock = state.lock()?;
    let mut cluster = state.require()?;
    let running = cluster.roles().filter(|role| role.is_alive()).count();
    if running == 0 {
        say(&format!("nothing runs in {}", state.path().display()));
    }
    let nodes: Vec<&Role> = cluster.nodes.iter().collect();
    let step =
        (running > 0).then(|| ProgressStep::spinner(format!("stopping {running} processes")));
    let mut endings = start_processes::stop(&nodes)?;
    endings.extend(start_processes::stop(&[&cluster.namenode])?);
    endings.extend(start_processes::stop(
        &cluster.kdc.iter().collect::<Vec<_>>(),
    )?);
    let names = cluster
        .nodes
        .iter()
        .chain([&cluster.namenode])
        .chain(&cluster.kdc)
        .map(|role| role.name.clone());
    let stopped: Vec<Stopped> = names
        .zip(endings)
        .map(|(name, ended)| Stopped { name, ended })
        .collect();
    step.map(|step| step.done(""));
    cluster.namenode.process = None;
    let others = cluster.nodes.iter_mut().chain(&mut cluster.kdc);
    others.for_each(|role| role.process = None);
    state.save(&cluster)?;
    if args.json {
        crate::json::print_json(&stopped)?;
    } else if running > 0 {
        println!(
            "stopped; the data stays in {} for the next '{}'",
            state.path().display(),
            cluster.up_command()
        );
    }
    Ok(ExitCode::SUCCESS)
}
