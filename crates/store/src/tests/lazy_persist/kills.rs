//! A kill at each step of a copy to disk and of an eviction, with memory that stays (the process
//! was killed) and memory that is empty (the machine was). What was persisted is found; nothing
//! comes twice.

use std::sync::Mutex;

use super::*;
use crate::lazy_persist::{Step, persist_one};

fn copy_tree(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("directory");
    for entry in std::fs::read_dir(from).expect("lists") {
        let entry = entry.expect("lists");
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_tree(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("copies");
        }
    }
}

/// The directories as they are now, of a process that is killed now.
fn as_it_is(from: &Path) -> TempDir {
    let dir = tempfile::tempdir().expect("temporary directory");
    copy_tree(from, dir.path());
    dir
}

/// Memory that was switched off, but for the volume's own files: the operator keeps those.
fn empty_memory(dir: &Path) {
    std::fs::remove_dir_all(dir.join("data1")).expect("removes");
}

/// Starts on these directories; where the replica is, which is whole if it is.
async fn found_after(dir: TempDir) -> (Node, Option<StorageType>) {
    let config = lazy_config(dir.path(), 2);
    let node = start_on(dir, 8, config).await;
    let storage = node.storage_of(1);
    if storage.is_some() {
        node.check(1, 1001, len()).await;
    }
    assert!(node.files(0, "lazypersist").is_empty());
    let (on_disk, in_memory) = (node.files(0, "finalized"), node.files(RAM, "finalized"));
    let all = [on_disk, in_memory].concat();
    let expected = match storage {
        Some(_) => pair(1, 1001).to_vec(),
        None => Vec::new(),
    };
    assert_eq!(all, expected, "of {storage:?}");
    (node, storage)
}

#[tokio::test]
async fn a_kill_while_a_replica_is_copied() {
    let node = node(8).await;
    node.put_lazy(1).await;
    let steps: Mutex<Vec<(Step, TempDir, TempDir)>> = Mutex::default();
    let look = |step| {
        let at = || as_it_is(node.dir.path());
        hayloft_io::locks::lock(&steps).push((step, at(), at()));
    };
    let pool = node.store.0.pool(&pool()).expect("loaded");
    let persisted = persist_one(&node.store.0, &pool, 1, &look).await;
    assert!(persisted.expect("copies"));
    let steps = steps.into_inner().expect("whole");
    let seen: Vec<Step> = steps.iter().map(|(step, ..)| *step).collect();
    assert_eq!(seen, [Step::Copied, Step::Named]);
    for (step, killed, switched_off) in steps {
        let on_disk = step == Step::Named;
        let expected = match on_disk {
            true => StorageType::Disk,
            false => StorageType::RamDisk,
        };
        let (node, storage) = found_after(killed).await;
        assert_eq!(storage, Some(expected), "{step:?}");
        // What an earlier process left in memory is copied like the rest, and has its room.
        node.persist().await;
        assert_eq!(node.use_now().persisted, u64::from(!on_disk));
        let used = if on_disk { 0 } else { budget(1) };
        assert_eq!(node.store.cache_use().used, used);
        empty_memory(switched_off.path());
        let (_node, storage) = found_after(switched_off).await;
        assert_eq!(storage, on_disk.then_some(StorageType::Disk), "{step:?}");
    }
}

/// The steps of `file_pair::move_pair`, then the end of the replica in memory.
#[tokio::test]
async fn a_kill_while_a_replica_leaves_memory() {
    for steps in 0..=4 {
        let node = node(8).await;
        node.put_lazy(1).await;
        node.persist().await;
        node.store.crash();
        let [data, meta] = pair(1, 1001);
        let below = "subdir0/subdir0";
        let from = node.current(0).join("lazypersist").join(below);
        let to = node.current(0).join("finalized").join(below);
        std::fs::create_dir_all(&to).expect("directory");
        if steps > 0 {
            std::fs::hard_link(from.join(&meta), to.join(&meta)).expect("links");
        }
        if steps > 1 {
            std::fs::rename(from.join(&data), to.join(&data)).expect("renames");
        }
        if steps > 2 {
            std::fs::remove_file(from.join(&meta)).expect("removes");
        }
        if steps > 3 {
            let memory = node.current(RAM).join("finalized").join(below);
            std::fs::remove_file(memory.join(&data)).expect("removes");
        }
        let switched_off = as_it_is(node.dir.path());
        let (_node, storage) = found_after(node.dir).await;
        assert_eq!(storage, Some(StorageType::Disk), "after {steps} steps");
        empty_memory(switched_off.path());
        let (_node, storage) = found_after(switched_off).await;
        assert_eq!(
            storage,
            Some(StorageType::Disk),
            "after {steps} steps, no memory"
        );
    }
}

/// A delete is durable with both copies, whatever is killed after it.
#[tokio::test]
async fn a_kill_after_a_delete_brings_nothing_back() {
    let node = node(8).await;
    node.put_lazy(1).await;
    node.persist().await;
    node.store.stop_lanes();
    let gone = block(1, 1001, 0).block;
    let deleted = node.store.invalidate(&pool(), &[gone]).await;
    deleted.expect("deletes");
    node.store.crash();
    let (_node, storage) = found_after(node.dir).await;
    assert_eq!(storage, None);
}

/// Files that were copied and are in `finalized` already, and a stop in order: Apache's node finds
/// all without a list of replicas that lacks some.
#[tokio::test]
async fn a_stop_in_order_leaves_copies_to_the_next_start() {
    let node = node(8).await;
    node.put_lazy(1).await;
    node.persist().await;
    node.store.shutdown().await;
    assert!(!node.current(0).join("replicas").exists());
    assert!(node.current(RAM).join("replicas").exists());
    let twice = node.current(0).join("finalized/subdir0/subdir0");
    copy_tree(&node.current(0).join("lazypersist/subdir0/subdir0"), &twice);
    empty_memory(node.dir.path());
    let (_node, storage) = found_after(node.dir).await;
    assert_eq!(storage, Some(StorageType::Disk));
}
