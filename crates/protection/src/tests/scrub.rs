//! Scrubs: what they find, what they leave alone, and what does not wait for them.

use super::damage::{check_three, corrupt, three};
use super::steps::end_behind_a_scrubbed_group;
use super::*;

use hayloft_io::decorators::{Effect, FaultRule};
use hayloft_io::{IoClass, IoOp};

#[tokio::test]
async fn a_scrub_finds_and_mends_all_there_is() {
    let shape = shape(3, 1);
    let mut node = three(shape, 4).await;
    put(&node, 7, 40_000).await;
    put(&node, 8, 40_000).await;
    round(&node).await;
    node.store
        .invalidate(&pool(), &[block(7, 1001, 0).block])
        .await
        .expect("deletes");
    let of = |file: &GroupFile| matches!(file, GroupFile::Parity(..) | GroupFile::Record(_));
    let damaged: Vec<PathBuf> = files(&node)
        .into_iter()
        .filter(|(_, file)| of(file))
        .map(|(volume, file)| file.path(&node.dir.path().join(format!("data{volume}"))))
        .collect();
    let before: Vec<Vec<u8>> = damaged
        .iter()
        .map(|path| std::fs::read(path).expect("reads"))
        .collect();
    assert_eq!(damaged.len(), 6);
    // One at a time: of each group one unit may be wrong.
    for (path, bytes) in damaged.iter().zip(&before) {
        flip(path, bytes.len() / 2);
        let root = node.dir.path().join("data3");
        ParityRequest::Scrub.leave(&root).expect("asks");
        let asked = status(&node).done(ParityRequest::Scrub);
        tokio::time::sleep(Duration::from_millis(2)).await;
        round(&node).await;
        let said = std::fs::read(ParityStatus::file(&node.dir.path().join("data0")));
        let said = ParityStatus::parse(&said.expect("written")).expect("reads");
        assert!(said.done(ParityRequest::Scrub) > asked);
        let now = std::fs::read(path);
        let now = now.unwrap_or_else(|e| panic!("{}: {e}; {:?}", path.display(), files(&node)));
        // A record is of the next revision.
        let same = now == *bytes || path.extension().is_some_and(|e| e == "record");
        assert!(same, "{}", path.display());
        assert_eq!(status(&node).degraded_bytes, 0);
    }
    flip(&data_file(&node, 3), 100);
    ParityRequest::Scrub
        .leave(&node.dir.path().join("data0"))
        .expect("asks");
    round(&node).await;
    let told = events(&mut node).await;
    let fine = |e: &StoreEvent| {
        matches!(e, StoreEvent::Deleted { .. })
            || matches!(e, StoreEvent::Mended { block, .. } if block.block.id == 3)
    };
    assert!(told.iter().all(fine), "{told:?}");
    assert!(std::fs::read(data_file(&node, 3)).expect("reads") == content(3, 65_536));
    check_three(&node).await;
    check_files(&node, shape);
}

fn ask(node: &Node) {
    let root = node.dir.path().join("data0");
    ParityRequest::Scrub.leave(&root).expect("asks");
}

/// Damages all checksums in all records.
fn damage_sections(node: &Node) {
    for (volume, file) in files(node) {
        let path = file.path(&node.dir.path().join(format!("data{volume}")));
        if matches!(file, GroupFile::Record(_)) {
            let bytes = std::fs::read(&path).expect("reads");
            let (_, head) = hayloft_parity::GroupRecord::decode(&bytes).expect("a record");
            for at in (head..bytes.len()).step_by(10) {
                flip(&path, at);
            }
        }
    }
}

#[tokio::test]
async fn a_group_without_a_whole_record_is_no_reason_to_call_its_replicas_damaged() {
    let shape = shape(3, 1);
    let mut node = three(shape, 4).await;
    damage_sections(&node);
    ask(&node);
    round(&node).await;
    assert_eq!(corrupt(&events(&mut node).await), [0_i64; 0]);
    round(&node).await;
    round(&node).await;
    let now = status(&node);
    assert_eq!(
        (now.protected_bytes, now.degraded_bytes),
        (735_537, 0),
        "{now:?}"
    );
    check_files(&node, shape);
    kill_disk(&node, volume_of(&node, 2)).await;
    check_three(&node).await;
}

#[tokio::test]
async fn parity_that_no_record_can_be_written_for_is_made_for_new_groups() {
    let node = three(shape(3, 1), 5).await;
    let has_parity = |(volume, file): (usize, GroupFile)| {
        let parity = matches!(file, GroupFile::Parity(..));
        parity.then_some(volume)
    };
    let disk = files(&node).into_iter().find_map(has_parity);
    damage_sections(&node);
    kill_disk(&node, disk.expect("there is parity")).await;
    for _ in 0..3 {
        round(&node).await;
    }
    let now = status(&node);
    let left = (now.degraded_bytes, now.rebuild_remaining_bytes);
    assert_eq!((now.protected_bytes, left), (735_537, (0, 0)), "{now:?}");
    kill_disk(&node, volume_of(&node, 2)).await;
    check_three(&node).await;
}

#[tokio::test]
async fn a_replica_that_changes_beside_a_scrub_is_not_called_damaged() {
    let faults = Faults::new(1);
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut config = protected(dir.path(), 3, shape(2, 1));
    config.faults = Some((dir.path().join("data0"), Arc::clone(&faults)));
    let node = Node::start(dir, 3, config).await;
    put(&node, 1, 50_000).await;
    put(&node, 2, 60_000).await;
    round(&node).await;
    assert_eq!(volume_of(&node, 1), 0);
    // The scrub's look at the data file takes a moment; meanwhile the replica is cut.
    let data = |path: &Path| path.ends_with("blk_1");
    let slow = FaultRule::new(Effect::Delay(Duration::from_millis(600)));
    faults.add(slow.on(&[IoOp::Open]).in_class(IoClass::Scan).at(data));
    ask(&node);
    let mut node = {
        let node = Arc::new(node);
        let scrub = tokio::spawn({
            let node = Arc::clone(&node);
            async move { round(&node).await }
        });
        tokio::time::sleep(Duration::from_millis(200)).await;
        let old = block(1, 1001, 50_000);
        let begun = node.store.init_replica_recovery(&old, 1002).await;
        begun.expect("begins");
        let cut = node
            .store
            .update_replica_under_recovery(&old, 1002, 0, 20_000);
        cut.await.expect("cuts");
        scrub.await.expect("no panic");
        Arc::into_inner(node).expect("the only one")
    };
    assert_eq!(corrupt(&events(&mut node).await), [0_i64; 0]);
    check(&node, 1, 20_000).await;
}

#[tokio::test]
async fn a_dead_disk_does_not_wait_for_the_end_of_a_scrub() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut config = protected(dir.path(), 4, shape(2, 1));
    config.parity.turn = Duration::ZERO;
    let faults = Faults::new(1);
    config.faults = Some((dir.path().to_owned(), Arc::clone(&faults)));
    let node = Node::start(dir, 4, config).await;
    for id in 1..9 {
        put(&node, id, 50_000).await;
    }
    for _ in 0..8 {
        round(&node).await;
    }
    assert_eq!(status(&node).unprotected_bytes, 0);
    kill_disk(&node, 1).await;
    let before = status(&node).rebuild_remaining_bytes;
    assert!(before > 0);
    put(&node, 10, 50_000).await;
    ask(&node);
    end_behind_a_scrubbed_group(&node, &faults).await;
    assert_eq!(status(&node).rebuild_remaining_bytes, 0);
}

/// The same directories with a scan once in `period`, as fast as it can be.
async fn scanning(node: Node, shape: ParityShape, period: Duration) -> Node {
    node.store.shutdown().await;
    let mut config = protected(node.dir.path(), node.volumes, shape);
    let parity = &mut config.parity;
    parity.scan = ScanConfig {
        period,
        bytes_per_second: 1 << 40,
    };
    Node::start(node.dir, node.volumes, config).await
}

fn paths(node: &Node, of: fn(&GroupFile) -> bool) -> Vec<PathBuf> {
    let files = files(node).into_iter().filter(|(_, file)| of(file));
    let path = |(volume, file): (usize, GroupFile)| {
        file.path(&node.dir.path().join(format!("data{volume}")))
    };
    files.map(path).collect()
}

/// What lies still: parity, what is kept of a deleted replica, records.
#[tokio::test]
async fn the_scan_finds_damage_that_no_operator_asked_for() {
    let shape = shape(3, 1);
    let node = three(shape, 4).await;
    node.store
        .invalidate(&pool(), &[block(3, 1001, 0).block])
        .await
        .expect("deletes");
    round(&node).await;
    let node = scanning(node, shape, Duration::from_millis(1)).await;
    let parity = paths(&node, |file| matches!(file, GroupFile::Parity(..)));
    let mut all = parity.clone();
    all.extend(paths(&node, |file| matches!(file, GroupFile::Record(_))));
    // Last: the group may go with it.
    let kept = paths(&node, |file| matches!(file, GroupFile::Kept(..)));
    assert_eq!((parity.len(), kept.len()), (1, 1), "{all:?}");
    all.extend(kept);
    for path in all {
        let before = std::fs::read(&path).expect("reads");
        flip(&path, before.len() / 2);
        // Time has to pass before bytes are allowed.
        tokio::time::sleep(Duration::from_millis(5)).await;
        round(&node).await;
        round(&node).await;
        // A record is of the next revision, and what was kept is decoded or given up.
        let now = std::fs::read(&path);
        let same = now.is_ok_and(|now| now == before);
        assert!(same || !parity.contains(&path), "{}", path.display());
        assert_eq!(status(&node).degraded_bytes, 0, "{}", path.display());
        assert!(status(&node).scanned_at_ms > 0);
    }
    check_files(&node, shape);
    kill_disk(&node, volume_of(&node, 2)).await;
    for (id, len) in [(1, 70_001), (2, 600_000)] {
        check(&node, id, len).await;
    }
}

#[tokio::test]
async fn the_scan_waits_for_the_next_period() {
    let shape = shape(3, 1);
    let node = three(shape, 4).await;
    let parity = paths(&node, |file| matches!(file, GroupFile::Parity(..))).remove(0);
    let whole = std::fs::read(&parity).expect("reads");
    let node = scanning(node, shape, Duration::from_secs(1)).await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    round(&node).await;
    let ended = status(&node).scanned_at_ms;
    assert!(ended > 0);
    flip(&parity, 100);
    round(&node).await;
    assert!(std::fs::read(&parity).expect("reads") != whole, "too early");
    tokio::time::sleep(Duration::from_secs(1)).await;
    round(&node).await;
    assert!(std::fs::read(&parity).expect("reads") == whole);
    // The end of a pass is seen by the look for one more group.
    assert!(status(&node).scanned_at_ms > ended);
}

#[tokio::test]
async fn a_scan_takes_turns_with_rebuilds_and_any_period_is_taken() {
    let shape = shape(3, 1);
    let node = three(shape, 4).await;
    put(&node, 7, 40_000).await;
    put(&node, 8, 40_000).await;
    round(&node).await;
    let groups = status(&node).groups;
    assert!(groups > 1);
    node.store.shutdown().await;
    let mut config = protected(node.dir.path(), node.volumes, shape);
    let parity = &mut config.parity;
    parity.turn = Duration::ZERO;
    parity.scan = ScanConfig {
        period: Duration::MAX,
        bytes_per_second: 1 << 40,
    };
    let node = Node::start(node.dir, node.volumes, config).await;
    for _ in 0..groups {
        assert_eq!(status(&node).scanned_at_ms, 0);
        // Time has to pass before bytes are allowed.
        tokio::time::sleep(Duration::from_millis(5)).await;
        round(&node).await;
    }
    round(&node).await;
    assert!(status(&node).scanned_at_ms > 0);
}
