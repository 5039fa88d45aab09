//! Replicas whose files other processes have open: bits that tell these when a replica changes.
//!
//! Whatever changes what is known of a block clears its bits, under the lock of the replica map. A
//! client that looks at them before it reads by itself reads nothing that was deleted long ago.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use hayloft_io::{SharedBits, locks};

/// The bits of a pool's replicas, by block id.
#[derive(Debug, Default)]
pub(crate) struct WatchedReplicas {
    /// Blocks below. A change of a block that overlooks a new entry is from before it: both hold
    /// the lock of the block's shard.
    blocks: AtomicUsize,
    /// By the numbers of their watches: the end of one costs the same however many a block has.
    bits: Mutex<HashMap<i64, HashMap<u64, SharedBits>>>,
}

impl WatchedReplicas {
    /// Adds bits that the next change of the block clears. Called under the lock of its shard.
    pub fn add(&self, id: i64, number: u64, bits: SharedBits) {
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
