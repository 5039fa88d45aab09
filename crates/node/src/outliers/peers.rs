//! How long other nodes make this one wait when it passes packets on to them.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use hayloft_io::locks::lock;
use hayloft_wire::proto::datanode::SlowPeerReport;
use tokio::time::Instant;

use super::detector::usual;
use super::rolling::Rolling;

/// Peers that are kept in mind; those of a cluster larger than this are known in part.
const PEERS: usize = 10_000;

/// What it takes to be called slow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PeerRules {
    /// Peers that must be known (`dfs.datanode.min.outlier.detection.nodes`).
    pub nodes: u64,
    /// Packets a peer must have been sent, and one more
    /// (`dfs.datanode.peer.metrics.min.outlier.detection.samples`).
    pub samples: u64,
    /// A peer up to this is not slow (`dfs.datanode.slowpeer.low.threshold.ms`).
    pub low: Duration,
}

/// How often a full list is searched for peers that were not heard of for long: the caller that
/// writes would wait for each search.
const SWEEP: Duration = Duration::from_secs(60);

/// The times of all peers; clones are the same.
#[derive(Clone, Debug, Default)]
pub struct PeerTimes(Arc<Mutex<Peers>>);

#[derive(Debug, Default)]
struct Peers {
    known: HashMap<Arc<str>, Rolling>,
    swept: Option<Instant>,
}

impl Peers {
    /// Whether one more may be kept in mind.
    fn has_room(&mut self, now: Instant) -> bool {
        let due = |swept: Instant| now.saturating_duration_since(swept) >= SWEEP;
        if self.known.len() >= PEERS && self.swept.is_none_or(due) {
            self.swept = Some(now);
            self.known.retain(|_, rolling| !rolling.is_over(now));
        }
        self.known.len() < PEERS
    }
}

impl PeerTimes {
    fn peers(&self) -> MutexGuard<'_, Peers> {
        lock(&self.0)
    }

    /// `count` packets were sent to `peer` in `total`.
    pub fn add(&self, peer: &Arc<str>, now: Instant, count: u64, total: Duration) {
        let mut peers = self.peers();
        if let Some(rolling) = peers.known.get_mut(peer) {
            rolling.add(now, count, total);
        } else if peers.has_room(now) {
            let rolling = peers.known.entry(Arc::clone(peer)).or_default();
            rolling.add(now, count, total);
        }
    }

    /// How long packets took to each peer that took more than `samples` of them, in milliseconds.
    #[must_use]
    pub fn averages(&self, samples: u64, now: Instant) -> Vec<(Arc<str>, f64)> {
        let mut peers = self.peers();
        let averages = peers.known.iter_mut().filter_map(|(peer, rolling)| {
            let (count, mean) = rolling.average(now)?;
            (count > samples).then(|| (Arc::clone(peer), mean))
        });
        averages.collect()
    }

    /// Peers that are much slower than the rest, slowest first.
    #[must_use]
    pub fn slow(&self, rules: PeerRules, now: Instant) -> Vec<SlowPeerReport> {
        let known = self.averages(rules.samples, now);
        let means = known.iter().map(|(_, mean)| *mean);
        let low = rules.low.as_secs_f64() * 1000.0;
        let Some(usual) = usual(means, rules.nodes, low) else {
            return Vec::new();
        };
        let mut slow: Vec<_> = known
            .into_iter()
            .filter(|(_, mean)| *mean > usual.limit)
            .collect();
        slow.sort_by(|a, b| b.1.total_cmp(&a.1));
        let reports = slow.into_iter().map(|(peer, mean)| SlowPeerReport {
            data_node_id: Some(peer.to_string()),
            aggregate_latency: Some(mean),
            median: Some(usual.median),
            mad: Some(usual.mad),
            upper_limit_latency: Some(usual.limit),
        });
        reports.collect()
    }

    /// Forgets everything.
    pub fn clear(&self) {
        self.peers().known.clear();
    }
}

/// Bytes without an acknowledgement from which on a peer is waited for. A stock client has up to
/// 5 MiB under way, and sends no more before it hears of them. So a peer that is slow to write
/// never fills its connection, and only its acknowledgements show it.
const BEHIND: u64 = 2 << 20;

/// Runs whose acknowledgements are told apart; those after them count as one.
const RUNS: usize = 1024;

/// Measures one connection with the last node of a pipeline.
#[derive(Debug)]
pub struct PeerClock {
    times: PeerTimes,
    peer: Arc<str>,
    /// Waiting before this was counted.
    counted_until: Instant,
    /// Waiting that the next packets sent are charged with.
    waited: Duration,
    /// Packets and bytes of each run that is not acknowledged, oldest first.
    open: VecDeque<(u64, u64)>,
    /// Bytes of all of them.
    open_bytes: u64,
    /// Since when they have been too many.
    behind_since: Option<Instant>,
}

impl PeerClock {
    /// For packets to `peer`: its address as Apache names it in reports, that of its HTTP port.
    #[must_use]
    pub fn new(times: PeerTimes, peer: &str, now: Instant) -> Self {
        Self {
            times,
            peer: peer.into(),
            counted_until: now,
            waited: Duration::ZERO,
            open: VecDeque::new(),
            open_bytes: 0,
            behind_since: None,
        }
    }

    /// A run of `packets` with so many bytes is to be sent.
    pub fn handed(&mut self, packets: u64, bytes: u64, now: Instant) {
        self.open_bytes = self.open_bytes.saturating_add(bytes);
        let is_full = self.open.len() >= RUNS;
        match self.open.back_mut().filter(|_| is_full) {
            Some(last) => {
                last.0 = last.0.saturating_add(packets);
                last.1 = last.1.saturating_add(bytes);
            }
            None => self.open.push_back((packets, bytes)),
        }
        if self.open_bytes >= BEHIND {
            self.behind_since.get_or_insert(now);
        }
    }

    /// `packets` that were handed over at `handed` are sent. Time in which earlier ones were in the
    /// way is theirs.
    pub fn sent(&mut self, packets: u64, handed: Instant, now: Instant) {
        self.wait(handed, now);
        let waited = std::mem::take(&mut self.waited);
        self.times.add(&self.peer, now, packets, waited);
    }

    /// The peer has acknowledged the next packet.
    pub fn acknowledged(&mut self, now: Instant) {
        if let Some(since) = self.behind_since {
            self.wait(since, now);
        }
        let Some((packets, bytes)) = self.open.front_mut() else {
            return;
        };
        *packets = packets.saturating_sub(1);
        if *packets == 0 {
            self.open_bytes = self.open_bytes.saturating_sub(*bytes);
            self.open.pop_front();
        }
        if self.open_bytes < BEHIND {
            self.behind_since = None;
            // No packet may come after these.
            let waited = std::mem::take(&mut self.waited);
            if !waited.is_zero() {
                self.times.add(&self.peer, now, 0, waited);
            }
        }
    }

    /// Counts the time from `since` to `now`, as far as it is not counted yet.
    fn wait(&mut self, since: Instant, now: Instant) {
        self.waited += now.saturating_duration_since(since.max(self.counted_until));
        self.counted_until = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const RULES: PeerRules = PeerRules {
        nodes: 4,
        samples: 9,
        low: Duration::from_millis(5),
    };

    fn times(latencies: &[(&str, u64, u64)]) -> (PeerTimes, Instant) {
        let (times, now) = (PeerTimes::default(), Instant::now());
        for (peer, count, ms) in latencies {
            let total = MS * u32::try_from(count * ms).expect("small");
            times.add(&Arc::from(*peer), now, *count, total);
        }
        (times, now)
    }

    fn names(slow: &[SlowPeerReport]) -> Vec<&str> {
        slow.iter()
            .filter_map(|r| r.data_node_id.as_deref())
            .collect()
    }

    #[test]
    fn the_slow_one_is_named_with_what_is_usual() {
        let (times, now) = times(&[("a", 10, 1), ("b", 10, 1), ("c", 10, 2), ("d:9864", 10, 50)]);
        let slow = times.slow(RULES, now);
        assert_eq!(names(&slow), ["d:9864"]);
        assert_eq!(slow[0].aggregate_latency, Some(50.0));
        assert_eq!(slow[0].median, Some(1.5));
        assert_eq!(slow[0].upper_limit_latency, Some(5.0));
    }

    #[test]
    fn few_peers_few_packets_or_little_time_say_nothing() {
        let (few, now) = times(&[("a", 10, 1), ("b", 10, 1), ("d", 10, 50)]);
        assert!(few.slow(RULES, now).is_empty());
        let (rare, now) = times(&[("a", 10, 1), ("b", 10, 1), ("c", 10, 2), ("d", 9, 50)]);
        assert!(
            rare.slow(RULES, now).is_empty(),
            "nine packets are not more than nine"
        );
        let (fast, now) = times(&[("a", 10, 0), ("b", 10, 0), ("c", 10, 0), ("d", 10, 5)]);
        assert!(fast.slow(RULES, now).is_empty());
    }

    #[test]
    fn a_clock_counts_waiting_once() {
        let (times, start) = (PeerTimes::default(), Instant::now());
        let mut clock = PeerClock::new(times.clone(), "x", start);
        // Both handed over at once; the second was sent 10 ms after the first.
        clock.sent(1, start, start + 20 * MS);
        clock.sent(1, start, start + 30 * MS);
        // Idle in between.
        clock.sent(2, start + 100 * MS, start + 106 * MS);
        let average = times
            .peers()
            .known
            .get_mut("x")
            .and_then(|r| r.average(start + 106 * MS));
        assert_eq!(average, Some((4, 9.0)));
    }

    /// A clock, and what it has counted: packets and their mean in milliseconds.
    fn clock() -> (PeerClock, impl Fn(Instant) -> Option<(u64, f64)>, Instant) {
        let (times, start) = (PeerTimes::default(), Instant::now());
        let clock = PeerClock::new(times.clone(), "x", start);
        let average = move |now| times.peers().known.get_mut("x")?.average(now);
        (clock, average, start)
    }

    #[test]
    fn a_peer_that_is_behind_with_acknowledgements_is_waited_for() {
        let (mut clock, average, start) = clock();
        // A client sends its whole window at once, which the connection takes.
        for _ in 0..80 {
            clock.handed(1, 64 << 10, start);
            clock.sent(1, start, start);
        }
        // The peer writes a packet in 30 ms.
        for packet in 1..=80 {
            clock.acknowledged(start + 30 * MS * packet);
        }
        // Below 2 MiB it is not waited for: 49 packets from then on.
        let end = start + 30 * MS * 80;
        assert_eq!(average(end), Some((80, 49.0 * 30.0 / 80.0)));
        assert!(clock.open.is_empty() && clock.open_bytes == 0);
    }

    #[test]
    fn few_bytes_wait_for_a_sync_without_blame() {
        let (mut clock, average, start) = clock();
        for packet in 0..10 {
            let handed = start + 100 * MS * packet;
            clock.handed(1, 4 << 10, handed);
            clock.sent(1, handed, handed);
            clock.acknowledged(handed + 90 * MS);
        }
        assert_eq!(average(start + 1000 * MS), Some((10, 0.0)));
    }

    #[test]
    fn a_full_connection_and_missing_acknowledgements_count_once() {
        let (mut clock, average, start) = clock();
        clock.handed(40, 40 * (64 << 10), start);
        clock.acknowledged(start + 10 * MS);
        clock.sent(40, start, start + 20 * MS);
        (0..39).for_each(|_| clock.acknowledged(start + 25 * MS));
        assert_eq!(average(start + 25 * MS), Some((40, 25.0 / 40.0)));
        clock.acknowledged(start + 30 * MS);
        assert_eq!(
            average(start + 30 * MS),
            Some((40, 25.0 / 40.0)),
            "none is open"
        );
    }

    #[test]
    fn a_peer_that_acknowledges_nothing_takes_no_more_room() {
        let (mut clock, _, start) = clock();
        for _ in 0..RUNS + 50 {
            clock.handed(2, 100, start);
        }
        assert_eq!(clock.open.len(), RUNS);
        (0..2 * (RUNS + 50)).for_each(|_| clock.acknowledged(start));
        assert!(clock.open.is_empty() && clock.open_bytes == 0);
    }

    #[test]
    fn no_more_peers_are_kept_than_there_is_room_for() {
        let (times, now) = (PeerTimes::default(), Instant::now());
        for n in 0..PEERS + 5 {
            times.add(&Arc::from(n.to_string()), now, 1, MS);
        }
        assert_eq!(times.peers().known.len(), PEERS);
        let later = now + Duration::from_secs(4 * 3600);
        times.add(&Arc::from("new"), later, 1, MS);
        assert_eq!(
            times.peers().known.len(),
            1,
            "the old ones had nothing to say any more"
        );
    }
}
