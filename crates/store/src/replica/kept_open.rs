//! Files of finalized replicas that were read a moment ago, kept open: a small positional read
//! costs less than opening its two files.
//!
//! Every change of what is known of a block drops its entry and closes its files: the replica map
//! does both under one lock. Files that another program removed are noticed by their link count.

use std::sync::{Arc, LazyLock, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use hayloft_io::EngineFile;
use hayloft_io::locks;
use hayloft_wire::checksum::DataChecksum;

use super::finalized::FinalReplica;

/// Replicas kept open in a pool, at most.
const ENTRIES_MAX: usize = 64;
/// Descriptors of an entry: those of the data file, and of the meta file.
const DESCRIPTORS: u64 = 3;
/// Share of the process's descriptors that a pool may keep so.
const SHARE: u64 = 16;

/// Replicas kept open in a pool of this process: few where few descriptors are allowed.
static ENTRIES: LazyLock<usize> = LazyLock::new(|| entries(hayloft_io::descriptors_max()));

fn entries(descriptors_max: u64) -> usize {
    let fit = usize::try_from(descriptors_max / SHARE / DESCRIPTORS);
    fit.unwrap_or(usize::MAX).clamp(1, ENTRIES_MAX)
}

/// What opening a whole replica found.
#[derive(Clone, Debug)]
pub(crate) struct OpenFiles {
    pub data: Arc<dyn EngineFile>,
    pub meta: Option<Arc<dyn EngineFile>>,
    pub checksum: DataChecksum,
    /// CRC of the last chunk, when that is partial.
    pub last_crc: Option<u32>,
}

impl OpenFiles {
    /// Both files are there, and can be looked at without waiting.
    fn keepable(&self) -> bool {
        self.meta.as_ref().is_some_and(linked) && linked(&self.data)
    }
}

/// Whether the file still has a name.
fn linked(file: &Arc<dyn EngineFile>) -> bool {
    let facts = file.fd().and_then(hayloft_io::known);
    facts.is_some_and(|facts| facts.links > 0)
}

#[derive(Debug)]
struct Entry {
    id: i64,
    replica: FinalReplica,
    files: OpenFiles,
    used: Instant,
}

/// Files that are kept open no longer, until this is dropped.
#[derive(Debug)]
pub(crate) struct Forgotten(#[expect(dead_code, reason = "held, not used")] Vec<Entry>);

/// The files of the replicas read last, most recent at the end.
#[derive(Debug, Default)]
pub(crate) struct OpenReplicas(Mutex<Vec<Entry>>);

impl OpenReplicas {
    fn lock(&self) -> MutexGuard<'_, Vec<Entry>> {
        locks::lock(&self.0)
    }

    /// The open files of exactly this replica.
    pub fn find(&self, id: i64, replica: &FinalReplica) -> Option<OpenFiles> {
        let files = {
            let mut entries = self.lock();
            let at = entries
                .iter()
                .rposition(|e| e.id == id && e.replica == *replica)?;
            entries[at].used = Instant::now();
            let files = entries[at].files.clone();
            // A quarter from the end is recent enough: no shifting for every read.
            if at + *ENTRIES / 4 < entries.len() {
                let entry = entries.remove(at);
                entries.push(entry);
            }
            files
        };
        if files.keepable() {
            return Some(files);
        }
        self.forget(id);
        None
    }

    /// Keeps the files of a replica, unless they were removed. Called by the map, under its lock,
    /// while the replica is as given. What is no longer kept is closed when what is given back is
    /// dropped.
    pub fn keep(&self, id: i64, replica: FinalReplica, files: OpenFiles) -> Forgotten {
        let used = Instant::now();
        let entry = Entry {
            id,
            replica,
            files,
            used,
        };
        if !entry.files.keepable() {
            return Forgotten(vec![entry]);
        }
        let mut entries = self.lock();
        let mut gone: Vec<Entry> = entries.extract_if(.., |e| e.id == id).collect();
        if entries.len() >= *ENTRIES {
            gone.push(entries.remove(0));
        }
        entries.push(entry);
        Forgotten(gone)
    }

    /// No longer keeps the files of a block. They are closed when what is given back is dropped,
    /// and no reader has them any more.
    pub fn forget(&self, id: i64) -> Forgotten {
        let mut entries = self.lock();
        Forgotten(entries.extract_if(.., |e| e.id == id).collect())
    }

    /// No longer keeps what no reader has used for `idle`; see [`forget`](Self::forget).
    pub fn forget_idle(&self, idle: Duration) -> Forgotten {
        let mut entries = self.lock();
        Forgotten(
            entries
                .extract_if(.., |e| e.used.elapsed() >= idle)
                .collect(),
        )
    }

    /// How many replicas are kept open.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.lock().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_are_kept_where_few_descriptors_are_allowed() {
        let of = [(64, 1), (480, 10), (4096, 64), (u64::MAX, 64), (0, 1)];
        for (descriptors, kept) in of {
            assert_eq!(entries(descriptors), kept, "{descriptors}");
        }
    }
}
