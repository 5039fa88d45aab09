//! `hayloft engine`: the I/O engines with what an acknowledgement rests on, plug-ins tried out, and
//! devices checked.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use hayloft_contract::{CONTRACT_CASES, ContractCase};
use hayloft_io::{EngineDescription, IoError, PLUGIN_PREFIX, describe_plugin, engine_descriptions};
use serde_json::json;

use crate::device_check::{self, FsckArgs};
use crate::error::{CliError, FINDING};
use crate::json::print_json;
use crate::plugin_trial::{CaseArgs, TriedPlugin, try_apart};

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
    /// Test a plug-in against the contract of all engines, case by case, with scratch files in DIR
    /// (exit code 1 if it breaks one).
    Test(TestArgs),
    /// Compare the stubs of a data directory with its device: headers, stubs without a place,
    /// places that two name, how much is free and in how many pieces (exit code 1 if something is
    /// wrong). Changes nothing.
    Fsck(FsckArgs),
}

#[derive(Debug, Args)]
struct ListArgs {
    /// Plug-ins to describe too, by what they say of themselves.
    #[arg(value_name = "SO")]
    plugins: Vec<PathBuf>,
    /// Report as JSON on stdout.
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
    /// Print the table of the documentation.
    #[arg(long)]
    markdown: bool,
}

#[derive(Debug, Args)]
struct TestArgs {
    /// The shared object, or the name of an engine of the list.
    #[arg(value_name = "SO")]
    engine: String,
    /// A directory on the file system that it is for. What is made there is removed again.
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Options of the plug-in: what the configuration has after its path.
    #[arg(long, value_name = "TEXT", default_value = "")]
    options: String,
    /// Let the plug-in take over its device, whatever is on it: ALL OF IT IS LOST.
    #[arg(long)]
    wipe_device: bool,
    /// Run only the cases whose names contain this.
    #[arg(long, value_name = "TEXT", default_value = "")]
    case: String,
    /// Seconds after which a case has failed.
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
        EngineCommand::Fsck(args) => device_check::run(args),
    }
}

fn list(args: &ListArgs) -> Result<ExitCode, CliError> {
    let mut all = engine_descriptions();
    for path in &args.plugins {
        let path = absolute(path)?;
        all.push(describe_plugin(&path).map_err(|error| unusable(&error))?);
    }
    if args.json {
        print_json(&all)?;
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
    let on = CaseArgs {
        engine: name.clone(),
        dir: args.dir.clone(),
        limit: args.limit,
        wipe_device: args.wipe_device,
        case: None,
    };
    // One look first: what cannot be loaded fails once, not with every case.
    let looked = try_apart(&on)?;
    if let Some(why) = looked.wrong {
        return Err(CliError::new(why, name, ""));
    }
    if let Some(remark) = looked.remark {
        eprintln!("hayloft: {remark}");
    }
    let cases = CONTRACT_CASES
        .iter()
        .filter(|c| c.name.contains(&args.case));
    let cases: Vec<_> = cases.collect();
    if cases.is_empty() {
        let text = format!("no case is named like {:?}", args.case);
        return Err(CliError::new(text, "--case", "leave it out to run all"));
    }
    let mut outcomes = Vec::new();
    for case in cases {
        // A process each: an engine that crashes or hangs in one costs no other.
        let tried = try_apart(&CaseArgs {
            case: Some(case.name.to_owned()),
            ..on.clone()
        })?;
        if !args.json {
            say(case, &tried);
        }
        outcomes.push((case, tried));
    }
    let failed = outcomes.iter().filter(|(_, tried)| tried.wrong.is_some());
    let failed = failed.count();
    if args.json {
        let cases = outcomes.iter().map(|(case, tried)| {
            json!({
                "case": case.name,
                "demand": case.demand,
                "passed": tried.wrong.is_none(),
                "wrong": tried.wrong,
                "seconds": tried.seconds,
            })
        });
        let cases: Vec<_> = cases.collect();
        print_json(&json!({"engine": name, "failed": failed, "cases": cases}))?;
    } else {
        let passed = outcomes.len() - failed;
        println!("{name}: {passed} passed, {failed} failed");
    }
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

fn say(case: &ContractCase, tried: &TriedPlugin) {
    let words = case.name.replace('_', " ");
    match &tried.wrong {
        None => println!("ok      {words} ({:.1} s)", tried.seconds),
        Some(wrong) => {
            println!("FAILED  {words}: {wrong}");
            println!("        hayloft_engine.h: {}", case.demand);
        }
    }
}

fn absolute(path: &Path) -> Result<PathBuf, CliError> {
    std::path::absolute(path).map_err(CliError::file("find", path))
}

fn unusable(error: &IoError) -> CliError {
    CliError::new(error.to_string(), "", "")
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
