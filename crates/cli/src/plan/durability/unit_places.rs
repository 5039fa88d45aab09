//! Where the units of a simulated cluster lie.

use std::collections::BTreeSet;

use super::described_cluster::{ClusterCase, Keeping};
use super::events::{PARITY, SimulatedUnit, UnitState};
use super::random::SeededRandom;

/// The units of a cluster, and what they belong to.
#[derive(Clone, Debug, Default)]
pub struct UnitPlaces {
    /// All units.
    pub units: Vec<SimulatedUnit>,
    /// Replicas by block.
    pub blocks: Vec<Vec<u32>>,
    /// Units by parity group.
    pub groups: Vec<Vec<u32>>,
    /// Units by disk, the disks of a node one after the other.
    pub disks: Vec<Vec<u32>>,
}

impl UnitPlaces {
    /// Fills the disks: groups first, then blocks into their free places, `apart` in different
    /// domains.
    pub fn new(
        case: &ClusterCase,
        keeping: &Keeping,
        apart: bool,
        random: &mut SeededRandom,
    ) -> Self {
        let mut places = Self {
            disks: vec![Vec::new(); case.nodes as usize * case.disks as usize],
            ..Self::default()
        };
        let mut free = places.make_groups(case, keeping, random);
        for list in &mut free {
            random.shuffle(list);
        }
        while let Some(block) = fill(case, keeping, apart, &mut free, random) {
            let number = index(places.blocks.len());
            for unit in &block {
                places.units[*unit as usize].block = number;
            }
            places.blocks.push(block);
        }
        // What no block took is not there.
        let spare: BTreeSet<u32> = free.into_iter().flatten().collect();
        for list in places.disks.iter_mut().chain(&mut places.groups) {
            list.retain(|unit| !spare.contains(unit));
        }
        places
    }

    /// Places for replicas by node, in groups whose units lie on different disks.
    fn make_groups(
        &mut self,
        case: &ClusterCase,
        keeping: &Keeping,
        random: &mut SeededRandom,
    ) -> Vec<Vec<u32>> {
        let per_disk = case.used_bytes / case.block_bytes;
        let (units, data) = match keeping.parity {
            Some(shape) => (shape.units(), shape.data()),
            None => (1, 1),
        };
        let on_node = per_disk * f64::from(case.disks);
        let groups = random.rounded(on_node / super::markov_chain::number(units));
        let mut free: Vec<Vec<u32>> = vec![Vec::new(); case.nodes as usize];
        for node in 0..case.nodes {
            for _ in 0..groups {
                let disks = random.several(case.disks, units);
                let group = index(self.groups.len());
                let mut members = Vec::new();
                for (at, disk) in disks.into_iter().enumerate() {
                    let unit = index(self.units.len());
                    members.push(unit);
                    self.disks[(node * case.disks + disk) as usize].push(unit);
                    self.units.push(SimulatedUnit {
                        block: PARITY,
                        node,
                        group,
                        state: UnitState::Whole,
                        noticed: false,
                        age: 0,
                    });
                    if at < data {
                        free[node as usize].push(unit);
                    }
                }
                self.groups.push(members);
            }
        }
        free
    }
}

/// Places for the replicas of one more block: of nodes by how much room they have, so that all
/// fill up together.
fn fill(
    case: &ClusterCase,
    keeping: &Keeping,
    apart: bool,
    free: &mut [Vec<u32>],
    random: &mut SeededRandom,
) -> Option<Vec<u32>> {
    let mut nodes: Vec<u32> = Vec::new();
    for _ in 0..keeping.replicas {
        let domain = |node: u32| node % case.domains;
        let allowed: Vec<u32> = (0..case.nodes)
            .filter(|node| !nodes.contains(node) && !free[*node as usize].is_empty())
            .filter(|node| {
                !apart || case.domains == 1 || nodes.iter().all(|n| domain(*n) != domain(*node))
            })
            .collect();
        let most = allowed.iter().map(|n| free[*n as usize].len()).max()?;
        let roomy: Vec<u32> = allowed
            .into_iter()
            .filter(|node| free[*node as usize].len() * 8 >= most * 7)
            .collect();
        nodes.push(roomy[random.below(roomy.len())]);
    }
    nodes
        .iter()
        .map(|node| free[*node as usize].pop())
        .collect()
}

/// The number of a unit or a block.
pub fn index(number: usize) -> u32 {
    u32::try_from(number).expect("a small cluster")
}
