//! What a reader has to know of a row: its peer was not warm, or its last round says something else
//! than its median.

use super::fair::spread::Spread;
use super::fair::stock::is_stock;
use super::figures::Figure;
use super::peers::STOCK;
use super::record::{BenchRecord, MarkReason, RowMark, WarmUp};

/// A last round whose ratio is this far from the median ratio, and worse than every earlier one,
/// contradicts it.
const ASTRAY: f64 = 0.1;
/// The figures whose last round is looked at.
const JUDGED: [Figure; 5] = [
    Figure::Rate,
    Figure::SettledRate,
    Figure::Ops,
    Figure::P99,
    Figure::NodeCpu,
];

/// All marks of a record.
#[must_use]
pub fn of(record: &BenchRecord) -> Vec<RowMark> {
    let cold = record.warm_ups.iter().filter(|warm_up| !warm_up.is_warm());
    let mut marks: Vec<RowMark> = cold.map(not_warm).collect();
    for (workload, client) in record.rows() {
        for peer in record.peers.iter().filter(|peer| !is_stock(peer)) {
            let figures = JUDGED.into_iter();
            marks.extend(figures.filter_map(|figure| {
                let own = record.values(workload, client, peer, figure);
                let stock = record.values(workload, client, STOCK, figure);
                let seen = contradiction(&own, &stock, figure.more_is_better())?;
                Some(RowMark {
                    workload: workload.to_owned(),
                    client,
                    peer: peer.clone(),
                    reason: MarkReason::LastRound,
                    figure: Some(figure),
                    seen,
                })
            }));
        }
    }
    marks
}

fn not_warm(warm_up: &WarmUp) -> RowMark {
    let paces: Vec<String> = warm_up.paces.iter().map(|p| format!("{p:.0}")).collect();
    RowMark {
        workload: warm_up.workload.clone(),
        client: warm_up.client,
        peer: warm_up.peer.clone(),
        reason: MarkReason::NotWarm,
        figure: None,
        seen: paces.join(", "),
    }
}

/// Whether the last of paired rounds is on the other side of 1 than the median ratio, or worse for
/// the one who leads than every round before and [`ASTRAY`] from the median.
fn contradiction(own: &[f64], stock: &[f64], more_is_better: bool) -> Option<String> {
    if own.len() != stock.len() || own.len() < 3 {
        return None;
    }
    // Above 1: the peer is ahead of stock.
    let ahead = |(own, stock): (&f64, &f64)| {
        if more_is_better {
            own / stock
        } else {
            stock / own
        }
    };
    let ratios: Vec<f64> = own.iter().zip(stock).map(ahead).collect();
    let median = Spread::of(ratios.clone())?.median;
    let (last, earlier) = ratios.split_last()?;
    let turned = (last - 1.0) * (median - 1.0) < 0.0;
    let worst = if median >= 1.0 {
        earlier.iter().all(|ratio| last < ratio)
    } else {
        earlier.iter().all(|ratio| last > ratio)
    };
    let astray = worst && (last / median - 1.0).abs() > ASTRAY;
    (turned || astray).then(|| {
        let shown = |ratio: f64| if more_is_better { ratio } else { 1.0 / ratio };
        let (last, median) = (shown(*last), shown(median));
        format!("last {last:.2} of stock's, median {median:.2}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_warm_when_two_rounds_in_a_row_are_alike() {
        let warm = |paces: &[f64]| {
            let paces = paces.to_vec();
            WarmUp {
                paces,
                ..WarmUp::default()
            }
            .is_warm()
        };
        assert!(!warm(&[]) && !warm(&[100.0]) && !warm(&[118.0, 244.0, 342.0]));
        assert!(warm(&[247.0, 354.0, 360.0]) && warm(&[100.0, 96.0]));
    }

    #[test]
    fn a_last_round_that_turns_or_falls_behind_contradicts() {
        let seen = |own: &[f64], stock: &[f64]| contradiction(own, stock, true);
        let level = [100.0; 5];
        assert_eq!(seen(&[200.0, 210.0, 190.0, 205.0, 195.0], &level), None);
        let turned = seen(&[120.0, 110.0, 105.0, 101.0, 95.0], &level).expect("below 1");
        assert!(
            turned.contains("last 0.95 of stock's, median 1.05"),
            "{turned}"
        );
        // A stock node that was still compiling.
        let fell = seen(&[700.0; 5], &[247.0, 354.0, 338.0, 431.0, 477.0]);
        assert!(fell.is_some_and(|text| text.contains("last 1.47")));
        let less_is_better = contradiction(&[0.5, 0.5, 1.1], &[1.0; 3], false);
        assert!(less_is_better.is_some_and(|text| text.contains("last 1.10")));
        assert_eq!(seen(&[200.0, 90.0], &[100.0; 2]), None, "too few to tell");
    }
}
