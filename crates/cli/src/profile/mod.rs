//! `hayloft profile`: what the programs above a cluster should set.
//!
//! | module | what it is |
//! |---|---|
//! | `compute_properties` | which properties each tool gets, their values and reasons |
//! | `paste` | the form in which each tool's users paste them |
//! | `what_is_set` | what a directory sets now, and where |
//! | `difference` | what of the profile is missing there, other or equal |
//! | `flink_lines` | Flink's file as keys and values |

mod compute_properties;
mod difference;
mod flink_lines;
mod paste;
mod what_is_set;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::json;

use crate::error::{CliError, FINDING};
use crate::json::print_json;

use self::compute_properties::{ComputeTool, JobLayout};
use self::difference::ProfileVerdict;
use self::what_is_set::JobsConf;

/// `hayloft profile`.
#[derive(Debug, Args)]
pub struct ProfileArgs {
    /// For what.
    #[command(subcommand)]
    command: ProfileCommand,
}

#[derive(Debug, Subcommand)]
enum ProfileCommand {
    /// What lets jobs keep disks and links busy, with a reason each. Nothing is written.
    Compute(ComputeArgs),
}

#[derive(Debug, Args)]
struct ComputeArgs {
    /// The tool whose properties are printed.
    #[arg(long = "for", value_name = "TOOL", value_enum)]
    tool: ComputeTool,
    /// Where jobs run.
    #[arg(long, value_enum)]
    layout: JobLayout,
    /// Print what differs in this directory of the tool's configuration instead (exit code 1 if
    /// something does, or cannot be judged).
    #[arg(long, value_name = "DIR")]
    conf: Option<PathBuf>,
    /// Report as JSON on stdout.
    #[arg(long)]
    json: bool,
}

/// Answers.
pub fn run(args: &ProfileArgs) -> Result<ExitCode, CliError> {
    let ProfileCommand::Compute(args) = &args.command;
    let (tool, layout) = (args.tool, args.layout);
    let properties = compute_properties::properties(tool, layout);
    let mut answer = json!({
        "for": tool, "layout": layout, "names_of": tool.names_of(),
        "nothing_to_set": tool.nothing_to_set(),
    });
    let Some(dir) = &args.conf else {
        if args.json {
            answer["properties"] = json!(properties);
            print_json(&answer)?;
        } else {
            print!("{}", paste::text(tool, &properties));
        }
        return Ok(ExitCode::SUCCESS);
    };
    let conf = JobsConf::read(dir, tool, &properties)?;
    let judged: Vec<_> = properties
        .iter()
        .map(|property| difference::judge(property, &conf))
        .collect();
    let equal = judged
        .iter()
        .all(|one| one.verdict == ProfileVerdict::Equal);
    if args.json {
        answer["equal"] = json!(equal);
        answer["conf"] = json!(dir.display().to_string());
        answer["properties"] = json!(judged);
        print_json(&answer)?;
    } else {
        print!("{}", difference::text(&judged));
    }
    Ok(ExitCode::from(if equal { 0 } else { FINDING }))
}
