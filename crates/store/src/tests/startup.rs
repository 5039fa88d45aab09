use super::*;
use hayloft_wire::ids::StorageType;
use std::time::Instant;

/// Enough replicas to notice anything that is not linear, few enough to stay cheap.
#[tokio::test]
async fn many_replicas_are_found_quickly_with_and_without_the_cache() {
    const REPLICAS: i64 = 5_000;
    let node = Node::new().await;
    let finalized = node.pool_dir().join("current/finalized");
    let meta = crc32c().encode_meta_header();
    for id in 1_073_741_825..1_073_741_825 + REPLICAS {
        let dir = finalized.join(crate::layout::names::subdir(id));
        std::fs::create_dir_all(&dir).expect("directory");
        std::fs::write(dir.join(format!("blk_{id}")), b"").expect("data");
        std::fs::write(dir.join(format!("blk_{id}_1001.meta")), meta).expect("meta");
    }
    let started = Instant::now();
    let node = node.kill_and_start().await;
    assert_eq!(node.store.replica_count(), REPLICAS.unsigned_abs());
    let node = node.restart().await;
    assert_eq!(node.store.replica_count(), REPLICAS.unsigned_abs());
    assert!(
        started.elapsed() < Duration::from_secs(10),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test]
async fn of_two_replicas_of_a_block_the_newer_stays() {
    let node = Node::with_volumes(2).await;
    node.put(5, 1001, 3000).await;
    let other = node
        .dir
        .path()
        .join("data1/current")
        .join(pool().as_str())
        .join("current/finalized/subdir0/subdir0");
    let here = node.pool_dir().join("current/finalized/subdir0/subdir0");
    let (full, lone) = if here.join("blk_5").exists() {
        (here, other)
    } else {
        (other, here)
    };
    std::fs::create_dir_all(&lone).expect("directory");
    std::fs::copy(full.join("blk_5"), lone.join("blk_5")).expect("copies");
    std::fs::copy(full.join("blk_5_1001.meta"), lone.join("blk_5_1002.meta")).expect("copies");
    let node = node.kill_and_start().await;
    node.check(5, 1002, 3000).await;
    assert!(
        lone.join("blk_5").exists()
            && !full.join("blk_5").exists()
            && !full.join("blk_5_1001.meta").exists()
    );
}

/// Apache's node writes to RAM_DISK and copies to DISK: of equal copies the lasting one is kept,
/// whichever volume comes first.
#[tokio::test]
async fn of_equal_replicas_the_one_outside_of_the_ram_disk_stays() {
    for ram in [0, 1] {
        let dir = tempfile::tempdir().expect("temporary directory");
        let types = |volumes: &mut Vec<VolumeConfig>| {
            volumes[ram].storage_type = StorageType::RamDisk;
        };
        let mut first = config(dir.path(), 2);
        types(&mut first.volumes);
        let node = Node::start(dir, 2, first).await;
        node.put(5, 1001, 3000).await;
        let at = |volume: usize| {
            node.dir
                .path()
                .join(format!("data{volume}/current"))
                .join(pool().as_str())
                .join("current/finalized/subdir0/subdir0")
        };
        let (lasting, lost) = (at(1 - ram), at(ram));
        std::fs::create_dir_all(&lost).expect("directory");
        for name in ["blk_5", "blk_5_1001.meta"] {
            std::fs::copy(lasting.join(name), lost.join(name)).expect("copies");
        }
        node.store.crash();
        let mut again = config(node.dir.path(), 2);
        types(&mut again.volumes);
        let node = Node::start(node.dir, 2, again).await;
        node.check(5, 1001, 3000).await;
        assert!(
            lasting.join("blk_5").exists(),
            "the copy on DISK was deleted"
        );
        assert!(!lost.join("blk_5").exists(), "the copy on RAM_DISK stayed");
    }
}

#[tokio::test]
async fn files_of_apaches_that_mean_nothing_to_us_stay() {
    let node = Node::new().await;
    node.put(5, 1001, 100).await;
    let strangers = [
        "scanner.cursor",
        "current/finalized/README",
        "current/rbw/rbw.txt",
        "trash/finalized/subdir0/subdir0/blk_9",
    ];
    for name in strangers {
        let path = node.pool_dir().join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("directory");
        std::fs::write(path, b"x").expect("writes");
    }
    let node = node.kill_and_start().await;
    assert_eq!(node.store.replica_count(), 1);
    assert!(
        strangers
            .iter()
            .all(|name| node.pool_dir().join(name).exists())
    );
}

/// For measuring: `cargo test -p hayloft-store --release -- --ignored --nocapture hundred`.
#[tokio::test]
#[ignore = "measures; makes 200,000 files"]
async fn a_hundred_thousand_replicas() {
    const REPLICAS: i64 = 100_000;
    let node = Node::new().await;
    let finalized = node.pool_dir().join("current/finalized");
    let meta = crc32c().encode_meta_header();
    for id in 1_073_741_825..1_073_741_825 + REPLICAS {
        let dir = finalized.join(crate::layout::names::subdir(id));
        if id % 256 <= 1 {
            std::fs::create_dir_all(&dir).expect("directory");
        }
        std::fs::write(dir.join(format!("blk_{id}")), b"x").expect("data");
        std::fs::write(dir.join(format!("blk_{id}_1001.meta")), meta).expect("meta");
    }
    node.store.crash();
    let started = Instant::now();
    let node = node.kill_and_start().await;
    println!(
        "walked {} replicas in {:?}",
        node.store.replica_count(),
        started.elapsed()
    );
    node.store.shutdown().await;
    let started = Instant::now();
    let config = config(node.dir.path(), 1);
    let node = Node::start(node.dir, 1, config).await;
    println!(
        "from the cache: {} replicas in {:?}",
        node.store.replica_count(),
        started.elapsed()
    );
    let started = Instant::now();
    println!(
        "report of {} in {:?}",
        node.store.block_report(&pool())[0].1.len(),
        started.elapsed()
    );
}

/// The NameNode's pool is refused again and again while one directory is another namespace's.
#[tokio::test]
async fn a_pool_that_is_refused_leaves_nothing_in_use() {
    let node = Node::with_volumes(2).await;
    for id in 0..4 {
        node.put(id, 1001, 3000).await;
    }
    node.store.shutdown().await;
    let pool_dir = node.dir.path().join("data1/current").join(pool().as_str());
    let path = pool_dir.join("current/VERSION");
    let text = std::fs::read_to_string(&path).expect("there");
    std::fs::write(&path, text.replace("namespaceID=77", "namespaceID=78")).expect("writes");
    let (sender, _events) = mpsc::channel(100);
    let store = Store::open(config(node.dir.path(), 2), sender)
        .await
        .expect("opens");
    for _ in 0..2 {
        let refused = store.add_pool(spec(), StartOption::Regular).await;
        assert_eq!(Node::error_of(refused), StoreErrorKind::Incompatible);
        assert!(store.volume_report().iter().all(|volume| volume.used == 0));
    }
}

#[tokio::test]
async fn stubs_are_not_read_as_files_nor_handed_to_apaches_node() {
    let node = Node::new().await;
    node.put(1, 1001, 3000).await;
    node.store.shutdown().await;
    let root = node.dir.path().join("data0");
    let path = root.join("current/VERSION");
    let volumes = [root];
    crate::check_swap(&volumes).expect("has Apache's layout");
    let text = std::fs::read_to_string(&path).expect("there");
    let stubs = text.replace("layoutVersion=-57", "layoutVersion=-1057");
    std::fs::write(&path, stubs).expect("writes");
    let (sender, _events) = mpsc::channel(100);
    let refused = Store::open(config(node.dir.path(), 1), sender).await;
    let error = refused.expect_err("its bytes are elsewhere");
    assert_eq!(error.kind(), StoreErrorKind::VolumeFailed);
    assert!(
        error
            .to_string()
            .contains("on a device, which posix does not read"),
        "{error}"
    );
    let obstacle = crate::check_swap(&volumes).expect_err("zeros");
    assert!(
        obstacle.to_string().contains("decommission the node"),
        "{obstacle}"
    );
}
