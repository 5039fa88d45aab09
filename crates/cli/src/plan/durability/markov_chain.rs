//! Units that stand in for each other, as a Markov chain: how often more of them are gone than the
//! others make up for.

/// Latent errors in one set of units that the chain tells apart. More at a time are so rare that
/// they change no digit that is printed.
const LATENT_MAX: usize = 3;

/// A set of units: the replicas of a block, or the units of a parity group.
///
/// A state is the number of dead units and of those with a latent error. It is the chain of the
/// MTTDL of RAID (Gibson, "Redundant Disk Arrays", 1992; Chen and others, "RAID: High-Performance,
/// Reliable Secondary Storage", ACM Computing Surveys 26, 1994), with latent errors as in Baker and
/// others, "A Fresh Look at the Reliability of Long-term Digital Storage", EuroSys 2006.
///
/// It assumes that units fail independently at constant rates, and that two latent errors never
/// hit the same bytes. So the set is lost when more units than `tolerated` are dead, where one
/// latent error counts like a dead unit, and further ones do not count.
#[derive(Clone, Debug)]
pub struct UnitChain {
    /// Units of the set.
    pub units: usize,
    /// Units that may be gone.
    pub tolerated: usize,
    /// Deaths of one unit a year.
    pub dead: f64,
    /// Latent errors of one unit a year.
    pub latent: f64,
    /// Years until a latent error is found and mended.
    pub found: f64,
    /// Years until a unit is whole again that died as the first, the second, and so on. The last
    /// one holds for all further ones.
    pub whole: Vec<f64>,
}

impl UnitChain {
    /// Losses of the set a year, when a lost set is replaced by a whole one at once.
    ///
    /// The stationary distribution comes from the algorithm of Grassmann, Taksar and Heyman
    /// (Operations Research 33, 1985). It subtracts nothing, so that a chance of 1e-30 keeps its
    /// digits.
    pub fn losses(&self) -> f64 {
        let columns = LATENT_MAX.min(self.units) + 1;
        let count = (self.tolerated + 1) * columns;
        let mut rates = vec![vec![0.0; count]; count];
        let mut lost = vec![0.0; count];
        for dead in 0..=self.tolerated {
            for latent in 0..columns.min(self.units + 1 - dead) {
                let from = dead * columns + latent;
                for (to_dead, to_latent, rate) in self.steps(dead, latent) {
                    if to_dead + to_latent.min(1) > self.tolerated {
                        lost[from] += rate;
                    } else {
                        let to = to_dead * columns + to_latent.min(columns - 1);
                        rates[from][to] += rate;
                    }
                }
                rates[from][0] += lost[from];
            }
        }
        let shares = stationary(rates);
        shares
            .iter()
            .zip(&lost)
            .map(|(share, rate)| share * rate)
            .sum()
    }

    /// Where a state goes, and how often a year.
    fn steps(&self, dead: usize, latent: usize) -> Vec<(usize, usize, f64)> {
        let good = number(self.units - dead - latent);
        let mut steps = vec![
            (dead + 1, latent, good * self.dead),
            (dead, latent + 1, good * self.latent),
        ];
        if latent > 0 {
            steps.push((dead + 1, latent - 1, number(latent) * self.dead));
            steps.push((dead, latent - 1, number(latent) / self.found));
        }
        if dead > 0 {
            let times = (0..dead).map(|at| self.whole[at.min(self.whole.len() - 1)]);
            steps.push((dead - 1, latent, times.map(|years| 1.0 / years).sum()));
        }
        steps
    }
}

/// Shares of time that a chain spends in its states. A state is left for one with a lower number,
/// directly or by others; those that are never entered get 0.
fn stationary(mut rates: Vec<Vec<f64>>) -> Vec<f64> {
    let count = rates.len();
    for last in (1..count).rev() {
        let down: f64 = rates[last][..last].iter().sum();
        for from in 0..last {
            rates[from][last] = if down > 0.0 {
                rates[from][last] / down
            } else {
                0.0
            };
            for to in (0..last).filter(|to| *to != from) {
                rates[from][to] += rates[from][last] * rates[last][to];
            }
        }
    }
    let mut shares = vec![1.0];
    while shares.len() < count {
        let entered = shares.iter().zip(&rates);
        let entered = entered.map(|(share, to)| share * to[shares.len()]);
        shares.push(entered.sum());
    }
    let all: f64 = shares.iter().sum();
    shares.iter().map(|share| share / all).collect()
}

/// A count in a formula.
#[expect(clippy::cast_precision_loss, reason = "counts far below 2^53")]
pub fn number(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(units: usize, tolerated: usize, dead: f64, whole: f64) -> UnitChain {
        UnitChain {
            units,
            tolerated,
            dead,
            latent: 0.0,
            found: 0.05,
            whole: vec![whole],
        }
    }

    fn close(found: f64, expected: f64, within: f64) {
        let off = (found / expected - 1.0).abs();
        assert!(off < within, "{found} is not {expected} within {within}");
    }

    #[test]
    fn known_formulas() {
        let (dead, whole) = (0.01, 0.001);
        // A mirror: MTTDL = (3 lambda + mu) / (2 lambda^2).
        let mttdl = (3.0 * dead + 1.0 / whole) / (2.0 * dead * dead);
        let cycle = 1.0 / chain(2, 1, dead, whole).losses();
        close(cycle, mttdl, 1e-9);
        // RAID 5 of n disks: MTTDL = ((2n - 1) lambda + mu) / (n (n - 1) lambda^2).
        let n = 7.0;
        let mttdl = ((2.0 * n - 1.0) * dead + 1.0 / whole) / (n * (n - 1.0) * dead * dead);
        close(1.0 / chain(7, 1, dead, whole).losses(), mttdl, 1e-9);
        // Three replicas, copied side by side: mu^2 / (3 lambda^3), nearly.
        let mttdl = 1.0 / (whole * whole * 3.0 * dead.powi(3));
        close(1.0 / chain(3, 2, dead, whole).losses(), mttdl, 1e-3);
        // RAID 6 of n disks, nearly: mu 2 mu / (n (n - 1) (n - 2) lambda^3).
        let mttdl = 2.0 / (whole * whole * n * (n - 1.0) * (n - 2.0) * dead.powi(3));
        close(1.0 / chain(7, 2, dead, whole).losses(), mttdl, 1e-2);
        // One replica without parity is lost when it dies.
        close(chain(1, 0, dead, whole).losses(), dead, 1e-9);
    }

    #[test]
    fn a_latent_error_is_met_by_the_next_death() {
        let mut two = chain(2, 1, 0.01, 1e-9);
        two.latent = 1e-6;
        // 2 lambda_latent lambda_dead found, when copies take no time.
        close(two.losses(), 2.0 * 1e-6 * 0.01 * 0.05, 1e-2);
        two.dead = 0.0;
        assert_eq!(two.losses(), 0.0);
    }

    #[test]
    fn nothing_fails_and_nothing_is_lost() {
        assert_eq!(chain(3, 2, 0.0, 0.001).losses(), 0.0);
    }

    #[test]
    fn chances_below_the_smallest_difference_keep_their_digits() {
        let six = chain(6, 5, 1e-4, 1e-5).losses();
        // 6 lambda (lambda tau)^5.
        close(six, 6.0 * 1e-4 * 1e-9_f64.powi(5), 1e-3);
    }

    #[test]
    fn more_failures_or_slower_mending_lose_more() {
        let base = UnitChain {
            units: 7,
            tolerated: 2,
            dead: 0.02,
            latent: 1e-3,
            found: 0.06,
            whole: vec![0.01, 0.005],
        };
        let loses = base.losses();
        let more = |change: fn(&mut UnitChain)| {
            let mut changed = base.clone();
            change(&mut changed);
            assert!(changed.losses() > loses, "{changed:?}");
        };
        more(|c| c.units += 1);
        more(|c| c.tolerated -= 1);
        more(|c| c.dead *= 1.1);
        more(|c| c.latent *= 1.1);
        more(|c| c.found *= 1.1);
        more(|c| c.whole[0] *= 1.1);
        more(|c| c.whole[1] *= 1.1);
    }
}
