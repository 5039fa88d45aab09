//! Replicas whose close was acknowledged while bytes of them are staged.

use super::*;

use hayloft_io::IoOp;
use hayloft_io::decorators::{Effect, FaultRule, Faults};
use hayloft_wire::ids::ReplicaState;

use crate::drain::Marker;

const LEN: usize = (3 << 20) + 700;
/// Longer than anything that a test does before it looks again.
const SLOW: Duration = Duration::from_millis(1500);

fn staged(config: &mut StoreConfig) {
    outlives_a_volume(config);
    config.writer_stop_timeout = Duration::from_secs(20);
    config.disk = hayloft_io::DiskSettings {
        media: Some(hayloft_io::calibrate::Media::Flash),
        quantum: Some(4 << 20),
        ..hayloft_io::DiskSettings::default()
    };
}

/// A node of two volumes, of which the first takes its time for the data of block 5.
async fn slow() -> (Node, Arc<Faults>) {
    with(|_| ()).await
}

async fn with(change: impl FnOnce(&mut StoreConfig)) -> (Node, Arc<Faults>) {
    let (node, faults) = Node::with_faults(2, |config| {
        staged(config);
        change(config);
    })
    .await;
    faults.add(on_data(Effect::Delay(SLOW)));
    (node, faults)
}

fn on_data(effect: Effect) -> FaultRule {
    FaultRule::new(effect)
        .on(&[IoOp::Write])
        .at(|path| path.ends_with("blk_5"))
}

fn options(node: &Node) -> WriteOptions {
    WriteOptions {
        expected_len: Some(16 << 20),
        storage_id: Some(node.store.volume_report()[0].storage.id.to_string()),
        ..WriteOptions::default()
    }
}

/// A writer of block 5 on the slow volume that has `len` bytes.
async fn written(node: &Node, len: usize) -> ReplicaWriter {
    let created = node
        .store
        .create_rbw(&block(5, 1001, 0), options(node))
        .await;
    let mut writer = created.expect("creates");
    writer.set_checksum(crc32c()).await.expect("header");
    writer.write(vec![packet(0, len)]).await.expect("stages");
    writer
}

/// Block 5, closed and still on its way to the disk.
async fn closed(node: &Node) -> ReplicaRef {
    let replica = written(node, LEN).await.finalize().await.expect("closes");
    assert_eq!(
        (replica.state, replica.bytes_on_disk, replica.visible_len),
        (ReplicaState::Finalized, LEN as u64, LEN as u64)
    );
    assert!(marker(node).exists() && !finalized(node).exists());
    replica
}

fn rbw(node: &Node) -> PathBuf {
    node.pool_dir().join("current/rbw")
}

fn marker(node: &Node) -> PathBuf {
    rbw(node).join("blk_5.closed")
}

fn finalized(node: &Node) -> PathBuf {
    node.pool_dir()
        .join("current/finalized/subdir0/subdir0/blk_5")
}

fn nothing_in_rbw(node: &Node) {
    let names: Vec<_> = std::fs::read_dir(rbw(node))
        .expect("there")
        .map(|e| e.expect("reads").file_name())
        .collect();
    assert!(names.is_empty(), "{names:?}");
}

/// Waits until block 5 is where it belongs.
async fn drained(node: &Node) {
    for _ in 0..1000 {
        if finalized(node).exists() && !marker(node).exists() {
            nothing_in_rbw(node);
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the replica is still on its way");
}

/// The event about block 5.
async fn event(node: &mut Node) -> StoreEvent {
    let next = tokio::time::timeout(Duration::from_secs(20), node.events.recv());
    next.await.expect("in time").expect("there is one")
}

#[tokio::test]
async fn a_close_does_not_wait_for_the_disk_and_the_replica_is_read_and_reported_meanwhile() {
    let (node, _faults) = slow().await;
    let used = || node.store.storage_reports(&pool())[0].dfs_used;
    closed(&node).await;
    node.check(5, 1001, LEN).await;
    let whole = crc32c().meta_len(LEN as u64) + LEN as u64;
    assert!(used() >= whole);
    let reports = node.store.block_report(&pool());
    let states: Vec<_> = reports.iter().flat_map(|(_, r)| r).collect();
    assert_eq!(states.len(), 1);
    assert_eq!(
        (states[0].state, states[0].block),
        (ReplicaState::Finalized, Block::new(5, 1001, LEN as u64))
    );
    // A reader that began before goes on after.
    let reader = node.store.open_reader(&block(5, 1001, 0)).await;
    let reader = reader.expect("opens");
    assert!(marker(&node).exists(), "so slow is the disk");
    drained(&node).await;
    check_reader(&reader, LEN).await;
    node.check(5, 1001, LEN).await;
    assert_eq!(used(), whole);
    let numbers = node.store.volume_report();
    assert_eq!(numbers[0].reserved_for_replicas, 0);
    let staging = node.store.staging().expect("is on");
    assert_eq!(staging.segments_in_use(), 0);
}

#[tokio::test]
async fn a_killed_node_finishes_it() {
    let (node, _faults) = slow().await;
    closed(&node).await;
    let node = node.kill_and_start().await;
    let replica = node.store.replica(&pool(), 5).expect("there");
    assert_eq!(replica.state, ReplicaState::Finalized);
    drained(&node).await;
    node.check(5, 1001, LEN).await;
}

#[tokio::test]
async fn without_its_staging_area_it_is_a_replica_that_was_being_written() {
    let (node, _faults) = slow().await;
    closed(&node).await;
    let area = node.store.staging().expect("is on").path().to_owned();
    node.store.crash();
    std::fs::remove_file(area).expect("there");
    let node = node.kill_and_start().await;
    let replica = node.store.replica(&pool(), 5).expect("there");
    assert_eq!(replica.state, ReplicaState::Rwr);
    assert!(replica.bytes_on_disk < LEN as u64);
    assert!(!marker(&node).exists() && !finalized(&node).exists());
}

/// An area that somebody has just removed is nothing to rest a close on.
#[tokio::test]
async fn a_close_does_not_rest_on_an_area_that_is_gone() {
    let (node, _faults) = slow().await;
    let writer = written(&node, LEN).await;
    let area = node.store.staging().expect("is on").path().to_owned();
    std::fs::remove_file(area).expect("there");
    writer.finalize().await.expect("closes");
    assert!(finalized(&node).exists() && !marker(&node).exists());
    node.check(5, 1001, LEN).await;
}

/// What a marker says is believed only if all of the replica is there and right.
#[tokio::test]
async fn a_marker_does_not_make_a_replica_whole() {
    let good = Marker {
        generation_stamp: 1001,
        len: 300_000,
    };
    let flip = |at: usize| {
        move |path: &Path| {
            let mut bytes = std::fs::read(path).expect("there");
            bytes[at] ^= 1;
            std::fs::write(path, bytes).expect("writes");
        }
    };
    let older = Marker {
        generation_stamp: 1000,
        ..good
    };
    let longer = Marker {
        len: 300_001,
        ..good
    };
    let nothing = |_: &Path| ();
    type Damage = Box<dyn Fn(&Path)>;
    let cases: [(String, Damage, ReplicaState); 7] = [
        (good.encode(), Box::new(nothing), ReplicaState::Finalized),
        (good.encode(), Box::new(flip(0)), ReplicaState::Rwr),
        (good.encode(), Box::new(flip(299_999)), ReplicaState::Rwr),
        (older.encode(), Box::new(nothing), ReplicaState::Rwr),
        (longer.encode(), Box::new(nothing), ReplicaState::Rwr),
        ("1001 300".to_owned(), Box::new(nothing), ReplicaState::Rwr),
        ("1".repeat(1000), Box::new(nothing), ReplicaState::Rwr),
    ];
    for (text, damage, state) in cases {
        let node = Node::unstaged().await;
        let mut writer = node.writer(5, 1001).await;
        let packets = vec![packet(0, 300_000)];
        writer.write(packets).await.expect("writes");
        node.store.crash();
        drop(writer);
        damage(&rbw(&node).join("blk_5"));
        std::fs::write(marker(&node), &text).expect("writes");
        let node = node.kill_and_start().await;
        let replica = node.store.replica(&pool(), 5).expect("there");
        assert_eq!(replica.state, state, "{text:.40}");
        assert!(!marker(&node).exists());
        if state == ReplicaState::Finalized {
            node.check(5, 1001, 300_000).await;
        }
    }
}

/// Bytes behind the closed length belong to nothing: a write that was rounded up, or a file that was extended.
#[tokio::test]
async fn files_that_are_longer_than_the_replica_are_cut() {
    let node = Node::unstaged().await;
    let mut writer = node.writer(5, 1001).await;
    let packets = vec![packet(0, 300_000)];
    writer.write(packets).await.expect("writes");
    node.store.crash();
    drop(writer);
    let marked = Marker {
        generation_stamp: 1001,
        len: 200_192,
    };
    std::fs::write(marker(&node), marked.encode()).expect("writes");
    let node = node.kill_and_start().await;
    let replica = node.store.replica(&pool(), 5).expect("there");
    assert_eq!(
        (replica.state, replica.bytes_on_disk),
        (ReplicaState::Finalized, 200_192)
    );
    node.check(5, 1001, 200_192).await;
}

#[tokio::test]
async fn a_marker_that_was_left_behind_goes() {
    let node = Node::new().await;
    let other = rbw(&node).join("notes.closed");
    std::fs::write(marker(&node), "1001 3\n").expect("writes");
    std::fs::write(&other, "whatever").expect("writes");
    let node = node.kill_and_start().await;
    assert!(!marker(&node).exists());
    assert!(other.exists(), "not ours");
}

#[tokio::test]
async fn an_append_waits_for_it() {
    let (node, _faults) = slow().await;
    closed(&node).await;
    let appending = node
        .store
        .append(&block(5, 1001, LEN as u64), 1002, LEN as u64)
        .await;
    let mut writer = appending.expect("opens");
    assert!(!marker(&node).exists());
    writer.set_checksum(crc32c()).await.expect("known");
    let more = vec![packet(LEN - LEN % 512, LEN + 4000)];
    writer.write(more).await.expect("stages");
    writer.finalize().await.expect("closes");
    node.check(5, 1002, LEN + 4000).await;
}

#[tokio::test]
async fn recoveries_find_it_finalized() {
    let (node, _faults) = slow().await;
    closed(&node).await;
    let begun = node
        .store
        .init_replica_recovery(&block(5, 1001, 0), 1010)
        .await;
    let info = begun.expect("begins").expect("takes part");
    assert_eq!(
        (info.original_state, info.block.num_bytes),
        (ReplicaState::Finalized, LEN as u64)
    );
    let target = block(5, 1001, LEN as u64);
    let ended = node
        .store
        .update_replica_under_recovery(&target, 1010, 0, LEN as u64);
    ended.await.expect("ends");
    node.check(5, 1010, LEN).await;

    // A client whose last acknowledgement got lost.
    let (node, _faults) = slow().await;
    closed(&node).await;
    let target = block(5, 1001, LEN as u64);
    let closing = node.store.recover_close(&target, 1002, LEN as u64);
    closing.await.expect("is closed");
    node.check(5, 1002, LEN).await;
}

#[tokio::test]
async fn it_can_be_deleted_and_moved() {
    let (node, _faults) = slow().await;
    let used = || node.store.storage_reports(&pool())[0].dfs_used;
    let before = used();
    closed(&node).await;
    let target = [Block::new(5, 1001, LEN as u64)];
    let deleted = node.store.invalidate(&pool(), &target).await;
    deleted.expect("deletes");
    assert!(node.store.replica(&pool(), 5).is_none());
    for _ in 0..500 {
        if used() == before {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(used(), before);
    nothing_in_rbw(&node);

    let (node, _faults) = slow().await;
    closed(&node).await;
    let other = node.store.volume_report()[1].storage.id.to_string();
    let target = block(5, 1001, LEN as u64);
    let moved = node
        .store
        .move_block(&target, Default::default(), Some(&other));
    assert_eq!(*moved.await.expect("moves").storage.id, *other);
    node.check(5, 1001, LEN).await;
}

#[tokio::test]
async fn a_clean_stop_and_the_removal_of_its_volume_wait_for_it() {
    let (node, _faults) = slow().await;
    closed(&node).await;
    node.store.shutdown().await;
    assert!(finalized(&node).exists());
    nothing_in_rbw(&node);
    let node = node.kill_and_start().await;
    node.check(5, 1001, LEN).await;

    let (node, _faults) = slow().await;
    closed(&node).await;
    let all = config(node.dir.path(), 2).volumes;
    let results = node.store.reconfigure_volumes(all[1..].to_vec()).await;
    assert!(results.iter().all(|(_, r)| r.is_ok()), "{results:?}");
    assert!(finalized(&node).exists());
    nothing_in_rbw(&node);
}

/// Whoever asked for more than that it outlives a killed process gets it.
#[tokio::test]
async fn closes_that_wait_for_the_disk() {
    type Change = fn(&mut StoreConfig);
    let changes: [(&str, Change); 4] = [
        ("synced closes", |c| c.sync_on_close = true),
        ("switched off", |c| c.staging.close = false),
        ("no room reserved", |c| c.preallocate = false),
        ("not staged", |c| c.staging.enabled = false),
    ];
    let in_place = |node: &Node, what: &str| {
        assert!(finalized(node).exists(), "{what}");
        nothing_in_rbw(node);
    };
    for (what, change) in changes {
        let (node, faults) = with(change).await;
        faults.clear();
        let writer = written(&node, LEN).await;
        writer.finalize().await.expect("closes");
        in_place(&node, what);
    }
    let (node, faults) = slow().await;
    faults.clear();
    let mut writer = written(&node, LEN).await;
    writer.sync().await.expect("syncs");
    writer.finalize_durably();
    writer.finalize().await.expect("closes");
    in_place(&node, "a close that the client wants synced");

    let (node, faults) = slow().await;
    faults.clear();
    let writer = written(&node, 900_000).await;
    writer.finalize().await.expect("closes");
    in_place(&node, "little of it is staged");

    let (node, faults) = slow().await;
    faults.clear();
    let created = node
        .store
        .create_temporary(&block(5, 1001, 0), options(&node))
        .await;
    let mut writer = created.expect("creates");
    writer.set_checksum(crc32c()).await.expect("header");
    writer.write(vec![packet(0, LEN)]).await.expect("stages");
    writer.finalize().await.expect("closes");
    in_place(&node, "a copy");
}

#[tokio::test]
async fn files_that_cannot_be_completed_are_reported_lost_and_looked_at_again_by_the_next_start() {
    let (mut node, faults) = slow().await;
    let writer = written(&node, LEN).await;
    faults.clear();
    faults.add(on_data(Effect::Errno(EIO)));
    writer.finalize().await.expect("closes");
    let StoreEvent::Lost { block: lost, .. } = event(&mut node).await else {
        panic!("it is lost");
    };
    assert_eq!(lost, block(5, 1001, LEN as u64));
    assert!(node.store.replica(&pool(), 5).is_none());
    let node = node.kill_and_start().await;
    drained(&node).await;
    node.check(5, 1001, LEN).await;
}

/// What is kept of such replicas leaves memory to those who write.
#[tokio::test]
async fn little_is_kept_of_replicas_that_are_given_up() {
    let (mut node, faults) = with(|c| c.staging.budget = 8 << 20).await;
    let writer = written(&node, LEN).await;
    faults.clear();
    faults.add(on_data(Effect::Errno(EIO)));
    writer.finalize().await.expect("closes");
    let StoreEvent::Lost { .. } = event(&mut node).await else {
        panic!("it is lost");
    };
    let staging = node.store.staging().expect("is on");
    assert_eq!(staging.segments_in_use(), 0);
    let node = node.kill_and_start().await;
    let replica = node.store.replica(&pool(), 5).expect("there");
    assert_eq!(replica.state, ReplicaState::Rwr);
    assert!(!marker(&node).exists() && !finalized(&node).exists());
}

#[tokio::test]
async fn an_error_that_passes_is_got_over() {
    let (node, faults) = slow().await;
    let writer = written(&node, LEN).await;
    faults.clear();
    faults.add(on_data(Effect::Errno(EIO)).times(2));
    writer.finalize().await.expect("closes");
    drained(&node).await;
    node.check(5, 1001, LEN).await;
}

#[tokio::test]
async fn it_is_lost_with_its_volume() {
    let (mut node, _faults) = slow().await;
    closed(&node).await;
    let root = node.dir.path().join("data0");
    // The check of a volume finds it gone.
    std::fs::rename(&root, node.dir.path().join("elsewhere")).expect("renames");
    std::fs::write(&root, "").expect("writes");
    node.store.check_volumes().await;
    let mut lost = 0;
    while lost == 0 {
        match event(&mut node).await {
            StoreEvent::Lost { block: gone, .. } => {
                assert_eq!(gone, block(5, 1001, LEN as u64));
                lost += 1;
            }
            StoreEvent::VolumeFailed { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    tokio::time::sleep(2 * SLOW).await;
    assert!(node.events.try_recv().is_err(), "told once");
    let staging = node.store.staging().expect("is on");
    assert_eq!(staging.segments_in_use(), 0);
}

/// A disk that is behind makes closes wait again, before whoever comes next waits too long for it.
#[tokio::test]
async fn closes_wait_while_the_disk_is_too_far_behind() {
    const BLOCK: usize = 6 << 20;
    let (node, faults) = slow().await;
    faults.clear();
    // Made before: that takes longer than closing.
    let steps = (0..BLOCK).step_by(1 << 20);
    let packets: Vec<_> = steps.map(|at| packet(at, at + (1 << 20))).collect();
    let slow_writes = FaultRule::new(Effect::Delay(SLOW))
        .on(&[IoOp::Write])
        .at(|path| path.extension().is_none());
    let closed = async |id: i64| {
        let created = node
            .store
            .create_rbw(&block(id, 1001, 0), options(&node))
            .await;
        let mut writer = created.expect("creates");
        writer.set_checksum(crc32c()).await.expect("header");
        for packet in &packets {
            let packets = vec![packet.clone()];
            writer.write(packets).await.expect("stages");
        }
        writer.finalize().await.expect("closes");
        let marker = rbw(&node).join(format!("blk_{id}.closed"));
        marker.exists()
    };
    let rule = faults.add(slow_writes);
    // As much as is always let in.
    assert_eq!((closed(5).await, closed(6).await), (true, true));
    assert!(!closed(7).await, "16 MiB is the floor");
    let volume = node.store.0.volumes()[0].clone();
    faults.remove(rule);
    for id in [5, 6, 7] {
        for _ in 0..1000 {
            if !rbw(&node).join(format!("blk_{id}.closed")).exists() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        node.check(id, 1001, BLOCK).await;
    }
    for _ in 0..100 {
        if volume.backlog.is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("what has drained is counted still");
}

#[test]
fn markers_are_read_as_they_are_written_and_not_otherwise() {
    let marker = Marker {
        generation_stamp: 1001,
        len: 134_217_728,
    };
    assert_eq!(marker.encode(), "1001 134217728\n");
    assert_eq!(Marker::parse("1001 134217728\n"), Some(marker));
    for text in [
        "", "\n", "1001\n", "1001 5", "01 5\n", "+1 5\n", "1 5 6\n", "1 -5\n", "a b\n",
    ] {
        assert_eq!(Marker::parse(text), None, "{text:?}");
    }
}
