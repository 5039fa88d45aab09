//! Replicas in locked memory. What is locked is counted for the process: one test at a time.

mod anchors;
mod many;

use std::os::unix::fs::FileExt as _;

use hayloft_io::decorators::{Effect, FaultRule};
use hayloft_io::{in_pages, locked_memory};
use hayloft_wire::ids::StorageType;
use tokio::sync::{Mutex, MutexGuard};

use super::*;

/// Less than a process may lock everywhere.
const BUDGET: u64 = 4 << 20;

/// The only test with memory locked. In the end it lets go of what its stores have.
struct Alone(#[expect(dead_code, reason = "held, not used")] MutexGuard<'static, ()>);

/// Stores of the test that runs. A store that is not shut down never goes.
static STORES: std::sync::Mutex<Vec<Store>> = std::sync::Mutex::new(Vec::new());

fn stores() -> std::sync::MutexGuard<'static, Vec<Store>> {
    hayloft_io::locks::lock(&STORES)
}

async fn alone() -> Alone {
    static ONE: Mutex<()> = Mutex::const_new(());
    let one = ONE.lock().await;
    until("nothing is locked before", || locked() == 0).await;
    Alone(one)
}

impl Drop for Alone {
    fn drop(&mut self) {
        for pool in stores().drain(..).flat_map(|store| store.0.pools()) {
            drop(pool.map.uncache_all());
        }
    }
}

fn locked() -> u64 {
    locked_memory().expect("Linux says so")
}

/// A node that caches, on volumes of two types.
async fn node_with(budget: u64, change: impl FnOnce(&mut StoreConfig)) -> Node {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut config = config(dir.path(), 2);
    config.volumes[1].storage_type = StorageType::Archive;
    change(&mut config);
    let (sender, events) = mpsc::channel(100);
    let shared = StoreShared::alone(8 << 20).with_locked_memory(budget, 1);
    let opened = Store::open_sharing(config, sender, shared, None).await;
    let store = opened.expect("opens");
    stores().push(store.clone());
    let added = store.add_pool(spec(), StartOption::Regular).await;
    added.expect("loads");
    Node {
        dir,
        volumes: 2,
        store,
        events,
    }
}

async fn node() -> Node {
    node_with(BUDGET, |_| {}).await
}

/// Waits until this is so.
async fn until(what: &str, mut done: impl FnMut() -> bool) {
    for _ in 0..1000 {
        if done() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("not in 5 s: {what}");
}

impl Node {
    fn cached(&self) -> Vec<i64> {
        let mut ids = self.store.cached_blocks(&pool());
        ids.sort_unstable();
        ids
    }

    fn failed(&self) -> u64 {
        self.store.cache_use().failed_to_cache
    }

    fn cache(&self, ids: &[i64]) {
        self.store.cache(&pool(), ids);
    }

    /// Orders these blocks into memory, and waits until they are there.
    async fn cache_now(&self, ids: &[i64]) {
        self.cache(ids);
        let there = || ids.iter().all(|id| self.cached().contains(id));
        until("they are cached", there).await;
    }

    async fn delete(&self, id: i64) {
        let gone = block(id, 1001, 0).block;
        let deleted = self.store.invalidate(&pool(), &[gone]).await;
        deleted.expect("deletes");
    }

    fn uncache(&self, ids: &[i64]) {
        self.store.uncache(&pool(), ids);
    }

    fn file_of(&self, id: i64, gs: Option<u64>) -> std::fs::File {
        let meta = gs.map_or(String::new(), |gs| format!("_{gs}.meta"));
        let dir = self.pool_dir().join("current/finalized/subdir0/subdir0");
        let path = dir.join(format!("blk_{id}{meta}"));
        let opened = std::fs::OpenOptions::new().write(true).open(path);
        opened.expect("is there")
    }
}

#[tokio::test]
async fn whole_pages_are_locked_reported_and_given_back() {
    let _alone = alone().await;
    let node = node().await;
    // Pieces of a megabyte, a partial chunk at the end.
    let len = (2 << 20) + 777;
    let bytes = in_pages(len as u64) + in_pages(1);
    node.put(1, 1001, len).await;
    node.put(2, 1001, 1).await;
    node.cache_now(&[1, 2]).await;
    assert_eq!(locked(), bytes);
    let numbers = node.store.cache_use();
    let wanted = CacheUse {
        capacity: BUDGET,
        used: bytes,
        blocks: 2,
        cached: 2,
        ..CacheUse::default()
    };
    assert_eq!(numbers, wanted);
    node.check(1, 1001, len).await;
    // What is there already is not locked again.
    node.cache(&[1]);
    assert_eq!((locked(), node.failed()), (bytes, 0));
    node.uncache(&[1]);
    assert_eq!((node.cached(), locked()), (vec![2], in_pages(1)));
    node.uncache(&[1, 2, 9]);
    assert_eq!((node.cached(), locked()), (vec![], 0));
    let wanted = CacheUse {
        capacity: BUDGET,
        cached: 2,
        uncached: 2,
        failed_to_uncache: 2,
        ..CacheUse::default()
    };
    assert_eq!(node.store.cache_use(), wanted);
}

#[tokio::test]
async fn nothing_is_locked_beyond_the_budget() {
    let _alone = alone().await;
    let page = in_pages(1);
    let node = node_with(3 * page, |_| {}).await;
    for id in 1..=4 {
        node.put(id, 1001, 700).await;
    }
    node.put(5, 1001, 64 << 10).await;
    node.cache(&[5, 1, 2, 3, 4]);
    until("three fit", || node.cached().len() == 3).await;
    assert_eq!((node.cached(), node.failed()), (vec![1, 2, 3], 2));
    assert_eq!(locked(), 3 * page);
    node.uncache(&[2]);
    node.cache_now(&[4]).await;
    assert_eq!((node.cached(), locked()), (vec![1, 3, 4], 3 * page));
}

#[tokio::test]
async fn without_a_budget_nothing_is_cached() {
    let _alone = alone().await;
    let node = node_with(0, |_| {}).await;
    node.put(1, 1001, 700).await;
    node.cache(&[1]);
    assert_eq!((node.cached(), node.failed(), locked()), (vec![], 1, 0));
    assert_eq!(node.store.cache_use().capacity, 0);
}

#[tokio::test]
async fn what_is_open_gone_empty_or_damaged_is_counted_and_not_reported() {
    let _alone = alone().await;
    let node = node().await;
    let mut open = node.writer(1, 1001).await;
    open.write(vec![packet(0, 700)]).await.expect("writes");
    node.put(2, 1001, 0).await;
    node.cache(&[1, 2, 99]);
    assert_eq!(node.failed(), 3);
    node.put(3, 1001, 5000).await;
    node.put(4, 1001, 5000).await;
    node.put(5, 1001, 5000).await;
    let (data, meta) = (node.file_of(3, None), node.file_of(4, Some(1001)));
    data.write_all_at(b"x", 4321).expect("writes");
    meta.set_len(20).expect("cut");
    node.file_of(5, None).set_len(4096).expect("cut");
    node.cache(&[3, 4, 5]);
    until("all have failed", || node.failed() == 6).await;
    assert_eq!((node.cached(), locked()), (vec![], 0));
    assert_eq!(node.store.cache_use().used, 0, "their room is given back");
}

#[tokio::test]
async fn a_damaged_replica_is_a_suspect() {
    let _alone = alone().await;
    let mut node = node().await;
    node.put(1, 1001, 5000).await;
    node.file_of(1, None)
        .write_all_at(b"x", 10)
        .expect("writes");
    node.cache(&[1]);
    let told = async {
        loop {
            let event = node.events.recv().await.expect("the store is open");
            if let StoreEvent::Corrupt { block, .. } = event {
                return block.block.id;
            }
        }
    };
    let told = tokio::time::timeout(Duration::from_secs(20), told);
    assert_eq!(told.await.expect("is told"), 1);
}

#[tokio::test]
async fn whatever_changes_a_replica_uncaches_it() {
    let _alone = alone().await;
    let node = node().await;
    for id in 1..=5 {
        node.put(id, 1001, 700).await;
    }
    node.cache_now(&[1, 2, 3, 4, 5]).await;
    let page = in_pages(1);
    assert_eq!(locked(), 5 * page);

    node.delete(1).await;
    assert_eq!((node.cached(), locked()), (vec![2, 3, 4, 5], 4 * page));

    let appended = node.store.append(&block(2, 1001, 700), 1002, 700).await;
    let writer = appended.expect("reopens");
    assert_eq!((node.cached(), locked()), (vec![3, 4, 5], 3 * page));
    writer.finalize().await.expect("finalizes");
    assert_eq!(node.cached(), vec![3, 4, 5], "the NameNode orders it again");
    node.cache_now(&[2]).await;
    node.uncache(&[2]);

    let to = StorageType::Archive;
    let moved = node.store.move_block(&block(3, 1001, 0), to, None).await;
    moved.expect("moves");
    assert_eq!((node.cached(), locked()), (vec![4, 5], 2 * page));

    let block = block(4, 1001, 700);
    let init = node.store.init_replica_recovery(&block, 1003).await;
    init.expect("begins").expect("takes part");
    assert_eq!((node.cached(), locked()), (vec![5], page));

    node.store.forget_pool(&pool()).await;
    assert_eq!(locked(), 0);
    let numbers = node.store.cache_use();
    assert_eq!((numbers.used, numbers.blocks, numbers.uncached), (0, 0, 6));
}

#[tokio::test]
async fn a_stop_and_a_volume_that_leaves_give_all_back() {
    let _alone = alone().await;
    let node = node_with(BUDGET, outlives_a_volume).await;
    node.put(1, 1001, 700).await;
    node.put(2, 1001, 700).await;
    let to = StorageType::Archive;
    let moved = node.store.move_block(&block(2, 1001, 0), to, None).await;
    moved.expect("moves");
    node.cache_now(&[1, 2]).await;
    let left = vec![VolumeConfig::new(node.dir.path().join("data0"))];
    node.store.reconfigure_volumes(left).await;
    assert_eq!((node.cached(), locked()), (vec![1], in_pages(1)));
    node.store.shutdown().await;
    assert_eq!(locked(), 0);
}

/// The change comes while the replica waits for its disk: nothing of it stays locked, or is ever
/// reported.
#[tokio::test]
async fn a_change_on_the_way_into_memory_leaves_nothing_locked() {
    let _alone = alone().await;
    let (node, faults) = {
        let faults = Faults::new(1);
        let given = Arc::clone(&faults);
        let node = node_with(BUDGET, |config| {
            config.faults = Some((config.volumes[0].path.clone(), given));
        });
        (node.await, faults)
    };
    for id in 1..=4 {
        node.put(id, 1001, 3 << 20 >> id).await;
    }
    let slow = Effect::Delay(Duration::from_millis(300));
    faults.add(FaultRule::new(slow).on(&[hayloft_io::IoOp::Read]));
    node.cache(&[1, 2, 3, 4]);
    node.delete(1).await;
    let block = block(2, 1001, 786_432);
    let appended = node.store.append(&block, 1002, 786_432).await;
    let writer = appended.expect("reopens");
    node.uncache(&[3]);
    until("the last is cached", || node.cached() == [4]).await;
    faults.clear();
    drop(writer);
    until("nothing else is locked", || {
        locked() == in_pages(3 << 20 >> 4)
    })
    .await;
    let numbers = node.store.cache_use();
    assert_eq!((numbers.cached, numbers.failed_to_cache), (1, 0));
    assert_eq!(numbers.used, in_pages(3 << 20 >> 4));
}

#[tokio::test]
async fn a_disk_that_gives_nothing_is_examined_and_the_room_given_back() {
    let _alone = alone().await;
    let (node, faults) = {
        let faults = Faults::new(1);
        let given = Arc::clone(&faults);
        let node = node_with(BUDGET, |config| {
            config.faults = Some((config.volumes[0].path.clone(), given));
        });
        (node.await, faults)
    };
    node.put(1, 1001, 700).await;
    let broken = FaultRule::new(Effect::Errno(EIO)).on(&[hayloft_io::IoOp::Read]);
    faults.add(broken);
    node.cache(&[1]);
    until("it has failed", || node.failed() == 1).await;
    until("its room is free", || node.store.cache_use().used == 0).await;
    assert_eq!((node.cached(), locked()), (vec![], 0));
}

/// Two nodes of a process: one budget, of which each tells its part.
#[tokio::test]
async fn virtual_nodes_share_the_budget() {
    let _alone = alone().await;
    let page = in_pages(1);
    let shared = StoreShared::new(8 << 20).with_locked_memory(4 * page, 2);
    let mut nodes = Vec::new();
    for _ in 0..2 {
        let dir = tempfile::tempdir().expect("temporary directory");
        let (sender, events) = mpsc::channel(100);
        let config = StoreConfig {
            preallocate: false,
            ..config(dir.path(), 1)
        };
        let store = Store::open_sharing(config, sender, shared.clone(), None).await;
        let store = store.expect("opens");
        stores().push(store.clone());
        let added = store.add_pool(spec(), StartOption::Regular).await;
        added.expect("loads");
        nodes.push(Node {
            dir,
            volumes: 1,
            store,
            events,
        });
    }
    for node in &nodes {
        for id in 1..=3 {
            node.put(id, 1001, 700).await;
        }
    }
    nodes[0].cache_now(&[1, 2, 3]).await;
    let told = |node: &Node| {
        let now = node.store.cache_use();
        (now.used / page, now.capacity / page)
    };
    // Half a page each is free beside what is used.
    assert_eq!((told(&nodes[0]), told(&nodes[1])), ((3, 3), (0, 0)));
    nodes[1].cache(&[1, 2]);
    until("one fits", || nodes[1].cached().len() == 1).await;
    assert_eq!((nodes[1].failed(), locked()), (1, 4 * page));
    nodes[0].uncache(&[1, 2, 3]);
    assert_eq!((told(&nodes[0]), told(&nodes[1])), ((0, 1), (1, 2)));
    nodes[1].store.shutdown().await;
    nodes[0].store.shutdown().await;
    assert_eq!(locked(), 0);
}
