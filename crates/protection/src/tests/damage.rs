//! Flipped bytes and missing files: mended before they are told, if the group can.

use super::*;

use hayloft_io::IoOp;
use hayloft_io::decorators::{Effect, FaultRule};

use hayloft_store::inside::Slot;

/// What a check that finds damage tells.
async fn found_damaged(node: &Node, id: i64) {
    let replica = node.store.replica(&pool(), id).expect("there");
    let event = StoreEvent::Corrupt {
        block: replica.block,
        storage: replica.storage,
    };
    node.store.state().send_event(event).await;
}

/// Three protected blocks of three different lengths.
pub(super) async fn three(shape: ParityShape, volumes: usize) -> Node {
    let node = start(volumes, shape).await;
    for (id, len) in [(1, 70_001), (2, 600_000), (3, 65_536)] {
        put(&node, id, len).await;
    }
    round(&node).await;
    assert_eq!(status(&node).protected_bytes, 735_537);
    node
}

pub(super) async fn check_three(node: &Node) {
    for (id, len) in [(1, 70_001), (2, 600_000), (3, 65_536)] {
        check(node, id, len).await;
    }
}

pub(super) fn corrupt(events: &[StoreEvent]) -> Vec<i64> {
    let ids = events.iter().filter_map(|event| match event {
        StoreEvent::Corrupt { block, .. } => Some(block.block.id),
        _ => None,
    });
    ids.collect()
}

/// Ids of replicas that were mended, at least one; nothing else was told.
async fn mended(node: &mut Node) -> Vec<i64> {
    let limit = Duration::from_secs(20);
    let first = tokio::time::timeout(limit, node.events.recv()).await;
    let first = first.expect("in time").expect("open");
    let id = |event| match event {
        StoreEvent::Mended { block, .. } => block.block.id,
        other => panic!("{other:?}"),
    };
    let more = events(node).await;
    std::iter::once(first).chain(more).map(id).collect()
}

/// Whether another process may read a block by itself.
async fn is_plain(node: &Node, id: i64) -> bool {
    let replica = node.store.replica(&pool(), id).expect("there");
    let files = node.store.open_plain_files(&replica.block).await;
    files.expect("can be read").is_some()
}

#[tokio::test]
async fn what_parity_mends_is_read_by_the_node_alone() {
    let node = start(4, shape(3, 1)).await;
    put(&node, 1, 70_001).await;
    assert!(is_plain(&node, 1).await);
    put(&node, 2, 600_000).await;
    put(&node, 3, 65_536).await;
    round(&node).await;
    assert!(!is_plain(&node, 1).await);
}

/// What a sender does that finds bytes which differ from their checksums.
#[tokio::test]
async fn a_reader_gets_what_should_be_there() {
    let mut node = three(shape(3, 1), 4).await;
    let data = data_file(&node, 2);
    let meta = data.with_file_name("blk_2_1001.meta");
    let last = 600_000 / 512 * 512;
    for (path, at, offset, len) in [
        (&data, 5000, 4096, 8192),
        (&data, 599_999, last, 600_000 - last),
        (&meta, 7 + 4 * 9, 4096, 8192),
        (
            &meta,
            7 + 4 * (last / 512),
            last - 512,
            600_000 - last + 512,
        ),
    ] {
        flip(path, at);
        let wanted = block(2, 0, 0);
        let opened = node.store.open_reader(&wanted).await;
        let reader = opened.expect("opens");
        assert!(reader.is_protected());
        let mend = reader.mend(offset as u64, len).await;
        let (got, sums) = mend.expect("decodes");
        assert_eq!(got.as_slice(), &content(2, 600_000)[offset..offset + len]);
        let fits = reader.checksum().verify(got.as_slice(), &sums);
        fits.expect("data and checksums fit");
        assert_eq!(mended(&mut node).await, [2], "{} at {at}", path.display());
        check_three(&node).await;
    }
    put(&node, 9, 1000).await;
    let opened = node.store.open_reader(&block(9, 0, 0)).await;
    assert!(!opened.expect("opens").is_protected());
}

#[tokio::test]
async fn a_meta_file_that_is_not_the_replicas_is_not_served() {
    let mut node = three(shape(3, 1), 4).await;
    let meta = data_file(&node, 2).with_file_name("blk_2_1001.meta");
    // Version, type, chunk size.
    for at in [1, 2, 5] {
        flip(&meta, at);
        check_three(&node).await;
        assert_eq!(mended(&mut node).await, [2], "byte {at}");
    }
    let whole = std::fs::read(&meta).expect("reads");
    std::fs::write(&meta, &whole[..1000]).expect("writes");
    check_three(&node).await;
    assert_eq!(mended(&mut node).await, [2], "cut");
    std::fs::remove_file(&meta).expect("there");
    check_three(&node).await;
    assert_eq!(mended(&mut node).await, [2], "gone");
    assert!(std::fs::read(&meta).expect("is back") == whole);
}

#[tokio::test]
async fn an_append_mends_first() {
    let mut node = three(shape(3, 1), 4).await;
    flip(&data_file(&node, 2), 599_990);
    let before = block(2, 1001, 600_000);
    let append = node.store.append(&before, 1002, 600_000);
    drop(append.await.expect("opens"));
    let told = events(&mut node).await;
    assert!(corrupt(&told).is_empty(), "{told:?}");
    check(&node, 1, 70_001).await;
    check(&node, 3, 65_536).await;
}

#[tokio::test]
async fn a_damaged_member_is_mended_before_it_is_told() {
    let mut node = three(shape(3, 1), 4).await;
    let data = data_file(&node, 2);
    let meta = data.with_file_name("blk_2_1001.meta");
    for (path, at) in [(&data, 0), (&data, 599_999), (&meta, 3), (&meta, 4000)] {
        flip(path, at);
        found_damaged(&node, 2).await;
        assert_eq!(mended(&mut node).await, [2], "{}", path.display());
        check_three(&node).await;
    }
    std::fs::write(&data, "cut").expect("writes");
    found_damaged(&node, 2).await;
    assert_eq!(mended(&mut node).await, [2]);
    // The record knows the new files: nothing is read anew at the next start.
    round(&node).await;
    let node = again(node, shape(3, 1), true).await;
    round(&node).await;
    assert_eq!(
        (status(&node).protected_bytes, status(&node).groups),
        (735_537, 1)
    );
    check_three(&node).await;
}

#[tokio::test]
async fn the_block_scanner_mends_what_it_finds() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut config = protected(dir.path(), 3, shape(2, 1));
    config.scan = ScanConfig {
        period: Duration::from_secs(3600),
        bytes_per_second: 1 << 30,
    };
    let mut node = Node::start(dir, 3, config).await;
    put(&node, 1, 100_000).await;
    put(&node, 2, 90_000).await;
    round(&node).await;
    flip(&data_file(&node, 1), 77_777);
    node.store.mark_suspect(&block(1, 1001, 0));
    let back = async {
        while std::fs::read(data_file(&node, 1)).expect("reads") != content(1, 100_000) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), back)
        .await
        .expect("in time");
    check(&node, 1, 100_000).await;
    assert_eq!(mended(&mut node).await, [1]);
}

#[tokio::test]
async fn damage_that_parity_cannot_undo_is_told() {
    let mut node = three(shape(3, 1), 4).await;
    flip(&data_file(&node, 1), 5);
    flip(&data_file(&node, 2), 10);
    found_damaged(&node, 1).await;
    assert_eq!(corrupt(&events(&mut node).await), [1]);
    // Where the two are damaged in different places, each comes from what is right of the other.
    flip(&data_file(&node, 1), 5);
    found_damaged(&node, 2).await;
    assert_eq!(mended(&mut node).await, [2]);
    check_three(&node).await;
    // A replica without parity.
    put(&node, 9, 1000).await;
    flip(&data_file(&node, 9), 5);
    found_damaged(&node, 9).await;
    assert_eq!(corrupt(&events(&mut node).await), [9]);
}

#[tokio::test]
async fn damaged_parity_is_left_out() {
    let shape = shape(3, 2);
    let mut node = three(shape, 5).await;
    let parity: Vec<PathBuf> = files(&node)
        .into_iter()
        .filter(|(_, file)| matches!(file, GroupFile::Parity(..)))
        .map(|(volume, file)| file.path(&node.dir.path().join(format!("data{volume}"))))
        .collect();
    assert_eq!(parity.len(), 2);
    flip(&parity[0], 1000);
    flip(&data_file(&node, 2), 1000);
    found_damaged(&node, 2).await;
    assert_eq!(mended(&mut node).await, [2]);
    check_three(&node).await;
    flip(&parity[1], 1001);
    flip(&data_file(&node, 2), 1001);
    found_damaged(&node, 2).await;
    assert_eq!(
        corrupt(&events(&mut node).await),
        [2],
        "three units are wrong there"
    );
}

#[tokio::test]
async fn a_record_has_a_copy_on_another_disk() {
    let shape = shape(3, 1);
    let mut node = three(shape, 4).await;
    let records: Vec<PathBuf> = files(&node)
        .into_iter()
        .filter(|(_, file)| matches!(file, GroupFile::Record(_)))
        .map(|(volume, file)| file.path(&node.dir.path().join(format!("data{volume}"))))
        .collect();
    assert_eq!(records.len(), 2);
    for record in &records {
        let whole = std::fs::read(record).expect("reads");
        let middle = whole.len() / 2;
        flip(record, middle);
        flip(&data_file(&node, 1), 7);
        found_damaged(&node, 1).await;
        assert_eq!(mended(&mut node).await, [1]);
        // A look at all that there is finds the damaged copy: it is written anew.
        let root = node.dir.path().join("data0");
        ParityRequest::Scrub.leave(&root).expect("asks");
        round(&node).await;
        assert!(
            std::fs::read(record)
                .expect("reads")
                .ends_with(&whole[middle..])
        );
        check_three(&node).await;
    }
    for (n, record) in records.iter().enumerate() {
        flip(record, 20);
        node = again(node, shape, n == 0).await;
        round(&node).await;
        assert_eq!(
            status(&node).protected_bytes,
            735_537,
            "the head of copy {n} was damaged"
        );
    }
    check_files(&node, shape);
}

#[tokio::test]
async fn a_bad_sector_is_read_around_and_mended() {
    let shape = shape(2, 1);
    let dir = tempfile::tempdir().expect("temporary directory");
    let faults = Faults::new(1);
    let mut config = protected(dir.path(), 3, shape);
    config.faults = Some((dir.path().join("data0"), Arc::clone(&faults)));
    let mut node = Node::start(dir, 3, config).await;
    put(&node, 1, 100_000).await;
    put(&node, 2, 90_000).await;
    round(&node).await;
    assert_eq!(volume_of(&node, 1), 0);
    // The sector is bad until the file is written anew, under another name.
    let bad = |path: &Path| path.ends_with("subdir0/subdir0/blk_1");
    let rule = FaultRule::new(Effect::Errno(EIO)).on(&[IoOp::Read]).at(bad);
    let rule = faults.add(rule);
    check(&node, 1, 100_000).await;
    assert!(faults.fired(rule) > 0);
    // No block scanner runs here: the reader has it mended.
    assert_eq!(mended(&mut node).await, [1]);
    faults.clear();
    check(&node, 1, 100_000).await;
}

#[tokio::test]
async fn a_missing_file_is_served_and_mended() {
    let mut node = three(shape(3, 1), 4).await;
    let data = data_file(&node, 2);
    std::fs::remove_file(&data).expect("there");
    check(&node, 2, 600_000).await;
    assert_eq!(mended(&mut node).await, [2]);
    assert!(std::fs::read(&data).expect("is back") == content(2, 600_000));
    // The directory scanner sees it first.
    std::fs::remove_file(data_file(&node, 1)).expect("there");
    node.store.scan_directories().await;
    assert_eq!(mended(&mut node).await, [1]);
    assert!(std::fs::read(data_file(&node, 1)).expect("is back") == content(1, 70_001));
    check_three(&node).await;
}

#[tokio::test]
async fn a_replica_that_took_the_place_of_a_damaged_one_is_not_told() {
    let mut node = start(4, shape(3, 1)).await;
    put(&node, 1, 50_000).await;
    put(&node, 2, 50_000).await;
    let pool = node.store.state().pool(&pool()).expect("there");
    for id in [1, 2] {
        let replica = node.store.replica(pool.id(), id).expect("there");
        let damage = hayloft_store::inside::Damage::Certain;
        crate::heal(
            &node.parity,
            node.store.state(),
            replica.block,
            replica.storage,
            damage,
        );
    }
    // Before the first is looked at it is another one.
    let Some(Slot::Finalized(mut now)) = pool.map.get(1) else {
        panic!("finalized");
    };
    now.generation_stamp += 1;
    let meta = data_file(&node, 1).with_file_name("blk_1_1001.meta");
    std::fs::rename(&meta, meta.with_file_name("blk_1_1002.meta")).expect("renames");
    pool.put(1, Slot::Finalized(now)).expect("takes it");
    assert_eq!(corrupt(&events(&mut node).await), [2]);
    assert_eq!(status(&node).damaged_bytes, 50_000);
}
