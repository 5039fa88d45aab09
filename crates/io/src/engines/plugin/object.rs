//! The file of a shared object: whose it may be, whether it is whole, whether it is still the same.

use std::fs::{File, Metadata};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;

/// Others may change a file with this bit.
const WRITABLE_BY_OTHERS: u32 = 0o002;
/// Bytes of the header of an ELF file of 64 bits, and of each of its segments.
const HEADER: usize = 64;
const SEGMENT: usize = 56;
/// Segments of an object, at most; what has more is left to the loader.
const SEGMENTS_MAX: u16 = 1024;
/// A segment that is mapped.
const PT_LOAD: u32 = 1;

/// What tells one state of a file from another: whatever changes its bytes changes one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
    len: u64,
    changed: (i64, i64),
}

impl Identity {
    fn of(found: &Metadata) -> Self {
        Self {
            device: found.dev(),
            inode: found.ino(),
            len: found.len(),
            changed: (found.ctime(), found.ctime_nsec()),
        }
    }

    /// Whether `path` still names that state.
    pub(super) fn is_at(&self, path: &Path) -> bool {
        std::fs::metadata(path).is_ok_and(|found| Self::of(&found) == *self)
    }
}

/// Looks at the file before anything of it is loaded.
///
/// # Errors
/// In words, for the operator.
pub(super) fn look_at(path: &Path) -> Result<Identity, String> {
    if !path.is_absolute() {
        return Err("its path must begin with /: plugin:/path/of/engine.so".into());
    }
    // What is no file, such as a pipe, is not opened.
    let found = std::fs::metadata(path).map_err(|e| e.to_string())?;
    if !found.is_file() {
        return Err("it is not a file".into());
    }
    if found.mode() & WRITABLE_BY_OTHERS != 0 {
        return Err("every user may change it: take that right away (chmod o-w)".into());
    }
    let file = File::open(path).map_err(|e| e.to_string())?;
    let found = file.metadata().map_err(|e| e.to_string())?;
    is_whole(&file, found.len())?;
    Ok(Identity::of(&found))
}

/// The file has all bytes that its segments map: a page behind its end ends who reads it. What is
/// no object for this machine is left to the loader.
fn is_whole(file: &File, len: u64) -> Result<(), String> {
    let cut = |end: u64| {
        Err(format!(
            "it is cut short: its segments reach to byte {end}, and the file has {len} bytes: copy \
             it again"
        ))
    };
    let mut header = [0; HEADER];
    if file.read_exact_at(&mut header, 0).is_err() || !is_elf_of_64_bits(&header) {
        return Ok(());
    }
    let (segments, size, count) = (
        u64::from_ne_bytes(part(&header, 32)),
        u16::from_ne_bytes(part(&header, 54)),
        u16::from_ne_bytes(part(&header, 56)),
    );
    if usize::from(size) != SEGMENT || count > SEGMENTS_MAX {
        return Ok(());
    }
    let mut table = vec![0; SEGMENT * usize::from(count)];
    if file.read_exact_at(&mut table, segments).is_err() {
        let bytes = u64::from(size) * u64::from(count);
        return cut(segments.saturating_add(bytes));
    }
    for segment in table.chunks_exact(SEGMENT) {
        let (offset, bytes) = (
            u64::from_ne_bytes(part(segment, 8)),
            u64::from_ne_bytes(part(segment, 32)),
        );
        let end = offset.saturating_add(bytes);
        if u32::from_ne_bytes(part(segment, 0)) == PT_LOAD && end > len {
            return cut(end);
        }
    }
    Ok(())
}

fn is_elf_of_64_bits(header: &[u8; HEADER]) -> bool {
    let order = if cfg!(target_endian = "little") { 1 } else { 2 };
    header[..6] == [0x7f, b'E', b'L', b'F', 2, order]
}

/// The `N` bytes at `at`, which the caller knows to be there.
fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    std::array::from_fn(|i| bytes[at + i])
}
