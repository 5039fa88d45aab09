//! The page cache behind a writer: what was written is sent on its way to the device, and dropped.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::engine::EngineFile;
use crate::types::Advice;

/// Bytes that are dropped only when as many more were written: dirty pages cannot be dropped, so
/// they get time to reach the device. Apache's node has the same distance.
const LAG: u64 = 8 << 20;

/// What a writer wants of the page cache. Without effect in files that do not go through it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheHints {
    /// What was written starts on its way to the device at once
    /// (`dfs.datanode.sync.behind.writes`).
    pub sync_behind: bool,
    /// What was written is dropped some MiB later (`dfs.datanode.drop.cache.behind.writes`).
    pub drop_behind: bool,
}

/// How far the page cache behind one writer was minded.
#[derive(Debug)]
pub struct WriteBehind {
    hints: CacheHints,
    from: u64,
    minded: AtomicU64,
}

impl WriteBehind {
    /// For a writer that begins at the byte `from`: what is before stays as it is.
    #[must_use]
    pub fn new(hints: CacheHints, from: u64) -> Self {
        Self {
            hints,
            from,
            minded: AtomicU64::new(from),
        }
    }

    /// To be called when everything below `end` is in the file, or nearly: writes beside each other
    /// may end in any order, and what a hint comes too early for is reached by a later one. Errors
    /// are of no consequence.
    pub async fn written(&self, file: &dyn EngineFile, end: u64) {
        let CacheHints {
            sync_behind,
            drop_behind,
        } = self.hints;
        let step = if sync_behind { 1 } else { LAG };
        let last = self.minded.load(Ordering::Relaxed);
        if !(sync_behind || drop_behind) || end < last.saturating_add(step) {
            return;
        }
        let last = self.minded.fetch_max(end, Ordering::Relaxed);
        if end <= last {
            return;
        }
        let _ = file.start_writeback(last, end - last).await;
        let behind = last.saturating_sub(LAG);
        if drop_behind && behind > self.from {
            // From the beginning each time: pages that were dirty still are met again.
            let _ = file
                .advise(Advice::DontNeed, self.from, behind - self.from)
                .await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;

    use super::*;
    use crate::class::IoClass;
    use crate::decorators::{IoMetrics, Metered};
    use crate::disk::{Disk, DiskConfig};
    use crate::engine::Engine;
    use crate::engines::{EngineConfig, engine_by_name};
    use crate::error::IoOp;
    use crate::types::OpenMode;

    /// Hints that are given while 40 MiB are written, 4 at a time: how often write-back is begun,
    /// and pages dropped.
    async fn hints_of(sync_behind: bool, drop_behind: bool) -> (u64, u64) {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let disk = Disk::for_path(dir.path(), &DiskConfig::default()).expect("a disk");
        let metrics = Arc::new(IoMetrics::default());
        let posix = engine_by_name("posix", &EngineConfig::new(disk)).expect("a known name");
        let engine = Metered::new(posix, Arc::clone(&metrics));
        let opened = engine
            .open(
                &dir.path().join("f"),
                OpenMode::CreateNew,
                IoClass::ClientWrite,
            )
            .await;
        let file = opened.expect("opens");
        let hints = CacheHints {
            sync_behind,
            drop_behind,
        };
        let behind = WriteBehind::new(hints, 0);
        let piece = Bytes::from(vec![7; 4 << 20]);
        for n in 0..10_u64 {
            let at = n * piece.len() as u64;
            let written = file.write_at(vec![piece.clone()], at).await;
            written.result.expect("writes");
            behind.written(&*file, at + piece.len() as u64).await;
        }
        // One that ends late, behind others.
        behind.written(&*file, 36 << 20).await;
        let count = |op| metrics.total(&[op]).0;
        (count(IoOp::Writeback), count(IoOp::Advise))
    }

    #[tokio::test]
    async fn what_was_written_is_pushed_and_dropped_some_way_behind() {
        assert_eq!(hints_of(false, false).await, (0, 0));
        assert_eq!(hints_of(true, false).await, (10, 0));
        // Every 8 MiB, and dropped first when 16 have begun their way.
        assert_eq!(hints_of(false, true).await, (5, 3));
        assert_eq!(hints_of(true, true).await, (10, 7));
    }
}
