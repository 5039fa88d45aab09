//! A kill at each step of a move by a copy. The directories are left by hand as the code leaves
//! them, in its own order; then a start finds the replica once.

use std::fs::{copy, create_dir_all, hard_link, read, remove_dir, remove_file, rename, write};

use super::*;

const LEN: usize = 300_000;
const BLOCK: i64 = 1;
const DATA: &str = "blk_1";
const META: &str = "blk_1_1001.meta";

/// How far the move had come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// `bring_files::create`: checksums, and no data.
    Begun,
    /// `bring_files::copy_window`: half of the data.
    Half,
    /// The end of `bring_files::copy_verified`: a whole copy that has no name yet.
    Whole,
    /// `file_pair::move_pair`: `link_meta`.
    MetaLinked,
    /// `file_pair::move_pair`: the rename of the data. The replica is on both volumes.
    DataRenamed,
    /// `file_pair::move_pair`: the meta file's old name is gone.
    Named,
    /// The end of `file_pair::settle_copy`: `move_replica::copy_and_switch` switches now.
    Settled,
    /// `delete::put_aside`: the data of the source.
    DataAside,
    /// `delete::put_aside`: its meta file, too.
    Aside,
}

const STEPS: [Step; 9] = [
    Step::Begun,
    Step::Half,
    Step::Whole,
    Step::MetaLinked,
    Step::DataRenamed,
    Step::Named,
    Step::Settled,
    Step::DataAside,
    Step::Aside,
];

fn pool_on(node: &Node, volume: usize) -> PathBuf {
    let current = node.dir.path().join(format!("data{volume}/current"));
    current.join(pool().as_str())
}

/// Leaves what a process that moves the replica has on both volumes when it is killed.
fn leave(node: &Node, (from, to): (usize, usize), step: Step) {
    let finalized = "current/finalized/subdir0/subdir0";
    let (source, aside) = (
        pool_on(node, from).join(finalized),
        pool_on(node, from).join("tmp/deleting"),
    );
    let (target, scratch) = (
        pool_on(node, to).join(finalized),
        pool_on(node, to).join("tmp/move-0"),
    );
    create_dir_all(&scratch).expect("directory");
    copy(source.join(META), scratch.join(META)).expect("copies");
    write(scratch.join(DATA), "").expect("writes");
    let data = read(source.join(DATA)).expect("reads");
    let copied = match step {
        Step::Begun => 0,
        Step::Half => LEN / 2,
        _ => LEN,
    };
    write(scratch.join(DATA), &data[..copied]).expect("writes");
    if step >= Step::MetaLinked {
        create_dir_all(&target).expect("directory");
        hard_link(scratch.join(META), target.join(META)).expect("links");
    }
    if step >= Step::DataRenamed {
        rename(scratch.join(DATA), target.join(DATA)).expect("renames");
    }
    if step >= Step::Named {
        remove_file(scratch.join(META)).expect("removes");
    }
    if step >= Step::Settled {
        remove_dir(&scratch).expect("removes");
    }
    if step >= Step::DataAside {
        rename(source.join(DATA), aside.join("blk_1.0")).expect("renames");
    }
    if step >= Step::Aside {
        let meta = aside.join(format!("{META}.0"));
        rename(source.join(META), meta).expect("renames");
    }
}

/// All files of blocks below the directories of the pool, with their volumes.
fn files(node: &Node) -> Vec<(usize, PathBuf)> {
    fn walk(volume: usize, root: &Path, dir: &Path, found: &mut Vec<(usize, PathBuf)>) {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = entry.path();
            let below = path.strip_prefix(root).expect("below").to_owned();
            if path.is_dir() {
                walk(volume, root, &path, found);
                // A copy's directory is to go, too.
                if below.starts_with("tmp/move-0") {
                    found.push((volume, below));
                }
            } else if entry.file_name().as_encoded_bytes().starts_with(b"blk_") {
                found.push((volume, below));
            }
        }
    }
    let mut found = Vec::new();
    for volume in 0..node.volumes {
        let root = pool_on(node, volume);
        walk(volume, &root, &root, &mut found);
    }
    found.sort();
    found
}

/// The replica is there once, in the map, in reports, on the disk and in what is counted.
async fn is_there_once(node: &Node, on: Option<usize>, when: &str) {
    node.check(BLOCK, 1001, LEN).await;
    assert_eq!(node.store.replica_count(), 1, "{when}");
    let mut reported = Vec::new();
    for (at, (_, replicas)) in node.store.block_report(&pool()).iter().enumerate() {
        let lengths = replicas.iter().map(|replica| replica.block.num_bytes);
        reported.extend(lengths.map(|len| (at, len)));
    }
    let [(volume, len)] = reported[..] else {
        panic!("{when}: {reported:?}");
    };
    assert_eq!(len, LEN as u64, "{when}");
    assert!(on.is_none_or(|on| on == volume), "{when}: on {volume}");
    let wanted = [DATA, META].map(|name| {
        let dir = Path::new("current/finalized/subdir0/subdir0");
        (volume, dir.join(name))
    });
    // What is in the way goes in the background.
    let began = std::time::Instant::now();
    while files(node) != wanted {
        let left = files(node);
        assert!(
            began.elapsed() < Duration::from_secs(10),
            "{when}: {left:?}"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let meta = crc32c().meta_len(LEN as u64);
    let used = || -> Vec<u64> {
        let reports = node.store.storage_reports(&pool());
        reports.iter().map(|report| report.dfs_used).collect()
    };
    let counted = (0..2).map(|at| u64::from(at == volume) * (LEN as u64 + meta));
    let counted: Vec<u64> = counted.collect();
    while used() != counted {
        let now = used();
        assert!(began.elapsed() < Duration::from_secs(10), "{when}: {now:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_kill_at_any_step_of_a_move_leaves_the_replica_once() {
    for at in [0, 1] {
        for step in STEPS {
            let node = Node::with_volumes(2).await;
            let ids = [0, 1].map(|n| node.store.0.volumes()[n].info.id.to_string());
            node.put(BLOCK, 1001, LEN).await;
            let first = node.store.replica(&pool(), BLOCK).expect("is here");
            let from = usize::from(*first.storage.id != *ids[0]);
            if from != at {
                let there = block(BLOCK, 1001, 0);
                let moved = node.store.move_between(&there, &ids[from], &ids[at]);
                moved.await.expect("moves");
            }
            is_there_once(&node, Some(at), "before").await;
            node.store.crash();
            leave(&node, (at, 1 - at), step);
            let when = format!("from {at}, {step:?}");
            let node = node.kill_and_start().await;
            let on = match step {
                Step::Begun | Step::Half | Step::Whole | Step::MetaLinked => Some(at),
                Step::DataRenamed | Step::Named | Step::Settled => None,
                Step::DataAside | Step::Aside => Some(1 - at),
            };
            is_there_once(&node, on, &when).await;
            // Nothing of the other copy comes back.
            let node = node.kill_and_start().await;
            is_there_once(&node, on, &format!("{when}, once more")).await;
        }
    }
}
