//! How much a cluster loses a year, by formulas.
//!
//! Replicas are lost by disks, hosts and domains that die, by latent errors, and in power cuts.
//! [`UnitChain`] says how often the last replica of a block goes; what one event takes says how
//! many blocks go together.

use serde::Serialize;

use super::at_once::{cut_shares, lost_with_others, shared_domain, some, some_in_outage};
use super::causes::{Cause, Takes, causes, data_part, waiting};
use super::described_cluster::{ClusterCase, Keeping};
use super::markov_chain::UnitChain;

/// Losses a year.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LossForecast {
    /// How data is kept.
    pub keeping: Keeping,
    /// Whether no two replicas share a failure domain.
    pub apart: bool,
    /// Bytes of files, each counted once.
    pub stored_bytes: f64,
    /// Share of all bytes that is lost in a year, and by what.
    pub lost_share: f64,
    /// The part of it that disks, hosts and latent errors take one by one.
    pub one_by_one: f64,
    /// The part of it that a lost domain takes at once.
    pub by_domain: f64,
    /// The part of it that power cuts take.
    pub by_outage: f64,
    /// Events a year that lose at least one block.
    pub events: f64,
    /// Chance that a year loses any data.
    pub any: f64,
    /// Bytes that are lost in a year, on average.
    pub lost_bytes: f64,
    /// Nines of durability: -log10 of the lost share.
    pub nines: Option<f64>,
    /// Share of the blocks that cannot be read while one domain is down.
    pub unreadable: f64,
    /// Hours until the replicas of a dead disk are copied or rebuilt.
    pub disk_hours: f64,
    /// Hours until the replicas of a lost host are copied.
    pub host_hours: f64,
}

/// What is lost of `case` in a year. With `apart` no two replicas share a domain; otherwise they
/// only lie on different nodes.
///
/// # Errors
/// A sentence that says what cannot be, such as copies that take longer than failures leave time.
pub fn forecast(
    case: &ClusterCase,
    keeping: &Keeping,
    apart: bool,
) -> Result<LossForecast, String> {
    case.check(keeping)?;
    let blocks = case.blocks(keeping);
    let replicas = f64::from(keeping.replicas);
    let mut causes = causes(case, keeping)?;
    let waits = waiting(&causes, blocks * replicas)?;
    for cause in causes.iter_mut().filter(|cause| !cause.latent()) {
        cause.absent = case.detect + waits + cause.copying / 2.0;
    }
    let chain = chain(case, keeping, &causes);
    let one_by_one = chain.losses();
    let absent: f64 = causes.iter().map(|c| c.rate * c.absent).sum();
    let absent = absent / (1.0 + absent);
    let mut events = one_by_one_events(case, keeping, apart, &causes, one_by_one, waits);

    let with_others = |shares: &[f64]| lost_with_others(keeping, shares, absent);
    let in_domain = shared_domain(case, keeping, apart);
    let all_of = in_domain.last().copied().unwrap_or(0.0);
    let domains = case.domain_rate * f64::from(case.domains);
    let by_domain = domains * with_others(&in_domain);
    events += domains * some(blocks * with_others(&in_domain));

    let in_cut = cut_shares(case, keeping);
    let by_outage = case.outages * with_others(&in_cut);
    if let Some(all) = in_cut.last() {
        let rest = some(blocks * (with_others(&in_cut) - all));
        events +=
            case.outages * (1.0 - (1.0 - rest) * (1.0 - some_in_outage(case, keeping, apart)));
    }

    let rate = one_by_one + by_domain + by_outage;
    let lost_share = -(-rate).exp_m1();
    let stored_bytes = blocks * case.block_bytes;
    let copied = case.copied_a_year();
    let disk_years = keeping.parity.map_or_else(
        || case.used_bytes / copied + case.detect,
        |shape| case.used_bytes / case.rebuilt_a_year(shape),
    );
    let data = case.used_bytes * data_part(keeping);
    let host_years = case.detect + f64::from(case.disks) * data / copied;
    let forecast = LossForecast {
        keeping: *keeping,
        apart,
        stored_bytes,
        lost_share,
        one_by_one,
        by_domain,
        by_outage,
        events,
        any: -(-events).exp_m1(),
        lost_bytes: lost_share * stored_bytes,
        nines: (lost_share > 0.0).then(|| -lost_share.log10()),
        unreadable: all_of,
        disk_hours: disk_years / super::described_cluster::hours(1.0),
        host_hours: host_years / super::described_cluster::hours(1.0),
    };
    let told = [lost_share, events, disk_years, host_years, all_of];
    match told.iter().all(|number| number.is_finite()) {
        true => Ok(forecast),
        false => {
            Err("these figures are beyond what the formulas can tell: take nearer ones".into())
        }
    }
}

/// Shortest time in years that a copy takes.
const SHORTEST: f64 = 1e-12;

/// The chain of a block. The NameNode copies first what has one replica left: so that copy waits
/// for no queue, and only for what the lost devices share.
fn chain(case: &ClusterCase, keeping: &Keeping, causes: &[Cause]) -> UnitChain {
    let seen = causes.iter().filter(|c| !c.latent());
    let dead: f64 = seen.clone().map(|c| c.rate).sum();
    let mean = |of: &dyn Fn(&Cause) -> f64| {
        let sum: f64 = seen.clone().map(|c| c.rate * of(c)).sum();
        if dead > 0.0 { sum / dead } else { case.detect }
    };
    let others = f64::from(case.nodes.saturating_sub(1).max(1));
    let shared = (f64::from(keeping.replicas - 1) / others).min(1.0);
    let first = mean(&|c: &Cause| c.absent);
    let next = case.detect + mean(&|c: &Cause| c.copying) * shared / 2.0;
    let replicas = usize::try_from(keeping.replicas).unwrap_or(1);
    let mut whole = vec![first.max(SHORTEST); replicas];
    if replicas > 2 {
        whole[replicas - 2] = next.min(first).max(SHORTEST);
    }
    UnitChain {
        units: replicas,
        tolerated: replicas - 1,
        dead,
        latent: causes.iter().filter(|c| c.latent()).map(|c| c.rate).sum(),
        found: case.scrub / 2.0,
        whole,
    }
}

/// Events a year that lose at least one block, one failure after the other.
///
/// Each order of causes has its part of the losses. Where the last event of an order takes n
/// replicas, each of them the last of its block by a chance q, a part of 1 - (1 - q)^n of these
/// events loses any block: replicas lie at random. A disk whose death loses blocks by its parity
/// groups and by replicas without parity counts twice, so that this is an upper bound.
fn one_by_one_events(
    case: &ClusterCase,
    keeping: &Keeping,
    apart: bool,
    causes: &[Cause],
    losses: f64,
    waits: f64,
) -> f64 {
    let blocks = case.blocks(keeping);
    let replicas = keeping.replicas;
    // An order: the product of what it contributes, and the blocks that it loses.
    let mut orders = vec![(1.0, blocks, 0_u32, None)];
    for place in 0..replicas {
        let last = place + 1 == replicas;
        let parts = if apart { case.domains } else { case.nodes };
        let elsewhere = 1.0 - f64::from(place) / f64::from(parts.max(replicas));
        let mut next = Vec::new();
        for (weight, lost, latents, _) in &orders {
            for cause in causes {
                let latents = latents + u32::from(cause.latent());
                if latents > 1 {
                    continue;
                }
                let all = blocks * f64::from(replicas) * elsewhere;
                let weight = weight * cause.rate * if last { 1.0 } else { cause.absent };
                // Of a latent error that is there already: as many as there are at a time.
                let met = if cause.latent() && !last {
                    cause.rate * cause.absent
                } else {
                    cause.takes / all
                };
                let left = if last || cause.latent() {
                    1.0
                } else {
                    cause.absent / (case.detect + waits + cause.copying)
                };
                let lost = lost * f64::from(place + 1) * met * left;
                next.push((weight, lost, latents, Some(cause)));
            }
        }
        orders = next;
    }
    let all: f64 = orders.iter().map(|(weight, ..)| weight).sum();
    let part = |(weight, lost, _, cause): &(f64, f64, u32, Option<&Cause>)| {
        let any = match cause {
            Some(cause) if cause.how == Takes::Latent => *lost,
            // Each of so many replicas is the last one by the same chance.
            Some(cause) if cause.how == Takes::All && cause.takes > 1.0 => {
                let chance = (lost / cause.takes).min(1.0);
                -(cause.takes * (-chance).ln_1p()).exp_m1()
            }
            _ => some(*lost),
        };
        if *lost > 0.0 {
            weight / lost * any
        } else {
            0.0
        }
    };
    if all > 0.0 {
        blocks * losses / all * orders.iter().map(part).sum::<f64>()
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::durability::described_cluster::hours;

    fn case() -> ClusterCase {
        ClusterCase {
            nodes: 100,
            disks: 12,
            domains: 5,
            used_bytes: 11e12,
            block_bytes: 128e6,
            disk_bytes_s: 150e6,
            link_bytes_s: 1.25e9,
            share: 0.05,
            disk_rate: 0.015,
            host_rate: 0.01,
            domain_rate: 0.001,
            latent_rate: 4e-6,
            scrub: 0.1,
            unprotected: 1e-5,
            detect: hours(0.175),
            outages: 1.0,
            outage_loss: 0.005,
        }
    }

    fn disks_alone(case: ClusterCase) -> ClusterCase {
        ClusterCase {
            host_rate: 0.0,
            domain_rate: 0.0,
            latent_rate: 0.0,
            unprotected: 0.0,
            outages: 0.0,
            ..case
        }
    }

    fn lost(case: &ClusterCase, keep: &str) -> LossForecast {
        let keeping = Keeping::parse(keep).expect("a way to keep data");
        forecast(case, &keeping, true).expect("a cluster that lives")
    }

    #[test]
    fn two_replicas_and_raid_5_by_the_known_formulas() {
        let case = disks_alone(case());
        let near = |found: f64, expected: f64| {
            assert!(
                (found / expected - 1.0).abs() < 0.02,
                "{found} is not {expected}"
            );
        };
        // 2 lambda^2 / mu, where a copy takes the detection, the queue and half a disk's copying.
        let copying = case.used_bytes / case.copied_a_year();
        let whole =
            case.detect + copying / 2.0 + case.all_disks() * case.disk_rate * copying.powi(2) / 2.0;
        near(
            lost(&case, "2").lost_share,
            2.0 * case.disk_rate.powi(2) * whole,
        );
        // n (n - 1) lambda^2 / mu of a group, of which a unit has 2 / n: RAID 5.
        let shape = "6+1".parse().expect("a shape");
        let rebuilding = case.used_bytes / case.rebuilt_a_year(shape);
        let busy = 12.0 * case.disk_rate * rebuilding;
        let whole = rebuilding / 2.0 + busy * rebuilding / 2.0;
        near(
            lost(&case, "1x6+1").lost_share,
            12.0 * case.disk_rate.powi(2) * whole,
        );
        near(lost(&case, "1").lost_share, case.disk_rate);
    }

    #[test]
    fn nothing_fails_and_nothing_is_lost() {
        let case = ClusterCase {
            disk_rate: 0.0,
            ..disks_alone(case())
        };
        for keep in ["1", "2", "3", "1x6+1", "2x4+2"] {
            let lost = lost(&case, keep);
            assert_eq!(
                (lost.lost_share, lost.any, lost.nines),
                (0.0, 0.0, None),
                "{keep}"
            );
        }
    }

    #[test]
    fn chances_are_chances_for_any_size() {
        for (nodes, domains) in [(2, 1), (3, 3), (12, 4), (100, 5), (4000, 100), (20_000, 7)] {
            for (block_bytes, outage_loss) in [(128e6, 0.005), (1e9, 0.5), (10e12, 0.0)] {
                let case = ClusterCase {
                    nodes,
                    domains,
                    block_bytes,
                    outage_loss,
                    ..case()
                };
                for keep in ["1", "2", "3", "1x6+1", "2x6+1", "6"] {
                    let keeping = Keeping::parse(keep).expect("a way to keep data");
                    for apart in [true, false] {
                        // Some of these cannot be, and are refused.
                        let Ok(lost) = forecast(&case, &keeping, apart) else {
                            continue;
                        };
                        for chance in [lost.lost_share, lost.any, lost.unreadable] {
                            assert!((0.0..=1.0).contains(&chance), "{case:?} {lost:?}");
                        }
                        assert!(lost.events.is_finite(), "{case:?} {lost:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn power_cuts_by_the_formula_of_copysets() {
        let case = ClusterCase {
            disk_rate: 0.0,
            outages: 1.0,
            outage_loss: 0.01,
            nodes: 5000,
            ..disks_alone(case())
        };
        // The paper's Figure 1: with 1 % of 5,000 nodes lost, three random replicas lose data.
        assert!(lost(&case, "3").any > 0.63, "{:?}", lost(&case, "3"));
        let share = lost(&case, "3").lost_share;
        assert!((share / 1e-6 - 1.0).abs() < 0.1, "{share}");
    }

    #[test]
    fn each_parameter_changes_losses_in_its_direction() {
        let base = case();
        type Change = fn(&mut ClusterCase);
        let worse: [(Change, &[&str]); 11] = [
            (|c| c.disk_rate *= 1.2, &["2", "3", "2x6+1"]),
            (|c| c.host_rate *= 1.2, &["2", "3", "2x6+1"]),
            (|c| c.domain_rate *= 1.2, &["2", "3", "2x6+1"]),
            (|c| c.latent_rate *= 1.2, &["2", "3", "2x6+1"]),
            (|c| c.scrub *= 1.2, &["2", "3", "2x6+1"]),
            (|c| c.unprotected *= 1.2, &["2x6+1", "1x6+1"]),
            (|c| c.detect *= 1.2, &["2", "3", "2x6+1"]),
            (|c| c.share /= 1.2, &["2", "3", "2x6+1"]),
            (|c| c.used_bytes *= 1.2, &["2", "3", "2x6+1"]),
            (|c| c.outages *= 1.2, &["2", "3", "2x6+1"]),
            (|c| c.outage_loss *= 1.2, &["2", "3", "2x6+1"]),
        ];
        for (at, (change, ways)) in worse.iter().enumerate() {
            for keep in *ways {
                let mut changed = base.clone();
                change(&mut changed);
                let (before, after) = (lost(&base, keep), lost(&changed, keep));
                assert!(
                    after.lost_share > before.lost_share,
                    "{at} {keep}: {before:?} {after:?}"
                );
            }
        }
        // More of what protects loses less.
        for (less, more) in [
            ("2", "3"),
            ("2", "2x6+1"),
            ("1x6+1", "1x6+2"),
            ("1x6+1", "2x6+1"),
        ] {
            assert!(
                lost(&base, more).lost_share < lost(&base, less).lost_share,
                "{less} {more}"
            );
        }
        let apart = Keeping::parse("2").expect("two replicas");
        let told = forecast(&base, &apart, true).expect("losses");
        let untold = forecast(&base, &apart, false).expect("losses");
        assert!(told.lost_share < untold.lost_share && told.unreadable < untold.unreadable);
    }

    #[test]
    fn what_cannot_be_is_refused_in_a_sentence() {
        let refused = |change: fn(&mut ClusterCase), keep: &str| {
            let mut case = case();
            change(&mut case);
            forecast(&case, &Keeping::parse(keep).expect("read"), true).expect_err(keep)
        };
        for (change, keep, said) in [
            ((|_| ()) as fn(&mut ClusterCase), "2x12+1", "needs 13 disks"),
            (|c| c.domains = 2, "3", "cannot lie in different domains"),
            (|c| c.nodes = 2, "3", "failure domains need as many nodes"),
            (|c| (c.nodes, c.domains) = (2, 1), "3", "need as many nodes"),
            (|c| c.block_bytes = 1e15, "3", "less than one block"),
            (|c| c.share = 1e-6, "3", "copies would never end"),
            (|c| c.share = 2e-4, "2x6+1", "rebuild without end"),
        ] {
            let found = refused(change, keep);
            assert!(found.contains(said), "{keep}: {found}");
        }
    }
}
