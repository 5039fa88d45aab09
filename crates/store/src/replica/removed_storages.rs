//! Storages that have left a pool: its full reports go on naming them for a while, each with an
//! empty list.
//!
//! A NameNode keeps what it believes to be on a storage until it hears otherwise, replica by
//! replica or in a full report that names the storage. It drops what is on one that heartbeats no
//! longer list only when more volumes have failed, which one that was taken out has not. What is
//! told replica by replica may be lost: too much of it may wait for a NameNode. A deletion in
//! progress when the volume left is not told.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::types::StorageInfo;

/// How long a storage is named. A NameNode that hears nothing of a node for some minutes drops all
/// of its replicas. One that does gets a full report when a volume leaves, and by default every six
/// hours: several by then. Not for ever: a report that names a dropped storage makes it anew until
/// the next heartbeat. It looks stale so long, and the NameNode does not answer such a report with
/// the order to finalize an upgrade.
const NAMED_FOR: Duration = Duration::from_secs(12 * 60 * 60);
/// Storages that are named; past it the oldest is not.
const NAMED_MAX: usize = 1024;

/// Storages that have left, the oldest first. Pure: the present is an argument.
#[derive(Debug, Default)]
pub struct RemovedStorages(VecDeque<(Instant, StorageInfo)>);

impl RemovedStorages {
    /// A storage has left.
    pub fn remember(&mut self, storage: StorageInfo, now: Instant) {
        self.forget(&storage.id);
        if self.0.len() >= NAMED_MAX {
            self.0.pop_front();
        }
        self.0.push_back((now, storage));
    }

    /// A storage is here.
    pub fn forget(&mut self, id: &str) {
        self.0.retain(|(_, storage)| *storage.id != *id);
    }

    /// Those that a report of now names.
    pub fn named(&mut self, now: Instant) -> Vec<StorageInfo> {
        self.0
            .retain(|(at, _)| now.saturating_duration_since(*at) < NAMED_FOR);
        self.0.iter().map(|(_, storage)| storage.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use hayloft_wire::ids::StorageType;

    use super::{NAMED_FOR, NAMED_MAX, RemovedStorages};
    use crate::types::StorageInfo;

    fn storage(n: usize, storage_type: StorageType) -> StorageInfo {
        StorageInfo {
            id: format!("DS-{n}").into(),
            storage_type,
        }
    }

    #[test]
    fn a_storage_is_named_once_until_it_is_here_or_long_gone() {
        let (mut left, now) = (RemovedStorages::default(), Instant::now());
        left.remember(storage(1, StorageType::Disk), now);
        left.remember(storage(2, StorageType::Disk), now);
        left.remember(storage(3, StorageType::Disk), now);
        let later = now + Duration::from_secs(1);
        left.remember(storage(1, StorageType::Ssd), later);
        left.forget("DS-2");
        let named = [storage(3, StorageType::Disk), storage(1, StorageType::Ssd)];
        assert_eq!(left.named(later), named);
        assert_eq!(left.named(now + NAMED_FOR), named[1..]);
        assert_eq!(left.named(later + NAMED_FOR), []);
    }

    #[test]
    fn of_too_many_the_oldest_are_not_named() {
        let (mut left, now) = (RemovedStorages::default(), Instant::now());
        for n in 0..NAMED_MAX + 2 {
            left.remember(storage(n, StorageType::Disk), now);
        }
        let named = left.named(now);
        assert_eq!(named.len(), NAMED_MAX);
        assert_eq!(named[0], storage(2, StorageType::Disk));
    }
}
