//! Snapshots of a node at replication 1, to a server of S3 and to directories, and back: a stock
//! NameNode and a stock client read what is left of the files.
//!
//! The server is moto's. It checks no signatures unless it is told to, nor the CRC-32C that objects
//! are sent with.

mod cases;
mod lab;
mod service;

use std::process::ExitCode;

use hayloft_testkit::Suite;

fn main() -> ExitCode {
    hayloft_testkit::mounts::in_own_namespace();
    Suite::run("snapshot", |suite| {
        let mut on = suite.group(lab::start, |lab, failed| lab.cluster.conclude(failed));
        on.case("a_lost_node_is_back", cases::a_lost_node_is_back);
        on.case("under_a_new_identity", cases::under_a_new_identity);
        on.case("killed_anywhere", cases::killed_anywhere);
        on.case("missing_and_altered", cases::missing_and_altered);
        on.case("credentials_that_end", cases::credentials_that_end);
        on.case("a_server_that_is_gone", cases::a_server_that_is_gone);
        if hayloft_testkit::mounts::may_mount() {
            on.case("a_full_bucket", cases::a_full_bucket);
        }
        on.case("a_node_by_itself", service::a_node_by_itself);
        on.case(
            "a_running_node_puts_it_back",
            service::a_running_node_puts_it_back,
        );
        on.case(
            "a_node_whose_store_is_missing",
            service::a_node_whose_store_is_missing,
        );
        let mut on = suite.group(lab::start_virtual, |lab, failed| {
            lab.cluster.conclude(failed);
        });
        on.case("of_virtual_nodes", cases::of_virtual_nodes);
        Ok(())
    })
}
