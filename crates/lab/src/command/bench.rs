//! `hayloft-lab bench`: the comparison of record, by the lab.

use std::process::ExitCode;
use std::sync::Arc;

use hayloft_bench::cli::BenchArgs;
use hayloft_console::progress::say;

use crate::error::{FINDING, INTERRUPTED, LabError};

/// Measures, prints the page on standard output and says where the rest is.
pub fn run(args: BenchArgs) -> Result<ExitCode, LabError> {
    let words: Vec<String> = std::iter::once("hayloft-lab".to_owned())
        .chain(std::env::args().skip(1))
        .collect();
    let report = args.run(&words, Arc::new(say))?;
    print!("{}", report.text);
    if let Some(out) = &report.out {
        say(&format!("results are in {}", out.display()));
    }
    if let Some(note) = &report.note {
        say(note);
    }
    if report.interrupted {
        say("the run was interrupted: the results are those until then");
        return Ok(ExitCode::from(INTERRUPTED));
    }
    if !report.whole {
        say("some rows failed: see the end of the page");
        return Ok(ExitCode::from(FINDING));
    }
    Ok(ExitCode::SUCCESS)
}
