//! What an event takes at once of several nodes: a lost domain, a power cut.

use super::described_cluster::{ClusterCase, Keeping};

/// Chance of at least one where `mean` are to be expected and fall at random.
pub fn some(mean: f64) -> f64 {
    -(-mean).exp_m1()
}

/// Share of the blocks that an event loses which takes 2, 3 and so on up to all of their replicas
/// from these `shares`: the others are gone, each by the chance `absent`, before it or after it.
pub fn lost_with_others(keeping: &Keeping, shares: &[f64], absent: f64) -> f64 {
    let lost = (2..=keeping.replicas).zip(shares).map(|(there, share)| {
        let others = f64::from(keeping.replicas - there);
        share * (others + 1.0) * absent.powf(others)
    });
    lost.sum()
}

/// Shares of the blocks that have 2, 3 and so on up to all replicas in one given domain: drawn from
/// the nodes without putting back. None when replicas lie apart.
pub fn shared_domain(case: &ClusterCase, keeping: &Keeping, apart: bool) -> Vec<f64> {
    let replicas = keeping.replicas;
    let (nodes, domains) = (f64::from(case.nodes), f64::from(case.domains));
    let there = nodes / domains;
    (2..=replicas)
        .map(|inside| {
            if apart && domains > 1.0 {
                return 0.0;
            }
            let ways = choose(f64::from(replicas), inside);
            let inner = (0..inside).map(|at| (there - f64::from(at)).max(0.0));
            let outer = (0..replicas - inside).map(|at| (nodes - there - f64::from(at)).max(0.0));
            let drawn = (0..replicas).map(|at| nodes - f64::from(at));
            ways * inner.product::<f64>() * outer.product::<f64>() / drawn.product::<f64>()
        })
        .collect()
}

/// Shares of the blocks that lose 2, 3 and so on up to all replicas in a power cut, since each node
/// stays away by the same chance.
pub fn cut_shares(case: &ClusterCase, keeping: &Keeping) -> Vec<f64> {
    let replicas = keeping.replicas;
    let share = |gone: u32| {
        let there = (1.0 - case.outage_loss).powf(f64::from(replicas - gone));
        choose(f64::from(replicas), gone) * case.outage_loss.powf(f64::from(gone)) * there
    };
    (2..=replicas).map(share).collect()
}

/// Chance that a power cut alone loses any block: the formula of Cidon and others ("Copysets",
/// USENIX ATC 2013), over the number of nodes that do not come back. Apart, only sets of nodes in
/// different domains hold blocks, and each of them more.
pub fn some_in_outage(case: &ClusterCase, keeping: &Keeping, apart: bool) -> f64 {
    let (nodes, lost, replicas) = (f64::from(case.nodes), case.outage_loss, keeping.replicas);
    if lost <= 0.0 {
        return 0.0;
    }
    let domains = f64::from(case.domains);
    let valid: f64 = (0..replicas)
        .map(f64::from)
        .map(|at| {
            if apart && domains > 1.0 {
                nodes * (1.0 - at / domains) / (nodes - at)
            } else {
                1.0
            }
        })
        .product();
    let hit = valid * some(case.blocks(keeping) / (choose(nodes, replicas) * valid));
    // The binomial distribution, by its logarithm: term by term, so that nothing underflows.
    let mut log = nodes * (-lost).ln_1p();
    let mut chance = 0.0;
    for gone in 0..=case.nodes {
        let sets = choose(f64::from(gone), replicas);
        // No set is hit where there is none, also when each holds a block for certain.
        if sets > 0.0 {
            chance -= log.exp() * (sets * (-hit.min(1.0)).ln_1p()).exp_m1();
        }
        let left = nodes - f64::from(gone);
        log += (left / f64::from(gone + 1)).ln() + lost.ln() - (-lost).ln_1p();
    }
    chance.clamp(0.0, 1.0)
}

/// Binomial coefficient of a small `k`.
fn choose(n: f64, k: u32) -> f64 {
    let factors = (0..k).map(|at| (n - f64::from(at)).max(0.0) / f64::from(at + 1));
    factors.product()
}
