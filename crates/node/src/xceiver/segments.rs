//! Memory that clients of this host share with the node: how they hear that a replica whose files
//! they have is not what it was.
//!
//! A client asks for a segment over a domain socket, and takes slots in it, one for each replica
//! that it has open. It marks a slot as valid, then the node registers it. The node takes the mark
//! away when the replica changes. A segment lives as long as the socket that it was asked for on.
//!
//! A slot is its first word, of flags and a count; the rest is not used. While a replica is cached,
//! its slots are anchorable: a client counts itself in before it reads without checksums.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use hayloft_io::locks::lock;
use hayloft_io::{SharedBits, SharedMemory};
use hayloft_store::{ReplicaMarks, ReplicaWatch, StoreError};
use hayloft_wire::proto::datatransfer::{ShortCircuitShmId, ShortCircuitShmSlot};
use tokio::sync::OwnedSemaphorePermit;

/// Bytes of a segment and of a slot, as Apache's clients expect them.
const SEGMENT_BYTES: usize = 8192;
const SLOT_BYTES: usize = 64;
/// Slots of a segment.
const SLOTS: usize = SEGMENT_BYTES / SLOT_BYTES;
const WORDS_OF_SLOT: usize = SLOT_BYTES / size_of::<u64>();
/// The replica may be read, and the slot be used.
const VALID: u64 = 1 << 63;
/// The replica is cached, and the slot's count may grow.
const ANCHORABLE: u64 = 1 << 62;
/// The count of readers that rely on that.
const ANCHORS: u64 = (1 << 31) - 1;

type Id = (i64, i64);

/// The segments of one node. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Segments(Arc<All>);

#[derive(Debug, Default)]
struct All {
    by_id: Mutex<HashMap<Id, Arc<Segment>>>,
    enabled: AtomicBool,
}

#[derive(Debug)]
struct Segment {
    id: Id,
    memory: Arc<SharedMemory>,
    slots: Mutex<Slots>,
}

#[derive(Debug, Default)]
struct Slots {
    /// By number; at most as many as fit.
    taken: HashMap<usize, ReplicaWatch>,
    /// Its client is gone.
    freed: bool,
}

impl Segments {
    /// Domain sockets are served from now on.
    pub fn enable(&self) {
        self.0.enabled.store(true, Ordering::Relaxed);
    }

    /// Whether this node has segments at all.
    #[must_use]
    pub fn are_enabled(&self) -> bool {
        self.0.enabled.load(Ordering::Relaxed)
    }

    /// A new segment, within the limit that `place` is of, and the descriptor for its client.
    ///
    /// # Errors
    /// Out of memory or descriptors.
    pub fn create(&self, place: OwnedSemaphorePermit) -> io::Result<(OwnSegment, OwnedFd)> {
        let (memory, fd) = SharedMemory::new("HadoopShortCircuitShm", SEGMENT_BYTES)?;
        let id = (rand::random(), rand::random());
        let segment = Arc::new(Segment {
            id,
            memory: Arc::new(memory),
            slots: Mutex::default(),
        });
        lock(&self.0.by_id).insert(id, Arc::clone(&segment));
        let own = OwnSegment {
            all: self.clone(),
            segment,
            _place: place,
        };
        Ok((own, fd))
    }

    /// Registers a slot that its client has marked as valid. `watch` has its mark taken away when
    /// the replica changes.
    ///
    /// # Errors
    /// In Apache's words.
    pub fn register(
        &self,
        slot: &ShortCircuitShmSlot,
        watch: impl FnOnce(ReplicaMarks) -> Result<ReplicaWatch, StoreError>,
    ) -> Result<RegisteredSlot, String> {
        let segment = self.find(&slot.shm_id)?;
        let name = format!("RegisteredShm({})", hex(&slot.shm_id));
        let number = slot.slot_idx;
        let Ok(index) = usize::try_from(number) else {
            return Err(format!("{name}: invalid negative slot index {number}"));
        };
        let valid = segment.valid(index).filter(|_| index < SLOTS);
        let valid = valid.ok_or_else(|| format!("{name}: invalid slot index {number}"))?;
        let mut slots = lock(&segment.slots);
        if slots.freed {
            return Err(unknown(&slot.shm_id));
        }
        if slots.taken.contains_key(&index) {
            return Err(format!("{name}: slot {number} is already in use."));
        }
        if !valid.any() {
            return Err(format!("{name}: slot {number} is not marked as valid."));
        }
        let marks = ReplicaMarks {
            anchorable: valid.beside(ANCHORABLE),
            anchors: valid.beside(ANCHORS),
            valid,
        };
        let watch = watch(marks).map_err(|error| error.to_string())?;
        slots.taken.insert(index, watch);
        drop(slots);
        Ok(RegisteredSlot {
            segment,
            index,
            kept: false,
        })
    }

    /// Gives a slot back.
    ///
    /// # Errors
    /// It is not registered; in Apache's words.
    pub fn release(&self, slot: &ShortCircuitShmSlot) -> Result<(), String> {
        let segment = self.find(&slot.shm_id)?;
        let index = usize::try_from(slot.slot_idx).ok();
        match index.is_some_and(|index| segment.release(index)) {
            true => Ok(()),
            false => Err(format!(
                "tried to unregister slot {}, which was not registered.",
                slot.slot_idx
            )),
        }
    }

    fn find(&self, id: &ShortCircuitShmId) -> Result<Arc<Segment>, String> {
        let found = lock(&self.0.by_id).get(&(id.hi, id.lo)).cloned();
        found.ok_or_else(|| unknown(id))
    }

    /// Segments that live.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        lock(&self.0.by_id).len()
    }
}

fn hex(id: &ShortCircuitShmId) -> String {
    format!("{:016x}{:016x}", id.hi, id.lo)
}

fn unknown(id: &ShortCircuitShmId) -> String {
    let id = hex(id);
    format!("there is no shared memory segment registered with shmId {id}")
}

impl Segment {
    /// The mark of a slot.
    fn valid(&self, index: usize) -> Option<SharedBits> {
        let word = index.checked_mul(WORDS_OF_SLOT)?;
        SharedBits::new(&self.memory, word, VALID)
    }

    /// Gives a slot back; false when it is not registered.
    fn release(&self, index: usize) -> bool {
        let watch = lock(&self.slots).taken.remove(&index);
        if watch.is_some()
            && let Some(valid) = self.valid(index)
        {
            valid.clear();
        }
        watch.is_some()
    }
}

/// A segment, which is freed when this is dropped: its slots are invalid from then on.
#[derive(Debug)]
pub struct OwnSegment {
    all: Segments,
    segment: Arc<Segment>,
    _place: OwnedSemaphorePermit,
}

impl OwnSegment {
    /// How its client names it.
    #[must_use]
    pub fn id(&self) -> ShortCircuitShmId {
        let (hi, lo) = self.segment.id;
        ShortCircuitShmId { hi, lo }
    }
}

impl Drop for OwnSegment {
    fn drop(&mut self) {
        lock(&self.all.0.by_id).remove(&self.segment.id);
        let taken = {
            let mut slots = lock(&self.segment.slots);
            slots.freed = true;
            std::mem::take(&mut slots.taken)
        };
        for index in taken.into_keys() {
            if let Some(valid) = self.segment.valid(index) {
                valid.clear();
            }
        }
    }
}

/// A slot that was registered, and is given back unless it is kept.
#[derive(Debug)]
pub struct RegisteredSlot {
    segment: Arc<Segment>,
    index: usize,
    kept: bool,
}

impl RegisteredSlot {
    /// Its client has the files: the slot stays until it is released or its segment freed.
    pub fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for RegisteredSlot {
    fn drop(&mut self) {
        if !self.kept {
            self.segment.release(self.index);
        }
    }
}
