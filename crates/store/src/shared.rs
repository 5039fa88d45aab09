//! What the stores of one process have together.

use std::sync::Arc;

use hayloft_io::{BufferPool, Disks};

use crate::replica::locked_memory::LockedBudget;
use crate::volume::virtual_node_share::FileSystems;

/// Disks, memory and space of file systems of the stores of one process. Clones are the same.
#[derive(Clone, Debug)]
pub struct StoreShared {
    /// The physical devices: one scheduler each, whatever number of stores has volumes there.
    pub(crate) disks: Arc<Disks>,
    /// Memory for received data on its way to the disks.
    pub(crate) write_memory: BufferPool,
    /// The file systems under the volumes.
    pub(crate) file_systems: Arc<FileSystems>,
    /// Memory that cached replicas are locked in.
    pub(crate) locked: Arc<LockedBudget>,
}

impl StoreShared {
    /// For several stores, which have `write_memory` bytes together for received data on its way
    /// to the disks. Each volume reports what it uses and its part of what is free; room that one
    /// has promised is promised for all.
    #[must_use]
    pub fn new(write_memory: usize) -> Self {
        Self {
            disks: Arc::default(),
            write_memory: BufferPool::new(write_memory),
            file_systems: Arc::new(FileSystems::shared()),
            locked: Arc::default(),
        }
    }

    /// The same with at most `bytes` of memory, of `nodes` stores together, in which NameNodes may
    /// have replicas locked. Each store reports what it uses and its even part of what is free.
    #[must_use]
    pub fn with_locked_memory(self, bytes: u64, nodes: u64) -> Self {
        Self {
            locked: Arc::new(LockedBudget::new(bytes, nodes)),
            ..self
        }
    }

    /// For one store, whose volumes report their file systems as Apache's do.
    #[must_use]
    pub fn alone(write_memory: usize) -> Self {
        Self {
            file_systems: Arc::default(),
            ..Self::new(write_memory)
        }
    }
}
