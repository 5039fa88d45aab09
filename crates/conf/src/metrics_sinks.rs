//! `hadoop-metrics2.properties`: the sinks that a node pushes its metrics to.
//!
//! - `filter`: which sources, records and metrics a sink gets
//! - `options`: the file's options, and how Hadoop looks for one
//!
//! Sinks are those of Hadoop for Graphite, StatsD and files. One that a node cannot serve is a
//! warning, and hinders no start.

mod filter;
mod options;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use filter::SinkFilter;

use super::address::HostPort;
use super::configuration::Configuration;
use super::read_java_files::shown;
use options::{Options, SINKS_OF_NODE};

/// Sinks of a node, at most.
const SINKS_MAX: usize = 16;
const PERIOD_DEFAULT: u64 = 10;
const PERIOD_SECONDS_MAX: u64 = 86_400;
const GRAPHITE: &str = "org.apache.hadoop.metrics2.sink.GraphiteSink";
const STATSD: &str = "org.apache.hadoop.metrics2.sink.StatsDSink";
const FILE: &str = "org.apache.hadoop.metrics2.sink.FileSink";

/// A sink that a node pushes its metrics to.
#[derive(Clone, Debug)]
pub struct MetricsSink {
    /// Its name in the file.
    pub name: String,
    /// The file, and the line that says its class.
    pub place: String,
    /// Where the metrics go.
    pub target: SinkTarget,
    /// How often.
    pub period: Duration,
    /// Only records of this context, if there is one.
    pub context: Option<String>,
    /// Which sources it gets; `None`: all.
    pub sources: Option<SinkFilter>,
    /// Which records.
    pub records: Option<SinkFilter>,
    /// Which of their metrics.
    pub metrics: Option<SinkFilter>,
}

/// Where a sink's metrics go, and in which form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SinkTarget {
    /// Lines over TCP.
    Graphite {
        /// The server.
        server: HostPort,
        /// What the names begin with.
        prefix: String,
    },
    /// A datagram for each metric.
    StatsD {
        /// The server.
        server: HostPort,
        /// Whether names begin with the host.
        with_host: bool,
        /// What comes before the context in names of records that name no process.
        service: Option<String>,
    },
    /// Lines of a file; `None` is standard output.
    File(Option<PathBuf>),
}

impl fmt::Display for MetricsSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, seconds) = (shown(&self.name), self.period.as_secs());
        match &self.target {
            SinkTarget::Graphite { server, .. } => write!(f, "{name}: Graphite at {server}")?,
            SinkTarget::StatsD { server, .. } => write!(f, "{name}: StatsD at {server}")?,
            SinkTarget::File(Some(path)) => write!(f, "{name}: the file {}", path.display())?,
            SinkTarget::File(None) => write!(f, "{name}: standard output")?,
        }
        write!(f, ", every {seconds} s ({})", self.place)
    }
}

/// The sinks of a configuration directory.
#[derive(Clone, Debug, Default)]
pub struct MetricsSinks {
    /// Those that the node serves.
    pub sinks: Vec<MetricsSink>,
    /// A sentence for each thing that Apache's node would do and this one does not.
    pub warnings: Vec<String>,
}

impl Configuration {
    /// The sinks in the directory that this was loaded from. Blocking.
    #[must_use]
    pub fn metrics_sinks(&self) -> MetricsSinks {
        self.directory().map(MetricsSinks::read).unwrap_or_default()
    }
}

impl MetricsSinks {
    /// Reads the first that is there of a node's file of sinks and the one of all daemons.
    pub(super) fn read(conf: &Path) -> Self {
        let mut found = Self::default();
        let Some(options) = Options::read(conf, &mut found.warnings) else {
            return found;
        };
        let sinks = options.sinks();
        for sink in sinks.iter().take(SINKS_MAX) {
            // Without a class there is no sink, as for Apache's node.
            let Some(class) = options.first(sink, "class") else {
                continue;
            };
            match MetricsSink::of(&options, sink) {
                Ok(served) => found.sinks.push(served),
                Err(why) => found.warnings.push(format!(
                    "{}: the sink {} ({}) gets nothing from a Hayloft node, {why}",
                    options.place(class.line),
                    shown(sink),
                    shown(&class.value),
                )),
            }
        }
        if sinks.len() > SINKS_MAX {
            found.warnings.push(format!(
                "{}: only the first {SINKS_MAX} of {} sinks get metrics: remove some",
                options.place(1),
                sinks.len()
            ));
        }
        if let Some((key, line)) = options.filter_of_sources() {
            found.warnings.push(format!(
                "{}: {} has no effect: give each sink its filter ({SINKS_OF_NODE}NAME.record.\
                 filter and so on)",
                options.place(line),
                shown(key)
            ));
        }
        found
    }
}

impl MetricsSink {
    /// The sink of that name, or why it is not served and what to do.
    fn of(options: &Options, name: &str) -> Result<Self, String> {
        let text = |key: &str| options.text(name, key);
        let (class, line) = match options.first(name, "class") {
            Some(class) => (class.value.as_str(), class.line),
            None => ("", 0),
        };
        let target = match class {
            GRAPHITE => SinkTarget::Graphite {
                server: server(options, name, ["server_host", "server_port"])?,
                prefix: text("metrics_prefix")?.unwrap_or_default(),
            },
            STATSD => SinkTarget::StatsD {
                server: server(options, name, ["server.host", "server.port"])?,
                with_host: !is_true(text("skip.hostname")?),
                service: text("service.name")?,
            },
            FILE => SinkTarget::File(text("filename")?.map(PathBuf::from)),
            _ => {
                return Err(
                    "which pushes to Graphite, StatsD and files only: have your collector read \
                     /prom or /jmx of its web port"
                        .to_owned(),
                );
            }
        };
        let period = match options.number(name, "period", 1..=PERIOD_SECONDS_MAX)? {
            Some(seconds) => seconds,
            None => PERIOD_DEFAULT,
        };
        Ok(Self {
            name: name.to_owned(),
            place: options.place(line),
            target,
            period: Duration::from_secs(period),
            context: text("context")?,
            sources: SinkFilter::of(options, name, "source.filter")?,
            records: SinkFilter::of(options, name, "record.filter")?,
            metrics: SinkFilter::of(options, name, "metric.filter")?,
        })
    }
}

fn server(options: &Options, sink: &str, [host, port]: [&str; 2]) -> Result<HostPort, String> {
    let missing = |key: &str| format!("since its {key} is missing: set {SINKS_OF_NODE}NAME.{key}");
    let name = options.text(sink, host)?.ok_or_else(|| missing(host))?;
    let number = options.number(sink, port, 1..=u64::from(u16::MAX))?;
    let number = number.and_then(|port| u16::try_from(port).ok());
    Ok(HostPort {
        host: name,
        port: number.ok_or_else(|| missing(port))?,
    })
}

/// As the library of configurations that Hadoop uses reads it.
fn is_true(text: Option<String>) -> bool {
    let text = text.unwrap_or_default().to_lowercase();
    ["true", "yes", "on", "t", "y", "1"].contains(&text.as_str())
}
