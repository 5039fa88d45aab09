//! A manifest: what a snapshot consists of. The first line is JSON and says whose it is. Then comes
//! a line a replica, and at the end one with their number and the CRC-32C of all before it.
//!
//! ```text
//! {"format":"hayloft-snapshot","version":1,"datanode_uuid":"...",...}
//! POOL ID GS LEN META_LEN CRC META_CRC STORAGE PINNED
//! end NUMBER CRC
//! ```
//!
//! POOL and STORAGE are places in the lists of the first line. CRC is that of the data, `-` where
//! it is not known.

use bytes::{BufMut as _, Bytes, BytesMut};
use hayloft_store::offline::PoolVersion;
use hayloft_wire::checksum::ChecksumKind;
use hayloft_wire::ids::{Block, PoolId};
use serde::{Deserialize, Serialize};

use crate::names::{BlockName, is_node};
use crate::replica_check::META_BYTES_MAX;

const FORMAT: &str = "hayloft-snapshot";
/// The version that is written and the only one that is read.
const VERSION: u32 = 1;
/// Longest manifest, in bytes: some 8 million replicas.
pub const MANIFEST_BYTES_MAX: u64 = 512 << 20;
/// Longest first line, in bytes.
pub const HEADER_BYTES_MAX: usize = 64 << 10;
/// So many bytes at the end of a manifest have its last line.
pub const END_BYTES_MAX: u64 = 64;
/// Longest line of a replica, in bytes.
const LINE_BYTES_MAX: u64 = 128;

/// The first line.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct ManifestHeader {
    format: String,
    version: u32,
    /// Cluster of the node.
    pub cluster_id: String,
    /// The node.
    pub datanode_uuid: String,
    /// Host that it was taken on, for people.
    pub host: String,
    /// When the snapshot began, in milliseconds since 1970.
    pub taken_ms: u64,
    /// Replicas.
    pub replicas: u64,
    /// Bytes of data and meta files.
    pub bytes: u64,
    /// Replicas, or whole directories, that are damaged and left out: an older snapshot may be the
    /// last that has them.
    #[serde(default)]
    pub left_out: u64,
    /// The block pools.
    pub pools: Vec<ManifestPool>,
    /// The storages.
    pub storages: Vec<ManifestStorage>,
}

/// A block pool.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct ManifestPool {
    /// Its id.
    pub pool: String,
    /// Its namespace.
    pub namespace_id: u32,
    /// Creation time of the namespace's storage.
    pub ctime: u64,
}

/// A storage, which is a volume.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct ManifestStorage {
    /// `DS-<uuid>`.
    pub id: String,
    /// Its type, such as `DISK`.
    pub storage_type: String,
}

/// A closed replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestReplica {
    /// What its bytes depend on.
    pub(crate) name: BlockName,
    /// Bytes of its meta file.
    pub(crate) meta_len: u64,
    /// CRC-32C of its data, where it is known.
    pub(crate) crc: Option<u32>,
    /// CRC-32C of its meta file.
    pub(crate) meta_crc: u32,
    /// Place of its storage in the list.
    pub(crate) storage: usize,
    /// It is pinned to its node.
    pub(crate) pinned: bool,
}

impl ManifestReplica {
    /// Bytes of both files.
    pub(crate) fn bytes(&self) -> u64 {
        self.name.len.saturating_add(self.meta_len)
    }
}

/// A snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// Whose it is, and of when.
    pub header: ManifestHeader,
    /// What it consists of.
    pub replicas: Vec<ManifestReplica>,
}

/// Why a manifest cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// Another version of Hayloft wrote it.
    #[error("it has format version {0}, only {VERSION} can be read: use a later Hayloft")]
    Version(u32),
    /// It is not what was written.
    #[error("it was altered: {0}")]
    Altered(String),
}

fn altered(why: impl std::fmt::Display) -> ManifestError {
    ManifestError::Altered(why.to_string())
}

impl ManifestHeader {
    /// That of a node's snapshot.
    pub fn new(
        (cluster_id, datanode_uuid, host): (&str, &str, &str),
        taken_ms: u64,
        pools: &[PoolVersion],
        storages: Vec<ManifestStorage>,
    ) -> Self {
        let of_pool = |pool: &PoolVersion| ManifestPool {
            pool: pool.pool.to_string(),
            namespace_id: pool.namespace_id,
            ctime: pool.ctime,
        };
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            cluster_id: cluster_id.to_owned(),
            datanode_uuid: datanode_uuid.to_owned(),
            host: host.to_owned(),
            taken_ms,
            replicas: 0,
            bytes: 0,
            left_out: 0,
            pools: pools.iter().map(of_pool).collect(),
            storages,
        }
    }

    /// Reads the first line, without what follows.
    ///
    /// # Errors
    /// It is of another version, or not what was written.
    pub fn parse(bytes: &[u8]) -> Result<Self, ManifestError> {
        let line = bytes.split(|b| *b == b'\n').next().unwrap_or_default();
        if line.len() > HEADER_BYTES_MAX {
            return Err(altered("its first line is too long"));
        }
        #[derive(Deserialize)]
        struct Which {
            format: String,
            version: u32,
        }
        let which: Which = serde_json::from_slice(line).map_err(altered)?;
        if which.format != FORMAT {
            return Err(altered("it is no manifest"));
        }
        if which.version != VERSION {
            return Err(ManifestError::Version(which.version));
        }
        let header: Self = serde_json::from_slice(line).map_err(altered)?;
        if !is_node(&header.datanode_uuid) {
            return Err(altered("its node has no uuid"));
        }
        Ok(header)
    }

    /// Whether the last bytes of a manifest are its end, as far as they tell.
    pub fn is_ended_by(&self, bytes: &[u8]) -> bool {
        let text = String::from_utf8_lossy(bytes);
        text.ends_with('\n') && text.contains(&format!("\nend {} ", self.replicas))
    }

    /// The pools as their VERSION files have them.
    ///
    /// # Errors
    /// One has an id that is none.
    pub fn pool_versions(&self) -> Result<Vec<PoolVersion>, ManifestError> {
        let of = |pool: &ManifestPool| {
            Ok(PoolVersion {
                namespace_id: pool.namespace_id,
                ctime: pool.ctime,
                pool: PoolId::new(&pool.pool).map_err(altered)?,
            })
        };
        self.pools.iter().map(of).collect()
    }
}

impl Manifest {
    /// Puts replicas, whose pools and storages the header has, behind it.
    pub fn new(mut header: ManifestHeader, mut replicas: Vec<ManifestReplica>) -> Self {
        replicas.sort_by(|a, b| a.name.cmp(&b.name));
        header.replicas = replicas.len() as u64;
        let bytes = replicas.iter().map(ManifestReplica::bytes);
        header.bytes = bytes.fold(0, u64::saturating_add);
        Self { header, replicas }
    }

    /// Its text.
    ///
    /// # Errors
    /// It is longer than what is read again.
    pub fn encode(&self) -> Result<Bytes, ManifestError> {
        let most = MANIFEST_BYTES_MAX - HEADER_BYTES_MAX as u64;
        let first = serde_json::to_vec(&self.header).map_err(altered)?;
        if first.len() > HEADER_BYTES_MAX
            || (self.replicas.len() as u64).saturating_mul(LINE_BYTES_MAX) > most
        {
            return Err(altered("there are more replicas than a manifest can have"));
        }
        let mut out = BytesMut::with_capacity(first.len() + self.replicas.len() * 80);
        out.put_slice(&first);
        for replica in &self.replicas {
            let ManifestReplica { name, meta_len, .. } = replica;
            let pool = self.header.pools.iter();
            let pool = pool.position_of(name.pool.as_str());
            let crc = replica
                .crc
                .map_or("-".to_owned(), |crc| format!("{crc:08x}"));
            let line = format!(
                "\n{pool} {} {} {} {meta_len} {crc} {:08x} {} {}",
                name.id,
                name.generation_stamp,
                name.len,
                replica.meta_crc,
                replica.storage,
                u8::from(replica.pinned)
            );
            out.put_slice(line.as_bytes());
        }
        out.put_slice(b"\n");
        let crc = ChecksumKind::Crc32c.crc(&out);
        let end = format!("end {} {crc:08x}\n", self.replicas.len());
        out.put_slice(end.as_bytes());
        Ok(out.freeze())
    }

    /// Reads what [`encode`](Self::encode) wrote.
    ///
    /// # Errors
    /// It is of another version, or not what was written.
    pub fn parse(bytes: &[u8]) -> Result<Self, ManifestError> {
        let header = ManifestHeader::parse(bytes)?;
        let text = std::str::from_utf8(bytes).map_err(altered)?;
        let body = text.strip_suffix('\n');
        let body = body.ok_or_else(|| altered("its end is missing"))?;
        let (before, end) = body.rsplit_once('\n').unwrap_or(("", body));
        let crc = ChecksumKind::Crc32c.crc(&bytes[..before.len() + 1]);
        if end != format!("end {} {crc:08x}", header.replicas) {
            return Err(altered("its last line does not fit what is before it"));
        }
        let pools = header.pool_versions()?;
        let storages = header.storages.len();
        let lines = before.split('\n').skip(1);
        let replica = |line: &str| {
            let replica = parse_line(line, &pools);
            let replica = replica.filter(|replica| replica.storage < storages);
            replica.ok_or_else(|| altered("a line is no replica's"))
        };
        let replicas = lines.map(replica).collect::<Result<Vec<_>, _>>()?;
        if replicas.len() as u64 != header.replicas {
            return Err(altered("lines are missing"));
        }
        Ok(Self { header, replicas })
    }
}

/// Finds a pool in the list of a header.
trait PositionOf {
    fn position_of(self, pool: &str) -> usize;
}

impl<'a, I: Iterator<Item = &'a ManifestPool>> PositionOf for I {
    fn position_of(mut self, pool: &str) -> usize {
        // A place behind the end makes the manifest one that cannot be read.
        self.position(|of| of.pool == pool).unwrap_or(usize::MAX)
    }
}

fn parse_line(line: &str, pools: &[PoolVersion]) -> Option<ManifestReplica> {
    let mut fields = line.split(' ');
    let mut next = || fields.next();
    let pool = &pools.get(next()?.parse::<usize>().ok()?)?.pool;
    let id: i64 = next()?.parse().ok()?;
    let (stamp, len) = (next()?.parse().ok()?, next()?.parse().ok()?);
    let block = Block::from_wire(id.cast_unsigned(), stamp, len).ok()?;
    let meta_len = next()?.parse().ok().filter(|len| *len <= META_BYTES_MAX)?;
    let crc = match next()? {
        "-" => None,
        crc => Some(u32::from_str_radix(crc, 16).ok()?),
    };
    let replica = ManifestReplica {
        name: BlockName::new(pool, block),
        meta_len,
        crc,
        meta_crc: u32::from_str_radix(next()?, 16).ok()?,
        storage: next()?.parse().ok()?,
        pinned: match next()? {
            "0" => false,
            "1" => true,
            _ => return None,
        },
    };
    fields.next().is_none().then_some(replica)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pools() -> Vec<PoolVersion> {
        let of = |name: &str| PoolVersion {
            namespace_id: 7,
            ctime: 8,
            pool: PoolId::new(name).expect("valid"),
        };
        vec![of("BP-1-h-1"), of("BP-2-h-1")]
    }

    fn manifest(replicas: Vec<ManifestReplica>) -> Manifest {
        let storage = ManifestStorage {
            id: "DS-1".to_owned(),
            storage_type: "DISK".to_owned(),
        };
        let header = ManifestHeader::new(("CID", "uuid-1", "host"), 5, &pools(), vec![storage]);
        Manifest::new(header, replicas)
    }

    fn replica() -> impl Strategy<Value = ManifestReplica> {
        let most = i64::MAX.unsigned_abs();
        let numbers = (any::<i64>(), 0..=most, 0..=most, 0..=META_BYTES_MAX);
        (numbers, any::<Option<u32>>(), any::<u32>(), any::<bool>()).prop_map(
            |((id, stamp, len, meta_len), crc, meta_crc, pinned)| ManifestReplica {
                name: BlockName::new(
                    &pools()[usize::from(pinned)].pool,
                    Block::new(id, stamp, len),
                ),
                meta_len,
                crc,
                meta_crc,
                storage: 0,
                pinned,
            },
        )
    }

    proptest! {
        #[test]
        fn manifests_come_back(replicas in prop::collection::vec(replica(), 0..20)) {
            let written = manifest(replicas);
            let bytes = written.encode()?;
            prop_assert_eq!(Manifest::parse(&bytes)?, written);
        }

        /// A manifest that was cut or altered anywhere is refused.
        #[test]
        fn what_was_altered_is_refused(
            replicas in prop::collection::vec(replica(), 1..5),
            at: prop::sample::Index,
            to: u8,
        ) {
            let bytes = manifest(replicas).encode()?;
            let at = at.index(bytes.len());
            prop_assert!(Manifest::parse(&bytes[..at]).is_err());
            let mut other = bytes.to_vec();
            other[at] = to;
            prop_assert!(to == bytes[at] || Manifest::parse(&other).is_err());
        }

        #[test]
        fn any_bytes_are_taken(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Manifest::parse(&bytes);
        }
    }

    #[test]
    fn a_later_version_says_so() {
        let text = r#"{"format":"hayloft-snapshot","version":2}"#;
        let error = Manifest::parse(text.as_bytes()).expect_err("cannot be read");
        assert_eq!(error, ManifestError::Version(2));
    }
}
