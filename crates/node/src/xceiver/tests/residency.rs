//! Reads of data that is in the page cache, partly, or not at all; also by peers that are slow.

use std::fs::{File, OpenOptions};
use std::num::NonZeroU64;
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::Duration;

use hayloft_wire::ids::StorageType;
use hayloft_wire::transfer::Status;

use super::super::Settings;
use super::client::{Client, Pipeline, read, read_request};
use super::node::Node;
use super::{block, crc32c, pattern, pool};

/// Longer than what sockets and one piece hold; not a multiple of anything.
const LEN: usize = 24_000_123;

/// Through the page cache, around it, and around it but for clients' reads.
const ENGINES: [&str; 3] = ["posix", "direct", "direct cached"];

/// A node with one finalized block, and its data.
async fn with_block(engine: &str, id: i64) -> (Node, Vec<u8>) {
    with_settings(engine, Settings::default(), id).await
}

async fn with_settings(engine: &str, settings: Settings, id: i64) -> (Node, Vec<u8>) {
    let node = Node::with_engine(engine, settings, &[StorageType::Disk]).await;
    let data = pattern(LEN);
    let mut pipeline = Pipeline::create(id, 1001, &[&node]).await;
    for piece in data.chunks(1 << 20) {
        pipeline.write(piece, 1 << 20, 1).await;
    }
    pipeline.close(1).await;
    (node, data)
}

/// Takes a range of the block's data out of the page cache, as far as the file system can do that.
fn drop_pages(node: &Node, id: i64, offset: u64, len: u64) {
    drop_pages_of(node, &format!("blk_{id}"), offset, len);
}

/// The same of the file with this name.
pub fn drop_pages_of(node: &Node, name: &str, offset: u64, len: u64) {
    let file = File::open(node.file(name)).expect("a file of the node");
    file.sync_all().expect("only clean pages can be dropped");
    let len = NonZeroU64::new(len);
    rustix::fs::fadvise(&file, offset, len, rustix::fs::Advice::DontNeed).expect("a hint");
}

/// Asks for the whole block and takes nothing of it yet.
async fn slow_reader(node: &Node, id: i64) -> Client {
    let mut client = Client::connect(node).await;
    let request = read_request(&block(id, 1001), 0, LEN as u64, true);
    client.request(&request).await;
    let response = client.response().await.expect("answered");
    assert_eq!(response.outcome(), Status::Success);
    // Long enough for the node to fill its socket.
    tokio::time::sleep(Duration::from_millis(200)).await;
    client
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_of_cached_data_are_served_by_descriptor() {
    let (node, data) = with_block("posix", 1).await;
    let file = File::open(node.file("blk_1")).expect("the data file");
    let cached = hayloft_io::is_resident(std::os::fd::AsFd::as_fd(&file), 0, 1 << 20);
    let mut client = slow_reader(&node, 1).await;
    assert_eq!(client.packets(crc32c(), 0).await.as_ref(), Some(&data));
    let got = read(&node, &block(1, 1001), 0, LEN as u64).await;
    assert_eq!(got, Ok(data));
    if !cached {
        eprintln!("skipped in part: this kernel does not say what is cached");
        return;
    }
    let both = 2 * LEN as u64;
    node.until("counted", |node| node.x.stats().bytes_read.get() == both)
        .await;
    // Not a piece less, unless this machine is so short of memory that it dropped some meanwhile.
    assert!(node.x.stats().bytes_read_by_descriptor.get() > both / 4 * 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_send_that_waits_for_the_disk_stops_no_other_connection() {
    let (node, data) = with_block("posix", 1).await;
    let file = File::open(node.file("blk_1")).expect("the data file");
    if !hayloft_io::is_resident(std::os::fd::AsFd::as_fd(&file), 0, 1 << 20) {
        eprintln!("skipped: this kernel does not say what is cached, or dropped it");
        return;
    }
    // Sends of the disk that do not end: as with pages that have to be read from a disk that hangs.
    let reader = node
        .store
        .open_reader(&block(1, 1001))
        .await
        .expect("there");
    let (release, _) = tokio::sync::watch::channel(false);
    let threads = hayloft_io::DiskConfig::default().send_threads;
    let hang = |mut released: tokio::sync::watch::Receiver<bool>| {
        let runtime = tokio::runtime::Handle::current();
        reader.send_with(move |_| {
            let _ended = runtime.block_on(released.wait_for(|released| *released));
        })
    };
    let hanging: Vec<_> = (0..threads).map(|_| hang(release.subscribe())).collect();
    // More readers than there are threads for connections.
    let mut stopped = Vec::new();
    for _ in 0..2 * std::thread::available_parallelism().map_or(2, usize::from) {
        let mut client = Client::connect(&node).await;
        let request = read_request(&block(1, 1001), 0, LEN as u64, true);
        client.request(&request).await;
        stopped.push(client);
    }
    // Long enough for all of them to wait for a thread.
    tokio::time::sleep(Duration::from_millis(200)).await;
    for _ in 0..8 {
        let short = read(&node, &block(1, 1001), 0, 1024).await;
        assert_eq!(short.as_deref(), Ok(&data[..1024]), "served meanwhile");
    }
    // The others wait for the disk.
    node.until("counted", |node| {
        node.x.stats().bytes_read.get() == 8 * 1024
    })
    .await;
    release.send_replace(true);
    futures_util::future::join_all(hanging).await;
    for mut client in stopped {
        let response = client.response().await.expect("answered");
        assert_eq!(response.outcome(), Status::Success);
        assert!(client.packets(crc32c(), 0).await.as_ref() == Some(&data));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cold_data_is_read_into_the_page_cache_and_sent_from_there() {
    for engine in ["posix", "direct cached"] {
        let (node, data) = with_block(engine, 1).await;
        drop_pages(&node, 1, 0, 0);
        let got = read(&node, &block(1, 1001), 0, LEN as u64).await;
        assert_eq!(got, Ok(data), "{engine}");
        let all = LEN as u64;
        node.until("counted", |node| node.x.stats().bytes_read.get() == all)
            .await;
        // All but a short end, unless this machine is so short of memory that it dropped some
        // meanwhile.
        let by_descriptor = node.x.stats().bytes_read_by_descriptor.get();
        assert!(by_descriptor > all / 4 * 3, "{engine}: {by_descriptor}");
        assert_eq!(node.x.memory().in_use(), 0, "{engine}");
    }
    let (node, data) = with_block("direct", 1).await;
    let around = OpenOptions::new()
        .read(true)
        .custom_flags(i32::try_from(rustix::fs::OFlags::DIRECT.bits()).expect("one bit"))
        .open(node.file("blk_1"));
    if around.is_err() {
        eprintln!("skipped in part: no O_DIRECT here");
        return;
    }
    drop_pages(&node, 1, 0, 0);
    let got = read(&node, &block(1, 1001), 0, LEN as u64).await;
    assert_eq!(got, Ok(data));
    assert_eq!(node.x.stats().bytes_read_by_descriptor.get(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_sendfile_cached_data_is_copied() {
    let settings = Settings {
        send_file: false,
        ..Settings::default()
    };
    for engine in ENGINES {
        let (node, data) = with_settings(engine, settings.clone(), 1).await;
        // All there, some of the first and of later pieces not there, the end not there.
        for (offset, len) in [
            (LEN as u64, 0),
            (0, 300_000),
            (5_000_000, 40_000),
            (20_000_000, 0),
        ] {
            drop_pages(&node, 1, offset, len);
            let got = read(&node, &block(1, 1001), 0, LEN as u64).await;
            assert_eq!(
                got.as_ref(),
                Ok(&data),
                "{engine}: {len} dropped at {offset}"
            );
        }
        assert_eq!(node.x.stats().bytes_read_by_descriptor.get(), 0);
        assert_eq!(node.x.memory().in_use(), 0, "{engine}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cold_and_partly_cached_blocks_are_read_whole() {
    for engine in ENGINES {
        let (node, data) = with_block(engine, 2).await;
        for (offset, len) in [
            (0, 0),
            (3_000_000, 2_000_000),
            (20_000_000, 0),
            (0, 4096),
            (LEN as u64 - 4096, 4096),
        ] {
            drop_pages(&node, 2, offset, len);
            let got = read(&node, &block(2, 1001), 0, LEN as u64).await;
            assert_eq!(
                got.as_ref(),
                Ok(&data),
                "{engine}: {len} dropped at {offset}"
            );
            drop_pages(&node, 2, offset, len);
            let mut client = slow_reader(&node, 2).await;
            let got = client.packets(crc32c(), 0).await;
            assert_eq!(
                got.as_ref(),
                Some(&data),
                "{engine}, slow: {len} dropped at {offset}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cold_ranges_begin_and_end_anywhere() {
    for engine in ENGINES {
        let (node, data) = with_block(engine, 3).await;
        for (offset, len) in [
            (1, LEN - 1),
            (LEN - 1, 1),
            (LEN - 300_000, 300_000),
            (4_000_001, 65_536),
            (5_000_000, 262_145),
            (6_291_456, 1_048_576),
            (7_000_000, 3_333_333),
        ] {
            drop_pages(&node, 3, 0, 0);
            let got = read(&node, &block(3, 1001), offset as u64, len as u64).await;
            let wanted = &data[offset..offset + len];
            assert_eq!(got.as_deref(), Ok(wanted), "{engine}: {len} at {offset}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_block_deleted_under_a_reader_is_read_to_its_end() {
    let (node, data) = with_block("posix", 4).await;
    let mut client = slow_reader(&node, 4).await;
    let doomed = block(4, 1001).block;
    node.store
        .invalidate(&pool(), &[doomed])
        .await
        .expect("taken");
    node.until("deleted", |node| node.store.replica(&pool(), 4).is_none())
        .await;
    assert_eq!(client.packets(crc32c(), 0).await, Some(data));
    let refused = read(&node, &block(4, 1001), 0, 1).await;
    assert!(refused.is_err(), "no other process finds it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_cut_under_a_slow_reader_breaks_the_read_and_not_the_node() {
    let (node, data) = with_block("posix", 5).await;
    let mut client = slow_reader(&node, 5).await;
    let file = File::options()
        .write(true)
        .open(node.file("blk_5"))
        .expect("the data file");
    file.set_len(12_000_000).expect("cut");
    assert_eq!(
        client.packets(crc32c(), 0).await,
        None,
        "cut off in the middle"
    );
    let got = read(&node, &block(5, 1001), 0, 11_000_000).await;
    assert_eq!(got.as_deref(), Ok(&data[..11_000_000]), "what is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn more_slow_readers_than_memory_for_them_are_all_served() {
    let (node, data) = with_block("direct", 6).await;
    let mut clients = Vec::new();
    for _ in 0..16 {
        drop_pages(&node, 6, 0, 0);
        clients.push(slow_reader(&node, 6).await);
    }
    let memory = node.x.memory();
    assert!(memory.in_use() <= memory.budget());
    for mut client in clients {
        assert!(client.packets(crc32c(), 0).await.as_ref() == Some(&data));
    }
}
