//! Memory that loses what it had, and disks that lose copies.

use hayloft_wire::ids::StorageType;

use super::*;

/// A node on which a volume may fail, with a persisted replica 1 and one that is not, 2.
async fn one_persisted() -> Node {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut config = lazy_config(dir.path(), 2);
    outlives_a_volume(&mut config);
    let node = start_on(dir, 8, config).await;
    node.put_lazy(1).await;
    node.persist().await;
    node.put_lazy(2).await;
    node
}

#[tokio::test]
async fn of_a_memory_that_fails_only_what_was_not_persisted_is_lost() {
    let mut node = one_persisted().await;
    // The whole of it is gone, as after a tmpfs was unmounted.
    std::fs::remove_dir_all(node.dir.path().join("data1")).expect("removes");
    node.store.check_volumes().await;
    let (mut found, mut lost) = (Vec::new(), Vec::new());
    while found.len() + lost.len() < 2 {
        match node.next_event().await {
            StoreEvent::Found { block, storage } => found.push((block.block.id, storage)),
            StoreEvent::Lost { block, .. } => lost.push(block.block.id),
            StoreEvent::VolumeFailed { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(lost, [2]);
    assert_eq!((found.len(), found[0].0), (1, 1));
    assert_eq!(found[0].1.storage_type, StorageType::Disk);
    node.check(1, 1001, len()).await;
    assert_eq!(node.files(0, "finalized"), pair(1, 1001));
    assert!(node.files(0, "lazypersist").is_empty());
    assert_eq!(node.put_lazy(3).await, StorageType::Disk);
}

#[tokio::test]
async fn files_that_are_gone_from_memory_are_served_from_the_copy() {
    let mut node = one_persisted().await;
    let dir = node.current(RAM).join("finalized/subdir0/subdir0");
    for name in [pair(1, 1001), pair(2, 1001)].concat() {
        std::fs::remove_file(dir.join(name)).expect("removes");
    }
    // The reader that meets it, and the next one.
    let opened = node.store.open_reader(&block(1, 1001, 0)).await;
    if let Ok(reader) = opened {
        check_reader(&reader, len()).await;
    }
    assert_eq!(node.found().await, (1, StorageType::Disk));
    node.check(1, 1001, len()).await;
    let gone = node.store.open_reader(&block(2, 1001, 0)).await;
    assert!(gone.is_err());
    let event = node.next_event().await;
    assert!(matches!(event, StoreEvent::Lost { .. }), "{event:?}");
}

#[tokio::test]
async fn damage_in_memory_is_mended_from_the_copy() {
    let mut node = one_persisted().await;
    let data = node.current(RAM).join("finalized/subdir0/subdir0/blk_1");
    let mut damaged = bytes(0, len());
    damaged[700] ^= 1;
    std::fs::write(data, damaged).expect("writes");
    node.store.0.mark_suspect(&block(1, 1001, len() as u64));
    assert_eq!(node.found().await, (1, StorageType::Disk));
    node.check(1, 1001, len()).await;
}

#[tokio::test]
async fn damage_in_memory_is_not_copied() {
    let mut node = one_persisted().await;
    let data = node.current(RAM).join("finalized/subdir0/subdir0/blk_2");
    let mut damaged = bytes(0, len());
    damaged[700] ^= 1;
    std::fs::write(data, damaged).expect("writes");
    node.persist().await;
    assert_eq!(node.files(0, "lazypersist"), pair(1, 1001));
    let event = node.next_event().await;
    assert!(matches!(event, StoreEvent::Corrupt { .. }), "{event:?}");
}

#[tokio::test]
async fn copies_on_a_disk_that_leaves_are_made_again() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let config = lazy_config(dir.path(), 3);
    let volumes = config.volumes.clone();
    let node = start_on(dir, 8, config).await;
    for id in 1..=4 {
        node.put_lazy(id).await;
    }
    node.persist().await;
    let on = |volume| node.files(volume, "lazypersist").len();
    assert_eq!((on(0), on(2)), (4, 4));
    let left = volumes[..2].to_vec();
    let results = node.store.reconfigure_volumes(left).await;
    assert!(results.iter().all(|(_, result)| result.is_ok()));
    node.persist().await;
    assert_eq!(on(0), 8);
    assert_eq!(node.use_now().persisted, 6);
}

#[tokio::test]
async fn a_copy_that_is_gone_keeps_the_replica_in_memory() {
    let node = node(1).await;
    node.put_lazy(1).await;
    node.persist().await;
    let copy = node.current(0).join("lazypersist/subdir0/subdir0");
    std::fs::remove_dir_all(&copy).expect("removes");
    assert_eq!(node.put_lazy(2).await, StorageType::Disk);
    assert_eq!(node.storage_of(1), Some(StorageType::RamDisk));
    node.check(1, 1001, len()).await;
    // It is copied again, and may leave then.
    node.persist().await;
    assert_eq!(node.put_lazy(3).await, StorageType::RamDisk);
    node.check(1, 1001, len()).await;
    assert_eq!(node.storage_of(1), Some(StorageType::Disk));
}

#[tokio::test]
async fn damage_that_an_append_meets_is_mended_and_holds_nothing() {
    let mut node = one_persisted().await;
    let data = node.current(RAM).join("finalized/subdir0/subdir0/blk_1");
    let mut damaged = bytes(0, len());
    *damaged.last_mut().expect("some") ^= 1;
    std::fs::write(data, damaged).expect("writes");
    let wanted = block(1, 1001, 0);
    let append = node.store.append(&wanted, 1002, len() as u64);
    let appended = tokio::time::timeout(Duration::from_secs(10), append).await;
    let kind = Node::error_of(appended.expect("ends"));
    assert_eq!(kind, StoreErrorKind::Corrupt);
    assert_eq!(node.found().await, (1, StorageType::Disk));
    node.check(1, 1001, len()).await;
}

#[tokio::test]
async fn a_copy_that_cannot_be_moved_stays_the_copy() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let faults = Faults::new(1);
    let config = StoreConfig {
        faults: Some((dir.path().join("data0"), Arc::clone(&faults))),
        ..lazy_config(dir.path(), 2)
    };
    let node = start_on(dir, 1, config).await;
    node.put_lazy(1).await;
    node.persist().await;
    faults.add(FaultRule::new(Effect::Errno(EIO)).on(&[IoOp::Rename]));
    let options = lazy(len() as u64);
    let created = node.store.create_rbw(&block(2, 1001, 0), options).await;
    let writer = created.expect("creates");
    assert_eq!(writer.storage().storage_type, StorageType::Disk);
    drop(writer);
    faults.clear();
    assert_eq!(node.files(0, "lazypersist"), pair(1, 1001));
    assert_eq!(node.use_now().persisted, 1);
    // It leaves without another copy.
    assert_eq!(node.put_lazy(3).await, StorageType::RamDisk);
    assert_eq!(node.use_now().persisted, 1);
    node.check(1, 1001, len()).await;
}

#[tokio::test]
async fn what_is_left_of_a_copy_is_not_in_the_way_of_the_next() {
    let node = node(3).await;
    node.put_lazy(1).await;
    node.persist().await;
    let loaded = node.store.0.pool(&pool()).expect("loaded");
    let in_memory = &loaded.map.in_memory;
    let taken = in_memory.take_copy(1).expect("has one");
    in_memory.keep_stale(1, taken.copy);
    node.persist().await;
    assert_eq!(node.use_now().persisted, 2);
    assert_eq!(node.files(0, "lazypersist"), pair(1, 1001));
    assert!(in_memory.persisted(1).is_some() && !in_memory.has_stale(1));
}

#[tokio::test]
async fn a_copy_that_cannot_be_moved_keeps_no_other_replica_in_memory() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let faults = Faults::new(1);
    let config = StoreConfig {
        faults: Some((dir.path().join("data0"), Arc::clone(&faults))),
        ..lazy_config(dir.path(), 2)
    };
    let node = start_on(dir, 2, config).await;
    node.put_lazy(1).await;
    node.put_lazy(2).await;
    node.persist().await;
    let rule = FaultRule::new(Effect::Errno(EIO)).on(&[IoOp::Rename]);
    faults.add(rule.at(|path| path.ends_with("blk_1")));
    assert_eq!(node.put_lazy(3).await, StorageType::RamDisk);
    assert_eq!(node.storage_of(1), Some(StorageType::RamDisk));
    assert_eq!(node.storage_of(2), Some(StorageType::Disk));
}

#[tokio::test]
async fn a_copy_that_is_gone_with_its_replica_is_counted_off_once() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut config = lazy_config(dir.path(), 2);
    config.lazy_writer_interval = Duration::from_millis(50);
    let node = start_on(dir, 8, config).await;
    node.put(5, 1001, 30 * len()).await;
    node.put_lazy(1).await;
    for _ in 0..100 {
        if node.use_now().persisted == 1 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let used = || {
        let reports = node.store.storage_reports(&pool()).into_iter();
        let mut on_disk = reports.filter(|r| r.storage.storage_type == StorageType::Disk);
        on_disk.next().expect("there").dfs_used
    };
    let before = used();
    for (volume, below) in [(0, "lazypersist"), (RAM, "finalized")] {
        let dir = node.current(volume).join(below).join("subdir0/subdir0");
        for name in pair(1, 1001) {
            std::fs::remove_file(dir.join(name)).expect("removes");
        }
    }
    let gone = node.store.open_reader(&block(1, 1001, 0)).await;
    assert!(gone.is_err());
    tokio::time::sleep(Duration::from_millis(500)).await;
    let less = before - used();
    assert!((len() as u64..2 * len() as u64).contains(&less), "{less}");
    let loaded = node.store.0.pool(&pool()).expect("loaded");
    assert!(!loaded.map.in_memory.has_stale(1), "nothing is left to do");
}

#[tokio::test]
async fn damage_of_what_has_left_memory_is_not_told() {
    let mut node = node(1).await;
    node.put_lazy(1).await;
    node.persist().await;
    let storage = node.store.replica(&pool(), 1).expect("is here").storage;
    node.put_lazy(2).await;
    assert_eq!(node.found().await, (1, StorageType::Disk));
    let block = block(1, 1001, len() as u64);
    let event = StoreEvent::Corrupt { block, storage };
    node.store.0.send_event(event).await;
    let told = tokio::time::timeout(Duration::from_millis(500), node.events.recv()).await;
    assert!(told.is_err(), "{told:?}");
}
