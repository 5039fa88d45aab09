//! What the process may take of the system: shares for clients, so that the node's own work has
//! what it needs, and what is said when there is too little.

use std::time::Duration;

use hayloft_conf::{Configuration, keys};
use hayloft_io::{DiskConfig, Means};
use hayloft_rpc::Trouble;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::xceiver::LOG_THREADS_MAX;

/// Descriptors of a data transfer at work: its socket and the next node's, or a duplicate; the data
/// file, through the page cache and around it; the meta file.
const OF_TRANSFER: u64 = 5;
/// Descriptors of a connection of the web port: its socket, and its part of what the transfers of
/// files have open, which are far fewer.
const OF_WEB: u64 = 2;
/// Kept back: for the process, for each node and its NameNodes, for each volume's checks, scanners
/// and commit rounds.
const OWN: u64 = 32;
const OWN_OF_NODE: u64 = 16;
const OWN_OF_VOLUME: u64 = 8;
/// Shares of the rest, in eighths.
const TRANSFERS: u64 = 6;
const OTHERS: u64 = 1;
/// Connections that each port serves however few descriptors there are.
const FEWEST: u64 = 2;

/// Threads that serve connections, at most, however many processors there are.
pub(crate) const TRANSFER_THREADS_MAX: usize = 64;
/// Threads: the first and two for calls that block; of a web port; of a disk that does little.
const FIRST_THREADS: usize = 3;
const OF_WEB_PORT: usize = 4;
const LANES: usize = 6;
/// Threads for calls that block, which many clients may want at once.
const BLOCKING_THREADS: usize = 64;

/// How often shortages are looked for, and how long after the last one it is over.
const LOOK: Duration = Duration::from_secs(1);
const OVER: Duration = Duration::from_secs(30);

/// A thread for calls that block is asked for something so often: less than the runtime keeps one
/// without work.
const KEEP: Duration = Duration::from_secs(5);

/// Threads of a process of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadsWanted {
    /// With which it starts and serves at all.
    pub fewest: usize,
    /// With which it never waits for one.
    pub most: usize,
}

impl ThreadsWanted {
    /// Of so many data directories, each on its disk, and nodes; `depth` is `hayloft.io.depth`.
    #[must_use]
    pub fn of(volumes: usize, nodes: usize, depth: u32) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let depth = usize::try_from(depth).unwrap_or(0);
        let mut disk = DiskConfig::default();
        if depth > 0 {
            disk.depth = depth;
        }
        let serving = processors.min(TRANSFER_THREADS_MAX);
        let fewest = FIRST_THREADS + processors + 2 * serving + OF_WEB_PORT * nodes;
        Self {
            fewest: fewest + LANES * volumes,
            most: fewest
                .saturating_add(BLOCKING_THREADS + LOG_THREADS_MAX)
                .saturating_add(disk.threads_max().saturating_mul(volumes)),
        }
    }
}

/// What the process has when its volumes and ports are open.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    /// Descriptors that it may have.
    pub(super) limit: u64,
    /// Descriptors that it has.
    pub(super) open: u64,
    pub(super) nodes: u64,
    pub(super) volumes: u64,
}

/// Connections that clients may have open at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClientShares {
    /// Of the data transfer ports of all nodes together.
    pub(super) transfers: usize,
    /// Of each RPC port.
    pub(super) rpc: usize,
    /// Of each web port.
    pub(super) web: usize,
}

impl ClientShares {
    /// Before it is known what the process has.
    pub(super) const UNLIMITED: Self = Self {
        transfers: usize::MAX,
        rpc: usize::MAX,
        web: usize::MAX,
    };
}

impl Taken {
    /// Descriptors of the node itself, those that it will take included.
    fn own(self) -> u64 {
        let more = OWN_OF_NODE.saturating_mul(self.nodes);
        let of_volumes = OWN_OF_VOLUME.saturating_mul(self.volumes);
        let own = self.open.saturating_add(OWN).saturating_add(more);
        own.saturating_add(of_volumes)
    }

    pub(super) fn shares(self) -> ClientShares {
        let eighth = self.limit.saturating_sub(self.own()) / 8;
        let of = |descriptors: u64| usize::try_from(descriptors.max(FEWEST)).unwrap_or(usize::MAX);
        let nodes = self.nodes.max(1);
        ClientShares {
            transfers: of(eighth.saturating_mul(TRANSFERS) / OF_TRANSFER),
            rpc: of(eighth * OTHERS / nodes),
            web: of(eighth * OTHERS / OF_WEB / nodes),
        }
    }

    /// Descriptors with which so many transfers are served at the same time.
    fn wanted(self, transfers: u64) -> u64 {
        let of_clients = transfers.saturating_mul(OF_TRANSFER).saturating_mul(8) / TRANSFERS;
        self.own().saturating_add(of_clients).saturating_add(8)
    }

    /// What the log says of a limit that is too low for the configuration.
    pub(super) fn remark(self, config: &Configuration) -> Option<String> {
        let key = &keys::MAX_TRANSFER_THREADS;
        let wanted = u64::from(config.get(key)).saturating_mul(self.nodes);
        let served = self.shares().transfers;
        if u64::try_from(served).is_ok_and(|served| served >= wanted) {
            return None;
        }
        Some(format!(
            "open files are limited to {}, and {} = {} needs {}: {served} data transfer \
             connections are served at the same time, more are closed; raise LimitNOFILE \
             (ulimit -n) or lower the key",
            self.limit,
            key.name(),
            config.get(key),
            self.wanted(wanted),
        ))
    }
}

/// Why the process cannot lock as much memory as `dfs.datanode.max.locked.memory` says, with what
/// to do; `None` when it can. Its own limit is raised for it, where the system allows that.
pub(super) fn too_much_locked(config: &Configuration) -> Option<String> {
    let key = &keys::MAX_LOCKED_MEMORY;
    let wanted = config.get(key);
    if wanted == 0 {
        return None;
    }
    let limit = hayloft_io::raise_locked_memory_max(wanted);
    (wanted > limit).then(|| {
        format!(
            "Cannot start datanode because the configured max locked memory size ({}) of {wanted} \
             bytes is more than the datanode's available RLIMIT_MEMLOCK ulimit of {limit} bytes: \
             raise LimitMEMLOCK (ulimit -l), or lower the key ({})",
            key.name(),
            config.origin(key.name())
        )
    })
}

/// What the log says of a limit for locked memory that leaves little of `usable` bytes for anything
/// else: the kernel kills processes when there is none.
pub(super) fn much_locked(config: &Configuration, usable: u64) -> Option<String> {
    let key = &keys::MAX_LOCKED_MEMORY;
    let wanted = config.get(key);
    (wanted > usable / 2).then(|| {
        format!(
            "{} = {wanted} is more than half of the {usable} bytes of memory that this process and \
             its page cache have: lower it, or give the service more",
            key.name(),
        )
    })
}

/// Logs what the process lacks, until `stop`: the first time, once a minute while it lasts, and its
/// end. Those that meet a shortage only count it.
pub(super) async fn report(stop: CancellationToken) {
    let mut told = Means::ALL.map(|means| Told {
        means,
        met: means.met(),
        said: means.met(),
        last: Instant::now(),
        trouble: Trouble::default(),
    });
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(LOOK) => {}
        }
        for one in &mut told {
            one.look(Instant::now());
        }
    }
}

/// What was said of one of them.
struct Told {
    means: Means,
    met: u64,
    said: u64,
    /// When it was met last.
    last: Instant,
    trouble: Trouble,
}

impl Told {
    fn look(&mut self, now: Instant) {
        let (what, met) = (self.means.name(), self.means.met());
        if met > self.met {
            (self.met, self.last) = (met, now);
            if self.trouble.failed(now) {
                let times = met - std::mem::replace(&mut self.said, met);
                let advice = self.means.advice();
                warn!(
                    what,
                    times,
                    "the process lacks something: work waits, and clients are \
                    refused; {advice}"
                );
            }
        } else if now.duration_since(self.last) >= OVER
            && let Some((_, lasted)) = self.trouble.over(now)
        {
            let times = met - std::mem::replace(&mut self.said, met);
            info!(
                what,
                times,
                "the process has what it lacked for {} s",
                lasted.as_secs()
            );
        }
    }
}

/// Keeps one thread of the runtime ready for calls that block, until `stop`. Were there none when
/// the system gives no more threads, such a call could not even wait.
pub(crate) async fn keep_a_blocking_thread(stop: CancellationToken) {
    let keep = || async {
        loop {
            // Work that was left waiting is taken with this, too.
            let taken = tokio::task::spawn_blocking(|| ());
            if tokio::time::timeout(KEEP, taken).await.is_ok() {
                tokio::time::sleep(KEEP).await;
            }
        }
    };
    // Where the runtime has no thread at all, asking for one panics.
    let kept = hayloft_io::unbroken("a thread for calls that block", stop.cancelled(), keep);
    stop.run_until_cancelled(kept).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(limit: u64) -> Taken {
        Taken {
            limit,
            open: 40,
            nodes: 1,
            volumes: 1,
        }
    }

    fn config(threads: &str) -> Configuration {
        let properties = [("dfs.datanode.max.transfer.threads", threads)];
        Configuration::from_properties(properties).expect("valid")
    }

    #[test]
    fn locked_memory_beyond_half_of_all_is_told() {
        let locks = |bytes: &str| {
            let properties = [("dfs.datanode.max.locked.memory", bytes)];
            Configuration::from_properties(properties).expect("valid")
        };
        assert_eq!(much_locked(&locks("0"), 0), None);
        assert_eq!(much_locked(&locks("500"), 1000), None);
        let said = much_locked(&locks("501"), 1000).expect("too much");
        assert!(said.contains("= 501") && said.contains("1000"), "{said}");
    }

    #[test]
    fn what_the_system_does_not_let_lock_is_refused_with_both_numbers() {
        let locks = |bytes: u64| {
            let properties = [("dfs.datanode.max.locked.memory", bytes.to_string())];
            too_much_locked(&Configuration::from_properties(properties).expect("valid"))
        };
        assert_eq!(locks(0), None);
        assert_eq!(locks(4096), None);
        let wanted = u64::MAX >> 1;
        let limit = hayloft_io::locked_memory_max();
        if limit >= wanted {
            eprintln!("skipped in part: this process may lock all that it wants");
            return;
        }
        let said = locks(wanted).expect("is refused");
        let limit = hayloft_io::locked_memory_max();
        let (wanted, limit) = (format!("{wanted} bytes"), format!("{limit} bytes"));
        for part in [
            "dfs.datanode.max.locked.memory",
            &wanted,
            &limit,
            "LimitMEMLOCK",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }

    #[test]
    fn disks_and_nodes_want_threads() {
        let (one, two) = (ThreadsWanted::of(1, 1, 0), ThreadsWanted::of(2, 1, 0));
        assert!(one.fewest > LANES && one.most > one.fewest + BLOCKING_THREADS);
        assert_eq!(two.fewest - one.fewest, LANES);
        let deep = ThreadsWanted::of(1, 1, 256);
        assert_eq!(deep.most - one.most, 256 - DiskConfig::default().depth);
    }

    #[test]
    fn clients_leave_the_node_what_it_needs() {
        for limit in [64, 256, 1024, 4096, 65_536, u64::MAX] {
            let (taken, shares) = (of(limit), of(limit).shares());
            let connections = |n: usize| u64::try_from(n).expect("fits");
            assert!(
                shares.transfers >= 2 && shares.rpc >= 2 && shares.web >= 2,
                "{limit}"
            );
            let used = connections(shares.transfers).saturating_mul(OF_TRANSFER)
                + connections(shares.rpc).min(1 << 60)
                + connections(shares.web).min(1 << 60) * OF_WEB;
            if limit >= 256 {
                assert!(taken.own() + used <= limit, "{limit}: {shares:?}");
            }
        }
    }

    #[test]
    fn a_limit_that_is_too_low_is_said_with_both_numbers_and_the_key() {
        let said = of(1024).remark(&config("4096")).expect("too low");
        for word in [
            "1024",
            "dfs.datanode.max.transfer.threads = 4096",
            "LimitNOFILE",
        ] {
            assert!(said.contains(word), "{said}");
        }
        let needs = of(1024).wanted(4096);
        assert!(said.contains(&format!("needs {needs}")), "{said}");
        assert_eq!(
            of(needs).remark(&config("4096")),
            None,
            "{needs} are enough"
        );
        assert!(of(needs - 64).remark(&config("4096")).is_some());
        assert_eq!(of(1024).remark(&config("100")), None);
        assert_eq!(of(u64::MAX).remark(&config("10000000")), None);
    }

    #[tokio::test]
    async fn a_shortage_is_said_once_and_its_end() {
        let mut told = Told {
            means: Means::Buffers,
            met: Means::Buffers.met(),
            said: Means::Buffers.met(),
            last: Instant::now(),
            trouble: Trouble::default(),
        };
        let start = Instant::now();
        for second in 0..50 {
            Means::Buffers.note();
            told.look(start + Duration::from_secs(second));
        }
        assert_eq!(told.met - told.said, 49, "the first alone was said");
        told.look(start + Duration::from_secs(79));
        assert_eq!(told.met, told.said, "all are, at the end");
    }
}
