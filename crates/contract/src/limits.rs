//! Cancelled callers and full queues.

use std::sync::mpsc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::poll;
use hayloft_io::{AlignedBuf, BufferPool, IoClass, IoError, IoFuture, IoOp};

use crate::breach::{Breach, Verdict, bytes};
use crate::rig::{DEPTH, EngineRig, eventually, pattern};

/// Work that keeps a thread of the disk and a place in the queue until told.
struct Held {
    go: Vec<mpsc::Sender<()>>,
    work: Vec<IoFuture<Result<(), IoError>>>,
}

impl Held {
    /// As much as the queue of `class` takes.
    fn fill(rig: &EngineRig, class: IoClass) -> Self {
        let one = |_| {
            let (go, wait) = mpsc::channel::<()>();
            let work = rig.disk.run(class, IoOp::Read, rig.dir.path(), move |_| {
                let _ = wait.recv();
                Ok(())
            });
            (go, work)
        };
        let (go, work) = (0..DEPTH).map(one).unzip();
        Self { go, work }
    }

    /// Lets all go at once: classes take turns on the one thread.
    async fn release(self) -> Verdict {
        drop(self.go);
        for done in self.work {
            EngineRig::step("work of the disk beside the engine's", done.await)?;
        }
        Ok(())
    }
}

fn queue_is_full(rig: &EngineRig, class: IoClass) -> Verdict {
    let pending = rig.disk.pending(class);
    if pending == DEPTH {
        return Ok(());
    }
    let expected = format!("{DEPTH} requests waiting");
    Err(Breach::new("the full queue", expected, pending.to_string()))
}

pub(crate) async fn a_dropped_caller_does_not_stop_a_submitted_write(rig: EngineRig) -> Verdict {
    let file = rig.create("f").await?;
    let data = pattern(50_000, 7);
    for i in 0..4_u64 {
        let mut write = file
            .file
            .write_at(vec![Bytes::from(data.clone())], i * 50_000);
        let _ = poll!(&mut write);
        drop(write);
    }
    eventually(async || file.has_length(200_000).await).await?;
    let expected = rig.kept(&data);
    for i in 0..4 {
        eventually(async || file.reads(i * 50_000, 50_000, &expected).await).await?;
    }
    Ok(())
}

pub(crate) async fn a_dropped_caller_gives_pool_memory_back(rig: EngineRig) -> Verdict {
    let file = rig.create("f").await?;
    file.write(&pattern(100_000, 8), 0).await?;
    let pool = BufferPool::new(256 * 1024);
    for _ in 0..20 {
        let buf = pool.acquire(128 * 1024).await.expect("within the budget");
        let mut reading = file.file.read_at(buf, 0, 100_000);
        let _ = poll!(&mut reading);
        drop(reading);
        let mut buf = pool.acquire(64 * 1024).await.expect("within the budget");
        buf.extend_from_slice(b"12345");
        let mut writing = file.file.write_at(vec![buf.freeze()], 0);
        let _ = poll!(&mut writing);
        drop(writing);
    }
    eventually(async || match pool.in_use() {
        0 => Ok(()),
        held => {
            let call = file.call("reads and writes whose callers went away");
            Err(Breach::new(
                call,
                "no buffer held",
                format!("{held} bytes held"),
            ))
        }
    })
    .await
}

pub(crate) async fn a_full_queue_makes_writers_wait(rig: EngineRig) -> Verdict {
    let file = rig.create("f").await?;
    let held = Held::fill(&rig, IoClass::ClientWrite);
    queue_is_full(&rig, IoClass::ClientWrite)?;
    let dropped = file.file.write_at(vec![Bytes::from_static(b"never")], 100);
    let mut writing = file.file.write_at(vec![Bytes::from_static(b"late")], 0);
    let early = tokio::time::timeout(Duration::from_millis(50), &mut writing).await;
    let call = file.call("write of 4 bytes at 0, behind a full queue,");
    if early.is_ok() {
        return Err(Breach::new(call, "it to wait", "an answer at once"));
    }
    queue_is_full(&rig, IoClass::ClientWrite)?;
    if rig.disk.longest_running().is_none() {
        return Err(Breach::new(call, "a running request on the disk", "none"));
    }
    drop(dropped);
    held.release().await?;
    match writing.await.result {
        Ok(4) => {}
        Ok(count) => return Err(Breach::new(call, "4 bytes written", bytes(count))),
        Err(error) => return Err(Breach::failed(call, "4 bytes written", &error)),
    }
    // What never got a place was never done.
    file.has_length(4).await
}

pub(crate) async fn a_full_queue_makes_readers_wait(rig: EngineRig) -> Verdict {
    let file = rig.create("f").await?;
    let len = 1 << 20; // More than is ever read on the calling thread.
    file.write(&pattern(len, 10), 0).await?;
    let held = Held::fill(&rig, IoClass::ClientWrite);
    let mut reading = file.file.read_at(AlignedBuf::unpooled(len), 0, len);
    let early = tokio::time::timeout(Duration::from_millis(50), &mut reading).await;
    if early.is_ok() {
        let call = file.reading(0, len) + ", behind a full queue,";
        return Err(Breach::new(call, "it to wait", "an answer at once"));
    }
    held.release().await?;
    let done = reading.await;
    if let Err(error) = done.result {
        return Err(Breach::failed(file.reading(0, len), bytes(len), &error));
    }
    let expected = rig.kept(&pattern(len, 10));
    match Breach::of_bytes(file.reading(0, len), 0, &expected, done.buf.as_slice()) {
        Some(breach) => Err(breach),
        None => Ok(()),
    }
}

pub(crate) async fn clients_do_not_wait_for_background_work(rig: EngineRig) -> Verdict {
    let file = rig.create("f").await?;
    let classes = [IoClass::Scan, IoClass::Delete, IoClass::Balancer];
    let held = classes.map(|class| Held::fill(&rig, class));
    file.write(b"at once", 0).await?;
    file.reads(0, 10, &rig.kept(b"at once")).await?;
    // The background is still there.
    queue_is_full(&rig, IoClass::Scan)?;
    let all = held.into_iter().reduce(|mut all, more| {
        all.go.extend(more.go);
        all.work.extend(more.work);
        all
    });
    match all {
        Some(all) => all.release().await,
        None => Ok(()),
    }
}
