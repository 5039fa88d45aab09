//! Cancelled callers and full queues.

use std::sync::mpsc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::poll;
use hayloft_io::{AlignedBuf, BufferPool, IoClass, IoError, IoFuture, IoOp};

use crate::rig::{DEPTH, EngineRig, eventually, pattern, read, write};

/// Work that keeps a thread of the disk and a place in the queue until told.
fn block(rig: &EngineRig, class: IoClass) -> (mpsc::Sender<()>, IoFuture<Result<(), IoError>>) {
    let (go, wait) = mpsc::channel::<()>();
    let held = rig.disk.run(class, IoOp::Read, rig.dir.path(), move |_| {
        let _ = wait.recv();
        Ok(())
    });
    (go, held)
}

pub(crate) async fn a_dropped_caller_does_not_stop_a_submitted_write(rig: EngineRig) {
    let file = rig.create("f").await;
    let data = pattern(50_000, 7);
    for i in 0..4_u64 {
        let mut write = file.write_at(vec![Bytes::from(data.clone())], i * 50_000);
        let _ = poll!(&mut write);
        drop(write);
    }
    eventually("the writes arrive", async || {
        file.length().await.expect("open") == 200_000
    })
    .await;
    for i in 0..4 {
        eventually("each with its bytes", async || {
            read(&file, i * 50_000, 50_000).await == rig.kept(&data)
        })
        .await;
    }
}

pub(crate) async fn a_dropped_caller_gives_pool_memory_back(rig: EngineRig) {
    let file = rig.create("f").await;
    write(&file, &pattern(100_000, 8), 0).await;
    let pool = BufferPool::new(256 * 1024);
    for _ in 0..20 {
        let buf = pool.acquire(128 * 1024).await.expect("within the budget");
        let mut reading = file.read_at(buf, 0, 100_000);
        let _ = poll!(&mut reading);
        drop(reading);
        let mut buf = pool.acquire(64 * 1024).await.expect("within the budget");
        buf.extend_from_slice(b"12345");
        let mut writing = file.write_at(vec![buf.freeze()], 0);
        let _ = poll!(&mut writing);
        drop(writing);
    }
    eventually("all memory is back", async || pool.in_use() == 0).await;
}

pub(crate) async fn a_full_queue_makes_writers_wait(rig: EngineRig) {
    let file = rig.create("f").await;
    let held: Vec<_> = (0..DEPTH)
        .map(|_| block(&rig, IoClass::ClientWrite))
        .collect();
    assert_eq!(rig.disk.pending(IoClass::ClientWrite), DEPTH);
    let dropped = file.write_at(vec![Bytes::from_static(b"never")], 100);
    let mut writing = file.write_at(vec![Bytes::from_static(b"late")], 0);
    let early = tokio::time::timeout(Duration::from_millis(50), &mut writing).await;
    assert!(early.is_err(), "a full queue makes the writer wait");
    assert_eq!(
        rig.disk.pending(IoClass::ClientWrite),
        DEPTH,
        "nothing grows"
    );
    assert!(rig.disk.longest_running().is_some());
    drop(dropped);
    let (go, held): (Vec<_>, Vec<_>) = held.into_iter().unzip();
    drop(go);
    for done in held {
        done.await.expect("runs to its end");
    }
    assert_eq!(writing.await.result.expect("there is room"), 4);
    assert_eq!(
        file.length().await.expect("open"),
        4,
        "what never got a place was never done"
    );
}

pub(crate) async fn a_full_queue_makes_readers_wait(rig: EngineRig) {
    let file = rig.create("f").await;
    let len = 1 << 20; // More than is ever read on the calling thread.
    write(&file, &pattern(len, 10), 0).await;
    let held: Vec<_> = (0..DEPTH)
        .map(|_| block(&rig, IoClass::ClientWrite))
        .collect();
    let mut reading = file.read_at(AlignedBuf::unpooled(len), 0, len);
    assert!(
        tokio::time::timeout(Duration::from_millis(50), &mut reading)
            .await
            .is_err()
    );
    let (go, held): (Vec<_>, Vec<_>) = held.into_iter().unzip();
    drop(go);
    for done in held {
        done.await.expect("runs to its end");
    }
    assert_eq!(reading.await.buf.as_slice(), rig.kept(&pattern(len, 10)));
}

pub(crate) async fn clients_do_not_wait_for_background_work(rig: EngineRig) {
    let file = rig.create("f").await;
    let mut held = Vec::new();
    for class in [IoClass::Scan, IoClass::Delete, IoClass::Balancer] {
        held.extend((0..DEPTH).map(|_| block(&rig, class)));
    }
    write(&file, b"at once", 0).await;
    assert_eq!(read(&file, 0, 10).await, rig.kept(b"at once"));
    assert_eq!(
        rig.disk.pending(IoClass::Scan),
        DEPTH,
        "the background is still there"
    );
    let (go, held): (Vec<_>, Vec<_>) = held.into_iter().unzip();
    drop(go); // All at once: classes take turns on the one thread.
    for done in held {
        done.await.expect("the background finishes too");
    }
}
