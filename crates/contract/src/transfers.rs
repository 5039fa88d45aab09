//! Reads and writes.

use std::sync::Arc;

use bytes::Bytes;
use hayloft_io::{ALIGNMENT, AlignedBuf, IoClass, IoErrorKind, OpenMode};

use crate::rig::{EngineRig, pattern, read, write};

pub(crate) async fn what_is_written_is_read_at_odd_offsets(rig: EngineRig) {
    let file = rig.create("f").await;
    let data = pattern(300_001, 1);
    let mut at = 0;
    for len in [1, 511, 4096, 4097, 65_536, 100_000, 125_760] {
        write(&file, &data[at..at + len], at as u64).await;
        at += len;
    }
    assert_eq!(at, data.len());
    assert_eq!(file.length().await.expect("open"), 300_001);
    assert_eq!(read(&file, 0, data.len()).await, rig.kept(&data));
    for (offset, len) in [
        (1, 1),
        (4095, 2),
        (4096, 4096),
        (65_535, 131_073),
        (299_999, 2),
    ] {
        assert_eq!(
            read(&file, offset as u64, len).await,
            rig.kept(&data[offset..offset + len]),
            "{offset}+{len}"
        );
    }
    write(&file, &pattern(10, 2), 100_000).await;
    let mut changed = data.clone();
    changed[100_000..100_010].copy_from_slice(&pattern(10, 2));
    assert_eq!(read(&file, 0, data.len()).await, rig.kept(&changed));
}

pub(crate) async fn gather_writes_of_more_buffers_than_the_kernel_takes(rig: EngineRig) {
    let file = rig.create("f").await;
    let data = pattern(3000 * 7, 3);
    let mut bufs: Vec<Bytes> = data.chunks(7).map(Bytes::copy_from_slice).collect();
    bufs.insert(1500, Bytes::new());
    bufs.insert(0, Bytes::new());
    let done = file.write_at(bufs.clone(), 13).await;
    assert_eq!(done.result.expect("writable"), data.len());
    assert_eq!(done.buf, bufs);
    assert_eq!(read(&file, 13, data.len() + 1).await, rig.kept(&data));
    let nothing = file.write_at(Vec::new(), 1 << 40).await;
    assert_eq!(nothing.result.expect("nothing to do"), 0);
    assert_eq!(file.length().await.expect("open"), 13 + data.len() as u64);
}

pub(crate) async fn reads_are_short_only_at_the_end(rig: EngineRig) {
    let file = rig.create("f").await;
    assert_eq!(read(&file, 0, 100).await, b"");
    let data = pattern(200_000, 4);
    write(&file, &data, 0).await;
    assert_eq!(read(&file, 199_990, 100).await, rig.kept(&data[199_990..]));
    assert_eq!(read(&file, 100, 1 << 20).await, rig.kept(&data[100..]));
    assert_eq!(read(&file, 200_000, 100).await, b"");
    assert_eq!(read(&file, 200_001, 100).await, b"");
    assert_eq!(read(&file, 1 << 40, 100).await, b"");
    assert_eq!(read(&file, 50, 0).await, b"");
}

pub(crate) async fn what_is_loaded_is_read_and_counted(rig: EngineRig) {
    let file = rig.create("f").await;
    let data = pattern(3_000_000, 8);
    write(&file, &data, 0).await;
    let file = file.with_class(IoClass::ClientRead);
    let load = async |offset, len| file.load(offset, len).await.expect("readable");
    for (offset, len, there) in [
        (0, 3_000_000, 3_000_000),
        (1_234_567, 1_500_000, 1_500_000),
        (2_999_990, 100, 10),
        (3_000_000, 100, 0),
        (1 << 40, 100, 0),
        (5, 0, 0),
    ] {
        let loaded = load(offset, len).await;
        if file.caches(offset) {
            assert_eq!(loaded, there, "{len} at {offset}");
        } else {
            assert!(loaded <= there, "{loaded} of {len} at {offset}");
        }
    }
    if file.caches(0) {
        assert!(file.fd().is_some(), "no caller could send it");
    }
    assert_eq!(read(&file, 0, 3_000_000).await, rig.kept(&data));
    for offset in [i64::MAX.unsigned_abs(), u64::MAX] {
        let refused = file.load(offset, 2).await;
        assert_eq!(
            refused.expect_err("impossible").kind(),
            IoErrorKind::Invalid
        );
    }
}

pub(crate) async fn a_gap_reads_as_zeros(rig: EngineRig) {
    let file = rig.create("f").await;
    write(&file, b"tail", 150_000).await;
    assert_eq!(file.length().await.expect("open"), 150_004);
    assert_eq!(read(&file, 0, 150_000).await, vec![0; 150_000]);
    assert_eq!(read(&file, 150_000, 10).await, rig.kept(b"tail"));
}

pub(crate) async fn impossible_ranges_give_the_buffer_back(rig: EngineRig) {
    let file = rig.create("f").await;
    let end = i64::MAX.unsigned_abs();
    for (offset, len) in [
        (0, ALIGNMENT + 1),
        (end, 2),
        (u64::MAX, 1),
        (u64::MAX - 1, ALIGNMENT),
    ] {
        let done = file
            .read_at(AlignedBuf::unpooled(ALIGNMENT), offset, len)
            .await;
        assert_eq!(
            done.result.expect_err("impossible").kind(),
            IoErrorKind::Invalid
        );
        assert_eq!((done.buf.capacity(), done.buf.len()), (ALIGNMENT, 0));
    }
    for offset in [end, u64::MAX] {
        let done = file.write_at(vec![Bytes::from_static(b"xy")], offset).await;
        assert_eq!(
            done.result.expect_err("impossible").kind(),
            IoErrorKind::Invalid
        );
        assert_eq!(done.buf, [Bytes::from_static(b"xy")]);
    }
    assert_eq!(file.length().await.expect("open"), 0);
}

pub(crate) async fn a_write_to_a_read_only_handle_gives_the_buffers_back(rig: EngineRig) {
    write(&rig.create("f").await, b"before", 0).await;
    let file = rig.open("f", OpenMode::ReadOnly).await.expect("exists");
    let bufs = vec![Bytes::from_static(b"ab"), Bytes::from_static(b"c")];
    let done = file.write_at(bufs.clone(), 0).await;
    let error = done.result.expect_err("opened for reading");
    assert_eq!(error.kind(), IoErrorKind::Invalid);
    assert!(
        error.to_string().contains("write") && !error.to_string().contains('\n'),
        "{error}"
    );
    assert_eq!(done.buf, bufs);
    assert!(file.truncate(0).await.is_err());
    assert_eq!(read(&file, 0, 10).await, rig.kept(b"before"));
}

pub(crate) async fn many_at_once_do_not_mix(rig: EngineRig) {
    const STREAMS: usize = 16;
    const WRITES: usize = 24;
    const LEN: usize = 10_007;
    let file = rig.create("f").await;
    let rig = Arc::new(rig);
    let streams: Vec<_> = (0..STREAMS)
        .map(|stream| {
            let (file, rig) = (Arc::clone(&file), Arc::clone(&rig));
            tokio::spawn(async move {
                let at = |i: usize| ((i * STREAMS + stream) * LEN) as u64;
                let data = |i: usize| pattern(LEN, (i * STREAMS + stream + 1) as u64);
                let writes = (0..WRITES).map(|i| file.write_at(vec![data(i).into()], at(i)));
                for done in futures_util::future::join_all(writes.collect::<Vec<_>>()).await {
                    assert_eq!(done.result.expect("writable"), LEN);
                }
                for i in (0..WRITES).rev() {
                    assert!(
                        read(&file, at(i), LEN).await == rig.kept(&data(i)),
                        "stream {stream} write {i}"
                    );
                }
            })
        })
        .collect();
    for stream in streams {
        stream.await.expect("no stream panics");
    }
    assert_eq!(
        file.length().await.expect("open"),
        (STREAMS * WRITES * LEN) as u64
    );
}

pub(crate) async fn memory_of_any_alignment_is_accepted(rig: EngineRig) {
    let file = rig.create("f").await;
    let whole = Bytes::from(pattern(20_000, 9));
    let done = file
        .write_at(vec![whole.slice(1..8193), whole.slice(8193..)], 1)
        .await;
    assert_eq!(done.result.expect("writable"), 19_999);
    assert_eq!(read(&file, 1, 19_999).await, rig.kept(&whole[1..]));
}
