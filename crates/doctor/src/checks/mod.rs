//! The checks: what each finds, what it has to know, and how it judges. A judgement is a pure
//! function of the [`Facts`].

mod clock;
mod cluster;
mod disks;
mod file_system;
mod kernel;
mod limits;
mod memory;
mod network;
mod virtual_disks;
mod volumes;

use crate::facts::Facts;
use crate::finding::{Severity, Verdicts};

/// What a check has to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// The data directories and what is below them.
    Volumes,
    /// A write trial in each of them.
    Trial,
    /// The kernel's files on the host.
    Host,
    /// Sockets, names and the NameNodes.
    Network,
}

/// One kind of fault.
#[derive(Debug)]
pub struct HostCheck {
    /// Its name.
    pub name: &'static str,
    /// What it finds.
    pub finds: &'static str,
    /// The worst that it may say.
    pub worst: Severity,
    /// What it has to know.
    pub needs: &'static [Needs],
    /// Says what is wrong.
    pub judge: fn(&Facts, &mut Verdicts),
}

macro_rules! checks {
    ($($name:literal $worst:ident [$($needs:ident),*] $judge:path: $finds:literal;)*) => {
        /// All checks, in the order in which they report.
        pub const CHECKS: &[HostCheck] = &[$(HostCheck {
            name: $name,
            finds: $finds,
            worst: Severity::$worst,
            needs: &[$(Needs::$needs),*],
            judge: $judge,
        }),*];
    };
}

checks! {
    "directory" Bad [Volumes] volumes::directory:
        "A disk without an answer, a directory in /tmp, absent or closed to the user.";
    "empty-mount-point" Bad [Volumes, Host] volumes::empty_mount_point:
        "A directory whose disk is not mounted.";
    "identity" Bad [Volumes, Network] volumes::identity:
        "Directories of different nodes, a copy of one, another cluster's blocks.";
    "shared-device" Slow [Volumes] volumes::shared_device:
        "Two data directories on one device, or on the root file system.";
    "space" Bad [Volumes] volumes::space:
        "Room or inodes that are nearly used up.";
    "file-system" Bad [Volumes] file_system::kind:
        "Memory, network or overlay file systems, and others that do not fit.";
    "mount-options" Bad [Volumes] file_system::options:
        "Read-only, no barriers, sync, data=journal, access times, discard.";
    "file-system-errors" Bad [Volumes] file_system::errors:
        "Errors that ext4 has counted.";
    "disk-errors" Slow [Volumes] disks::errors:
        "Requests that a disk failed or did not answer.";
    "raid" Bad [Volumes] disks::raid:
        "A degraded array, and arrays that write parity.";
    "write-cache" Bad [Volumes] disks::write_cache:
        "A cache that is off, or that is not flushed.";
    "scheduler" Slow [Volumes] disks::scheduler:
        "An I/O scheduler that does not fit the medium.";
    "read-ahead" Slow [Volumes] disks::read_ahead:
        "A read-ahead of the device that is too short or too long.";
    "request-size" Slow [Volumes] disks::request_size:
        "Requests to the device that must be small.";
    "sparse-disk" Slow [Volumes] virtual_disks::sparse:
        "A virtual disk whose file has holes, or a thin volume.";
    "emulated-disk" Slow [Volumes] virtual_disks::emulated:
        "A disk controller that a hypervisor emulates.";
    "first-write" Slow [Trial] virtual_disks::first_write:
        "First writes that are much slower than the next to the same place.";
    "slow-disk" Slow [Volumes] virtual_disks::slow:
        "What `hayloft calibrate` measured: a slow disk, or another one.";
    "kernel-features" Slow [Trial, Host] kernel::features:
        "O_DIRECT, fallocate, RWF_NOWAIT, cachestat or io_uring missing.";
    "huge-pages" Slow [Host] memory::huge_pages:
        "Transparent huge pages everywhere, or nowhere.";
    "memory" Slow [Host] memory::memory:
        "Swapping, strict overcommit, reclaim by zone, much dirty memory.";
    "open-files" Bad [Host] limits::open_files:
        "A low limit of open files.";
    "locked-memory" Bad [Host] limits::locked_memory:
        "Less lockable memory than the configuration wants.";
    "threads" Bad [Host] limits::threads:
        "Fewer threads than the node wants, by its control groups or its user's limit.";
    "cgroup" Slow [Host] limits::groups:
        "Limits of a control group on processor, memory, disks.";
    "remove-ipc" Slow [Host, Volumes] limits::remove_ipc:
        "systemd removing shared memory when the node's user logs out.";
    "processor" Slow [Host] kernel::processor:
        "Time stolen by a hypervisor, a slow clock source, a saving governor.";
    "clock" Bad [Network] clock::clock:
        "A clock that follows no server, or is far from the NameNode's.";
    "names" Bad [Network] network::names:
        "A host name that does not lead to this host and back.";
    "namenode" Bad [Network] network::namenode:
        "A NameNode that cannot be reached, or only slowly.";
    "data-port" Bad [Network] network::data_ports:
        "Data ports, of this node and of others, that a firewall closes.";
    "mtu" Bad [Network, Host] network::mtu:
        "Large packets that are cut or lost on the way to NameNodes and nodes.";
    "congestion-control" Slow [Host] network::congestion:
        "Congestion control that paces.";
    "tcp-windows" Slow [Host] network::windows:
        "TCP windows too small for the network.";
    "network-card" Slow [Host] network::cards:
        "Emulated cards, half duplex, 100 Mb/s, errors.";
    "ports" Bad [Host, Network, Volumes] network::ports:
        "Ports that others have, or outgoing connections may take; full tables.";
    "shared-hosts" Bad [Network] cluster::shared_hosts:
        "Nodes of one host that the NameNode takes for several.";
}

/// The check of a name.
#[must_use]
pub fn named(name: &str) -> Option<&'static HostCheck> {
    CHECKS.iter().find(|check| check.name == name)
}
