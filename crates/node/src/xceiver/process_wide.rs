//! What the data transfer services of one process have together.

use std::sync::{Arc, OnceLock, RwLock};

use hayloft_io::BufferPool;
use hayloft_io::locks::{read, write};
use hayloft_store::Store;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::log_writers::LogWriters;
use super::settings::DATA_MEMORY;
use crate::xceiver::net::threads::Threads;

/// Streams that may hold write buffers for packets they have not sent in full, two buffers each at
/// most. Further streams are received elsewhere and copied.
const PLACES: usize = 32;

/// Connections of all nodes, before descriptors are counted: as many as the configuration allows.
const CLIENTS_MAX: usize = 10_000_000;

/// Segments of shared memory of all nodes, at most, and their part of the connections: 128 replicas
/// fit into one, and each client has its own.
const SEGMENTS_MAX: usize = 1024;
const SEGMENTS_SHARE: usize = 4;

/// Memory, places and threads of the data transfer services of a process, and which nodes these
/// are of. Clones are the same.
#[derive(Clone)]
pub struct XceiverShared(Arc<Inner>);

struct Inner {
    memory: BufferPool,
    places: Arc<Semaphore>,
    /// A permit for each connection that clients may have.
    clients: Arc<Semaphore>,
    /// A permit for each segment of memory that clients share with a node.
    segments: Arc<Semaphore>,
    /// What connections run on, once they are served.
    threads: OnceLock<Threads>,
    log_writers: LogWriters,
    /// The nodes, as many as the process has.
    nodes: RwLock<Vec<Store>>,
}

impl XceiverShared {
    /// With `reading_memory` bytes for reading ahead beside [`DATA_MEMORY`].
    #[must_use]
    pub fn new(reading_memory: usize) -> Self {
        Self(Arc::new(Inner {
            memory: BufferPool::new(DATA_MEMORY.saturating_add(reading_memory)),
            places: Arc::new(Semaphore::new(PLACES)),
            clients: Arc::new(Semaphore::new(CLIENTS_MAX)),
            segments: Arc::new(Semaphore::new(SEGMENTS_MAX)),
            threads: OnceLock::new(),
            log_writers: LogWriters::default(),
            nodes: RwLock::default(),
        }))
    }

    /// From now on clients have at most `connections` with all nodes together. Called once, before
    /// the first is accepted.
    pub fn limit_connections(&self, connections: usize) {
        let too_many = CLIENTS_MAX.saturating_sub(connections);
        self.0.clients.forget_permits(too_many);
        // Each keeps the connection that it came on.
        let too_many = SEGMENTS_MAX.saturating_sub(connections / SEGMENTS_SHARE);
        self.0.segments.forget_permits(too_many);
    }

    /// The place of a client's connection; `None` when all are taken.
    pub(super) fn client_place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0.clients).try_acquire_owned().ok()
    }

    /// The place of a segment; `None` when all are taken.
    pub(super) fn segment_place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0.segments).try_acquire_owned().ok()
    }

    pub(super) fn memory(&self) -> &BufferPool {
        &self.0.memory
    }

    pub(super) fn places(&self) -> &Arc<Semaphore> {
        &self.0.places
    }

    /// Clients that write logs.
    pub(super) fn log_writers(&self) -> &LogWriters {
        &self.0.log_writers
    }

    /// What connections run on. Started with the first call, ended with the last clone.
    pub(super) fn threads(&self) -> &Threads {
        self.0.threads.get_or_init(|| {
            Threads::start().unwrap_or_else(|error| {
                tracing::warn!(%error, "cannot start the threads of the data transfer service, \
                    which shares those of the \
                    node: raise the limits on processes and open files (ulimit -u, -n)");
                Threads::shared()
            })
        })
    }

    /// Makes a node known to its siblings: they take replicas over from its store.
    pub fn introduce(&self, store: &Store) {
        let mut nodes = write(&self.0.nodes);
        nodes.push(store.clone());
    }

    /// Forgets a node that stops.
    pub fn forget(&self, store: &Store) {
        let uuid = store.datanode_uuid();
        let mut nodes = write(&self.0.nodes);
        nodes.retain(|known| known.datanode_uuid() != uuid);
    }

    /// The store of the node with this uuid, if it is one of this process.
    pub(super) fn store_of(&self, uuid: &str) -> Option<Store> {
        let nodes = read(&self.0.nodes);
        nodes
            .iter()
            .find(|store| store.datanode_uuid() == uuid)
            .cloned()
    }
}
