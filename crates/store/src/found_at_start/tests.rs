use std::fs;

use hayloft_io::DataFiles;
use hayloft_wire::checksum::{ChecksumKind, DataChecksum};
use hayloft_wire::ids::PoolId;

use super::*;

fn paths(dir: &Path) -> PoolPaths {
    PoolPaths::new(dir, &PoolId::new("BP-1").expect("valid"))
}

fn options() -> LoadOptions {
    LoadOptions {
        data_files: DataFiles::plain(),
        cache_expiry: Duration::from_secs(300),
        used_expiry: Duration::from_secs(600),
        doubt: None,
        in_memory: false,
        threads: 2,
    }
}

fn crc32c() -> DataChecksum {
    DataChecksum::new(ChecksumKind::Crc32c, 512).expect("valid")
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| u8::try_from(i % 251).expect("below 256"))
        .collect()
}

fn write_replica(dir: &Path, id: i64, gs: u64, data: &[u8]) {
    make_dir(dir).expect("directory");
    let mut meta = crc32c().encode_meta_header().to_vec();
    crc32c().compute(data, &mut meta);
    fs::write(dir.join(names::data_name(id)), data).expect("data");
    fs::write(dir.join(names::meta_name(id, gs)), meta).expect("meta");
}

fn run(paths: &PoolPaths) -> Loaded {
    load(paths, &options(), &Progress::default()).expect("loads")
}

#[test]
fn a_new_pool_gets_its_directories() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let paths = paths(dir.path());
    let loaded = run(&paths);
    assert!(loaded.finalized.is_empty() && loaded.rbw.is_empty());
    assert!(
        paths.rbw().is_dir() && paths.finalized().is_dir() && paths.tmp().join(DELETING).is_dir()
    );
}

#[test]
fn finalized_replicas_are_found_where_they_belong_and_moved_there() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let paths = paths(dir.path());
    write_replica(&paths.finalized_dir(70_000), 70_000, 1001, &bytes(700));
    write_replica(&paths.finalized_dir(-16), -16, 1002, &bytes(0));
    write_replica(&paths.finalized().join("subdir9"), 5, 1003, &bytes(10));
    write_replica(&paths.lazy_persist(), 6, 1004, &bytes(11));
    let mut blocks: Vec<_> = run(&paths).finalized.into_iter().map(|f| f.block).collect();
    blocks.sort_unstable();
    let expected = [
        Block::new(-16, 1002, 0),
        Block::new(5, 1003, 10),
        Block::new(6, 1004, 11),
        Block::new(70_000, 1001, 700),
    ];
    assert_eq!(blocks, expected);
    assert!(
        paths.finalized_dir(5).join("blk_5").is_file()
            && paths.finalized_dir(6).join("blk_6_1004.meta").is_file()
    );
}

#[test]
fn halves_are_reunited_or_removed() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let paths = paths(dir.path());
    let move_file = |from: PathBuf, to: PathBuf| {
        make_dir(to.parent().expect("a parent")).expect("directory");
        fs::rename(from, to).expect("rename");
    };
    // As Apache leaves them when it is killed while finalizing: meta file moved, data not.
    write_replica(&paths.rbw(), 1, 1001, &bytes(600));
    move_file(
        paths.rbw().join("blk_1_1001.meta"),
        paths.finalized_dir(1).join("blk_1_1001.meta"),
    );
    // The other order.
    write_replica(&paths.rbw(), 2, 1001, &bytes(600));
    move_file(
        paths.rbw().join("blk_2"),
        paths.finalized_dir(2).join("blk_2"),
    );
    // So too, beside what an append left before: the newer one belongs to the data.
    write_replica(&paths.rbw(), 6, 1002, &bytes(600));
    fs::write(paths.rbw().join("blk_6_1001.meta"), b"old").expect("meta");
    move_file(
        paths.rbw().join("blk_6"),
        paths.finalized_dir(6).join("blk_6"),
    );
    // As we leave them: the meta file has two names for a moment.
    write_replica(&paths.rbw(), 3, 1001, &bytes(600));
    fs::hard_link(
        paths.rbw().join("blk_3_1001.meta"),
        paths.finalized_dir(3).join("blk_3_1001.meta"),
    )
    .expect("link");
    // Alone: data stays and is not served, meta goes.
    fs::write(paths.finalized_dir(4).join("blk_4"), b"x").expect("data");
    fs::write(paths.finalized_dir(5).join("blk_5_9.meta"), b"x").expect("meta");
    let loaded = run(&paths);
    let mut finalized: Vec<_> = loaded.finalized.iter().map(|f| f.block).collect();
    finalized.sort_unstable();
    assert_eq!(
        finalized,
        [Block::new(2, 1001, 600), Block::new(6, 1002, 600)]
    );
    let mut rbw: Vec<_> = loaded.rbw.iter().map(|f| f.block).collect();
    rbw.sort_unstable();
    assert_eq!(rbw, [Block::new(1, 1001, 600), Block::new(3, 1001, 600)]);
    assert!(!paths.finalized_dir(3).join("blk_3_1001.meta").exists());
    assert!(paths.finalized_dir(4).join("blk_4").exists());
    assert!(!paths.finalized_dir(5).join("blk_5_9.meta").exists());
}

#[test]
fn a_replica_being_written_is_cut_to_what_is_intact() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let paths = paths(dir.path());
    let valid_len = |id: i64| {
        run(&paths)
            .rbw
            .iter()
            .find(|r| r.block.id == id)
            .map(|r| r.block.num_bytes)
    };
    let (data, meta) = (paths.rbw().join("blk_7"), paths.rbw().join("blk_7_1.meta"));
    write_replica(&paths.rbw(), 7, 1, &bytes(1300));
    assert_eq!(valid_len(7), Some(1300));
    // Data ahead of checksums in whole chunks: the chunks with checksums count.
    write_replica(&paths.rbw(), 7, 1, &bytes(1024));
    fs::write(&data, bytes(5000)).expect("data");
    assert_eq!(valid_len(7), Some(1024));
    assert_eq!(fs::metadata(&data).expect("there").len(), 1024);
    // Data ahead while the last checksum covers 276 bytes of its chunk: those are kept.
    write_replica(&paths.rbw(), 7, 1, &bytes(1300));
    fs::write(&data, bytes(4000)).expect("data");
    assert_eq!(valid_len(7), Some(1300));
    // Checksums ahead of data.
    write_replica(&paths.rbw(), 7, 1, &bytes(2048));
    fs::write(&data, bytes(1500)).expect("data");
    assert_eq!(valid_len(7), Some(1024));
    assert_eq!(fs::metadata(&meta).expect("there").len(), 7 + 8);
    // No header.
    fs::write(&meta, b"\0\x01").expect("meta");
    assert_eq!(valid_len(7), Some(0));
}

#[test]
fn an_upgrade_restart_keeps_a_replica_open_once() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let paths = paths(dir.path());
    write_replica(&paths.rbw(), 7, 1, &bytes(100));
    fs::write(
        paths.restart_marker(7),
        (crate::layout::dirs::now_ms() + 60_000).to_string(),
    )
    .expect("marker");
    assert_eq!(run(&paths).rbw[0].state, ReplicaState::Rbw);
    assert_eq!(run(&paths).rbw[0].state, ReplicaState::Rwr);
    let garbled = format!("{:>100}", crate::layout::dirs::now_ms() + 60_000);
    for not_now in ["1000", &garbled] {
        fs::write(paths.restart_marker(7), not_now).expect("marker");
        assert_eq!(run(&paths).rbw[0].state, ReplicaState::Rwr);
    }
}

#[test]
fn copies_and_deletes_of_the_last_process_are_cleared() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let paths = paths(dir.path());
    write_replica(&paths.tmp(), 7, 1, &bytes(100));
    write_replica(&paths.tmp().join(DELETING), 8, 1, &bytes(100));
    let loaded = run(&paths);
    assert!(!paths.tmp().join("blk_7").exists());
    assert!(loaded.leftovers.len() == 1 && loaded.leftovers[0].join("blk_8").exists());
    assert!(loaded.finalized.is_empty() && loaded.rbw.is_empty());
}

#[test]
fn the_cache_of_a_clean_stop_is_used_once_and_only_when_young_and_ours() {
    use crate::layout::replica_cache::{CachedReplica, encode};
    let dir = tempfile::tempdir().expect("temporary directory");
    let paths = paths(dir.path());
    run(&paths);
    let cached = CachedReplica {
        block: Block::new(9, 1, 5),
        state: ReplicaState::Finalized,
        pinned: true,
    };
    let cache = paths.current().join(names::REPLICAS);
    fs::write(&cache, encode(&[cached])).expect("cache");
    let loaded = run(&paths);
    assert!(
        loaded.from_cache
            && loaded.finalized[0].block == cached.block
            && loaded.finalized[0].pinned
    );
    assert!(!cache.exists() && !run(&paths).from_cache);
    fs::write(&cache, encode(&[cached])).expect("cache");
    let old = LoadOptions {
        in_memory: false,
        data_files: DataFiles::plain(),
        cache_expiry: Duration::ZERO,
        used_expiry: Duration::ZERO,
        doubt: None,
        threads: 1,
    };
    std::thread::sleep(Duration::from_millis(10));
    assert!(
        !load(&paths, &old, &Progress::default())
            .expect("loads")
            .from_cache
    );
    assert!(!cache.exists());
    fs::write(&cache, &encode(&[cached])[..8]).expect("cache");
    assert!(!run(&paths).from_cache);
}

#[test]
fn shortening_leaves_right_checksums() {
    let dir = tempfile::tempdir().expect("temporary directory");
    write_replica(dir.path(), 7, 1, &bytes(2000));
    let (data, meta) = (dir.path().join("blk_7"), dir.path().join("blk_7_1.meta"));
    for len in [1999, 1024, 1000, 3, 0] {
        let cut =
            Cut::of(&DataFiles::plain(), &data, &meta, crc32c(), len, None).expect("is right");
        let last_crc = cut.last_crc();
        cut.make((0, None)).expect("shortens");
        let expected = Valid {
            len,
            checksum: Some(crc32c()),
            last_crc,
        };
        assert_eq!(
            validate(&DataFiles::plain(), &data, &meta).expect("reads"),
            expected
        );
        assert_eq!(
            fs::metadata(&meta).expect("there").len(),
            crc32c().meta_len(len)
        );
    }
}

/// A stop between the link and the rename of a move leaves the meta file's name in both places.
#[test]
fn a_move_to_the_right_directory_that_was_stopped_is_gone_on_with() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let paths = paths(dir.path());
    let (wrong, right) = (paths.finalized().join("subdir9"), paths.finalized_dir(5));
    write_replica(&wrong, 5, 1003, &bytes(10));
    make_dir(&right).expect("directory");
    let name = names::meta_name(5, 1003);
    fs::hard_link(wrong.join(&name), right.join(&name)).expect("links");
    let blocks: Vec<_> = run(&paths).finalized.into_iter().map(|f| f.block).collect();
    assert_eq!(blocks, [Block::new(5, 1003, 10)]);
    assert!(right.join(names::data_name(5)).is_file() && right.join(&name).is_file());
}

/// Of a replica that a killed process wrote all is visible, unless more than a part of its last
/// chunk is missing.
#[test]
fn what_is_cut_because_of_damage_is_not_as_written() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let paths = paths(dir.path());
    let (data, meta) = (paths.rbw().join("blk_7"), paths.rbw().join("blk_7_1.meta"));
    let found = || {
        let found = run(&paths).rbw[0].clone();
        (found.block.num_bytes, found.as_written)
    };
    write_replica(&paths.rbw(), 7, 1, &bytes(3000));
    assert_eq!(found(), (3000, true));
    let meta_file = fs::OpenOptions::new()
        .write(true)
        .open(&meta)
        .expect("opens");
    let later = SystemTime::now() + Duration::from_secs(1000);
    meta_file.set_modified(later).expect("sets");
    assert_eq!(found(), (3000, false), "written in the future");

    write_replica(&paths.rbw(), 7, 1, &bytes(3000));
    let mut damaged = bytes(3000);
    damaged[2048..].fill(0);
    fs::write(&data, &damaged).expect("damage");
    for start in 0..2 {
        assert_eq!(found(), (2048, false), "start {start}");
    }

    write_replica(&paths.rbw(), 7, 1, &bytes(3000));
    fs::write(&meta, b"no header").expect("damage");
    assert_eq!(found(), (0, false));
}

/// Clients of single replicas send no checksums to memory, and Apache's node stores none.
#[test]
fn checksums_that_memory_lacks_are_made() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let paths = paths(dir.path());
    let header = crc32c().encode_meta_header();
    for id in [1, 2] {
        let at = paths.finalized_dir(id);
        write_replica(&at, id, 1001, &bytes(3 << 20));
        fs::write(at.join(names::meta_name(id, 1001)), header).expect("meta");
    }
    let meta = |id| fs::read(paths.finalized_dir(id).join(names::meta_name(id, 1001)));
    run(&paths);
    assert!(meta(1).expect("reads") == header, "only in memory");
    let in_memory = LoadOptions {
        in_memory: true,
        ..options()
    };
    let loaded = load(&paths, &in_memory, &Progress::default()).expect("loads");
    assert_eq!(loaded.finalized.len(), 2);
    let mut expected = header.to_vec();
    crc32c().compute(&bytes(3 << 20), &mut expected);
    for id in [1, 2] {
        assert!(meta(id).expect("reads") == expected);
        let files = fs::read_dir(paths.finalized_dir(id)).expect("lists");
        assert_eq!(
            files.count(),
            if paths.finalized_dir(1) == paths.finalized_dir(2) {
                4
            } else {
                2
            }
        );
    }
}
