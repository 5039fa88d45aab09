//! Directories of volumes, and shares of mounts, as they are written in a configuration.

use std::fmt;
use std::path::PathBuf;

use hayloft_wire::ids::StorageType;

use super::uri::local_path;
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
