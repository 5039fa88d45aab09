//! What is written of a record when a member leaves, and records that a later version wrote.

use super::*;

use std::os::unix::fs::MetadataExt as _;

fn of(node: &Node, wanted: fn(&GroupFile) -> bool) -> Vec<PathBuf> {
    let found = files(node).into_iter().filter(|(_, file)| wanted(file));
    let path = |(volume, file): (usize, GroupFile)| {
        file.path(&node.dir.path().join(format!("data{volume}")))
    };
    found.map(path).collect()
}

fn records(node: &Node) -> Vec<PathBuf> {
    of(node, |file| matches!(file, GroupFile::Record(_)))
}

fn heads(node: &Node) -> Vec<PathBuf> {
    of(node, |file| matches!(file, GroupFile::Head(_)))
}

/// A group of three, of which the first was deleted; and the inodes of its records before.
async fn two_of_three(shape: ParityShape) -> (Node, Vec<u64>) {
    leave_first(start(4, shape).await).await
}

async fn leave_first(node: Node) -> (Node, Vec<u64>) {
    for id in 1..4 {
        put(&node, id, 400_000).await;
    }
    round(&node).await;
    let inodes = inodes(&records(&node));
    let gone = [block(1, 1001, 0).block];
    node.store
        .invalidate(&pool(), &gone)
        .await
        .expect("deletes");
    round(&node).await;
    (node, inodes)
}

fn inodes(paths: &[PathBuf]) -> Vec<u64> {
    let inode = |path: &PathBuf| std::fs::metadata(path).expect("there").ino();
    paths.iter().map(inode).collect()
}

fn dropped(node: &Node) -> Vec<i64> {
    let parity = &node.parity;
    let table = parity.table();
    let members = table.iter().flat_map(|group| &group.record.members);
    let dropped = members.filter(|member| member.dropped);
    dropped.map(|member| member.block_id).collect()
}

#[tokio::test]
async fn a_member_that_leaves_costs_a_small_file_and_not_the_record() {
    let shape = shape(3, 1);
    let (node, before) = two_of_three(shape).await;
    assert_eq!(
        inodes(&records(&node)),
        before,
        "no record is written again"
    );
    assert_eq!(heads(&node).len(), 2);
    let bytes = |path: &PathBuf| std::fs::metadata(path).expect("there").len();
    let (small, large) = (bytes(&heads(&node)[0]), bytes(&records(&node)[0]));
    assert!(small * 8 < large, "{small} of {large} bytes");
    // Without the disk of what was deleted only the head says that it is.
    let at = {
        let parity = &node.parity;
        let table = parity.table();
        let group = table.iter().next().expect("one");
        let member = group.record.members.iter().find(|member| member.dropped);
        PathBuf::from(&*member.expect("one").root)
    };
    node.store.crash();
    let away = node.dir.path().join("pulled");
    std::fs::rename(&at, &away).expect("renames");
    std::fs::write(&at, "no directory").expect("writes");
    let config = protected(node.dir.path(), 4, shape);
    let node = Node::start(node.dir, 4, config).await;
    assert_eq!((reported(&node), dropped(&node)), (vec![2, 3], vec![1]));
    for id in 2..4 {
        check(&node, id, 400_000).await;
    }
}

#[tokio::test]
async fn a_damaged_head_or_one_without_its_record_counts_for_nothing() {
    let shape = shape(3, 1);
    for what in ["one head", "a record", "both heads"] {
        let (node, _) = two_of_three(shape).await;
        let (heads, records) = (heads(&node), records(&node));
        match what {
            "one head" => flip(&heads[0], 30),
            "a record" => std::fs::remove_file(&records[0]).expect("there"),
            _ => heads.iter().for_each(|head| flip(head, 30)),
        }
        let node = again(node, shape, true).await;
        assert_eq!(
            (reported(&node), dropped(&node)),
            (vec![2, 3], vec![1]),
            "{what}"
        );
        for _ in 0..2 {
            round(&node).await;
        }
        check_files(&node, shape);
        let node = again(node, shape, true).await;
        assert_eq!(dropped(&node), [1], "{what}");
        kill_disk(&node, volume_of(&node, 2)).await;
        for id in 2..4 {
            check(&node, id, 400_000).await;
        }
        for _ in 0..3 {
            round(&node).await;
        }
        assert_eq!(status(&node).protected_bytes, 800_000, "{what}");
    }
}

#[tokio::test]
async fn a_group_leaves_no_head_behind() {
    for step in [Step::Unrecorded, Step::AllUnrecorded] {
        let shape = shape(3, 1);
        let (node, faults) = start_faulty(4, shape).await;
        let (node, _) = leave_first(node).await;
        let gone = [2, 3].map(|id| block(id, 1001, 0).block);
        node.store
            .invalidate(&pool(), &gone)
            .await
            .expect("deletes");
        end_behind(&node, &faults, step).await;
        let node = again(node, shape, false).await;
        assert_eq!(reported(&node), [0_i64; 0], "{step:?}");
        for _ in 0..2 {
            round(&node).await;
        }
        assert_eq!(files(&node), [], "{step:?}");
    }
}

#[tokio::test]
async fn records_that_are_all_damaged_go_with_their_group() {
    let shape = shape(3, 1);
    let (node, _) = two_of_three(shape).await;
    for record in records(&node) {
        flip(&record, 20);
    }
    let node = again(node, shape, true).await;
    for _ in 0..2 {
        round(&node).await;
    }
    let now = status(&node);
    assert_eq!((now.protected_bytes, now.groups), (800_000, 1));
    check_files(&node, shape);
    assert!(heads(&node).is_empty());
}

/// Sets the version of records, after which their heads have no right checksum.
fn set_version(records: &[PathBuf], version: u16) {
    for path in records {
        let mut bytes = std::fs::read(path).expect("reads");
        bytes[8..10].copy_from_slice(&version.to_be_bytes());
        std::fs::write(path, bytes).expect("writes");
    }
}

#[tokio::test]
async fn what_a_later_version_wrote_waits_for_it() {
    let shape = shape(3, 1);
    let node = start(4, shape).await;
    for id in 1..4 {
        put(&node, id, 400_000).await;
    }
    round(&node).await;
    let (theirs, of_theirs) = (files(&node), records(&node));
    assert!(!of_theirs.is_empty());
    set_version(&of_theirs, 2);
    // A step back: the earlier version encodes anew, and looks for files that it may remove.
    let node = again(node, shape, true).await;
    assert_eq!(status(&node).groups, 0);
    for _ in 0..3 {
        round(&node).await;
    }
    assert_eq!(status(&node).groups, 1, "it protects what it finds");
    let now = files(&node);
    assert!(theirs.iter().all(|file| now.contains(file)), "{now:?}");
    set_version(&of_theirs, 1);
    let node = again(node, shape, true).await;
    assert_eq!(status(&node).groups, 2);
    for id in 1..4 {
        check(&node, id, 400_000).await;
    }
}
