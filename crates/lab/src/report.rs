//! What a run gave, as a table and as plots.

use std::path::Path;

use hayloft_bench::fair::spread::Spread;
use hayloft_bench::fair::table::MarkdownTable;
use plotters::prelude::*;

use super::describe::Description;
use super::workload::{WHATS, WorkloadOutcome, WorkloadPhase};
use hayloft_testkit::error::{Result, TestkitError};

/// The phases of one kind.
pub fn phases<'a>(
    outcome: &'a WorkloadOutcome,
    what: &'a str,
) -> impl Iterator<Item = &'a WorkloadPhase> {
    outcome
        .phases
        .iter()
        .filter(move |phase| phase.what == what)
}

/// A table of what a run gave, in Markdown.
#[must_use]
pub fn table(described: &Description, outcome: &WorkloadOutcome) -> String {
    let mut table = MarkdownTable::new(&[
        "",
        "MB/s, all clients",
        "a client",
        "conflicts",
        "disks busy, %",
        "busiest link, MB/s",
        "processors (others)",
        "waited for one",
        "limited by",
    ]);
    for what in WHATS {
        let all: Vec<&WorkloadPhase> = phases(outcome, what).collect();
        let Some(middle) = all.get(all.len() / 2) else {
            continue;
        };
        let spread = |values: Vec<f64>| Spread::of(values).unwrap_or_default();
        let of = |f: &dyn Fn(&WorkloadPhase) -> f64| spread(all.iter().map(|p| f(p)).collect());
        let each = |f: &dyn Fn(&WorkloadPhase) -> Vec<f64>| {
            spread(all.iter().flat_map(|p| f(p)).collect()).text()
        };
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        let busy = |p: &WorkloadPhase| p.disk_busy.iter().map(|busy| busy * 100.0).collect();
        table.row(&[
            what.to_owned(),
            of(&|p| p.mbs).text(),
            each(&|p| p.client_mbs.clone()),
            percent(of(&|p| p.conflicts).median),
            each(&busy),
            of(&WorkloadPhase::link_mbs).median_text(),
            format!(
                "{} ({})",
                percent(of(&|p| p.cpu).median),
                percent(of(&|p| p.cpu_low).median)
            ),
            percent(of(&WorkloadPhase::waited).median),
            middle.shares(described).limit().name().to_owned(),
        ]);
    }
    let mut text = table.text().unwrap_or_default();
    text.push_str(
        "\nMedian (lowest to highest). Conflicts: share of the time in which two \
        streams were on one disk while another had none.\n",
    );
    text.push_str(
        "Processors: in use; in brackets what programs of a lower priority took besides. \
        Waited: threads of clients and nodes for a processor, all together, of the time.\n",
    );
    if described.modelled() {
        text.push_str("Disks are modelled hard disks, not real ones.\n");
        text.push_str(&late(outcome));
    }
    text
}

/// Whether the machine kept up with the model of its disks.
fn late(outcome: &WorkloadOutcome) -> String {
    let seen = || outcome.phases.iter().flat_map(|phase| &phase.model);
    let late: u64 = seen().map(|disk| disk.late).sum();
    let worst = seen().map(|disk| disk.late_worst_ms).fold(0.0, f64::max);
    format!("Answers of the modelled disks more than 2 ms late: {late}, by up to {worst:.0} ms.\n")
}

/// Draws utilisation and writers of every disk over time (SVG).
///
/// # Errors
/// [`TestkitError::Talk`] when the file cannot be written.
pub fn plot(described: &Description, outcome: &WorkloadOutcome, path: &Path) -> Result<()> {
    draw(described, outcome, path)
        .map_err(|e| TestkitError::Talk(format!("drawing {}: {e}", path.display())))
}

fn draw(
    described: &Description,
    outcome: &WorkloadOutcome,
    path: &Path,
) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let until = outcome.samples.last().map_or(1.0, |sample| sample.at);
    let count = outcome.disks.len().max(1);
    let height = u32::try_from(60 + 110 * count)?;
    let root = SVGBackend::new(path, (900, height)).into_drawing_area();
    root.fill(&WHITE)?;
    let modelled = if described.modelled() {
        ", modelled disks"
    } else {
        ""
    };
    let title = format!(
        "{}: disk utilisation (area, %) and streams (line){modelled}",
        described.name
    );
    let root = root.titled(&title, ("sans-serif", 18))?;
    for (at, area) in root.split_evenly((count, 1)).iter().enumerate() {
        let mut chart = ChartBuilder::on(area)
            .margin(4)
            .x_label_area_size(18)
            .y_label_area_size(70)
            .right_y_label_area_size(30)
            .build_cartesian_2d(0.0..until, 0.0..100.0)?
            .set_secondary_coord(0.0..until, 0.0..4.0);
        chart
            .configure_mesh()
            .disable_mesh()
            .y_desc(outcome.disks.get(at).map_or("", String::as_str))
            .y_labels(3)
            .draw()?;
        chart.configure_secondary_axes().y_labels(4).draw()?;
        let disk =
            |sample: &super::sample::Sample| sample.disks.get(at).copied().unwrap_or_default();
        let busy = outcome.samples.iter().map(|s| (s.at, disk(s).busy * 100.0));
        chart.draw_series(AreaSeries::new(busy, 0.0, BLUE.mix(0.25)))?;
        #[expect(clippy::cast_precision_loss, reason = "a few streams")]
        let streams = outcome
            .samples
            .iter()
            .map(|s| (s.at, disk(s).streams() as f64));
        chart.draw_secondary_series(LineSeries::new(streams, &RED))?;
    }
    root.present()?;
    Ok(())
}

/// Writes a file into `dir`, which is made.
///
/// # Errors
/// When it cannot be written.
pub(crate) fn save(dir: &Path, name: &str, text: &str) -> Result<()> {
    std::fs::create_dir_all(dir).map_err(TestkitError::file("creating", dir))?;
    let path = dir.join(name);
    std::fs::write(&path, text).map_err(TestkitError::file("writing", path))
}

/// Writes description, table, plot and raw data of a run into `dir`.
///
/// # Errors
/// When a file cannot be written.
pub fn write(
    described: &Description,
    outcome: &WorkloadOutcome,
    command: &str,
    dir: &Path,
) -> Result<()> {
    let save = |name: &str, text: &str| save(dir, name, text);
    save("testbed.toml", &described.to_toml())?;
    let page = format!(
        "# Testbed {}\n\nCommand: `{command}`\n\n{}\n![disks over time](disks.svg)\n",
        described.name,
        table(described, outcome)
    );
    save("README.md", &page)?;
    let raw = serde_json::to_string(outcome)
        .map_err(|e| TestkitError::Talk(format!("writing figures as JSON: {e}")))?;
    save("run.json", &raw)?;
    plot(described, outcome, &dir.join("disks.svg"))
}

/// A line of a plot: its name and points.
type Line = (String, Vec<(f64, f64)>);

/// Draws MB/s against a number of clients, a line a peer, with what linear growth of the best with
/// the fewest would be (SVG).
///
/// # Errors
/// [`TestkitError::Talk`] when the file cannot be written.
pub fn plot_lines(title: &str, lines: &[Line], path: &Path) -> Result<()> {
    draw_lines(title, lines, path)
        .map_err(|e| TestkitError::Talk(format!("drawing {}: {e}", path.display())))
}

fn draw_lines(
    title: &str,
    lines: &[Line],
    path: &Path,
) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let points = || lines.iter().flat_map(|(_, points)| points);
    let most = points().map(|(x, _)| *x).fold(1.0, f64::max);
    let fewest = points().map(|(x, _)| *x).fold(most, f64::min);
    let first = points().filter(|(x, _)| *x <= fewest);
    let single = first.map(|(_, y)| y / fewest).fold(0.0, f64::max);
    let top = points()
        .map(|(_, y)| *y)
        .fold(single * most, f64::max)
        .max(1.0);
    let root = SVGBackend::new(path, (760, 460)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 20))
        .margin(10)
        .x_label_area_size(36)
        .y_label_area_size(56)
        .build_cartesian_2d(0.0..most * 1.05, 0.0..top * 1.1)?;
    chart
        .configure_mesh()
        .x_desc("clients")
        .y_desc("MB/s, all clients (modelled disks)")
        .draw()?;
    let ends = [(fewest, single * fewest), (most, single * most)];
    chart
        .draw_series(LineSeries::new(ends, BLACK.mix(0.4)))?
        .label("linear")
        .legend(|(x, y)| PathElement::new([(x, y), (x + 18, y)], BLACK.mix(0.4)));
    for (at, (name, points)) in lines.iter().enumerate() {
        let color = Palette99::pick(at).to_rgba();
        let line = LineSeries::new(points.iter().copied(), color.stroke_width(2));
        chart
            .draw_series(line.point_size(3))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .border_style(BLACK)
        .background_style(WHITE.mix(0.8))
        .draw()?;
    root.present()?;
    Ok(())
}
