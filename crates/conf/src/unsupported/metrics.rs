//! `hadoop-metrics2.properties`: sinks to which a JVM pushes its metrics.

use std::collections::BTreeSet;
use std::path::Path;

use super::read_java_files::{properties, read, shown};

/// As Hadoop looks for them: the first that is there counts.
const FILES: [&str; 2] = [
    "hadoop-metrics2-datanode.properties",
    "hadoop-metrics2.properties",
];

/// Names the sinks of a DataNode: those with a setting of the prefix `datanode` and a class, which
/// may be that of all prefixes.
pub(super) fn look(conf: &Path, lines: &mut Vec<String>) {
    let Some((path, text)) = FILES.iter().find_map(|name| read(conf, name, lines)) else {
        return;
    };
    let all = properties(&text);
    let class_of = |sink: &str| {
        let class = |prefix: &str| {
            let key = format!("{prefix}.sink.{sink}.class");
            let mut found = all.iter().filter(|p| p.key == key && !p.value.is_empty());
            found.next_back()
        };
        class("datanode").or_else(|| class("*"))
    };
    let mut seen = BTreeSet::new();
    for property in &all {
        let rest = property.key.strip_prefix("datanode.sink.");
        let Some((sink, _)) = rest.and_then(|rest| rest.split_once('.')) else {
            continue;
        };
        let Some(class) = class_of(sink).filter(|_| seen.insert(sink)) else {
            continue;
        };
        lines.push(format!(
            "{}:{}: the sink {} ({}) gets nothing from a Hayloft node, which pushes no metrics: \
             have your collector read /prom or /jmx of its web port",
            path.display(),
            property.line,
            shown(sink),
            shown(&class.value),
        ));
    }
}
