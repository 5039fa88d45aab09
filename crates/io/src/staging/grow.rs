//! Finding memory for the area and giving it back: on a thread of its own, with no lock held.
//!
//! New memory is slow: pages are cleared, in a virtual machine by the host too, and huge ones have to be looked for. So
//! it is found one arena after the other, as long as somebody [waits](Area::take) for it, and ahead of that when little is
//! free, or somebody [would use](Area::ask_ahead) more; then with pauses, since nobody needs it yet.

use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use tracing::warn;

use super::area::Area;
use super::layout::{ARENA_BYTES, ARENA_SEGMENTS, PAGE, SEGMENT_BYTES, arena_offset, data_at};
use super::mapping::Mapping;
use crate::mapping::HUGE_PAGE;

/// Growing ahead pauses for so many times as long as it took to find memory: the processors have other work.
const PAUSES: u32 = 3;

/// Arenas whose memory is given back at a time.
const GIVEN_AT_ONCE: usize = 16;

impl Area {
    /// Finds memory as long as some is wanted. To be called without a lock by whoever learnt that he
    /// [must](super::arenas::Arenas::must_grow).
    pub(super) fn start_growing(self: &Arc<Self>) {
        let area = Arc::clone(self);
        let thread = std::thread::Builder::new().name("staging-memory".to_owned());
        if thread.spawn(move || area.grow()).is_err() {
            // No more threads: then whoever wants it finds it.
            self.grow();
        }
    }

    fn grow(&self) {
        let mut growing = Growing(Some(self));
        while !self.is_closed() {
            let begun = Instant::now();
            let Some(()) = self.grow_by_one() else {
                growing.0 = None; // Others may have begun since.
                return;
            };
            let took = begun.elapsed();
            let arenas = self.lock();
            let idle = |arenas: &mut super::arenas::Arenas| !arenas.is_asked() && !self.is_closed();
            // Woken by whoever waits for memory.
            let _arenas = self.wanted.wait_timeout_while(arenas, took * PAUSES, idle);
        }
    }

    /// Finds memory for an arena, if it is wanted.
    pub(super) fn grow_by_one(&self) -> Option<()> {
        let (at, map, huge) = {
            let mut arenas = self.lock();
            let (at, map) = arenas.begin()?;
            (at, map, arenas.wants_huge())
        };
        self.watch_name();
        let backed = self.back(at, map, huge);
        let mut arenas = self.lock();
        match backed {
            Ok((map, huge)) => {
                arenas.backed(at, map, huge);
                self.note_memory(arenas.backed_count(), true);
            }
            Err(errno) => {
                arenas.refused(at);
                let has = arenas.backed_count();
                self.note_memory(has, false);
                drop(arenas);
                self.say_refused(has, errno);
            }
        }
        self.changed.notify_waiters();
        Some(())
    }

    fn say_refused(&self, arenas: usize, errno: Errno) {
        if self.first_refusal() {
            warn!(area = %self.path().display(), arenas, error = %errno,
                "the staging area cannot grow to hayloft.memory.limit; going on with what it has: \
                 enlarge the file system or lower the limit");
        }
    }

    /// Puts memory behind all of an arena, so that touching it never fails; whether its data lies in huge pages.
    pub(super) fn back(
        &self,
        at: usize,
        map: Option<Arc<Mapping>>,
        huge: bool,
    ) -> Result<(Arc<Mapping>, bool), Errno> {
        let offset = arena_offset(at);
        let map = match map {
            Some(map) => map,
            None => Arc::new(Mapping::new(self.file(), offset)?),
        };
        let huge = huge && self.start_pages(offset).is_ok() && map.make_huge();
        // The rest, and what is not there yet of what was to be huge.
        if let Err(errno) = self.allocate(offset, ARENA_BYTES) {
            self.give_up(offset);
            return Err(errno);
        }
        Ok((map, huge))
    }

    /// One small page for each huge one: the kernel does not put a huge page where nothing is, and what is there has to
    /// be cleared twice and copied.
    fn start_pages(&self, offset: u64) -> Result<(), Errno> {
        const DATA: usize = ARENA_SEGMENTS * SEGMENT_BYTES;
        (0..DATA)
            .step_by(HUGE_PAGE)
            .try_for_each(|at| self.allocate(offset + (data_at(0) + at) as u64, PAGE))
    }

    fn allocate(&self, offset: u64, len: usize) -> Result<(), Errno> {
        let flags = FallocateFlags::empty();
        fallocate(self.file().as_fd(), flags, offset, len as u64)
    }

    /// Gives an arena's memory back: a hole reads as zeros, free descriptors.
    fn give_up(&self, offset: u64) -> bool {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(self.file().as_fd(), flags, offset, ARENA_BYTES as u64).is_ok()
    }

    /// Gives the memory of arenas that were not used for a while back to the system; the first one keeps its own.
    pub(super) fn shrink_when_idle(&self, idle: Duration) {
        for _ in 0..GIVEN_AT_ONCE {
            let Some(at) = self.lock().begin_giving(idle) else {
                return;
            };
            // What cannot be given back is kept.
            let given = self.give_up(arena_offset(at));
            self.lock().given(at, given);
            self.changed.notify_waiters();
        }
    }
}

/// Somebody finds memory, until this is dropped.
struct Growing<'a>(Option<&'a Area>);

impl Drop for Growing<'_> {
    fn drop(&mut self) {
        if let Some(area) = self.0 {
            area.lock().stopped();
            area.changed.notify_waiters();
        }
    }
}
