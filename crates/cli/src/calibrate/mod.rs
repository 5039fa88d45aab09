//! `hayloft calibrate`: what a volume's device does, and the settings that follow.
//!
//! - `chart`: the curve as SVG
//! - `report`: a calibration as text

mod chart;
mod report;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use hayloft_console::size;
use hayloft_io::calibrate::{
    Calibration, CalibrationError, Curves, ENGINE_SPACE, EnginePoint, MeasureError, MeasurePlan,
    SPACE_MIN, Scratch, calibration_file, check_space, compare, device_name, measure, propose,
};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::signal::unix::{SignalKind, signal};

use crate::error::{CliError, INTERRUPTED};

/// `hayloft calibrate`.
#[derive(Debug, Args)]
pub struct CalibrateArgs {
    /// A volume: a directory of dfs.datanode.data.dir. Nothing in it is touched.
    dir: PathBuf,
    /// About how long to measure, in seconds.
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Space to use at most while measuring; all of it is freed.
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = size::parse)]
    space: u64,
    /// Measure and report, but write no calibration file.
    #[arg(long)]
    dry_run: bool,
    /// Also draw the curve into this file, as SVG.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Report as JSON on stdout: what the calibration file holds.
    #[arg(long)]
    json: bool,
}

/// Measures, reports, and writes the calibration file.
pub fn run(args: &CalibrateArgs) -> Result<ExitCode, CliError> {
    let dir = args.dir.as_path();
    let space = args.space;
    if space < SPACE_MIN {
        let advice = format!("give at least {}", size::show(SPACE_MIN));
        return Err(CliError::new(
            "too little space to measure on",
            "--space",
            advice,
        ));
    }
    if !dir.is_dir() {
        let advice = "give a directory of dfs.datanode.data.dir";
        return Err(CliError::new(
            "no such directory",
            dir.display().to_string(),
            advice,
        ));
    }
    warn_of_a_node(dir);
    // The engines use their own file beside the measured one.
    let at_once = space + space.min(ENGINE_SPACE);
    check_space(dir, at_once).map_err(|e| measuring(dir, e))?;
    let stop = Arc::new(AtomicBool::new(false));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|error| CliError::new(format!("cannot start: {error}"), "", ""))?;
    watch_signals(&runtime, &stop)?;
    let measured = measure_all(args, &runtime, &stop);
    let (curves, engines) = match measured {
        Err(MeasureError::Interrupted) => {
            eprintln!("hayloft: stopped; everything that was measured on is removed");
            return Ok(ExitCode::from(INTERRUPTED));
        }
        other => other.map_err(|e| measuring(dir, e))?,
    };
    if !curves.direct {
        eprintln!(
            "hayloft: warning: this file system knows no O_DIRECT: the figures are those of \
                memory in part"
        );
    }
    let calibration = conclude(dir, curves, engines)?;
    if let Some(svg) = &args.svg {
        chart::draw(&calibration, svg)?;
    }
    if args.json {
        crate::json::print_json(&calibration)?;
    } else {
        print!("{}", report::text(&calibration));
    }
    if !args.dry_run {
        let path = calibration.write(dir).map_err(|e| unwritten(&e))?;
        eprintln!(
            "hayloft: written to {}; a node uses it from its next start",
            path.display()
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// Everything that touches the disk; it is clean again when this returns, however it returns.
fn measure_all(
    args: &CalibrateArgs,
    runtime: &tokio::runtime::Runtime,
    stop: &AtomicBool,
) -> Result<(Curves, Vec<EnginePoint>), MeasureError> {
    let scratch = Scratch::new(&args.dir).map_err(|source| MeasureError::Io {
        doing: "making a directory to measure in",
        path: args.dir.clone(),
        source,
    })?;
    let plan = MeasurePlan {
        time: Duration::from_secs(args.seconds),
        space: args.space,
    };
    let bar = bar();
    let told = |share: f64, what: &str| {
        bar.set_message(what.to_owned());
        bar.set_position(percent(share));
    };
    let curves = measure(&scratch, &plan, stop, &told)?;
    let named = |engine: &str| told(0.8, &format!("engine {engine}"));
    let rest = plan.time.mul_f64(0.2);
    let engines = runtime.block_on(compare(&scratch, rest, curves.space, stop, &named))?;
    bar.finish_and_clear();
    Ok((curves, engines))
}

fn conclude(
    dir: &Path,
    curves: Curves,
    engines: Vec<EnginePoint>,
) -> Result<Calibration, CliError> {
    let proposal = propose(&curves.runs, &curves.depths, &engines);
    let asking = |e: hayloft_io::IoError| {
        CliError::new(
            format!("cannot tell the device: {e}"),
            dir.display().to_string(),
            "",
        )
    };
    let (file_system, file_system_bytes) = calibration_file::file_system(dir).map_err(asking)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    Ok(Calibration {
        version: calibration_file::VERSION,
        measured_at_s: now.map_or(0, |d| d.as_secs()),
        device: device_name(dir).map_err(asking)?,
        file_system,
        file_system_bytes,
        media: proposal.media,
        quantum_bytes: proposal.quantum_bytes,
        depth: proposal.depth,
        engine: proposal.engine,
        reason: proposal.reason,
        runs: curves.runs,
        depths: curves.depths,
        mixes: curves.mixes,
        engines,
    })
}

/// A node that works while we measure falsifies the figures; that is all it does.
fn warn_of_a_node(dir: &Path) {
    let note = std::fs::read_to_string(dir.join("in_use.lock")).unwrap_or_default();
    let pid = note
        .split('@')
        .next()
        .and_then(|pid| pid.trim().parse::<u32>().ok());
    if pid.is_some_and(|pid| Path::new(&format!("/proc/{pid}")).exists()) {
        eprintln!(
            "hayloft: warning: {} is in use by {}: what it does meanwhile is measured with",
            dir.display(),
            note.trim()
        );
    }
}

/// Sets `stop` at SIGINT and SIGTERM, while the runtime lives.
pub fn watch_signals(
    runtime: &tokio::runtime::Runtime,
    stop: &Arc<AtomicBool>,
) -> Result<(), CliError> {
    let _context = runtime.enter();
    for kind in [SignalKind::interrupt(), SignalKind::terminate()] {
        let mut signal = signal(kind).map_err(|error| {
            CliError::new(format!("cannot listen for signals: {error}"), "", "")
        })?;
        let stop = Arc::clone(stop);
        runtime.spawn(async move {
            signal.recv().await;
            stop.store(true, Ordering::Relaxed);
        });
    }
    Ok(())
}

fn bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(100), ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("  {msg:28} {bar:40} {percent:>3} % {elapsed}")
    {
        bar.set_style(style);
    }
    bar
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of 0 to 1, times 100"
)]
fn percent(share: f64) -> u64 {
    (share.clamp(0.0, 1.0) * 100.0) as u64
}

fn measuring(dir: &Path, error: MeasureError) -> CliError {
    let read_only = matches!(&error, MeasureError::Io { source, .. } if source.kind() == std::io::ErrorKind::ReadOnlyFilesystem);
    let advice = if read_only {
        "the volume is read-only: remount it for writing"
    } else {
        ""
    };
    CliError::new(
        format!("cannot calibrate: {error}"),
        dir.display().to_string(),
        advice,
    )
}

fn unwritten(error: &CalibrationError) -> CliError {
    CliError::new(error.to_string(), "", "")
}
