//! Which arenas have memory and which of their segments are free: bookkeeping, under the area's lock.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::layout::ARENA_SEGMENTS;
use super::mapping::Mapping;

/// How long small pages do after there were no huge ones.
const SMALL_FOR: Duration = Duration::from_secs(60);

/// How long memory is not asked for after the file system had none.
const REFUSED_FOR: Duration = Duration::from_secs(1);

/// With fewer free segments in memory than this, more is found before somebody waits for it.
const LOW: usize = ARENA_SEGMENTS / 2;

/// Arenas that are found at least when a burst would use more.
const BURST_ARENAS: usize = 16;

const ALL_FREE: u16 = u16::MAX;
const _: () = assert!(ARENA_SEGMENTS == 16, "a bit of u16 for each segment");

/// What an arena's bytes lie in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Memory {
    /// Nothing: touching them may fail.
    Cold,
    /// Somebody finds memory for them or gives it back: they are his.
    Changing,
    /// Allocated memory.
    Backed,
}

#[derive(Debug)]
struct Arena {
    map: Option<Arc<Mapping>>,
    /// A bit for each free segment.
    free: u16,
    memory: Memory,
    /// When a segment was given back last.
    used: Instant,
}

/// Where a segment is.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) arena: usize,
    pub(super) slot: usize,
    pub(super) map: Arc<Mapping>,
}

/// All arenas, and what memory is wanted.
#[derive(Debug)]
pub(super) struct Arenas {
    list: Vec<Arena>,
    max: usize,
    /// Arenas that have memory.
    backed: usize,
    /// Free segments in memory.
    free: usize,
    /// So many of them are waited for.
    asked: usize,
    /// Arenas to be found before somebody waits for them.
    ahead: usize,
    /// Somebody finds memory as long as it is wanted.
    growing: bool,
    /// There was no memory: not asked for until then.
    refused_until: Option<Instant>,
    /// There were no huge pages: not asked for until then.
    small_until: Option<Instant>,
}

impl Arenas {
    pub(super) fn new(max: usize) -> Self {
        Self {
            list: Vec::new(),
            max,
            backed: 0,
            free: 0,
            asked: 0,
            ahead: 0,
            growing: false,
            refused_until: None,
            small_until: None,
        }
    }

    /// Free segments in memory.
    pub(super) fn free(&self) -> usize {
        self.free
    }

    /// `n` segments, or none: the lowest free ones, since what was used last is warm, and a single stream touches few.
    pub(super) fn take(&mut self, n: usize) -> Option<Vec<Place>> {
        if self.free < n {
            return None;
        }
        let mut places = Vec::with_capacity(n);
        for (at, arena) in self.list.iter_mut().enumerate() {
            let (Memory::Backed, Some(map)) = (arena.memory, &arena.map) else {
                continue;
            };
            while arena.free != 0 && places.len() < n {
                let slot = arena.free.trailing_zeros();
                arena.free &= !(1 << slot);
                places.push(Place {
                    arena: at,
                    slot: slot as usize,
                    map: Arc::clone(map),
                });
            }
            if places.len() == n {
                break;
            }
        }
        self.free -= places.len();
        if self.free < LOW {
            self.ahead = self.ahead.max(1);
        }
        Some(places)
    }

    /// A segment is free again.
    pub(super) fn give_back(&mut self, arena: usize, slot: usize) {
        let arena = &mut self.list[arena];
        arena.free |= 1 << slot;
        arena.used = Instant::now();
        self.free += 1;
    }

    /// Asks for `n` free segments in memory.
    pub(super) fn ask(&mut self, n: usize) {
        self.asked = self.asked.max(n);
    }

    /// Asks for as much again as there is, when there is time: whoever still wants more then asks again. So a burst soon
    /// has all that the budget allows, and a short one does not take what only others would need.
    pub(super) fn ask_ahead(&mut self) {
        let more = self.backed.max(BURST_ARENAS).min(self.max);
        self.ahead = self.ahead.max(more);
    }

    /// Whether somebody waits for memory.
    pub(super) fn is_asked(&self) -> bool {
        self.asked > self.free
    }

    /// Whether the caller has to see to it that memory is found: it is wanted, and nobody does.
    pub(super) fn must_grow(&mut self) -> bool {
        let wanted = (self.is_asked() || self.ahead > 0) && self.can_grow();
        wanted && !std::mem::replace(&mut self.growing, true)
    }

    /// Whether memory may still be found, or is being given back and may be found then.
    pub(super) fn can_grow(&self) -> bool {
        !self.is_whole() && !self.is_refused()
    }

    /// Whether all that the budget allows has memory.
    fn is_whole(&self) -> bool {
        self.list.len() == self.max && self.backed_count() == self.max
    }

    /// Whether `n` segments in memory can be taken by somebody who does not need them: some are left for those who do, unless
    /// memory for these cannot be found any more, and the budget sees to it.
    pub(super) fn has_spare(&self, n: usize) -> bool {
        let spare = if self.is_whole() { 0 } else { LOW };
        self.free >= n + spare
    }

    /// The file system had no memory a moment ago.
    pub(super) fn is_refused(&self) -> bool {
        self.refused_until
            .is_some_and(|until| Instant::now() < until)
    }

    /// The file system had no memory at some time in the last `time`.
    pub(super) fn was_refused_within(&self, time: Duration) -> bool {
        self.refused_until
            .is_some_and(|until| Instant::now() < until + time)
    }

    /// Whether huge pages are worth a try. Looking for some takes long where memory is in pieces: who got none does
    /// not ask again for a while.
    pub(super) fn wants_huge(&self) -> bool {
        self.small_until.is_none_or(|until| Instant::now() >= until)
    }

    /// Takes the arena that is to get memory next, if that is wanted; else nobody grows any more.
    pub(super) fn begin(&mut self) -> Option<(usize, Option<Arc<Mapping>>)> {
        let wanted = self.is_asked() || self.ahead > 0;
        let next = if wanted && !self.is_refused() {
            self.next_cold()
        } else {
            None
        };
        if next.is_none() {
            self.asked = 0;
            self.ahead = 0;
        } else if !self.is_asked() {
            self.asked = 0;
            self.ahead -= 1;
        }
        let Some(at) = next else {
            self.growing = false;
            return None;
        };
        self.list[at].memory = Memory::Changing;
        Some((at, self.list[at].map.clone()))
    }

    fn next_cold(&mut self) -> Option<usize> {
        let cold = |arena: &Arena| arena.memory == Memory::Cold;
        let at = self.list.iter().position(cold);
        if at.is_none() && self.list.len() < self.max {
            self.list.push(Arena {
                map: None,
                free: ALL_FREE,
                memory: Memory::Cold,
                used: Instant::now(),
            });
            return Some(self.list.len() - 1);
        }
        at
    }

    /// The arena has memory, in huge pages unless there were none.
    pub(super) fn backed(&mut self, at: usize, map: Arc<Mapping>, huge: bool) {
        let arena = &mut self.list[at];
        arena.map = Some(map);
        arena.memory = Memory::Backed;
        arena.used = Instant::now();
        self.free += ARENA_SEGMENTS;
        self.backed += 1;
        if !huge && self.wants_huge() {
            self.small_until = Some(Instant::now() + SMALL_FOR);
        }
    }

    /// There is no memory for it.
    pub(super) fn refused(&mut self, at: usize) {
        self.list[at].memory = Memory::Cold;
        self.refused_until = Some(Instant::now() + REFUSED_FOR);
    }

    /// Nobody finds memory any more: whoever did has ended.
    pub(super) fn stopped(&mut self) {
        self.growing = false;
    }

    /// Takes an arena other than the first that was not used for `idle`, to give its memory back.
    pub(super) fn begin_giving(&mut self, idle: Duration) -> Option<usize> {
        let unused = |arena: &Arena| {
            let whole = arena.memory == Memory::Backed && arena.free == ALL_FREE;
            whole && arena.used.elapsed() >= idle
        };
        let at = 1 + self.list.iter().skip(1).position(unused)?;
        self.list[at].memory = Memory::Changing;
        self.free -= ARENA_SEGMENTS;
        self.backed -= 1;
        Some(at)
    }

    /// Its memory was given back, or could not be.
    pub(super) fn given(&mut self, at: usize, given: bool) {
        let arena = &mut self.list[at];
        if given {
            arena.memory = Memory::Cold;
        } else {
            arena.memory = Memory::Backed;
            arena.used = Instant::now();
            self.free += ARENA_SEGMENTS;
            self.backed += 1;
        }
    }

    /// Arenas that have memory.
    pub(super) fn backed_count(&self) -> usize {
        self.backed
    }

    /// Segments that are not free.
    pub(super) fn in_use(&self) -> usize {
        let used = |arena: &Arena| arena.free.count_zeros() as usize;
        self.list.iter().map(used).sum()
    }

    #[cfg(test)]
    pub(super) fn maps(&self) -> Vec<Arc<Mapping>> {
        self.list.iter().filter_map(|a| a.map.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::{ARENA_BYTES, arena_offset};
    use super::*;

    /// Arenas over nothing that is ever touched, and what memory for one looks like.
    fn arenas(max: usize) -> (Arenas, Arc<Mapping>) {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(arena_offset(0) + ARENA_BYTES as u64)
            .expect("is resized");
        let map = Mapping::new(&file, arena_offset(0)).expect("is mapped");
        (Arenas::new(max), Arc::new(map))
    }

    /// Finds memory until no more is wanted; how often.
    fn grow(arenas: &mut Arenas, map: &Arc<Mapping>) -> usize {
        let mut times = 0;
        while let Some((at, _)) = arenas.begin() {
            arenas.backed(at, Arc::clone(map), true);
            times += 1;
        }
        times
    }

    #[test]
    fn as_much_memory_is_found_as_somebody_waits_for() {
        let (mut arenas, map) = arenas(4);
        assert!(!arenas.must_grow(), "nobody wants any");
        arenas.ask(ARENA_SEGMENTS + 1);
        assert!(arenas.must_grow());
        assert!(!arenas.must_grow(), "somebody does");
        assert_eq!(grow(&mut arenas, &map), 2);
        assert!(arenas.take(2 * ARENA_SEGMENTS + 1).is_none());
        let taken = arenas.take(2 * ARENA_SEGMENTS).expect("all of it");
        // Nothing is free: some more before somebody waits for it.
        assert!(arenas.must_grow());
        assert_eq!(grow(&mut arenas, &map), 1);
        arenas.ask(100);
        assert!(arenas.must_grow());
        assert_eq!(grow(&mut arenas, &map), 1, "there are four");
        arenas.ask(100);
        assert!(!arenas.must_grow());
        assert_eq!(arenas.in_use(), taken.len());
    }

    #[test]
    fn growing_ahead_finds_one_arena_when_little_is_free_and_as_much_again_for_a_burst() {
        let (mut arenas, map) = arenas(50);
        arenas.ask(ARENA_SEGMENTS);
        assert_eq!(grow(&mut arenas, &map), 1);
        arenas.take(ARENA_SEGMENTS - LOW + 1).expect("is there");
        assert!(arenas.must_grow());
        assert_eq!(grow(&mut arenas, &map), 1);
        assert!(!arenas.must_grow());
        arenas.ask_ahead();
        assert!(arenas.must_grow());
        // Whoever waits does not make it less: his comes on top.
        arenas.ask(2 * ARENA_SEGMENTS);
        assert_eq!(grow(&mut arenas, &map), 17);
        arenas.ask_ahead();
        assert!(arenas.must_grow());
        assert_eq!(grow(&mut arenas, &map), 19, "as many again");
        arenas.ask_ahead();
        assert!(arenas.must_grow());
        assert_eq!(grow(&mut arenas, &map), 12);
        arenas.ask_ahead();
        assert!(!arenas.must_grow(), "there are fifty");
    }

    #[test]
    fn memory_is_not_asked_for_again_at_once_where_there_was_none() {
        let (mut arenas, map) = arenas(4);
        arenas.ask(1);
        assert_eq!(grow(&mut arenas, &map), 1);
        arenas.ask(ARENA_SEGMENTS + 1);
        assert!(arenas.must_grow());
        let (at, _) = arenas.begin().expect("is wanted");
        arenas.refused(at);
        assert!(arenas.begin().is_none());
        assert!(arenas.is_refused() && !arenas.can_grow());
        arenas.ask(ARENA_SEGMENTS + 1);
        assert!(!arenas.must_grow());
        assert_eq!(arenas.free(), ARENA_SEGMENTS);
    }

    #[test]
    fn memory_that_is_given_back_can_be_found_again() {
        let (mut arenas, map) = arenas(2);
        arenas.ask(2 * ARENA_SEGMENTS);
        assert_eq!(grow(&mut arenas, &map), 2);
        let taken = arenas.take(ARENA_SEGMENTS).expect("the first arena");
        assert!(taken.iter().all(|place| place.arena == 0));
        let at = arenas.begin_giving(Duration::ZERO).expect("the other one");
        assert_eq!((at, arenas.free()), (1, 0));
        arenas.ask(1);
        assert!(arenas.begin().is_none(), "it is being given back");
        assert!(arenas.can_grow(), "and can be found again then");
        arenas.given(at, true);
        arenas.ask(1);
        assert_eq!(grow(&mut arenas, &map), 1);
        assert_eq!(arenas.free(), ARENA_SEGMENTS);
        for place in taken {
            arenas.give_back(place.arena, place.slot);
        }
        assert!(arenas.begin_giving(Duration::from_secs(60)).is_none());
        assert_eq!(arenas.in_use(), 0);
    }
}
