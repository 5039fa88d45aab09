//! Many tasks at once on few blocks: nothing waits forever, and memory and directories agree
//! afterwards.

use super::*;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

/// One random operation on one of a few blocks; most are refused, which is right.
async fn act(store: &Store, rng: &mut StdRng) {
    let id = rng.random_range(1..6);
    let gs = rng.random_range(1001..1100);
    let target = block(id, gs, 0);
    let len = rng.random_range(1..5000);
    let options = WriteOptions::default();
    let opened = match rng.random_range(0..9) {
        0 | 1 => store.create_rbw(&target, options).await,
        2 => store.create_temporary(&target, options).await,
        3 => store.recover_rbw(&block(id, 0, 0), gs, 0, u64::MAX).await,
        4 => {
            let Some(replica) = store.replica(&pool(), id) else {
                return;
            };
            store
                .append(
                    &replica.block,
                    gs.max(replica.block.block.generation_stamp),
                    replica.bytes_on_disk,
                )
                .await
        }
        5 => {
            let _ = store.invalidate(&pool(), &[target.block]).await;
            return;
        }
        6 => {
            if let Ok(Some(info)) = store.init_replica_recovery(&block(id, 0, 0), gs).await {
                let was = ExtendedBlock::new(pool(), info.block);
                let cut = rng.random_range(0..=info.block.num_bytes);
                let _ = store.update_replica_under_recovery(&was, gs, 0, cut).await;
            }
            return;
        }
        _ => {
            if let Ok(reader) = store.open_reader(&block(id, 0, 0)).await {
                // It may be cut under the reader, never read as something else.
                let visible = usize::try_from(reader.visible_len()).expect("small");
                if let Ok(data) = reader
                    .read_data(AlignedBuf::unpooled(visible.max(1)), 0, visible)
                    .await
                {
                    assert!(data.as_slice() == bytes(0, visible));
                }
            }
            return;
        }
    };
    let Ok(mut writer) = opened else { return };
    let _ = writer.set_checksum(crc32c()).await;
    let from = usize::try_from(writer.bytes_on_disk()).expect("small");
    if writer.write(vec![packet(from, from + len)]).await.is_ok() {
        writer.set_bytes_acked(writer.bytes_on_disk() - rng.random_range(0..2));
    }
    if rng.random_bool(0.7) {
        let _ = writer.finalize().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn memory_and_directories_agree_after_a_storm() {
    storm("posix").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn they_agree_with_direct_writes() {
    storm("direct").await;
}

async fn storm(engine: &str) {
    let seed = u64::from(rand::random::<u32>());
    println!("seed {seed}");
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut config = config(dir.path(), 2);
    for volume in &mut config.volumes {
        // One that cannot be used here is replaced, with a remark.
        volume.engine = engine.to_owned();
    }
    let mut node = Node::start(dir, 2, config).await;
    let mut events = std::mem::replace(&mut node.events, mpsc::channel(1).1);
    tokio::spawn(async move { while events.recv().await.is_some() {} });
    let storms = (0..8_u64).map(|n| {
        let store = node.store.clone();
        tokio::spawn(async move {
            let mut rng = StdRng::seed_from_u64(seed + n);
            for _ in 0..150 {
                let action = act(&store, &mut rng);
                tokio::time::timeout(Duration::from_secs(30), action)
                    .await
                    .expect("nothing waits forever");
            }
        })
    });
    for storm in futures_util::future::join_all(storms).await {
        storm.expect("no panic");
    }
    let state = |store: &Store| {
        let mut all: Vec<(Block, bool)> = store
            .block_report(&pool())
            .into_iter()
            .flat_map(|(_, list)| list)
            .map(|r| {
                (
                    r.block,
                    r.state == hayloft_wire::ids::ReplicaState::Finalized,
                )
            })
            .collect();
        all.sort_unstable();
        all
    };
    // What goes on behind the last answer may end.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let before = state(&node.store);
    assert_eq!(
        node.store
            .volume_report()
            .iter()
            .map(|v| v.reserved_for_replicas)
            .sum::<u64>(),
        0
    );
    let node = node.kill_and_start().await;
    assert_eq!(state(&node.store), before);
    for (block, finalized) in before {
        if finalized {
            node.check(
                block.id,
                block.generation_stamp,
                usize::try_from(block.num_bytes).expect("small"),
            )
            .await;
        }
    }
}
