//! Records that outlive their groups: a volume refuses to let them go.

use super::refuses::{EACCES, faulty, in_groups, put_some};
use super::*;

use hayloft_io::IoOp;
use hayloft_io::decorators::{Effect, FaultRule};
use hayloft_parity::{GroupId, MemberRecord};

/// How many records of groups lie on a volume.
fn records_on(node: &Node, disk: usize) -> usize {
    let dir = node.dir.path().join(format!("data{disk}")).join(PARITY_DIR);
    let names = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let names = names.map(|entry| entry.file_name());
    names
        .filter(|name| name.to_string_lossy().ends_with(".record"))
        .count()
}

/// What a test looks for among groups.
struct Found {
    group: GroupId,
    /// A disk with a member of the group, and no copy of its record.
    disk: PathBuf,
    /// The node has the blocks from 1 to before this one.
    blocks: i64,
}

/// Encodes blocks until a group has its parity on the first disk, and so a copy of its record.
async fn with_copy_on_first(node: &Node) -> Found {
    for blocks in (1..).step_by(12).take(20) {
        put_some(node, blocks..blocks + 12).await;
        round(node).await;
        if let Some((group, disk)) = find(node) {
            let blocks = blocks + 12;
            return Found {
                group,
                disk,
                blocks,
            };
        }
    }
    panic!("no such group among many");
}

fn find(node: &Node) -> Option<(GroupId, PathBuf)> {
    let volumes = node.store.state().volumes();
    let first = volumes.iter().find(|v| v.root.ends_with("data0"));
    let first = &first.expect("there").info.id;
    let table = node.parity.table();
    let mut groups = table.iter().map(|group| Arc::clone(&group.record));
    let record = groups.find(|record| record.parity.iter().any(|unit| unit.storage == *first))?;
    let elsewhere = |m: &&MemberRecord| !record.copies.contains(&m.storage);
    let member = record.members.iter().find(elsewhere);
    let member = member.expect("a copy on all three");
    Some((record.id, PathBuf::from(&*member.root)))
}

/// Deletes all blocks, so that all groups are dissolved. The first volume lets nothing of them go.
async fn outlive(node: &Node, faults: &Faults, blocks: i64) {
    let ops = [IoOp::Unlink, IoOp::Write, IoOp::Replace];
    faults.add(FaultRule::new(Effect::Errno(EACCES)).on(&ops).at(in_groups));
    let all: Vec<Block> = (1..blocks).map(|id| block(id, 1001, 0).block).collect();
    let deleted = node.store.invalidate(&pool(), &all).await;
    deleted.expect("deletes");
    for _ in 0..3 {
        round(node).await;
    }
    assert_eq!(status(node).groups, 0);
    assert!(records_on(node, 0) > 0, "none outlived its group");
}

/// Starts the node again without a disk, which goes to `kept`.
async fn start_without(node: Node, shape: ParityShape, disk: &Path, kept: &Path) -> Node {
    node.store.shutdown().await;
    std::fs::rename(disk, kept).expect("taken out");
    std::fs::write(disk, "no directory").expect("written");
    let mut config = protected(node.dir.path(), 4, shape);
    config.failed_volumes_tolerated = 1;
    Node::start(node.dir, 4, config).await
}

/// After a start with all disks, a round leaves nothing of the groups.
async fn expect_all_gone(dir: tempfile::TempDir) {
    let config = protected(dir.path(), 4, shape(2, 1));
    let node = Node::start(dir, 4, config).await;
    assert!(status(&node).groups > 0, "nothing to forget");
    round(&node).await;
    assert_eq!(records_on(&node, 0), 0);
    let now = status(&node);
    assert_eq!((now.groups, now.lost_bytes), (0, 0), "{now:?}");
}

/// Two of its four units are gone from disks that are there, so that the disk that is away brings
/// nothing back.
#[tokio::test]
async fn a_record_that_outlived_its_group_goes_at_once_where_too_much_is_gone() {
    let (node, faults) = faulty(shape(3, 1)).await;
    let found = with_copy_on_first(&node).await;
    outlive(&node, &faults, found.blocks).await;
    let kept = node.dir.path().join("kept");
    let node = start_without(node, shape(3, 1), &found.disk, &kept).await;
    let group = found.group;
    assert!(
        node.parity.table().get(group).is_some(),
        "nothing to forget"
    );
    round(&node).await;
    assert!(node.parity.table().get(group).is_none());
}

/// The first disk has its parity still, and the disk of a member is away: it is not known. What
/// tells later is that a copy of the record is missing: it stays so.
#[tokio::test]
async fn a_record_that_may_have_outlived_its_group_is_not_made_whole_again() {
    let (node, faults) = faulty(shape(2, 1)).await;
    let found = with_copy_on_first(&node).await;
    outlive(&node, &faults, found.blocks).await;
    let kept = node.dir.path().join("kept");
    let node = start_without(node, shape(2, 1), &found.disk, &kept).await;
    for _ in 0..2 {
        round(&node).await;
    }
    {
        let table = node.parity.table();
        let group = table.get(found.group).expect("not known");
        assert!(group.may_have_been_dissolved() && group.leftover.is_none());
    }
    let elsewhere: usize = (1..4).map(|disk| records_on(&node, disk)).sum();
    assert_eq!(elsewhere, 0);
    node.store.shutdown().await;
    std::fs::remove_file(&found.disk).expect("removed");
    std::fs::rename(&kept, &found.disk).expect("back");
    expect_all_gone(node.dir).await;
}

/// It lies where it could not be removed, and the disk of a member is exchanged.
#[tokio::test]
async fn a_record_that_outlived_its_group_counts_nothing_as_lost() {
    let (node, faults) = faulty(shape(2, 1)).await;
    let found = with_copy_on_first(&node).await;
    outlive(&node, &faults, found.blocks).await;
    let exchanged = found.disk;
    node.store.shutdown().await;
    std::fs::remove_dir_all(&exchanged).expect("removes");
    std::fs::create_dir(&exchanged).expect("made");
    let now = protected(node.dir.path(), 4, shape(2, 1));
    let node = Node::start(node.dir, 4, now).await;
    let before = status(&node);
    // Where the disk of the other copy was exchanged nothing tells that it was removed there.
    let unknown = node.parity.table().iter().filter(|g| !g.torn).count();
    assert!(
        before.groups > unknown as u64,
        "nothing to forget: {before:?}"
    );
    round(&node).await;
    let now = status(&node);
    assert!(now.groups <= unknown as u64, "{now:?}");
    assert!(now.lost_bytes < before.lost_bytes, "{now:?}");
    // Another disk dies. What did not count goes on not to.
    let another = (1..4).find(|n| !exchanged.ends_with(format!("data{n}")));
    kill_disk(&node, another.expect("one of three")).await;
    for _ in 0..2 {
        round(&node).await;
    }
    let later = status(&node);
    assert!(later.lost_bytes <= now.lost_bytes, "{now:?} {later:?}");
}
