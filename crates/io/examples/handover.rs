//! What handing a write to a disk's thread costs: streams of gather writes through an engine,
//! against a plain loop of pwrite calls on one thread. Prints MB/s and CPU seconds per GiB.
//!
//! `cargo run --release -p hayloft-io --example handover -- DIR [MIB]`
//!
//! One stream writes its file again and again (up to MIB, default 256), so that the page cache
//! absorbs it: the figures are about our own cost, not about the disk.

use std::collections::VecDeque;
use std::error::Error;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hayloft_io::{
    AlignedBuf, Disk, DiskConfig, EngineConfig, IoClass, OpenMode, engine_by_name, together,
};

/// Bytes written per measurement.
const TOTAL: u64 = 2 << 30;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args_os().skip(1);
    let dir = PathBuf::from(args.next().ok_or("usage: handover DIR [MIB]")?);
    let mib: u64 = args
        .next()
        .and_then(|a| a.to_str()?.parse().ok())
        .unwrap_or(256);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    println!(
        "{:<10} {:>8} {:>6} {:>10} {:>12} {:>10}",
        "method", "write", "depth", "MB/s", "CPU s/GiB", "us/write"
    );
    for len in [64 << 10, 1 << 20] {
        let path = dir.join("handover.plain");
        let run = measure(|| plain(&path, len, mib << 20))?;
        print("pwrite", len, 1, run);
        for name in ["posix", "null"] {
            for depth in [1, 4] {
                let run = measure(|| runtime.block_on(stream(name, &dir, len, depth, mib << 20)))?;
                print(name, len, depth, run);
            }
        }
        for (name, grouped) in [("pair", false), ("together", true)] {
            let run = measure(|| runtime.block_on(pairs(&dir, len, grouped, mib << 20)))?;
            print(name, len, 1, run);
        }
        let run = measure(|| runtime.block_on(resident_reads(&dir, len)))?;
        print("read", len, 1, run);
    }
    Ok(())
}

fn print(method: &str, len: usize, depth: usize, (took, cpu): (Duration, Duration)) {
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let (total, writes) = (TOTAL as f64, TOTAL as f64 / len as f64);
    let rate = total / 1e6 / took.as_secs_f64();
    let per_gib = cpu.as_secs_f64() / (total / f64::from(1 << 30));
    let each = took.as_secs_f64() * 1e6 / writes;
    println!("{method:<10} {len:>8} {depth:>6} {rate:>10.0} {per_gib:>12.3} {each:>10.1}");
}

type Outcome = Result<(), Box<dyn Error>>;

/// Elapsed time and CPU time of the process.
fn measure(work: impl FnOnce() -> Outcome) -> Result<(Duration, Duration), Box<dyn Error>> {
    let (start, cpu) = (Instant::now(), cpu_time());
    work()?;
    Ok((start.elapsed(), cpu_time() - cpu))
}

fn cpu_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(
        u64::try_from(now.tv_sec).unwrap_or(0),
        u32::try_from(now.tv_nsec).unwrap_or(0),
    )
}

fn plain(path: &Path, len: usize, file_len: u64) -> Outcome {
    let file = File::create(path)?;
    let data = vec![1; len];
    let mut at = 0;
    for _ in 0..TOTAL / len as u64 {
        file.write_all_at(&data, at)?;
        at = (at + len as u64) % file_len;
    }
    drop(file);
    Ok(std::fs::remove_file(path)?)
}

async fn stream(name: &str, dir: &Path, len: usize, depth: usize, file_len: u64) -> Outcome {
    let disk = Disk::for_path(dir, &DiskConfig::default())?;
    let engine = engine_by_name(name, &EngineConfig::new(Arc::clone(&disk)))?;
    let path = dir.join("handover.engine");
    let file = engine
        .open(&path, OpenMode::CreateNew, IoClass::ClientWrite)
        .await?;
    let mut data = AlignedBuf::unpooled(len);
    data.set_len(len);
    let data = data.freeze();
    let packets: Vec<Bytes> = (0..len)
        .step_by(64 << 10)
        .map(|at| data.slice(at..(at + (64 << 10)).min(len)))
        .collect();
    let work = async move {
        let mut running = VecDeque::new();
        let mut at = 0;
        for _ in 0..TOTAL / len as u64 {
            if running.len() == depth
                && let Some(oldest) = running.pop_front()
            {
                let done: hayloft_io::Completion<_> = Box::pin(oldest).await;
                done.result?;
            }
            running.push_back(file.write_at(packets.clone(), at));
            at = (at + len as u64) % file_len;
        }
        for rest in running {
            rest.await.result?;
        }
        Ok::<_, hayloft_io::IoError>(())
    };
    tokio::spawn(work).await??;
    engine.meta(IoClass::ClientWrite).unlink(&path).await?;
    Ok(())
}

/// Data and its checksums, to two files, waiting for both.
async fn pairs(dir: &Path, len: usize, grouped: bool, file_len: u64) -> Outcome {
    let disk = Disk::for_path(dir, &DiskConfig::default())?;
    let engine = engine_by_name("posix", &EngineConfig::new(Arc::clone(&disk)))?;
    let (data_path, sums_path) = (dir.join("handover.data"), dir.join("handover.sums"));
    let data = engine
        .open(&data_path, OpenMode::CreateNew, IoClass::ClientWrite)
        .await?;
    let sums = engine
        .open(&sums_path, OpenMode::CreateNew, IoClass::ClientWrite)
        .await?;
    let (bytes, crcs) = (Bytes::from(vec![1; len]), Bytes::from(vec![2; len / 128]));
    let work = async move {
        let mut at = 0;
        for _ in 0..TOTAL / len as u64 {
            let submit = || {
                (
                    data.write_at(vec![bytes.clone()], at),
                    sums.write_at(vec![crcs.clone()], at / 128),
                )
            };
            let (one, two) = if grouped { together(submit) } else { submit() };
            let (one, two) = tokio::join!(one, two);
            one.result.and(two.result)?;
            at = (at + len as u64) % file_len;
        }
        Ok::<_, hayloft_io::IoError>(())
    };
    tokio::spawn(work).await??;
    engine.meta(IoClass::ClientWrite).unlink(&data_path).await?;
    engine.meta(IoClass::ClientWrite).unlink(&sums_path).await?;
    Ok(())
}

async fn resident_reads(dir: &Path, len: usize) -> Outcome {
    let disk = Disk::for_path(dir, &DiskConfig::default())?;
    let engine = engine_by_name("posix", &EngineConfig::new(Arc::clone(&disk)))?;
    let path = dir.join("handover.read");
    let file = engine
        .open(&path, OpenMode::CreateNew, IoClass::ClientRead)
        .await?;
    let file_len = 64_u64 << 20;
    file.write_at(vec![vec![1; 64 << 20].into()], 0)
        .await
        .result?;
    let work = async move {
        let mut buf = AlignedBuf::unpooled(len);
        let mut at = 0;
        for _ in 0..TOTAL / len as u64 {
            let done = file.read_at(buf, at, len).await;
            done.result?;
            buf = done.buf;
            at = (at + len as u64) % file_len;
        }
        Ok::<_, hayloft_io::IoError>(())
    };
    tokio::spawn(work).await??;
    engine.meta(IoClass::ClientRead).unlink(&path).await?;
    Ok(())
}
