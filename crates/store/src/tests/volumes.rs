use super::*;
use hayloft_wire::ids::StorageType;

#[tokio::test]
async fn replicas_are_spread_over_volumes_or_go_where_asked() {
    let node = Node::with_volumes(2).await;
    for id in 0..10 {
        node.put(id, 1001, 100).await;
    }
    let counts: Vec<usize> = node
        .store
        .block_report(&pool())
        .iter()
        .map(|(_, list)| list.len())
        .collect();
    assert_eq!(counts, [5, 5]);
    let second = node.store.block_report(&pool())[1].0.clone();
    for id in 10..14 {
        let options = WriteOptions {
            storage_id: Some(second.id.to_string()),
            ..WriteOptions::default()
        };
        let writer = node
            .store
            .create_rbw(&block(id, 1001, 0), options)
            .await
            .expect("creates");
        assert_eq!(*writer.storage(), second);
    }
}

#[tokio::test]
async fn a_slow_volume_is_avoided_until_the_next_search_finds_it_well() {
    let node = Node::with_volumes(2).await;
    let counts = || {
        let report = node.store.block_report(&pool());
        (report[0].1.len(), report[1].1.len())
    };
    node.store.avoid_volumes(&[&node.dir.path().join("data1")]);
    for id in 0..6 {
        node.put(id, 1001, 100).await;
    }
    assert_eq!(counts(), (6, 0));
    node.store.avoid_volumes(&[]);
    for id in 6..12 {
        node.put(id, 1001, 100).await;
    }
    assert_eq!(counts(), (9, 3));
}

#[tokio::test]
async fn a_replica_moves_between_storage_types() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut config = config(dir.path(), 2);
    config.volumes[1].storage_type = StorageType::Archive;
    let node = Node::start(dir, 2, config).await;
    node.put(5, 1001, 100_000).await;
    let reader = node
        .store
        .open_reader(&block(5, 1001, 0))
        .await
        .expect("opens");
    let kind = Node::error_of(
        node.store
            .move_block(&block(5, 1001, 0), StorageType::Disk, None)
            .await,
    );
    assert_eq!(kind, StoreErrorKind::AlreadyExists);
    let kind = Node::error_of(
        node.store
            .move_block(&block(5, 1001, 0), StorageType::Ssd, None)
            .await,
    );
    assert_eq!(kind, StoreErrorKind::OutOfSpace);
    let moved = node
        .store
        .move_block(&block(5, 1001, 0), StorageType::Archive, None)
        .await
        .expect("moves");
    assert_eq!(moved.storage.storage_type, StorageType::Archive);
    node.check(5, 1001, 100_000).await;
    check_reader(&reader, 100_000).await;
    let node = node.kill_and_start().await;
    node.check(5, 1001, 100_000).await;
    assert_eq!(node.store.replica_count(), 1);
}

#[tokio::test]
async fn a_replica_moves_to_the_named_volume_or_stays() {
    let node = Node::with_volumes(3).await;
    for id in 0..9 {
        node.put(id, 1001, 100).await;
    }
    let report = node.store.block_report(&pool());
    let ids = [0, 1, 2].map(|n| report[n].0.id.to_string());
    let listed = |volume: usize, after, len_max, max| -> Vec<i64> {
        let of = (&pool(), &*ids[volume]);
        let found = node.store.movable_on(of, after, len_max, max);
        found.iter().map(|b| b.block.id).collect()
    };
    let all = listed(0, i64::MIN, 100, 10);
    assert_eq!(all.len(), 3);
    assert_eq!(listed(0, all[0], 100, 1), all[1..2]);
    assert_eq!(listed(0, i64::MIN, 99, 10), Vec::<i64>::new());
    assert_eq!(node.store.volume_spaces().len(), 3);
    let at = block(all[0], 1001, 0);
    let store = &node.store;
    let elsewhere = store.move_between(&at, &ids[1], &ids[2]).await;
    assert_eq!(Node::error_of(elsewhere), StoreErrorKind::NotFound);
    let nowhere = store.move_between(&at, &ids[0], "DS-none").await;
    assert_eq!(Node::error_of(nowhere), StoreErrorKind::VolumeFailed);
    let moved = store.move_between(&at, &ids[0], &ids[2]).await;
    assert_eq!(*moved.expect("moves").storage.id, *ids[2]);
    assert_eq!(listed(0, i64::MIN, 100, 10), all[1..]);
    assert!(listed(2, i64::MIN, 100, 10).contains(&all[0]));
    let node = node.kill_and_start().await;
    node.check(all[0], 1001, 100).await;
    assert_eq!(node.store.replica_count(), 9);
}

#[tokio::test]
async fn a_damaged_replica_is_not_moved() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut config = config(dir.path(), 2);
    config.volumes[1].storage_type = StorageType::Archive;
    let node = Node::start(dir, 2, config).await;
    node.put(5, 1001, 100_000).await;
    let data = node
        .pool_dir()
        .join("current/finalized/subdir0/subdir0/blk_5");
    let mut damaged = std::fs::read(&data).expect("there");
    damaged[60_000] ^= 1;
    std::fs::write(&data, damaged).expect("writes");
    assert!(
        node.store
            .move_block(&block(5, 1001, 0), StorageType::Archive, None)
            .await
            .is_err()
    );
    assert_eq!(node.store.block_report(&pool())[0].1.len(), 1);
    assert!(node.store.block_report(&pool())[1].1.is_empty());
}

#[tokio::test]
async fn two_stores_do_not_share_a_directory() {
    let node = Node::new().await;
    let (events, _receiver) = mpsc::channel(1);
    let error = Store::open(config(node.dir.path(), 1), events)
        .await
        .expect_err("locked");
    assert_eq!(error.kind(), StoreErrorKind::Incompatible);
    assert!(error.to_string().contains("in_use.lock"), "{error}");
    let note = std::fs::read_to_string(node.dir.path().join("data0/in_use.lock")).expect("there");
    assert!(
        note.starts_with(&format!("{}@", std::process::id())),
        "{note}"
    );
}

#[tokio::test]
async fn a_directory_of_another_node_is_refused_before_its_engine_is_opened() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut config = config(dir.path(), 1);
    let root = config.volumes[0].path.clone();
    std::fs::create_dir_all(&root).expect("creates");
    config.volumes[0].engine = "plugin:/nothing.so /dev/nothing".to_owned();
    let lock = hayloft_io::RecordLock::acquire(&root.join("in_use.lock"), b"4711@elsewhere");
    let open = || Store::open(config.clone(), mpsc::channel(1).0);
    let began = std::time::Instant::now();
    let error = open().await.expect_err("locked");
    assert_eq!(error.kind(), StoreErrorKind::Incompatible);
    let said = error.to_string();
    assert!(said.contains("another DataNode uses this"), "{said}");
    assert!(!said.contains("nothing.so"), "{said}");
    assert!(began.elapsed().as_secs() < 5, "it waits for nothing");
    drop(lock.expect("free"));
    let said = open().await.expect_err("no such plug-in").to_string();
    assert!(said.contains("nothing.so"), "{said}");
}

#[tokio::test]
async fn directories_of_another_cluster_or_node_are_refused_by_name() {
    let node = Node::with_volumes(2).await;
    let uuid = node.store.datanode_uuid();
    let other = PoolSpec {
        cluster_id: "CID-2".to_owned(),
        ..spec()
    };
    let error = node
        .store
        .add_pool(other, StartOption::Regular)
        .await
        .expect_err("another cluster");
    assert_eq!(error.kind(), StoreErrorKind::Incompatible);
    for part in ["Incompatible clusterIDs", "CID-1", "CID-2", "data0"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    node.store.shutdown().await;
    let version = node.dir.path().join("data1/current/VERSION");
    let text = std::fs::read_to_string(&version).expect("there");
    std::fs::write(&version, text.replace(&uuid, "another")).expect("writes");
    let (events, _receiver) = mpsc::channel(1);
    let error = Store::open(config(node.dir.path(), 2), events)
        .await
        .expect_err("another node");
    assert!(
        error.to_string().contains("datanodeUuid another"),
        "{error}"
    );
}

#[tokio::test]
async fn identity_is_kept_and_new_volumes_join() {
    let node = Node::new().await;
    let (uuid, storage) = (
        node.store.datanode_uuid(),
        node.store.storage_reports(&pool())[0].storage.clone(),
    );
    assert_eq!(node.store.storage_info().cluster_id, "CID-1");
    let mut node = node;
    node.volumes = 3;
    let node = node.restart().await;
    assert_eq!(node.store.datanode_uuid(), uuid);
    let reports = node.store.storage_reports(&pool());
    assert!(reports.len() == 3 && reports[0].storage == storage);
    for n in 0..3 {
        let text =
            std::fs::read_to_string(node.dir.path().join(format!("data{n}/current/VERSION")))
                .expect("there");
        assert!(
            text.contains(&format!("datanodeUuid={uuid}")) && text.contains("clusterID=CID-1"),
            "{text}"
        );
    }
}

#[tokio::test]
async fn a_directory_that_cannot_be_used_is_tolerated_as_configured() {
    let dir = tempfile::tempdir().expect("temporary directory");
    std::fs::write(dir.path().join("data1"), b"a file").expect("writes");
    let (events, _receiver) = mpsc::channel(1);
    let error = Store::open(config(dir.path(), 2), events.clone())
        .await
        .expect_err("one of two failed");
    assert!(
        error.to_string().contains("Too many failed volumes"),
        "{error}"
    );
    for tolerated in [1, -1] {
        let config = StoreConfig {
            failed_volumes_tolerated: tolerated,
            ..config(dir.path(), 2)
        };
        let store = Store::open(config, events.clone())
            .await
            .expect("tolerated");
        assert_eq!(
            store.failure_summary().failed_locations,
            [dir.path().join("data1")]
        );
        store.shutdown().await;
    }
}

#[tokio::test]
async fn a_volume_that_vanishes_fails_and_the_rest_serves_on() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let config = StoreConfig {
        failed_volumes_tolerated: 1,
        ..config(dir.path(), 2)
    };
    let mut node = Node::start(dir, 2, config).await;
    for id in 0..10 {
        node.put(id, 1001, 100).await;
    }
    let writer = node.writer(99, 1001).await;
    std::fs::remove_dir_all(node.dir.path().join("data0")).expect("removes");
    node.store.check_volumes().await;
    let Some(StoreEvent::VolumeFailed { fatal, path, .. }) = node.events.recv().await else {
        panic!("no event")
    };
    assert!(!fatal && path == node.dir.path().join("data0"));
    assert_eq!(node.store.storage_reports(&pool()).len(), 1);
    assert_eq!(
        node.store.block_report(&pool())[0]
            .1
            .iter()
            .filter(|r| r.block.id < 10)
            .count(),
        5
    );
    drop(writer);
    for id in 20..24 {
        node.put(id, 1001, 100).await;
        node.check(id, 1001, 100).await;
    }
    assert_eq!(node.store.failure_summary().failed_locations.len(), 1);
}

#[tokio::test]
async fn pools_are_separate_and_removable() {
    let node = Node::new().await;
    let second = PoolId::new("BP-2-127.0.0.1-1700000000000").expect("valid");
    node.store
        .add_pool(
            PoolSpec {
                pool: second.clone(),
                namespace_id: 78,
                ..spec()
            },
            StartOption::Regular,
        )
        .await
        .expect("adds");
    node.put(5, 1001, 100).await;
    assert!(node.store.replica(&second, 5).is_none());
    assert_eq!(node.store.pools().len(), 2);
    let kind = Node::error_of(node.store.remove_pool(&pool(), false).await);
    assert_eq!(kind, StoreErrorKind::Illegal);
    // Before an administrator can delete it, the pool is no longer served: it is not in memory.
    node.store.forget_pool(&pool()).await;
    let kind = Node::error_of(node.store.remove_pool(&pool(), false).await);
    assert_eq!(kind, StoreErrorKind::Illegal);
    let rbw = node.pool_dir().join("current/rbw");
    assert!(rbw.is_dir() && node.pool_dir().join("current/finalized").is_dir());
    node.store
        .remove_pool(&pool(), true)
        .await
        .expect("removes");
    assert!(!node.pool_dir().exists());
    assert_eq!(node.store.pools(), std::slice::from_ref(&second));
    node.store
        .remove_pool(&second, false)
        .await
        .expect("an empty pool needs no force");
}

#[tokio::test]
async fn volumes_are_exchanged_while_the_node_runs() {
    let mut node = Node::with_volumes(2).await;
    for id in 0..10 {
        node.put(id, 1001, 100).await;
    }
    let all = config(node.dir.path(), 3).volumes;
    let results = node.store.reconfigure_volumes(all[1..].to_vec()).await;
    assert_eq!(results.len(), 2);
    assert!(
        results.iter().all(|(_, result)| result.is_ok()),
        "{results:?}"
    );
    assert_eq!(node.store.replica_count(), 5);
    assert_eq!(node.store.storage_reports(&pool()).len(), 2);
    // The NameNode must hear of every replica that left.
    for _ in 0..5 {
        let event = tokio::time::timeout(Duration::from_secs(5), node.events.recv()).await;
        assert!(
            matches!(event, Ok(Some(StoreEvent::Lost { .. }))),
            "{event:?}"
        );
    }
    node.put(20, 1001, 100).await;
    node.put(21, 1001, 100).await;
    // The volume comes back with all that is on it, and the node is the same after a restart.
    let results = node.store.reconfigure_volumes(all).await;
    assert!(results.len() == 1 && results[0].1.is_ok(), "{results:?}");
    assert_eq!(node.store.replica_count(), 12);
    node.volumes = 3;
    let node = node.restart().await;
    assert_eq!(node.store.replica_count(), 12);
    for id in 0..10 {
        node.check(id, 1001, 100).await;
    }
}

#[tokio::test]
async fn an_exchange_that_cannot_be_done_changes_nothing() {
    let node = Node::with_volumes(1).await;
    node.put(5, 1001, 100).await;
    assert!(
        node.store.reconfigure_volumes(Vec::new()).await[0]
            .1
            .is_err()
    );
    let mut wanted = config(node.dir.path(), 1).volumes;
    wanted[0].storage_type = StorageType::Ssd;
    assert!(node.store.reconfigure_volumes(wanted).await[0].1.is_err());
    let mut wanted = config(node.dir.path(), 2).volumes;
    std::fs::write(&wanted[1].path, b"a file").expect("writes");
    let results = node.store.reconfigure_volumes(wanted.clone()).await;
    assert!(results.len() == 1 && results[0].1.is_err(), "{results:?}");
    wanted.remove(0);
    let results = node.store.reconfigure_volumes(wanted).await;
    assert!(
        results.iter().all(|(_, result)| result.is_err()),
        "{results:?}"
    );
    node.check(5, 1001, 100).await;
}

#[tokio::test]
async fn a_repaired_volume_is_taken_in_again() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let start = StoreConfig {
        failed_volumes_tolerated: 1,
        ..config(dir.path(), 2)
    };
    let node = Node::start(dir, 2, start).await;
    for id in 0..10 {
        node.put(id, 1001, 100).await;
    }
    let (disk, away) = (node.dir.path().join("data0"), node.dir.path().join("away"));
    std::fs::rename(&disk, &away).expect("renames");
    node.store.check_volumes().await;
    assert_eq!(node.store.failure_summary().failed_locations.len(), 1);
    assert_eq!(node.store.replica_count(), 5);
    std::fs::rename(&away, &disk).expect("renames");
    let results = node
        .store
        .reconfigure_volumes(config(node.dir.path(), 2).volumes)
        .await;
    assert!(results.len() == 1 && results[0].1.is_ok(), "{results:?}");
    assert_eq!(node.store.replica_count(), 10);
    assert!(node.store.failure_summary().failed_locations.is_empty());
}

#[tokio::test]
async fn a_check_makes_passing_directories_again_and_misses_lasting_ones() {
    let node = Node::new().await;
    node.put(1, 1001, 100).await;
    for name in ["current/rbw", "tmp"] {
        std::fs::remove_dir_all(node.pool_dir().join(name)).expect("removes");
    }
    node.store.check_volumes().await;
    node.put(2, 1001, 100).await;
    node.store
        .invalidate(&pool(), &[Block::new(2, 1001, 100)])
        .await
        .expect("deletes");
    assert!(node.store.failure_summary().failed_locations.is_empty());
    // A check that went well is good for a second.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    std::fs::remove_dir_all(node.pool_dir().join("current/finalized")).expect("removes");
    node.store.check_volumes().await;
    assert_eq!(node.store.failure_summary().failed_locations.len(), 1);
}
