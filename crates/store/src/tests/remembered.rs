//! A directory whose disk is not mounted: the other volumes remember it.

use super::*;

const FILE: &str = ".hayloft-storages";

/// Two directories with two replicas each, stopped. The node remembers the first as a mount of its
/// own, which it is not: as if its disk had been unmounted.
async fn unmounted() -> TempDir {
    let node = Node::with_volumes(2).await;
    for id in 0..4 {
        node.put(id, 1001, 3000).await;
    }
    node.store.shutdown().await;
    let first = node.dir.path().join("data0");
    for n in 0..2 {
        let path = node.dir.path().join(format!("data{n}")).join(FILE);
        let text = std::fs::read_to_string(&path).expect("there");
        let mut memory: serde_json::Value = serde_json::from_str(&text).expect("read");
        let storages = memory["storages"].as_array_mut().expect("a list");
        assert_eq!(storages.len(), 2, "{text}");
        assert_eq!(storages[0]["directory"], first.display().to_string());
        storages[0]["mount"] = first.display().to_string().into();
        std::fs::write(&path, memory.to_string()).expect("writes");
    }
    std::fs::rename(&first, node.dir.path().join("disk")).expect("moves");
    std::fs::create_dir(&first).expect("makes");
    node.dir
}

fn tolerant(dir: &Path) -> StoreConfig {
    StoreConfig {
        failed_volumes_tolerated: 1,
        ..config(dir, 2)
    }
}

async fn start(config: StoreConfig) -> (Store, mpsc::Receiver<StoreEvent>) {
    open(config).await
}

fn mount(dir: &Path) {
    let first = dir.join("data0");
    let _ = std::fs::remove_dir(&first);
    std::fs::rename(dir.join("disk"), first).expect("moves");
}

fn is_empty(dir: &Path) -> bool {
    std::fs::read_dir(dir).expect("there").next().is_none()
}

#[tokio::test]
async fn an_empty_mount_point_is_a_failed_volume_until_its_disk_is_back() {
    let dir = unmounted().await;
    let first = dir.path().join("data0");
    let (sender, _events) = mpsc::channel(100);
    let refused = Store::open(config(dir.path(), 2), sender).await;
    let said = refused.expect_err("none is tolerated").to_string();
    assert!(said.contains("nothing is mounted on"), "{said}");
    for _ in 0..2 {
        let (store, _events) = start(tolerant(dir.path())).await;
        let failed = store.failure_summary();
        assert_eq!(failed.failed_locations, std::slice::from_ref(&first));
        assert!(
            failed.reasons[0].contains("nothing is mounted on"),
            "{failed:?}"
        );
        assert_eq!(store.replica_count(), 2);
        // Nor while it runs.
        let again = store
            .reconfigure_volumes(config(dir.path(), 2).volumes)
            .await;
        assert!(again[0].1.is_err(), "{again:?}");
        store.shutdown().await;
        assert!(is_empty(&first), "something was made there");
    }
    mount(dir.path());
    let (store, _events) = start(config(dir.path(), 2)).await;
    assert_eq!(store.replica_count(), 4);
    store.shutdown().await;
}

/// A directory below the mount point is not there at all.
#[tokio::test]
async fn a_directory_below_an_empty_mount_point_is_not_made() {
    let dir = unmounted().await;
    let first = dir.path().join("data0");
    std::fs::remove_dir(&first).expect("removes");
    let (store, _events) = start(tolerant(dir.path())).await;
    assert_eq!(
        store.failure_summary().failed_locations,
        std::slice::from_ref(&first)
    );
    assert!(!first.exists());
    // Its disk comes, and it is put in while the node runs.
    mount(dir.path());
    let again = store
        .reconfigure_volumes(config(dir.path(), 2).volumes)
        .await;
    assert!(again.len() == 1 && again[0].1.is_ok(), "{again:?}");
    assert_eq!(store.replica_count(), 4);
    store.shutdown().await;
}

/// Taken out of the configuration and put back: it is meant.
#[tokio::test]
async fn a_directory_that_was_taken_out_begins_anew() {
    for while_it_runs in [true, false] {
        let dir = unmounted().await;
        let second = config(dir.path(), 2).volumes.split_off(1);
        let both = config(dir.path(), 2).volumes;
        let store = if while_it_runs {
            let (store, _events) = start(tolerant(dir.path())).await;
            store.reconfigure_volumes(second).await;
            let back = store.reconfigure_volumes(both).await;
            assert!(back.len() == 1 && back[0].1.is_ok(), "{back:?}");
            store
        } else {
            let without = StoreConfig {
                volumes: second,
                ..config(dir.path(), 2)
            };
            start(without).await.0.shutdown().await;
            start(config(dir.path(), 2)).await.0
        };
        assert_eq!(store.storage_reports(&pool()).len(), 2);
        assert!(store.failure_summary().failed_locations.is_empty());
        store.shutdown().await;
        assert!(dir.path().join("data0/current/VERSION").exists());
    }
}

/// One that never was a mount was emptied by the operator: as with Apache's node it begins anew.
#[tokio::test]
async fn a_plain_directory_that_was_emptied_begins_anew() {
    let node = Node::with_volumes(2).await;
    node.store.shutdown().await;
    let first = node.dir.path().join("data0");
    std::fs::remove_dir_all(&first).expect("removes");
    let node = node.restart().await;
    assert!(node.store.failure_summary().failed_locations.is_empty());
    assert!(first.join("current/VERSION").exists());
}

/// Whatever lies there instead of what was written, the node starts as without it.
#[tokio::test]
async fn a_damaged_memory_is_none() {
    let whole = |dir: &Path| std::fs::read(dir.join("data1").join(FILE)).expect("there");
    let damages: [fn(Vec<u8>) -> Vec<u8>; 6] = [
        |_| Vec::new(),
        |mut all| all.split_off(all.len() / 2),
        |mut all| {
            all.truncate(all.len() / 2);
            all
        },
        |all| vec![0; all.len()],
        |_| vec![b'['; 1 << 20],
        |_| vec![b' '; (1 << 20) + 1],
    ];
    for damage in damages {
        let dir = unmounted().await;
        let damaged = damage(whole(dir.path()));
        std::fs::write(dir.path().join("data1").join(FILE), damaged).expect("writes");
        let (store, _events) = start(config(dir.path(), 2)).await;
        assert_eq!(store.storage_reports(&pool()).len(), 2);
        store.shutdown().await;
        // It is whole again.
        serde_json::from_slice::<serde_json::Value>(&whole(dir.path())).expect("written anew");
    }
}

/// What is remembered changes only with the volumes: nothing is written at other starts.
#[tokio::test]
async fn what_is_remembered_is_written_when_volumes_come_and_go() {
    let node = Node::with_volumes(2).await;
    let read = |node: &Node, n: usize| {
        std::fs::read_to_string(node.dir.path().join(format!("data{n}")).join(FILE)).expect("there")
    };
    let before = read(&node, 0);
    assert_eq!(before, read(&node, 1));
    let node = node.restart().await;
    assert_eq!(before, read(&node, 0));
    let three = config(node.dir.path(), 3).volumes;
    node.store.reconfigure_volumes(three.clone()).await;
    let now = read(&node, 2);
    assert!(now.contains("data2") && now == read(&node, 0) && now == read(&node, 1));
    node.store.reconfigure_volumes(three[1..].to_vec()).await;
    assert!(!read(&node, 1).contains("data0"));
}
