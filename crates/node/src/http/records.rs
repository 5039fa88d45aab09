//! Beans as the records that Apache's node gives to its sinks of metrics.
//!
//! Names of records, the order of tags and what only grows are facts of Hadoop 3.5.0.

use serde_json::{Number, Value};

use super::jmx::Bean;
use super::{WebHost, jmx_state_beans};

/// Beans by how their names begin, their records, and the tags of those in order; the host's comes
/// last. The longest comes first of beans that begin alike.
const RECORDS: [(&str, &str, &[&str]); 6] = [
    ("DataNodeActivity-", "datanode", &["SessionId", "Context"]),
    ("DataNodeVolume-", "FsVolume", &["Context", "VolumeName"]),
    (
        "FSDatasetState",
        jmx_state_beans::DATASET,
        &["Context", "StorageInfo"],
    ),
    (
        "RpcDetailedActivityForPort",
        "rpcdetailed",
        &["port", "Context"],
    ),
    (
        "RpcActivityForPort",
        "rpc",
        &["port", "serverName", "Context", USERS],
    ),
    (
        "JvmMetrics",
        "JvmMetrics",
        &["Context", "ProcessName", "SessionId"],
    ),
];
/// A tag that is different at each look.
pub(super) const USERS: &str = "NumOpenConnectionsPerUser";
/// A tag of all records.
pub(crate) const HOST: &str = "Hostname";

/// What is measured at a time.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    /// The name of what is measured, such as `DataNodeActivity-host-9866`.
    pub source: String,
    /// The kind of the record.
    pub name: &'static str,
    /// Names and values of tags.
    pub tags: Vec<(String, Option<String>)>,
    /// What was measured.
    pub metrics: Vec<Metric>,
}

/// A number of a record.
#[derive(Clone, Debug)]
pub(crate) struct Metric {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: Number,
    /// Whether Apache's node calls it a counter.
    pub grows: bool,
}

/// All records, as of now.
pub(crate) fn records(host: &dyn WebHost) -> Vec<Record> {
    let beans = jmx_state_beans::all(host).into_iter();
    beans.filter_map(Record::of).collect()
}

impl Record {
    /// That of a bean. Beans without tags, and those that Apache's node lacks, have none.
    pub(super) fn of(bean: Bean) -> Option<Self> {
        bean.attributes.get("tag.Context")?;
        let (_, source) = bean.name.split_once("name=")?;
        let known = RECORDS
            .iter()
            .find(|(begins, ..)| source.starts_with(begins));
        let (_, name, tags) = known?;
        let tag = |tag: &&str| {
            let value = match bean.attributes.get(&format!("tag.{tag}"))? {
                Value::Null => None,
                Value::String(text) => Some(text.clone()),
                other => Some(other.to_string()),
            };
            Some(((*tag).to_owned(), value))
        };
        let tags = tags.iter().chain([&HOST]).filter_map(tag).collect();
        let source = source.to_owned();
        let metrics = bean.attributes.into_iter().filter_map(|(metric, value)| {
            let Value::Number(value) = value else {
                return None;
            };
            let grows = only_grows(name, &metric);
            Some(Metric {
                name: metric,
                value,
                grows,
            })
        });
        Some(Self {
            source,
            name,
            tags,
            metrics: metrics.collect(),
        })
    }

    /// The value of a tag.
    pub(crate) fn tag(&self, name: &str) -> Option<&str> {
        let found = self.tags.iter().find(|(tag, _)| tag == name);
        found?.1.as_deref()
    }
}

/// What Apache's node counts: most of its metrics.
fn only_grows(record: &str, metric: &str) -> bool {
    if metric.ends_with("AvgTime") {
        return false;
    }
    if metric.ends_with("NumOps") {
        return true;
    }
    match record {
        "datanode" => !metric.starts_with("DataNode") && !metric.contains("PendingIBR"),
        "rpc" => metric.starts_with("Rpc") || metric.ends_with("Bytes"),
        "JvmMetrics" => metric.starts_with("Gc"),
        "FsVolume" => true,
        _ => false,
    }
}
