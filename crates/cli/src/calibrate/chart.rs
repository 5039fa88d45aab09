//! The curve as SVG.

use std::path::Path;

use hayloft_console::size;
use hayloft_io::calibrate::{Calibration, RunPoint};
use plotters::prelude::*;

use crate::error::CliError;
use crate::svg::{SVG_SIZE, drawn};

/// Draws bandwidth against run length, reading and writing, and marks the quantum.
pub fn draw(calibration: &Calibration, path: &Path) -> Result<(), CliError> {
    drawn("curve", path, draw_on(calibration, path))
}

fn draw_on(calibration: &Calibration, path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let root = SVGBackend::new(path, SVG_SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let series = |rate: fn(&RunPoint) -> Option<f64>| -> Vec<(f64, f64)> {
        let points = calibration.runs.iter();
        points
            .filter_map(|p| Some((logarithm(p.run_bytes), rate(p)? / 1e6)))
            .collect()
    };
    let (read, write) = (series(|p| p.read_bytes_s), series(|p| p.write_bytes_s));
    let most = read.iter().chain(&write).map(|p| p.1).fold(1.0, f64::max);
    let first = calibration
        .runs
        .first()
        .map_or(16.0, |p| logarithm(p.run_bytes));
    let last = calibration
        .runs
        .last()
        .map_or(27.0, |p| logarithm(p.run_bytes));
    let title = format!(
        "{}: bandwidth against run length between seeks",
        calibration.device
    );
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(first..last.max(first + 1.0), 0.0..most * 1.1)?;
    chart
        .configure_mesh()
        .x_desc("run length")
        .y_desc("MB/s")
        .x_label_formatter(&|x| size::show(power(*x)))
        .draw()?;
    for (name, points, color) in [("read", read, BLUE), ("write", write, RED)] {
        chart
            .draw_series(LineSeries::new(points, color.stroke_width(2)))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], color));
    }
    let quantum = logarithm(calibration.quantum_bytes);
    chart
        .draw_series(LineSeries::new(
            [(quantum, 0.0), (quantum, most * 1.1)],
            BLACK.mix(0.5),
        ))?
        .label(format!("quantum {}", size::show(calibration.quantum_bytes)))
        .legend(|(x, y)| PathElement::new([(x, y), (x + 16, y)], BLACK.mix(0.5)));
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .background_style(WHITE)
        .border_style(BLACK.mix(0.3))
        .draw()?;
    root.present()?;
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "a place on an axis")]
fn logarithm(bytes: u64) -> f64 {
    (bytes.max(1) as f64).log2()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a label between the powers of an axis that ends at 2^40"
)]
fn power(x: f64) -> u64 {
    x.clamp(0.0, 62.0).exp2() as u64
}
