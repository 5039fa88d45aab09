//! `/prom`: the beans under the names that Apache's node gives them, for dashboards that are there.
//!
//! A name is that of Apache's record and the metric's, in small letters with `_` between words;
//! tags are labels. Those are facts of Hadoop 3.5.0 as its own `/prom` shows them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::prom_text::escaped;
use super::records::{Record, USERS};

/// Metrics of these records.
pub(super) fn exposition(records: &[Record]) -> String {
    let mut families: BTreeMap<String, (&str, String)> = BTreeMap::new();
    for record in records {
        let labels = labels(record);
        for metric in &record.metrics {
            let name = format!("{}_{}", in_words(record.name), in_words(&metric.name));
            let kind = if metric.grows { "counter" } else { "gauge" };
            let (_, samples) = families
                .entry(name.clone())
                .or_insert_with(|| (kind, String::new()));
            let _ = writeln!(samples, "{name}{{{labels}}} {}", metric.value);
        }
    }
    let mut text = String::new();
    for (name, (kind, samples)) in families {
        let _ = write!(text, "# TYPE {name} {kind}\n{samples}");
    }
    text
}

fn labels(record: &Record) -> String {
    let tags = record.tags.iter().filter(|(tag, _)| tag != USERS);
    let labels = tags.map(|(tag, value)| {
        let value = value.as_deref().map_or("null".to_owned(), escaped);
        format!("{}=\"{value}\"", tag.to_ascii_lowercase())
    });
    labels.collect::<Vec<_>>().join(",")
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
    words.replace("._", "_").replace('.', "_")
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::super::jmx::Bean;
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
            ("a.b.impl.FsDatasetImpl", "a_b_impl_fs_dataset_impl"),
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
        let beans = [volume("/1", 3), info, volume("/2", 4)].into_iter();
        let records: Vec<Record> = beans.filter_map(Record::of).collect();
        assert_eq!(exposition(&records), wanted);
    }
}
