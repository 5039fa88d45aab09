//! What each decorator adds to the contract.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hayloft_io::decorators::{Effect, FaultRule, FaultWhen, Faults, Faulty, IoMetrics, Metered};
use hayloft_io::{
    AlignedBuf, Disk, DiskConfig, Engine, EngineConfig, EngineFile, IoClass, IoErrorKind, IoOp,
    OpenMode, SyncKind, engine_by_name,
};

fn engine(dir: &Path) -> Arc<dyn Engine> {
    let disk = Disk::for_path(dir, &DiskConfig::default()).expect("the directory exists");
    engine_by_name("posix", &EngineConfig::new(disk)).expect("a known name")
}

fn temporary() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

async fn create(engine: &dyn Engine, path: &Path) -> Arc<dyn EngineFile> {
    engine
        .open(path, OpenMode::CreateNew, IoClass::ClientWrite)
        .await
        .expect("a new file")
}

async fn write(file: &Arc<dyn EngineFile>, bytes: &'static [u8]) -> Result<usize, IoErrorKind> {
    let done = file.write_at(vec![Bytes::from_static(bytes)], 0).await;
    assert_eq!(
        done.buf,
        [Bytes::from_static(bytes)],
        "the buffers come back"
    );
    done.result.map_err(|e| e.kind())
}

async fn read(file: &Arc<dyn EngineFile>, len: usize) -> Result<Vec<u8>, IoErrorKind> {
    let done = file.read_at(AlignedBuf::unpooled(len), 0, len).await;
    assert!(done.buf.capacity() >= len, "the buffer comes back");
    done.result
        .map(|_| done.buf.as_slice().to_vec())
        .map_err(|e| e.kind())
}

#[tokio::test]
async fn eio_and_enospc_by_operation_class_and_path() {
    let dir = temporary();
    let faults = Faults::new(1);
    let engine = Faulty::new(engine(dir.path()), Arc::clone(&faults));
    let file = create(&engine, &dir.path().join("blk_1")).await;
    let other = create(&engine, &dir.path().join("blk_2")).await;
    let full = faults.add(
        FaultRule::new(Effect::Errno(libc::ENOSPC))
            .on(&[IoOp::Write])
            .at(|p| p.ends_with("blk_1")),
    );
    assert_eq!(write(&file, b"abc").await, Err(IoErrorKind::NoSpace));
    assert_eq!(write(&other, b"abc").await, Ok(3));
    assert_eq!(faults.fired(full), 1);
    faults.remove(full);
    assert_eq!(write(&file, b"abc").await, Ok(3));
    faults.add(FaultRule::new(Effect::Errno(libc::EIO)).in_class(IoClass::Scan));
    assert_eq!(
        read(&file.with_class(IoClass::Scan), 10).await,
        Err(IoErrorKind::MediaError)
    );
    assert_eq!(read(&file, 10).await, Ok(b"abc".to_vec()));
    faults.clear();
    faults.add(FaultRule::new(Effect::Errno(libc::EIO)).on(&[
        IoOp::Sync,
        IoOp::Truncate,
        IoOp::Open,
    ]));
    let error = file.sync(SyncKind::Data).await.expect_err("by rule");
    assert!(
        error.kind().suspects_volume() && error.to_string().contains("injected"),
        "{error}"
    );
    assert!(file.truncate(0).await.is_err());
    let opened = engine
        .open(
            &dir.path().join("blk_1"),
            OpenMode::ReadOnly,
            IoClass::ClientRead,
        )
        .await;
    assert_eq!(opened.expect_err("by rule").kind(), IoErrorKind::MediaError);
    assert_eq!(
        read(&file, 10).await,
        Ok(b"abc".to_vec()),
        "what failed changed nothing"
    );
}

#[tokio::test]
async fn rules_reach_names_and_can_be_slow() {
    let dir = temporary();
    let faults = Faults::new(1);
    let engine = Faulty::new(engine(dir.path()), Arc::clone(&faults));
    faults.add(
        FaultRule::new(Effect::Errno(libc::EROFS))
            .on(&[IoOp::Rename])
            .times(1),
    );
    create(&engine, &dir.path().join("a")).await;
    let meta = engine.meta(IoClass::ClientWrite);
    let (from, to) = (dir.path().join("a"), dir.path().join("b"));
    assert_eq!(
        meta.rename(&from, &to).await.expect_err("by rule").kind(),
        IoErrorKind::ReadOnly
    );
    faults.add(FaultRule::new(Effect::Delay(Duration::from_millis(60))).on(&[IoOp::Rename]));
    let start = Instant::now();
    meta.rename(&from, &to).await.expect("only once");
    assert!(start.elapsed() >= Duration::from_millis(60));
}

#[tokio::test]
async fn short_transfers_and_flipped_bits() {
    let dir = temporary();
    let faults = Faults::new(1);
    let engine = Faulty::new(engine(dir.path()), Arc::clone(&faults));
    let file = create(&engine, &dir.path().join("f")).await;
    faults.add(
        FaultRule::new(Effect::Short {
            bytes: 4,
            errno: libc::EIO,
        })
        .when(FaultWhen::Nth(1)),
    );
    assert_eq!(
        write(&file, b"0123456789").await,
        Err(IoErrorKind::MediaError)
    );
    assert_eq!(read(&file, 100).await, Ok(b"0123".to_vec()));
    faults.clear();
    assert_eq!(write(&file, b"0123456789").await, Ok(10));
    faults.add(
        FaultRule::new(Effect::Short { bytes: 3, errno: 0 })
            .on(&[IoOp::Read])
            .times(1),
    );
    assert_eq!(read(&file, 100).await, Ok(b"012".to_vec()));
    faults.add(FaultRule::new(Effect::Flip(1)).on(&[IoOp::Read]).times(1));
    assert_eq!(read(&file, 100).await, Ok(b"0023456789".to_vec()));
    assert_eq!(read(&file, 100).await, Ok(b"0123456789".to_vec()));
    faults.add(FaultRule::new(Effect::Flip(9)).on(&[IoOp::Write]).times(1));
    assert_eq!(write(&file, b"0123456789").await, Ok(10));
    assert_eq!(read(&file, 100).await, Ok(b"0123456788".to_vec()));
}

#[tokio::test]
async fn chance_repeats_with_its_seed() {
    let dir = temporary();
    let mut runs = Vec::new();
    for (i, seed) in [7, 7, 8].into_iter().enumerate() {
        let faults = Faults::new(seed);
        let engine = Faulty::new(engine(dir.path()), Arc::clone(&faults));
        let file = create(&engine, &dir.path().join(format!("f{i}"))).await;
        faults.add(
            FaultRule::new(Effect::Errno(libc::EIO))
                .on(&[IoOp::Write])
                .when(FaultWhen::Chance(0.5)),
        );
        let mut run = Vec::new();
        for _ in 0..64 {
            run.push(write(&file, b"x").await.is_ok());
        }
        runs.push(run);
    }
    assert_eq!(runs[0], runs[1]);
    assert_ne!(runs[0], runs[2]);
    let ok = runs[0].iter().filter(|ok| **ok).count();
    assert!((16..=48).contains(&ok), "{ok} of 64");
}

#[tokio::test]
async fn metering_counts_bytes_errors_and_latencies() {
    let dir = temporary();
    let faults = Faults::new(1);
    let metrics = Arc::new(IoMetrics::default());
    let faulty = Faulty::new(engine(dir.path()), Arc::clone(&faults));
    let engine = Metered::new(Arc::new(faulty), Arc::clone(&metrics));
    let file = create(&engine, &dir.path().join("f")).await;
    for _ in 0..10 {
        assert_eq!(write(&file, b"0123456789").await, Ok(10));
    }
    faults.add(FaultRule::new(Effect::Errno(libc::EIO)).on(&[IoOp::Write]));
    faults.add(FaultRule::new(Effect::Delay(Duration::from_millis(50))).on(&[IoOp::Read]));
    assert!(write(&file, b"0123456789").await.is_err());
    assert_eq!(
        read(&file.with_class(IoClass::Scan), 100).await,
        Ok(b"0123456789".to_vec())
    );
    drop(file.read_at(AlignedBuf::unpooled(10), 0, 10));
    engine
        .meta(IoClass::Delete)
        .unlink(&dir.path().join("f"))
        .await
        .expect("there");
    let writes = metrics.stats(IoClass::ClientWrite, IoOp::Write);
    assert_eq!(
        (
            writes.latencies.len(),
            writes.errors,
            writes.bytes,
            writes.in_flight
        ),
        (11, 1, 100, 0)
    );
    let scans = metrics.stats(IoClass::Scan, IoOp::Read);
    assert_eq!((scans.latencies.len(), scans.bytes), (1, 10));
    assert!(scans.latencies.value_at_quantile(0.5) >= 50_000);
    assert!(scans.total >= Duration::from_millis(50));
    assert_eq!(metrics.stats(IoClass::ClientWrite, IoOp::Read).abandoned, 1);
    let opened = metrics.stats(IoClass::ClientWrite, IoOp::Open);
    let unlinked = metrics.stats(IoClass::Delete, IoOp::Unlink);
    assert_eq!((opened.latencies.len(), unlinked.latencies.len()), (1, 1));
}
