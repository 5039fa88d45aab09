//! `hayloft-lab disk`: carries a modelled disk until it is told to stop.

use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use hayloft_console::progress::ProgressStep;
use hayloft_console::size;
use hayloft_testkit::modelled::{self, Carried, HostedDisk, HostedFileSystem, Params, Stats};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use crate::error::LabError;

/// `hayloft-lab disk`.
#[derive(Debug, Args)]
pub struct DiskArgs {
    /// Where to mount it; created if it is not there.
    dir: PathBuf,
    /// Size of the disk. Its bytes are kept in a sparse file.
    #[arg(long, value_name = "SIZE", default_value = "20GiB", value_parser = size::parse)]
    size: u64,
    /// File system on it.
    #[arg(long, value_enum, default_value_t = Fs::Ext4)]
    fs: Fs,
    /// The sparse file [default: beside DIR].
    #[arg(long, value_name = "FILE")]
    backing: Option<PathBuf>,
    /// Sequential reading, MB/s [default: 105].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    read_mbs: Option<u64>,
    /// Sequential writing, MB/s [default: 95].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    write_mbs: Option<u64>,
    /// Average seek, microseconds [default: 8500].
    #[arg(long, value_name = "US")]
    seek: Option<u64>,
    /// Turns a minute [default: 7200].
    #[arg(long)]
    rpm: Option<u64>,
    /// Requests among which the drive chooses; 1 is a drive without command queueing [default: 32].
    #[arg(long, value_name = "N")]
    depth: Option<usize>,
    /// All parameters of the drive, as the JSON that --json prints; the others go over it.
    #[arg(long, value_name = "JSON", value_parser = params)]
    params: Option<Params>,
    /// Print where it is, and its statistics at the end, as JSON on stdout.
    #[arg(long)]
    json: bool,
    /// End when stdin does: for a parent that may be killed.
    #[arg(long)]
    while_stdin: bool,
}

/// File systems to choose from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Fs {
    /// ext4.
    Ext4,
    /// XFS.
    Xfs,
    /// None: it is not mounted, and others use its device.
    Raw,
}

fn params(text: &str) -> Result<Params, String> {
    serde_json::from_str(text).map_err(|e| e.to_string())
}

impl DiskArgs {
    fn disk(&self) -> HostedDisk {
        let mut params = self.params.unwrap_or_default();
        if let Some(read) = self.read_mbs {
            params.read_bytes_s = read * 1_000_000;
        }
        if let Some(write) = self.write_mbs {
            params.write_bytes_s = write * 1_000_000;
        }
        if let Some(seek) = self.seek {
            params.seek_average_us = seek;
            params.seek_shortest_us = params.seek_shortest_us.min(seek);
        }
        params.rpm = self.rpm.unwrap_or(params.rpm);
        params.queue_depth = self.depth.unwrap_or(params.queue_depth);
        HostedDisk {
            size: self.size,
            file_system: match self.fs {
                Fs::Ext4 => HostedFileSystem::Ext4,
                Fs::Xfs => HostedFileSystem::Xfs,
                Fs::Raw => HostedFileSystem::Raw,
            },
            params,
            dir: self.dir.clone(),
            backing: self.backing.clone(),
        }
    }
}

/// Mounts the disk, says so, waits, takes it down.
pub fn run(args: &DiskArgs) -> Result<ExitCode, LabError> {
    sweep()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| LabError::new(format!("cannot start: {error}"), "", ""))?;
    let signals = {
        let _context = runtime.enter();
        // Before anything is mounted: a signal then ends the wait below instead of the process.
        signal(SignalKind::terminate()).and_then(|t| Ok((t, signal(SignalKind::interrupt())?)))
    };
    let (mut terminate, mut interrupt) = signals
        .map_err(|error| LabError::new(format!("cannot listen for signals: {error}"), "", ""))?;
    let step = ProgressStep::spinner(format!("making a modelled disk at {}", args.dir.display()));
    let carried = Carried::start(&args.disk())?;
    step.done(&carried.place().device.display().to_string());
    announce(args, &carried)?;
    let (ended, mut end) = oneshot::channel();
    if args.while_stdin {
        std::thread::spawn(move || {
            // Whatever comes is of no interest; an error is an end too.
            let _ = std::io::copy(&mut std::io::stdin().take(u64::MAX), &mut std::io::sink());
            let _ = ended.send(());
        });
    }
    runtime.block_on(async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = &mut end, if args.while_stdin => {}
        }
    });
    let stats = carried.stop()?;
    tell(args, &stats)?;
    Ok(ExitCode::SUCCESS)
}

/// Takes down what killed processes left.
pub fn sweep() -> Result<ExitCode, LabError> {
    let (freed, stuck) = modelled::sweep()?;
    for dir in &freed {
        eprintln!("hayloft: took down a leftover at {}", dir.display());
    }
    for error in &stuck {
        eprintln!("hayloft: warning: a leftover stays: {error}");
    }
    Ok(if stuck.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(crate::error::FINDING)
    })
}

fn announce(args: &DiskArgs, carried: &Carried) -> Result<(), LabError> {
    let place = carried.place();
    if args.json {
        return print(&serde_json::to_string(place));
    }
    eprintln!(
        "hayloft: a modelled disk of {} is at {} (statistics in {}); Ctrl-C takes it down",
        size::show(place.size),
        place.dir.display(),
        place.stats.display(),
    );
    Ok(())
}

fn tell(args: &DiskArgs, stats: &Stats) -> Result<(), LabError> {
    if args.json {
        // The caller may be gone.
        let _ = print(&serde_json::to_string(stats));
        return Ok(());
    }
    eprintln!(
        "hayloft: modelled disk: {} reads, {} writes, {} seeks, runs of {}, busy {:.0} % of {:.0} \
            s",
        stats.read.requests,
        stats.write.requests,
        stats.seeks,
        size::show(stats.run_mean_bytes),
        stats.utilisation * 100.0,
        stats.seconds,
    );
    if stats.late > 0 {
        eprintln!(
            "hayloft: warning: {} requests were answered late, by up to {:.0} ms: this machine \
                was too busy for the model",
            stats.late, stats.late_worst_ms,
        );
    }
    Ok(())
}

fn print(json: &serde_json::Result<String>) -> Result<(), LabError> {
    let text = json
        .as_ref()
        .map_err(|e| LabError::new(format!("cannot print: {e}"), "stdout", ""))?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}")
        .and_then(|()| out.flush())
        .map_err(|e| LabError::new(format!("cannot print: {e}"), "stdout", ""))
}
