//! `hayloft plan cost`: what a cluster costs with local disks, with network disks, and with
//! `SuperDataNodes`.
//!
//! - `layouts`: what each layout needs and costs
//! - `prices`: the file of prices
//! - `report`: how the layouts read as text

mod layouts;
mod prices;
mod report;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::error::CliError;
use crate::json::print_json;

use self::prices::{EXAMPLE, Prices};

/// `hayloft plan cost`.
#[derive(Debug, Args)]
pub struct CostArgs {
    /// Prices and limits of hosts and disks, as TOML.
    #[arg(long, value_name = "FILE", required_unless_present = "example")]
    prices: Option<PathBuf>,
    /// Print such a file, with the prices of a paper, and explain its keys.
    #[arg(long, conflicts_with_all = ["prices", "json"])]
    example: bool,
    /// Report as JSON on stdout.
    #[arg(long)]
    json: bool,
}

/// Plans and reports.
pub fn run(args: &CostArgs) -> Result<ExitCode, CliError> {
    let Some(path) = args.prices.as_ref().filter(|_| !args.example) else {
        print!("{EXAMPLE}");
        return Ok(ExitCode::SUCCESS);
    };
    let prices = Prices::read(path)?;
    let rows = layouts::layouts(&prices)
        .map_err(|problem| CliError::new(problem, path.display().to_string(), ""))?;
    if args.json {
        print_json(&rows)?;
    } else {
        print!("{}", report::text(&prices, &rows));
    }
    Ok(ExitCode::SUCCESS)
}
