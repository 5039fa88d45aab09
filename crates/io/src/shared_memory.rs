//! Memory that is shared with another process by descriptor: words that both sides read and change.
#![expect(
    unsafe_code,
    reason = "a mapping is memory that its owner vouches for: see each block"
)]

use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Words of this process and of any that has the descriptor. The other side may write what it likes
/// at any time, but it cannot take the memory away: the file never shrinks.
#[derive(Debug)]
pub struct SharedMemory {
    start: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: the mapping stays where it is until this is dropped, and is only used as atomic words.
unsafe impl Send for SharedMemory {}
// SAFETY: as above.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// `bytes` zeroed bytes, a multiple of the page size and not 0, and the descriptor by which
    /// another process maps them. It is closed on exec, and `name` is what `/proc` shows.
    ///
    /// # Errors
    /// Out of memory or descriptors; `InvalidInput` for another number of bytes.
    pub fn new(name: &str, bytes: usize) -> io::Result<(Self, OwnedFd)> {
        let page = rustix::param::page_size();
        if bytes == 0 || !bytes.is_multiple_of(page) {
            let text = format!("{bytes} bytes are no pages of {page}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let file = file_of_memory(name)?;
        ftruncate(&file, bytes as u64)?;
        // A file that became shorter would end this process at its next look, by a signal.
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choosing touches no memory that
        // exists. Its file has `bytes` bytes and, sealed, keeps them.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                bytes,
                access,
                MapFlags::SHARED,
                &file,
                0,
            )
        };
        let start = NonNull::new(start?.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let words = bytes / size_of::<AtomicU64>();
        Ok((Self { start, words }, file))
    }

    /// The words, in the byte order of this machine.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the pages are mapped, readable and writable while `self` lives, aligned to more
        // than a word, and never shorter (sealed). They began as zeroes, which are words, and any
        // bytes that the other process writes are words too. It changes them as this process does:
        // by atomics of the machine, or by plain stores, whose torn halves are some value as well.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }
}

/// A file that can be sealed, and not be run as a program, where the kernel knows of that (6.3).
fn file_of_memory(name: &str) -> rustix::io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        Err(rustix::io::Errno::INVAL) => memfd_create(name, flags),
        other => other,
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        let bytes = self.words * size_of::<AtomicU64>();
        // SAFETY: the whole of a mapping made in `new`; every borrow of its words has ended with
        // `self`. Failure would leave it mapped, which harms no code.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), bytes) };
    }
}

/// Bits of a word of shared memory that tell the other process something while they are set.
#[derive(Clone, Debug)]
pub struct SharedBits {
    memory: Arc<SharedMemory>,
    word: usize,
    mask: u64,
}

impl SharedBits {
    /// The bits of `mask` in a word; `None` when there is no such word.
    #[must_use]
    pub fn new(memory: &Arc<SharedMemory>, word: usize, mask: u64) -> Option<Self> {
        (word < memory.words).then(|| Self {
            memory: Arc::clone(memory),
            word,
            mask,
        })
    }

    /// Whether any of the bits is set.
    #[must_use]
    pub fn any(&self) -> bool {
        self.memory.words()[self.word].load(Ordering::SeqCst) & self.mask != 0
    }

    /// Other bits of the same word.
    #[must_use]
    pub fn beside(&self, mask: u64) -> Self {
        Self {
            mask,
            ..self.clone()
        }
    }

    /// Sets the bits and leaves the others alone.
    pub fn set(&self) {
        self.memory.words()[self.word].fetch_or(self.mask, Ordering::SeqCst);
    }

    /// Clears the bits and leaves the others alone.
    pub fn clear(&self) {
        self.memory.words()[self.word].fetch_and(!self.mask, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::FileExt as _;

    #[test]
    fn both_sides_see_what_the_other_writes_and_neither_takes_it_away() {
        let (memory, fd) = SharedMemory::new("test", 8192).expect("memory");
        let (memory, file) = (Arc::new(memory), File::from(fd));
        assert_eq!(memory.words().len(), 1024);
        file.write_all_at(&u64::MAX.to_ne_bytes(), 64)
            .expect("writes");
        let bits = SharedBits::new(&memory, 8, 1 << 63).expect("is there");
        assert!(bits.any());
        bits.clear();
        assert!(!bits.any());
        let mut word = [0; 8];
        file.read_exact_at(&mut word, 64).expect("reads");
        assert_eq!(u64::from_ne_bytes(word), u64::MAX >> 1);
        for len in [0, 4096, 8191, 16384] {
            assert!(file.set_len(len).is_err(), "{len}");
        }
        bits.clear();
        let beside = bits.beside(1 << 62);
        assert!(!bits.any() && beside.any(), "each has its own");
        beside.clear();
        bits.set();
        assert!(bits.any() && !beside.any());
        assert!(SharedBits::new(&memory, 1024, 1).is_none());
    }

    #[test]
    fn only_pages_are_shared() {
        for bytes in [0, 1, 8191] {
            let error = SharedMemory::new("test", bytes).expect_err("refused");
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
    }
}
