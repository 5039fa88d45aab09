//! `/prom`: the beans under the names that Apache's node gives them, for dashboards that are there.
//!
//! A name is that of Apache's record and the attribute's, in small letters with `_` between words;
//! the tags of the bean are labels. Those are facts of Hadoop 3.5.0 as its own `/prom` shows them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

use super::jmx::Bean;
use super::prom_text::escaped;

/// Beans by how their names begin, and their records, in the words of metrics. The longest comes
/// first of those that begin alike.
const RECORDS: [(&str, &str); 6] = [
    ("DataNodeActivity-", "datanode"),
    ("DataNodeVolume-", "fs_volume"),
    (
        "FSDatasetState",
        "org_apache_hadoop_hdfs_server_datanode_fsdataset_impl_fs_dataset_impl",
    ),
    ("RpcDetailedActivityForPort", "rpcdetailed"),
    ("RpcActivityForPort", "rpc"),
    ("JvmMetrics", "jvm_metrics"),
];

/// A tag that is no label: it is different at each look.
const NO_LABEL: &str = "NumOpenConnectionsPerUser";

/// Metrics of these beans; beans of which Apache's node has none are left out.
pub(super) fn exposition(beans: &[Bean]) -> String {
    let mut families: BTreeMap<String, (&str, String)> = BTreeMap::new();
    for bean in beans {
        let Some(record) = record_of(bean) else {
            continue;
        };
        let labels = labels(bean);
        for (attribute, value) in &bean.attributes {
            if attribute.starts_with("tag.") || !value.is_number() {
                continue;
            }
            let name = format!("{record}_{}", in_words(attribute));
            let (_, samples) = families
                .entry(name.clone())
                .or_insert_with(|| (kind(record, attribute), String::new()));
            let _ = writeln!(samples, "{name}{{{labels}}} {value}");
        }
    }
    let mut text = String::new();
    for (name, (kind, samples)) in families {
        let _ = write!(text, "# TYPE {name} {kind}\n{samples}");
    }
    text
}

/// The record of a bean with tags: those without are not metrics.
fn record_of(bean: &Bean) -> Option<&'static str> {
    bean.attributes.get("tag.Context")?;
    let (_, name) = bean.name.split_once("name=")?;
    let record = RECORDS.iter().find(|(begins, _)| name.starts_with(begins));
    record.map(|(_, record)| *record)
}

fn labels(bean: &Bean) -> String {
    let tags = bean.attributes.iter().filter_map(|(name, value)| {
        let tag = name.strip_prefix("tag.").filter(|tag| *tag != NO_LABEL)?;
        let value = match value {
            Value::String(text) => escaped(text),
            other => other.to_string(),
        };
        Some(format!("{}=\"{value}\"", tag.to_ascii_lowercase()))
    });
    tags.collect::<Vec<_>>().join(",")
}

/// What Apache's node calls it: most only grow.
fn kind(record: &str, attribute: &str) -> &'static str {
    let grows = if attribute.ends_with("AvgTime") {
        false
    } else if attribute.ends_with("NumOps") {
        true
    } else {
        match record {
            "datanode" => !attribute.starts_with("DataNode") && !attribute.contains("PendingIBR"),
            "rpc" => attribute.starts_with("Rpc") || attribute.ends_with("Bytes"),
            "jvm_metrics" => attribute.starts_with("Gc"),
            "fs_volume" => true,
            _ => false,
        }
    };
    if grows { "counter" } else { "gauge" }
}

/// `BlocksInPendingIBR` as `blocks_in_pending_ibr`.
fn in_words(attribute: &str) -> String {
    let letters: Vec<char> = attribute.chars().collect();
    let mut words = String::with_capacity(attribute.len() + 8);
    for (at, letter) in letters.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|before| letters.get(before));
        let after = letters.get(at + 1).copied().unwrap_or_default();
        let begins = before.is_some_and(|before| {
            let in_capitals = before.is_ascii_uppercase() || *before == '_';
            letter.is_ascii_uppercase() && (!in_capitals || after.is_ascii_lowercase())
        });
        if begins {
            words.push('_');
        }
        words.push(letter.to_ascii_lowercase());
    }
    words
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;

    #[test]
    fn names_are_apaches() {
        for (attribute, words) in [
            ("BlocksInPendingIBR", "blocks_in_pending_ibr"),
            ("MemNonHeapCommittedM", "mem_non_heap_committed_m"),
            ("TotalDataFileIos", "total_data_file_ios"),
            ("NumBlocksFailedToUnCache", "num_blocks_failed_to_un_cache"),
            ("RpcQueueTimeNumOps", "rpc_queue_time_num_ops"),
            ("Capacity", "capacity"),
        ] {
            assert_eq!(in_words(attribute), words);
        }
    }

    #[test]
    fn beans_of_a_kind_are_one_family() {
        let volume = |path: &str, errors: u64| Bean {
            name: format!("Hadoop:service=DataNode,name=DataNodeVolume-{path}"),
            class: String::new(),
            attributes: Map::from_iter([
                ("tag.Context".into(), json!("dfs")),
                ("tag.VolumeName".into(), json!(path)),
                ("tag.NumOpenConnectionsPerUser".into(), json!("{}")),
                ("TotalFileIoErrors".into(), json!(errors)),
                ("ReadIoRateAvgTime".into(), json!(0.5)),
            ]),
        };
        let mut info = volume("/1", 9);
        info.name = "Hadoop:service=DataNode,name=DataNodeInfo".into();
        let wanted = "# TYPE fs_volume_read_io_rate_avg_time gauge\n\
            fs_volume_read_io_rate_avg_time{context=\"dfs\",volumename=\"/1\"} 0.5\n\
            fs_volume_read_io_rate_avg_time{context=\"dfs\",volumename=\"/2\"} 0.5\n\
            # TYPE fs_volume_total_file_io_errors counter\n\
            fs_volume_total_file_io_errors{context=\"dfs\",volumename=\"/1\"} 3\n\
            fs_volume_total_file_io_errors{context=\"dfs\",volumename=\"/2\"} 4\n";
        let beans = [volume("/1", 3), info, volume("/2", 4)];
        assert_eq!(exposition(&beans), wanted);
    }
}
