//! A DISK and an ARCHIVE volume on one mount.

use std::os::unix::fs::MetadataExt as _;

use hayloft_wire::ids::StorageType;

use super::*;

/// A configuration of a DISK (`data0`) and an ARCHIVE volume (`data1`) that share their mount.
fn shared(dir: &Path, archive_share: f64) -> StoreConfig {
    let mut config = config(dir, 2);
    config.volumes[1].storage_type = StorageType::Archive;
    config.archive_share = Some(archive_share);
    config
}

async fn node(archive_share: f64) -> Node {
    let dir = tempfile::tempdir().expect("temporary directory");
    let config = shared(dir.path(), archive_share);
    Node::start(dir, 2, config).await
}

/// The data file of a finalized block on a volume.
fn data_file(node: &Node, volume: usize, id: i64) -> PathBuf {
    let pool_dir = node.dir.path().join(format!("data{volume}/current"));
    let finalized = pool_dir.join(pool().as_str()).join("current/finalized");
    finalized.join(format!("subdir0/subdir0/blk_{id}"))
}

fn inode(path: &Path) -> u64 {
    std::fs::metadata(path).expect("there").ino()
}

async fn move_to(node: &Node, id: i64, target: StorageType) -> Result<ReplicaRef, StoreError> {
    node.store
        .move_block(&block(id, 1001, 0), target, None)
        .await
}

/// What both volumes use, once nothing waits to be deleted.
async fn used(node: &Node) -> [u64; 2] {
    let mut used = [0; 2];
    for _ in 0..200 {
        let reports = node.store.storage_reports(&pool());
        let now = [reports[0].dfs_used, reports[1].dfs_used];
        if now == used && now.contains(&0) {
            return now;
        }
        used = now;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    used
}

#[tokio::test]
async fn a_replica_goes_to_the_archive_and_back_without_being_copied() {
    let node = node(0.3).await;
    node.put(5, 1001, 100_000).await;
    let (hot, cold) = (data_file(&node, 0, 5), data_file(&node, 1, 5));
    let before = used(&node).await;
    assert!(before[0] > 100_000 && before[1] == 0, "{before:?}");
    let reader = node
        .store
        .open_reader(&block(5, 1001, 0))
        .await
        .expect("opens");
    let number = inode(&hot);
    let moved = move_to(&node, 5, StorageType::Archive)
        .await
        .expect("moves");
    assert_eq!(moved.storage.storage_type, StorageType::Archive);
    assert_eq!(inode(&cold), number, "the same file under another name");
    assert!(!hot.exists());
    assert_eq!(used(&node).await, [0, before[0]], "counted once");
    node.check(5, 1001, 100_000).await;
    check_reader(&reader, 100_000).await;
    let lists = node.store.block_report(&pool());
    assert_eq!((lists[0].1.len(), lists[1].1.len()), (0, 1));
    move_to(&node, 5, StorageType::Disk)
        .await
        .expect("moves back");
    assert_eq!(inode(&hot), number);
    assert_eq!(used(&node).await, before);
    let node = node.kill_and_start().await;
    node.check(5, 1001, 100_000).await;
    assert_eq!(node.store.replica_count(), 1);
}

#[tokio::test]
async fn what_is_moved_is_durable_though_its_commit_round_was_to_come() {
    let node = node(0.5).await;
    node.put(5, 1001, 3_000_000).await;
    move_to(&node, 5, StorageType::Archive)
        .await
        .expect("moves");
    let synced = hayloft_io::locks::lock(&crate::replica::file_pair::SYNCED).clone();
    let tmp = node.dir.path().join("data1");
    let ours: Vec<_> = synced
        .iter()
        .filter(|path| path.starts_with(&tmp))
        .collect();
    let of = |suffix: &str| {
        ours.iter()
            .any(|path| path.to_string_lossy().ends_with(suffix))
    };
    assert!(of("blk_5") && of("blk_5_1001.meta"), "{ours:?}");
}

#[tokio::test]
async fn a_moved_replica_can_be_appended_to() {
    let node = node(0.5).await;
    node.put(5, 1001, 1000).await;
    move_to(&node, 5, StorageType::Archive)
        .await
        .expect("moves");
    let mut writer = node
        .store
        .append(&block(5, 1001, 1000), 1002, 1000)
        .await
        .expect("opens");
    writer.set_checksum(crc32c()).await.expect("keeps");
    writer
        .write(vec![packet(1000, 2000)])
        .await
        .expect("writes");
    writer.finalize().await.expect("finalizes");
    node.check(5, 1002, 2000).await;
    let cold = data_file(&node, 1, 5);
    assert_eq!(std::fs::metadata(cold).expect("there").nlink(), 1);
}

/// A move that was killed where both volumes have the files, and one of which only the meta file
/// has its second name.
#[tokio::test]
async fn a_kill_between_the_names_leaves_one_whole_replica() {
    for whole in [true, false] {
        let node = node(0.5).await;
        node.put(5, 1001, 100_000).await;
        let (hot, cold) = (data_file(&node, 0, 5), data_file(&node, 1, 5));
        node.store.crash();
        std::fs::create_dir_all(cold.parent().expect("a directory")).expect("created");
        let meta = |path: &Path| path.with_file_name("blk_5_1001.meta");
        std::fs::hard_link(meta(&hot), meta(&cold)).expect("linked");
        if whole {
            std::fs::hard_link(&hot, &cold).expect("linked");
        }
        let config = shared(node.dir.path(), 0.5);
        let node = Node::start(node.dir, 2, config).await;
        node.check(5, 1001, 100_000).await;
        let lists = node.store.block_report(&pool());
        assert_eq!(lists[0].1.len() + lists[1].1.len(), 1, "{whole}");
        let left = [&hot, &cold].iter().filter(|path| path.exists()).count();
        assert_eq!(left, 1, "{whole}");
        assert_eq!(
            used(&node).await.iter().filter(|bytes| **bytes > 0).count(),
            1
        );
        // The next move finds nothing in its way.
        let target = if cold.exists() {
            StorageType::Disk
        } else {
            StorageType::Archive
        };
        move_to(&node, 5, target).await.expect("moves");
        node.check(5, 1001, 100_000).await;
    }
}

#[tokio::test]
async fn what_changes_while_it_is_moved_is_not_lost() {
    let node = node(0.5).await;
    for round in 0..20_u64 {
        let id = i64::try_from(round).expect("small");
        node.put(id, 1001, 1000).await;
        let at = block(id, 1001, 1000);
        let append = async {
            let mut writer = node.store.append(&at, 1002, 1000).await?;
            writer.set_checksum(crc32c()).await?;
            writer.write(vec![packet(1000, 3000)]).await?;
            writer.finalize().await
        };
        let moving = node.store.move_block(&at, StorageType::Archive, None);
        let (moved, appended) = tokio::join!(moving, append);
        appended.expect("appends");
        // The move came first, or it was refused.
        let there = data_file(&node, usize::from(moved.is_ok()), id);
        assert!(there.exists(), "{round}: {moved:?}");
        node.check(id, 1002, 3000).await;
    }
    let node = node.kill_and_start().await;
    for id in 0..20 {
        node.check(id, 1002, 3000).await;
    }
    assert_eq!(node.store.replica_count(), 20);
}

#[tokio::test]
async fn two_volumes_have_the_mount_once() {
    let whole = rustix::fs::statvfs("/tmp").map(|s| s.f_blocks * s.f_frsize);
    for (share, ratios) in [
        (0.3, [None, None]),
        (0.9, [None, Some(0.3)]),
        (0.9, [Some(0.7), None]),
        (0.9, [Some(0.7), Some(0.3)]),
    ] {
        let dir = tempfile::tempdir_in("/tmp").expect("temporary directory");
        let mut config = shared(dir.path(), share);
        for (volume, ratio) in config.volumes.iter_mut().zip(ratios) {
            volume.capacity_ratio = ratio;
        }
        let node = Node::start(dir, 2, config).await;
        let reports = node.store.storage_reports(&pool());
        let whole = whole.expect("asked");
        let [disk, archive] = [reports[0].capacity, reports[1].capacity];
        let sum = disk + archive;
        assert!(sum <= whole && whole - sum <= 2, "{sum} of {whole}");
        let off = |bytes: u64, percent: u64| bytes.abs_diff(whole / 100 * percent) < 1000;
        assert!(
            off(disk, 70) && off(archive, 30),
            "{disk} and {archive} of {whole}"
        );
        assert_eq!(reports[0].mount, reports[1].mount);
    }
}

#[tokio::test]
async fn alone_or_switched_off_a_volume_has_all_of_its_mount() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut alone = shared(dir.path(), 0.3);
    alone.volumes.truncate(1);
    let node = Node::start(dir, 1, alone).await;
    let whole = node.store.storage_reports(&pool())[0].capacity;
    // The other type comes while the node runs, and goes again.
    let both = shared(node.dir.path(), 0.3).volumes;
    let come = node.store.reconfigure_volumes(both.clone()).await;
    assert!(come.iter().all(|(_, result)| result.is_ok()), "{come:?}");
    let reports = node.store.storage_reports(&pool());
    assert!(reports[0].capacity < whole && reports[0].capacity > whole / 2);
    let gone = node.store.reconfigure_volumes(both[..1].to_vec()).await;
    assert!(gone.iter().all(|(_, result)| result.is_ok()), "{gone:?}");
    assert_eq!(node.store.storage_reports(&pool())[0].capacity, whole);

    let dir = tempfile::tempdir().expect("temporary directory");
    let mut off = shared(dir.path(), 0.3);
    off.archive_share = None;
    let node = Node::start(dir, 2, off).await;
    node.put(5, 1001, 1000).await;
    let before = inode(&data_file(&node, 0, 5));
    move_to(&node, 5, StorageType::Archive)
        .await
        .expect("moves");
    assert_ne!(
        inode(&data_file(&node, 1, 5)),
        before,
        "copied and verified"
    );
    let reports = node.store.storage_reports(&pool());
    assert_eq!(reports[0].capacity, reports[1].capacity);
}

#[tokio::test]
async fn a_share_that_is_used_up_takes_nothing_more() {
    let node = node(0.0).await;
    node.put(5, 1001, 1000).await;
    let kind = Node::error_of(move_to(&node, 5, StorageType::Archive).await);
    assert_eq!(kind, StoreErrorKind::OutOfSpace);
    node.check(5, 1001, 1000).await;
    let reports = node.store.storage_reports(&pool());
    assert_eq!((reports[1].capacity, reports[1].remaining), (0, 0));
}

#[tokio::test]
async fn what_does_not_fit_on_a_mount_is_refused_in_apaches_words() {
    let refused = async |change: fn(&mut StoreConfig)| {
        let dir = tempfile::tempdir().expect("temporary directory");
        let mut config = shared(dir.path(), 0.3);
        change(&mut config);
        let (events, _receiver) = mpsc::channel(100);
        // The volume counts as failed, and none may.
        let error = Store::open(config, events).await.expect_err("refused");
        assert_eq!(error.kind(), StoreErrorKind::VolumeFailed, "{error}");
    };
    refused(|config| config.volumes[1].storage_type = StorageType::Disk).await;
    refused(|config| {
        config.volumes[0].capacity_ratio = Some(0.8);
        config.volumes[1].capacity_ratio = Some(0.3);
    })
    .await;
}
