//! Servers that are killed while they read and write, and lose what they had not flushed: what a
//! sync said to be safe is there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hayloft_io::{AlignedBuf, Engine, EngineFile, SyncKind};

use super::rig::{CLASS, PIECE, Rig, reads_back, write};

/// Server processes that are killed in a run.
const KILLS: u64 = 25;
const WRITERS: u64 = 4;
/// Pieces of a file.
const PIECES: usize = 40;
/// nbdkit keeps what it is given in a file of its own until a flush.
const FORGETFUL: (&[&str], &[&str]) = (&["--filter=cache"], &["cache=writeback"]);

fn content(id: u64, at: usize, len: usize) -> Vec<u8> {
    let byte = |at: usize| ((at as u64 ^ id << 20).wrapping_mul(0x9E37_79B1) >> 9).to_le_bytes()[0];
    (at..at + len).map(byte).collect()
}

#[derive(Default)]
struct Counts {
    syncs: AtomicUsize,
    refused: AtomicUsize,
    compared: AtomicUsize,
    over: AtomicBool,
}

#[tokio::test]
async fn this_server_loses_what_it_had_not_flushed() {
    let Some(mut rig) = Rig::new() else { return };
    rig.start_with(FORGETFUL.0, FORGETFUL.1);
    let engine = rig.engine();
    let file = rig.file(&engine, "blk_1").await;
    write(&file, 0).await.expect("writes");
    assert!(reads_back(&file).await.expect("reads"));
    rig.kill();
    rig.start_with(FORGETFUL.0, FORGETFUL.1);
    let _ = reads_back(&file).await;
    assert!(!reads_back(&file).await.expect("is back"), "it kept all");
    file.sync(SyncKind::Data).await.expect_err("it is lost");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_sync_called_safe_outlives_servers_that_are_killed_at_work() {
    let Some(mut rig) = Rig::new() else { return };
    rig.start_with(FORGETFUL.0, FORGETFUL.1);
    let engine = rig.engine();
    let counts = Arc::new(Counts::default());
    let writer = |number| {
        let (engine, root, counts) = (Arc::clone(&engine), rig.root(), Arc::clone(&counts));
        tokio::spawn(async move {
            for id in (0..).map(|n| n * WRITERS + number) {
                if counts.over.load(Ordering::Relaxed) {
                    break;
                }
                one_file(&engine, &root.join(format!("blk_{id}")), id, &counts).await;
            }
        })
    };
    let writers: Vec<_> = (0..WRITERS).map(writer).collect();
    for kill in 0..KILLS {
        tokio::time::sleep(Duration::from_millis(40 + kill * 37 % 90)).await;
        rig.kill();
        tokio::time::sleep(Duration::from_millis(kill * 13 % 30)).await;
        rig.start_with(FORGETFUL.0, FORGETFUL.1);
    }
    counts.over.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.expect("nothing was lost");
    }
    let count = |count: &AtomicUsize| count.load(Ordering::Relaxed);
    let (syncs, refused) = (count(&counts.syncs), count(&counts.refused));
    let compared = count(&counts.compared);
    println!("{KILLS} kills: {syncs} syncs, {refused} refused, {compared} files compared");
    assert!(syncs > 0 && refused > 0 && compared > 0, "it shows nothing");
}

/// Writes and syncs a file until something fails, compares what was called safe, and removes it.
async fn one_file(engine: &Arc<dyn Engine>, path: &std::path::Path, id: u64, counts: &Counts) {
    let opened = engine.open(path, hayloft_io::OpenMode::CreateNew, CLASS);
    // No server: nothing to open on.
    let Ok(file) = opened.await else {
        tokio::time::sleep(Duration::from_millis(5)).await;
        return;
    };
    let mut safe = 0;
    for piece in 0..PIECES {
        let at = piece * PIECE;
        let bytes = Bytes::from(content(id, at, PIECE));
        if file.write_at(vec![bytes], at as u64).await.result.is_err() {
            break;
        }
        if piece % 3 == 2 {
            if file.sync(SyncKind::Data).await.is_err() {
                counts.refused.fetch_add(1, Ordering::Relaxed);
                break;
            }
            counts.syncs.fetch_add(1, Ordering::Relaxed);
            safe = at + PIECE;
        }
    }
    if safe > 0 {
        let there = read(&file, safe).await;
        assert!(there == content(id, 0, safe), "file {id}: of {safe} bytes");
        counts.compared.fetch_add(1, Ordering::Relaxed);
    }
    drop(file);
    // Its room is for others; the server may be gone just now.
    let _ = engine.meta(CLASS).unlink(path).await;
}

/// Reads when the server is there.
async fn read(file: &Arc<dyn EngineFile>, len: usize) -> Vec<u8> {
    let began = Instant::now();
    loop {
        let read = file.read_at(AlignedBuf::unpooled(len), 0, len).await;
        match read.into_result() {
            Ok((buf, n)) => {
                assert_eq!(n, len);
                return buf.as_slice().to_vec();
            }
            Err(error) => assert!(began.elapsed() < Duration::from_secs(20), "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
