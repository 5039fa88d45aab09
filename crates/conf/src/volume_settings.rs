//! What a configuration says of one volume: room to keep free, its share of a mount, its engine.

use super::configuration::Configuration;
use super::data_dir::{CapacityRatio, DataDir};
use super::key::Key;
use super::keys;
use super::value::{Unit, Value};
use super::volume_keys::names_for;

/// How much of a volume is kept free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reserved {
    /// `dfs.datanode.du.reserved`, in bytes.
    pub bytes: u64,
    /// `dfs.datanode.du.reserved.pct`, 0 to 100.
    pub percent: u64,
}

impl Configuration {
    /// Space to keep free on one volume: `<key>.<directory>.<type>`, `<key>.<directory>`,
    /// `<key>.<type>`, `<key>`, the first that is set.
    #[must_use]
    pub fn reserved_for(&self, dir: &DataDir) -> Reserved {
        Reserved {
            bytes: self.per_volume(&keys::DU_RESERVED, dir, Unit::Bytes),
            percent: self
                .per_volume(&keys::DU_RESERVED_PERCENT, dir, Unit::None)
                .min(100),
        }
    }

    fn per_volume(&self, key: &Key<u64>, dir: &DataDir, unit: Unit) -> u64 {
        names_for(key.name(), &self.configured_dir(dir))
            .iter()
            .find_map(|name| u64::parse(&self.text(name)?, unit).ok())
            .unwrap_or_else(|| self.get(key))
    }

    /// The share of its mount that a volume has, where DISK and ARCHIVE may share one and it is
    /// set, by a `file:` URI as for Apache's node.
    #[must_use]
    pub fn capacity_ratio_for(&self, dir: &DataDir) -> Option<f64> {
        let ratios = self.get(&keys::SAME_DISK_CAPACITY_RATIO);
        let is_of = |ratio: &&CapacityRatio| ratio.is_uri && ratio.path == dir.path;
        let mut of_dir = ratios.iter().rev().filter(is_of);
        of_dir.next().map(|ratio| ratio.ratio)
    }

    /// I/O engine of one volume: `hayloft.io.engine.<directory>`, else `hayloft.io.engine`.
    #[must_use]
    pub fn engine_for(&self, dir: &DataDir) -> String {
        let [_, of_directory, _] = names_for(keys::IO_ENGINE.name(), &self.configured_dir(dir));
        self.text(&of_directory)
            .unwrap_or_else(|| self.get(&keys::IO_ENGINE).0)
    }
}

#[cfg(test)]
mod tests {
    use hayloft_wire::ids::StorageType;

    use super::*;

    #[test]
    fn shares_of_directories_are_of_uris() {
        let config = Configuration::from_properties([(
            keys::SAME_DISK_CAPACITY_RATIO.name(),
            "[0.3]file:/d1/archive,[0.7]file:///d1/disk/,[0.5]/d2",
        )]);
        let config = config.expect("valid");
        let of = |path: &str| {
            config.capacity_ratio_for(&DataDir {
                storage_type: StorageType::Disk,
                path: path.into(),
            })
        };
        assert_eq!(
            (of("/d1/archive"), of("/d1/disk"), of("/d2")),
            (Some(0.3), Some(0.7), None)
        );
    }
}
