//! `hayloft doctor` on hosts with faults: each is planted on small disks, in control groups and
//! namespaces, or as a file that covers the kernel's.

mod ask;
mod cluster;
mod disk;
mod disks;
mod host;
mod network;
mod thin;

use hayloft_testkit::error::Result;
use hayloft_testkit::{Outcome, Suite, mounts};
use std::process::ExitCode;

/// A case that shares nothing.
type Case = fn() -> Result<Outcome>;

fn main() -> ExitCode {
    mounts::in_own_namespace();
    Suite::run("doctor", |suite| {
        if !suite.may_mount_disks("every_fault_is_found") {
            return Ok(());
        }
        let cases: [(&str, Case); 22] = [
            ("disks_that_are_well_give_nothing", disks::well),
            ("queues_of_devices", disks::queues),
            ("mount_options", disks::options),
            ("files_with_holes", disks::holes),
            ("disks_that_are_given_room_as_they_are_written", disks::thin),
            ("file_systems_that_do_not_fit", disks::file_systems),
            ("errors_that_a_file_system_counted", disks::counted_errors),
            ("two_directories_on_one_disk", disks::twice),
            ("room_that_is_used_up", disks::room),
            ("disks_that_are_not_mounted", disks::not_mounted),
            ("directories_in_odd_places", disks::places),
            ("a_disk_that_hangs", disks::hung),
            ("what_may_not_be_looked_at", disks::not_allowed),
            ("limits_of_processes", host::limits),
            ("limits_of_control_groups", host::control_group),
            ("what_the_kernel_says", host::covered),
            ("shared_memory_that_is_removed", host::remove_ipc),
            ("settings_of_the_network", network::settings),
            ("packets_that_are_cut", network::packets),
            ("a_namenode_out_of_reach", network::far_away),
            ("names_that_lead_elsewhere", network::names),
            ("cards_of_the_network", network::cards),
        ];
        for (name, case) in cases {
            suite.case(name, case);
        }
        let mut on = suite.group(cluster::start, |lab, failed| lab.cluster.conclude(failed));
        on.case("nodes_that_share_a_host", cluster::Lab::shared);
        on.case("blocks_of_another_namenode", cluster::Lab::others_blocks);
        on.case("ports_of_nodes", cluster::Lab::ports);
        on.case("a_clock_that_is_behind", cluster::Lab::clock);
        on.case("a_namenode_that_is_silent", cluster::Lab::silent);
        on.case("a_host_that_is_well", cluster::Lab::well);
        Ok(())
    })
}
