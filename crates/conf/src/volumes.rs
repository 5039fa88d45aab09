//! Directories of volumes, and the keys that end in one of them or in a storage type.

use std::fmt;
use std::path::PathBuf;

use hayloft_wire::ids::StorageType;

use super::choice::EngineName;
use super::configuration::Configuration;
use super::error::ConfigError;
use super::key::Key;
use super::keys;
use super::value::{Unit, Value, items};

/// A storage type that a directory may be declared as; PROVIDED replicas live elsewhere.
fn storage_type(name: &str) -> Result<StorageType, String> {
    name.parse()
        .ok()
        .filter(|kind| *kind != StorageType::Provided)
        .ok_or_else(|| {
            "one of RAM_DISK, SSD, DISK, ARCHIVE, NVDIMM in brackets (PROVIDED is not served here)"
                .into()
        })
}

/// One configured directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataDir {
    /// From the `[SSD]` prefix; DISK without one.
    pub storage_type: StorageType,
    /// Absolute path.
    pub path: PathBuf,
}

impl DataDir {
    fn parse_one(text: &str) -> Result<Self, String> {
        let (storage_type, location) = match text.strip_prefix('[') {
            Some(rest) => {
                let (name, location) = rest
                    .split_once(']')
                    .ok_or("a closed bracket, as in [SSD]/data")?;
                (storage_type(name.trim())?, location.trim())
            }
            None => (StorageType::Disk, text),
        };
        let path = local_path(location)?;
        if path.is_empty() {
            return Err("directories such as [SSD]file:///data/1,[DISK]/data/2".into());
        }
        let path = std::path::absolute(&path).map_err(|e| format!("a directory ({e})"))?;
        Ok(Self { storage_type, path })
    }
}

/// The path that a URI or a plain path names.
fn local_path(location: &str) -> Result<String, String> {
    match location.split_once(':') {
        Some(("file", rest)) => {
            // file:///a, file:/a and file://host/a all name /a.
            let path = match rest.strip_prefix("//") {
                Some(authority) => authority.find('/').map_or("", |at| &authority[at..]),
                None => rest,
            };
            Ok(percent_decode(path).ok_or("a URI whose %-escapes are UTF-8")?)
        }
        Some((scheme, _)) if !scheme.contains('/') => {
            Err(format!("a local directory ({scheme}: is not)"))
        }
        _ => Ok(location.to_owned()),
    }
}

impl fmt::Display for DataDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}]{}", self.storage_type.name(), self.path.display())
    }
}

impl Value for Vec<DataDir> {
    const KIND: &'static str = "directories";
    fn parse(text: &str, _: Unit) -> Result<Self, String> {
        let mut dirs: Self = Vec::new();
        for item in items(text) {
            let dir = DataDir::parse_one(item)?;
            if dirs.iter().any(|other| other.path == dir.path) {
                return Err(format!("a list that names {} once", dir.path.display()));
            }
            dirs.push(dir);
        }
        if dirs.is_empty() {
            Err("at least one directory".into())
        } else {
            Ok(dirs)
        }
    }
}

/// A volume's share of the mount that it has with another.
#[derive(Debug, Clone, PartialEq)]
pub struct CapacityRatio {
    /// 0.0 to 1.0.
    pub ratio: f64,
    /// Directory of the volume.
    pub path: PathBuf,
    /// Whether it is a `file:` URI. Apache's node compares URIs, and finds no volume by a plain
    /// path, though the example of hdfs-default.xml has such.
    pub is_uri: bool,
}

impl Value for Vec<CapacityRatio> {
    const KIND: &'static str = "shares of directories";
    const EMPTY_IS_VALUE: bool = true;
    fn parse(text: &str, _: Unit) -> Result<Self, String> {
        let allowed = || "shares such as [0.3]file:///d1/archive,[0.7]file:///d1/disk".to_owned();
        let one = |item: &str| {
            let (ratio, location) = item
                .strip_prefix('[')
                .and_then(|rest| rest.split_once(']'))
                .ok_or_else(allowed)?;
            let plain = ratio.bytes().all(|b| b.is_ascii_digit() || b == b'.');
            let ratio: f64 = ratio.parse().map_err(|_| allowed())?;
            if !plain || !(0.0..=1.0).contains(&ratio) {
                return Err("shares between 0 and 1".to_owned());
            }
            let path = local_path(location)?;
            let path = std::path::absolute(&path).map_err(|_| allowed())?;
            let is_uri = location.starts_with("file:/");
            Ok(CapacityRatio {
                ratio,
                path,
                is_uri,
            })
        };
        // As Apache reads it: no white space counts, and an empty item is a mistake.
        let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        let items = text.trim_end_matches(',').split(',');
        items.filter(|_| !text.is_empty()).map(one).collect()
    }
}

/// Undoes `%20` and the like; `None` if an escape is broken or the result is not UTF-8.
pub(super) fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        if *first == b'%' {
            let hex = std::str::from_utf8(tail.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(hex, 16).ok()?);
            rest = &tail[2..];
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    String::from_utf8(bytes).ok()
}

/// How much of a volume is kept free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reserved {
    /// `dfs.datanode.du.reserved`, in bytes.
    pub bytes: u64,
    /// `dfs.datanode.du.reserved.pct`, 0 to 100.
    pub percent: u64,
}

impl Configuration {
    /// Looks at the keys of single volumes, which are not in the table.
    ///
    /// # Errors
    /// The first whose value is not allowed.
    pub(super) fn validate_volumes(&self) -> Result<(), ConfigError> {
        for name in self.names() {
            match OfVolumes::of(name) {
                Some(OfVolumes::ReservedPercent) => {
                    self.parse_as(name, |text| u64::parse(text, Unit::None))?;
                }
                Some(OfVolumes::Reserved) => {
                    self.parse_as(name, |text| u64::parse(text, Unit::Bytes))?;
                }
                // Empty, it says nothing, as the key for all volumes.
                Some(OfVolumes::Engine) if self.text(name).is_some() => {
                    self.parse_as(name, |text| EngineName::parse(text, Unit::None))?;
                }
                Some(OfVolumes::Engine) | None => {}
            }
        }
        Ok(())
    }

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

/// What a key is about that ends in a directory or a storage type, and so is not in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OfVolumes {
    /// Bytes to keep free.
    Reserved,
    /// The same in per cent.
    ReservedPercent,
    /// The engine; for a directory only.
    Engine,
}

impl OfVolumes {
    /// `None` for keys of the table, and for all others.
    pub(super) fn of(name: &str) -> Option<Self> {
        let below = |base: &str| {
            name.strip_prefix(base)
                .is_some_and(|rest| rest.starts_with('.'))
        };
        if keys::find(name).is_some() {
            return None;
        }
        // The first is below the second.
        if below(keys::DU_RESERVED_PERCENT.name()) {
            Some(Self::ReservedPercent)
        } else if below(keys::DU_RESERVED.name()) {
            Some(Self::Reserved)
        } else {
            below(keys::IO_ENGINE.name()).then_some(Self::Engine)
        }
    }
}

/// Names of a key for one volume, the first that is set counts: for its directory and type, its
/// directory, its type.
pub(super) fn names_for(base: &str, dir: &DataDir) -> [String; 3] {
    let path = dir.path.display();
    let kind = dir.storage_type.name().to_ascii_lowercase();
    [
        format!("{base}.{path}.{kind}"),
        format!("{base}.{path}"),
        format!("{base}.{kind}"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_directories() {
        let shares = Vec::<CapacityRatio>::parse(
            "[0.3]file:///d1/archive, [0.7] /d1/disk ,[1]/d2,",
            Unit::None,
        );
        let shown: Vec<_> = shares.expect("all are valid");
        let shown: Vec<_> = shown.iter().map(|s| (s.ratio, s.path.to_str())).collect();
        let wanted = [(0.3, "/d1/archive"), (0.7, "/d1/disk"), (1.0, "/d2")];
        assert_eq!(shown, wanted.map(|(ratio, path)| (ratio, Some(path))));
        let none = Vec::<CapacityRatio>::parse(" ", Unit::None).expect("nothing is a value");
        assert!(none.is_empty());
        for bad in [
            "/d1",
            "[]/d1",
            "[1.1]/d1",
            "[-0.1]/d1",
            "[0.5]",
            "[0.5]/a,,[0.5]/b",
            "[1e-1]/a",
        ] {
            assert!(
                Vec::<CapacityRatio>::parse(bad, Unit::None).is_err(),
                "{bad}"
            );
        }
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

    #[test]
    fn directories_with_storage_types() {
        let dirs = Vec::<DataDir>::parse(
            "[SSD]file:///a%20b, /c ,[archive]file:/d,,[RAM_DISK]file://host/e",
            Unit::None,
        );
        let shown: Vec<String> = dirs
            .expect("all are valid")
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            shown,
            ["[SSD]/a b", "[DISK]/c", "[ARCHIVE]/d", "[RAM_DISK]/e"]
        );
        for bad in [
            "",
            "[FOO]/x",
            "[SSD]",
            "[SSD/x",
            "hdfs://a/b",
            "[PROVIDED]/x",
            "/a,/a",
        ] {
            assert!(Vec::<DataDir>::parse(bad, Unit::None).is_err(), "{bad}");
        }
    }
}
