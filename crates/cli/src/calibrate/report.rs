//! A calibration as text.

use std::fmt::Write as _;

use hayloft_console::size;
use hayloft_io::calibrate::Calibration;

/// Width of the longest bar.
const WIDTH: usize = 40;

/// The curve with bars, the tables, and what follows.
pub fn text(calibration: &Calibration) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "Bandwidth against run length between seeks, on {} ({}), MB/s",
        calibration.device, calibration.file_system
    );
    let rates = calibration.runs.iter();
    let most = rates
        .flat_map(|p| [p.read_bytes_s, p.write_bytes_s])
        .flatten()
        .fold(1.0, f64::max);
    for point in &calibration.runs {
        let run = size::show(point.run_bytes);
        for (name, rate) in [("read", point.read_bytes_s), ("write", point.write_bytes_s)] {
            let Some(rate) = rate else { continue };
            let label = if name == "read" { run.as_str() } else { "" };
            let _ = writeln!(
                out,
                "{label:>9}  {name:5} {:8.1}  {}",
                rate / 1e6,
                bar(rate / most)
            );
        }
    }
    let _ = writeln!(
        out,
        "\nRandom reads of 64 KiB\n    depth      MB/s  median ms     p99 ms"
    );
    for point in &calibration.depths {
        let _ = writeln!(
            out,
            "{:9} {:9.1} {:10.2} {:10.2}",
            point.depth,
            point.bytes_s / 1e6,
            point.median_us / 1e3,
            point.p99_us / 1e3,
        );
    }
    let _ = writeln!(
        out,
        "\nReads and writes of 1 MiB mixed\n   read %      MB/s"
    );
    for point in &calibration.mixes {
        let _ = writeln!(out, "{:9} {:9.1}", point.read_percent, point.bytes_s / 1e6);
    }
    let _ = writeln!(
        out,
        "\nEngines, in sequence\n   engine      read     write  MB/s, processor s/GiB"
    );
    for point in &calibration.engines {
        let _ = writeln!(
            out,
            "{:>9} {:9.1} {:9.1} {:8.2}",
            point.engine,
            point.read_bytes_s / 1e6,
            point.write_bytes_s / 1e6,
            point.cpu_s_per_gib,
        );
    }
    let _ = writeln!(
        out,
        "\nquantum {}, depth {}, engine {}\n{}",
        size::show(calibration.quantum_bytes),
        calibration.depth,
        calibration.engine,
        calibration.reason,
    );
    out
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a share of 0 to 1 of a small width"
)]
fn bar(share: f64) -> String {
    "#".repeat((share.clamp(0.0, 1.0) * WIDTH as f64).round() as usize)
}
