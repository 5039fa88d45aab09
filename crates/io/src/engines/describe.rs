//! What each engine is for, and what an acknowledgement rests on with it: one table for the command
//! line and the documentation.

use std::path::Path;

use serde::Serialize;

use super::plugin;
use crate::error::IoError;

/// What an operator has to know of an engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EngineDescription {
    /// The name in the configuration.
    pub name: String,
    /// Where an acknowledged byte is that no client asked to sync.
    pub acknowledged: &'static str,
    /// What is read is what was written.
    pub keeps_data: bool,
    /// The bytes are in the kernel's files: other processes read them, and Apache's DataNode may
    /// take the directory over.
    pub swap: bool,
    /// What a sync calls.
    pub sync: &'static str,
    /// Who tells the device of room that is free again.
    pub trim: &'static str,
    /// When to choose it.
    pub choose: &'static str,
    /// What it does badly.
    pub weak: &'static str,
}

const BY_MOUNT: &str = "file system";

/// The engines of the tree.
#[must_use]
pub fn engine_descriptions() -> Vec<EngineDescription> {
    vec![
        EngineDescription {
            name: "posix".into(),
            acknowledged: "page cache",
            keeps_data: true,
            swap: true,
            sync: "fdatasync, fsync",
            trim: BY_MOUNT,
            choose: "data read again soon, small files",
            weak: "large writes",
        },
        EngineDescription {
            name: "direct".into(),
            acknowledged: "device's cache (small: page cache)",
            keeps_data: true,
            swap: true,
            sync: "fdatasync, fsync",
            trim: BY_MOUNT,
            choose: "large writes",
            weak: "the next reader: no cache",
        },
        EngineDescription {
            name: "null".into(),
            acknowledged: "nowhere: data is dropped",
            keeps_data: false,
            swap: false,
            sync: "nothing",
            trim: "nothing to trim",
            choose: "measuring what is above the disk",
            weak: "never for data",
        },
    ]
}

/// What the plug-in at `path` says of itself.
///
/// # Errors
/// `Invalid` when it cannot be used.
pub fn describe_plugin(path: &Path) -> Result<EngineDescription, IoError> {
    let abilities = plugin::abilities(path)?;
    let kept = abilities.in_files || abilities.device;
    let acknowledged = match (kept, abilities.outlives, abilities.page_cache) {
        (false, ..) => "nowhere: data is dropped",
        (true, false, _) => "the device: the node syncs each write",
        (true, true, true) => "page cache",
        (true, true, false) => "outside the process, as the plug-in says",
    };
    Ok(EngineDescription {
        name: format!("{}{}", plugin::PLUGIN_PREFIX, path.display()),
        acknowledged,
        keeps_data: kept,
        swap: abilities.in_files,
        sync: "the plug-in's sync",
        trim: if abilities.device {
            "the node, where it can"
        } else {
            BY_MOUNT
        },
        choose: "as its maker says; try it out with hayloft engine test",
        weak: "a crash in it ends the node",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Disk, DiskConfig};
    use crate::engines::{ENGINE_NAMES, EngineConfig, engine_by_name};

    #[test]
    fn every_engine_is_described_as_it_is() {
        let described = engine_descriptions();
        let names: Vec<&str> = described.iter().map(|d| d.name.as_str()).collect();
        assert_eq!(names, ENGINE_NAMES);
        let disk = Disk::for_path(&std::env::temp_dir(), &DiskConfig::default()).expect("a disk");
        for described in described {
            let engine = engine_by_name(&described.name, &EngineConfig::new(disk.clone()));
            let can = engine.expect("known").capabilities();
            assert_eq!(can.keeps_data, described.keeps_data, "{}", described.name);
            let cached = described.acknowledged == "page cache";
            assert_eq!(can.page_cache, cached, "{}", described.name);
        }
    }
}
