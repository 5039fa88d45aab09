//! Encoding and committing, and every moment in which a process may end.

use super::*;

use hayloft_io::IoOp;
use hayloft_io::decorators::{Effect, FaultRule};

/// Lengths around chunks, pieces of parity and strides of the encoder. The first two form a group.
const LENGTHS: [usize; 8] = [
    1_100_001, 1_048_577, 700_001, 524_288, 600_000, 65_537, 100, 1,
];

async fn put_all(node: &Node) -> u64 {
    for (id, len) in (1..).zip(LENGTHS) {
        put(node, id, len).await;
    }
    LENGTHS.iter().map(|len| *len as u64).sum()
}

async fn check_all(node: &Node) {
    for (id, len) in (1..).zip(LENGTHS) {
        check(node, id, len).await;
    }
}

#[tokio::test]
async fn every_replica_gets_parity_on_another_disk_and_keeps_it() {
    for (volumes, data, parity) in [(4, 3, 1), (4, 2, 1), (5, 3, 2)] {
        let shape = shape(data, parity);
        let node = start(volumes, shape).await;
        let all = put_all(&node).await;
        assert_eq!(status(&node).protected_bytes, 0);
        round(&node).await;
        let now = status(&node);
        assert_eq!(
            (now.protected_bytes, now.degraded_bytes, now.lost_bytes),
            (all, 0, 0)
        );
        round(&node).await;
        assert_eq!(
            (status(&node).unprotected_bytes, status(&node).groups),
            (0, now.groups)
        );
        check_files(&node, shape);
        for clean in [true, false] {
            let node = again(start_over(&node, shape).await, shape, clean).await;
            round(&node).await;
            let then = status(&node);
            assert_eq!(
                (then.protected_bytes, then.groups),
                (all, now.groups),
                "{shape}"
            );
            check_all(&node).await;
        }
    }
}

/// A copy of the node's directories in another place, with a node on them.
async fn start_over(node: &Node, shape: ParityShape) -> Node {
    let dir = tempfile::tempdir().expect("temporary directory");
    let copied = Command::new("cp")
        .arg("-a")
        .arg(node.dir.path().join("."))
        .arg(dir.path())
        .status()
        .expect("runs");
    assert!(copied.success());
    let config = protected(dir.path(), node.volumes, shape);
    Node::start(dir, node.volumes, config).await
}

#[tokio::test]
async fn a_process_that_ends_at_any_step_leaves_nothing_wrong() {
    let shape = shape(2, 1);
    for step in [
        Step::Claimed,
        Step::HalfWritten,
        Step::Written,
        Step::Synced,
        Step::FirstRecord,
        Step::Recorded,
    ] {
        let (node, faults) = start_faulty(4, shape).await;
        let all = put_all(&node).await;
        end_behind(&node, &faults, step).await;
        let copies = files(&node).into_iter();
        let copies = copies.filter(|(_, file)| matches!(file, GroupFile::Record(_)));
        let done = match step {
            Step::FirstRecord => 1,
            Step::Recorded => 2,
            _ => 0,
        };
        assert_eq!(copies.count(), done, "{step:?}");
        let node = again(node, shape, false).await;
        let found = status(&node).groups;
        let committed = matches!(step, Step::FirstRecord | Step::Recorded);
        assert_eq!(found, u64::from(committed), "{step:?}");
        check_all(&node).await;
        round(&node).await;
        round(&node).await;
        let now = status(&node);
        assert_eq!(
            (now.protected_bytes, now.unprotected_bytes),
            (all, 0),
            "{step:?}"
        );
        check_files(&node, shape);
        check_all(&node).await;
    }
}

#[tokio::test]
async fn a_group_that_goes_is_gone_whenever_the_process_ends() {
    let shape = shape(2, 1);
    for step in [Step::Unrecorded, Step::AllUnrecorded] {
        let (node, faults) = start_faulty(3, shape).await;
        for id in 1..5 {
            put(&node, id, 10_000).await;
        }
        round(&node).await;
        let blocks: Vec<Block> = (1..5).map(|id| Block::new(id, 1001, 0)).collect();
        node.store
            .invalidate(&pool(), &blocks)
            .await
            .expect("deletes");
        end_behind(&node, &faults, step).await;
        let node = again(node, shape, false).await;
        assert_eq!(
            reported(&node),
            [0_i64; 0],
            "what was deleted does not come back"
        );
        round(&node).await;
        round(&node).await;
        assert_eq!(
            (status(&node).groups, files(&node)),
            (0, vec![]),
            "{step:?}"
        );
    }
}

#[tokio::test]
async fn without_room_for_parity_replicas_are_as_good_as_without() {
    let shape = shape(2, 1);
    let dir = tempfile::tempdir().expect("temporary directory");
    let faults = Faults::new(1);
    let mut config = protected(dir.path(), 3, shape);
    config.faults = Some((dir.path().join("data2"), Arc::clone(&faults)));
    let node = Node::start(dir, 3, config).await;
    let in_parity = |path: &Path| path.components().any(|c| c.as_os_str() == PARITY_DIR);
    let ops = [
        IoOp::Write,
        IoOp::Open,
        IoOp::Replace,
        IoOp::Sync,
        IoOp::CreateDir,
    ];
    for (first, op) in (10..).step_by(10).zip(ops) {
        let rule = FaultRule::new(Effect::Errno(ENOSPC))
            .on(&[op])
            .at(in_parity);
        faults.add(rule);
        for id in first..first + 2 {
            put(&node, id, 10_000).await;
        }
        round(&node).await;
        check(&node, first, 10_000).await;
        check(&node, first + 1, 10_000).await;
        let now = status(&node);
        assert_eq!(now.lost_bytes + now.degraded_bytes, 0);
        check_files(&node, shape);
        faults.clear();
    }
    let parity = &node.parity;
    parity.forgive();
    round(&node).await;
    round(&node).await;
    let now = status(&node);
    assert_eq!((now.protected_bytes, now.unprotected_bytes), (100_000, 0));
}

#[tokio::test]
async fn a_full_first_volume_does_not_keep_the_status_from_operators() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let faults = Faults::new(1);
    let mut config = protected(dir.path(), 3, shape(2, 1));
    config.faults = Some((dir.path().join("data0"), Arc::clone(&faults)));
    let node = Node::start(dir, 3, config).await;
    round(&node).await;
    let full = FaultRule::new(Effect::Errno(ENOSPC)).on(&[IoOp::Replace]);
    let full = faults.add(full.at(|path| path.ends_with("status.json")));
    put(&node, 1, 10_000).await;
    put(&node, 2, 10_000).await;
    tokio::time::sleep(Duration::from_millis(2)).await;
    round(&node).await;
    assert!(faults.fired(full) > 0);
    let found = (0..3).filter_map(|volume| {
        let root = node.dir.path().join(format!("data{volume}"));
        let bytes = std::fs::read(ParityStatus::file(&root)).ok()?;
        Some(ParityStatus::parse(&bytes).expect("a status"))
    });
    let newest = found.max_by_key(|status| status.at_ms).expect("written");
    assert_eq!(newest.protected_bytes, 20_000, "{newest:?}");
}

#[tokio::test]
async fn a_shape_with_more_units_than_disks_is_refused() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let config = protected(dir.path(), 3, shape(3, 1));
    let (sender, _events) = mpsc::channel(10);
    let error = try_open(config, sender).await.expect_err("refused");
    assert_eq!(error.kind(), StoreErrorKind::Incompatible);
    let text = "hayloft.parity: parity 3+1 needs 4 disks and there are 3: lower K+M, or add \
        directories on other disks";
    assert_eq!(error.to_string(), text);
}
