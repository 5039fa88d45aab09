//! Bytes of new replicas, kept in memory until their group is encoded: a disk that is written past
//! the page cache need not give them again.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hayloft_io::{AlignedBuf, BufferPool, locks};
use hayloft_wire::ids::PoolId;

use super::STRIDE;

/// A replica: its storage, pool and block.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RecentKey {
    /// Storage id.
    pub storage: Arc<str>,
    /// Its pool.
    pub pool: PoolId,
    /// Block id.
    pub id: i64,
}

/// What is kept of a replica.
#[derive(Debug)]
struct RecentReplica {
    /// Bytes so far.
    len: u64,
    /// Memory that it may take, bytes.
    promised: u64,
    /// Each of `STRIDE` bytes but for the last.
    pieces: VecDeque<AlignedBuf>,
    /// When bytes came last.
    touched: Instant,
}

#[derive(Debug, Default)]
struct Kept {
    replicas: HashMap<RecentKey, RecentReplica>,
    /// Memory promised to all, bytes.
    promised: u64,
}

impl Kept {
    fn forget(&mut self, key: &RecentKey) -> Option<RecentReplica> {
        let gone = self.replicas.remove(key)?;
        self.promised = self.promised.saturating_sub(gone.promised);
        Some(gone)
    }
}

/// New replicas in memory, within a budget. One that does not fit as a whole is not kept: those
/// that are there get encoded and make room.
#[derive(Debug)]
pub struct RecentReplicas {
    budget: u64,
    /// What got no bytes for so long makes room for another.
    stale: Duration,
    memory: BufferPool,
    kept: Mutex<Kept>,
}

fn whole_pieces(bytes: u64) -> u64 {
    bytes
        .checked_next_multiple_of(STRIDE as u64)
        .unwrap_or(u64::MAX)
}

impl RecentReplicas {
    /// At most `budget` bytes; less than one piece of `STRIDE` keeps nothing.
    pub fn new(budget: u64, stale: Duration) -> Self {
        let memory = BufferPool::new(usize::try_from(budget).unwrap_or(usize::MAX));
        Self {
            budget,
            stale,
            memory,
            kept: Mutex::default(),
        }
    }

    /// Whether anything is kept at all.
    pub fn is_on(&self) -> bool {
        self.budget >= STRIDE as u64
    }

    /// Whether half of the budget is promised.
    pub fn is_tight(&self) -> bool {
        self.is_on() && self.bytes() >= self.budget / 2
    }

    /// Memory that is promised to replicas now, bytes.
    pub fn bytes(&self) -> u64 {
        locks::lock(&self.kept).promised
    }

    /// `data` was written at `offset` of a replica that is expected to reach `expected` bytes; only
    /// one task writes a replica.
    pub fn written(&self, key: &RecentKey, (offset, expected): (u64, u64), data: &[Bytes]) {
        let Some(mut replica) = self.to_extend(key, offset, expected) else {
            return;
        };
        let fits = data.iter().all(|bytes| self.append(&mut replica, bytes));
        replica.touched = Instant::now();
        let mut kept = locks::lock(&self.kept);
        if fits {
            kept.replicas.insert(key.clone(), replica);
        } else {
            kept.promised = kept.promised.saturating_sub(replica.promised);
        }
    }

    /// Takes out what there is of a replica that ends at `offset`; its memory stays promised. Of
    /// another length it is forgotten: it was cut, or its beginning did not fit.
    fn to_extend(&self, key: &RecentKey, offset: u64, expected: u64) -> Option<RecentReplica> {
        let mut kept = locks::lock(&self.kept);
        if kept.replicas.get(key).is_some_and(|r| r.len == offset) {
            return kept.replicas.remove(key);
        }
        kept.forget(key);
        let promised = whole_pieces(expected);
        if offset != 0 || expected == 0 || promised > self.budget {
            return None;
        }
        if kept.promised + promised > self.budget {
            let stale = kept.replicas.iter();
            let stale = stale.filter(|(_, replica)| replica.touched.elapsed() >= self.stale);
            let stale: Vec<RecentKey> = stale.map(|(key, _)| key.clone()).collect();
            for key in stale {
                kept.forget(&key);
            }
        }
        if kept.promised + promised > self.budget {
            return None;
        }
        kept.promised += promised;
        Some(RecentReplica {
            len: 0,
            promised,
            pieces: VecDeque::new(),
            touched: Instant::now(),
        })
    }

    /// Whether `bytes` fit into what was promised.
    fn append(&self, replica: &mut RecentReplica, mut bytes: &[u8]) -> bool {
        replica.len += bytes.len() as u64;
        while !bytes.is_empty() {
            let full = replica.pieces.back().is_none_or(|p| p.len() == STRIDE);
            if full {
                let most = replica.promised / STRIDE as u64;
                if replica.pieces.len() as u64 >= most {
                    return false;
                }
                // None while an encoder has not given back its pieces.
                let Ok(Some(piece)) = self.memory.try_acquire(STRIDE) else {
                    return false;
                };
                replica.pieces.push_back(piece);
            }
            let Some(piece) = replica.pieces.back_mut() else {
                return false;
            };
            let now = bytes.len().min(STRIDE - piece.len());
            piece.extend_from_slice(&bytes[..now]);
            bytes = &bytes[now..];
        }
        true
    }

    /// The replica is finalized with `len` bytes: memory that it did not need is free.
    pub fn finalized(&self, key: &RecentKey, len: u64) {
        let mut kept = locks::lock(&self.kept);
        let Some(mut replica) = kept.forget(key) else {
            return;
        };
        if replica.len == len {
            replica.promised = whole_pieces(len);
            kept.promised += replica.promised;
            kept.replicas.insert(key.clone(), replica);
        }
    }

    /// Whether all `len` bytes of a replica are there.
    pub fn has(&self, key: &RecentKey, len: u64) -> bool {
        let kept = locks::lock(&self.kept);
        kept.replicas.get(key).is_some_and(|r| r.len == len)
    }

    /// Takes the bytes of a replica of `len` bytes, in pieces of `STRIDE`, if all are there. Their
    /// memory is free for others once they are dropped.
    pub fn take(&self, key: &RecentKey, len: u64) -> VecDeque<AlignedBuf> {
        let mut kept = locks::lock(&self.kept);
        let replica = kept.forget(key).filter(|replica| replica.len == len);
        replica.map(|replica| replica.pieces).unwrap_or_default()
    }

    /// The replica changes or goes.
    pub fn forget(&self, key: &RecentKey) {
        locks::lock(&self.kept).forget(key);
    }

    /// Gives memory back to the system that was not used for a while.
    pub fn trim(&self) {
        self.memory.trim(self.stale);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIECE: u64 = STRIDE as u64;

    fn key(id: i64) -> RecentKey {
        RecentKey {
            storage: "DS-1".into(),
            pool: PoolId::new("BP-1-127.0.0.1-1").expect("valid"),
            id,
        }
    }

    fn recent(pieces: u64) -> RecentReplicas {
        RecentReplicas::new(pieces * PIECE, Duration::from_secs(600))
    }

    fn bytes(from: u64, len: u64) -> Bytes {
        let byte = |i: u64| u8::try_from(i % 251).expect("a byte");
        (from..from + len).map(byte).collect()
    }

    /// Writes a whole replica in odd pieces.
    fn put(recent: &RecentReplicas, id: i64, expected: u64, len: u64) {
        let mut at = 0;
        while at < len {
            let (a, b) = (100_001.min(len - at), 77_777);
            let data = [bytes(at, a), bytes(at + a, b.min(len - at - a))];
            recent.written(&key(id), (at, expected), &data);
            at += data.iter().map(|d| d.len() as u64).sum::<u64>();
        }
        recent.finalized(&key(id), len);
    }

    fn taken(recent: &RecentReplicas, id: i64, len: u64) -> Vec<u8> {
        let pieces = recent.take(&key(id), len);
        let whole = pieces.iter().rev().skip(1).all(|p| p.len() == STRIDE);
        assert!(whole, "pieces are strides");
        pieces.iter().flat_map(|p| p.as_slice().to_vec()).collect()
    }

    #[test]
    fn what_was_written_comes_back_once() {
        let recent = recent(8);
        let len = 3 * PIECE + 12_345;
        put(&recent, 1, len, len);
        assert!(recent.has(&key(1), len) && !recent.has(&key(1), len - 1));
        assert!(taken(&recent, 1, len) == bytes(0, len)[..]);
        assert_eq!((taken(&recent, 1, len), recent.bytes()), (Vec::new(), 0));
    }

    #[test]
    fn one_that_does_not_fit_leaves_the_others() {
        let recent = recent(8);
        put(&recent, 1, 6 * PIECE, 2 * PIECE + 1);
        assert_eq!(recent.bytes(), 3 * PIECE, "what it did not need is free");
        put(&recent, 2, 6 * PIECE, PIECE);
        assert!(!recent.has(&key(2), PIECE), "its block may become too long");
        put(&recent, 3, 5 * PIECE, 5 * PIECE);
        assert!(recent.has(&key(1), 2 * PIECE + 1) && recent.has(&key(3), 5 * PIECE));
        // One that grows beyond what it said goes, and gives back what it had.
        drop(recent.take(&key(1), 2 * PIECE + 1));
        put(&recent, 4, PIECE, 2 * PIECE);
        assert!(!recent.has(&key(4), 2 * PIECE));
        assert_eq!(recent.bytes(), 5 * PIECE);
    }

    #[test]
    fn a_replica_that_was_cut_or_is_appended_to_is_forgotten() {
        let recent = recent(8);
        recent.written(&key(1), (0, PIECE), &[bytes(0, 1000)]);
        recent.written(&key(1), (500, PIECE), &[bytes(500, 1000)]);
        recent.finalized(&key(1), 1500);
        assert!(!recent.has(&key(1), 1500));
        put(&recent, 2, PIECE, 1000);
        recent.written(&key(2), (900, PIECE), &[bytes(900, 1000)]);
        assert_eq!((taken(&recent, 2, 1900), recent.bytes()), (Vec::new(), 0));
    }

    #[test]
    fn what_no_writer_goes_on_with_makes_room() {
        let recent = RecentReplicas::new(4 * PIECE, Duration::ZERO);
        recent.written(&key(1), (0, 4 * PIECE), &[bytes(0, 1000)]);
        put(&recent, 2, 4 * PIECE, 4 * PIECE);
        assert!(recent.has(&key(2), 4 * PIECE));
        // Its writer comes back: what went before is missing.
        recent.written(&key(1), (1000, 4 * PIECE), &[bytes(1000, 1000)]);
        assert_eq!(recent.bytes(), 4 * PIECE);
    }

    #[test]
    fn without_a_budget_nothing_is_kept() {
        let recent = RecentReplicas::new(0, Duration::ZERO);
        assert!(!recent.is_on());
        put(&recent, 1, 1000, 1000);
        assert!(!recent.has(&key(1), 1000));
    }
}
