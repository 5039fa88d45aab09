//! Where the replicas of all blocks are, by fsck's listing.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use hayloft_testkit::driver::Driver;
use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::class;

/// What fsck says of all blocks below a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Census {
    /// Blocks.
    pub blocks: usize,
    /// Blocks with two replicas in one host although another host has none.
    pub violations: usize,
    /// Fewest replicas of a block.
    pub fewest: usize,
    /// What fsck calls it.
    pub healthy: bool,
    /// Whether fsck finds no block that is placed against the NameNode's own policy.
    pub agreed: bool,
    /// Replicas of every node that has some, by address.
    pub nodes: BTreeMap<String, usize>,
}

impl Census {
    /// Fewest and most replicas of `nodes` nodes.
    pub(super) fn evenness(&self, nodes: usize) -> (usize, usize) {
        let fewest = if self.nodes.len() < nodes {
            0
        } else {
            self.nodes.values().copied().min().unwrap_or(0)
        };
        (fewest, self.nodes.values().copied().max().unwrap_or(0))
    }
}

/// Asks fsck for the blocks below `path`, with `hosts` alive.
///
/// # Errors
/// When fsck does not run.
pub(super) fn census(client: &Driver, path: &str, hosts: usize) -> Result<Census> {
    let arguments = [path, "-files", "-blocks", "-locations"];
    let run = client.tool(class::FSCK, &arguments)?;
    Ok(count(&run.out, hosts))
}

/// Reads fsck's listing. With `hosts` alive, a block is placed wrongly when two of its replicas are
/// in one host while a host has none.
fn count(listing: &str, hosts: usize) -> Census {
    let mut census = Census {
        fewest: usize::MAX,
        healthy: listing.contains("is HEALTHY"),
        agreed: listing.lines().any(|line| {
            let mut words = line.split_whitespace();
            line.contains("Mis-replicated blocks:") && words.nth(2) == Some("0")
        }),
        ..Census::default()
    };
    for line in listing.lines().filter(|line| line.contains("Live_repl=")) {
        let places = line.split("DatanodeInfoWithStorage[").skip(1);
        let mut addresses = Vec::new();
        for node in places.filter_map(|rest| rest.split(',').next()) {
            *census.nodes.entry(node.to_owned()).or_default() += 1;
            addresses.extend(node.split(':').next());
        }
        let apart = addresses.iter().collect::<BTreeSet<_>>().len();
        census.blocks += 1;
        census.fewest = census.fewest.min(addresses.len());
        if apart < addresses.len().min(hosts) {
            census.violations += 1;
        }
    }
    if census.blocks == 0 {
        census.fewest = 0;
    }
    census
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_in_one_host_are_counted() {
        let block = |n: usize, places: &[&str]| {
            let places: Vec<String> = places
                .iter()
                .map(|p| format!("DatanodeInfoWithStorage[{p},DS-1,DISK]"))
                .collect();
            format!(
                "{n}. BP-1:blk_{n}_1 len=4096 Live_repl={}  [{}]\n",
                places.len(),
                places.join(", ")
            )
        };
        let listing = format!(
            "{}{}{} Mis-replicated blocks:\t\t0 (0.0 %)\n The filesystem under path '/' is HEALTHY",
            block(0, &["10.77.0.1:9866", "10.77.0.2:9866"]),
            block(1, &["10.77.0.1:9866", "10.77.0.1:9876"]),
            block(2, &["10.77.0.1:9866", "10.77.0.1:9876", "10.77.0.2:9866"]),
        );
        let all = count(&listing, 3);
        assert_eq!(
            (
                all.blocks,
                all.violations,
                all.fewest,
                all.healthy && all.agreed
            ),
            (3, 2, 2, true)
        );
        assert_eq!(
            count(&listing, 2).violations,
            1,
            "with two hosts left three replicas cannot be apart"
        );
        assert_eq!(all.nodes["10.77.0.1:9866"], 3);
        assert_eq!((all.evenness(3), all.evenness(4)), ((2, 3), (0, 3)));
        assert_eq!(count("", 3), Census::default());
    }
}
