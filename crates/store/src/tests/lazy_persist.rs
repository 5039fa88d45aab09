//! Replicas that are written to memory first, and their copies on disk. The first volume is DISK,
//! the second RAM_DISK: a directory like others, so that what it has survives a kill.

mod hung_disks;
mod kills;
mod losses;

use hayloft_io::decorators::{Effect, FaultRule};
use hayloft_io::{IoOp, SharedBits, SharedMemory, in_pages};
use hayloft_wire::ids::StorageType;

use super::*;
use crate::lazy_persist::persist_all;

/// Number of the directory in memory.
const RAM: usize = 1;

/// So long are the replicas here: two pages.
fn len() -> usize {
    usize::try_from(2 * in_pages(1)).expect("small")
}

fn budget(replicas: u64) -> u64 {
    replicas * 2 * in_pages(1)
}

fn lazy_config(dir: &Path, volumes: usize) -> StoreConfig {
    let mut config = config(dir, volumes);
    config.volumes[RAM].storage_type = StorageType::RamDisk;
    config
}

/// Bits that say to a client that a replica is as it was.
fn valid() -> ReplicaMarks {
    let (memory, _fd) = SharedMemory::new("test", 8192).expect("memory");
    let memory = Arc::new(memory);
    memory.words()[0].store(u64::MAX, std::sync::atomic::Ordering::SeqCst);
    let valid = SharedBits::new(&memory, 0, 1 << 63).expect("is there");
    ReplicaMarks {
        anchorable: valid.beside(1 << 62),
        anchors: valid.beside((1 << 31) - 1),
        valid,
    }
}

/// A node with memory for so many replicas.
async fn start_on(dir: TempDir, replicas: u64, config: StoreConfig) -> Node {
    let (sender, events) = mpsc::channel(100);
    let shared = StoreShared::alone(8 << 20).with_locked_memory(budget(replicas), 1);
    let volumes = config.volumes.len();
    let opened = Store::open_sharing(config, sender, shared, None).await;
    let store = opened.expect("opens");
    let added = store.add_pool(spec(), StartOption::Regular).await;
    added.expect("loads");
    Node {
        dir,
        volumes,
        store,
        events,
    }
}

async fn node(replicas: u64) -> Node {
    let dir = tempfile::tempdir().expect("temporary directory");
    let config = lazy_config(dir.path(), 2);
    start_on(dir, replicas, config).await
}

fn lazy(expected_len: u64) -> WriteOptions {
    WriteOptions {
        lazy_persist: true,
        expected_len: Some(expected_len),
        checksum: Some(crc32c()),
        ..WriteOptions::default()
    }
}

impl Node {
    /// Writes a replica that may go to memory; where it is.
    async fn put_lazy(&self, id: i64) -> StorageType {
        let options = lazy(len() as u64);
        let created = self.store.create_rbw(&block(id, 1001, 0), options).await;
        let mut writer = created.expect("creates");
        writer.set_checksum(crc32c()).await.expect("header");
        writer.write(vec![packet(0, len())]).await.expect("writes");
        writer.finalize().await.expect("finalizes");
        self.storage_of(id).expect("is here")
    }

    fn storage_of(&self, id: i64) -> Option<StorageType> {
        let replica = self.store.replica(&pool(), id)?;
        Some(replica.storage.storage_type)
    }

    async fn persist(&self) {
        persist_all(&self.store.0).await;
    }

    fn use_now(&self) -> LazyPersistUse {
        self.store.lazy_persist_use()
    }

    /// `current` of the pool on a volume.
    fn current(&self, volume: usize) -> PathBuf {
        let of = self.dir.path().join(format!("data{volume}/current"));
        of.join(pool().as_str()).join("current")
    }

    /// The files of blocks below a directory, in order of their names.
    fn files(&self, volume: usize, below: &str) -> Vec<String> {
        let mut names = Vec::new();
        collect(&self.current(volume).join(below), &mut names);
        names.sort_unstable();
        names
    }

    async fn found(&mut self) -> (i64, StorageType) {
        match self.next_event().await {
            StoreEvent::Found { block, storage } => (block.block.id, storage.storage_type),
            other => panic!("{other:?}"),
        }
    }

    async fn next_event(&mut self) -> StoreEvent {
        let event = tokio::time::timeout(Duration::from_secs(10), self.events.recv()).await;
        event.expect("soon").expect("goes on")
    }
}

fn collect(dir: &Path, names: &mut Vec<String>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            collect(&entry.path(), names);
        } else {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
}

fn pair(id: i64, stamp: u64) -> [String; 2] {
    [format!("blk_{id}"), format!("blk_{id}_{stamp}.meta")]
}

#[tokio::test]
async fn whole_pages_go_to_memory_while_the_budget_has_room() {
    let node = node(2).await;
    assert_eq!(node.put_lazy(1).await, StorageType::RamDisk);
    node.check(1, 1001, len()).await;
    // Half a page more, and a client that does not want it.
    let odd = lazy(in_pages(1) + 100);
    let writer = node.store.create_rbw(&block(2, 1001, 0), odd).await;
    let writer = writer.expect("creates");
    assert_eq!(writer.storage().storage_type, StorageType::Disk);
    node.put(3, 1001, len()).await;
    assert_eq!(node.storage_of(3), Some(StorageType::Disk));
    assert_eq!(node.put_lazy(4).await, StorageType::RamDisk);
    // Nothing has a second copy: nothing can leave.
    assert_eq!(node.put_lazy(5).await, StorageType::Disk);
    let counted = node.use_now();
    assert_eq!((counted.written, counted.fallbacks), (2, 2));
    assert_eq!(counted.bytes_written, 2 * len() as u64);
    assert_eq!(node.store.cache_use().used, budget(2));
    // What is not needed is given back when it is known.
    let gone = block(1, 1001, 0).block;
    let deleted = node.store.invalidate(&pool(), &[gone]).await;
    deleted.expect("deletes");
    assert_eq!(node.use_now().deleted_before, 1);
    let sixth = block(6, 1001, 0);
    let created = node.store.create_rbw(&sixth, lazy(budget(1)));
    let mut writer = created.await.expect("creates");
    assert_eq!(node.store.cache_use().used, budget(2));
    writer.set_checksum(crc32c()).await.expect("header");
    writer.write(vec![packet(0, 10)]).await.expect("writes");
    writer.finalize().await.expect("finalizes");
    assert_eq!(node.store.cache_use().used, budget(1) + in_pages(1));
}

#[tokio::test]
async fn a_replica_longer_than_was_said_takes_more_room_or_goes_to_disk() {
    let node = node(2).await;
    let page = in_pages(1);
    let write = async |id, pages: u64| {
        let wanted = block(id, 1001, 0);
        let created = node.store.create_rbw(&wanted, lazy(page));
        let mut writer = created.await.expect("creates");
        assert_eq!(writer.storage().storage_type, StorageType::RamDisk);
        writer.set_checksum(crc32c()).await.expect("header");
        let bytes = usize::try_from(pages * page).expect("small");
        writer.write(vec![packet(0, bytes)]).await.expect("writes");
        writer.finalize().await.expect("finalizes");
        node.check(id, 1001, bytes).await;
    };
    write(1, 2).await;
    assert_eq!(node.store.cache_use().used, 2 * page);
    assert_eq!(node.storage_of(1), Some(StorageType::RamDisk));
    write(2, 3).await;
    assert_eq!(node.storage_of(2), Some(StorageType::Disk));
    assert_eq!(node.store.cache_use().used, 2 * page);
}

/// A client that dies keeps no memory from others until its lease ends.
#[tokio::test]
async fn a_writer_that_ends_early_keeps_room_for_what_it_wrote() {
    let node = node(3).await;
    let page = in_pages(1);
    let first = block(1, 1001, 0);
    let created = node.store.create_rbw(&first, lazy(budget(3))).await;
    let mut writer = created.expect("creates");
    writer.set_checksum(crc32c()).await.expect("header");
    writer.write(vec![packet(0, 10)]).await.expect("writes");
    assert_eq!(node.store.cache_use().used, budget(3));
    drop(writer);
    for _ in 0..100 {
        if node.store.cache_use().used == page {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(node.store.cache_use().used, page);
    assert_eq!(node.put_lazy(2).await, StorageType::RamDisk);
    // A pipeline that goes on takes room as it grows.
    let reopened = node.store.recover_rbw(&first, 1002, 0, 10).await;
    let mut writer = reopened.expect("reopens");
    writer.write(vec![packet(0, len())]).await.expect("writes");
    assert_eq!(node.store.cache_use().used, budget(2));
    writer.finalize().await.expect("finalizes");
    assert_eq!(node.storage_of(1), Some(StorageType::RamDisk));
    node.check(1, 1002, len()).await;
}

#[tokio::test]
async fn without_memory_set_aside_nothing_goes_there() {
    let node = node(0).await;
    assert_eq!(node.put_lazy(1).await, StorageType::Disk);
    assert_eq!(node.use_now().fallbacks, 1);
}

#[tokio::test]
async fn the_lazy_writer_copies_with_all_checksums() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut config = lazy_config(dir.path(), 2);
    config.lazy_writer_interval = Duration::from_millis(100);
    let node = start_on(dir, 4, config).await;
    node.put_lazy(1).await;
    node.put_lazy(2).await;
    for _ in 0..100 {
        if node.use_now().persisted == 2 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(node.use_now().bytes_persisted, 2 * len() as u64);
    let copies = [pair(1, 1001), pair(2, 1001)].concat();
    assert_eq!(node.files(0, "lazypersist"), copies);
    let dir = node.current(0).join("lazypersist/subdir0/subdir0");
    let meta = std::fs::read(dir.join("blk_1_1001.meta")).expect("reads");
    let mut expected = crc32c().encode_meta_header().to_vec();
    crc32c().compute(&bytes(0, len()), &mut expected);
    assert!(meta == expected);
    assert!(std::fs::read(dir.join("blk_1")).expect("reads") == bytes(0, len()));
    // The replica is where it was, and is reported once.
    assert_eq!(node.storage_of(1), Some(StorageType::RamDisk));
    let report = node.store.block_report(&pool());
    let of = |(storage, replicas): &(StorageInfo, Vec<ReplicaReport>)| {
        (storage.storage_type, replicas.len())
    };
    let mut counts: Vec<_> = report.iter().map(of).collect();
    counts.sort_unstable_by_key(|(_, n)| *n);
    assert_eq!(counts, [(StorageType::Disk, 0), (StorageType::RamDisk, 2)]);
    let spaces = node.store.storage_reports(&pool());
    assert!(
        spaces
            .iter()
            .all(|space| space.dfs_used >= 2 * len() as u64)
    );
}

#[tokio::test]
async fn what_was_used_longest_ago_leaves_for_a_new_one() {
    let mut node = node(3).await;
    for id in [1, 2, 3] {
        assert_eq!(node.put_lazy(id).await, StorageType::RamDisk);
    }
    node.persist().await;
    node.check(1, 1001, len()).await;
    let under_way = node.store.open_reader(&block(2, 1001, 0)).await;
    let under_way = under_way.expect("opens");
    node.check(3, 1001, len()).await;
    let marks = valid();
    let watched = node.store.watch_replica(&block(1, 1001, 0), marks.clone());
    let _watch = watched.expect("loaded");
    assert!(marks.valid.any());
    // Of the readers the one of 1 came first.
    assert_eq!(node.put_lazy(4).await, StorageType::RamDisk);
    assert_eq!(node.found().await, (1, StorageType::Disk));
    assert!(!marks.valid.any(), "who has its files reads what is freed");
    assert_eq!(node.files(0, "finalized"), pair(1, 1001));
    node.check(1, 1001, len()).await;
    assert_eq!(node.put_lazy(5).await, StorageType::RamDisk);
    assert_eq!(node.found().await, (2, StorageType::Disk));
    check_reader(&under_way, len()).await;
    node.check(2, 1001, len()).await;
    let left = [pair(3, 1001), pair(4, 1001), pair(5, 1001)].concat();
    assert_eq!(node.files(RAM, "finalized"), left);
    assert_eq!(node.files(0, "lazypersist"), pair(3, 1001));
    let counted = node.use_now();
    assert_eq!((counted.evicted, counted.evicted_unread), (2, 0));
    assert_eq!(node.store.cache_use().used, budget(3));
    // Nothing leaves in vain.
    let ninth = block(9, 1001, 0);
    let huge = node.store.create_rbw(&ninth, lazy(budget(4)));
    let writer = huge.await.expect("creates");
    assert_eq!(writer.storage().storage_type, StorageType::Disk);
    assert_eq!(node.use_now().evicted, 2);
}

#[tokio::test]
async fn a_delete_takes_both_copies() {
    let mut node = node(3).await;
    for id in [1, 2] {
        node.put_lazy(id).await;
    }
    node.persist().await;
    let gone = block(1, 1001, 0).block;
    let deleted = node.store.invalidate(&pool(), &[gone]).await;
    deleted.expect("deletes");
    assert_eq!(node.files(0, "lazypersist"), pair(2, 1001));
    assert_eq!(node.files(RAM, "finalized"), pair(2, 1001));
    let event = node.next_event().await;
    assert!(matches!(event, StoreEvent::Deleted { .. }), "{event:?}");
    assert_eq!(node.use_now().deleted_before, 0);
    node.store.crash();
    let config = lazy_config(node.dir.path(), 2);
    let node = start_on(node.dir, 3, config).await;
    assert!(node.storage_of(1).is_none());
    node.check(2, 1001, len()).await;
}

#[tokio::test]
async fn an_appended_replica_is_copied_again() {
    let node = node(3).await;
    node.put_lazy(1).await;
    node.persist().await;
    let old = len();
    let first = block(1, 1001, old as u64);
    let opened = node.store.append(&first, 1002, old as u64);
    let mut writer = opened.await.expect("reopens");
    writer
        .write(vec![packet(old, old + 700)])
        .await
        .expect("writes");
    // Until there is another replica: memory may lose this one.
    node.persist().await;
    assert_eq!(node.files(0, "lazypersist"), pair(1, 1001));
    writer.finalize().await.expect("finalizes");
    node.persist().await;
    assert_eq!(node.files(0, "lazypersist"), pair(1, 1002));
    assert_eq!(node.use_now().persisted, 2);
    node.check(1, 1002, old + 700).await;
}

#[tokio::test]
async fn a_full_memory_sends_new_replicas_to_disk() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let faults = Faults::new(1);
    let config = StoreConfig {
        faults: Some((dir.path().join("data1"), Arc::clone(&faults))),
        ..lazy_config(dir.path(), 2)
    };
    let node = start_on(dir, 4, config).await;
    // The first write of its data is refused.
    let full = FaultRule::new(Effect::Errno(ENOSPC)).on(&[IoOp::Write]);
    faults.add(full.at(|path| path.extension().is_none()));
    assert_eq!(node.put_lazy(1).await, StorageType::Disk);
    node.check(1, 1001, len()).await;
    // Its files cannot be made.
    faults.clear();
    faults.add(FaultRule::new(Effect::Errno(ENOSPC)).on(&[IoOp::Open, IoOp::Write]));
    assert_eq!(node.put_lazy(2).await, StorageType::Disk);
    node.check(2, 1001, len()).await;
    assert_eq!(node.use_now().fallbacks, 2);
    assert_eq!(node.store.cache_use().used, 0);
    faults.clear();
    assert_eq!(node.put_lazy(3).await, StorageType::RamDisk);
}
