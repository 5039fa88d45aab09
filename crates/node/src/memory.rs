//! How much memory there is, and how much of it the node takes where the operator does not say.

use std::path::{Path, PathBuf};

const MIB: u64 = 1 << 20;

/// The node takes one part in so many of a small machine.
const SHARE: u64 = 32;
/// At least this, bytes.
const LEAST: u64 = 32 * MIB;
/// At most this, bytes: 32 buffers of a MiB for writers, and twice as much for readers. What is on
/// its way to a disk waits for the disk, so more gains writers nothing.
const MOST: u64 = 96 * MIB;

/// Memory that this process and its page cache may use, in bytes: that of the machine, or of the
/// control group where that has less.
#[must_use]
pub fn usable() -> u64 {
    let all = rustix::system::sysinfo();
    let unit = u64::from(all.mem_unit.max(1));
    let physical: u64 = all.totalram;
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limit = lowest_limit(Path::new("/sys/fs/cgroup"), &groups);
    physical.saturating_mul(unit).min(limit.unwrap_or(u64::MAX))
}

/// Memory of this process that is in RAM, in bytes; 0 where the kernel does not say.
#[must_use]
pub fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|n| n.parse::<u64>().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}

/// What `hayloft.memory.limit` is when it is 0, in bytes: 96 MiB, on small machines a thirty-second
/// of the [memory](usable) but at least 32 MiB.
#[must_use]
pub fn default_limit() -> u64 {
    share_of(usable())
}

fn share_of(memory: u64) -> u64 {
    (memory / SHARE).clamp(LEAST, MOST)
}

/// The lowest limit on memory of the control groups in `groups`, the text of `/proc/self/cgroup`,
/// and of those above them, in bytes. Both versions of the hierarchy are looked for under `root`.
/// In a container the paths may be those of the host: then the root has the container's limit.
fn lowest_limit(root: &Path, groups: &str) -> Option<u64> {
    let of_line = |line: &str| -> Option<Vec<PathBuf>> {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let (top, name) = match controllers {
            "" => (root.to_owned(), "memory.max"),
            "memory" => (root.join("memory"), "memory.limit_in_bytes"),
            _ => return None,
        };
        let within = Path::new(path.trim_start_matches('/'));
        let groups = within.ancestors().map(|group| top.join(group).join(name));
        Some(groups.collect())
    };
    let files = groups.lines().filter_map(of_line).flatten();
    let limits = files.filter_map(|file| std::fs::read_to_string(file).ok()?.trim().parse().ok());
    limits.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_has_its_bounds() {
        assert_eq!(share_of(512 << 20), 32 * MIB);
        assert_eq!(share_of(2 << 30), 64 * MIB);
        assert_eq!(share_of(512 << 30), 96 * MIB);
        assert!((LEAST..=MOST).contains(&default_limit()));
    }

    #[test]
    fn the_lowest_limit_of_all_groups_counts() {
        let dir = tempfile::tempdir().expect("a directory");
        let put = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().expect("it has one")).expect("created");
            std::fs::write(path, text).expect("written");
        };
        let lowest = |groups: &str| lowest_limit(dir.path(), groups);
        assert_eq!(lowest("0::/a/b\n"), None);
        put("a/b/memory.max", "max\n");
        assert_eq!(lowest("0::/a/b\n"), None);
        put("a/memory.max", "1000\n");
        put("a/c/memory.max", "5\n");
        assert_eq!(lowest("0::/a/b\n"), Some(1000));
        put("a/b/memory.max", "700\n");
        assert_eq!(lowest("0::/a/b\n"), Some(700));
        put("memory/x/memory.limit_in_bytes", "300\n");
        assert_eq!(lowest("5:cpu:/x\n4:memory:/x\n0::/\n"), Some(300));
        // Of the host: not to be seen here.
        put("memory.max", "900\n");
        assert_eq!(lowest("0::/docker/123\n"), Some(900));
        assert_eq!(lowest("nonsense"), None);
    }

    #[test]
    fn this_process_has_memory() {
        assert!(resident_bytes() > 1 << 20);
    }
}
