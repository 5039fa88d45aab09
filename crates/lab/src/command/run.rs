//! `hayloft-lab up`, `run`, `down` and `exec`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use hayloft_lab::describe::Description;
use hayloft_lab::up::{self, Testbed};
use hayloft_lab::{net, report, workload};
use serde_json::json;

use super::place::PlaceArgs;
use super::steps::Steps;
use crate::error::LabError;

/// `hayloft-lab up`.
#[derive(Debug, Args)]
pub struct LabUpArgs {
    /// The description (TOML); docs/develop/lab.md says what it may hold.
    file: PathBuf,
    #[command(flatten)]
    place: PlaceArgs,
    /// Report as JSON on stdout.
    #[arg(long)]
    json: bool,
}

/// `hayloft-lab run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The description (TOML).
    file: PathBuf,
    #[command(flatten)]
    place: PlaceArgs,
    /// Where table, plot and raw data go [default: `report` below the testbed's directory].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Rounds, instead of the description's.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=100))]
    rounds: Option<u16>,
    /// Report as JSON on stdout.
    #[arg(long)]
    json: bool,
}

/// `hayloft-lab down`.
#[derive(Debug, Args)]
pub struct LabDownArgs {
    /// The testbed's name, or its description.
    name: String,
    #[command(flatten)]
    place: PlaceArgs,
}

/// `hayloft-lab exec`.
#[derive(Debug, Args)]
pub struct ExecArgs {
    /// The testbed's name.
    name: String,
    /// The host.
    host: String,
    /// Program and arguments.
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        required = true,
        value_name = "PROGRAM"
    )]
    program: Vec<OsString>,
}

fn describe(file: &Path) -> Result<Description, LabError> {
    Ok(Description::read(file)?)
}

pub fn up(args: &LabUpArgs) -> Result<ExitCode, LabError> {
    let described = describe(&args.file)?;
    let dir = args.place.of(&described.name);
    let mut steps = Steps::new();
    let testbed = Testbed::up(described, &dir, true, &mut |what| steps.tell(what))?;
    steps.done();
    let name = &testbed.described().name;
    let hosts = testbed.described().hosts().enumerate();
    let hosts: Vec<_> = hosts
        .map(|(at, (rack, host))| {
            let nodes = testbed.nodes().iter().filter(|node| node.host == host.name);
            json!({
                "rack": rack.name, "host": host.name, "address": net::address(Some(at)), "client": host.client,
                "nodes": nodes.map(|node| json!({"name": node.name, "address": node.address, "pid": node.pid()})).collect::<Vec<_>>(),
            })
        })
        .collect();
    if args.json {
        println!(
            "{}",
            json!({"name": name, "namenode": testbed.uri(), "dir": testbed.dir(), "hosts": hosts})
        );
        return Ok(ExitCode::SUCCESS);
    }
    println!(
        "testbed {name} is up; NameNode {} (from its hosts)",
        testbed.uri()
    );
    for host in &hosts {
        let nodes = host["nodes"].as_array().map_or(0, Vec::len);
        let text = |key: &str| host[key].as_str().unwrap_or_default().to_owned();
        let client = if host["client"] == true {
            ", client"
        } else {
            ""
        };
        println!(
            "  /{}/{} {}: {nodes} storage nodes{client}",
            text("rack"),
            text("host"),
            text("address")
        );
    }
    println!("run its workload:  hayloft-lab run {}", args.file.display());
    println!("a program there:   hayloft-lab exec {name} HOST PROGRAM");
    println!("take it down:      hayloft-lab down {name}");
    Ok(ExitCode::SUCCESS)
}

pub fn run(args: &RunArgs) -> Result<ExitCode, LabError> {
    let mut described = describe(&args.file)?;
    if let Some(rounds) = args.rounds {
        described.workload.rounds = usize::from(rounds);
    }
    let dir = args.place.of(&described.name);
    let mut steps = Steps::new();
    let testbed = if net::is_there(&described.name)? {
        let mut testbed = Testbed::attach(&dir)?;
        testbed.set_workload(described.workload.clone());
        testbed
    } else {
        Testbed::up(described.clone(), &dir, false, &mut |what| steps.tell(what))?
    };
    let outcome = workload::run(&testbed, &mut |what| steps.tell(what))?;
    steps.done();
    let out = args.out.clone().unwrap_or_else(|| dir.join("report"));
    let command = format!("hayloft-lab run {}", args.file.display());
    report::write(testbed.described(), &outcome, &command, &out)?;
    if args.json {
        println!(
            "{}",
            json!({"phases": outcome.phases, "disks": outcome.disks, "out": out})
        );
    } else {
        println!("{}", report::table(testbed.described(), &outcome));
        println!("table, plot and raw data: {}", out.display());
    }
    Ok(ExitCode::SUCCESS)
}

pub fn down(args: &LabDownArgs) -> Result<ExitCode, LabError> {
    let file = Path::new(&args.name);
    let name = if file.is_file() {
        describe(file)?.name
    } else {
        args.name.clone()
    };
    let dir = args.place.of(&name);
    if !net::is_there(&name)? && !dir.is_dir() {
        return Err(LabError::new(
            format!("there is no testbed {name}"),
            dir.display().to_string(),
            "check the name, and --state if it was brought up with one",
        )
        .finding());
    }
    up::down(&name, &dir)?;
    println!("testbed {name} is down; its logs stay in {}", dir.display());
    Ok(ExitCode::SUCCESS)
}

pub fn exec(args: &ExecArgs) -> Result<ExitCode, LabError> {
    let namespace = net::namespace(&args.name, &args.host);
    let mut argv = hayloft_testkit::where_processes_run::inside(&namespace, Vec::new()).into_iter();
    let program = argv.next().unwrap_or_default();
    let status = std::process::Command::new(&program)
        .args(argv)
        .args(&args.program)
        .status()
        .map_err(LabError::file("start", Path::new(&program)))?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}
