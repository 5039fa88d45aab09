//! What a sink gets of the records, in the form of Hadoop's sink of that kind.

use std::fmt::Write as _;
use std::time::Duration;

use hayloft_conf::{MetricsSink, SinkFilter, SinkTarget};

use crate::http::{HOST, Record};

/// Lines for a stream or a file, or datagrams.
pub(super) type Lines = Vec<String>;

/// Those of the records that the sink wants, at that time since 1970.
///
/// Virtual nodes have the host's name, and the same metrics: theirs begins with the `node`'s.
pub(super) fn of(
    sink: &MetricsSink,
    mut records: Vec<Record>,
    node: Option<&str>,
    at: Duration,
) -> Lines {
    records.retain_mut(|record| {
        let passes = |filter: &Option<SinkFilter>, name: &str| {
            filter.as_ref().is_none_or(|filter| filter.accepts(name))
        };
        record
            .metrics
            .retain(|metric| passes(&sink.metrics, &metric.name));
        let tags = sink.records.as_ref();
        let context = sink.context.as_deref();
        context.is_none_or(|context| context == context_of(record))
            && passes(&sink.sources, &record.source)
            && passes(&sink.records, record.name)
            && tags.is_none_or(|filter| filter.accepts_tags(&record.tags))
    });
    if let Some(node) = node {
        let hosts = records.iter_mut().flat_map(|record| &mut record.tags);
        for (_, host) in hosts.filter(|(tag, _)| tag == HOST) {
            *host = host.take().map(|host| format!("{node}-{host}"));
        }
    }
    let records = records.iter();
    match &sink.target {
        SinkTarget::Graphite { prefix, .. } => {
            records.map(|record| graphite(record, prefix, at)).collect()
        }
        SinkTarget::StatsD {
            with_host, service, ..
        } => records
            .flat_map(|record| statsd(record, (*with_host, node), service.as_deref()))
            .collect(),
        SinkTarget::File(_) => records.map(|record| file(record, at)).collect(),
    }
}

fn context_of(record: &Record) -> &str {
    record.tag("Context").unwrap_or("default")
}

/// `PREFIX.CONTEXT.RECORD.TAG=VALUE.METRIC VALUE SECONDS`, a line for each metric.
fn graphite(record: &Record, prefix: &str, at: Duration) -> String {
    let mut path = format!("{prefix}.{}.{}", context_of(record), record.name);
    for (tag, value) in &record.tags {
        if let Some(value) = value {
            let _ = write!(path, ".{tag}={value}");
        }
    }
    let mut lines = String::new();
    for metric in &record.metrics {
        let name = metric.name.replace(' ', ".");
        let _ = writeln!(lines, "{path}.{name} {} {}", metric.value, at.as_secs());
    }
    lines
}

/// `HOST.SERVICE.CONTEXT.RECORD.METRIC:VALUE|TYPE` for each metric. The host is without its domain.
/// Where it shall be left out, a virtual node still has its own name: the metrics are not one's.
fn statsd(
    record: &Record,
    (with_host, node): (bool, Option<&str>),
    service: Option<&str>,
) -> Lines {
    let host = record.tag(HOST).filter(|_| with_host).or(node);
    let host = host.map_or(String::new(), |host| {
        format!("{}.", host.split('.').next().unwrap_or(host))
    });
    // Java's sink writes that for what is missing.
    let service = record.tag("ProcessName").or(service).unwrap_or("null");
    let path = format!(
        "{host}{service}.{}.{}",
        context_of(record),
        record.name.replace('.', "-")
    );
    let metrics = record.metrics.iter().map(|metric| {
        let kind = if metric.grows { 'c' } else { 'g' };
        let name = metric.name.replace(' ', "_");
        format!("{path}.{name}:{}|{kind}", metric.value)
    });
    metrics.collect()
}

/// `MILLISECONDS CONTEXT.RECORD: TAG=VALUE, METRIC=VALUE`, a line for each record.
fn file(record: &Record, at: Duration) -> String {
    let mut line = format!("{} {}.{}", at.as_millis(), context_of(record), record.name);
    let tags = record.tags.iter();
    let tags = tags.map(|(tag, value)| (tag, value.clone().unwrap_or("null".to_owned())));
    let metrics = record.metrics.iter();
    let metrics = metrics.map(|metric| (&metric.name, metric.value.to_string()));
    for (at, (name, value)) in tags.chain(metrics).enumerate() {
        let between = if at == 0 { ": " } else { ", " };
        let _ = write!(line, "{between}{name}={value}");
    }
    line + "\n"
}
