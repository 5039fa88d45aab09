//! How far a step is, and Apache's JSON for it.

use std::path::Path;
use std::time::Duration;

use hayloft_conf::{Configuration, keys};
use hayloft_store::VolumeSpace;
use serde_json::{Map, Value, json};

/// Apache's defaults, in the place of values that make no sense.
const BANDWIDTH: i64 = 10;
const TOLERANCE_PERCENT: i64 = 10;
const MAX_DISK_ERRORS: i64 = 5;

/// One of the two volumes of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Side {
    pub(super) storage: String,
    /// As Apache's node names it.
    pub(super) path: String,
}

/// A step and how far it is.
#[derive(Clone, Debug)]
pub(super) struct Work {
    pub(super) source: Side,
    pub(super) target: Side,
    pub(super) bytes_to_copy: i64,
    pub(super) bytes_copied: i64,
    pub(super) blocks_copied: i64,
    pub(super) error_count: i64,
    /// Why it ended early.
    pub(super) error: Option<String>,
    /// What the plan says; 0 or less leaves it to the configuration.
    pub(super) max_disk_errors: i64,
    pub(super) tolerance_percent: i64,
    pub(super) bandwidth: i64,
    pub(super) started_ms: u64,
    pub(super) seconds_elapsed: u64,
}

/// What a step is held to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// It is in MiB a second.
    bandwidth: i64,
    tolerance_percent: i64,
    pub(super) max_disk_errors: i64,
}

/// A directory as Apache's node names it in plans.
pub(super) fn base_path(path: &Path) -> String {
    format!("{}/", path.display())
}

impl Work {
    pub(super) fn between(source: &VolumeSpace, target: &VolumeSpace) -> Self {
        let side = |volume: &VolumeSpace| Side {
            storage: volume.storage.id.to_string(),
            path: base_path(&volume.path),
        };
        Self {
            source: side(source),
            target: side(target),
            bytes_to_copy: 0,
            bytes_copied: 0,
            blocks_copied: 0,
            error_count: 0,
            error: None,
            max_disk_errors: 0,
            tolerance_percent: 0,
            bandwidth: 0,
            started_ms: 0,
            seconds_elapsed: 0,
        }
    }

    /// Whether another step moves between the same volumes.
    pub(super) fn is_beside(&self, other: &Self) -> bool {
        self.source.storage == other.source.storage && self.target.storage == other.target.storage
    }

    /// What it is held to: by its plan, else by the configuration, else by Apache's defaults.
    pub(super) fn limits(&self, config: &Configuration) -> Limits {
        let positive = |value: i64| Some(value).filter(|value| *value > 0);
        let of_node = |key, default| positive(config.get(key)).unwrap_or(default);
        let errors = config.get(&keys::DISK_BALANCER_MAX_ERRORS);
        let errors = if errors < 0 { MAX_DISK_ERRORS } else { errors };
        Limits {
            bandwidth: positive(self.bandwidth)
                .unwrap_or_else(|| of_node(&keys::DISK_BALANCER_BANDWIDTH, BANDWIDTH)),
            tolerance_percent: positive(self.tolerance_percent)
                .unwrap_or_else(|| of_node(&keys::DISK_BALANCER_TOLERANCE, TOLERANCE_PERCENT)),
            max_disk_errors: positive(self.max_disk_errors).unwrap_or(errors),
        }
    }

    /// Whether so much is moved that the rest is within the tolerance.
    pub(super) fn is_close_enough(&self, limits: Limits) -> bool {
        limits.with_tolerance(self.bytes_copied) > i128::from(self.bytes_to_copy)
    }

    /// The longest replica that may be moved next; `None`: not even an empty one.
    pub(super) fn longest_next(&self, limits: Limits) -> Option<u64> {
        let left = self.bytes_to_copy.saturating_sub(self.bytes_copied);
        let longest = limits.with_tolerance(left);
        (longest >= 0).then(|| u64::try_from(longest).unwrap_or(u64::MAX))
    }

    /// Apache leaves out what is 0.
    pub(super) fn to_json(&self) -> Value {
        let numbers = [
            ("startTime", i64::try_from(self.started_ms).unwrap_or(0)),
            (
                "secondsElapsed",
                i64::try_from(self.seconds_elapsed).unwrap_or(0),
            ),
            ("bytesToCopy", self.bytes_to_copy),
            ("bytesCopied", self.bytes_copied),
            ("errorCount", self.error_count),
            ("blocksCopied", self.blocks_copied),
            ("maxDiskErrors", self.max_disk_errors),
            ("tolerancePercent", self.tolerance_percent),
            ("bandwidth", self.bandwidth),
        ];
        let set = numbers.into_iter().filter(|(_, value)| *value != 0);
        let mut item: Map<String, Value> = set
            .map(|(name, value)| (name.to_owned(), value.into()))
            .collect();
        if let Some(error) = &self.error {
            item.insert("errMsg".to_owned(), error.as_str().into());
        }
        json!({
            "sourcePath": self.source.path,
            "destPath": self.target.path,
            "workItem": item,
        })
    }
}

impl Limits {
    fn with_tolerance(self, bytes: i64) -> i128 {
        let bytes = i128::from(bytes);
        bytes + bytes * i128::from(self.tolerance_percent) / 100
    }

    /// How long a replica of that length has to take at least.
    pub(super) fn least_time(self, bytes: u64) -> Duration {
        let rate = u128::from(self.bandwidth.unsigned_abs().max(1)) << 20;
        let nanos = u128::from(bytes) * 1_000_000_000 / rate;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use hayloft_store::StorageInfo;
    use hayloft_wire::ids::StorageType;

    use super::*;

    #[test]
    fn limits_that_make_no_sense_are_apaches_defaults() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let properties = [
            ("max.disk.throughputInMBperSec", "-1"),
            ("block.tolerance.percent", "0"),
            ("max.disk.errors", "-7"),
        ];
        let property = |(name, value)| {
            let name = format!("<name>dfs.disk.balancer.{name}</name>");
            format!("<property>{name}<value>{value}</value></property>")
        };
        let all: String = properties.map(property).concat();
        let site = dir.path().join("hdfs-site.xml");
        std::fs::write(site, format!("<configuration>{all}</configuration>")).expect("writes");
        let config = Configuration::load(dir.path(), &[]).expect("valid");
        let volume = VolumeSpace {
            path: "/data".into(),
            storage: StorageInfo {
                id: "DS-1".into(),
                storage_type: StorageType::Disk,
            },
            free: 0,
        };
        let mut work = Work::between(&volume, &volume);
        let limits = work.limits(&config);
        assert_eq!(limits.max_disk_errors, 5);
        assert_eq!(limits.least_time(20 << 20), Duration::from_secs(2));
        work.bytes_to_copy = 100;
        assert_eq!(work.longest_next(limits), Some(110));
        work.tolerance_percent = i64::MAX;
        work.bandwidth = i64::MAX;
        work.bytes_to_copy = i64::MAX;
        let limits = work.limits(&config);
        assert_eq!(work.longest_next(limits), Some(u64::MAX));
        assert_eq!(limits.least_time(u64::MAX), Duration::from_nanos(1_907));
    }
}
