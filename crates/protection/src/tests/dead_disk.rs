//! Disks that are gone: replicas stay reported and served, and are rebuilt.

use super::*;

pub(super) const LEN: usize = 80_000;

pub(super) async fn eight(volumes: usize, shape: ParityShape) -> Node {
    let node = start(volumes, shape).await;
    put_eight(&node).await;
    node
}

pub(super) async fn put_eight(node: &Node) {
    for id in 1..9 {
        put(node, id, LEN + usize::try_from(id).expect("small")).await;
    }
    round(node).await;
    assert_eq!(status(node).unprotected_bytes, 0);
}

pub(super) async fn check_eight(node: &Node) {
    for id in 1..9 {
        check(node, id, LEN + usize::try_from(id).expect("small")).await;
    }
}

/// All eight are in groups that lack nothing.
pub(super) fn check_all_protected(node: &Node, when: &str) {
    let now = status(node);
    let bytes = (1..9).map(|id| LEN as u64 + id).sum::<u64>();
    assert_eq!(
        (
            now.protected_bytes,
            now.unprotected_bytes,
            now.degraded_bytes
        ),
        (bytes, 0, 0),
        "{when} {now:?}"
    );
}

pub(super) fn all() -> Vec<i64> {
    (1..9).collect()
}

pub(super) fn lost(events: &[StoreEvent]) -> Vec<i64> {
    let ids = events.iter().filter_map(|event| match event {
        StoreEvent::Lost { block, .. } | StoreEvent::Corrupt { block, .. } => Some(block.block.id),
        _ => None,
    });
    let mut ids: Vec<i64> = ids.collect();
    ids.sort_unstable();
    ids
}

/// A round that looks just then takes what has yet to leave the map for what is here again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_round_beside_a_failing_disk_forgets_none_of_its_replicas() {
    let mut node = eight(4, shape(2, 1)).await;
    let last = volume_of(&node, 8);
    assert_ne!(volume_of(&node, 1), last, "block 1 is held");
    let here = node.store.state().pool(&pool()).expect("loaded");
    let (held, is_held) = std::sync::mpsc::channel();
    let (release, released) = std::sync::mpsc::channel::<()>();
    let map_of = Arc::clone(&here);
    let holder = std::thread::spawn(move || {
        let mut first = true;
        map_of.map.for_each(|_, _| {
            if std::mem::take(&mut first) {
                held.send(()).expect("waits");
                let _ = released.recv();
            }
        });
    });
    is_held.recv().expect("begins");
    let (root, store) = (
        node.dir.path().join(format!("data{last}")),
        node.store.clone(),
    );
    let failing = tokio::spawn(async move {
        let volumes = store.state().volumes();
        let volume = volumes.iter().find(|v| v.root == root).expect("there");
        store.fail_volume(volume).await;
    });
    while here.degraded.lock().expect("whole").is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    crate::degraded::back_again(&here);
    release.send(()).expect("holds");
    holder.join().expect("no panic");
    failing.await.expect("no panic");
    assert_eq!(lost(&events(&mut node).await), [0_i64; 0]);
    check_eight(&node).await;
}

#[tokio::test]
async fn replicas_of_a_dead_disk_are_served_and_rebuilt() {
    let shape = shape(2, 1);
    let mut node = eight(4, shape).await;
    let on: Vec<i64> = all()
        .into_iter()
        .filter(|id| volume_of(&node, *id) == 0)
        .collect();
    assert_eq!(on.len(), 2);
    let storage = node.store.replica(&pool(), on[0]).expect("there").storage;
    kill_disk(&node, 0).await;
    let told = events(&mut node).await;
    assert_eq!(lost(&told), [0_i64; 0]);
    let fatal = told
        .iter()
        .any(|e| matches!(e, StoreEvent::VolumeFailed { fatal: true, .. }));
    assert!(!fatal && told.len() == 1, "{told:?}");
    assert_eq!(reported(&node), all());
    let report = node.store.block_report(&pool());
    let mut there: Vec<i64> = report
        .iter()
        .filter(|(s, _)| s.id == storage.id)
        .flat_map(|(_, replicas)| replicas.iter().map(|r| r.block.id))
        .collect();
    there.sort_unstable();
    assert_eq!(there, on, "under the storage that they were on");
    let heartbeat = node.store.storage_reports(&pool());
    let gone = heartbeat
        .iter()
        .find(|r| r.storage.id == storage.id)
        .expect("listed");
    assert!(gone.remaining == 0 && gone.dfs_used > 0);
    assert!(status(&node).degraded_bytes > 0 && status(&node).rebuild_remaining_bytes > 0);
    check_eight(&node).await;
    round(&node).await;
    let told = events(&mut node).await;
    let mut found: Vec<i64> = told
        .iter()
        .filter_map(|e| match e {
            StoreEvent::Mended {
                block,
                storage: now,
            } if now.id != storage.id => Some(block.block.id),
            _ => None,
        })
        .collect();
    found.sort_unstable();
    assert_eq!((found, told.len()), (on, 2));
    round(&node).await;
    assert_eq!(status(&node).rebuild_remaining_bytes, 0);
    check_all_protected(&node, "");
    assert_eq!(node.store.storage_reports(&pool()).len(), 3);
    check_eight(&node).await;
    // The next disk may go.
    kill_disk(&node, 1).await;
    assert_eq!(
        (lost(&events(&mut node).await), reported(&node)),
        (vec![], all())
    );
    check_eight(&node).await;
}

#[tokio::test]
async fn a_degraded_replica_that_is_changed_is_rebuilt_first() {
    let mut node = eight(4, shape(2, 1)).await;
    let on: Vec<i64> = all()
        .into_iter()
        .filter(|id| volume_of(&node, *id) == 0)
        .collect();
    let len = |id: i64| LEN as u64 + u64::try_from(id).expect("small");
    kill_disk(&node, 0).await;
    let (appended, recovered) = (on[0], on[1]);
    // The round in the background is at it too.
    let parity = Arc::clone(&node.parity);
    let rounds = tokio::spawn(async move { parity.round().await });
    let at = len(appended);
    let wanted = block(appended, 1001, at);
    let append = node.store.append(&wanted, 1002, at);
    let mut writer = append.await.expect("opens");
    let wanted = block(recovered, 1001, len(recovered));
    let init = node.store.init_replica_recovery(&wanted, 2000).await;
    let found = init.expect("takes part").expect("there");
    assert_eq!(found.block.num_bytes, len(recovered));
    rounds.await.expect("no panic");
    let longer = content(appended, LEN + 5000);
    // From the beginning of the last chunk, as clients do.
    let from = usize::try_from(at / 512 * 512).expect("small");
    let rest = packet_of(&longer[from..], from);
    writer.write(vec![rest]).await.expect("writes");
    writer.finalize().await.expect("finalizes");
    check(&node, appended, LEN + 5000).await;
    let update = node
        .store
        .update_replica_under_recovery(&wanted, 2000, 0, len(recovered));
    update.await.expect("closes");
    check(
        &node,
        recovered,
        usize::try_from(len(recovered)).expect("small"),
    )
    .await;
    assert_eq!(lost(&events(&mut node).await), [0_i64; 0]);
    for _ in 0..3 {
        round(&node).await;
    }
    let now = status(&node);
    assert_eq!((now.degraded_bytes, now.unprotected_bytes), (0, 0));
    assert_eq!(reported(&node), all());
}

#[tokio::test]
async fn status_says_where_bytes_are_and_how_far_a_rebuild_is() {
    let node = eight(4, shape(2, 1)).await;
    let before = status(&node);
    let sum = |status: &ParityStatus, of: fn(&crate::VolumeParity) -> u64| -> u64 {
        status.volumes.iter().map(of).sum()
    };
    assert_eq!(before.volumes.len(), 4);
    assert!(before.volumes.iter().all(|v| v.in_use));
    assert_eq!(sum(&before, |v| v.protected_bytes), before.protected_bytes);
    assert_eq!(sum(&before, |v| v.parity_bytes), before.parity_bytes);
    assert_eq!((before.lacking_groups, before.rebuilt_bytes), (0, 0));
    put(&node, 9, 1000).await;
    kill_disk(&node, 0).await;
    let hurt = status(&node);
    let gone = hurt.volumes.iter().find(|v| !v.in_use).expect("named");
    assert!(gone.directory.ends_with("data0"), "{gone:?}");
    assert_eq!(gone.rebuild_remaining_bytes, hurt.rebuild_remaining_bytes);
    let lacking = &hurt.groups_that_lack_units;
    assert_eq!(lacking.len() as u64, hurt.lacking_groups);
    let bytes: u64 = lacking.iter().map(|g| g.degraded_bytes).sum();
    assert!(bytes == hurt.degraded_bytes && lacking.iter().all(|g| g.lacks == 1));
    assert_eq!((hurt.rebuilt_bytes, hurt.rebuild_seconds_left), (0, None));
    // One of them is rebuilt: a part is done.
    let one = node.store.block_report(&pool());
    let one = one.iter().find(|(s, _)| !in_use(&node, &s.id));
    let one = one.expect("degraded").1[0].block;
    let wanted = block(one.id, 1001, 0);
    let append = node.store.append(&wanted, 1002, one.num_bytes);
    drop(append.await.expect("opens"));
    let part = status(&node);
    assert_eq!(part.rebuilt_bytes, one.num_bytes);
    assert!(part.rebuild_seconds_left.is_some());
}

#[tokio::test]
async fn a_member_whose_replica_is_elsewhere_is_not_to_be_rebuilt() {
    let mut node = eight(4, shape(2, 1)).await;
    let id = all().into_iter().find(|id| volume_of(&node, *id) == 0);
    let id = id.expect("on each");
    // As when a disk comes back with a second copy, and that is kept.
    let from = data_file(&node, id);
    let root = node.dir.path().join("data1");
    let to = root.join(
        from.strip_prefix(node.dir.path().join("data0"))
            .expect("below"),
    );
    std::fs::create_dir_all(to.parent().expect("a parent")).expect("made");
    let meta = format!("blk_{id}_1001.meta");
    std::fs::copy(&from, &to).expect("copies");
    std::fs::copy(from.with_file_name(&meta), to.with_file_name(&meta)).expect("copies");
    let there = node.store.state().pool(&pool()).expect("loaded");
    let volumes = node.store.state().volumes();
    let volume = volumes.iter().find(|v| v.root == root).expect("there");
    let Some(hayloft_store::inside::Slot::Finalized(mut replica)) = there.map.get(id) else {
        panic!("finalized");
    };
    replica.volume = volume.index;
    let slot = hayloft_store::inside::Slot::Finalized(replica);
    there.put(id, slot).expect("taken");
    kill_disk(&node, 0).await;
    for _ in 0..3 {
        round(&node).await;
    }
    let now = status(&node);
    let left = (now.rebuild_remaining_bytes, now.degraded_bytes);
    assert_eq!(left, (0, 0), "{now:?}");
    check_eight(&node).await;
    assert_eq!(lost(&events(&mut node).await), [0_i64; 0]);
}

fn in_use(node: &Node, storage: &str) -> bool {
    let volumes = node.store.state().volumes();
    volumes.iter().any(|v| *v.info.id == *storage)
}

#[tokio::test]
async fn a_rebuild_does_not_wait_until_all_is_encoded() {
    let shape = shape(2, 1);
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut config = protected(dir.path(), 4, shape);
    let parity = &mut config.parity;
    parity.turn = Duration::ZERO;
    let node = Node::start(dir, 4, config).await;
    for id in 1..9 {
        put(&node, id, LEN + usize::try_from(id).expect("small")).await;
    }
    round(&node).await;
    assert_eq!(status(&node).groups, 1, "a turn is a group");
    let member = {
        let parity = &node.parity;
        let table = parity.table();
        table.iter().next().expect("one").record.members[0].block_id
    };
    kill_disk(&node, volume_of(&node, member)).await;
    assert!(status(&node).rebuild_remaining_bytes > 0);
    round(&node).await;
    let now = status(&node);
    assert_eq!(now.rebuild_remaining_bytes, 0, "{now:?}");
    assert!(now.unprotected_bytes > 0, "{now:?}");
    for _ in 0..8 {
        round(&node).await;
    }
    assert_eq!(status(&node).unprotected_bytes, 0);
}

#[tokio::test]
async fn two_disks_at_once_need_two_parity_files() {
    for (parity, survives) in [(1, false), (2, true)] {
        let shape = shape(2, parity);
        let dir = tempfile::tempdir().expect("temporary directory");
        let mut config = protected(dir.path(), 4, shape);
        config.failed_volumes_tolerated = 2;
        let mut node = Node::start(dir, 4, config).await;
        for id in 1..9 {
            put(&node, id, LEN + usize::try_from(id).expect("small")).await;
        }
        round(&node).await;
        kill_disk(&node, 0).await;
        kill_disk(&node, 1).await;
        let gone = lost(&events(&mut node).await);
        let mut left = reported(&node);
        if survives {
            assert_eq!(gone, [0_i64; 0]);
            check_eight(&node).await;
        } else {
            assert!(!gone.is_empty());
            for id in &left {
                check(&node, *id, LEN + usize::try_from(*id).expect("small")).await;
            }
            assert!(node.store.open_reader(&block(gone[0], 0, 0)).await.is_err());
        }
        left.extend(gone);
        left.sort_unstable();
        assert_eq!(left, all(), "each is served or told to be lost");
    }
}

/// Another file in the place of a directory: the disk is not there.
pub(super) fn pull(node: &Node, number: usize) -> PathBuf {
    let root = node.dir.path().join(format!("data{number}"));
    let away = node.dir.path().join(format!("pulled{number}"));
    std::fs::rename(&root, &away).expect("renames");
    std::fs::write(&root, "no directory").expect("writes");
    away
}

#[tokio::test]
async fn a_node_starts_without_a_disk_and_takes_it_back_with_old_content() {
    let shape = shape(2, 1);
    let node = eight(4, shape).await;
    let on: Vec<i64> = all()
        .into_iter()
        .filter(|id| volume_of(&node, *id) == 1)
        .collect();
    node.store.crash();
    let away = pull(&node, 1);
    let config = protected(node.dir.path(), 4, shape);
    let mut node = Node::start(node.dir, 4, config).await;
    assert_eq!(reported(&node), all());
    check_eight(&node).await;
    // One is deleted while its disk is away.
    let gone = block(on[0], 1001, 0).block;
    node.store
        .invalidate(&pool(), &[gone])
        .await
        .expect("forgets");
    let told = events(&mut node).await;
    assert!(matches!(&told[..], [StoreEvent::Deleted { block, .. }] if block.block.id == on[0]));
    round(&node).await;
    round(&node).await;
    assert_eq!(status(&node).rebuild_remaining_bytes, 0);
    let left: Vec<i64> = all().into_iter().filter(|id| *id != on[0]).collect();
    assert_eq!(reported(&node), left);
    node.store.shutdown().await;
    // Without the disk once more: what was deleted is not brought back by parity.
    let config = protected(node.dir.path(), 4, shape);
    let node = Node::start(node.dir, 4, config).await;
    assert_eq!(reported(&node), left);
    node.store.crash();
    std::fs::remove_file(node.dir.path().join("data1")).expect("removes");
    std::fs::rename(away, node.dir.path().join("data1")).expect("renames");
    let config = protected(node.dir.path(), 4, shape);
    let node = Node::start(node.dir, 4, config).await;
    // Its replicas are there twice now; one of each stays, and the NameNode orders the rest away.
    assert_eq!(reported(&node), all());
    check_eight(&node).await;
    for _ in 0..3 {
        round(&node).await;
    }
    check_all_protected(&node, "");
    check_eight(&node).await;
    // It is lost once more, for good. Of some of its members the replica is elsewhere.
    kill_disk(&node, 1).await;
    for _ in 0..3 {
        round(&node).await;
    }
    let now = status(&node);
    assert_eq!(
        (now.rebuild_remaining_bytes, now.degraded_bytes),
        (0, 0),
        "{now:?}"
    );
    check_eight(&node).await;
}
