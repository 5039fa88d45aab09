//! What the kernel says of the host, and of the limits of the node that runs there.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::disk::controller;
use crate::seen::{Looked, Texts, text, text_if_any};

/// Between two looks at what the processors do.
const PAUSE: Duration = Duration::from_secs(1);
/// Interfaces that are looked at, at most.
const CARDS_MAX: usize = 256;

/// Files of the kernel's.
const FILES: [&str; 30] = [
    "/proc/sys/vm/swappiness",
    "/proc/sys/vm/overcommit_memory",
    "/proc/sys/vm/zone_reclaim_mode",
    "/proc/sys/vm/dirty_ratio",
    "/proc/sys/vm/dirty_bytes",
    "/proc/swaps",
    "/proc/meminfo",
    "/sys/kernel/mm/transparent_hugepage/enabled",
    "/sys/kernel/mm/transparent_hugepage/defrag",
    "/proc/sys/kernel/io_uring_disabled",
    "/proc/sys/fs/file-max",
    "/proc/sys/fs/file-nr",
    "/proc/sys/net/ipv4/tcp_congestion_control",
    "/proc/sys/net/ipv4/tcp_rmem",
    "/proc/sys/net/ipv4/tcp_wmem",
    "/proc/sys/net/ipv4/tcp_window_scaling",
    "/proc/sys/net/ipv4/tcp_sack",
    "/proc/sys/net/ipv4/ip_local_port_range",
    "/proc/sys/net/ipv4/ip_local_reserved_ports",
    "/proc/sys/net/core/somaxconn",
    "/proc/sys/net/netfilter/nf_conntrack_count",
    "/proc/sys/net/netfilter/nf_conntrack_max",
    "/sys/devices/system/clocksource/clocksource0/current_clocksource",
    "/sys/devices/system/clocksource/clocksource0/available_clocksource",
    "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
    "/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver",
    "/sys/devices/system/cpu/online",
    "/proc/net/route",
    "/etc/fstab",
    "/proc/self/mountinfo",
];

/// The host.
#[derive(Clone, Debug, Default)]
pub struct HostFacts {
    /// Files of the kernel's by their paths.
    pub texts: Texts,
    /// `/proc/stat`, twice.
    pub processors: [String; 2],
    /// Whose limits `limits` has among the texts, in words.
    pub whose: String,
    /// Limits of the control groups that it is in, by their files.
    pub groups: Texts,
    /// Network cards.
    pub cards: Vec<CardFacts>,
    /// What `logind.conf` and its parts say of RemoveIPC; nothing without systemd.
    pub remove_ipc: Option<Looked<String>>,
}

/// A network interface that is up.
#[derive(Clone, Debug, Default)]
pub struct CardFacts {
    /// Its name.
    pub name: String,
    /// Its files in sysfs.
    pub texts: Texts,
    /// Drivers up to its bus; none for one of the kernel's own.
    pub drivers: Vec<String>,
    /// PCI numbers: vendor, device, vendor of the subsystem.
    pub pci: Option<[i64; 3]>,
}

impl HostFacts {
    /// Looks at the host; takes a second. `node`: process of the node, if one runs.
    #[must_use]
    pub fn of(node: Option<u32>) -> Self {
        let process = node.map_or_else(|| "self".to_owned(), |pid| pid.to_string());
        let of_process = |file: &str| PathBuf::from(format!("/proc/{process}/{file}"));
        let stat = || text(Path::new("/proc/stat")).unwrap_or_default();
        let before = stat();
        std::thread::sleep(PAUSE);
        let mut texts = Texts::read(Path::new("/"), &FILES);
        texts.add("limits", text(&of_process("limits")));
        texts.add("status", text(&of_process("status")));
        Self {
            texts,
            processors: [before, stat()],
            whose: match node {
                Some(pid) => format!("the node that runs, process {pid}"),
                None => "processes that are started as this one".to_owned(),
            },
            groups: groups_of(&of_process("cgroup")),
            cards: cards(),
            remove_ipc: remove_ipc(),
        }
    }
}

/// Limits of control groups.
const GROUP_FILES: [&str; 14] = [
    "cpu.max",
    "cpu.stat",
    "memory.max",
    "memory.high",
    "io.max",
    "pids.max",
    "pids.current",
    "cpu.cfs_quota_us",
    "cpu.cfs_period_us",
    "memory.limit_in_bytes",
    "blkio.throttle.read_bps_device",
    "blkio.throttle.write_bps_device",
    "blkio.throttle.read_iops_device",
    "blkio.throttle.write_iops_device",
];

/// The limits of the control groups of a process, up to the first, of both versions.
fn groups_of(cgroup: &Path) -> Texts {
    let mut found = Texts::default();
    let table = text(Path::new("/proc/self/mountinfo")).unwrap_or_default();
    for line in text(cgroup).unwrap_or_default().lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controller), Some(path)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let Some(mount) = mount_of_group(&table, controller) else {
            continue;
        };
        // In a namespace of its own the path may lead above what is mounted.
        let path = path.trim_start_matches('/').trim_start_matches("../");
        let group = mount.join(path);
        for above in group
            .ancestors()
            .take_while(|above| above.starts_with(&mount))
        {
            for name in GROUP_FILES {
                let file = above.join(name);
                if let Ok(Some(text)) = text_if_any(&file) {
                    found.add(file.display().to_string(), Ok(text));
                }
            }
        }
    }
    found
}

/// Where the hierarchy of a controller is mounted; that of version 2 has none in its line.
fn mount_of_group(table: &str, controller: &str) -> Option<PathBuf> {
    let mut points = table.lines().filter_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let mut right = right.split(' ');
        let (kind, options) = (right.next()?, right.nth(1)?);
        let fits = match controller {
            "" => kind == "cgroup2",
            some => kind == "cgroup" && options.split(',').any(|o| some.split(',').any(|c| c == o)),
        };
        fits.then(|| left.split(' ').nth(4).map(PathBuf::from))?
    });
    points.next()
}

fn cards() -> Vec<CardFacts> {
    let files = [
        "operstate",
        "mtu",
        "speed",
        "duplex",
        "carrier",
        "type",
        "statistics/rx_packets",
        "statistics/rx_errors",
        "statistics/rx_crc_errors",
        "statistics/rx_dropped",
        "statistics/tx_packets",
        "statistics/tx_errors",
    ];
    let all = fs::read_dir("/sys/class/net")
        .into_iter()
        .flatten()
        .flatten();
    let cards = all.take(CARDS_MAX).map(|entry| {
        let (drivers, pci) = controller(&entry.path());
        CardFacts {
            name: entry.file_name().to_string_lossy().into_owned(),
            texts: Texts::read(&entry.path(), &files),
            drivers,
            pci,
        }
    });
    let mut cards: Vec<_> = cards
        .filter(|card| card.texts.get("operstate") == Some("up"))
        .collect();
    cards.sort_by(|one, other| one.name.cmp(&other.name));
    cards
}

/// The last word on RemoveIPC, where systemd runs the host.
fn remove_ipc() -> Option<Looked<String>> {
    if !Path::new("/run/systemd/system").is_dir() {
        return None;
    }
    let mut files = Vec::new();
    for dir in ["/usr/lib/systemd", "/etc/systemd", "/run/systemd"] {
        files.push(PathBuf::from(dir).join("logind.conf"));
        let parts = fs::read_dir(PathBuf::from(dir).join("logind.conf.d"));
        let mut parts: Vec<_> = parts
            .into_iter()
            .flatten()
            .flatten()
            .map(|e| e.path())
            .collect();
        parts.sort();
        files.extend(parts);
    }
    let mut all = String::new();
    for file in files {
        match text_if_any(&file) {
            Ok(Some(text)) => all.push_str(&format!("{text}\n")),
            Ok(None) => {}
            Err(why) => return Some(Err(why)),
        }
    }
    Some(Ok(all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_both_versions_are_found() {
        let table = "31 25 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid - cgroup cgroup rw,cpu,\
            cpuacct\n40 25 0:30 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw";
        let point = |controller| mount_of_group(table, controller);
        assert_eq!(
            point("cpu,cpuacct"),
            Some("/sys/fs/cgroup/cpu,cpuacct".into())
        );
        assert_eq!(point(""), Some("/sys/fs/cgroup/unified".into()));
        assert_eq!(point("memory"), None);
    }
}
