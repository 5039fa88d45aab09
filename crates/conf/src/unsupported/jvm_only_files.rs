//! What stands beside Hadoop's configuration files and only a JVM reads: sinks of metrics that a
//! node of ours does not serve, agents and flags, appenders of log4j. The node says so before an
//! operator misses it.
//!
//! Files are read up to 1 MiB. Scripts are read as text, not carried out.

use std::path::Path;

use super::{flags, log4j};
use crate::metrics_sinks::MetricsSinks;

/// Lines that are said, at most; the rest is counted.
const LINES_MAX: usize = 40;

/// Sentences on what Apache's DataNode takes from the directory `conf` and from the environment,
/// of which `variable` gives a value, and a Hayloft node does not. Blocking.
#[must_use]
pub fn missed_from_java(conf: &Path, variable: &dyn Fn(&str) -> Option<String>) -> Vec<String> {
    let mut lines = Vec::new();
    let flags = flags::of(conf, variable, &mut lines);
    lines.extend(MetricsSinks::read(conf).warnings);
    flags::say(&flags, &mut lines);
    log4j::look(conf, &flags, &mut lines);
    let more = lines.len().saturating_sub(LINES_MAX);
    if more > 0 {
        lines.truncate(LINES_MAX);
        lines.push(format!("{more} more of this kind"));
    }
    lines
}
