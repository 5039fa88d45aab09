//! How many threads the system gives a process, and what limits them.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;

use rustix::process::{Resource, getrlimit};

use crate::locks::lock;

/// Bytes of the stack of a thread that does nothing.
const STACK_BYTES: usize = 64 << 10;
/// Where systems mount control groups.
const GROUPS: &str = "/sys/fs/cgroup";

/// Whether the process can have so many threads more at the same time: they are started, and end.
///
/// # Errors
/// How many there were, which limit is met, and what to raise.
pub fn has_room_for_threads(count: usize) -> Result<(), String> {
    let gate = &Mutex::new(());
    let held = lock(gate);
    thread::scope(|scope| {
        for started in 0..count {
            let thread = thread::Builder::new().stack_size(STACK_BYTES);
            let one = thread.spawn_scoped(scope, move || drop(lock(gate)));
            if let Err(error) = one {
                // While they wait: the limit is met only now.
                let limit = met_limit(Path::new(GROUPS));
                drop(held);
                return Err(format!(
                    "{started} of the {count} threads that it needs at least can be started \
                     ({error}): {limit}"
                ));
            }
        }
        drop(held);
        Ok(())
    })
}

/// The limit that keeps this process from threads, and what raises it.
fn met_limit(mounted: &Path) -> String {
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    if let Some((group, limit)) = full_group(&groups, mounted) {
        return format!(
            "{}/pids.max is {limit}; raise it (TasksMax= of the unit, --pids-limit of the \
             container)",
            group.display()
        );
    }
    match getrlimit(Resource::Nproc).current {
        Some(limit) => format!(
            "the threads of its user are limited to {limit} (RLIMIT_NPROC); raise LimitNPROC= of \
             the unit, or nproc in /etc/security/limits.d (ulimit -u)"
        ),
        None => "raise kernel.threads-max and kernel.pid_max, or give the host more memory".into(),
    }
}

/// The control group that has as many threads as it may, by the lines of `/proc/self/cgroup`. A
/// group is limited by those that it is in.
fn full_group(lines: &str, mounted: &Path) -> Option<(PathBuf, u64)> {
    let mut groups = lines.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let hierarchy = match controllers {
            "" => mounted.to_owned(),
            some => mounted.join(some.split(',').find(|name| *name == "pids")?),
        };
        Some(hierarchy.join(path.trim_start_matches('/')))
    });
    groups.find_map(|group| {
        let number = |file: PathBuf| std::fs::read_to_string(file).ok()?.trim().parse().ok();
        let mut above = group.ancestors().take_while(|at| at.starts_with(mounted));
        above.find_map(|at| {
            let (limit, has): (u64, u64) = (
                number(at.join("pids.max"))?,
                number(at.join("pids.current"))?,
            );
            (has >= limit).then(|| (at.to_owned(), limit))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_that_is_full_is_named() {
        let dir = tempfile::tempdir().expect("a directory");
        let group = |path: &str, limit: &str, has: &str| {
            let at = dir.path().join(path);
            std::fs::create_dir_all(&at).expect("made");
            std::fs::write(at.join("pids.max"), limit).expect("written");
            std::fs::write(at.join("pids.current"), has).expect("written");
        };
        let full = |lines| full_group(lines, dir.path());
        group("a", "12\n", "12\n");
        group("a/b", "max\n", "3\n");
        assert_eq!(full("0::/a/b\n"), Some((dir.path().join("a"), 12)));
        group("a", "12\n", "11\n");
        assert_eq!(full("0::/a/b\n"), None);
        group("pids/c", "5\n", "5\n");
        let old = "9:cpu,cpuacct:/c\n4:pids:/c/gone\n0::/\n";
        assert_eq!(full(old), Some((dir.path().join("pids/c"), 5)));
    }

    #[test]
    fn threads_that_can_be_had_are_had_at_once() {
        assert_eq!(has_room_for_threads(16), Ok(()));
    }
}
