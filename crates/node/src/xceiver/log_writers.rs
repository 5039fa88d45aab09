//! Clients that write logs: many small packets, each of which they wait for.
//!
//! Such a client gets a thread of its own, which copies its packets into the page cache itself. On
//! a shared thread each packet would wait for another thread to do that, and for the answer: a disk
//! that hangs must not hold up the other connections there.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use hayloft_io::locks::lock;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Packets of a block from which on it tells what its writer does.
const PACKETS: u64 = 64;
/// Bytes of a log's packet, on average and at most: streams of other clients have 64 KiB and more.
const SMALL: u64 = 32 << 10;
/// Threads of a process for them, at most. Further ones are served as all clients are.
pub const LOG_THREADS_MAX: usize = 32;
/// Clients that are known, and bytes of a name: what comes with a longer one is not.
const KNOWN: usize = 128;
const NAME_MAX: usize = 256;

/// The clients of a process that are known to write logs.
#[derive(Debug)]
pub struct LogWriters {
    /// The last to write a log is the last.
    known: Mutex<VecDeque<String>>,
    threads: Arc<Semaphore>,
}

/// The place of a thread for a log's writer.
pub type LogThread = OwnedSemaphorePermit;

impl Default for LogWriters {
    fn default() -> Self {
        Self {
            known: Mutex::default(),
            threads: Arc::new(Semaphore::new(LOG_THREADS_MAX)),
        }
    }
}

impl LogWriters {
    /// A client has written a block in so many packets.
    pub fn wrote(&self, client: &str, packets: u64, bytes: u64) {
        let is_log = packets >= PACKETS && bytes / packets <= SMALL;
        if !is_log || client.is_empty() || client.len() > NAME_MAX {
            return;
        }
        let mut known = lock(&self.known);
        if known.back().is_some_and(|last| last == client) {
            return;
        }
        known.retain(|other| other != client);
        if known.len() == KNOWN {
            known.pop_front();
        }
        known.push_back(client.to_owned());
    }

    /// A thread for the next block of a client; `None` where it is not known, or no thread is left.
    pub fn thread_for(&self, client: &str) -> Option<LogThread> {
        let is_known = lock(&self.known).iter().any(|known| known == client);
        let threads = is_known.then(|| Arc::clone(&self.threads))?;
        threads.try_acquire_owned().ok()
    }

    /// Threads that there are.
    #[cfg(test)]
    pub fn running(&self) -> usize {
        LOG_THREADS_MAX - self.threads.available_permits()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_many_small_packets_writes_a_log() {
        let writers = LogWriters::default();
        for (client, packets, bytes) in [
            ("few", PACKETS - 1, 0),
            ("large", 1000, 1000 * (SMALL + 1)),
            ("none", 0, 0),
            ("", 1000, 1000),
        ] {
            writers.wrote(client, packets, bytes);
            assert!(writers.thread_for(client).is_none(), "{client}");
        }
        writers.wrote("log", PACKETS, PACKETS * SMALL);
        assert!(writers.thread_for("log").is_some());
        // What it writes besides changes nothing.
        writers.wrote("log", 1000, 64 << 20);
        assert!(writers.thread_for("log").is_some());
        let long = "x".repeat(NAME_MAX + 1);
        writers.wrote(&long, 1000, 1000);
        assert!(writers.thread_for(&long).is_none());
    }

    #[test]
    fn threads_and_names_are_few() {
        let writers = LogWriters::default();
        for number in 0..=KNOWN {
            writers.wrote(&format!("client {number}"), 1000, 1000);
        }
        assert!(writers.thread_for("client 0").is_none(), "forgotten");
        let taken: Vec<_> = (1..=LOG_THREADS_MAX)
            .map(|number| writers.thread_for(&format!("client {number}")))
            .collect();
        assert!(taken.iter().all(Option::is_some));
        assert!(writers.thread_for("client 50").is_none(), "no thread left");
        drop(taken);
        assert!(writers.thread_for("client 50").is_some());
    }
}
