//! `hayloft-load --help`.

use clap::Parser as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    match hayloft_testkit::load::cli::LoadCli::parse().run() {
        Ok(Some(report)) => {
            println!("{report:#}");
            ExitCode::SUCCESS
        }
        Ok(None) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hayloft-load: error: {error}");
            ExitCode::from(2)
        }
    }
}
