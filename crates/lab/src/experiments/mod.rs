//! Experiments of the papers, one file each: what it asks, how one peer is measured once, what its
//! page shows. [`crate::runner`] carries them out and writes their pages.
//!
//! [`testbeds`] has the hosts of most; [`one_disk`] has what those share that watch one disk.

mod bare_disk;
mod census;
mod degraded;
mod dfsio;
mod domains;
mod durability;
mod fscost;
mod hadiofs;
mod layouts;
mod native;
mod netblock;
mod node_states;
mod one_disk;
mod pairs;
mod parity;
mod pfs;
mod power;
mod remedies;
mod replication_counters;
mod slow_replica;
mod snapshots;
mod streams;
mod super_node;
mod tasks;
mod testbeds;
mod virtual_disks;

use crate::runner::Experiment;

/// All of them, those first that help an operator most.
pub const EXPERIMENTS: [Experiment; 21] = [
    durability::DURABILITY,
    domains::DOMAINS,
    pairs::PAIRS,
    power::POWER,
    slow_replica::SLOW_REPLICA,
    super_node::SUPER,
    tasks::TASKS,
    parity::PARITY,
    degraded::DEGRADED,
    layouts::LAYOUTS,
    layouts::SCALING,
    dfsio::DFSIO,
    netblock::NETBLOCK,
    pfs::PFS,
    native::NATIVE,
    streams::STREAMS,
    bare_disk::BARE_DISK,
    virtual_disks::VIRTUAL_DISKS,
    fscost::FSCOST,
    hadiofs::HADIOFS,
    snapshots::SNAPSHOTS,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::table;

    #[test]
    fn all_tables_can_be_read_and_names_are_unique() {
        for one in EXPERIMENTS {
            let tables = table::parse(one.shown.tables).expect(one.name);
            assert!(
                tables.iter().all(|table| !table.columns.is_empty()),
                "{}",
                one.name
            );
            let same = EXPERIMENTS.iter().filter(|other| other.name == one.name);
            assert_eq!(same.count(), 1, "{}", one.name);
        }
    }
}
