//! Groups over the volumes of two stores of one process.

use super::*;

/// Two nodes with a directory each on the same three disks.
pub async fn two(dir: &Path) -> [Node; 2] {
    let shared = Together::new(2);
    let open = async |name: &str| {
        let volume = |n: usize| VolumeConfig::new(dir.join(format!("data{n}/{name}")));
        let mut config = protected(dir, 3, shape(2, 1));
        config.volumes = (0..3).map(volume).collect();
        config.preallocate = false;
        let (sender, events) = mpsc::channel(100);
        let (store, parity) = shared.open(config, sender).await;
        store
            .add_pool(spec(), StartOption::Regular)
            .await
            .expect("loads");
        Node {
            dir: tempfile::tempdir().expect("temporary directory"),
            volumes: 0,
            store,
            parity,
            events,
        }
    };
    [open("a").await, open("b").await]
}

pub async fn kill(nodes: &[Node], dir: &Path, disk: usize) {
    for node in nodes {
        for volume in node.store.state().volumes() {
            if volume.root.starts_with(dir.join(format!("data{disk}"))) {
                node.store.fail_volume(&volume).await;
            }
        }
    }
}

#[tokio::test]
async fn stores_of_a_process_protect_each_others_replicas() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut nodes = two(dir.path()).await;
    let blocks = [
        (0, 1, 70_000),
        (0, 2, 90_000),
        (0, 3, 65_000),
        (1, 11, 80_000),
        (1, 12, 300),
    ];
    let all: u64 = blocks.iter().map(|(_, _, len)| *len as u64).sum();
    for (node, id, len) in blocks {
        put(&nodes[node], id, len).await;
    }
    round(&nodes[0]).await;
    assert_eq!(
        (
            status(&nodes[1]).protected_bytes,
            status(&nodes[1]).unprotected_bytes
        ),
        (all, 0)
    );
    for clean in [false, true] {
        for node in &nodes {
            if clean {
                node.store.shutdown().await;
            } else {
                node.store.crash();
            }
        }
        nodes = two(dir.path()).await;
        round(&nodes[1]).await;
        assert_eq!(
            (
                status(&nodes[0]).protected_bytes,
                status(&nodes[0]).groups > 0
            ),
            (all, true)
        );
    }
    for disk in 0..3 {
        kill(&nodes, dir.path(), disk).await;
        for (node, id, len) in blocks {
            check(&nodes[node], id, len).await;
        }
        assert_eq!(
            (reported(&nodes[0]), reported(&nodes[1])),
            (vec![1, 2, 3], vec![11, 12])
        );
        for node in &mut nodes {
            let told = events(node).await;
            assert!(
                told.iter().all(|e| !matches!(e, StoreEvent::Lost { .. })),
                "{told:?}"
            );
        }
        for node in &nodes {
            node.store.crash();
        }
        nodes = two(dir.path()).await;
    }
}

#[tokio::test]
async fn nothing_is_judged_before_all_stores_are_there() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let nodes = two(dir.path()).await;
    for id in 1..4 {
        put(&nodes[0], id, 50_000).await;
        put(&nodes[1], id + 10, 50_000).await;
    }
    round(&nodes[0]).await;
    let before = status(&nodes[0]);
    assert_eq!(before.protected_bytes, 300_000);
    for node in &nodes {
        node.store.crash();
    }
    // Only one of them is back: a round of it must not take the others' files for leftovers.
    let shared = Together::new(2);
    let volume = |n: usize| VolumeConfig::new(dir.path().join(format!("data{n}/a")));
    let mut config = protected(dir.path(), 3, shape(2, 1));
    config.volumes = (0..3).map(volume).collect();
    let (sender, _events) = mpsc::channel(100);
    let (store, parity) = shared.open(config, sender).await;
    store
        .add_pool(spec(), StartOption::Regular)
        .await
        .expect("loads");
    parity.round().await;
    store.crash();
    let nodes = two(dir.path()).await;
    round(&nodes[0]).await;
    let now = status(&nodes[0]);
    assert_eq!(
        (now.protected_bytes, now.groups),
        (before.protected_bytes, before.groups)
    );
}
