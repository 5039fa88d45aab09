//! `hayloft top`: what nodes do now, in a terminal, as a table, or as JSON.
//!
//! | module | what it is |
//! |---|---|
//! | `find_nodes` | which nodes there are, by the command line or by NameNodes |
//! | `ask_nodes` | asking all of them |
//! | `parse_live` | a node's answer at `/live` |
//! | `rates` | what happened between two answers |
//! | `finding` | what is wrong or slow, and why, as nodes judge it |
//! | `table` | rows of nodes and disks, and all of them as text |
//! | `draw`, `screen` | the picture, and the terminal with its keys |
//! | `units` | figures in few columns |

mod ask_nodes;
mod draw;
mod find_nodes;
mod finding;
mod parse_live;
mod rates;
mod screen;
mod table;
mod units;

pub use find_nodes::fetch;

use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use hayloft_conf::HostPort;

use self::ask_nodes::{ClusterView, Sampler};
use self::find_nodes::NodeSource;
use crate::error::{CliError, FINDING};

/// `hayloft top`.
#[derive(Debug, Args)]
pub struct TopArgs {
    /// Web port of a node (dfs.datanode.http.address), instead of all that the NameNodes know.
    /// May be repeated.
    #[arg(long, value_name = "HOST:PORT", value_parser = address, conflicts_with = "namenode")]
    pub node: Vec<HostPort>,
    /// Web port of the NameNode that knows the nodes (dfs.namenode.http-address)
    /// [default: those of the configuration].
    #[arg(long, value_name = "HOST:PORT", value_parser = address)]
    pub namenode: Option<HostPort>,
    /// Directory of core-site.xml and hdfs-site.xml
    /// [default: $HADOOP_CONF_DIR, $HADOOP_HOME/etc/hadoop or /etc/hadoop/conf].
    #[arg(long, value_name = "DIR")]
    pub conf: Option<PathBuf>,
    /// Seconds between two samples.
    #[arg(long, value_name = "S", default_value_t = 1,
        value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub interval: u64,
    /// Print one sample and stop (exit code 1 if a node does not answer). Without --json this is
    /// what happens when stdout is no terminal.
    #[arg(long)]
    pub once: bool,
    /// Print one JSON object a line for each sample, until it is stopped.
    #[arg(long)]
    pub json: bool,
    /// Use no colours; nor are there any when NO_COLOR is set.
    #[arg(long)]
    pub no_color: bool,
}

fn address(text: &str) -> Result<HostPort, String> {
    HostPort::parse_with_default(text, None).map_err(|allowed| format!("must be {allowed}"))
}

/// Shows nodes until the user has seen enough.
pub fn run(args: &TopArgs) -> Result<ExitCode, CliError> {
    let source = NodeSource::of(&args.node, args.namenode.as_ref(), args.conf.as_deref())?;
    let mut sampler = Sampler::new(source);
    let interval = Duration::from_secs(args.interval);
    if !args.json && !args.once && std::io::stdout().is_terminal() {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        return screen::run(sampler, interval, !args.no_color && !unwanted);
    }
    // Rates need two.
    sampler.sample();
    loop {
        std::thread::sleep(interval);
        let view = sampler.sample();
        let text = if args.json {
            format!("{}\n", view.to_json())
        } else {
            table::text(&view)
        };
        // A reader that has left has seen enough.
        let mut stdout = std::io::stdout().lock();
        let written = stdout
            .write_all(text.as_bytes())
            .and_then(|()| stdout.flush());
        if written.is_err() || args.once || !args.json {
            return conclude(&view);
        }
    }
}

/// The exit code of a sample.
fn conclude(view: &ClusterView) -> Result<ExitCode, CliError> {
    if view.nodes.is_empty() {
        let advice = "check the address of its web port, or name nodes with --node HOST:PORT";
        return Err(match view.problems.first() {
            Some(problem) => CliError::new(problem, "", advice),
            None => CliError::new("the NameNode knows no nodes", "", "start a node").finding(),
        });
    }
    if view.silent() > 0 || !view.problems.is_empty() {
        return Ok(ExitCode::from(FINDING));
    }
    Ok(ExitCode::SUCCESS)
}
