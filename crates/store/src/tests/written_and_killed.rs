//! A process is killed while replicas are being written: what it acknowledged is there.

use super::*;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

const CHILD_DIR: &str = "HAYLOFT_TEST_WRITTEN_DIR";
const WRITERS: i64 = 4;

/// Not a test of its own: the process that the next one kills. Writes until it dies, and prints
/// what it would have acknowledged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a part of another test, which starts it"]
async fn child_writes_until_it_is_killed() {
    let Some(dir) = std::env::var_os(CHILD_DIR) else {
        return;
    };
    let (store, _events) = open(config(Path::new(&dir), 1)).await;
    let base = block_base(Path::new(&dir));
    let tasks = (0..WRITERS).map(|n| {
        let store = store.clone();
        tokio::spawn(async move {
            let id = base + n;
            let created = store
                .create_rbw(&block(id, 1001, 0), WriteOptions::default())
                .await;
            let mut writer = created.expect("creates");
            writer.set_checksum(crc32c()).await.expect("header");
            let mut rng = StdRng::seed_from_u64(id.unsigned_abs());
            let mut len = 0;
            while len < 100 << 20 {
                let from = if n == 0 { len - len % 512 } else { len };
                let size = if n == 0 {
                    rng.random_range(1..2000)
                } else {
                    64_512
                };
                let next = from + size.max(len - from + 1);
                writer
                    .write(vec![packet(from, next)])
                    .await
                    .expect("writes");
                len = next;
                // What this acknowledgement rests on is the parent's to find.
                println!("acked {id} {len}");
                if n == 1 && rng.random_bool(0.02) {
                    writer.sync().await.expect("syncs");
                }
            }
        })
    });
    futures_util::future::join_all(tasks).await;
}

/// Block ids that no earlier round has used.
fn block_base(dir: &Path) -> i64 {
    let rbw = dir
        .join("data0/current")
        .join(pool().as_str())
        .join("current/rbw");
    i64::try_from(std::fs::read_dir(rbw).map_or(0, Iterator::count)).expect("small") * 10
}

#[test]
fn what_a_killed_process_acknowledged_is_there_at_the_next_start() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let dir = tempfile::tempdir().expect("temporary directory");
    for round in 0..5_u64 {
        let name = "tests::written_and_killed::child_writes_until_it_is_killed";
        // From before the first flush to well after several.
        let after = Duration::from_millis(400 + 700 * round);
        let lines = run_and_kill(name, &[(CHILD_DIR, dir.path().as_os_str())], after);
        let mut acked = std::collections::HashMap::new();
        for line in lines {
            let mut words = line
                .split_whitespace()
                .skip_while(|w| *w != "acked")
                .skip(1);
            // The last line may be cut.
            if let (Some(id), Some(len)) = (words.next(), words.next())
                && let (Ok(id), Ok(len)) = (id.parse::<i64>(), len.parse::<u64>())
            {
                acked.insert(id, len);
            }
        }
        println!("round {round}: {acked:?}");
        runtime.block_on(async {
            let (store, _events) = open(config(dir.path(), 1)).await;
            for (id, len) in acked {
                let replica = store.replica(&pool(), id).expect("there");
                assert!(
                    replica.bytes_on_disk >= len,
                    "{id}: {} of {len}",
                    replica.bytes_on_disk
                );
                let there = replica.bytes_on_disk;
                let gs = 1010 + round;
                store
                    .init_replica_recovery(&block(id, 1001, 0), gs)
                    .await
                    .expect("begins");
                store
                    .update_replica_under_recovery(&block(id, 1001, there), gs, 0, there)
                    .await
                    .expect("ends");
                let reader = store.open_reader(&block(id, gs, 0)).await.expect("opens");
                check_reader(&reader, usize::try_from(there).expect("small")).await;
            }
            store.shutdown().await;
        });
    }
}
