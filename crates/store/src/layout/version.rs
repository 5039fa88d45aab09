//! VERSION files of volumes and pools.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::SystemTime;

use hayloft_wire::ids::PoolId;

use super::dirs::read_small;
use super::names::{CURRENT, VERSION};
use super::{LAYOUT_VERSION, STUB_LAYOUT_VERSION, properties};

/// Longest VERSION file that is read, in bytes.
pub const VERSION_BYTES_MAX: usize = 64 << 10;

/// Why a VERSION file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VersionError {
    /// A key is missing.
    #[error("the key {0} is missing")]
    Missing(&'static str),
    /// A value is nothing that the key can have.
    #[error("{key}={value:?} is not possible")]
    Value {
        /// Key.
        key: &'static str,
        /// Value found.
        value: String,
    },
    /// Written by another version of the layout.
    #[error(
        "layoutVersion is {0}, only {LAYOUT_VERSION} can be read: {todo}",
        todo = other_layout(*.0)
    )]
    Layout(i64),
}

/// What to do with a directory of another layout. Later versions have smaller numbers.
fn other_layout(found: i64) -> &'static str {
    match found < i64::from(LAYOUT_VERSION) {
        true => "a later version of a DataNode has upgraded the directory: start that one on it",
        false => "start Apache's DataNode (3.x) once on this directory and finalize its upgrade",
    }
}

/// `DIR/current/VERSION`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeVersion {
    /// `DS-<uuid>`.
    pub storage_id: String,
    /// Cluster.
    pub cluster_id: String,
    /// Creation time of the layout; 0.
    pub ctime: u64,
    /// Uuid of the datanode, the same on all its volumes.
    pub datanode_uuid: String,
    /// Its data files are stubs, and the bytes on a device.
    pub stubs: bool,
}

/// `BP-x/current/VERSION`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolVersion {
    /// Namespace.
    pub namespace_id: u32,
    /// Creation time of the namespace's storage.
    pub ctime: u64,
    /// Pool.
    pub pool: PoolId,
}

impl VolumeVersion {
    /// Reads the file's contents.
    pub fn parse(bytes: &[u8]) -> Result<Self, VersionError> {
        let p = properties::parse(bytes);
        let stubs = number::<i64>(&p, "layoutVersion")? == i64::from(STUB_LAYOUT_VERSION);
        if !stubs {
            layout(&p)?;
        }
        let storage_type = text(&p, "storageType")?;
        if storage_type != "DATA_NODE" {
            return Err(VersionError::Value {
                key: "storageType",
                value: storage_type,
            });
        }
        Ok(Self {
            storage_id: text(&p, "storageID")?,
            cluster_id: text(&p, "clusterID")?,
            ctime: number(&p, "cTime")?,
            datanode_uuid: text(&p, "datanodeUuid")?,
            stubs,
        })
    }

    /// The file's contents.
    #[must_use]
    pub fn encode(&self, now: SystemTime) -> Vec<u8> {
        let layout = if self.stubs {
            STUB_LAYOUT_VERSION
        } else {
            LAYOUT_VERSION
        };
        // In the order of the stock node, so that the same identity is the same bytes.
        let properties = [
            ("datanodeUuid", self.datanode_uuid.clone()),
            ("storageType", "DATA_NODE".to_owned()),
            ("cTime", self.ctime.to_string()),
            ("clusterID", self.cluster_id.clone()),
            ("layoutVersion", layout.to_string()),
            ("storageID", self.storage_id.clone()),
        ];
        properties::write(&properties, now)
    }
}

impl PoolVersion {
    /// Reads the file's contents.
    pub fn parse(bytes: &[u8]) -> Result<Self, VersionError> {
        let p = properties::parse(bytes);
        layout(&p)?;
        let pool = text(&p, "blockpoolID")?;
        let pool = PoolId::new(&pool).map_err(|_| VersionError::Value {
            key: "blockpoolID",
            value: pool,
        })?;
        let namespace: i32 = number(&p, "namespaceID")?;
        Ok(Self {
            namespace_id: namespace.cast_unsigned(),
            ctime: number(&p, "cTime")?,
            pool,
        })
    }

    /// The file's contents.
    #[must_use]
    pub fn encode(&self, now: SystemTime) -> Vec<u8> {
        let properties = [
            ("namespaceID", self.namespace_id.cast_signed().to_string()),
            ("blockpoolID", self.pool.to_string()),
            ("cTime", self.ctime.to_string()),
            ("layoutVersion", LAYOUT_VERSION.to_string()),
        ];
        properties::write(&properties, now)
    }
}

fn text(p: &BTreeMap<String, String>, key: &'static str) -> Result<String, VersionError> {
    p.get(key)
        .filter(|v| !v.is_empty())
        .cloned()
        .ok_or(VersionError::Missing(key))
}

fn number<T: std::str::FromStr>(
    p: &BTreeMap<String, String>,
    key: &'static str,
) -> Result<T, VersionError> {
    let value = text(p, key)?;
    value
        .trim()
        .parse()
        .map_err(|_| VersionError::Value { key, value })
}

fn layout(p: &BTreeMap<String, String>) -> Result<(), VersionError> {
    let found: i64 = number(p, "layoutVersion")?;
    if found == i64::from(LAYOUT_VERSION) {
        Ok(())
    } else {
        Err(VersionError::Layout(found))
    }
}

/// Whether a DataNode has used the directory as a volume: it has the VERSION of one. Blocking.
#[must_use]
pub fn is_volume(dir: &Path) -> bool {
    let read = read_small(&dir.join(CURRENT).join(VERSION), VERSION_BYTES_MAX);
    let version = read.ok().flatten();
    version.is_some_and(|bytes| VolumeVersion::parse(&bytes).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a stock 3.5.0 DataNode writes it.
    const VOLUME: &[u8] =
        b"#Tue Nov 17 20:11:02 UTC 2026\nclusterID=CID-5f5d9ed6-4bd9-4d2c-9ab1-8a3c6bd4b3a2\n\
        cTime=0\ndatanodeUuid=0b1f7d0e-2a3c-4e54-8f0e-0a1b2c3d4e5f\nlayoutVersion=-57\n\
        storageID=DS-9b6f4f0a-6a8c-4c5f-93b3-7d0f5a3f8f11\nstorageType=DATA_NODE\n";

    #[test]
    fn a_stock_volume_is_read_and_comes_back() {
        let v = VolumeVersion::parse(VOLUME).expect("valid");
        assert_eq!(v.storage_id, "DS-9b6f4f0a-6a8c-4c5f-93b3-7d0f5a3f8f11");
        assert_eq!(v.ctime, 0);
        assert_eq!(VolumeVersion::parse(&v.encode(SystemTime::now())), Ok(v));
    }

    #[test]
    fn a_stock_pool_is_read_and_comes_back() {
        let text = b"#x\nnamespaceID=1289031\ncTime=1795250967000\n\
            blockpoolID=BP-1-10.0.0.1-1795250967000\nlayoutVersion=-57\n";
        let v = PoolVersion::parse(text).expect("valid");
        assert_eq!((v.namespace_id, v.ctime), (1_289_031, 1_795_250_967_000));
        assert_eq!(PoolVersion::parse(&v.encode(SystemTime::now())), Ok(v));
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        let with = |from: &str, to: &str| {
            String::from_utf8_lossy(VOLUME)
                .replace(from, to)
                .into_bytes()
        };
        assert_eq!(
            VolumeVersion::parse(b""),
            Err(VersionError::Missing("layoutVersion"))
        );
        assert_eq!(
            VolumeVersion::parse(&with("-57", "-56")),
            Err(VersionError::Layout(-56))
        );
        assert_eq!(
            VolumeVersion::parse(&with("storageID", "other")),
            Err(VersionError::Missing("storageID"))
        );
        assert!(VolumeVersion::parse(&with("DATA_NODE", "NAME_NODE")).is_err());
        assert!(VolumeVersion::parse(&with("cTime=0", "cTime=x")).is_err());
        assert!(PoolVersion::parse(VOLUME).is_err());
    }
}
