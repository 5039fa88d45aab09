//! NameNodes that fail over, restart and are formatted again; several nameservices at once;
//! addresses of their own for nodes.

mod addresses;
mod federation;
mod pair;

use addresses::own_addresses;
use federation::federation;
use hayloft_testkit::node::Kind;
use hayloft_testkit::{Cluster, Suite};
use pair::Pair;
use std::process::ExitCode;

/// Block size of the clusters' clients, bytes.
const BLOCK: u64 = 1 << 20;
const NODES: usize = 3;

fn main() -> ExitCode {
    Suite::run("ha", |suite| {
        let builder = || Cluster::builder("ha").nodes(NODES, Kind::under_test());
        let mut on = suite.group(
            move || Pair::start(builder()),
            |lab, failed| lab.cluster.conclude(failed),
        );
        on.case("ha_write_and_read", |lab| lab.plain());
        on.case("ha_failover_during_writes", |lab| {
            lab.failover_during_writes()
        });
        on.case("ha_active_killed_during_writes", |lab| lab.active_killed());
        on.case("ha_standby_knows_every_block", |lab| lab.standby_knows());
        on.case("ha_deletes_and_copies_follow_the_active", |lab| {
            lab.commands_follow()
        });
        on.case("ha_node_restarted_while_one_namenode_is_down", |lab| {
            lab.node_restarted()
        });
        on.case("ha_observer_has_every_block", |lab| lab.observer());
        let mut on = suite.group(federation, |lab, failed| lab.cluster.conclude(failed));
        on.case("federation_two_namespaces", |lab| lab.two());
        on.case("federation_one_namenode_down", |lab| lab.one_down());
        on.case("federation_nodes_restarted", |lab| lab.nodes_restarted());
        on.case("federation_block_pool_deleted", |lab| lab.pool_deleted());
        on.case("federation_one_namenode_formatted_again", |lab| {
            lab.formatted()
        });
        on.case("federation_foreign_cluster_is_refused", |lab| lab.foreign());
        let mut on = suite.group(own_addresses, |lab, failed| lab.cluster.conclude(failed));
        on.case("namenode_address_for_nodes", |lab| lab.for_nodes());
        on.case("lifelines_keep_a_node_alive", |lab| lab.lifelines());
        Ok(())
    })
}
