//! Bytes that were written and do not reach the device: what is promised of them, and what is not.

use super::*;

use hayloft_io::IoOp;
use hayloft_io::decorators::{Effect, FaultRule};
use hayloft_wire::ids::StorageType;

use crate::transitions::run_commit_rounds;
use crate::volume::Volume;

fn volume(node: &Node) -> Arc<Volume> {
    node.store.0.volumes().remove(0)
}

/// Carries a commit round of the first volume out; whether all is durable.
async fn round(node: &Node) -> bool {
    run_commit_rounds::round(&node.store.0, &volume(node)).await
}

fn mark(node: &Node) -> String {
    let text = std::fs::read_to_string(node.dir.path().join("data0/.hayloft-stop"));
    text.expect("there")
}

fn errno(op: IoOp, name: &'static str) -> FaultRule {
    FaultRule::new(Effect::Errno(EIO))
        .on(&[op])
        .at(move |path| path.ends_with(name))
}

#[tokio::test]
async fn an_error_that_the_write_back_of_a_close_meets_is_not_forgotten() {
    let (mut node, faults) = Node::with_faults(1, |config| {
        config.volumes[0].engine = "direct".to_owned();
    })
    .await;
    let mut writer = node.writer(5, 1001).await;
    let written = writer.write(vec![packet(0, 300_000)]).await;
    written.expect("writes");
    writer.set_bytes_acked(300_000);
    let before = mark(&node);
    let rule = faults.add(errno(IoOp::Writeback, "blk_5_1001.meta").times(1));
    assert!(writer.finalize().await.is_err());
    assert_eq!(faults.fired(rule), 1);
    // The kernel says nothing more of it, and a recovery closes the block.
    let there = block(5, 1001, 0);
    let closed = node.store.recover_close(&there, 1002, 300_000);
    closed.await.expect("closes");
    loop {
        let event = tokio::time::timeout(Duration::from_secs(10), node.events.recv()).await;
        match event.expect("in time").expect("open") {
            StoreEvent::Corrupt { block, .. } => break assert_eq!(block.block.id, 5),
            _other => {}
        }
    }
    // Nor does a later round vouch for it.
    node.put(6, 1001, 1000).await;
    round(&node).await;
    assert_eq!(mark(&node), before);
    node.store.shutdown().await;
    assert!(mark(&node).starts_with("open"));
}

#[tokio::test]
async fn a_sync_waits_for_what_may_hear_of_lost_bytes_first() {
    let (node, faults) = Node::with_faults(1, |_| {}).await;
    let mut writer = node.writer(5, 1001).await;
    let written = writer.write(vec![packet(0, 300_000)]).await;
    written.expect("writes");
    // The round's write-back takes the error from the descriptor, and tells it late.
    let slow = Duration::from_millis(300);
    let writes_back = || FaultRule::new(Effect::Delay(slow)).on(&[IoOp::Writeback]);
    let waits = faults.add(writes_back().at(|path| path.ends_with("blk_5")));
    faults.add(errno(IoOp::Writeback, "blk_5").times(1));
    let (store, first) = (Arc::clone(&node.store.0), volume(&node));
    let running = tokio::spawn(async move { run_commit_rounds::round(&store, &first).await });
    while faults.fired(waits) == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(writer.sync().await.is_err(), "its own sync meets no error");
    assert!(!running.await.expect("no panic"));
}

#[tokio::test]
async fn names_that_a_round_could_not_sync_are_tried_again() {
    let (node, faults) = Node::with_faults(1, |_| {}).await;
    node.put(5, 1001, 1000).await;
    let before = mark(&node);
    let rule = faults.add(
        FaultRule::new(Effect::Errno(EIO))
            .on(&[IoOp::SyncDir])
            .at(|path| path.ends_with("subdir0")),
    );
    assert!(!round(&node).await);
    assert!(!round(&node).await);
    assert!(faults.fired(rule) >= 2);
    faults.clear();
    assert!(round(&node).await);
    assert_eq!(mark(&node), before, "the kernel tells once");
}

/// What a killed process wrote last lies in the page cache, and no writer has it open.
#[tokio::test]
async fn what_was_written_before_a_kill_is_synced_before_the_mark_moves() {
    let (node, faults) = Node::with_faults(1, |_| {}).await;
    node.put(5, 1001, 1000).await;
    node.store.crash();
    let before = mark(&node);
    let root = node.dir.path().join("data0");
    let at = root.clone();
    let rule = faults.add(
        FaultRule::new(Effect::Delay(Duration::from_millis(300)))
            .on(&[IoOp::Sync])
            .at(move |path| path == at),
    );
    let config = StoreConfig {
        faults: Some((root, Arc::clone(&faults))),
        ..config(node.dir.path(), 1)
    };
    let node = Node::start(node.dir, 1, config).await;
    node.put(6, 1001, 1000).await;
    assert!(round(&node).await);
    assert_eq!(mark(&node), before);
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    let mut id = 7;
    while mark(&node) == before {
        assert!(std::time::Instant::now() < deadline);
        node.put(id, 1001, 10).await;
        round(&node).await;
        id += 1;
    }
    assert_eq!(faults.fired(rule), 1);
}

#[tokio::test]
async fn a_move_from_a_disk_that_hangs_does_not_look_like_one_of_its_target() {
    let (node, faults) = Node::with_faults(2, |config| {
        config.volumes[1].storage_type = StorageType::Archive;
    })
    .await;
    node.put(5, 1001, 3_000_000).await;
    let rule = faults.add(
        FaultRule::new(Effect::Stall(Duration::from_millis(500)))
            .on(&[IoOp::Read])
            .times(1),
    );
    let store = Arc::clone(&node.store.0);
    let volumes = store.volumes();
    let moving = tokio::spawn(async move {
        let block = block(5, 1001, 0);
        crate::background::move_replica::move_block(store, block, StorageType::Archive, None).await
    });
    while faults.fired(rule) == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let hangs = |n: usize| volumes[n].engine.disk().longest_other(&volumes[n].root);
    assert!(hangs(1).is_none(), "nothing is under way on the target");
    moving.await.expect("no panic").expect("moves");
    node.check(5, 1001, 3_000_000).await;
}

/// Of a new replica only one file could be made.
#[tokio::test]
async fn half_of_a_new_replica_is_cleared_away() {
    let (node, faults) = Node::with_faults(1, |_| {}).await;
    faults.add(errno(IoOp::Open, "blk_5_1001.meta"));
    let options = WriteOptions::default();
    let made = node.store.create_rbw(&block(5, 1001, 0), options).await;
    assert!(made.is_err());
    assert!(!node.pool_dir().join("current/rbw/blk_5").exists());
}
