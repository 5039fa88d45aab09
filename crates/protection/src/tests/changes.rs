//! Members that change: the others stay protected.

use super::*;

/// Reads the block by decoding only, as if its disk were gone.
async fn check_decoded(node: &Node, id: i64, len: usize) {
    decoded_is(node, id, &content(id, len)).await;
}

async fn decoded_is(node: &Node, id: i64, wanted: &[u8]) {
    let parity = &node.parity;
    let storage = node.store.replica(&pool(), id).expect("there").storage;
    let cover = parity.table().cover(&pool(), id, &storage.id);
    let (unit, covered) = cover.expect("in a group");
    assert_eq!(covered, wanted.len() as u64, "block {id}");
    let bytes = crate::decode_for_test(parity, unit).await;
    assert!(bytes == wanted, "block {id}");
}

#[tokio::test]
async fn a_replica_that_another_process_wrote_anew_is_no_damage() {
    let mut node = start(3, shape(2, 1)).await;
    put(&node, 1, 70_000).await;
    put(&node, 2, 70_000).await;
    round(&node).await;
    let (from, to) = (data_file(&node, 2), data_file(&node, 1));
    std::fs::copy(&from, &to).expect("copies");
    let meta = |data: &Path| data.with_file_name(format!("{}_1001.meta", name_of(data)));
    std::fs::copy(meta(&from), meta(&to)).expect("copies");
    ParityRequest::Scrub
        .leave(&node.dir.path().join("data0"))
        .expect("asks");
    round(&node).await;
    round(&node).await;
    let told = events(&mut node).await;
    assert!(told.is_empty(), "{told:?}");
    assert!(std::fs::read(&to).expect("reads") == content(2, 70_000));
    decoded_is(&node, 1, &content(2, 70_000)).await;
}

fn name_of(data: &Path) -> &str {
    data.file_name().and_then(|n| n.to_str()).expect("a name")
}

async fn append(node: &Node, id: i64, gs: u64, from: usize, to: usize) {
    let (old, new) = (block(id, gs, from as u64), gs + 1);
    let mut writer = node
        .store
        .append(&old, new, from as u64)
        .await
        .expect("opens");
    let chunk = from / 512 * 512;
    let packet = packet_of(&content(id, to)[chunk..], chunk);
    writer.write(vec![packet]).await.expect("writes");
    writer.finalize().await.expect("finalizes");
}

#[tokio::test]
async fn an_appended_replica_serves_its_old_group_and_gets_a_new_one() {
    let shape = shape(2, 1);
    let node = start(3, shape).await;
    put(&node, 1, 70_000).await;
    put(&node, 2, 80_001).await;
    round(&node).await;
    append(&node, 1, 1001, 70_000, 150_000).await;
    check_decoded(&node, 2, 80_001).await;
    assert_eq!(status(&node).protected_bytes, 70_000 + 80_001);
    round(&node).await;
    let now = status(&node);
    assert_eq!((now.protected_bytes, now.groups), (150_000 + 80_001, 2));
    check_decoded(&node, 1, 150_000).await;
    let node = again(node, shape, true).await;
    round(&node).await;
    check_decoded(&node, 1, 150_000).await;
    check_decoded(&node, 2, 80_001).await;
    assert_eq!(status(&node).protected_bytes, 150_000 + 80_001);
}

#[tokio::test]
async fn data_of_a_deleted_replica_is_kept_for_the_others() {
    let shape = shape(3, 1);
    let node = start(4, shape).await;
    for id in 1..4 {
        put(&node, id, 50_000 + usize::try_from(id).expect("small")).await;
    }
    round(&node).await;
    node.store
        .invalidate(&pool(), &[block(1, 1001, 0).block])
        .await
        .expect("deletes");
    assert_eq!(reported(&node), [2, 3]);
    check_decoded(&node, 2, 50_002).await;
    check_decoded(&node, 3, 50_003).await;
    assert_eq!(status(&node).kept_bytes, 50_001);
    let node = again(node, shape, false).await;
    assert_eq!(
        (reported(&node), status(&node).kept_bytes),
        (vec![2, 3], 50_001)
    );
    round(&node).await;
    check_decoded(&node, 2, 50_002).await;
    // The second of three goes: what is left is encoded anew, and the old group goes.
    node.store
        .invalidate(&pool(), &[block(2, 1001, 0).block])
        .await
        .expect("deletes");
    check_decoded(&node, 3, 50_003).await;
    round(&node).await;
    round(&node).await;
    let now = status(&node);
    assert_eq!(
        (now.protected_bytes, now.kept_bytes, now.groups),
        (50_003, 0, 1)
    );
    check_files(&node, shape);
    check_decoded(&node, 3, 50_003).await;
}

#[tokio::test]
async fn what_may_not_be_kept_is_encoded_around() {
    let shape = shape(2, 1);
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut config = protected(dir.path(), 3, shape);
    let parity = &mut config.parity;
    parity.kept_max = 1000;
    let node = Node::start(dir, 3, config).await;
    put(&node, 1, 50_000).await;
    put(&node, 2, 50_000).await;
    round(&node).await;
    node.store
        .invalidate(&pool(), &[block(1, 1001, 0).block])
        .await
        .expect("deletes");
    let now = status(&node);
    assert_eq!((now.kept_bytes, now.degraded_bytes), (0, 50_000));
    round(&node).await;
    round(&node).await;
    let now = status(&node);
    assert_eq!(
        (now.protected_bytes, now.degraded_bytes, now.groups),
        (50_000, 0, 1)
    );
    check_decoded(&node, 2, 50_000).await;
}

#[tokio::test]
async fn a_truncated_replica_leaves_a_copy_behind() {
    let shape = shape(2, 1);
    let node = start(3, shape).await;
    put(&node, 1, 50_000).await;
    put(&node, 2, 60_000).await;
    round(&node).await;
    let old = block(1, 1001, 50_000);
    node.store
        .init_replica_recovery(&old, 1002)
        .await
        .expect("begins");
    let cut = node
        .store
        .update_replica_under_recovery(&old, 1002, 0, 20_000)
        .await;
    cut.expect("cuts");
    check(&node, 1, 20_000).await;
    check_decoded(&node, 2, 60_000).await;
    assert_eq!(status(&node).kept_bytes, 50_000);
    round(&node).await;
    round(&node).await;
    check_decoded(&node, 1, 20_000).await;
    check_decoded(&node, 2, 60_000).await;
    assert_eq!(status(&node).protected_bytes, 80_000);
}

#[tokio::test]
async fn a_generation_stamp_changes_nothing() {
    let shape = shape(2, 1);
    let node = start(3, shape).await;
    put(&node, 1, 50_000).await;
    put(&node, 2, 60_000).await;
    round(&node).await;
    let old = block(1, 1001, 50_000);
    node.store
        .recover_close(&old, 1007, 50_000)
        .await
        .expect("closes");
    check_decoded(&node, 1, 50_000).await;
    round(&node).await;
    assert_eq!(
        (status(&node).groups, status(&node).protected_bytes),
        (1, 110_000)
    );
    let node = again(node, shape, true).await;
    round(&node).await;
    assert_eq!(
        (status(&node).groups, status(&node).protected_bytes),
        (1, 110_000)
    );
}

/// Blocks are written, grow and go while rounds run: in the end all that is left is protected, and
/// decodes to what it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn changes_beside_encoding_leave_every_group_right() {
    const LEN: usize = 40_000;
    let shape = shape(3, 1);
    let node = Arc::new(start(5, shape).await);
    let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let rounds = tokio::spawn({
        let (node, done) = (Arc::clone(&node), Arc::clone(&done));
        async move {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                round(&node).await;
            }
        }
    });
    let workers = (0..4_i64).map(|worker| {
        let node = Arc::clone(&node);
        tokio::spawn(async move {
            for n in 0..12 {
                let id = 1 + worker * 100 + n;
                put(&node, id, LEN).await;
                match n % 4 {
                    1 => append(&node, id, 1001, LEN, 2 * LEN).await,
                    2 => {
                        let gone = [block(id - 2, 1001, 0).block];
                        node.store
                            .invalidate(&pool(), &gone)
                            .await
                            .expect("deletes");
                    }
                    _ => {}
                }
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await.expect("no panic");
    }
    done.store(true, std::sync::atomic::Ordering::Relaxed);
    rounds.await.expect("no panic");
    round(&node).await;
    round(&node).await;
    let now = status(&node);
    assert_eq!(
        (now.unprotected_bytes, now.degraded_bytes, now.lost_bytes),
        (0, 0, 0)
    );
    let mut bytes = 0;
    for id in reported(&node) {
        let len = if (id - 1) % 100 % 4 == 1 {
            2 * LEN
        } else {
            LEN
        };
        check(&node, id, len).await;
        check_decoded(&node, id, len).await;
        bytes += len as u64;
    }
    assert_eq!(now.protected_bytes, bytes);
}
