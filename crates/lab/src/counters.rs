//! What the kernel counts for a testbed: devices, links, processors, streams.

use std::collections::BTreeMap;
use std::os::linux::fs::MetadataExt as _;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use hayloft_bench::fair::counters::waited_s;

use super::describe::Description;
use super::net;
use hayloft_testkit::process_usage;

/// How often processes are looked at while jobs run.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Time of all processors since the start of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CpuTicks {
    /// Working, at ordinary or higher priority, and in the kernel.
    pub busy: u64,
    /// Working for programs of a lower priority.
    pub low: u64,
    /// Everything.
    pub all: u64,
}

/// Bytes that the link of each of these hosts moved in either direction, for a thread in the
/// namespace of the switches. Of several links, the most that one received and the most that one
/// sent.
pub(super) fn link_counters(hosts: &[String]) -> Vec<(u64, u64)> {
    let text = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    hosts.iter().map(|host| busiest_link(&text, host)).collect()
}

fn busiest_link(text: &str, host: &str) -> (u64, u64) {
    let of_link = |line: &str| {
        let (name, counters) = line.trim().split_once(':')?;
        let counters: Vec<&str> = counters.split_whitespace().collect();
        let field = |at: usize| counters.get(at)?.parse::<u64>().ok();
        net::is_port_of(name, host)
            .then(|| Some((field(0)?, field(8)?)))
            .flatten()
    };
    let links = text.lines().filter_map(of_link);
    links.fold((0, 0), |(received, sent), link| {
        (received.max(link.0), sent.max(link.1))
    })
}

/// Time of the processors, in ticks. The kernel's work for programs of a lower priority counts as
/// ordinary: it is not told apart.
pub(super) fn cpu_counters() -> CpuTicks {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = text.lines().next().unwrap_or_default();
    let ticks: Vec<u64> = line
        .split_whitespace()
        .skip(1)
        .filter_map(|n| n.parse().ok())
        .collect();
    // user, nice, system, idle, iowait, irq, softirq, steal
    let all: u64 = ticks.iter().take(8).sum();
    let low = ticks.get(1).copied().unwrap_or(0);
    let idle: u64 = ticks.iter().skip(3).take(2).sum();
    CpuTicks {
        busy: all.saturating_sub(idle + low),
        low,
        all,
    }
}

/// Shares of all processors between two looks: at ordinary priority, and at a lower one.
#[expect(clippy::cast_precision_loss, reason = "shares for people")]
pub(super) fn cpu_shares(before: CpuTicks, now: CpuTicks) -> (f64, f64) {
    let all = now.all.saturating_sub(before.all).max(1) as f64;
    let share = |a: u64, b: u64| b.saturating_sub(a) as f64 / all;
    (share(before.busy, now.busy), share(before.low, now.low))
}

/// Processor time of a host's processes so far, seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HostTime {
    /// They had a processor.
    pub used: f64,
    /// They could have gone on, and waited for one.
    pub waited: f64,
}

impl HostTime {
    fn add(&mut self, other: Self) {
        self.used += other.used;
        self.waited += other.waited;
    }
}

/// Processor time of every host's processes, in the order of the description. The kernel's own
/// threads belong to no node.
pub(super) fn time_by_host(described: &Description) -> Vec<HostTime> {
    HostClocks::of(described).look()
}

/// Processor time of hosts on which processes come and go. It counts those that have ended as they
/// were at the last look.
#[derive(Debug)]
pub(super) struct HostClocks {
    /// The network namespace of each host.
    spaces: Vec<Option<u64>>,
    /// Host and time of every process that a look saw.
    seen: BTreeMap<u32, (usize, HostTime)>,
    /// Of processes whose number another one has now.
    gone: Vec<HostTime>,
}

impl HostClocks {
    pub fn of(described: &Description) -> Self {
        let space = |host: &str| {
            let path = format!("/run/netns/{}", net::namespace(&described.name, host));
            std::fs::metadata(path).ok().map(|m| m.st_ino())
        };
        let spaces: Vec<_> = described.hosts().map(|(_, h)| space(&h.name)).collect();
        Self {
            gone: vec![HostTime::default(); spaces.len()],
            spaces,
            seen: BTreeMap::new(),
        }
    }

    /// Looks at every process, and gives the time of each host so far.
    pub fn look(&mut self) -> Vec<HostTime> {
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        for pid in pids {
            if let Some((host, time)) = self.time_of(pid) {
                self.note(pid, host, time);
            }
        }
        self.sums()
    }

    /// Does `work`, and looks each second, so that processes count which begin and end meanwhile:
    /// tasks of jobs.
    pub fn look_during<T>(&mut self, work: impl FnOnce() -> T) -> T {
        std::thread::scope(|scope| {
            // Dropped at the end of the work, whatever that is.
            let (_at_work, ended) = channel::<()>();
            scope.spawn(move || {
                while ended.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
                    self.look();
                }
            });
            work()
        })
    }

    fn time_of(&self, pid: u32) -> Option<(usize, HostTime)> {
        let link = std::fs::read_link(format!("/proc/{pid}/ns/net")).ok()?;
        let text = link.to_string_lossy();
        let space = text.strip_prefix("net:[")?.strip_suffix(']')?;
        let space: Option<u64> = space.parse().ok();
        let host = self
            .spaces
            .iter()
            .position(|s| s.is_some() && *s == space)?;
        let usage = process_usage::usage(pid).ok()?;
        let time = HostTime {
            used: usage.user_s + usage.system_s,
            waited: waited_s(pid),
        };
        Some((host, time))
    }

    fn note(&mut self, pid: u32, host: usize, time: HostTime) {
        let earlier = self.seen.insert(pid, (host, time));
        // Time does not shrink: it is another process.
        if let Some((host, earlier)) = earlier.filter(|(_, earlier)| time.used < earlier.used) {
            self.gone[host].add(earlier);
        }
    }

    fn sums(&self) -> Vec<HostTime> {
        let mut sums = self.gone.clone();
        for (host, time) in self.seen.values() {
            sums[*host].add(*time);
        }
        sums
    }
}

/// Of the time in which processes could have gone on, the share in which they had no processor, 0
/// to 1, between two looks at every host. A host whose processes ended meanwhile counts for
/// nothing.
pub(super) fn waited_between(before: &[HostTime], after: &[HostTime]) -> f64 {
    let sum = |of: fn(&HostTime) -> f64| {
        let grown = before.iter().zip(after).map(|(a, b)| of(b) - of(a));
        grown.map(|seconds| seconds.max(0.0)).sum()
    };
    waited_share(sum(|time| time.used), sum(|time| time.waited))
}

/// The same of seconds with a processor and seconds without.
pub(super) fn waited_share(used: f64, waited: f64) -> f64 {
    if waited > 0.0 {
        waited / (waited + used)
    } else {
        0.0
    }
}

/// Replicas being written: data files in the `rbw` directories of a volume.
pub(super) fn writers(current: &Path) -> usize {
    let names = |dir: &Path| {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name()).collect::<Vec<_>>()
    };
    let pools = names(current);
    let rbw = pools
        .iter()
        .flat_map(|pool| names(&current.join(pool).join("current/rbw")));
    rbw.filter(|name| {
        let name = name.to_string_lossy();
        name.starts_with("blk_") && !name.ends_with(".meta")
    })
    .count()
}

/// Streams to and from the node: established connections of its data port. Clients of a testbed
/// keep none for later.
pub(super) fn streams(pid: u32, port: u16) -> usize {
    let text = std::fs::read_to_string(format!("/proc/{pid}/net/tcp")).unwrap_or_default();
    text.lines().filter(|line| is_stream(line, port)).count()
}

/// A line of `/proc/net/tcp`: established, at `port`.
fn is_stream(line: &str, port: u16) -> bool {
    const ESTABLISHED: &str = "01";
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [_, local, _, state, ..] = fields.as_slice() else {
        return false;
    };
    let own = local.split_once(':').map(|(_, port)| port);
    let own = own.and_then(|port| u16::from_str_radix(port, 16).ok());
    *state == ESTABLISHED && own == Some(port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_is_a_share_and_a_killed_host_is_left_out() {
        let time = |used, waited| HostTime { used, waited };
        let before = [time(1.0, 1.0), time(50.0, 9.0)];
        let after = [time(4.0, 2.0), time(0.0, 0.0)];
        assert!((waited_between(&before, &after) - 0.25).abs() < 1e-9);
        assert!(waited_between(&before, &before).abs() < 1e-9);
    }

    #[test]
    fn processes_that_have_ended_still_count() {
        let time = |used| HostTime { used, waited: 1.0 };
        let mut clocks = HostClocks {
            spaces: vec![None, None],
            seen: BTreeMap::new(),
            gone: vec![HostTime::default(); 2],
        };
        clocks.note(7, 0, time(2.0));
        clocks.note(8, 1, time(3.0));
        clocks.note(7, 0, time(5.0));
        assert!((clocks.sums()[0].used - 5.0).abs() < 1e-9, "it has run on");
        clocks.note(7, 1, time(0.5));
        let sums = clocks.sums();
        assert!((sums[0].used - 5.0).abs() < 1e-9, "the first one is kept");
        assert!((sums[1].used - 3.5).abs() < 1e-9 && (sums[1].waited - 2.0).abs() < 1e-9);
    }

    #[test]
    fn the_busiest_of_several_links_counts() {
        let line = |name: &str, received: u64, sent: u64| {
            format!("  {name}: {received} 1 0 0 0 0 0 0 {sent} 1 0 0 0 0 0 0\n")
        };
        let text = [
            line("rack0", 900, 900),
            line("p-c1", 900, 900),
            line("p-s1", 10, 20),
            line("p1-s1", 30, 5),
        ];
        let head = "face |bytes\n";
        let text = head.to_owned() + &text.concat();
        assert_eq!(busiest_link(&text, "s1"), (30, 20));
        assert_eq!(busiest_link("", "s1"), (0, 0));
    }

    #[test]
    fn a_connection_of_the_data_port_is_a_stream() {
        let line = |state: &str, from: &str, to: &str| {
            format!("   1: 0100007F:{from} 0100007F:{to} {state} 00000000:00000000 01:00000014")
        };
        assert!(is_stream(&line("01", "268A", "9C40"), 0x268A));
        assert!(!is_stream(&line("0A", "268A", "9C40"), 0x268A), "listening");
        assert!(!is_stream(&line("06", "268A", "9C40"), 0x268A), "closed");
        assert!(
            !is_stream(&line("01", "9C40", "268A"), 0x268A),
            "the client's end"
        );
        assert!(!is_stream("sl local_address", 1));
    }
}
