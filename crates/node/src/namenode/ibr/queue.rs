//! What a NameNode has not been told yet: the incremental block report as a pure structure.
//!
//! One entry a block, the newest; the order of news is kept. News with an older generation stamp
//! than what is waiting or on its way never replaces or follows it. A late "deleted" of an old
//! replica would make the NameNode forget the good one. A batch whose sending failed goes back in
//! front, except where newer news has arrived. The number of entries is bounded; past it all of
//! them are dropped and the owner has to send a full report.

use std::collections::{BTreeMap, HashMap};

use hayloft_store::StorageInfo;
use hayloft_wire::ids::Block;
use hayloft_wire::proto::datanode::BlockStatus;

/// Entries for which memory is kept when nothing waits.
const KEPT_CAPACITY: usize = 1 << 14;

/// News of one replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::namenode) struct BlockChange {
    /// The block, with the replica's generation stamp and length.
    pub block: Block,
    /// What happened.
    pub status: BlockStatus,
    /// Uuid of a node whose replica may go instead of another's.
    pub delete_hint: Option<String>,
    /// The NameNode forgets first what it was told of the replica before.
    pub anew: bool,
}

/// What became of news handed to [`IbrQueue::add`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::namenode) enum Added {
    /// Older than what is known: dropped.
    Stale,
    /// Waits for the next report.
    Waits,
    /// Waits, and the report should leave now.
    Urgent,
    /// Too much was waiting: everything was dropped, a full report has to take its place.
    Overflow,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    seq: u64,
    storage: StorageInfo,
    news: BlockChange,
}

/// News on its way to the NameNode; goes back by [`IbrQueue::done`] or [`IbrQueue::put_back`].
#[derive(Debug, Default)]
pub(in crate::namenode) struct Batch {
    entries: Vec<Entry>,
}

impl Batch {
    /// Number of entries.
    pub(in crate::namenode) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The entries by storage; storages and the news of each in the order they came.
    pub(in crate::namenode) fn by_storage(&self) -> Vec<(StorageInfo, Vec<&BlockChange>)> {
        let mut groups: Vec<(StorageInfo, Vec<&BlockChange>)> = Vec::new();
        for entry in &self.entries {
            match groups
                .iter_mut()
                .find(|(storage, _)| *storage == entry.storage)
            {
                Some((_, news)) => news.push(&entry.news),
                None => groups.push((entry.storage.clone(), vec![&entry.news])),
            }
        }
        groups
    }
}

/// Pending news for one NameNode.
#[derive(Debug)]
pub(in crate::namenode) struct IbrQueue {
    /// By block id.
    pending: HashMap<i64, Entry>,
    /// Block ids in the order of their news.
    order: BTreeMap<u64, i64>,
    /// Generation stamps of the blocks in the batch on its way.
    in_flight: HashMap<i64, u64>,
    next_seq: u64,
    ready: bool,
    limit: usize,
}

impl IbrQueue {
    /// An empty queue for at most `limit` entries.
    pub(in crate::namenode) fn new(limit: usize) -> Self {
        Self {
            pending: HashMap::new(),
            order: BTreeMap::new(),
            in_flight: HashMap::new(),
            next_seq: 0,
            ready: false,
            limit: limit.max(1),
        }
    }

    /// Takes in news. RECEIVED leaves at once, because a client's `close` waits for it. RECEIVING
    /// and DELETED wait for the next report, as at Apache's.
    pub(in crate::namenode) fn add(
        &mut self,
        storage: &StorageInfo,
        mut news: BlockChange,
    ) -> Added {
        let id = news.block.id;
        let stamp = news.block.generation_stamp;
        if self.in_flight.get(&id).is_some_and(|sent| *sent > stamp) {
            return Added::Stale;
        }
        if let Some(old) = self.pending.get(&id) {
            let known = old.news.block.generation_stamp;
            let late_start = known == stamp
                && old.news.status == BlockStatus::Received
                && news.status == BlockStatus::Receiving;
            if known > stamp || late_start {
                return Added::Stale;
            }
            // What came after does not make the NameNode forget.
            news.anew |= old.news.anew && news.status != BlockStatus::Deleted;
        }
        let status = news.status;
        let seq = self.next_seq;
        self.next_seq += 1;
        if !self.insert(Entry {
            seq,
            storage: storage.clone(),
            news,
        }) {
            return Added::Overflow;
        }
        match status {
            BlockStatus::Received => {
                self.ready = true;
                Added::Urgent
            }
            BlockStatus::Receiving => {
                self.ready = true;
                Added::Waits
            }
            BlockStatus::Deleted => Added::Waits,
        }
    }

    /// False: the bound was met and everything dropped.
    fn insert(&mut self, entry: Entry) -> bool {
        let id = entry.news.block.id;
        if self.pending.len() >= self.limit && !self.pending.contains_key(&id) {
            self.pending.clear();
            self.order.clear();
            self.ready = false;
            return false;
        }
        self.order.insert(entry.seq, id);
        if let Some(old) = self.pending.insert(id, entry) {
            self.order.remove(&old.seq);
        }
        true
    }

    /// Whether a report should leave before the next heartbeat.
    pub(in crate::namenode) fn is_ready(&self) -> bool {
        self.ready
    }

    /// Makes what is waiting leave now.
    pub(in crate::namenode) fn trigger(&mut self) {
        self.ready = true;
    }

    /// Number of entries waiting.
    pub(in crate::namenode) fn len(&self) -> usize {
        self.pending.len()
    }

    /// Whether news of the block waits, or is on its way.
    pub(in crate::namenode) fn holds(&self, block_id: i64) -> bool {
        self.pending.contains_key(&block_id) || self.in_flight.contains_key(&block_id)
    }

    /// Takes the oldest entries, at most `max`. One batch at a time.
    pub(in crate::namenode) fn take(&mut self, max: usize) -> Batch {
        debug_assert!(self.in_flight.is_empty(), "one batch at a time");
        let mut entries = Vec::with_capacity(self.pending.len().min(max));
        while entries.len() < max {
            let Some((_, id)) = self.order.pop_first() else {
                break;
            };
            if let Some(entry) = self.pending.remove(&id) {
                self.in_flight.insert(id, entry.news.block.generation_stamp);
                entries.push(entry);
            }
        }
        self.ready = self.ready && !self.pending.is_empty();
        Batch { entries }
    }

    /// The NameNode has taken the batch.
    pub(in crate::namenode) fn done(&mut self, _batch: Batch) {
        self.in_flight.clear();
        if self.pending.is_empty() && self.pending.capacity() > KEPT_CAPACITY {
            // What piled up while a NameNode was away is not needed again soon.
            self.pending.shrink_to(KEPT_CAPACITY);
            self.in_flight.shrink_to(KEPT_CAPACITY);
        }
    }

    /// Sending failed: what was not overtaken by newer news waits again, in its old place. False:
    /// the bound was met and everything dropped, a full report has to take its place.
    pub(in crate::namenode) fn put_back(&mut self, batch: Batch) -> bool {
        self.in_flight.clear();
        for entry in batch.entries {
            let stamp = entry.news.block.generation_stamp;
            let newer = self.pending.get_mut(&entry.news.block.id);
            if let Some(newer) = newer.filter(|n| n.news.block.generation_stamp >= stamp) {
                let news = &mut newer.news;
                news.anew |= entry.news.anew && news.status != BlockStatus::Deleted;
                continue;
            }
            if !self.insert(entry) {
                return false;
            }
            self.ready = true;
        }
        true
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
