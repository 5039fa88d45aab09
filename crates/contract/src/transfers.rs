//! Reads and writes.

use std::sync::Arc;

use bytes::Bytes;
use hayloft_io::{ALIGNMENT, AlignedBuf, IoClass, IoErrorKind, OpenMode};

use crate::breach::{Breach, Verdict, bytes};
use crate::rig::{EngineRig, TriedFile, pattern};

pub(crate) async fn what_is_written_is_read_at_odd_offsets(rig: EngineRig) -> Verdict {
    let file = rig.create("f").await?;
    let data = pattern(300_001, 1);
    let mut at = 0;
    for len in [1, 511, 4096, 4097, 65_536, 100_000, 125_760] {
        file.write(&data[at..at + len], at as u64).await?;
        at += len;
    }
    file.has_length(300_001).await?;
    file.reads(0, data.len(), &rig.kept(&data)).await?;
    for (offset, len) in [
        (1, 1),
        (4095, 2),
        (4096, 4096),
        (65_535, 131_073),
        (299_999, 2),
    ] {
        let expected = rig.kept(&data[offset..offset + len]);
        file.reads(offset as u64, len, &expected).await?;
    }
    file.write(&pattern(10, 2), 100_000).await?;
    let mut changed = data.clone();
    changed[100_000..100_010].copy_from_slice(&pattern(10, 2));
    file.reads(0, data.len(), &rig.kept(&changed)).await
}

pub(crate) async fn gather_writes_of_more_buffers_than_the_kernel_takes(rig: EngineRig) -> Verdict {
    let file = rig.create("f").await?;
    let data = pattern(3000 * 7, 3);
    let mut bufs: Vec<Bytes> = data.chunks(7).map(Bytes::copy_from_slice).collect();
    bufs.insert(1500, Bytes::new());
    bufs.insert(0, Bytes::new());
    file.write_all(bufs, 13).await?;
    file.reads(13, data.len() + 1, &rig.kept(&data)).await?;
    file.write_all(Vec::new(), 1 << 40).await?;
    file.has_length(13 + data.len() as u64).await
}

pub(crate) async fn reads_are_short_only_at_the_end(rig: EngineRig) -> Verdict {
    let file = rig.create("f").await?;
    file.reads(0, 100, b"").await?;
    let data = pattern(200_000, 4);
    file.write(&data, 0).await?;
    file.reads(199_990, 100, &rig.kept(&data[199_990..]))
        .await?;
    file.reads(100, 1 << 20, &rig.kept(&data[100..])).await?;
    for beyond in [200_000, 200_001, 1 << 40] {
        file.reads(beyond, 100, b"").await?;
    }
    file.reads(50, 0, b"").await
}

pub(crate) async fn what_is_loaded_is_read_and_counted(rig: EngineRig) -> Verdict {
    let file = rig.create("f").await?;
    let data = pattern(3_000_000, 8);
    file.write(&data, 0).await?;
    let file = file.with_class(IoClass::ClientRead);
    for (offset, len, there) in [
        (0, 3_000_000, 3_000_000),
        (1_234_567, 1_500_000, 1_500_000),
        (2_999_990, 100, 10),
        (3_000_000, 100, 0),
        (1 << 40, 100, 0),
        (5, 0, 0),
    ] {
        let call = loading(&file, offset, len);
        let loaded = file.file.load(offset, len).await;
        let loaded = loaded.map_err(|e| Breach::failed(call.clone(), bytes(there), &e))?;
        if loaded > there || (file.file.caches(offset) && loaded != there) {
            return Err(Breach::new(call, bytes(there), bytes(loaded)));
        }
    }
    if file.file.caches(0) && file.file.fd().is_none() {
        let call = file.call("the descriptor");
        return Err(Breach::new(call, "one to send from what is cached", "none"));
    }
    file.reads(0, 3_000_000, &rig.kept(&data)).await?;
    for offset in [i64::MAX.unsigned_abs(), u64::MAX] {
        let loaded = file.file.load(offset, 2).await.map(bytes);
        is_impossible(loading(&file, offset, 2), loaded)?;
    }
    Ok(())
}

fn loading(file: &TriedFile, offset: u64, len: usize) -> String {
    file.call(format_args!("load of {} at {offset}", bytes(len)))
}

/// A range that no file has is refused before the engine is asked.
fn is_impossible(call: String, result: Result<String, hayloft_io::IoError>) -> Verdict {
    let expected = "a refusal of the range";
    match result {
        Err(error) if error.kind() == IoErrorKind::Invalid => Ok(()),
        Err(error) => Err(Breach::failed(call, expected, &error)),
        Ok(came) => Err(Breach::new(call, expected, came)),
    }
}

pub(crate) async fn a_gap_reads_as_zeros(rig: EngineRig) -> Verdict {
    let file = rig.create("f").await?;
    file.write(b"tail", 150_000).await?;
    file.has_length(150_004).await?;
    file.reads(0, 150_000, &vec![0; 150_000]).await?;
    file.reads(150_000, 10, &rig.kept(b"tail")).await
}

pub(crate) async fn impossible_ranges_give_the_buffer_back(rig: EngineRig) -> Verdict {
    let file = rig.create("f").await?;
    let end = i64::MAX.unsigned_abs();
    for (offset, len) in [
        (0, ALIGNMENT + 1),
        (end, 2),
        (u64::MAX, 1),
        (u64::MAX - 1, ALIGNMENT),
    ] {
        let buf = AlignedBuf::unpooled(ALIGNMENT);
        let done = file.file.read_at(buf, offset, len).await;
        is_impossible(file.reading(offset, len), done.result.map(bytes))?;
        if (done.buf.capacity(), done.buf.len()) != (ALIGNMENT, 0) {
            let call = file.reading(offset, len);
            return Err(Breach::new(call, "the buffer back, empty", "another"));
        }
    }
    for offset in [end, u64::MAX] {
        let bufs = vec![Bytes::from_static(b"xy")];
        let done = file.file.write_at(bufs.clone(), offset).await;
        let call = file.call(format_args!("write of 2 bytes at {offset}"));
        is_impossible(call.clone(), done.result.map(bytes))?;
        if done.buf != bufs {
            return Err(Breach::new(call, "the buffers back", "others"));
        }
    }
    file.has_length(0).await
}

pub(crate) async fn a_write_to_a_read_only_handle_gives_the_buffers_back(
    rig: EngineRig,
) -> Verdict {
    rig.create("f").await?.write(b"before", 0).await?;
    let file = rig.open("f", OpenMode::ReadOnly).await?;
    let bufs = vec![Bytes::from_static(b"ab"), Bytes::from_static(b"c")];
    let done = file.file.write_at(bufs.clone(), 0).await;
    let call = file.call("write of 3 bytes at 0, opened with HAYLOFT_READ_ONLY,");
    let expected = "a refusal in one line that names the write, and the buffers back";
    let said = match done.result {
        Ok(count) => return Err(Breach::new(call, expected, bytes(count))),
        Err(error) if error.kind() == IoErrorKind::Invalid => error.to_string(),
        Err(error) => return Err(Breach::failed(call, expected, &error)),
    };
    if !said.contains("write") || said.contains('\n') || done.buf != bufs {
        return Err(Breach::new(call, expected, said));
    }
    if file.file.truncate(0).await.is_ok() {
        let call = file.call("truncate to 0, opened with HAYLOFT_READ_ONLY,");
        return Err(Breach::new(call, "a refusal", "success"));
    }
    file.reads(0, 10, &rig.kept(b"before")).await
}

pub(crate) async fn many_at_once_do_not_mix(rig: EngineRig) -> Verdict {
    const STREAMS: usize = 16;
    const WRITES: usize = 24;
    const LEN: usize = 10_007;
    let file = rig.create("f").await?;
    let rig = Arc::new(rig);
    let streams: Vec<_> = (0..STREAMS)
        .map(|stream| {
            let (file, rig) = (file.clone(), Arc::clone(&rig));
            tokio::spawn(async move {
                let at = |i: usize| ((i * STREAMS + stream) * LEN) as u64;
                let data = |i: usize| pattern(LEN, (i * STREAMS + stream + 1) as u64);
                let writes = (0..WRITES).map(|i| file.write_all(vec![data(i).into()], at(i)));
                for done in futures_util::future::join_all(writes.collect::<Vec<_>>()).await {
                    done?;
                }
                for i in (0..WRITES).rev() {
                    file.reads(at(i), LEN, &rig.kept(&data(i))).await?;
                }
                Ok(())
            })
        })
        .collect();
    for stream in streams {
        EngineRig::step("one of many streams at once", stream.await)??;
    }
    file.has_length((STREAMS * WRITES * LEN) as u64).await
}

pub(crate) async fn memory_of_any_alignment_is_accepted(rig: EngineRig) -> Verdict {
    let file = rig.create("f").await?;
    let whole = Bytes::from(pattern(20_000, 9));
    let bufs = vec![whole.slice(1..8193), whole.slice(8193..)];
    file.write_all(bufs, 1).await?;
    file.reads(1, 19_999, &rig.kept(&whole[1..])).await
}
