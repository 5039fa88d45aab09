//! `hayloft engine`: the I/O engines with what an acknowledgement rests on, and plug-ins tried out.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use hayloft_contract::{CONTRACT_CASES, CaseOutcome, EngineRig, try_out, within};
use hayloft_io::{
    Disk, DiskConfig, Engine, EngineConfig, EngineDescription, IoError, PLUGIN_PREFIX,
    describe_plugin, engine_descriptions, engine_for,
};
use serde_json::json;

use crate::error::{CliError, FINDING};

/// `hayloft engine`.
#[derive(Debug, Args)]
pub struct EngineArgs {
    /// What to do.
    #[command(subcommand)]
    command: EngineCommand,
}

#[derive(Debug, Subcommand)]
enum EngineCommand {
    /// Print each engine: what an acknowledgement rests on, whether Apache's DataNode may take
    /// over, and when to choose it.
    List(ListArgs),
    /// Try out a plug-in: the contract of all engines, case by case, on scratch files in DIR
    /// (exit code 1 if it breaks one).
    Test(TestArgs),
}

#[derive(Debug, Args)]
struct ListArgs {
    /// Plug-ins to describe too: what they say of themselves.
    #[arg(value_name = "SO")]
    plugins: Vec<PathBuf>,
    /// Report as JSON on stdout.
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
    /// As the table of the documentation.
    #[arg(long)]
    markdown: bool,
}

#[derive(Debug, Args)]
struct TestArgs {
    /// The shared object, or the name of an engine of the list.
    #[arg(value_name = "SO")]
    engine: String,
    /// A directory on the file system that it is for; what is made there goes again.
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// What the configuration has after the path.
    #[arg(long, value_name = "TEXT", default_value = "")]
    options: String,
    /// Take the device of the plug-in over, whatever is on it: ALL OF IT IS LOST.
    #[arg(long)]
    wipe_device: bool,
    /// Only cases whose name contains this.
    #[arg(long, value_name = "TEXT", default_value = "")]
    case: String,
    /// A case that lasts longer has failed.
    #[arg(long, value_name = "SECONDS", default_value_t = 60,
        value_parser = clap::value_parser!(u64).range(1..=3600))]
    limit: u64,
    /// Report as JSON on stdout.
    #[arg(long)]
    json: bool,
}

/// Lists engines, or tries one out.
pub fn run(args: &EngineArgs) -> Result<ExitCode, CliError> {
    match &args.command {
        EngineCommand::List(args) => list(args),
        EngineCommand::Test(args) => test(args),
    }
}

fn list(args: &ListArgs) -> Result<ExitCode, CliError> {
    let mut all = engine_descriptions();
    for path in &args.plugins {
        let path = absolute(path)?;
        all.push(describe_plugin(&path).map_err(|error| unusable(&error))?);
    }
    if args.json {
        println!("{}", pretty(&json!(all))?);
    } else if args.markdown {
        print!("{}", markdown(&all));
    } else {
        for engine in &all {
            println!("{}", engine.name);
            for (what, text) in facts(engine) {
                println!("  {what:<28}{text}");
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn facts(engine: &EngineDescription) -> [(&'static str, &str); 6] {
    let swap = if engine.swap { "yes" } else { "no" };
    [
        ("an acknowledged byte is in", engine.acknowledged),
        ("Apache's node may take over", swap),
        ("sync", engine.sync),
        ("trim", engine.trim),
        ("choose it for", engine.choose),
        ("weak at", engine.weak),
    ]
}

/// The tables of docs/develop/engines.md: what holds, and when to choose which.
fn markdown(all: &[EngineDescription]) -> String {
    let mut text = String::new();
    let heads = [
        "| Engine | An acknowledged byte is in | Apache's node may take over | Sync | Trim |",
        "| Engine | Choose it for | Weak at |",
    ];
    for (head, range) in heads.into_iter().zip([0..4, 4..6]) {
        let rule = "|---".repeat(range.len() + 1);
        text += &format!("{head}\n{rule}|\n");
        for engine in all {
            let cells = facts(engine).map(|(_, text)| text);
            text += &format!(
                "| `{}` | {} |\n",
                engine.name,
                cells[range.clone()].join(" | ")
            );
        }
        text.push('\n');
    }
    text
}

fn test(args: &TestArgs) -> Result<ExitCode, CliError> {
    let name = engine_name(args)?;
    // One look first: what cannot be loaded fails once, not with every case.
    let limit = Duration::from_secs(args.limit);
    let made = {
        let (name, dir, wipe) = (name.clone(), args.dir.clone(), args.wipe_device);
        move || rig(&name, &dir, wipe)
    };
    let first = made.clone();
    let looked = within(limit, move || first().map(drop).map_err(|e| e.to_string()));
    looked.map_err(|why| CliError::new(why, name.clone(), ""))?;
    let cases = CONTRACT_CASES
        .iter()
        .filter(|c| c.name.contains(&args.case));
    let cases: Vec<_> = cases.copied().collect();
    if cases.is_empty() {
        let text = format!("no case is named like {:?}", args.case);
        return Err(CliError::new(text, "--case", "leave it out to run all"));
    }
    // A case that fails panics; its words are printed below.
    std::panic::set_hook(Box::new(|_| ()));
    let mut outcomes = Vec::new();
    for case in cases {
        let outcome = try_out(case, made.clone(), limit);
        if !args.json {
            say(&outcome);
        }
        outcomes.push(outcome);
    }
    let failed = outcomes.iter().filter(|outcome| outcome.wrong.is_some());
    let failed = failed.count();
    if args.json {
        let cases = outcomes.iter().map(|outcome| {
            json!({
                "case": outcome.name,
                "passed": outcome.wrong.is_none(),
                "wrong": outcome.wrong,
                "seconds": outcome.took.as_secs_f64(),
            })
        });
        let cases: Vec<_> = cases.collect();
        println!(
            "{}",
            pretty(&json!({"engine": name, "failed": failed, "cases": cases}))?
        );
    } else {
        let passed = outcomes.len() - failed;
        println!("{name}: {passed} passed, {failed} failed");
    }
    // A case that hangs has threads that never end: they end with the process.
    Ok(if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(FINDING)
    })
}

/// As the configuration has it.
fn engine_name(args: &TestArgs) -> Result<String, CliError> {
    let known = engine_descriptions();
    if known.iter().any(|engine| engine.name == args.engine) {
        return Ok(args.engine.clone());
    }
    let path = args.engine.strip_prefix(PLUGIN_PREFIX);
    let path = absolute(Path::new(path.unwrap_or(&args.engine)))?;
    let name = format!("{PLUGIN_PREFIX}{} {}", path.display(), args.options);
    Ok(name.trim_end().to_owned())
}

fn rig(name: &str, dir: &Path, wipe_device: bool) -> Result<EngineRig, IoError> {
    let make = |root: &Path, disk: &Arc<Disk>| -> Result<Arc<dyn Engine>, IoError> {
        let mut config = EngineConfig::new(Arc::clone(disk));
        config.wipe_device = wipe_device;
        let choice = engine_for(name, root, &config)?;
        if let Some(remark) = choice.remark {
            eprintln!("hayloft: {remark}");
        }
        Ok(choice.engine)
    };
    EngineRig::new(dir, DiskConfig::default(), make)
}

fn say(outcome: &CaseOutcome) {
    let words = outcome.name.replace('_', " ");
    let seconds = outcome.took.as_secs_f64();
    match &outcome.wrong {
        None => println!("ok      {words} ({seconds:.1} s)"),
        Some(wrong) => println!("FAILED  {words}: {wrong}"),
    }
}

fn absolute(path: &Path) -> Result<PathBuf, CliError> {
    std::path::absolute(path).map_err(CliError::file("find", path))
}

fn unusable(error: &IoError) -> CliError {
    CliError::new(error.to_string(), "", "")
}

fn pretty(value: &serde_json::Value) -> Result<String, CliError> {
    serde_json::to_string_pretty(value)
        .map_err(|error| CliError::new(format!("cannot write JSON: {error}"), "", ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_the_table_of_the_program() {
        let page = include_str!("../../../docs/develop/engines.md");
        let table = markdown(&engine_descriptions());
        assert!(
            page.contains(&table),
            "docs/develop/engines.md lacks:\n{table}"
        );
    }
}
