//! Limits of a disk's queues and threads, and what holds where neither the operator nor a
//! calibration says anything.

use std::time::Duration;

use super::media::Media;

/// Quantum of rotating media that was not measured: a third of a second at 100 MB/s, so that two
/// seeks a quantum cost about 5 %.
pub(super) const QUANTUM_ROTATING: u64 = 32 << 20;
/// Quantum of flash that was not measured: several of the device's largest requests at once.
pub(super) const QUANTUM_FLASH: u64 = 4 << 20;

/// Limits of one disk's queues and threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskConfig {
    /// Operations of one class that may be queued or running; the next one waits. Default 128.
    pub depth_per_class: usize,
    /// Reads and writes at once that do not reach the device: copies into the page cache, and what
    /// engines without a device do. Default 8.
    pub data_threads: usize,
    /// Reads and writes on a flash device at once (`hayloft.io.depth`). Default 32.
    pub depth: usize,
    /// Bytes that rotating media serve to one stream before they turn to another
    /// (`hayloft.io.quantum`), and writers hand in at once. `None`: 32 MiB, on flash 4 MiB.
    pub quantum: Option<u64>,
    /// What the device is (`hayloft.io.media`); `None`: as the kernel says. Default `None`.
    pub media: Option<Media>,
    /// How long rotating media wait for more of the stream they serve. Default 8 ms, less than a
    /// seek there and back.
    pub anticipation: Duration,
    /// Threads for syncs of clients and replication. Default 16: each waits for the device, and one
    /// commit of the file system's log, with one flush, serves all that wait.
    pub sync_threads: usize,
    /// Threads for names, directories and opening of clients and replication. Default 4.
    pub meta_threads: usize,
    /// Threads that send from the page cache to sockets. Default 8.
    pub send_threads: usize,
    /// Reads and writes of balancer, scan and delete at once while no client wants anything.
    /// Default 3.
    pub background_max: usize,
    /// Threads for names and syncs of balancer, scan and delete. Default 8: with the mount option
    /// `discard` each removal of a file waits for the device.
    pub background_threads: usize,
    /// A thread without work ends after this. Default 10 s.
    pub thread_idle: Duration,
}

impl Default for DiskConfig {
    fn default() -> Self {
        Self {
            depth_per_class: 128,
            data_threads: 8,
            depth: 32,
            quantum: None,
            media: None,
            anticipation: Duration::from_millis(8),
            sync_threads: 16,
            meta_threads: 4,
            send_threads: 8,
            background_max: 3,
            background_threads: 8,
            thread_idle: Duration::from_secs(10),
        }
    }
}

impl DiskConfig {
    /// Threads that a disk has under load, at most.
    #[must_use]
    pub fn threads_max(&self) -> usize {
        let data = self.data_threads.saturating_add(self.depth);
        let tasks = self.sync_threads + self.meta_threads + self.send_threads;
        // One closes files.
        data.saturating_add(tasks + self.background_threads + 1)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::{Arc, Barrier};

    use super::*;
    use crate::class::IoClass;
    use crate::disk::Disk;
    use crate::error::IoOp;

    #[tokio::test]
    async fn sixteen_syncs_may_wait_for_one_flush() {
        let disk = Disk::for_path(Path::new("/"), &DiskConfig::default()).expect("a disk");
        let all = Arc::new(Barrier::new(16));
        let syncs = (0..16).map(|_| {
            let all = Arc::clone(&all);
            let wait = move |_: &Path| {
                all.wait();
                Ok(())
            };
            disk.run(IoClass::ClientWrite, IoOp::Sync, Path::new("/"), wait)
        });
        let syncs = futures_util::future::join_all(syncs);
        let under_way = tokio::time::timeout(Duration::from_secs(10), syncs).await;
        for sync in under_way.expect("are under way at once") {
            sync.expect("ends");
        }
    }
}
