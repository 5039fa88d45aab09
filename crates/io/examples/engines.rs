//! What writing and reading through an engine gives and costs, in the shape that replicas have.
//!
//! `engines ENGINE DIR WRITERS [MIB] [QUANTUM_KIB] [prealloc|plain] [read]`: each of
//! WRITERS tasks writes files of 128 MiB one after the other, MIB in all. A write has QUANTUM_KIB,
//! made of aligned pieces of 256 KiB. A file is preallocated (or not), cut to its length and
//! dropped at its end. At last everything is synced. With `read`, as many readers read the
//! files back.
//!
//! One line each: MB/s, processor seconds per GiB of this process and of the whole machine.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hayloft_io::{
    AlignedBuf, Disk, DiskConfig, Engine, EngineConfig, IoClass, OpenMode, SyncKind, engine_by_name,
};

const FILE: usize = 128 << 20;
const PIECE: usize = 256 << 10;

type Fail = Box<dyn std::error::Error + Send + Sync>;

struct Plan {
    engine: Arc<dyn Engine>,
    dir: PathBuf,
    writers: usize,
    files: usize,
    quantum: usize,
    preallocate: bool,
}

fn main() -> Result<(), Fail> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let text = |i: usize, default: &str| args.get(i).map_or(default, String::as_str).to_owned();
    let dir = PathBuf::from(text(1, "/tmp"));
    let disk = Disk::for_path(&dir, &DiskConfig::default())?;
    let engine = engine_by_name(&text(0, "posix"), &EngineConfig::new(disk))?;
    let plan = Arc::new(Plan {
        engine,
        dir,
        writers: text(2, "1").parse()?,
        files: (text(3, "1024").parse::<usize>()? << 20).div_ceil(FILE),
        quantum: text(4, "8192").parse::<usize>()? << 10,
        preallocate: text(5, "prealloc") == "prealloc",
    });
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()?;
    let total = plan.writers * plan.files * FILE;
    measure("write", &args, total, || {
        runtime.block_on(each(&plan, write_files))
    })?;
    if text(6, "") == "read" {
        drop_caches();
        measure("read", &args, total, || {
            runtime.block_on(each(&plan, read_files))
        })?;
    }
    for writer in 0..plan.writers {
        for file in 0..plan.files {
            std::fs::remove_file(name(&plan.dir, writer, file))?;
        }
    }
    Ok(())
}

fn name(dir: &Path, writer: usize, file: usize) -> PathBuf {
    dir.join(format!("engines.{}.{writer}.{file}", std::process::id()))
}

/// As root; elsewhere what is cached is read from the cache.
fn drop_caches() {
    let _ = std::fs::write("/proc/sys/vm/drop_caches", "3");
}

async fn each<F>(plan: &Arc<Plan>, work: fn(Arc<Plan>, usize) -> F) -> Result<(), Fail>
where
    F: Future<Output = Result<(), Fail>> + Send + 'static,
{
    let tasks: Vec<_> = (0..plan.writers)
        .map(|i| tokio::spawn(work(Arc::clone(plan), i)))
        .collect();
    for task in tasks {
        task.await??;
    }
    Ok(())
}

async fn write_files(plan: Arc<Plan>, writer: usize) -> Result<(), Fail> {
    let mut piece = AlignedBuf::unpooled(PIECE);
    piece.set_len(PIECE);
    piece.as_mut_slice().fill(7);
    let piece: Bytes = piece.freeze();
    for number in 0..plan.files {
        let path = name(&plan.dir, writer, number);
        let file = plan
            .engine
            .open(&path, OpenMode::CreateNew, IoClass::ClientWrite)
            .await?;
        if plan.preallocate {
            file.allocate(FILE as u64).await?;
        }
        for at in (0..FILE).step_by(plan.quantum) {
            let bufs = vec![piece.clone(); plan.quantum / PIECE];
            file.write_at(bufs, at as u64).await.result?;
        }
        file.truncate(FILE as u64).await?;
        file.sync(SyncKind::Data).await?;
    }
    Ok(())
}

async fn read_files(plan: Arc<Plan>, reader: usize) -> Result<(), Fail> {
    let mut buf = AlignedBuf::unpooled(plan.quantum);
    for number in 0..plan.files {
        let path = name(&plan.dir, reader, number);
        let file = plan
            .engine
            .open(&path, OpenMode::ReadOnly, IoClass::ClientRead)
            .await?;
        let mut at = 0;
        loop {
            let done = file.read_at(buf, at, plan.quantum).await;
            let n = done.result?;
            buf = done.buf;
            at += n as u64;
            if n < plan.quantum {
                break;
            }
        }
    }
    Ok(())
}

/// Processor time of this process so far.
fn own() -> Duration {
    let usage = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(
        u64::try_from(usage.tv_sec).unwrap_or(0),
        u32::try_from(usage.tv_nsec).unwrap_or(0),
    )
}

/// Processor time of the machine so far, without idle, waiting and stolen time, in hundredths.
fn machine() -> u64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = stat.lines().next().unwrap_or_default();
    let numbers: Vec<u64> = line
        .split_whitespace()
        .filter_map(|n| n.parse().ok())
        .collect();
    [0, 1, 2, 5, 6].iter().filter_map(|i| numbers.get(*i)).sum()
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn measure(
    what: &str,
    args: &[String],
    bytes: usize,
    work: impl FnOnce() -> Result<(), Fail>,
) -> Result<(), Fail> {
    let (own_before, machine_before, start) = (own(), machine(), Instant::now());
    work()?;
    let took = start.elapsed().as_secs_f64();
    let gib = bytes as f64 / f64::from(1 << 30);
    println!(
        "{what:5} {:28} {:7.0} MB/s  {:.3} s/GiB own  {:.3} s/GiB machine",
        args.join(" ")
            .replace(args.get(1).map_or("", String::as_str), ""),
        bytes as f64 / 1e6 / took,
        (own() - own_before).as_secs_f64() / gib,
        (machine() - machine_before) as f64 / 100.0 / gib,
    );
    Ok(())
}
