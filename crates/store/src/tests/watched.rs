//! Replicas whose files other processes have.

use std::os::unix::fs::FileExt as _;
use std::sync::atomic::Ordering;

use hayloft_io::decorators::{Effect, FaultRule};
use hayloft_io::{SharedBits, SharedMemory};
use hayloft_wire::ids::StorageType;

use super::*;

const VALID: u64 = 1 << 63;

/// Bits that say that a replica is as it was.
fn valid() -> SharedBits {
    let (memory, _fd) = SharedMemory::new("test", 8192).expect("memory");
    let memory = Arc::new(memory);
    memory.words()[0].store(u64::MAX, Ordering::SeqCst);
    SharedBits::new(&memory, 0, VALID).expect("is there")
}

fn watch(node: &Node, id: i64, bits: &SharedBits) -> ReplicaWatch {
    let marks = ReplicaMarks {
        valid: bits.clone(),
        anchorable: bits.beside(1 << 62),
        anchors: bits.beside((1 << 31) - 1),
    };
    let watched = node.store.watch_replica(&block(id, 1001, 0), marks);
    watched.expect("loaded")
}

fn watches(node: &Node) -> usize {
    let pool = node.store.0.pool(&pool()).expect("loaded");
    pool.map.watched().len()
}

async fn two_types() -> Node {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut config = config(dir.path(), 2);
    config.volumes[1].storage_type = StorageType::Archive;
    Node::start(dir, 2, config).await
}

#[tokio::test]
async fn every_change_of_a_replica_is_told_and_no_other() {
    let node = two_types().await;
    for id in 1..=5 {
        node.put(id, 1001, 700).await;
    }
    let bits: Vec<SharedBits> = (1..=5).map(|_| valid()).collect();
    let of: Vec<ReplicaWatch> = (1..=5)
        .zip(&bits)
        .map(|(id, b)| watch(&node, id, b))
        .collect();
    let is_valid = || bits.iter().map(SharedBits::any).collect::<Vec<bool>>();
    node.check(1, 1001, 700).await;
    assert_eq!(is_valid(), [true; 5], "a read changes nothing");

    let gone = block(1, 1001, 0).block;
    let deleted = node.store.invalidate(&pool(), &[gone]).await;
    deleted.expect("deletes");
    assert_eq!(is_valid(), [false, true, true, true, true]);

    let appended = node.store.append(&block(2, 1001, 700), 1002, 700).await;
    let _writer = appended.expect("reopens");
    assert_eq!(is_valid(), [false, false, true, true, true]);

    let to = StorageType::Archive;
    let moved = node.store.move_block(&block(3, 1001, 0), to, None).await;
    moved.expect("moves");
    assert_eq!(is_valid(), [false, false, false, true, true]);

    drop(of);
    assert_eq!(watches(&node), 0);
    let gone = block(4, 1001, 0).block;
    let deleted = node.store.invalidate(&pool(), &[gone]).await;
    deleted.expect("deletes");
    assert!(bits[3].any(), "no longer watched");
}

#[tokio::test]
async fn a_volume_that_leaves_and_a_pool_that_goes_tell_it_of_all() {
    let (node, faults) = Node::faulty(2).await;
    let mut bits = Vec::new();
    let mut of = Vec::new();
    for id in 1..=4 {
        node.put(id, 1001, 700).await;
        bits.push(valid());
        of.push(watch(&node, id, &bits[bits.len() - 1]));
    }
    let pool_of = node.store.0.pool(&pool()).expect("loaded");
    let on_first = |id| pool_of.map.get(id).is_some_and(|slot| slot.volume() == 0);
    let first: Vec<bool> = (1..=4).map(on_first).collect();
    assert!(first.contains(&true) && first.contains(&false));
    faults.add(FaultRule::new(Effect::Errno(5)));
    node.store.check_volumes().await;
    for (bits, first) in bits.iter().zip(&first) {
        assert_eq!(bits.any(), !first);
    }
    node.store.forget_pool(&pool()).await;
    assert!(!bits.iter().any(SharedBits::any));
    drop(of);
}

#[tokio::test]
async fn files_are_opened_anew_where_they_are_plain_and_the_replica_complete() {
    let node = two_types().await;
    node.put(1, 1001, 700).await;
    let opened = node.store.open_plain_files(&block(1, 1001, 0)).await;
    let files = opened.expect("is there").expect("has files");
    let mut data = vec![0; 700];
    files.data.read_exact_at(&mut data, 0).expect("reads");
    assert_eq!(data, bytes(0, 700));
    assert!(files.meta.metadata().expect("open").len() > 7);
    for file in [&files.data, &files.meta] {
        assert!(
            file.write_all_at(b"x", 0).is_err(),
            "for nothing but reading"
        );
    }
    let open = node.store.append(&block(1, 1001, 700), 1002, 700).await;
    let _writer = open.expect("reopens");
    let opened = node.store.open_plain_files(&block(1, 1001, 0)).await;
    assert!(
        opened.expect("can be read").is_none(),
        "it is being written"
    );
    let later = node.store.open_plain_files(&block(1, 1003, 0)).await;
    let kind = Node::error_of(later);
    assert_eq!(kind, StoreErrorKind::UnexpectedGenerationStamp);
    let unknown = node.store.open_plain_files(&block(9, 1001, 0)).await;
    assert_eq!(Node::error_of(unknown), StoreErrorKind::NotFound);
}

/// A disk that gives no answer ends no opening: it is waited for until its volume is given up.
#[tokio::test]
async fn an_opening_ends_with_its_volume() {
    for plain in [true, false] {
        let (node, faults) = Node::faulty(1).await;
        node.put(1, 1001, 700).await;
        let hour = Duration::from_secs(3600);
        let rule = FaultRule::new(Effect::Stall(hour)).on(&[hayloft_io::IoOp::Open]);
        let rule = faults.add(rule);
        let at = block(1, 1001, 0);
        let opening = async {
            match plain {
                true => node.store.open_plain_files(&at).await.map(drop),
                false => node.store.open_reader(&at).await.map(drop),
            }
        };
        let failure = async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            node.store.0.volumes()[0].set_failed();
        };
        let both = async { tokio::join!(opening, failure) };
        let ended = tokio::time::timeout(Duration::from_secs(10), both).await;
        let (opened, ()) = ended.expect("in time");
        assert_eq!(Node::error_of(opened), StoreErrorKind::VolumeFailed);
        assert!(faults.fired(rule) > 0, "it hung");
        node.store.crash();
    }
}
