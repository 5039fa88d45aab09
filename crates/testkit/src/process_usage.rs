//! What the kernel says about a process: memory, descriptors, CPU time.

use crate::error::{Result, TestkitError};

/// Resources of a process at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Resident memory, KiB.
    pub rss_kib: u64,
    /// Largest resident memory so far, KiB.
    pub rss_peak_kib: u64,
    /// Threads.
    pub threads: u64,
    /// Open descriptors, but for `pipes`.
    pub descriptors: usize,
    /// Descriptors of pipes and of `/dev/null`, where a node's pipes end.
    pub pipes: usize,
    /// CPU seconds in user mode.
    pub user_s: f64,
    /// CPU seconds in the kernel.
    pub system_s: f64,
}

/// Reads `/proc/PID`.
///
/// # Errors
/// [`TestkitError::File`] when the process is gone.
pub fn usage(pid: u32) -> Result<Usage> {
    let read = |name: &str| {
        let path = format!("/proc/{pid}/{name}");
        std::fs::read_to_string(&path).map_err(TestkitError::file("reading", path))
    };
    let status = read("status")?;
    let field = |name: &str| {
        let line = status
            .lines()
            .find(|line| line.starts_with(name))
            .unwrap_or_default();
        line.split_whitespace()
            .nth(1)
            .and_then(|n| n.parse().ok())
            .unwrap_or(0)
    };
    let stat = read("stat")?;
    // The command name, in parentheses, may hold spaces: count fields after it.
    let after = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = |index: usize| -> f64 {
        after
            .split_whitespace()
            .nth(index)
            .and_then(|n| n.parse().ok())
            .unwrap_or(0.0)
    };
    let dir = format!("/proc/{pid}/fd");
    let listed = std::fs::read_dir(&dir).map_err(TestkitError::file("listing", dir))?;
    let (pipes, others): (Vec<_>, Vec<_>) = listed.flatten().partition(|descriptor| {
        let leads_to = std::fs::read_link(descriptor.path()).unwrap_or_default();
        let leads_to = leads_to.to_string_lossy();
        leads_to.starts_with("pipe:") || leads_to == "/dev/null"
    });
    // Linux counts these in hundredths of a second on every common architecture.
    Ok(Usage {
        rss_kib: field("VmRSS:"),
        rss_peak_kib: field("VmHWM:"),
        threads: field("Threads:"),
        descriptors: others.len(),
        pipes: pipes.len(),
        user_s: ticks(11) / 100.0,
        system_s: ticks(12) / 100.0,
    })
}

/// Mappings of files of a process whose paths hold `part`.
///
/// # Errors
/// [`TestkitError::File`] when the process is gone.
pub fn mappings(pid: u32, part: &str) -> Result<usize> {
    let path = format!("/proc/{pid}/maps");
    let text = std::fs::read_to_string(&path).map_err(TestkitError::file("reading", path))?;
    // Address, rights, offset, device and inode come before the path, which may have spaces.
    let path_of = |line: &str| line.find('/').is_some_and(|at| line[at..].contains(part));
    Ok(text.lines().filter(|line| path_of(line)).count())
}

/// Memory of a process, KiB, with the share of what it has in common with others (PSS).
///
/// # Errors
/// [`TestkitError::File`] when the process is gone, or is another user's.
pub fn pss_kib(pid: u32) -> Result<u64> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let text = std::fs::read_to_string(&path).map_err(TestkitError::file("reading", &path))?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    kib.ok_or_else(|| TestkitError::Talk(format!("{path} has no line Pss")))
}

/// Lets a process's peak of resident memory begin anew, where the kernel and our rights allow.
pub fn reset_peak(pid: u32) {
    let _ = std::fs::write(format!("/proc/{pid}/clear_refs"), "5");
}

/// Whether something grows that was measured from time to time. The first tenth is its warm-up. Of
/// the quarters of the rest the last three have each a higher median than the one before, and that
/// of the last is above that of the second by more than a tenth of it, and more than `floor`. Gives
/// these two medians then.
#[must_use]
pub fn grows(values: &[u64], floor: u64) -> Option<(u64, u64)> {
    let warm = &values[values.len().div_ceil(10)..];
    let quarter = warm.len() / 4;
    let median = |nth: usize| {
        let end = warm.len() - (3 - nth) * quarter;
        let mut part = warm[end - quarter..end].to_vec();
        part.sort_unstable();
        part.get(quarter / 2).copied().unwrap_or(0)
    };
    let (second, third, last) = (median(1), median(2), median(3));
    let steadily = second < third && third < last;
    (steadily && last - second > floor.max(second / 10)).then_some((second, last))
}

#[cfg(test)]
mod tests {
    use super::grows;

    #[test]
    fn what_grows_from_quarter_to_quarter_is_told() {
        let of = |value: fn(u64) -> u64| (0..1440).map(value).collect::<Vec<_>>();
        let told = grows(&of(|at| 1000 + at), 100).expect("grows");
        assert!(told.0 > 1400 && told.1 > 2000, "{told:?}");
        // It fluctuates, and grows all the same.
        assert!(grows(&of(|at| 1000 + at + at % 7 * 50), 100).is_some());
        for flat in [
            // A warm-up, and then a plateau.
            of(|at| 1000 + at.min(140) * 10),
            // A single step.
            of(|at| if at < 1000 { 1000 } else { 3000 }),
            of(|at| 1000 + at % 60 * 100),
            // By less than a tenth, and by less than the floor.
            of(|at| 10_000 + at),
            of(|at| 10 + at / 20),
            of(|at| 5000 - at),
        ] {
            assert_eq!(grows(&flat, 100), None);
        }
        assert_eq!(grows(&[], 0), None);
        assert_eq!(grows(&[1, 9], 0), None);
        assert_eq!(grows(&[0, 1, 2, 3, 4], 1), Some((2, 4)));
    }

    #[test]
    fn knows_ourselves() {
        let usage = super::usage(std::process::id()).expect("we run");
        assert!(usage.rss_kib > 0 && usage.rss_peak_kib >= usage.rss_kib);
        assert!(usage.descriptors + usage.pipes > 2 && usage.threads > 0);
        assert!(super::pss_kib(std::process::id()).expect("we run") > 0);
        let program = std::env::current_exe().expect("this program");
        let name = program.file_name().expect("a file").to_string_lossy();
        assert!(super::mappings(std::process::id(), &name).expect("we run") > 0);
        assert_eq!(super::mappings(std::process::id(), "/none").ok(), Some(0));
    }
}
