//! What takes replicas: how often, how many at a time, and for how long.

use hayloft_parity::ParityShape;

use super::described_cluster::{ClusterCase, Keeping, hours};
use super::markov_chain::{UnitChain, number};

/// How many replicas an event takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// One with a latent error, which the scrub finds.
    Latent,
    /// Those of a device.
    All,
    /// Some of a device, by chance.
    Some,
}

/// What takes replicas.
#[derive(Clone, Debug)]
pub struct Cause {
    /// Events of one replica a year.
    pub rate: f64,
    /// Replicas that one event takes.
    pub takes: f64,
    /// Years in which the cluster copies them.
    pub copying: f64,
    /// Years until a replica is there again, on average; set when all causes are known.
    pub absent: f64,
    /// How it takes them.
    pub how: Takes,
}

impl Cause {
    /// Whether it is a latent error.
    pub fn latent(&self) -> bool {
        self.how == Takes::Latent
    }
}

/// Part of the bytes on a disk that is replicas; the rest is parity.
pub fn data_part(keeping: &Keeping) -> f64 {
    f64::from(keeping.replicas) / keeping.raw()
}

/// What takes the replicas of a block.
pub fn causes(case: &ClusterCase, keeping: &Keeping) -> Result<Vec<Cause>, String> {
    let replicas = case.blocks(keeping) * f64::from(keeping.replicas);
    let copied = case.copied_a_year();
    let cause = |rate: f64, takes: f64| Cause {
        rate,
        takes,
        copying: takes * case.block_bytes / copied,
        absent: 0.0,
        how: Takes::All,
    };
    let on_disk = replicas / case.all_disks();
    let on_node = replicas / f64::from(case.nodes);
    let mut causes = match keeping.parity {
        None => vec![
            cause(case.disk_rate, on_disk),
            Cause {
                absent: case.scrub / 2.0,
                how: Takes::Latent,
                ..cause(case.latent_rate, 1.0)
            },
        ],
        Some(shape) => {
            let (by_disks, by_latent) = group_losses(case, shape)?;
            vec![
                cause(by_disks, together(case, shape) * on_disk),
                cause(by_latent, number(shape.parity() + 1) * data_part(keeping)),
                Cause {
                    how: Takes::Some,
                    ..cause(
                        case.disk_rate * case.unprotected,
                        on_disk * case.unprotected,
                    )
                },
            ]
        }
    };
    causes.push(cause(case.host_rate, on_node));
    causes.push(cause(case.domain_rate, replicas / f64::from(case.domains)));
    // What does not come back from a power cut is copied like lost hosts, all at once.
    let burst = (f64::from(case.nodes) * case.outage_loss).max(1.0);
    let cut = cause(case.outages * case.outage_loss, on_node);
    causes.push(Cause {
        copying: cut.copying * burst,
        ..cut
    });
    causes.retain(|cause| cause.rate > 0.0);
    Ok(causes)
}

/// Disks' worth of replicas that a node loses when one disk too many dies: the groups that all
/// those disks share, of which about half are rebuilt by then.
fn together(case: &ClusterCase, shape: ParityShape) -> f64 {
    let others = (1..=shape.parity()).map(|at| {
        let left = f64::from(case.disks) - number(at);
        number(shape.units() - at) / left.max(1.0)
    });
    number(shape.parity() + 1) * others.product::<f64>() / 2.0
}

/// Losses a year of one replica whose parity group lost more than it makes up for: by disks alone,
/// and with a latent error that the rebuild met. Rao, Hafner and Golding ("Reliability for
/// Networked Storage Nodes", DSN 2006) put such an inner chain below the outer one.
fn group_losses(case: &ClusterCase, shape: ParityShape) -> Result<(f64, f64), String> {
    let rebuilding = case.used_bytes / case.rebuilt_a_year(shape);
    let busy = f64::from(case.disks) * case.disk_rate * rebuilding;
    if busy >= 1.0 {
        return Err(format!(
            "a node would rebuild without end: a rebuild takes {:.0} hours and disks die sooner; \
             raise --rebuild-share",
            rebuilding / hours(1.0)
        ));
    }
    // A disk that dies during a rebuild waits for it, as in the queue M/D/1.
    let whole = rebuilding / 2.0 + busy * rebuilding / (2.0 * (1.0 - busy));
    let disks = UnitChain {
        units: shape.units(),
        tolerated: shape.parity(),
        dead: case.disk_rate,
        latent: 0.0,
        found: case.scrub / 2.0,
        whole: vec![whole],
    };
    let all = UnitChain {
        latent: case.latent_rate,
        ..disks.clone()
    };
    // One group that is lost loses M+1 of its units.
    let of_unit = number(shape.parity() + 1) / number(shape.units());
    let by_disks = disks.losses() * of_unit;
    Ok((by_disks, (all.losses() * of_unit - by_disks).max(0.0)))
}

/// Years that a copy waits for those before it, as in the queue M/G/1 (Pollaczek and Khinchine).
pub fn waiting(causes: &[Cause], replicas: f64) -> Result<f64, String> {
    let events = |c: &Cause| c.rate * replicas / c.takes.max(f64::MIN_POSITIVE);
    let copied = causes.iter().filter(|c| !c.latent() && c.takes > 0.0);
    let busy: f64 = copied.clone().map(|c| events(c) * c.copying).sum();
    if busy >= 1.0 {
        return Err(format!(
            "copies would never end: failures ask for {busy:.1} times the bandwidth that they get; \
             raise --rebuild-share"
        ));
    }
    let squares: f64 = copied.map(|c| events(c) * c.copying * c.copying).sum();
    Ok(squares / (2.0 * (1.0 - busy)))
}
