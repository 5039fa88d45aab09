//! `hayloft topology`: where this node is, for the NameNode's racks and the placement plug-in.
//!
//! | module | what it is |
//! |---|---|
//! | `sources` | the options that say whom to ask |
//! | `write` | the files that NameNodes read, once or as the place changes |
//! | `suits` | whether this machine should run a DataNode |

mod sources;
mod suits;
mod write;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use hayloft_topology::{RackPath, SourceSaid, Whereabouts, choose};
use serde_json::{Value, json};

use crate::error::{CliError, FINDING};

use self::sources::SourceArgs;
use self::suits::SuitsArgs;
use self::write::{WatchArgs, WriteArgs};

/// `hayloft topology`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct TopologyArgs {
    /// What to do about the answer; without it, the answer is printed.
    #[command(subcommand)]
    command: Option<TopologyCommand>,
    /// Whom to ask.
    #[command(flatten)]
    sources: SourceArgs,
    /// Report as JSON on stdout.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum TopologyCommand {
    /// Write the table, the script and the failure domains that NameNodes read.
    Write(WriteArgs),
    /// Go on asking, and write when the place has changed.
    Watch(WatchArgs),
    /// Say whether this machine should run a DataNode (exit code 1 if not).
    Suits(SuitsArgs),
}

/// Answers.
pub fn run(args: &TopologyArgs) -> Result<ExitCode, CliError> {
    match &args.command {
        Some(TopologyCommand::Write(args)) => write::write(args),
        Some(TopologyCommand::Watch(args)) => write::watch(args),
        Some(TopologyCommand::Suits(args)) => suits::run(args),
        None => {
            let said = args.sources.panel()?.ask();
            let chosen = choose(&said, None);
            if args.json {
                crate::json::print_json(&to_json(&args.sources, chosen, &said))?;
                return Ok(ExitCode::from(if chosen.is_some() { 0 } else { FINDING }));
            }
            let (source, place) = chosen.ok_or_else(|| none_found(&said))?;
            print_place(&args.sources, source, place);
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn print_place(sources: &SourceArgs, source: &str, place: &Whereabouts) {
    let host = place
        .host
        .as_ref()
        .map_or("not known", |host| host.as_str());
    println!("host      {host}");
    println!("rack      {}", sources.rack_of(place));
    for (n, how) in place.how.iter().enumerate() {
        let label = if n == 0 { "found by" } else { "" };
        println!("{label:<9} {source}: {how}");
    }
}

fn to_json(
    sources: &SourceArgs,
    chosen: Option<(&str, &Whereabouts)>,
    said: &[SourceSaid],
) -> Value {
    let place = chosen.map(|(_, place)| place);
    let rack = place.map(|place| sources.rack_of(place));
    json!({
        "host": place.and_then(|place| place.host.as_ref()),
        "rack": rack.as_ref().map(RackPath::as_str),
        "source": chosen.map(|(source, _)| source),
        "how": place.map_or(&[][..], |place| &place.how),
        "asked": said.iter().map(asked).collect::<Vec<_>>(),
    })
}

fn asked(said: &SourceSaid) -> Value {
    match &said.answer {
        Ok(place) => json!({"source": said.source, "place": place}),
        Err(problem) => json!({"source": said.source, "problem": problem.0}),
    }
}

/// No source knows: exit code 1, and what each said.
fn none_found(said: &[SourceSaid]) -> CliError {
    let lines = said.iter().filter_map(|said| {
        let problem = said.answer.as_ref().err()?;
        Some(format!("\n  {}: {problem}", said.source))
    });
    let lines: String = lines.collect();
    let advice = format!("name a file with --source file:PATH, or mend what is said here:{lines}");
    CliError::new("no source says where this machine is", "", advice).finding()
}
