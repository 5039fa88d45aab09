//! A plan as SVG: what reaches the workers against the number of disks.

use std::path::Path;

use plotters::prelude::*;

use super::report::SuperPlan;
use crate::error::CliError;
use crate::svg::{SVG_SIZE, drawn};

/// Points of a curve.
const POINTS: u64 = 64;

/// Draws, for each choice of links, the bandwidth that reaches the workers: it grows with the disks
/// up to what the links carry. Marks the planned number of disks.
pub fn draw(plan: &SuperPlan, path: &Path) -> Result<(), CliError> {
    drawn("plan", path, draw_on(plan, path))
}

fn draw_on(plan: &SuperPlan, path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let root = SVGBackend::new(path, SVG_SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let last = plan.disks.saturating_mul(3).div_ceil(2).max(2);
    let all = megabytes(plan.disk_bytes_s.saturating_mul(last));
    let widest = plan.links.iter().map(|row| megabytes(row.links_bytes_s));
    // A link that no curve reaches would flatten all others.
    let top = widest.fold(0.0, f64::max).min(all).max(1.0) * 1.1;
    let title = format!(
        "A SuperDataNode of disks of {:.0} MB/s",
        megabytes(plan.disk_bytes_s)
    );
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..number(last), 0.0..top)?;
    chart
        .configure_mesh()
        .x_desc("disks")
        .y_desc("MB/s that reach the workers")
        .x_label_formatter(&|x| format!("{x:.0}"))
        .draw()?;
    for (i, row) in plan.links.iter().enumerate() {
        let color = Palette99::pick(i).to_rgba();
        let points = (0..=POINTS).map(|step| {
            let disks = number(last) * number(step) / number(POINTS);
            let feed = disks * megabytes(plan.disk_bytes_s);
            (disks, feed.min(megabytes(row.links_bytes_s)))
        });
        chart
            .draw_series(LineSeries::new(points, color.stroke_width(2)))?
            .label(format!("{}: {} disks", row.links.name(), row.disks_pooled))
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], color));
    }
    let disks = number(plan.disks);
    chart
        .draw_series(LineSeries::new(
            [(disks, 0.0), (disks, top)],
            BLACK.mix(0.5),
        ))?
        .label(format!("{} disks planned", plan.disks))
        .legend(|(x, y)| PathElement::new([(x, y), (x + 16, y)], BLACK.mix(0.5)));
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE)
        .border_style(BLACK.mix(0.3))
        .draw()?;
    root.present()?;
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "a place on an axis")]
fn number(n: u64) -> f64 {
    n as f64
}

fn megabytes(bytes_s: u64) -> f64 {
    number(bytes_s) / 1e6
}
