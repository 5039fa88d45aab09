//! A node of the process ends: the others' replicas are encoded, decoded and rebuilt as before.

use std::collections::BTreeMap;
use std::time::SystemTime;

use super::two_stores::{kill, two};
use super::*;

/// Everything below the directories of a node, with length and time of the last change.
fn tree(dir: &Path, node: &str) -> BTreeMap<PathBuf, (u64, SystemTime)> {
    let mut found = BTreeMap::new();
    let mut dirs: Vec<PathBuf> = (0..3)
        .map(|n| dir.join(format!("data{n}/{node}")))
        .collect();
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir).expect("lists") {
            let entry = entry.expect("lists");
            let facts = entry.metadata().expect("there");
            if facts.is_dir() {
                dirs.push(entry.path());
            }
            found.insert(
                entry.path(),
                (facts.len(), facts.modified().expect("a time")),
            );
        }
    }
    found
}

/// Two nodes whose replicas are in the same groups.
async fn both(dir: &Path) -> [Node; 2] {
    let nodes = two(dir).await;
    for id in 1..7 {
        put(&nodes[0], id, 60_000).await;
        put(&nodes[1], id + 10, 60_000).await;
    }
    round(&nodes[0]).await;
    assert_eq!(status(&nodes[0]).protected_bytes, 720_000);
    nodes
}

#[tokio::test]
async fn a_node_that_ends_stops_no_parity_of_the_others() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut nodes = both(dir.path()).await;
    nodes[1].store.shutdown().await;
    let before = tree(dir.path(), "b");
    for id in 7..10 {
        put(&nodes[0], id, 60_000).await;
    }
    round(&nodes[0]).await;
    let now = status(&nodes[0]);
    assert_eq!(
        (now.protected_bytes, now.unprotected_bytes),
        (540_000, 0),
        "{now:?}"
    );
    kill(&nodes[..1], dir.path(), 1).await;
    for id in 1..10 {
        check(&nodes[0], id, 60_000).await;
    }
    for _ in 0..4 {
        round(&nodes[0]).await;
    }
    let now = status(&nodes[0]);
    let left = (
        now.degraded_bytes,
        now.lost_bytes,
        now.rebuild_remaining_bytes,
    );
    assert_eq!((now.protected_bytes, left), (540_000, (0, 0, 0)), "{now:?}");
    for id in 1..10 {
        check(&nodes[0], id, 60_000).await;
    }
    let told = events(&mut nodes[0]).await;
    let bad = |e: &StoreEvent| matches!(e, StoreEvent::Lost { .. } | StoreEvent::Corrupt { .. });
    assert!(!told.iter().any(bad), "{told:?}");
    assert!(
        tree(dir.path(), "b") == before,
        "nothing is written to the directories of b"
    );
}

#[tokio::test]
async fn units_of_an_ended_node_that_another_changes_count_no_more() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let nodes = both(dir.path()).await;
    let theirs: Vec<PathBuf> = (11..17).map(|id| data_file(&nodes[1], id)).collect();
    nodes[1].store.shutdown().await;
    round(&nodes[0]).await;
    for path in &theirs {
        std::fs::remove_file(path).expect("there");
    }
    nodes[0].parity.forgive();
    for _ in 0..4 {
        round(&nodes[0]).await;
    }
    let now = status(&nodes[0]);
    let left = (now.unprotected_bytes, now.degraded_bytes, now.lost_bytes);
    assert_eq!((now.protected_bytes, left), (360_000, (0, 0, 0)), "{now:?}");
    kill(&nodes[..1], dir.path(), 2).await;
    for id in 1..7 {
        check(&nodes[0], id, 60_000).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rounds_go_on_after_the_store_that_began_them_has_ended() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let shared = Together::new(2);
    let open = async |name: &str| {
        let volume = |n: usize| VolumeConfig::new(dir.path().join(format!("data{n}/{name}")));
        let mut config = protected(dir.path(), 3, shape(2, 1));
        config.volumes = (0..3).map(volume).collect();
        config.parity.interval = Duration::from_millis(20);
        let (sender, events) = mpsc::channel(100);
        let (store, parity) = shared.open(config, sender).await;
        let added = store.add_pool(spec(), StartOption::Regular).await;
        added.expect("loads");
        let dir = tempfile::tempdir().expect("temporary directory");
        Node {
            dir,
            volumes: 0,
            store,
            parity,
            events,
        }
    };
    let nodes = [open("a").await, open("b").await];
    for id in 1..40 {
        put(&nodes[1], id, 300_000).await;
        if id == 20 {
            let store = nodes[0].store.clone();
            tokio::spawn(async move { store.shutdown().await });
        }
    }
    for _ in 0..500 {
        let now = status(&nodes[1]);
        if (now.protected_bytes, now.unprotected_bytes) == (39 * 300_000, 0) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{:?}", status(&nodes[1]));
}

/// A node opens its volumes, and its NameNode gives no answer.
#[tokio::test]
async fn a_pool_that_one_node_waits_for_stops_no_parity_of_the_others() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let nodes = both(dir.path()).await;
    for node in &nodes {
        node.store.shutdown().await;
    }
    let shared = Together::new(2);
    let mut opened = Vec::new();
    for name in ["a", "b"] {
        let volume = |n: usize| VolumeConfig::new(dir.path().join(format!("data{n}/{name}")));
        let mut config = protected(dir.path(), 3, shape(2, 1));
        config.volumes = (0..3).map(volume).collect();
        let parity = &mut config.parity;
        parity.others_within = Duration::from_millis(300);
        let (sender, events) = mpsc::channel(100);
        let (store, parity) = shared.open(config, sender).await;
        let dir = tempfile::tempdir().expect("temporary directory");
        opened.push(Node {
            dir,
            volumes: 0,
            store,
            parity,
            events,
        });
    }
    let [a, b] = &opened[..] else { panic!("two") };
    let added = a.store.add_pool(spec(), StartOption::Regular).await;
    added.expect("loads");
    put(a, 7, 60_000).await;
    round(a).await;
    assert_eq!(status(a).protected_bytes, 0, "it waits a while");
    tokio::time::sleep(Duration::from_millis(300)).await;
    round(a).await;
    let now = status(a);
    let left = (now.unprotected_bytes, now.degraded_bytes, now.lost_bytes);
    assert_eq!((now.protected_bytes, left), (420_000, (0, 0, 0)), "{now:?}");
    let groups = now.groups;
    kill(&opened[..1], dir.path(), 0).await;
    for id in 1..8 {
        check(a, id, 60_000).await;
    }
    // It answers after all.
    let added = b.store.add_pool(spec(), StartOption::Regular).await;
    added.expect("loads");
    for _ in 0..4 {
        round(a).await;
    }
    let now = status(b);
    let left = (now.unprotected_bytes, now.degraded_bytes, now.lost_bytes);
    assert_eq!(
        (now.protected_bytes, left),
        (780_000, (0, 0, 0)),
        "{now:?} {groups}"
    );
    for id in 11..17 {
        check(b, id, 60_000).await;
    }
}

/// As after a change from two nodes to one: nothing of what the other has is missed here.
#[tokio::test]
async fn nothing_of_a_node_that_is_configured_no_more_is_called_lost() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let nodes = both(dir.path()).await;
    for node in &nodes {
        node.store.shutdown().await;
    }
    let before = tree(dir.path(), "b");
    let volume = |n: usize| VolumeConfig::new(dir.path().join(format!("data{n}/a")));
    let mut config = protected(dir.path(), 3, shape(2, 1));
    config.volumes = (0..3).map(volume).collect();
    let lone = tempfile::tempdir().expect("temporary directory");
    let node = Node::start(lone, 0, config).await;
    for _ in 0..4 {
        round(&node).await;
        let now = status(&node);
        assert_eq!(now.lost_bytes, 0, "{now:?}");
    }
    let now = status(&node);
    let left = (
        now.unprotected_bytes,
        now.degraded_bytes,
        now.rebuild_remaining_bytes,
    );
    assert_eq!((now.protected_bytes, left), (360_000, (0, 0, 0)), "{now:?}");
    assert!(now.is_well());
    assert!(tree(dir.path(), "b") == before);
}

#[tokio::test]
async fn a_directory_whose_disk_does_not_say_what_it_is_counts_yet() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let nodes = both(dir.path()).await;
    nodes[1].store.shutdown().await;
    let unattended = |node: &Node| {
        let volumes = status(node).volumes;
        volumes.iter().filter(|row| row.unattended).count()
    };
    round(&nodes[0]).await;
    assert_eq!(unattended(&nodes[0]), 3);
    let parity = Arc::clone(&nodes[0].parity);
    let version = dir.path().join("data0/b/current/VERSION");
    std::fs::remove_file(&version).expect("there");
    std::fs::create_dir(&version).expect("makes");
    parity.forgive();
    round(&nodes[0]).await;
    assert_eq!(unattended(&nodes[0]), 3);
    std::fs::remove_dir(&version).expect("there");
    parity.forgive();
    round(&nodes[0]).await;
    assert_eq!(unattended(&nodes[0]), 2);
}
