//! A described cluster on one machine: racks, hosts as network namespaces, shaped links, disks
//! real or modelled, a stock NameNode, storage nodes of either kind, clients where one wants them.
//!
//! [`describe`] reads what shall be, [`net`] makes the hosts and links, [`disks`] the disks,
//! [`up`] starts the processes and takes everything down again, [`sample`] watches disks, links and
//! processors while [`workload`] lets clients write and read, [`report`] says what happened, YARN
//! runs on the hosts when an experiment wants it,
//! [`experiments`] are those of the papers, one file each, [`runner`] carries them out, and
//! [`published`] has the page of the published ones.
//!
//! Needs root, network namespaces, and for modelled disks FUSE and loop devices; [`missing`] says
//! which of these a machine lacks.

mod counters;
pub mod describe;
pub mod disks;
pub mod experiments;
mod mapped;
pub mod net;
mod phase;
pub mod published;
pub mod report;
pub mod runner;
mod running;
pub mod sample;
mod state;
pub mod up;
mod warm;
pub mod workload;
mod yarn;

use std::path::Path;

/// What this machine lacks for a testbed, in words; `None` when nothing. Modelled disks need more
/// than the network does.
#[must_use]
pub fn missing(modelled: bool) -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("root (network namespaces and mounts need it)".into());
    }
    for (tool, package) in [
        ("ip", "iproute2"),
        ("tc", "iproute2"),
        ("nsenter", "util-linux"),
    ] {
        if !in_path(tool) {
            return Some(format!("the program {tool} (Debian package {package})"));
        }
    }
    if !Path::new("/proc/self/ns/net").exists() {
        return Some("network namespaces (the kernel has none)".into());
    }
    if modelled && !Path::new("/dev/fuse").exists() {
        return Some("FUSE (/dev/fuse is not there)".into());
    }
    if modelled && !Path::new("/dev/loop-control").exists() {
        return Some("loop devices (/dev/loop-control is not there)".into());
    }
    net::probe()
        .err()
        .map(|error| format!("shaped links between namespaces ({error})"))
}

/// What this machine lacks for disks that are mapped from host to host.
#[must_use]
pub fn missing_for_mapping() -> Option<String> {
    [("nbdkit", "nbdkit"), ("nbdfuse", "libnbd-bin")]
        .into_iter()
        .find(|(tool, _)| !in_path(tool))
        .map(|(tool, package)| format!("the program {tool} (Debian package {package})"))
}

fn in_path(tool: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(tool).is_file()))
}
