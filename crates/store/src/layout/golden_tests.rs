//! What a stock DataNode of Hadoop 3.5.0 leaves behind, read and written again.
//!
//! The files are made by `cargo run -p hayloft-testkit --bin hayloft-golden`, see there.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use hayloft_wire::checksum::{ChecksumKind, DataChecksum, META_HEADER_LEN};
use hayloft_wire::ids::{PoolId, ReplicaState};

use super::names::{self, PoolPaths};
use super::replica_cache;
use super::used_cache::UsedCache;
use super::version::{PoolVersion, VolumeVersion};

fn volume() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/layout/golden/volume")
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn pool() -> PoolVersion {
    let name = std::fs::read_dir(volume().join("current"))
        .expect("there")
        .filter_map(|entry| entry.expect("readable").file_name().into_string().ok())
        .find(|name| name.starts_with("BP-"))
        .expect("one pool");
    let paths = PoolPaths::new(&volume(), &PoolId::new(&name).expect("valid"));
    let version = PoolVersion::parse(&read(&paths.version())).expect("a stock VERSION");
    assert_eq!(version.pool.as_str(), name);
    version
}

fn paths() -> PoolPaths {
    PoolPaths::new(&volume(), &pool().pool)
}

/// Without the line that holds the date.
fn undated(bytes: &[u8]) -> String {
    let text = String::from_utf8(bytes.to_vec()).expect("ASCII");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| format!("{line}\n")).collect()
}

/// Every replica: id, generation stamp, data file, meta file.
fn replicas() -> Vec<(i64, u64, PathBuf, PathBuf)> {
    fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(dir).expect("there") {
            let path = entry.expect("readable").path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|e| e == "meta") {
                found.push(path);
            }
        }
    }
    let mut metas = Vec::new();
    walk(&paths().finalized(), &mut metas);
    let mut replicas: Vec<_> = metas
        .into_iter()
        .map(|meta| {
            let name = meta.file_name().and_then(|n| n.to_str()).expect("ASCII");
            let (id, stamp) = name
                .strip_prefix("blk_")
                .and_then(|n| n.strip_suffix(".meta"))
                .and_then(|n| n.split_once('_'))
                .expect("blk_ID_GS.meta");
            let (id, stamp) = (id.parse().expect("id"), stamp.parse().expect("stamp"));
            (id, stamp, meta.with_file_name(format!("blk_{id}")), meta)
        })
        .collect();
    replicas.sort();
    replicas
}

#[test]
fn version_files_are_written_as_they_were_read() {
    let bytes = read(&volume().join("current/VERSION"));
    let version = VolumeVersion::parse(&bytes).expect("a stock VERSION");
    assert_eq!(undated(&version.encode(SystemTime::now())), undated(&bytes));
    let bytes = read(&paths().version());
    assert_eq!(undated(&pool().encode(SystemTime::now())), undated(&bytes));
}

#[test]
fn directories_have_the_names_that_we_give_them() {
    let list = String::from_utf8(read(&volume().with_file_name("tree.txt"))).expect("ASCII");
    let of = |path: PathBuf| {
        let below = path.strip_prefix(volume()).expect("of the volume");
        format!("/{}/", below.display())
    };
    let paths = paths();
    for dir in [paths.current(), paths.finalized(), paths.rbw(), paths.tmp()] {
        assert!(list.lines().any(|line| line == of(dir.clone())), "{dir:?}");
    }
    let ids: Vec<i64> = replicas().iter().map(|r| r.0).collect();
    for (id, stamp, data, meta) in replicas() {
        assert_eq!(data, paths.finalized_dir(id).join(names::data_name(id)));
        assert_eq!(
            meta,
            paths.finalized_dir(id).join(names::meta_name(id, stamp))
        );
    }
    let past_the_first = ids.iter().any(|id| names::subdir_numbers(*id) != (0, 0));
    assert!(past_the_first, "all of {ids:?} lie in subdir0/subdir0");
}

#[test]
fn meta_files_have_the_header_and_sums_that_we_write() {
    let mut seen = Vec::new();
    for (id, _, data, meta) in replicas() {
        let (data, meta) = (read(&data), read(&meta));
        let checksum = DataChecksum::decode_meta_header(&meta).expect("a stock header");
        let mut ours = checksum.encode_meta_header().to_vec();
        assert_eq!(ours.len(), META_HEADER_LEN);
        checksum.compute(&data, &mut ours);
        assert!(ours == meta, "block {id} of {checksum:?}");
        seen.push((checksum.kind(), checksum.bytes_per_checksum()));
    }
    for kind in [
        ChecksumKind::Null,
        ChecksumKind::Crc32,
        ChecksumKind::Crc32c,
    ] {
        for chunk in [512, 4096] {
            assert!(
                seen.contains(&(kind, chunk)),
                "{kind:?} at {chunk}: {seen:?}"
            );
        }
    }
}

#[test]
fn the_replica_cache_has_the_entries_that_we_write() {
    let golden = read(&paths().current().join(names::REPLICAS));
    assert_eq!(
        replica_cache::parse(&golden),
        None,
        "it does not say which replicas are pinned, so it is not used"
    );
    // With our field for that, empty, it is one of ours.
    let none_pinned: &[u8] = &[(3 << 3) | 2, 0];
    let cached = replica_cache::parse(&[&golden, none_pinned].concat()).expect("the same format");
    assert_eq!(
        replica_cache::encode(&cached),
        [&golden, none_pinned].concat()
    );
    let mut listed: Vec<(i64, u64, u64)> = cached
        .iter()
        .inspect(|r| assert_eq!(r.state, ReplicaState::Finalized))
        .map(|r| (r.block.id, r.block.generation_stamp, r.block.num_bytes))
        .collect();
    listed.sort_unstable();
    let there: Vec<_> = replicas()
        .into_iter()
        .map(|(id, stamp, data, _)| (id, stamp, read(&data).len() as u64))
        .collect();
    assert_eq!(listed, there);
}

#[test]
fn the_count_of_used_bytes_is_written_as_it_was_read() {
    let golden = read(&paths().current().join(names::DFS_USED));
    let cache = UsedCache::parse(&golden).expect("two numbers");
    assert_eq!(cache.encode(), golden);
    let mut there = 0;
    for (_, _, data, meta) in replicas() {
        there += (read(&data).len() + read(&meta).len()) as u64;
    }
    assert!(cache.used >= there, "{} of {there}", cache.used);
}
