//! How much memory there is, and how much of it staging may take where nobody says.

use std::path::{Path, PathBuf};

const MIB: u64 = 1 << 20;

/// Staging gets one part in so many: less than the page cache may have dirty by the kernel's own defaults, and than
/// the heap of a `DataNode` in Java has by those of its runtime.
const SHARE: u64 = 32;
/// At least this, bytes: eight quanta of a rotating disk.
const LEAST: u64 = 256 * MIB;
/// At most this, bytes: a clean stop waits until all of it is written.
const MOST: u64 = 1024 * MIB;

/// What `hayloft.memory.limit` is when it is 0, in bytes: a thirty-second of the memory that this process may use, from
/// 256 MiB to 1 GiB.
#[must_use]
pub fn staging_default() -> u64 {
    let all = rustix::system::sysinfo();
    let unit = u64::from(all.mem_unit.max(1));
    let physical: u64 = all.totalram;
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limit = lowest_limit(Path::new("/sys/fs/cgroup"), &groups);
    share_of(physical.saturating_mul(unit).min(limit.unwrap_or(u64::MAX)))
}

fn share_of(memory: u64) -> u64 {
    (memory / SHARE).clamp(LEAST, MOST)
}

/// The lowest limit on memory of the control groups in `groups`, the text of `/proc/self/cgroup`, and of those above
/// them, in bytes; both versions of the hierarchy under `root`. In a container the paths may be those of the host: then the root
/// has the container's limit.
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
        assert_eq!(share_of(2 << 30), 256 * MIB);
        assert_eq!(share_of(16 << 30), 512 * MIB);
        assert_eq!(share_of(512 << 30), 1024 * MIB);
        assert!((LEAST..=MOST).contains(&staging_default()));
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
}
