//! Values of a record as text for tables, beside the stock DataNode's.

use super::fair::limit::{self, Limit, Shares};
use super::fair::spread::Spread;
use super::fair::stock::is_stock;
use super::figures::Figure;
use super::marks;
use super::record::{BenchRecord, RowMark};
use super::rows::Client;

/// Why a cell has a dash.
pub(super) const TOO_LITTLE: &str =
    "A dash: the row moved less than 4 GiB, too little to tell processor time.";

/// Values of a record as text, with their marks.
pub(super) struct Cells<'a> {
    pub(super) record: &'a BenchRecord,
    pub(super) marks: Vec<RowMark>,
}

impl<'a> Cells<'a> {
    pub(super) fn new(record: &'a BenchRecord) -> Self {
        Self {
            record,
            marks: marks::of(record),
        }
    }

    /// The value, when it tells something.
    pub(super) fn spread(&self, row: (&str, Client), peer: &str, figure: Figure) -> Option<Spread> {
        let tells = !figure.is_cpu_per_gib() || self.record.moved_enough(row.0, row.1, peer);
        let spread = self.record.spread(row.0, row.1, peer, figure);
        spread.filter(|_| tells)
    }

    /// The value as `text` writes it; a dash for one that tells nothing, empty without one.
    pub(super) fn text(
        &self,
        row: (&str, Client),
        peer: &str,
        figure: Figure,
        text: fn(Spread) -> String,
    ) -> String {
        let measured = self.record.spread(row.0, row.1, peer, figure);
        match self.spread(row, peer, figure) {
            Some(spread) => text(spread) + &self.signs(row, peer, figure),
            None if measured.is_some() => "-".to_owned(),
            None => String::new(),
        }
    }

    /// What was in use in a row. Earlier versions recorded no shares: there the whole machine's
    /// processor time a GiB tells what its rate took.
    pub(super) fn shares(&self, row: (&str, Client), peer: &str) -> Shares {
        let median = |figure| {
            let spread = self.record.spread(row.0, row.1, peer, figure);
            spread.map(|spread| spread.median)
        };
        let cores = self.record.origin.conditions.get("cores");
        let cores = cores.and_then(|cores| cores.parse::<f64>().ok());
        let by_rate = || {
            let rate = median(Figure::SettledRate).or_else(|| median(Figure::Rate))?;
            let gib_s = rate * 1e6 / f64::from(1 << 30);
            Some(median(Figure::MachineCpu)? * gib_s / cores?)
        };
        Shares {
            cpu: median(Figure::CpuShare).or_else(by_rate),
            waited: median(Figure::Waited),
            disk: median(Figure::DiskBusy),
            link: None,
            peer: median(Figure::PeerShare),
            client: median(Figure::ClientShare),
        }
    }

    /// What limited a peer's row.
    pub(super) fn limit(&self, row: (&str, Client), peer: &str) -> Limit {
        self.shares(row, peer).limit()
    }

    /// A peer's value as a share of the better stock setting's, bold where it claims something.
    pub(super) fn share(&self, row: (&str, Client), peer: &str, figure: Figure) -> Option<String> {
        let stock = better_stock(self, row, figure)?;
        let side = |peer| Some((self.spread(row, peer, figure)?, self.shares(row, peer)));
        let lead = limit::lead(side(peer)?, side(stock)?, figure.more_is_better());
        let lead = lead.of_signed(self.record.origin.signed().is_some());
        Some(lead.text(ratio(ahead(self, row, peer, figure)?, figure)))
    }

    fn signs(&self, row: (&str, Client), peer: &str, figure: Figure) -> String {
        let concerns = |mark: &&RowMark| {
            (mark.workload.as_str(), mark.client) == row
                && mark.peer == peer
                && mark.figure.is_none_or(|marked| marked == figure)
        };
        let marks = self.marks.iter().filter(concerns);
        marks.map(|mark| mark.reason.sign()).collect()
    }
}

/// Figures in which a peer can be better or worse than the stock DataNode.
pub(super) const JUDGED: [Figure; 16] = [
    Figure::Rate,
    Figure::SettledRate,
    Figure::Ops,
    Figure::P50,
    Figure::P99,
    Figure::P999,
    Figure::NodeCpu,
    Figure::MachineCpu,
    Figure::MemoryPeak,
    Figure::Balanced,
    Figure::Listening,
    Figure::Reported,
    Figure::ReportSent,
    Figure::StartCpu,
    Figure::MemoryAfter,
    Figure::Deleted,
];

/// How far a peer is ahead of the better of the stock settings: above 1 it is better.
pub(super) fn ahead(
    cells: &Cells<'_>,
    row: (&str, Client),
    peer: &str,
    figure: Figure,
) -> Option<f64> {
    let own = cells.spread(row, peer, figure)?.median;
    let stock = cells
        .spread(row, better_stock(cells, row, figure)?, figure)?
        .median;
    Some(ratio(own / stock, figure)).filter(|ahead| ahead.is_finite())
}

/// The stock setting that does better in a row.
pub(super) fn better_stock<'a>(
    cells: &Cells<'a>,
    row: (&str, Client),
    figure: Figure,
) -> Option<&'a str> {
    let stock = cells.record.peers.iter().filter(|peer| is_stock(peer));
    let goodness = |peer: &&String| {
        let median = cells.spread(row, peer, figure).map(|spread| spread.median);
        median.map(|median| {
            if figure.more_is_better() {
                median
            } else {
                -median
            }
        })
    };
    let measured = stock.filter_map(|peer| Some((goodness(&peer)?, peer.as_str())));
    let best = measured.max_by(|(one, _), (other, _)| one.total_cmp(other));
    best.map(|(_, peer)| peer)
}

/// A ratio to stock's as a lead, and a lead as a ratio.
pub(super) fn ratio(value: f64, figure: Figure) -> f64 {
    if figure.more_is_better() {
        value
    } else {
        1.0 / value
    }
}
