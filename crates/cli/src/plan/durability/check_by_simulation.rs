//! The model against the simulation, where failures are frequent enough to count losses.
//!
//! Real rates lose nothing in any time that can be simulated. So the check raises them, for a small
//! cluster, until losses are frequent. The formulas stay the same, and so does every mechanism.

use serde::Serialize;

use super::described_cluster::{ClusterCase, Keeping, YEAR_SECONDS, hours};
use super::markov_chain::number;
use super::model::{LossForecast, forecast};
use super::simulate::Simulation;

/// Blocks' worth of units on a disk.
const UNITS_A_DISK: f64 = 40.0;
/// Nodes of the small cluster.
const NODES: u32 = 12;
/// Student's t for a two-sided interval of 95 %, for 15 degrees of freedom.
const T_95: f64 = 2.131;
/// How far the model may be from the interval of the simulation, as a part of its own figure.
pub const WITHIN: f64 = 0.2;
/// How many times the events of the simulation the model may say.
const EVENTS_MOST: f64 = 2.0;
/// Runs of each row.
pub const RUNS: u32 = 16;

/// What the simulation counted, beside the model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CheckedRow {
    /// How data is kept.
    pub keeping: Keeping,
    /// Whether no two replicas share a failure domain.
    pub apart: bool,
    /// Seed of the first run; the others follow.
    pub seed: u64,
    /// Years of all runs together.
    pub years: f64,
    /// Blocks lost a year: by the model, by the simulation, and half its 95 % interval.
    pub blocks: (f64, f64, f64),
    /// The same for events that lose at least one block.
    pub events: (f64, f64, f64),
    /// Whether the model's blocks lie in the interval, or miss it by a fifth of themselves at most,
    /// and its events, an upper bound, are not below theirs nor more than twice as many.
    pub agrees: bool,
}

/// A small cluster with raised rates, of the shape that `keeping` needs.
pub fn raised(keeping: &Keeping, domains: u32) -> ClusterCase {
    let disks = keeping.parity.map_or(4, |shape| shape.units() + 2);
    let disks = u32::try_from(disks).unwrap_or(u32::MAX);
    // The more replicas, the more often must they fail.
    let more = f64::from(keeping.replicas.saturating_sub(1).max(1));
    let block_bytes = 1e9;
    let disk_rate = 0.4 * more;
    // A rebuild in a node keeps it busy for a tenth of the time; a copy in the cluster takes days.
    let disk_bytes_s = match keeping.parity {
        Some(_) => {
            let rebuild = 0.1 / (f64::from(disks) * disk_rate);
            UNITS_A_DISK * block_bytes / (rebuild * YEAR_SECONDS)
        }
        None => UNITS_A_DISK * block_bytes / (f64::from(NODES - 1) * 2.0 * 86_400.0),
    };
    ClusterCase {
        nodes: NODES,
        disks,
        domains,
        used_bytes: UNITS_A_DISK * block_bytes,
        block_bytes,
        disk_bytes_s,
        link_bytes_s: f64::INFINITY,
        share: 1.0,
        disk_rate,
        host_rate: 0.1 * more,
        domain_rate: 0.02 * more,
        latent_rate: 0.02 * more,
        scrub: 0.1,
        unprotected: 0.02,
        detect: hours(48.0 * more),
        outages: 0.2,
        outage_loss: 0.05,
    }
}

/// Simulates `years` in all runs, and says what the model says.
///
/// # Errors
/// Those of the model.
pub fn checked(
    case: &ClusterCase,
    keeping: &Keeping,
    apart: bool,
    seed: u64,
    years: f64,
) -> Result<CheckedRow, String> {
    let model: LossForecast = forecast(case, keeping, apart)?;
    let runs = f64::from(RUNS);
    let each = years / runs;
    let (mut blocks, mut events, mut there) = (Vec::new(), Vec::new(), 0.0);
    for run in 0..u64::from(RUNS) {
        let mut simulation = Simulation::new(case, keeping, apart, seed.wrapping_add(run));
        let lost = simulation.run(each);
        there += number(simulation.blocks()) / runs;
        blocks.push(number(usize::try_from(lost.blocks).unwrap_or(0)) / each);
        events.push(number(usize::try_from(lost.events).unwrap_or(0)) / each);
    }
    let rate = model.one_by_one + model.by_domain + model.by_outage;
    let of = |model: f64, counted: &[f64]| {
        let mean = counted.iter().sum::<f64>() / runs;
        let squares: f64 = counted.iter().map(|year| (year - mean).powi(2)).sum();
        (model, mean, T_95 * (squares / (runs - 1.0) / runs).sqrt())
    };
    let (blocks, events) = (of(rate * there, &blocks), of(model.events, &events));
    let off = (blocks.0 - blocks.1).abs();
    let blocks_agree = off <= blocks.2 + blocks.0 * WITHIN;
    let (least, most) = (events.1 - events.2, events.1 + events.2);
    let events_agree = least <= events.0 * (1.0 + WITHIN) && events.0 <= most * EVENTS_MOST;
    Ok(CheckedRow {
        keeping: *keeping,
        apart,
        seed,
        years,
        blocks,
        events,
        agrees: blocks_agree && events_agree,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agrees(keep: &str, domains: u32, apart: bool, years: f64) {
        let keeping = Keeping::parse(keep).expect("a way to keep data");
        let case = raised(&keeping, domains);
        let row = checked(&case, &keeping, apart, 1, years).expect("a cluster that lives");
        assert!(row.agrees && row.blocks.1 > 0.0, "{row:?}");
    }

    #[test]
    fn one_and_two_replicas_as_simulated() {
        agrees("1", 4, true, 160.0);
        agrees("2", 4, true, 320.0);
        agrees("2", 1, true, 160.0);
    }

    #[test]
    fn three_replicas_as_simulated() {
        agrees("3", 4, false, 320.0);
    }

    #[test]
    fn parity_as_simulated() {
        agrees("1x4+2", 4, true, 160.0);
        agrees("2x6+1", 4, false, 240.0);
    }

    #[test]
    fn a_seed_gives_the_same_losses_again() {
        let keeping = Keeping::parse("2").expect("two replicas");
        let case = raised(&keeping, 4);
        let run = |seed| checked(&case, &keeping, true, seed, 48.0).expect("a cluster");
        assert_eq!(run(5), run(5));
        assert_ne!(run(5).blocks, run(50).blocks);
    }

    #[test]
    fn nothing_fails_and_nothing_is_lost() {
        let keeping = Keeping::parse("2x6+1").expect("a way to keep data");
        let case = ClusterCase {
            disk_rate: 0.0,
            host_rate: 0.0,
            domain_rate: 0.0,
            latent_rate: 0.0,
            outages: 0.0,
            ..raised(&keeping, 4)
        };
        let row = checked(&case, &keeping, true, 1, 160.0).expect("a cluster");
        assert_eq!((row.blocks, row.events), ((0.0, 0.0, 0.0), (0.0, 0.0, 0.0)));
    }
}
