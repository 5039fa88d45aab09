//! The `hayloft-lab` command: what Hayloft is measured and tried on.
//!
//! | module | what it is |
//! |---|---|
//! | `command` | `bench`, the clusters of hosts and shaped links, modelled disks, experiments |
//! | `error` | what users are told when something fails, and exit codes |
//!
//! It starts nodes with the `hayloft` beside it, or the one that `HAYLOFT_BIN` names.

#[macro_use]
extern crate hayloft_console;

mod command;
mod error;

use std::process::ExitCode;

use clap::Parser as _;
use hayloft_io::PatientAllocator;

use command::LabCli;

/// A measurement does not end because memory is short for a moment.
#[global_allocator]
static ALLOCATOR: PatientAllocator = PatientAllocator;

fn main() -> ExitCode {
    let cli = match LabCli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are answers, not errors.
            if !error.use_stderr() {
                let _ = error.print();
                return ExitCode::SUCCESS;
            }
            let text = error.render().to_string();
            eprint!("hayloft-lab: {text}");
            return ExitCode::from(error::USAGE);
        }
    };
    hayloft_testkit::hadoop::use_binary_beside();
    match command::run(cli) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("hayloft-lab: error: {error}");
            ExitCode::from(error.code())
        }
    }
}
