//! A process killed between any two steps leaves what start-up understands: acknowledged bytes are
//! there, a finalized block is whole or absent.

use super::*;
use hayloft_wire::ids::ReplicaState;
use std::fs;

#[tokio::test]
async fn acknowledged_bytes_survive_a_killed_process_at_any_length() {
    for len in [1, 511, 512, 513, 1000, 1024, 70_000] {
        let node = Node::new().await;
        let mut writer = node.writer(5, 1001).await;
        writer
            .write(vec![packet(0, len / 2)])
            .await
            .expect("writes");
        writer
            .write(vec![packet(len / 2, len)])
            .await
            .expect("writes");
        let node = node.kill_and_start().await;
        let replica = node.store.replica(&pool(), 5).expect("there");
        assert_eq!(
            (replica.state, replica.bytes_on_disk),
            (ReplicaState::Rwr, len as u64)
        );
        node.store
            .init_replica_recovery(&block(5, 1001, 0), 1010)
            .await
            .expect("begins");
        node.store
            .update_replica_under_recovery(&block(5, 1001, len as u64), 1010, 0, len as u64)
            .await
            .expect("ends");
        node.check(5, 1010, len).await;
        drop(writer);
    }
}

/// The files of a replica of 700 acknowledged bytes whose next write, up to 3000, stopped in the
/// middle.
#[tokio::test]
async fn a_write_killed_between_data_and_checksums_keeps_what_was_acknowledged() {
    for data_end in [700, 701, 1024, 2000, 3000] {
        let node = Node::new().await;
        let mut writer = node.writer(5, 1001).await;
        writer.write(vec![packet(0, 700)]).await.expect("writes");
        let node = {
            fs::write(
                node.pool_dir().join("current/rbw/blk_5"),
                bytes(0, data_end),
            )
            .expect("writes");
            node.kill_and_start().await
        };
        let len = node.store.replica(&pool(), 5).expect("there").bytes_on_disk;
        assert_eq!(len, 700, "{data_end}");
        drop(writer);
    }
}

/// Every state of the directories that moving a pair passes through.
#[tokio::test]
async fn a_pair_that_is_moved_is_whole_in_one_place_at_any_moment() {
    for steps in 0..=3 {
        let node = Node::new().await;
        let mut writer = node.writer(5, 1001).await;
        writer.write(vec![packet(0, 700)]).await.expect("writes");
        let rbw = node.pool_dir().join("current/rbw");
        let finalized = node.pool_dir().join("current/finalized/subdir0/subdir0");
        fs::create_dir_all(&finalized).expect("directory");
        if steps >= 1 {
            fs::hard_link(
                rbw.join("blk_5_1001.meta"),
                finalized.join("blk_5_1001.meta"),
            )
            .expect("links");
        }
        if steps >= 2 {
            fs::rename(rbw.join("blk_5"), finalized.join("blk_5")).expect("renames");
        }
        if steps >= 3 {
            fs::remove_file(rbw.join("blk_5_1001.meta")).expect("removes");
        }
        let node = node.kill_and_start().await;
        let replica = node.store.replica(&pool(), 5).expect("there");
        let state = if steps < 2 {
            ReplicaState::Rwr
        } else {
            ReplicaState::Finalized
        };
        assert_eq!(
            (replica.state, replica.block),
            (state, block(5, 1001, 700)),
            "{steps}"
        );
        assert_eq!(rbw.join("blk_5_1001.meta").exists(), steps < 2);
        assert_eq!(finalized.join("blk_5_1001.meta").exists(), steps >= 2);
        drop(writer);
    }
}

/// The same for an append, which gives a new generation stamp on the way.
#[tokio::test]
async fn an_append_that_is_killed_leaves_the_old_or_the_new_replica() {
    for steps in 0..=3 {
        let node = Node::new().await;
        node.put(5, 1001, 700).await;
        let rbw = node.pool_dir().join("current/rbw");
        let finalized = node.pool_dir().join("current/finalized/subdir0/subdir0");
        if steps >= 1 {
            fs::hard_link(
                finalized.join("blk_5_1001.meta"),
                rbw.join("blk_5_1002.meta"),
            )
            .expect("links");
        }
        if steps >= 2 {
            fs::rename(finalized.join("blk_5"), rbw.join("blk_5")).expect("renames");
        }
        if steps >= 3 {
            fs::remove_file(finalized.join("blk_5_1001.meta")).expect("removes");
        }
        let node = node.kill_and_start().await;
        let replica = node.store.replica(&pool(), 5).expect("there");
        let expected = if steps < 2 {
            (ReplicaState::Finalized, 1001)
        } else {
            (ReplicaState::Rwr, 1002)
        };
        assert_eq!(
            (replica.state, replica.block),
            (expected.0, block(5, expected.1, 700)),
            "{steps}"
        );
        let metas = [
            rbw.join("blk_5_1002.meta"),
            finalized.join("blk_5_1001.meta"),
        ];
        assert_eq!(metas.iter().filter(|m| m.exists()).count(), 1, "{steps}");
    }
}

/// The same for an append to files that an upgrade's snapshot shares: for a moment there are two
/// whole pairs.
#[tokio::test]
async fn an_unsharing_append_that_is_killed_leaves_one_whole_replica() {
    for steps in 0..=4 {
        let node = Node::new().await;
        node.put(5, 1001, 700).await;
        let rbw = node.pool_dir().join("current/rbw");
        let finalized = node.pool_dir().join("current/finalized/subdir0/subdir0");
        if steps >= 1 {
            fs::copy(
                finalized.join("blk_5_1001.meta"),
                rbw.join("blk_5_1002.meta"),
            )
            .expect("copies");
        }
        if steps >= 2 {
            fs::copy(finalized.join("blk_5"), rbw.join("blk_5")).expect("copies");
        }
        if steps >= 3 {
            fs::remove_file(finalized.join("blk_5")).expect("removes");
        }
        if steps >= 4 {
            fs::remove_file(finalized.join("blk_5_1001.meta")).expect("removes");
        }
        let node = node.kill_and_start().await;
        let replica = node.store.replica(&pool(), 5).expect("there");
        let expected = if steps < 2 {
            (ReplicaState::Finalized, 1001)
        } else {
            (ReplicaState::Rwr, 1002)
        };
        assert_eq!(
            (replica.state, replica.block),
            (expected.0, block(5, expected.1, 700)),
            "{steps}"
        );
    }
}

/// Cutting a replica: checksums are shortened, the last one is replaced, data is cut.
#[tokio::test]
async fn a_truncate_that_is_killed_leaves_at_least_the_new_length() {
    use std::os::unix::fs::FileExt as _;
    for steps in 0..=3 {
        let node = Node::new().await;
        let mut writer = node.writer(5, 1001).await;
        writer.write(vec![packet(0, 2000)]).await.expect("writes");
        let rbw = node.pool_dir().join("current/rbw");
        let open = |name: &str| {
            fs::OpenOptions::new()
                .write(true)
                .open(rbw.join(name))
                .expect("opens")
        };
        let (data, meta) = (open("blk_5"), open("blk_5_1001.meta"));
        if steps >= 1 {
            meta.set_len(crc32c().meta_len(700)).expect("cuts");
        }
        if steps >= 2 {
            let crc = crc32c().kind().crc(&bytes(512, 700));
            meta.write_all_at(&crc.to_be_bytes(), crc32c().meta_len(512))
                .expect("writes");
        }
        if steps >= 3 {
            data.set_len(700).expect("cuts");
        }
        let node = node.kill_and_start().await;
        let len = node.store.replica(&pool(), 5).expect("there").bytes_on_disk;
        assert_eq!(len, [2000, 1024, 700, 700][steps], "{steps}");
        drop(writer);
    }
}

#[tokio::test]
async fn a_finalize_whose_caller_goes_away_is_carried_out() {
    let node = Node::new().await;
    let mut writer = node.writer(5, 1001).await;
    writer.write(vec![packet(0, 700)]).await.expect("writes");
    {
        let finalize = writer.finalize();
        tokio::pin!(finalize);
        let _ = futures_util::poll!(&mut finalize);
    }
    for _ in 0..200 {
        if node
            .store
            .replica(&pool(), 5)
            .is_some_and(|r| r.state == ReplicaState::Finalized)
        {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    node.check(5, 1001, 700).await;
}

/// A cut where ends can be kept: data, checksums, the last of them. The end is kept before.
#[tokio::test]
async fn a_truncate_in_apaches_order_that_is_killed_leaves_at_least_the_new_length() {
    use std::os::unix::fs::FileExt as _;
    for steps in 0..=4 {
        let node = Node::new().await;
        let mut writer = node.writer(5, 1001).await;
        writer.write(vec![packet(0, 2000)]).await.expect("writes");
        let rbw = node.pool_dir().join("current/rbw");
        let open = |name: &str| {
            let mut options = fs::OpenOptions::new();
            options.read(true).write(true).open(rbw.join(name))
        };
        let (data, meta) = (open("blk_5"), open("blk_5_1001.meta"));
        let (data, meta) = (data.expect("opens"), meta.expect("opens"));
        let crc = crc32c().kind().crc(&bytes(512, 700));
        if steps >= 1 {
            let end = crate::replica::Tail { len: 700, crc };
            crate::replica::kept_end::keep(&meta, &[end]).expect("keeps");
        }
        if steps >= 2 {
            data.set_len(700).expect("cuts");
        }
        if steps >= 3 {
            meta.set_len(crc32c().meta_len(700)).expect("cuts");
        }
        if steps >= 4 {
            meta.write_all_at(&crc.to_be_bytes(), crc32c().meta_len(512))
                .expect("writes");
        }
        let node = node.kill_and_start().await;
        let len = node.store.replica(&pool(), 5).expect("there").bytes_on_disk;
        assert_eq!(len, [2000, 2000, 700, 700, 700][steps], "{steps}");
        drop(writer);
    }
}

/// Beyond Apache's: what a client hflushed stays visible when the process is killed. After a boot
/// power loss may have taken bytes that other nodes have.
#[tokio::test]
async fn a_replica_that_waits_for_recovery_is_readable_unless_the_system_was_booted() {
    let node = Node::new().await;
    let mut writer = node.writer(5, 1001).await;
    writer.write(vec![packet(0, 1300)]).await.expect("writes");
    drop(writer);
    let node = node.kill_and_start().await;
    let there = node.store.replica(&pool(), 5).expect("there");
    assert_eq!(
        (there.state, there.visible_len),
        (ReplicaState::Rwr, Some(1300))
    );
    node.check(5, 1001, 1300).await;
    // It is not copied, nor vouched for, nor taken over by a pipeline.
    let copied = node.store.open_verifiable(&block(5, 1001, 0)).await;
    assert_eq!(Node::error_of(copied), StoreErrorKind::Illegal);
    let taken = node
        .store
        .recover_rbw(&block(5, 1001, 0), 1002, 0, 1300)
        .await;
    assert_eq!(Node::error_of(taken), StoreErrorKind::NotFound);
    // Nor seen by a reader that knows of a newer stamp.
    let newer = node.store.open_reader(&block(5, 1002, 0)).await;
    let refused = StoreErrorKind::UnexpectedGenerationStamp;
    assert_eq!(Node::error_of(newer), refused);
    let meta = node.pool_dir().join("current/rbw/blk_5_1001.meta");
    let long_ago = std::time::UNIX_EPOCH + Duration::from_secs(1_000_000);
    let file = fs::OpenOptions::new().write(true).open(&meta);
    file.expect("opens").set_modified(long_ago).expect("sets");
    // What power left: the data file is shorter.
    let data = meta.with_file_name("blk_5");
    let data = fs::OpenOptions::new().write(true).open(data);
    data.expect("opens").set_len(1100).expect("cuts");
    let mut node = node;
    for _ in 0..2 {
        node = node.kill_and_start().await;
        let there = node.store.replica(&pool(), 5).expect("there");
        assert_eq!((there.bytes_on_disk, there.visible_len), (1024, None));
        let opened = node.store.open_reader(&block(5, 1001, 0)).await;
        assert_eq!(Node::error_of(opened), StoreErrorKind::Illegal);
    }
    // The recovery makes it readable.
    let (left, store) = (block(5, 1001, 1024), &node.store);
    let begun = store.init_replica_recovery(&left, 1010);
    begun.await.expect("begins");
    let ended = store.update_replica_under_recovery(&left, 1010, 0, 1024);
    ended.await.expect("ends");
    node.check(5, 1010, 1024).await;
}
