//! Stores of one process: space that they share, replicas that they hand to each other.

use std::os::unix::fs::MetadataExt as _;

use hayloft_wire::ids::StorageType;

use super::*;

/// A node with one volume, in a directory of its own on the file system that all of them share.
async fn node(shared: &StoreShared) -> Node {
    node_with(shared, |_| {}).await
}

async fn node_with(shared: &StoreShared, change: impl FnOnce(&mut StoreConfig)) -> Node {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut config = config(dir.path(), 1);
    // Rooms that are only promised here would fill the disk.
    config.preallocate = false;
    change(&mut config);
    let (sender, events) = mpsc::channel(100);
    let opened = Store::open_sharing(config, sender, shared.clone(), None).await;
    let store = opened.expect("opens");
    let added = store.add_pool(spec(), StartOption::Regular).await;
    added.expect("loads");
    Node {
        dir,
        volumes: 1,
        store,
        events,
    }
}

fn shared() -> StoreShared {
    StoreShared::new(8 << 20)
}

impl Node {
    fn report(&self) -> StorageReport {
        self.store.storage_reports(&pool()).remove(0)
    }

    fn blk(&self, id: i64) -> PathBuf {
        let dir = self.pool_dir().join("current/finalized/subdir0/subdir0");
        dir.join(format!("blk_{id}"))
    }

    fn inode(&self, id: i64) -> (u64, u64) {
        let facts = std::fs::metadata(self.blk(id)).expect("there");
        (facts.ino(), facts.nlink())
    }

    async fn take(&self, source: &Self, id: i64, gs: u64) -> Result<TakenOver, StoreError> {
        let (store, block) = (&source.store, block(id, gs, 0));
        let kind = StorageType::Disk;
        self.store.take_over(store, &block, kind, None).await
    }
}

#[tokio::test]
async fn capacities_add_up_to_the_file_system() {
    let shared = shared();
    let nodes = [
        node(&shared).await,
        node(&shared).await,
        node(&shared).await,
    ];
    let alone = Node::new().await;
    let whole = alone.report().capacity;
    let sum = |of: fn(&StorageReport) -> u64| nodes.iter().map(|n| of(&n.report())).sum::<u64>();
    assert!(sum(|r| r.capacity) <= whole);
    assert!(
        sum(|r| r.capacity) >= whole - 3,
        "nothing is lost but what does not divide"
    );
    let before = nodes[1].report();
    nodes[0].put(5, 1001, 3_000_000).await;
    assert!(nodes[0].report().dfs_used >= 3_000_000);
    assert!(nodes[0].report().capacity > nodes[1].report().capacity + 2_900_000);
    assert!(
        nodes[1].report().remaining + 900_000 <= before.remaining,
        "of all is less left"
    );
    assert!(sum(|r| r.capacity) <= whole && sum(|r| r.dfs_used) < 3_100_000);
    assert!(nodes.iter().all(|n| n.report().mount.is_empty()));
    // What one leaves, the others have: the parts are larger by half.
    let [first, second, third] = nodes;
    second.store.shutdown().await;
    drop(second);
    assert!(first.report().remaining > before.remaining / 3 * 4);
    assert!(first.report().capacity + third.report().capacity <= whole);
}

#[tokio::test]
async fn shares_of_both_types_add_up_to_the_file_system_too() {
    let shared = shared();
    let both = |config: &mut StoreConfig| {
        let mut archive = config.volumes[0].clone();
        archive.path = config.volumes[0].path.with_file_name("archive");
        archive.storage_type = StorageType::Archive;
        std::fs::create_dir_all(&archive.path).expect("directory");
        config.volumes.push(archive);
        config.archive_share = Some(0.25);
    };
    let nodes = [
        node_with(&shared, both).await,
        node_with(&shared, both).await,
    ];
    let alone = Node::new().await;
    let whole = alone.report().capacity;
    let reports = || -> Vec<StorageReport> {
        let of = |node: &Node| node.store.storage_reports(&pool());
        nodes.iter().flat_map(of).collect()
    };
    let sum = |kind: StorageType, of: fn(&StorageReport) -> u64| -> u64 {
        let all = reports();
        let these = all.iter().filter(|r| r.storage.storage_type == kind);
        these.map(of).sum()
    };
    let (disk, archive) = (StorageType::Disk, StorageType::Archive);
    let capacity = |r: &StorageReport| r.capacity;
    let close = |is: u64, wanted: u64| is <= wanted && is + 4 >= wanted;
    assert!(close(sum(archive, capacity), whole / 4), "{:?}", reports());
    assert!(close(sum(disk, capacity), whole - whole / 4));
    let before = sum(archive, |r| r.remaining);
    nodes[0].put(5, 1001, 3_000_000).await;
    assert!(sum(disk, |r| r.dfs_used) >= 3_000_000 && sum(archive, |r| r.dfs_used) == 0);
    assert!(close(sum(archive, capacity), whole / 4));
    assert!(close(sum(disk, capacity), whole - whole / 4));
    // What is free is shared, unless the share of the archive is smaller.
    let free = sum(archive, |r| r.remaining);
    assert!(
        free <= before && free + 3_200_000 >= before,
        "{before} {free}"
    );
}

#[tokio::test]
async fn room_that_is_promised_to_one_is_promised_for_all() {
    let shared = shared();
    let (a, b) = (node(&shared).await, node(&shared).await);
    let options = |bytes: u64| WriteOptions {
        expected_len: Some(bytes),
        ..WriteOptions::default()
    };
    let most = (a.report().remaining + b.report().remaining) / 4 * 3;
    let first = a.store.create_rbw(&block(1, 1001, 0), options(most)).await;
    let first = first.expect("more than its part, but there");
    let second = b.store.create_rbw(&block(2, 1001, 0), options(most)).await;
    assert_eq!(Node::error_of(second), StoreErrorKind::OutOfSpace);
    assert!(a.report().remaining + b.report().remaining <= most / 2);
    drop(first);
    a.store
        .invalidate(&pool(), &[Block::new(1, 1001, 0)])
        .await
        .expect("goes");
    let second = b.store.create_rbw(&block(2, 1001, 0), options(most)).await;
    second.expect("the room is free again");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_that_ask_at_once_are_promised_no_more_than_there_is() {
    let shared = shared();
    let nodes = [node(&shared).await, node(&shared).await];
    let third = (nodes[0].report().remaining + nodes[1].report().remaining) / 10 * 3;
    let asks = (0..20).map(|id| {
        let store = nodes[id % 2].store.clone();
        tokio::spawn(async move {
            let options = WriteOptions {
                expected_len: Some(third),
                ..WriteOptions::default()
            };
            let id = i64::try_from(id).expect("small");
            store.create_rbw(&block(id, 1001, 0), options).await.ok()
        })
    });
    let writers = futures_util::future::join_all(asks).await;
    let promised = writers
        .iter()
        .filter(|w| w.as_ref().expect("no panic").is_some());
    assert_eq!(promised.count(), 3);
}

#[tokio::test]
async fn a_sibling_on_the_same_disk_takes_a_replica_without_a_copy() {
    let shared = shared();
    let (from, to) = (node(&shared).await, node(&shared).await);
    from.put(5, 1001, 100_000).await;
    let (inode, _) = from.inode(5);
    let taken = to.take(&from, 5, 1001).await.expect("taken over");
    assert!(taken.linked);
    assert_eq!(taken.replica.block.block, Block::new(5, 1001, 100_000));
    assert_eq!((from.inode(5), to.inode(5)), ((inode, 2), (inode, 2)));
    to.check(5, 1001, 100_000).await;
    from.check(5, 1001, 100_000).await;
    assert_eq!(to.report().dfs_used, from.report().dfs_used);
    assert_eq!(
        Node::error_of(to.take(&from, 5, 1001).await),
        StoreErrorKind::AlreadyExists
    );
    // As the NameNode orders after it heard of the second.
    let order = [Block::new(5, 1001, 0)];
    let ordered = from.store.invalidate(&pool(), &order).await;
    ordered.expect("goes");
    let to = to.kill_and_start().await;
    to.check(5, 1001, 100_000).await;
    for _ in 0..500 {
        if to.inode(5) == (inode, 1) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the first name stays: {:?}", to.inode(5));
}

#[tokio::test]
async fn an_append_after_a_take_over_leaves_the_other_alone() {
    let shared = shared();
    let (from, to) = (node(&shared).await, node(&shared).await);
    from.put(5, 1001, 1000).await;
    to.take(&from, 5, 1001).await.expect("taken over");
    let appended = from.store.append(&block(5, 1001, 1000), 1002, 1000).await;
    let mut writer = appended.expect("reopens");
    writer.set_checksum(crc32c()).await.expect("keeps");
    writer
        .write(vec![packet(1000, 5000)])
        .await
        .expect("writes");
    writer.finalize().await.expect("finalizes");
    from.check(5, 1002, 5000).await;
    to.check(5, 1001, 1000).await;
    assert_ne!(from.inode(5).0, to.inode(5).0);
}

#[tokio::test]
async fn between_file_systems_a_replica_is_copied_and_verified() {
    // Stores that share nothing know no file system together.
    let (from, to) = (node(&shared()).await, node(&shared()).await);
    from.put(5, 1001, 3_000_000).await;
    from.put(6, 1001, 3_000_000).await;
    let taken = to.take(&from, 5, 1001).await.expect("taken over");
    assert!(!taken.linked);
    to.check(5, 1001, 3_000_000).await;
    assert_ne!(from.inode(5).0, to.inode(5).0);
    let mut damaged = std::fs::read(from.blk(6)).expect("there");
    damaged[2_000_000] ^= 1;
    std::fs::write(from.blk(6), damaged).expect("writes");
    assert_eq!(
        Node::error_of(to.take(&from, 6, 1001).await),
        StoreErrorKind::Io
    );
    assert!(to.store.replica(&pool(), 6).is_none());
    let tmp = to.pool_dir().join("tmp");
    let left = std::fs::read_dir(tmp)
        .expect("there")
        .filter_map(Result::ok);
    let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
    assert!(
        left.iter()
            .all(|name| !name.to_string_lossy().starts_with("move-")),
        "{left:?}"
    );
}

#[tokio::test]
async fn what_is_not_finalized_or_not_there_is_not_taken_over() {
    let shared = shared();
    let (from, to) = (node(&shared).await, node(&shared).await);
    let _writer = from.writer(5, 1001).await;
    for id in [5, 6] {
        assert_eq!(
            Node::error_of(to.take(&from, id, 1001).await),
            StoreErrorKind::NotFound
        );
    }
    from.put(7, 1001, 1000).await;
    let kind = Node::error_of(to.take(&from, 7, 1002).await);
    assert_eq!(kind, StoreErrorKind::UnexpectedGenerationStamp);
    let (seven, kind) = (block(7, 1001, 0), StorageType::Archive);
    let archive = to.store.take_over(&from.store, &seven, kind, None);
    assert_eq!(Node::error_of(archive.await), StoreErrorKind::OutOfSpace);
}
