//! A process is killed while replicas that it has closed are on their way to the disk, again and again.

use super::*;
use std::collections::HashMap;

use hayloft_io::IoOp;
use hayloft_io::decorators::{Effect, FaultRule, Faults};
use hayloft_wire::ids::ReplicaState;

const CHILD_DIR: &str = "HAYLOFT_TEST_CLOSED_DIR";
const CHILD_ROUND: &str = "HAYLOFT_TEST_CLOSED_ROUND";
const WRITERS: i64 = 3;
/// Lengths that are closed early, in the middle of chunks and at the ends of segments, and one that is not.
const LENGTHS: [usize; 5] = [1_300_000, 2 << 20, 1_700_001, 300_000, (3 << 19) + 512];

/// Ids of a writer in a round.
fn ids(round: i64, writer: i64) -> impl Iterator<Item = i64> {
    (0..1000).map(move |n| (round * WRITERS + writer) * 1000 + n)
}

fn length(id: i64) -> usize {
    LENGTHS[usize::try_from(id).expect("positive") % LENGTHS.len()]
}

/// Writes and closes one block.
async fn close(store: &Store, id: i64) {
    let options = WriteOptions {
        expected_len: Some(8 << 20),
        ..WriteOptions::default()
    };
    let created = store.create_rbw(&block(id, 1001, 0), options).await;
    let mut writer = created.expect("creates");
    writer.set_checksum(crc32c()).await.expect("header");
    let len = length(id);
    let mut at = 0;
    while at < len {
        let next = len.min(at + (1 << 18));
        writer.write(vec![packet(at, next)]).await.expect("writes");
        at = next;
    }
    writer.finalize().await.expect("closes");
    println!("closed {id} whole");
}

/// Not a test of its own: the process that the next one kills.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a part of another test, which starts it"]
async fn child_closes_until_it_is_killed() {
    let Some(dir) = std::env::var_os(CHILD_DIR) else {
        return;
    };
    let round = std::env::var(CHILD_ROUND).expect("set");
    let round: i64 = round.parse().expect("a number");
    let faults = Faults::new(1);
    // Slow enough that most of what is closed is on its way when the process dies.
    faults.add(FaultRule::new(Effect::Delay(Duration::from_millis(300))).on(&[IoOp::Write]));
    let config = StoreConfig {
        faults: Some((Path::new(&dir).join("data0"), Arc::clone(&faults))),
        ..config(Path::new(&dir), 1)
    };
    let (store, _events) = open(config).await;
    let tasks = (0..WRITERS).map(|writer| {
        let store = store.clone();
        tokio::spawn(async move {
            for id in ids(round, writer) {
                close(&store, id).await;
            }
        })
    });
    futures_util::future::join_all(tasks).await;
}

/// Runs the child for a while, kills it, and says which blocks it had closed.
fn closed_before_the_kill(dir: &Path, round: i64) -> Vec<i64> {
    let name = "tests::closed_and_killed::child_closes_until_it_is_killed";
    let number = round.to_string();
    let env = [
        (CHILD_DIR, dir.as_os_str()),
        (CHILD_ROUND, OsStr::new(&number)),
    ];
    let after = Duration::from_millis(1100 + 370 * (round.unsigned_abs() % 4));
    let lines = run_and_kill(name, &env, after);
    let ids = lines.iter().filter_map(|line| {
        // The last line may be cut.
        let id = line.split("closed ").nth(1)?.strip_suffix(" whole")?;
        id.parse().ok()
    });
    ids.collect()
}

#[test]
fn what_a_killed_process_had_closed_is_finalized_at_the_next_start() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let dir = tempfile::tempdir().expect("temporary directory");
    let current = dir
        .path()
        .join("data0/current")
        .join(pool().as_str())
        .join("current");
    let mut all: HashMap<i64, usize> = HashMap::new();
    let mut on_their_way = 0;
    for round in 0..20 {
        // How many are on their way at the moment of a kill is chance.
        if round >= 4 && on_their_way > 5 {
            break;
        }
        let closed = closed_before_the_kill(dir.path(), round);
        let markers = std::fs::read_dir(current.join("rbw")).map_or(0, |entries| {
            let names = entries.filter_map(|e| e.ok()?.file_name().into_string().ok());
            names.filter(|name| name.ends_with(".closed")).count()
        });
        println!(
            "round {round}: {} closed, {markers} on their way",
            closed.len()
        );
        on_their_way += markers;
        all.extend(closed.into_iter().map(|id| (id, length(id))));
        runtime.block_on(async {
            let (store, _events) = open(config(dir.path(), 1)).await;
            for (id, len) in &all {
                let replica = store.replica(&pool(), *id).expect("there");
                assert_eq!(
                    (replica.state, replica.bytes_on_disk),
                    (ReplicaState::Finalized, *len as u64),
                    "{id}"
                );
                let reader = store.open_reader(&block(*id, 1001, 0)).await;
                check_reader(&reader.expect("opens"), *len).await;
            }
            // Those that were not closed wait for their recovery; nobody comes for them here.
            store.shutdown().await;
        });
        let left = std::fs::read_dir(current.join("rbw")).expect("there");
        let left = left.filter_map(|e| e.ok()?.file_name().into_string().ok());
        assert!(left.into_iter().all(|name| !name.ends_with(".closed")));
    }
    assert!(
        all.len() > 10 && on_their_way > 5,
        "the test looks at something"
    );
}
