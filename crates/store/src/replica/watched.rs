//! Replicas whose files other processes have open: bits that tell these when a replica changes.
//!
//! Whatever changes what is known of a block clears its bits, under the lock of the replica map. A
//! client that looks at them before it reads by itself reads nothing that was deleted long ago.
//!
//! Of a cached replica a client may take anchors: it reads without comparing checksums while it has
//! some. The node waits for them a while before it uncaches the replica.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use hayloft_io::{SharedBits, locks};

/// What a client that has a replica's files shares with the node: three sets of bits of one word.
#[derive(Clone, Debug)]
pub struct ReplicaMarks {
    /// The replica is as it was. The client sets it, the node clears it.
    pub valid: SharedBits,
    /// The replica is cached, and anchors may be taken. Only the node changes it.
    pub anchorable: SharedBits,
    /// How many anchors the client has. Only the client changes it.
    pub anchors: SharedBits,
}

impl ReplicaMarks {
    fn clear(&self) {
        self.anchorable.clear();
        self.valid.clear();
    }

    fn are_anchored(&self) -> bool {
        self.valid.any() && self.anchors.any()
    }
}

/// The bits of a pool's replicas, by block id.
#[derive(Debug, Default)]
pub(crate) struct WatchedReplicas {
    /// Blocks below. A change of a block that overlooks a new entry is from before it: both hold
    /// the lock of the block's shard.
    blocks: AtomicUsize,
    /// By the numbers of their watches: the end of one costs the same however many a block has.
    bits: Mutex<HashMap<i64, HashMap<u64, ReplicaMarks>>>,
}

impl WatchedReplicas {
    /// Adds bits that the next change of the block clears. Called under the lock of its shard.
    pub fn add(&self, id: i64, number: u64, bits: ReplicaMarks) {
        let mut all = locks::lock(&self.bits);
        all.entry(id).or_default().insert(number, bits);
        self.blocks.store(all.len(), Ordering::Relaxed);
    }

    /// The block changes. Called under the lock of its shard.
    pub fn clear(&self, id: i64) {
        if self.blocks.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut all = locks::lock(&self.bits);
        for (_, bits) in all.remove(&id).unwrap_or_default() {
            bits.clear();
        }
        self.blocks.store(all.len(), Ordering::Relaxed);
    }

    /// The block is cached: anchors may be taken. Called under the lock of its shard.
    pub fn allow_anchors(&self, id: i64) {
        let all = locks::lock(&self.bits);
        for marks in all.get(&id).into_iter().flat_map(HashMap::values) {
            marks.anchorable.set();
        }
    }

    /// The block is to be uncached: no more anchors may be taken. Whether some are. Called under
    /// the lock of its shard.
    pub fn refuse_anchors(&self, id: i64) -> bool {
        let all = locks::lock(&self.bits);
        for marks in all.get(&id).into_iter().flat_map(HashMap::values) {
            marks.anchorable.clear();
        }
        drop(all);
        self.is_anchored(id)
    }

    /// Whether any client has anchors of the block.
    pub fn is_anchored(&self, id: i64) -> bool {
        let all = locks::lock(&self.bits);
        let mut marks = all.get(&id).into_iter().flat_map(HashMap::values);
        marks.any(ReplicaMarks::are_anchored)
    }

    /// All blocks change.
    pub fn clear_all(&self) {
        let mut all = locks::lock(&self.bits);
        for (_, bits) in all.drain().flat_map(|(_, bits)| bits) {
            bits.clear();
        }
        self.blocks.store(0, Ordering::Relaxed);
    }

    /// Leaves bits alone from now on.
    pub fn remove(&self, id: i64, number: u64) {
        let mut all = locks::lock(&self.bits);
        if let Some(of_block) = all.get_mut(&id) {
            of_block.remove(&number);
            if of_block.is_empty() {
                all.remove(&id);
            }
        }
        self.blocks.store(all.len(), Ordering::Relaxed);
    }

    /// How many bits are kept.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        locks::lock(&self.bits).values().map(HashMap::len).sum()
    }
}
