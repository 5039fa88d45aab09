//! The one writer of experiments' pages: what a run's raw data says, as its description shows it.

use std::fmt::Write as _;

use hayloft_bench::fair::limit::{self, Lead};
use hayloft_bench::fair::origin::DataOrigin;
use hayloft_bench::fair::signs;
use hayloft_bench::fair::spread::Spread;
use hayloft_bench::fair::stock::is_stock;
use hayloft_bench::fair::table::MarkdownTable;

use super::record::{Record, SampleKey};
use super::table::{
    self, Axis, Bar, Base, Cell, FigureUnit, PageColumn, Pick, Shown, ShownTable, WantedRatio,
};

/// What the page of an experiment says of its data.
pub struct ExperimentPage<'a> {
    shown: &'a Shown,
    tables: Vec<ShownTable>,
    record: &'a Record,
}

impl<'a> ExperimentPage<'a> {
    /// The page of this data.
    #[must_use]
    pub fn new(shown: &'a Shown, record: &'a Record) -> Self {
        let tables = table::parse(shown.tables).expect("a test reads all tables");
        Self {
            shown,
            tables,
            record,
        }
    }

    /// Where the data is from and how it was made.
    #[must_use]
    pub fn head(&self, since: Option<u32>) -> String {
        let origin: &DataOrigin = &self.record.origin;
        let command = match origin.command.as_str() {
            "" => "The raw data names no command.".to_owned(),
            command => format!("Command: `{command}`"),
        };
        let mut text = format!("{command}\n\n{}\n", origin.line(since));
        for part in [self.record.about.as_str(), &self.conditions()] {
            if !part.is_empty() {
                let _ = writeln!(text, "\n{part}");
            }
        }
        for what in &self.record.left_out {
            let _ = writeln!(text, "\nLeft out: {what}.");
        }
        text
    }

    fn conditions(&self) -> String {
        let all = self.record.origin.conditions.iter();
        let all: Vec<String> = all
            .map(|(name, value)| format!("{name}: {value}"))
            .collect();
        if all.is_empty() {
            return String::new();
        }
        all.join("; ") + "."
    }

    /// Tables, bars and legend; headings of tables have `level` signs.
    #[must_use]
    pub fn body(&self, level: usize) -> String {
        let mut text = String::new();
        let heading = "#".repeat(level);
        for table in &self.tables {
            let Some(lines) = self.table(table) else {
                continue;
            };
            let about = match table.about {
                "" => String::new(),
                about => format!("{about}\n\n"),
            };
            match table.title {
                "" => write!(text, "\n{about}{lines}"),
                title => write!(text, "\n{heading} {title}\n\n{about}{lines}"),
            }
            .unwrap_or_default();
        }
        let wants: String = (self.shown.wants)()
            .iter()
            .filter_map(|want| self.judged(want))
            .collect();
        if !wants.is_empty() {
            let _ = write!(text, "\nWhat was asked for:\n\n{wants}");
        }
        let mut legend = signs::legend(&text);
        if !text.is_empty() && self.shows_leads() {
            let _ = writeln!(legend, "{}", Lead::MEANING);
        }
        if !legend.is_empty() {
            let _ = write!(text, "\n{legend}");
        }
        text
    }

    /// The whole page of a run.
    #[must_use]
    pub fn whole(&self, since: Option<u32>) -> String {
        let plots = self.shown.plots.iter();
        let plots: String = plots
            .map(|plot| format!("\n![{0}]({0}.svg)\n", plot.name))
            .collect();
        let paper = match self.shown.paper {
            "" => String::new(),
            paper => format!("\n## The paper\n\n{paper}\n"),
        };
        format!(
            "# {}\n\n{}{}{plots}{paper}",
            self.shown.title,
            self.head(since),
            self.body(2)
        )
    }

    fn shows_leads(&self) -> bool {
        let lead = |column: &PageColumn| matches!(column.1, Cell::Lead(..));
        let columns = self.tables.iter().flat_map(|table| &table.columns);
        columns.filter(|column| lead(column)).count() > 0
    }

    /// The table, unless the data has nothing for it.
    fn table(&self, table: &ShownTable) -> Option<String> {
        let keys = self.keys(table);
        // A column for which this data has nothing is left out.
        let told = |column: &&PageColumn| {
            matches!(column.1, Cell::Of(_))
                || keys.iter().any(|key| self.cell(key, column.1) != "-")
        };
        let columns: Vec<&PageColumn> = table.columns.iter().filter(told).collect();
        let headings: Vec<&str> = columns.iter().map(|(heading, _)| *heading).collect();
        let mut lines = MarkdownTable::new(&headings);
        for key in &keys {
            let cells: Vec<String> = columns
                .iter()
                .map(|column| self.cell(key, column.1))
                .collect();
            lines.row(&cells);
        }
        lines.text()
    }

    /// The rows of a table, in the order of the data.
    fn keys(&self, table: &ShownTable) -> Vec<SampleKey> {
        let mut keys: Vec<SampleKey> = Vec::new();
        let of_part = |key: &&SampleKey| table.part.is_empty() || key.part == table.part;
        for key in self
            .record
            .samples
            .iter()
            .map(|sample| &sample.key)
            .filter(of_part)
        {
            let keep = |axis, text: &str| match table.by.contains(&axis) {
                true => text.to_owned(),
                false => String::new(),
            };
            let row = SampleKey {
                part: key.part.clone(),
                row: keep(Axis::Row, &key.row),
                peer: keep(Axis::Peer, &key.peer),
                what: keep(Axis::What, &key.what),
            };
            let values = |(_, cell): &PageColumn| {
                !matches!(cell, Cell::Of(_) | Cell::Limit(_)) && self.cell(&row, *cell) != "-"
            };
            if !keys.contains(&row) && table.columns.iter().any(values) {
                keys.push(row);
            }
        }
        if table.by.first() == Some(&Axis::What) {
            // What was done comes first, in the order of the data.
            let whats: Vec<String> = keys.iter().map(|key| key.what.clone()).collect();
            keys.sort_by_key(|key| whats.iter().position(|what| *what == key.what));
        }
        keys
    }

    fn cell(&self, key: &SampleKey, cell: Cell) -> String {
        self.told(key, cell).unwrap_or_else(|| "-".into())
    }

    fn told(&self, key: &SampleKey, cell: Cell) -> Option<String> {
        let record = self.record;
        match cell {
            Cell::Of(axis) => Some(match axis {
                Axis::Part => key.part.clone(),
                Axis::Row => key.row.clone(),
                Axis::Peer => key.peer.clone(),
                Axis::What => key.what.clone(),
            }),
            Cell::Spread(what, figure) => {
                let key = key.doing(what);
                let signs = record.signs(&key, figure).text();
                Some(record.spread(&key, figure)?.text() + &signs)
            }
            Cell::Median(what, figure, unit) => {
                let median = record.spread(&key.doing(what), figure)?.median;
                Some(match unit {
                    FigureUnit::Plain(decimals) => format!("{median:.decimals$}"),
                    FigureUnit::Percent => format!("{:.0} %", median * 100.0),
                    FigureUnit::Mib => format!("{:.1}", median / f64::from(1 << 20)),
                    FigureUnit::Kib => format!("{:.0}", median / 1024.0),
                })
            }
            Cell::Sum(what, figure) => {
                Some(format!("{:.0}", record.sum(&key.doing(what), figure)?))
            }
            Cell::Lost(what, lost, all) => {
                let key = key.doing(what);
                let (lost, all) = (record.sum(&key, lost)?, record.sum(&key, all)?);
                let bold = if lost > 0.0 { "**" } else { "" };
                Some(format!("{bold}{lost:.0}/{all:.0}{bold}"))
            }
            Cell::Share(what, figure, base) => {
                let key = key.doing(what);
                let own = record.spread(&key, figure)?.median;
                let of = self.base(&key, figure, base).filter(|of| *of > 0.0)?;
                Some(format!("{:.0} %", own / of * 100.0))
            }
            Cell::Lead(what, figure) => self.lead(&key.doing(what), figure),
            Cell::Limit(what) => {
                let key = key.doing(what);
                let known = record.samples.iter().any(|sample| sample.key == key);
                known.then(|| record.shares(&key).limit().name().to_owned())
            }
        }
    }

    fn base(&self, key: &SampleKey, figure: &str, base: Base) -> Option<f64> {
        let median = |key: &SampleKey| Some(self.record.spread(key, figure)?.median);
        let in_row = |row: &str| SampleKey {
            row: row.to_owned(),
            ..key.clone()
        };
        match base {
            Base::Peer(peer) => median(&key.by(peer)),
            Base::Cell(row, peer) => median(&in_row(row).by(peer)),
            Base::Row(row) => median(&in_row(row)),
            Base::Linear => {
                let rows = self.record.samples.iter().map(|sample| &sample.key);
                let rows = rows.filter(|other| other.part == key.part && other.peer == key.peer);
                let fewest = rows
                    .filter_map(|other| number(&other.row))
                    .reduce(f64::min)?;
                Some(median(&in_row(&format!("{fewest}")))? / fewest * number(&key.row)?)
            }
        }
    }

    /// The better stock setting beside a figure.
    fn best_stock(&self, key: &SampleKey, figure: &str) -> Option<(SampleKey, Spread)> {
        let beside = self.record.samples.iter().map(|sample| &sample.key);
        let beside = beside.filter(|other| is_stock(&other.peer) && key.by(&other.peer) == **other);
        let told =
            beside.filter_map(|other| Some((other.clone(), self.record.spread(other, figure)?)));
        told.reduce(|best, other| {
            let more = other.1.median > best.1.median;
            if more == more_is_better(figure) {
                other
            } else {
                best
            }
        })
    }

    fn lead(&self, key: &SampleKey, figure: &str) -> Option<String> {
        // Who drops what it is given shows a bound, and wins nothing.
        if is_stock(&key.peer) || key.peer == DROPS {
            return None;
        }
        let own = self.record.spread(key, figure)?;
        let (stock_key, stock) = self.best_stock(key, figure)?;
        let side = |key: &SampleKey, spread| (spread, self.record.shares(key));
        let lead = limit::lead(
            side(key, own),
            side(&stock_key, stock),
            more_is_better(figure),
        );
        let lead = lead.of_signed(self.record.origin.signed().is_some());
        Some(lead.text(own.median / stock.median))
    }

    fn picked(&self, pick: &Pick) -> Option<f64> {
        let Pick(part, row, peer, what, figure) = pick;
        let key = SampleKey::new(part, row, peer, what);
        let spread = match peer.as_str() {
            "stock" => self.best_stock(&key, figure).map(|(_, spread)| spread),
            _ => self.record.spread(&key, figure),
        };
        spread.map(|spread| spread.median)
    }

    /// A line that says whether what was asked for came; nothing where it was not measured.
    fn judged(&self, want: &WantedRatio) -> Option<String> {
        let ratio = self.picked(&want.of)? / self.picked(&want.over)?;
        let (met, asked) = match want.bar {
            Bar::Least(least) => (ratio >= least, format!("at least {least:.2}")),
            Bar::Most(most) => (ratio <= most, format!("at most {most:.2}")),
        };
        let met = match (met, self.record.origin.signed()) {
            (false, _) => "NOT met", // A loss is never hidden; a win needs data that is signed.
            (true, Some(_)) => "met",
            (true, None) => "not judged, as the data is not signed",
        };
        let line = || format!("- {}: {ratio:.2} (asked: {asked}): {met}\n", want.text);
        ratio.is_finite().then(line)
    }

    /// The lines of a plot: a name and its points.
    #[must_use]
    pub fn lines(&self, (what, figure): (&str, &str)) -> Vec<(String, Vec<(f64, f64)>)> {
        let mut lines: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
        for sample in &self.record.samples {
            let key = &sample.key;
            let (Some(x), Some(y)) = (number(&key.row), self.record.spread(key, figure)) else {
                continue;
            };
            if key.what != what {
                continue;
            }
            let at = lines
                .iter()
                .position(|(name, _)| *name == key.peer)
                .unwrap_or_else(|| {
                    lines.push((key.peer.clone(), Vec::new()));
                    lines.len() - 1
                });
            let points = &mut lines[at].1;
            if !points
                .iter()
                .any(|(other, _)| (other - x).abs() < f64::EPSILON)
            {
                points.push((x, y.median));
            }
        }
        lines
    }
}

/// The peer that keeps no data.
const DROPS: &str = "`null`";

/// The number with which a row's name begins.
fn number(row: &str) -> Option<f64> {
    row.split(' ').next()?.parse().ok()
}

/// Whether more of a figure is better: of rates, not of seconds.
fn more_is_better(figure: &str) -> bool {
    ["mbs", "throughput", "average"]
        .iter()
        .any(|rate| figure.ends_with(rate))
}

#[cfg(test)]
mod tests {
    use super::super::record::{PeerFigures, PeerSample};
    use super::super::table::pick;
    use super::*;

    /// Two rounds at these rates and this share of the processors.
    fn rounds(row: &str, peer: &str, mbs: [f64; 2], cpu: f64) -> Vec<PeerSample> {
        let of = |mbs| {
            PeerFigures::of([("mbs", mbs), ("cpu", cpu), ("late", 1.0), ("waited", 0.0)])
                .with("disk_busy", 0.9)
        };
        mbs.map(|mbs| PeerSample::first(("", row, peer, "write"), of(mbs)))
            .to_vec()
    }

    const SHOWN: Shown = Shown {
        title: "Two peers",
        tables: "== Writing =  = row peer\nclients = row\npeer = peer\n\
                 MB/s = spread write/mbs\nof linear = share write/mbs of linear\n\
                 of stock = lead write/mbs\nlate = sum write/late\nlimited by = limit write/\n\
                 read = spread read/mbs\n",
        wants: || {
            vec![WantedRatio {
                text: "two to one".into(),
                of: pick("", "2", "Hayloft", "write", "mbs"),
                over: pick("", "1", "Hayloft", "write", "mbs"),
                bar: Bar::Least(1.85),
            }]
        },
        ..Shown::NOTHING
    };

    #[test]
    fn a_page_has_rows_leads_limits_and_bars() {
        let samples = [
            rounds("1", "stock-sync", [10.0, 11.0], 0.3),
            rounds("1", "stock-behind", [14.0, 15.0], 0.3),
            rounds("1", "Hayloft", [20.0, 21.0], 0.3),
            rounds("2", "stock-sync", [20.0, 22.0], 0.3),
            rounds("2", "Hayloft", [37.0, 40.0], 0.9),
        ];
        let record = Record::signed(samples.concat());
        let page = ExperimentPage::new(&SHOWN, &record);
        let text = page.whole(None);
        for wanted in [
            "# Two peers\n\nThe raw data names no command.\n\nMeasured at `abc`",
            "| clients | peer | MB/s | of linear | of stock | late | limited by |\n",
            "| 1 | stock-sync | 10.5 (10.0-11.0) | 100 % | - | 2 | disk |\n",
            "| 1 | Hayloft | 20.5 (20.0-21.0) | 100 % | **1.41** | 2 | disk |\n",
            "| 2 | Hayloft | 38.5 (37.0-40.0)§ | 94 % | 1.83 | 2 | processor |\n",
            "- two to one: 1.88 (asked: at least 1.85): met\n",
            "\n§ processors limited it",
        ] {
            assert!(text.contains(wanted), "{wanted}\n{text}");
        }
        let lines = page.lines(("write", "mbs"));
        assert_eq!(lines[2], ("Hayloft".into(), vec![(1.0, 20.5), (2.0, 38.5)]));
    }

    #[test]
    fn rows_by_what_was_done_stand_together() {
        let shown = Shown {
            tables: "==  =  = what peer\n = what\nnode = peer\nMB/s = spread /mbs\n",
            ..Shown::NOTHING
        };
        let of =
            |peer, what| PeerSample::first(("", "", peer, what), PeerFigures::of([("mbs", 1.0)]));
        let samples = ["stock", "Hayloft"].map(|peer| [of(peer, "write"), of(peer, "read")]);
        let record = Record {
            samples: samples.concat(),
            ..Record::default()
        };
        let text = ExperimentPage::new(&shown, &record).body(2);
        let rows = "| write | stock | 1.00 |\n| write | Hayloft | 1.00 |\n| read | stock |";
        assert!(text.contains(rows), "{text}");
    }

    #[test]
    fn what_was_not_measured_is_no_row_and_no_verdict() {
        let record = Record::default();
        assert_eq!(ExperimentPage::new(&SHOWN, &record).body(2), "");
    }
}
