//! The system's allocator, which waits a while before it says that there is no memory: the process
//! ends then. What others hold for a moment, readers' buffers above all, comes back meanwhile.
#![expect(
    unsafe_code,
    reason = "an allocator hands on what its caller promises: see each block"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::thread;
use std::time::Duration;

use crate::means::Means;

/// Attempts after the first, and the pause before each: ten seconds in all.
const AGAIN: u32 = 1000;
const PAUSE: Duration = Duration::from_millis(10);

/// Memory of the system's allocator. Where there is none, it tries again for ten seconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct PatientAllocator;

/// Tries again what gave no memory. Allocates nothing itself.
#[cold]
fn again(attempt: impl Fn() -> *mut u8) -> *mut u8 {
    for _ in 0..AGAIN {
        Means::Memory.note();
        thread::sleep(PAUSE);
        let memory = attempt();
        if !memory.is_null() {
            return memory;
        }
    }
    std::ptr::null_mut()
}

// SAFETY: every call goes to `System` with what the caller gave, and its answer back unchanged. A
// call that gave null has changed nothing, and may be made again.
unsafe impl GlobalAlloc for PatientAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as this function's caller promises.
        let attempt = || unsafe { System.alloc(layout) };
        let memory = attempt();
        if memory.is_null() {
            return again(attempt);
        }
        memory
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as this function's caller promises.
        let attempt = || unsafe { System.alloc_zeroed(layout) };
        let memory = attempt();
        if memory.is_null() {
            return again(attempt);
        }
        memory
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: as this function's caller promises; `old` is still whole after null.
        let attempt = || unsafe { System.realloc(old, layout, new_size) };
        let memory = attempt();
        if memory.is_null() {
            return again(attempt);
        }
        memory
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as this function's caller promises.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn memory_that_comes_back_is_waited_for() {
        let (left, before) = (Cell::new(3), Means::Memory.met());
        let mut byte = 0_u8;
        let given = &raw mut byte;
        let memory = again(|| {
            left.set(left.get() - 1);
            if left.get() > 0 {
                return std::ptr::null_mut();
            }
            given
        });
        assert_eq!(memory, given);
        assert!(Means::Memory.met() >= before + 3);
    }
}
