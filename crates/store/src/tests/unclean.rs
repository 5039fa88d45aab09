//! Starts after a stop that was not clean: power loss, or a killed process.

use super::*;

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::time::SystemTime;

use hayloft_wire::ids::ReplicaState;

fn finalized(node: &Node) -> PathBuf {
    node.pool_dir().join("current/finalized/subdir0/subdir0")
}

/// Carries a commit round of the only volume out; whether all is durable.
async fn round(node: &Node) -> bool {
    let volume = node.store.0.volumes().remove(0);
    crate::transitions::run_commit_rounds::round(&node.store.0, &volume).await
}

fn states(node: &Node) -> Vec<(i64, ReplicaState)> {
    let report = node.store.block_report(&pool());
    let all = report.into_iter().flat_map(|(_, list)| list);
    let mut states: Vec<_> = all.map(|r| (r.block.id, r.state)).collect();
    states.sort_unstable_by_key(|(id, _)| *id);
    states
}

/// Each kind of damage that power loss leaves, in a replica that was closed.
#[tokio::test]
async fn what_power_loss_damaged_is_never_reported_as_finalized() {
    type Damage = fn(&Path);
    let damages: [Damage; 5] = [
        // The meta file was never written.
        |dir| drop(File::create(dir.join("blk_5_1001.meta")).expect("empties")),
        // Its end was not.
        |dir| cut(&dir.join("blk_5_1001.meta"), 40),
        // The data file is as long as it was, and nothing of it was written.
        |dir| {
            cut(&dir.join("blk_5"), 0);
            cut(&dir.join("blk_5"), 300_000);
        },
        // The last chunk is there, and a page before is not.
        |dir| {
            let data = bytes(0, 300_000);
            cut(&dir.join("blk_5"), 0);
            cut(&dir.join("blk_5"), 300_000);
            let file = OpenOptions::new().write(true).open(dir.join("blk_5"));
            let file = file.expect("opens");
            file.write_all_at(&data[200_000..], 200_000)
                .expect("writes");
            file.write_all_at(&data[..100_000], 0).expect("writes");
        },
        // Its last chunk is damaged.
        |dir| {
            let file = OpenOptions::new().write(true).open(dir.join("blk_5"));
            let written = file.expect("opens").write_all_at(b"damaged", 299_990);
            written.expect("writes");
        },
    ];
    for (number, damage) in damages.into_iter().enumerate() {
        let node = Node::new().await;
        node.put(4, 1001, 1000).await;
        node.put(5, 1001, 300_000).await;
        node.store.crash();
        damage(&finalized(&node));
        let node = node.kill_and_start().await;
        let wanted = [(4, ReplicaState::Finalized), (5, ReplicaState::Rwr)];
        assert_eq!(states(&node), wanted, "{number}");
        node.check(4, 1001, 1000).await;
    }
}

fn cut(path: &Path, len: u64) {
    let file = OpenOptions::new().write(true).open(path).expect("opens");
    file.set_len(len).expect("cuts");
}

/// A flipped byte in the middle, where a quick look does not find it.
#[tokio::test]
async fn the_whole_of_recent_replicas_is_verified_in_the_background() {
    let node = Node::new().await;
    for id in 1..=3 {
        node.put(id, 1001, 300_000).await;
    }
    node.store.crash();
    let file = OpenOptions::new()
        .write(true)
        .open(finalized(&node).join("blk_2"))
        .expect("opens");
    file.write_all_at(b"?", 150_000).expect("writes");
    let mut node = node.kill_and_start().await;
    let told = tokio::time::timeout(Duration::from_secs(10), node.events.recv()).await;
    let Ok(Some(StoreEvent::Corrupt { block, .. })) = told else {
        panic!("{told:?}");
    };
    assert_eq!(block.block.id, 2);
}

/// Apache's node may have used one of two volumes alone, and have got blocks anew that the other
/// one has.
#[tokio::test]
async fn the_lesser_of_two_replicas_is_not_called_damaged_when_it_was_deleted() {
    let node = Node::with_volumes(2).await;
    for id in 1..=4 {
        node.put(id, 1001, 300_000).await;
    }
    node.store.crash();
    let dirs = ["data0", "data1"].map(|volume| {
        let current = node.dir.path().join(volume).join("current");
        let pool = current.join(pool().as_str());
        pool.join("current/finalized/subdir0/subdir0")
    });
    for id in 1..=4 {
        for name in [format!("blk_{id}"), format!("blk_{id}_1001.meta")] {
            let [first, second] = [0, 1].map(|n| dirs[n].join(&name));
            let copied = if first.exists() {
                std::fs::copy(&first, &second)
            } else {
                std::fs::copy(&second, &first)
            };
            copied.expect("copies");
        }
    }
    let mut node = node.kill_and_start().await;
    let told = tokio::time::timeout(Duration::from_secs(1), node.events.recv()).await;
    assert!(told.is_err(), "{told:?}");
    for id in 1..=4 {
        let data = format!("blk_{id}");
        let there = dirs.iter().filter(|dir| dir.join(&data).exists());
        assert_eq!(there.count(), 1, "{data}");
        node.check(id, 1001, 300_000).await;
    }
}

#[tokio::test]
async fn what_a_commit_round_made_durable_is_not_looked_at_again() {
    let node = Node::new().await;
    node.put(5, 1001, 300_000).await;
    // A look at recent replicas takes along what changed up to 2 s before.
    tokio::time::sleep(Duration::from_millis(2100)).await;
    node.put(6, 1001, 1000).await;
    assert!(round(&node).await);
    node.store.crash();
    // Nothing says that it is damaged but a look at it.
    let meta = finalized(&node).join("blk_5_1001.meta");
    let before = std::fs::metadata(&meta).expect("there");
    let file = OpenOptions::new().write(true).open(&meta).expect("opens");
    file.write_all_at(b"?", 100).expect("writes");
    file.set_modified(before.modified().expect("known"))
        .expect("sets");
    let node = node.kill_and_start().await;
    let wanted = [(5, ReplicaState::Finalized), (6, ReplicaState::Finalized)];
    assert_eq!(states(&node), wanted);
}

/// The stamp stays where it was until all that is newer was verified.
#[tokio::test]
async fn a_clean_stop_is_believed_and_one_that_was_not_is_remembered() {
    let mark = |node: &Node| {
        let text = std::fs::read_to_string(node.dir.path().join("data0/.hayloft-stop"));
        text.expect("there").split(' ').next().map(str::to_owned)
    };
    let node = Node::new().await;
    assert_eq!(mark(&node).as_deref(), Some("open"));
    node.put(5, 1001, 1000).await;
    node.store.shutdown().await;
    assert_eq!(mark(&node).as_deref(), Some("closed"));
    let node = node.restart().await;
    let volume = node.store.0.volumes().remove(0);
    assert_eq!(volume.doubt, None);
    assert_eq!(mark(&node).as_deref(), Some("open"));
    let node = node.kill_and_start().await;
    let volume = node.store.0.volumes().remove(0);
    let since = volume.doubt.expect("it was not clean").since_ms;
    assert!(since > 0);
    drop(volume);
    let node = node.kill_and_start().await;
    let again = node.store.0.volumes()[0].doubt;
    assert!(again.is_some_and(|again| again.since_ms <= since));
    // What Apache's node does when it starts.
    node.store.shutdown().await;
    let version = node.dir.path().join("data0/current/VERSION");
    let text = std::fs::read(&version).expect("there");
    std::fs::write(&version, text).expect("writes");
    let node = node.restart().await;
    assert!(node.store.0.volumes()[0].doubt.is_some());
}

/// What Apache's node wrote long before its end stays out of doubt at the second start, too.
#[tokio::test]
async fn a_stop_before_replicas_of_another_node_are_verified_keeps_what_is_in_doubt() {
    let node = Node::new().await;
    node.put(5, 1001, 1000).await;
    node.store.shutdown().await;
    let hour_ago = SystemTime::now() - Duration::from_secs(3600);
    let root = node.dir.path().join("data0");
    let version = root.join("current/VERSION");
    let changed = std::fs::File::open(&version).and_then(|file| file.set_modified(hour_ago));
    changed.expect("sets");
    // The last clean stop was a day ago, and the other node stopped an hour ago.
    let mark = std::fs::read_to_string(root.join(".hayloft-stop")).expect("there");
    let words: Vec<&str> = mark.split(' ').collect();
    let day_ago = words[1].parse::<u64>().expect("a number") - 24 * 3600 * 1000;
    let closed = format!("closed {day_ago} {} {}", words[2], words[3]);
    std::fs::write(root.join(".hayloft-stop"), closed).expect("writes");
    let node = node.restart().await;
    let first = node.store.0.volumes()[0]
        .doubt
        .expect("another node was here");
    assert_eq!((first.since_ms, first.of_other_node), (day_ago, true));
    let node = node.kill_and_start().await;
    let second = node.store.0.volumes()[0].doubt.expect("it was not clean");
    assert!(!second.of_other_node);
    assert!(second.since_ms > day_ago + 22 * 3600 * 1000, "{second:?}");
}

/// The store has not looked at a pool that no NameNode had loaded: it stays in doubt, also where
/// the volume is not.
#[tokio::test]
async fn a_pool_that_is_not_loaded_before_a_clean_stop_stays_in_doubt() {
    let node = Node::new().await;
    node.put(4, 1001, 1000).await;
    node.put(5, 1001, 1000).await;
    let end = finalized(&node).join("blk_5");
    node.store.crash();
    cut(&end, 700);
    let (root, dir) = (node.pool_dir(), node.dir);
    let (sender, _events) = mpsc::channel(100);
    let store = Store::open(config(dir.path(), 1), sender).await;
    let store = store.expect("opens");
    let volume = store.0.volumes().remove(0);
    assert!(volume.doubt.is_some());
    assert_eq!(volume.commits.unloaded(), [root.as_path()]);
    // The sync of what was written before holds the mark, too.
    wait_until(|| volume.commits.may_stamp()).await;
    drop(volume);
    store.shutdown().await;
    drop(store);
    let mark = root.join(".hayloft-stop");
    assert!(
        std::fs::read_to_string(&mark)
            .expect("there")
            .starts_with("open ")
    );
    let settings = config(dir.path(), 1);
    let node = Node::start(dir, 1, settings).await;
    let volume = node.store.0.volumes().remove(0);
    assert_eq!(volume.doubt, None, "that stop was clean");
    let wanted = [(4, ReplicaState::Finalized), (5, ReplicaState::Rwr)];
    assert_eq!(states(&node), wanted);
    wait_until(|| !mark.exists()).await;
}

async fn wait_until(is_so: impl Fn() -> bool) {
    let began = std::time::Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A node that is stopped before it registered has no VERSION, and nothing to warn of.
#[tokio::test]
async fn a_volume_that_was_never_used_has_no_stop_to_mark() {
    let dir = tempfile::tempdir().expect("a directory");
    let (sender, _events) = mpsc::channel(100);
    let store = Store::open(config(dir.path(), 1), sender)
        .await
        .expect("opens");
    let volume = store.0.volumes().remove(0);
    assert!(!volume.root.join("current/VERSION").exists());
    let closed = crate::volume::stop_mark::Mark::close(&volume, 5).await;
    closed.expect("nothing to mark");
    store.shutdown().await;
}

/// Of a replica that was being written any chunk may be damaged.
#[tokio::test]
async fn a_replica_being_written_is_cut_at_its_first_damage() {
    let node = Node::new().await;
    let mut writer = node.writer(5, 1001).await;
    let written = writer.write(vec![packet(0, 300_000)]).await;
    written.expect("writes");
    node.store.crash();
    let data = node.pool_dir().join("current/rbw/blk_5");
    let file = OpenOptions::new().write(true).open(data).expect("opens");
    file.write_all_at(b"?", 150_000).expect("writes");
    let node = node.kill_and_start().await;
    drop(writer);
    let replica = node.store.replica(&pool(), 5).expect("there");
    assert_eq!(replica.bytes_on_disk, 150_000 / 512 * 512);
}
