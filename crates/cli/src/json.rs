//! Reports as JSON.

use serde::Serialize;

use crate::error::CliError;

/// Prints a report as JSON on stdout.
pub fn print_json(report: &impl Serialize) -> Result<(), CliError> {
    let text = serde_json::to_string_pretty(report)
        .map_err(|error| CliError::new(format!("cannot write JSON: {error}"), "", ""))?;
    println!("{text}");
    Ok(())
}
