//! How long other nodes make this one wait when it passes packets on to them.

use std::collections::HashMap;
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

/// Measures one connection with the last node of a pipeline.
#[derive(Debug)]
pub struct PeerClock {
    times: PeerTimes,
    peer: Arc<str>,
    /// Everything handed over before this has been sent.
    idle_since: Instant,
}

impl PeerClock {
    /// For packets to `peer`: its address as Apache names it in reports, that of its HTTP port.
    #[must_use]
    pub fn new(times: PeerTimes, peer: &str, now: Instant) -> Self {
        Self {
            times,
            peer: peer.into(),
            idle_since: now,
        }
    }

    /// `packets` that were handed over at `handed` are sent. Time in which earlier ones were in the
    /// way is theirs.
    pub fn sent(&mut self, packets: u64, handed: Instant, now: Instant) {
        let took = now.saturating_duration_since(handed.max(self.idle_since));
        self.idle_since = now;
        self.times.add(&self.peer, now, packets, took);
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
