//! `log4j.properties`: appenders that send lines somewhere else than to a file.

use std::collections::BTreeMap;
use std::path::Path;

use super::flags::Flag;
use crate::read_java_files::{JavaProperty, java_properties, read, shown};

/// Appenders whose lines a service manager gets from a node's stderr, and those of Hadoop that
/// send nothing.
const AS_HERE: [&str; 9] = [
    "org.apache.log4j.ConsoleAppender",
    "org.apache.log4j.FileAppender",
    "org.apache.log4j.RollingFileAppender",
    "org.apache.log4j.DailyRollingFileAppender",
    "org.apache.log4j.rolling.RollingFileAppender",
    "org.apache.log4j.varia.NullAppender",
    "org.apache.hadoop.hdfs.util.AsyncRFAAppender",
    "org.apache.hadoop.log.metrics.EventCounter",
    "org.apache.hadoop.metrics2.util.Metrics2Appender",
];
/// Loggers of other daemons, whose settings are in the same file; a DataNode logs nothing to them.
const OF_OTHERS: [&str; 6] = [
    "org.apache.hadoop.hdfs.server.namenode",
    "org.apache.hadoop.yarn",
    "org.apache.hadoop.mapred",
    "org.apache.hadoop.mapreduce",
    "BlockStateChange",
    "NameNodeMetricsLog",
];
/// `${...}` inside `${...}`.
const DEPTH_MAX: usize = 8;
/// Bytes of a value with all of its `${...}` replaced.
const VALUE_MAX: usize = 4096;
/// What a logger is set by.
const LOGGERS: [&str; 2] = ["log4j.logger.", "log4j.category."];
const ROOTS: [&str; 2] = ["log4j.rootLogger", "log4j.rootCategory"];

/// Names appenders that a logger uses and that have no counterpart.
pub(super) fn look(conf: &Path, flags: &[Flag], lines: &mut Vec<String>) {
    let Some((path, text)) = read(conf, "log4j.properties", lines) else {
        return;
    };
    let all = java_properties(&text);
    let mut values: BTreeMap<&str, &str> = BTreeMap::new();
    for JavaProperty { key, value, .. } in &all {
        values.insert(key, value);
    }
    // Those of the command line win.
    for flag in flags {
        if let Some((key, value)) = flag.word.strip_prefix("-D").and_then(|d| d.split_once('=')) {
            values.insert(key, value);
        }
    }
    let is_logger = |key: &str| {
        let named = LOGGERS.iter().find_map(|prefix| key.strip_prefix(prefix));
        let ours = |name: &str| !OF_OTHERS.iter().any(|other| name.starts_with(other));
        ROOTS.contains(&key) || named.is_some_and(ours)
    };
    let mut used: BTreeMap<String, &JavaProperty> = BTreeMap::new();
    for property in all.iter().filter(|property| is_logger(&property.key)) {
        let value = replaced(&property.value, &values);
        // First the level, then the appenders.
        let names = value.split(',').skip(1).map(str::trim);
        for name in names.filter(|name| !name.is_empty()) {
            used.entry(name.to_owned()).or_insert(property);
        }
    }
    for (name, logger) in used {
        let class = values.get(format!("log4j.appender.{name}").as_str());
        let class = class
            .map(|class| replaced(class, &values))
            .unwrap_or_default();
        if class.is_empty() || AS_HERE.contains(&class.as_str()) {
            continue;
        }
        lines.push(format!(
            "{}:{}: the appender {} ({}) of {} gets nothing from a Hayloft node, which logs to \
             stderr: have the service manager or its log shipper forward that",
            path.display(),
            logger.line,
            shown(&name),
            shown(&class),
            shown(&logger.key),
        ));
    }
}

/// The value with each `${name}` replaced; one that is not known is empty.
fn replaced(value: &str, values: &BTreeMap<&str, &str>) -> String {
    let mut text = value.to_owned();
    for _ in 0..DEPTH_MAX {
        let Some(begin) = text.find("${") else { break };
        let Some(len) = text[begin..].find('}') else {
            break;
        };
        let name = text[begin + 2..begin + len].to_owned();
        let by = values.get(name.as_str()).copied().unwrap_or_default();
        text.replace_range(begin..=begin + len, by);
        if text.len() > VALUE_MAX {
            break;
        }
    }
    text
}
