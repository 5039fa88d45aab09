//! The daemon's log: lines on stderr, for the service manager to keep.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

/// Environment variable with the log filter, such as `info` or `hayloft_node::xceiver=debug`.
const FILTER_VARIABLE: &str = "HAYLOFT_LOG";

/// Starts logging to stderr: coloured on a terminal unless `NO_COLOR` is set.
pub fn start() {
    let filter =
        EnvFilter::try_from_env(FILTER_VARIABLE).unwrap_or_else(|_| EnvFilter::new("info"));
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(colour)
        .init();
}
