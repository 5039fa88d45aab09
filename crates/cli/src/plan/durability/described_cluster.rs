//! The cluster whose data may be lost, and how it keeps its data.

use std::fmt;

use hayloft_parity::ParityShape;
use serde::Serialize;

/// Hours in a year.
const YEAR_HOURS: f64 = 24.0 * 365.25;
/// Seconds in a year.
pub const YEAR_SECONDS: f64 = 3600.0 * YEAR_HOURS;
/// Most replicas that are planned with.
const REPLICAS_MAX: u32 = 6;
/// Blocks that a stock NameNode gives each node to copy, in each round of
/// `dfs.namenode.redundancy.interval.seconds`: the work multiplier of hdfs-default.xml.
const COPIES_A_ROUND: f64 = 2.0;
/// Seconds of such a round.
const ROUND_SECONDS: f64 = 3.0;

/// How data is kept: replicas on different nodes, each with parity inside its node or without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keeping {
    /// Replicas of a block.
    pub replicas: u32,
    /// Parity groups over the disks of a node.
    pub parity: Option<ParityShape>,
}

impl Keeping {
    /// Reads `3`, or `2x6+1`: two replicas, each in parity groups of six replicas and one parity
    /// file.
    ///
    /// # Errors
    /// What is accepted, in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (replicas, parity) = match text.split_once('x') {
            None => (text, None),
            Some((replicas, shape)) => (replicas, Some(shape)),
        };
        let replicas = replicas.trim().parse::<u32>().ok();
        let replicas = replicas.filter(|count| (1..=REPLICAS_MAX).contains(count));
        let replicas = replicas.ok_or_else(|| {
            format!("must be 1 to {REPLICAS_MAX} replicas such as 3, or with parity such as 2x6+1")
        })?;
        let shape = |text: &str| text.parse().map_err(|error| format!("{error}"));
        let parity = parity.map(shape).transpose()?;
        Ok(Self { replicas, parity })
    }

    /// Bytes on disks for each byte of a file.
    pub fn raw(&self) -> f64 {
        let units = |shape: ParityShape| super::markov_chain::number(shape.units());
        let share = |shape| units(shape) / super::markov_chain::number(shape.data());
        f64::from(self.replicas) * self.parity.map_or(1.0, share)
    }
}

impl fmt::Display for Keeping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.parity {
            None => write!(f, "{}", self.replicas),
            Some(shape) => write!(f, "{}x{shape}", self.replicas),
        }
    }
}

impl Serialize for Keeping {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// A cluster of equal nodes and what fails there. Rates are events a year, times are years.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClusterCase {
    /// Nodes, each on a host of its own.
    pub nodes: u32,
    /// Disks of a node.
    pub disks: u32,
    /// Failure domains of equal size that the nodes stand in, such as racks.
    pub domains: u32,
    /// Bytes in use on a disk, parity included.
    pub used_bytes: f64,
    /// Bytes of a block.
    pub block_bytes: f64,
    /// Bytes a second that one disk moves.
    pub disk_bytes_s: f64,
    /// Bytes a second that the link of a node carries each way.
    pub link_bytes_s: f64,
    /// Share of both that copies and rebuilds get, 0 to 1.
    pub share: f64,
    /// Deaths of a disk.
    pub disk_rate: f64,
    /// Losses of a host with all its data.
    pub host_rate: f64,
    /// Losses of a domain with all its data.
    pub domain_rate: f64,
    /// Latent errors in the bytes of a block.
    pub latent_rate: f64,
    /// Period of the scrub.
    pub scrub: f64,
    /// Share of the data that has no parity yet, 0 to 1.
    pub unprotected: f64,
    /// Time until a loss is noticed.
    pub detect: f64,
    /// Cluster-wide power cuts.
    pub outages: f64,
    /// Share of the nodes that does not come back from one, 0 to 1.
    pub outage_loss: f64,
}

impl ClusterCase {
    /// Refuses what cannot be.
    ///
    /// # Errors
    /// A sentence that says what does not fit.
    pub fn check(&self, keeping: &Keeping) -> Result<(), String> {
        let (replicas, nodes, domains) = (keeping.replicas, self.nodes, self.domains);
        if domains > nodes {
            return Err(format!(
                "{domains} failure domains need as many nodes, and there are {nodes}"
            ));
        }
        if replicas > nodes {
            return Err(format!(
                "{replicas} replicas need as many nodes, and there are {nodes}"
            ));
        }
        if domains > 1 && replicas > domains {
            return Err(format!(
                "{replicas} replicas cannot lie in different domains, since there are {domains}; \
                 --domains 1 plans without domains"
            ));
        }
        if let Some(shape) = keeping.parity {
            let fits = shape.check_disks(usize::try_from(self.disks).unwrap_or(usize::MAX));
            fits.map_err(|error| error.to_string())?;
        }
        if self.used_bytes < self.block_bytes {
            return Err("a disk holds less than one block; lower --block".to_owned());
        }
        Ok(())
    }

    /// All disks.
    pub fn all_disks(&self) -> f64 {
        f64::from(self.nodes) * f64::from(self.disks)
    }

    /// Blocks of the cluster, each counted once for all its replicas.
    pub fn blocks(&self, keeping: &Keeping) -> f64 {
        self.all_disks() * self.used_bytes / self.block_bytes / keeping.raw()
    }

    /// Bytes a year that the nodes copy together, when one of them or one of its disks is lost.
    ///
    /// Every node reads and writes its share, since replicas lie at random: half a disk's bandwidth
    /// is reading. A stock NameNode gives out no more than two blocks a node each three seconds.
    pub fn copied_a_year(&self) -> f64 {
        let disks = f64::from(self.disks) * self.disk_bytes_s / 2.0 * self.share;
        let ordered = COPIES_A_ROUND / ROUND_SECONDS * self.block_bytes;
        let node = disks.min(self.link_bytes_s * self.share).min(ordered);
        f64::from(self.nodes.saturating_sub(1).max(1)) * node * YEAR_SECONDS
    }

    /// Bytes of lost units a year that one node with parity rebuilds.
    ///
    /// A Hayloft node rebuilds one replica after another. So it writes no faster than one disk, and
    /// reads K others meanwhile.
    pub fn rebuilt_a_year(&self, shape: ParityShape) -> f64 {
        let moved = super::markov_chain::number(shape.data() + 1);
        let side_by_side = f64::from(self.disks.saturating_sub(1).max(1)) / moved;
        self.disk_bytes_s * self.share * side_by_side.min(1.0) * YEAR_SECONDS
    }
}

/// A share of years that survive none of an event, as events a year: 1.5 % of disks that fail
/// within a year die at 0.0151 a year.
pub fn rate_of(percent: f64) -> f64 {
    -(-percent / 100.0).ln_1p()
}

/// Hours as years.
pub fn hours(hours: f64) -> f64 {
    hours / YEAR_HOURS
}
