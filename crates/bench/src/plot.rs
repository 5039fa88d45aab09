//! Plots of a run: bars by workload and peer, as SVG.

use super::figures::Figure;
use super::limits::LIMIT;
use super::record::BenchRecord;
use super::rows::Client;
use hayloft_testkit::error::{Result, TestkitError};
use plotters::prelude::*;
use std::path::Path;

/// File name, figure, title.
const PLOTS: [(&str, Figure, &str); 4] = [
    ("rate.svg", Figure::Rate, "MB/s until the client was done"),
    ("cpu.svg", Figure::NodeCpu, "node CPU seconds per GiB"),
    ("latency.svg", Figure::P99, "p99 latency, microseconds"),
    (
        "request.svg",
        Figure::RequestSize,
        "mean device request, KiB",
    ),
];
/// Colours of the peers, in order: grey for stock, apart for eyes that see few colours.
const COLOURS: [RGBColor; 8] = [
    RGBColor(130, 130, 130),
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(213, 94, 0),
    RGBColor(60, 60, 60),
];
const HEIGHT: u32 = 420;
const WIDTH_MIN: u32 = 640;
/// Pixels for each bar, about.
const BAR_WIDTH: usize = 16;

/// Draws the figures that the run has; names of the files written into `dir`.
///
/// # Errors
/// [`TestkitError::Talk`] when a file cannot be written.
pub(super) fn write(record: &BenchRecord, dir: &Path) -> Result<Vec<String>> {
    let mut written = Vec::new();
    for (name, figure, title) in PLOTS {
        let groups = groups(record, figure);
        if groups.is_empty() {
            continue;
        }
        let path = dir.join(name);
        draw(&path, title, &groups, &record.peers)
            .map_err(|error| TestkitError::Talk(format!("drawing {}: {error}", path.display())))?;
        written.push(name.to_owned());
    }
    Ok(written)
}

/// A row's bars: its name, and a value for each peer that has one.
type Group = (String, Vec<(usize, f64)>);

fn groups(record: &BenchRecord, figure: Figure) -> Vec<Group> {
    let mut groups = Vec::new();
    for (workload, client) in record.rows() {
        if client == Client::None || workload.starts_with("start") {
            continue;
        }
        let peers = record
            .peers
            .iter()
            .enumerate()
            .filter(|(_, peer)| *peer != LIMIT);
        let bars: Vec<(usize, f64)> = peers
            .filter_map(|(index, peer)| {
                let spread = record.spread(workload, client, peer, figure)?;
                Some((index, spread.median))
            })
            .collect();
        if !bars.is_empty() {
            groups.push((format!("{workload}/{}", client.name()), bars));
        }
    }
    groups
}

fn draw(
    path: &Path,
    title: &str,
    groups: &[Group],
    peers: &[String],
) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let slots = peers.len() + 1;
    let bars = groups.len() * slots;
    let width = u32::try_from(bars * BAR_WIDTH)
        .unwrap_or(u32::MAX)
        .clamp(WIDTH_MIN, 4000);
    let values = groups
        .iter()
        .flat_map(|(_, bars)| bars.iter().map(|bar| bar.1));
    let top = values.fold(0.0, f64::max) * 1.08;
    let area = SVGBackend::new(path, (width, HEIGHT)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 18))
        .margin(10)
        .x_label_area_size(60)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..as_f64(bars), 0.0..top.max(f64::MIN_POSITIVE))?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .disable_x_axis()
        .y_labels(6)
        .draw()?;
    for (index, peer) in peers.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let rectangles = groups.iter().enumerate().filter_map(|(group, (_, bars))| {
            let (_, value) = bars.iter().find(|(peer, _)| *peer == index)?;
            let left = as_f64(group * slots + index);
            Some(Rectangle::new(
                [(left, 0.0), (left + 1.0, *value)],
                colour.filled(),
            ))
        });
        chart
            .draw_series(rectangles)?
            .label(peer)
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled()));
    }
    for (group, (name, _)) in groups.iter().enumerate() {
        // On three lines in turn, or long names would run into each other.
        let style = ("sans-serif", 11).into_font();
        let at = chart.backend_coord(&(as_f64(group * slots), 0.0));
        let row = i32::try_from(group % 3).unwrap_or(0);
        area.draw(&Text::new(name.clone(), (at.0, at.1 + 8 + 14 * row), style))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    area.present()?;
    Ok(())
}

fn as_f64(count: usize) -> f64 {
    super::measure::as_f64(count as u64)
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::record;
    use super::*;

    #[test]
    fn draws_what_there_is() {
        let record = record(&[
            ("write-1", Client::Native, "stock", &[(Figure::Rate, 400.0)]),
            ("write-1", Client::Native, "posix", &[(Figure::Rate, 900.0)]),
            ("write-4", Client::Java, "posix", &[(Figure::Rate, 700.0)]),
        ]);
        let dir = tempfile::tempdir().expect("a directory");
        let names = write(&record, dir.path()).expect("drawn");
        assert_eq!(names, ["rate.svg"]);
        let svg = std::fs::read_to_string(dir.path().join("rate.svg")).expect("written");
        for text in ["write-4/java", "stock", "posix"] {
            assert!(svg.contains(text), "{text} is missing");
        }
    }
}
