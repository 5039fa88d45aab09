//! Any sequence of operations on one file does what it does to a vector of bytes.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use bytes::Bytes;
use hayloft_io::{
    AlignedBuf, DirectLimits, Disk, DiskConfig, Engine, EngineConfig, EngineFile, IoClass,
    OpenMode, SyncKind, engine_by_name,
};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    /// Buffers of these lengths, one after the other from the offset on, filled with the byte.
    Write(u64, Vec<usize>, u8),
    /// Several adjacent writes at once, from the offset on.
    Stream(u64, Vec<usize>, u8),
    /// Pages of aligned memory, so many a buffer, from the page on, filled with the byte.
    WritePages(u64, Vec<usize>, u8),
    Read(u64, usize),
    /// Aligned: what goes around the page cache where it can.
    ReadPages(u64, usize),
    Truncate(u64),
    Allocate(u64),
    Sync,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let offset = 0..200_000_u64;
    let lens = prop::collection::vec(0..20_000_usize, 0..6);
    prop_oneof![
        4 => (offset.clone(), lens.clone(), any::<u8>()).prop_map(|(o, l, b)| Step::Write(o, l, b)),
        2 => (offset.clone(), lens, any::<u8>()).prop_map(|(o, l, b)| Step::Stream(o, l, b)),
        3 => (0..48_u64, prop::collection::vec(1..5_usize, 1..6), any::<u8>())
            .prop_map(|(p, n, b)| Step::WritePages(p, n, b)),
        4 => (offset.clone(), 0..150_000_usize).prop_map(|(o, l)| Step::Read(o, l)),
        2 => (0..48_u64, 1..40_usize).prop_map(|(p, n)| Step::ReadPages(p, n)),
        2 => offset.clone().prop_map(Step::Truncate),
        1 => offset.prop_map(Step::Allocate),
        1 => Just(Step::Sync),
        1 => Just(Step::Reopen),
    ]
}

fn model_write(model: &mut Vec<u8>, offset: u64, data: &[u8]) {
    if data.is_empty() {
        return;
    }
    let offset = usize::try_from(offset).expect("below 200,000");
    let end = offset + data.len();
    if model.len() < end {
        model.resize(end, 0);
    }
    model[offset..end].copy_from_slice(data);
}

/// Buffers of whole pages, at addresses that direct I/O takes.
fn aligned(counts: &[usize], byte: u8) -> Vec<Bytes> {
    let buffer = |count: &usize| {
        let mut buf = AlignedBuf::unpooled(count * 4096);
        buf.set_len(count * 4096);
        buf.as_mut_slice().fill(byte);
        buf.freeze()
    };
    counts.iter().map(buffer).collect()
}

/// What the page cache gives, when the file has a descriptor.
fn through_the_kernel(file: &dyn EngineFile, model: &[u8]) {
    if let Some(fd) = file.fd() {
        let copy = File::from(fd.try_clone_to_owned().expect("descriptors left"));
        let mut seen = vec![0; model.len()];
        copy.read_exact_at(&mut seen, 0).expect("readable");
        assert!(seen == model, "the page cache shows something else");
    }
}

async fn compare(file: &dyn EngineFile, model: &[u8], offset: u64, len: usize) {
    let done = file.read_at(AlignedBuf::unpooled(len), offset, len).await;
    let from = usize::try_from(offset).expect("small").min(model.len());
    let to = from.saturating_add(len).min(model.len());
    assert_eq!(done.result.expect("readable"), to - from);
    assert!(done.buf.as_slice() == &model[from..to], "{offset}+{len}");
}

async fn check(engine: Arc<dyn Engine>, path: &std::path::Path, steps: Vec<Step>) {
    let mut file = engine
        .open(path, OpenMode::CreateNew, IoClass::ClientWrite)
        .await
        .expect("a new file");
    let mut model = Vec::new();
    for step in steps {
        match step {
            Step::Write(offset, lens, byte) => {
                let bufs: Vec<Bytes> = lens.iter().map(|len| vec![byte; *len].into()).collect();
                model_write(&mut model, offset, &bufs.concat());
                let done = file.write_at(bufs.clone(), offset).await;
                assert_eq!(done.result.expect("writable"), lens.iter().sum::<usize>());
                assert_eq!(done.buf, bufs);
            }
            Step::WritePages(page, counts, byte) => {
                let (offset, bufs) = (page * 4096, aligned(&counts, byte));
                model_write(&mut model, offset, &bufs.concat());
                let done = file.write_at(bufs.clone(), offset).await;
                assert_eq!(done.result.expect("writable"), bufs.concat().len());
                assert_eq!(done.buf, bufs);
                through_the_kernel(&*file, &model);
            }
            Step::Stream(mut offset, lens, byte) => {
                let mut running = Vec::new();
                for (i, len) in lens.into_iter().enumerate() {
                    let data =
                        Bytes::from(vec![byte.wrapping_add(u8::try_from(i).expect("few")); len]);
                    model_write(&mut model, offset, &data);
                    running.push(file.write_at(vec![data], offset));
                    offset += len as u64;
                }
                for done in futures_util::future::join_all(running).await {
                    done.result.expect("writable");
                }
            }
            Step::Read(offset, len) => compare(&*file, &model, offset, len).await,
            Step::ReadPages(page, count) => {
                compare(&*file, &model, page * 4096, count * 4096).await;
            }
            Step::Truncate(len) => {
                file.truncate(len).await.expect("writable");
                model.resize(usize::try_from(len).expect("below 200,000"), 0);
            }
            Step::Allocate(len) => file.allocate(len).await.unwrap_or_default(),
            Step::Sync => file.sync(SyncKind::Data).await.expect("open"),
            Step::Reopen => {
                file = engine
                    .open(path, OpenMode::ReadWrite, IoClass::ClientRead)
                    .await
                    .expect("there");
            }
        }
        assert_eq!(file.length().await.expect("open"), model.len() as u64);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_file_is_a_vector_of_bytes(steps in prop::collection::vec(step(), 1..24)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let dir = tempfile::tempdir().expect("a temporary directory");
        let disk = Disk::for_path(dir.path(), &DiskConfig::default()).expect("the directory \
            exists");
        for name in ["posix", "direct"] {
            let mut config = EngineConfig::new(Arc::clone(&disk));
            config.direct = DirectLimits { read_min: 1, write_min: 1, ..DirectLimits::default() };
            let engine = engine_by_name(name, &config).expect("a known name");
            runtime.block_on(check(engine, &dir.path().join(name), steps.clone()));
        }
    }
}
