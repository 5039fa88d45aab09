//! Levels of the log, as `hadoop daemonlog` names and sets them.
//!
//! The program that owns the log [`install`]s what can change it; the web port asks for it.

use std::path::Path;
use std::sync::OnceLock;

use crate::activity::CLIENT_TRACE;

/// What can change the log's levels.
pub trait LogLevels: Send + Sync {
    /// The level of lines of `target`, one of `OFF`, `ERROR`, `WARN`, `INFO`, `DEBUG`, `TRACE`;
    /// an empty target is that of all others.
    fn level(&self, target: &str) -> &'static str;

    /// Sets it.
    ///
    /// # Errors
    /// In words, when there is no such level or the log takes no change.
    fn set(&self, target: &str, level: &str) -> Result<(), String>;

    /// The file that the log goes to; `None` is standard error.
    fn file(&self) -> Option<&Path> {
        None
    }
}

static LOG_LEVELS: OnceLock<Box<dyn LogLevels>> = OnceLock::new();

/// Characters of a name that a client may ask for, at most.
const NAME_MAX: usize = 200;

/// Tells the web port what can change the log. The first one holds.
pub fn install(levels: Box<dyn LogLevels>) {
    let _second = LOG_LEVELS.set(levels);
}

pub(crate) fn installed() -> Option<&'static dyn LogLevels> {
    LOG_LEVELS.get().map(|levels| &**levels)
}

/// Our part of the log that has what a class of Apache's DataNode logs; the beginning counts.
const CLASSES: [(&str, &str); 11] = [
    (
        "org.apache.hadoop.hdfs.server.datanode.DataNode.clienttrace",
        CLIENT_TRACE,
    ),
    (
        "org.apache.hadoop.hdfs.server.datanode.fsdataset",
        "hayloft_store",
    ),
    (
        "org.apache.hadoop.hdfs.server.datanode.BlockPoolSlice",
        "hayloft_store",
    ),
    (
        "org.apache.hadoop.hdfs.server.datanode.VolumeScanner",
        "hayloft_store::background",
    ),
    (
        "org.apache.hadoop.hdfs.server.datanode.BlockScanner",
        "hayloft_store::background",
    ),
    (
        "org.apache.hadoop.hdfs.server.datanode.DirectoryScanner",
        "hayloft_store::background",
    ),
    (
        "org.apache.hadoop.hdfs.server.datanode.Block",
        "hayloft_node::xceiver",
    ),
    (
        "org.apache.hadoop.hdfs.server.datanode.DataXceiver",
        "hayloft_node::xceiver",
    ),
    (
        "org.apache.hadoop.hdfs.server.datanode.BPS",
        "hayloft_node::namenode",
    ),
    ("org.apache.hadoop.hdfs.server.datanode", "hayloft_node"),
    ("org.apache.hadoop.ipc", "hayloft_rpc"),
];

/// The part of the log for a name: a class of Apache's, one of our modules, or `root` for all;
/// `None` when nothing here logs under it.
pub(crate) fn target_of(name: &str) -> Option<String> {
    if name.is_empty() || name == "root" || name == "org.apache.hadoop" {
        return Some(String::new());
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    if name.len() > NAME_MAX {
        return None;
    }
    if name.starts_with("hayloft") && name.chars().all(plain) {
        return Some(name.to_owned());
    }
    let found = CLASSES.iter().find(|(class, _)| name.starts_with(class));
    found.map(|(_, target)| (*target).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_apache_s_classes_are_parts_of_our_log() {
        let of = |name: &str| target_of(name);
        let package = "org.apache.hadoop.hdfs.server.datanode";
        let class = |name: &str| of(&format!("{package}.{name}"));
        assert_eq!(class("DataNode").as_deref(), Some("hayloft_node"));
        assert_eq!(
            class("DataNode.clienttrace").as_deref(),
            Some("hayloft_node::clienttrace")
        );
        assert_eq!(
            class("DataXceiver").as_deref(),
            Some("hayloft_node::xceiver")
        );
        assert_eq!(
            class("BlockScanner").as_deref(),
            Some("hayloft_store::background")
        );
        assert_eq!(
            class("fsdataset.impl.FsDatasetImpl").as_deref(),
            Some("hayloft_store")
        );
        assert_eq!(
            of("hayloft_protection::rewrite_damaged").as_deref(),
            Some("hayloft_protection::rewrite_damaged")
        );
        assert_eq!(of("root").as_deref(), Some(""));
        assert_eq!(of(&format!("hayloft_{}", "x".repeat(200))), None);
        assert_eq!((of("com.example.Mine"), of("hayloft,trace")), (None, None));
    }
}
