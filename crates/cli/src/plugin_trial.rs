//! `hayloft plugin-trial`, which this program starts by itself: what a plug-in may crash, hang or
//! end is done in a process that nothing else depends on. Its answer is one line.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use hayloft_contract::{CONTRACT_CASES, ContractCase, EngineRig, try_out, within};
use hayloft_io::one_line_process::{Line, ask};
use hayloft_io::{
    Disk, DiskConfig, Engine, EngineConfig, IoError, engine_for, load_plugin_for_trial,
    try_plugins_by,
};
use serde_json::{Value, json};

use crate::disk_look_process::OWN_PROGRAM;
use crate::error::CliError;

/// What a process takes besides the case in it.
const SPARE: Duration = Duration::from_secs(10);

/// `hayloft plugin-trial`.
#[derive(Debug, Args)]
pub struct TrialArgs {
    #[command(subcommand)]
    what: Trial,
}

#[derive(Debug, Subcommand)]
enum Trial {
    /// Load a shared object and read its table.
    Load {
        /// The shared object.
        so: PathBuf,
    },
    /// Carry out a case of the contract, or without one open a volume.
    Case(CaseArgs),
}

/// A case on an engine.
#[derive(Args, Clone, Debug)]
pub struct CaseArgs {
    /// The engine, as the configuration has it.
    pub engine: String,
    /// Where its files are made.
    pub dir: PathBuf,
    /// Seconds.
    #[arg(long)]
    pub limit: u64,
    /// Take the device over.
    #[arg(long)]
    pub wipe_device: bool,
    /// Name of the case.
    #[arg(long)]
    pub case: Option<String>,
}

/// What a case came to, in a process of its own.
#[derive(Debug)]
pub struct TriedPlugin {
    /// What is wrong, as a sentence; `None`: nothing.
    pub wrong: Option<String>,
    /// Why the engine is another one than was asked for.
    pub remark: Option<String>,
    /// What the case took, in seconds.
    pub seconds: f64,
}

/// Has plug-ins of this process loaded in another one first.
pub fn install() {
    try_plugins_by(Path::new(OWN_PROGRAM), &["plugin-trial", "load"]);
}

/// Carries out what the process was started for.
pub fn run(args: &TrialArgs) -> Result<ExitCode, CliError> {
    let done = match &args.what {
        Trial::Load { so } => load_plugin_for_trial(so),
        Trial::Case(args) => carry_out(args),
    };
    done.map_err(|error| CliError::new(format!("cannot answer: {error}"), "", ""))?;
    Ok(ExitCode::SUCCESS)
}

fn carry_out(args: &CaseArgs) -> std::io::Result<()> {
    let line = Line::take()?;
    // A case that panics: its words are in the answer.
    std::panic::set_hook(Box::new(|_| ()));
    let limit = Duration::from_secs(args.limit);
    let named = |case: &&ContractCase| Some(case.name) == args.case.as_deref();
    let case = CONTRACT_CASES.iter().find(named).copied();
    let made = args.clone();
    let answer = match case {
        Some(case) => {
            let outcome = try_out(case, move || rig(&made).map(|(rig, _)| rig), limit);
            json!({"wrong": outcome.wrong, "seconds": outcome.took.as_secs_f64()})
        }
        None => {
            let look = move || {
                rig(&made)
                    .map(|(_, remark)| remark)
                    .map_err(|e| e.to_string())
            };
            match within(limit, look) {
                Ok(remark) => json!({"remark": remark}),
                Err(wrong) => json!({"wrong": wrong}),
            }
        }
    };
    line.say(&answer.to_string())
}

fn rig(args: &CaseArgs) -> Result<(EngineRig, Option<String>), IoError> {
    let mut remark = None;
    let make = |root: &Path, disk: &Arc<Disk>| -> Result<Arc<dyn Engine>, IoError> {
        let mut config = EngineConfig::new(Arc::clone(disk));
        config.wipe_device = args.wipe_device;
        let choice = engine_for(&args.engine, root, &config)?;
        remark = choice.remark;
        Ok(choice.engine)
    };
    let rig = EngineRig::new(&args.dir, DiskConfig::default(), make)?;
    Ok((rig, remark))
}

/// Carries out a case in a process of its own, or only opens a volume there.
pub fn try_apart(args: &CaseArgs) -> Result<TriedPlugin, CliError> {
    let mut command = Command::new(OWN_PROGRAM);
    command.args(["plugin-trial", "case"]);
    command.arg("--limit").arg(args.limit.to_string());
    if args.wipe_device {
        command.arg("--wipe-device");
    }
    if let Some(case) = &args.case {
        command.arg("--case").arg(case);
    }
    command.arg("--").arg(&args.engine).arg(&args.dir);
    let limit = Duration::from_secs(args.limit).saturating_add(SPARE);
    let said = ask(&mut command, limit).map_err(|error| {
        let what = format!("cannot start a process for the engine: {error}");
        CliError::new(what, "", "raise the limit on processes (ulimit -u)")
    })?;
    let answer = said.and_then(|line| {
        let answer = serde_json::from_str::<Value>(&line);
        answer.map_err(|_| "said what is no answer".to_owned())
    });
    let text = |answer: &Value, what: &str| answer[what].as_str().map(str::to_owned);
    Ok(match answer {
        Ok(answer) => TriedPlugin {
            wrong: text(&answer, "wrong"),
            remark: text(&answer, "remark"),
            seconds: answer["seconds"].as_f64().unwrap_or_default(),
        },
        Err(how) => TriedPlugin {
            wrong: Some(format!("in a process of its own it {how}")),
            remark: None,
            seconds: 0.0,
        },
    })
}
