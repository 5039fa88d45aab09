//! From a finalized replica to a cached one, and back, under the locks of the replica map.

use super::cached::{Kept, ToCache, Uncached, Uncaching};
use super::finalized::FinalReplica;
use super::locked_memory::{LockedReplica, LockedRoom};
use super::map::{ReplicaMap, Slot};

impl ReplicaMap {
    /// A finalized replica is to be cached in this room; `None` when it is on its way already, or
    /// has changed.
    pub(crate) fn begin_caching(
        &self,
        id: i64,
        replica: FinalReplica,
        room: LockedRoom,
    ) -> Option<ToCache> {
        let shard = self.shard(id);
        let unchanged = matches!(shard.get(&id), Some(Slot::Finalized(now)) if *now == replica);
        let number = unchanged.then(|| self.cached.begin(id, room)).flatten();
        number.map(|number| ToCache {
            id,
            replica,
            number,
        })
    }

    /// The room of a replica whose turn has come; `None` when it is not to be cached any more.
    pub(crate) fn room_to_cache(&self, of: &ToCache) -> Option<LockedRoom> {
        self.cached.load(of.id, of.number)
    }

    /// Whether a replica is still to be cached. Any change of it ends that.
    pub(crate) fn is_to_be_cached(&self, of: &ToCache) -> bool {
        self.cached.is_wanted(of.id, of.number)
    }

    /// A replica is locked and verified: it is cached from here on. It is given back when it has
    /// changed meanwhile, or was to be uncached.
    pub(crate) fn cached(&self, of: &ToCache, locked: LockedReplica) -> Option<LockedReplica> {
        let _shard = self.shard(of.id);
        let refused = self.cached.finish(of.id, of.number, locked);
        if refused.is_none() {
            self.watched().allow_anchors(of.id);
        }
        refused
    }

    /// A replica is not to be cached any more, whatever became of it.
    pub(crate) fn give_up_caching(&self, of: &ToCache) {
        drop(self.cached.end(of.id, of.number));
    }

    /// A block is to be uncached: at once, unless clients have anchors of it.
    pub(crate) fn uncache(&self, id: i64) -> Uncaching {
        let _shard = self.shard(id);
        let anchored = || self.watched().refuse_anchors(id);
        self.cached.uncache(id, anchored)
    }

    /// Uncaches a block now whose clients had anchors, unless it has changed since.
    pub(crate) fn end_uncaching(&self, id: i64, number: u64) -> Uncached {
        self.cached.end(id, number)
    }

    /// Whether a block is still to be uncached, and clients have anchors of it.
    pub(crate) fn is_held(&self, id: i64, number: u64) -> bool {
        self.cached.is_wanted(id, number) && self.watched().is_anchored(id)
    }

    /// Whether a block is on its way into memory, or there. One that was to leave stays.
    pub(crate) fn keep_cached(&self, id: i64) -> bool {
        let _shard = self.shard(id);
        let kept = self.cached.keep(id);
        if kept == Some(Kept::Again) {
            self.watched().allow_anchors(id);
        }
        kept.is_some()
    }

    /// The blocks that are cached, in no order.
    pub(crate) fn cached_ids(&self) -> Vec<i64> {
        self.cached.ids()
    }

    /// Nothing of the pool is cached any more when what is given back is dropped, and nothing will
    /// be.
    pub(crate) fn uncache_all(&self) -> Vec<Uncached> {
        self.cached.close()
    }
}
