//! The engine `null` as a plug-in in Rust: drops what is written, reads zeros. An example to begin
//! with, and the measure of what the interface costs.
//!
//! `cargo build --release -p hayloft-io --example null_plugin`, then
//! `hayloft.io.engine=plugin:/path/of/target/release/examples/libnull_plugin.so`.
#![expect(
    unsafe_code,
    reason = "the interface is C; each function says what it rests on"
)]

use std::collections::HashMap;
use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::fs::{File, OpenOptions};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use hayloft_io::engines::plugin::abi::{
    ABI, ANY_CALLS, CREATE_NEW, EngineTable, OUTLIVES_PROCESS, READ_ONLY,
};

const EIO: c_int = 5;
const EISDIR: c_int = 21;
const EINVAL: i64 = 22;

/// Lengths of open files, by device and inode.
type Lengths = Mutex<HashMap<(u64, u64), Weak<AtomicU64>>>;

/// An open file. The real one gets its length by a sync, a cut, and when it is closed.
struct Null {
    file: File,
    writable: bool,
    length: Arc<AtomicU64>,
}

impl Null {
    fn settle(&self) -> std::io::Result<u64> {
        let length = self.length.load(Ordering::Acquire);
        if self.writable {
            self.file.set_len(length)?;
        }
        Ok(length)
    }
}

fn errno(error: &std::io::Error) -> c_int {
    -error.raw_os_error().unwrap_or(EIO)
}

fn done(result: std::io::Result<u64>) -> c_int {
    result.map_or_else(|error| errno(&error), |_| 0)
}

unsafe extern "C" fn open_volume(
    _directory: *const c_char,
    _options: *const c_char,
    volume: *mut *mut c_void,
) -> c_int {
    let lengths = Box::into_raw(Box::<Lengths>::default());
    // SAFETY: the node gives a place for one pointer.
    unsafe { *volume = lengths.cast() };
    0
}

unsafe extern "C" fn close_volume(volume: *mut c_void) {
    // SAFETY: `open_volume` made it of a box, and no call on it follows.
    drop(unsafe { Box::from_raw(volume.cast::<Lengths>()) });
}

unsafe extern "C" fn open(
    volume: *mut c_void,
    path: *const c_char,
    mode: c_int,
    file: *mut *mut c_void,
) -> c_int {
    // SAFETY: the node keeps the volume while files of it are opened; the path ends with a zero.
    let (lengths, path) = unsafe { (&*volume.cast::<Lengths>(), CStr::from_ptr(path)) };
    match opened(lengths, OsStr::from_bytes(path.to_bytes()), mode) {
        Ok(null) => {
            // SAFETY: the node gives a place for one pointer.
            unsafe { *file = Box::into_raw(Box::new(null)).cast() };
            0
        }
        Err(error) => errno(&error),
    }
}

fn opened(lengths: &Lengths, path: &OsStr, mode: c_int) -> std::io::Result<Null> {
    let writable = mode != READ_ONLY;
    let mut options = OpenOptions::new();
    options.read(true).write(writable);
    options.create_new(mode == CREATE_NEW);
    let file = options.open(path)?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(std::io::Error::from_raw_os_error(EISDIR));
    }
    let key = (found.dev(), found.ino());
    let mut lengths = lengths.lock().unwrap_or_else(PoisonError::into_inner);
    if mode == CREATE_NEW {
        // Another file had this inode.
        lengths.remove(&key);
    }
    lengths.retain(|_, length| length.strong_count() > 0);
    let known = lengths.get(&key).and_then(Weak::upgrade);
    let length = known.unwrap_or_else(|| {
        let length = Arc::new(AtomicU64::new(found.len()));
        lengths.insert(key, Arc::downgrade(&length));
        length
    });
    Ok(Null {
        file,
        writable,
        length,
    })
}

/// The file that the node has open.
fn null<'a>(file: *mut c_void) -> &'a Null {
    // SAFETY: `open` made it, and the node makes no call after `close`.
    unsafe { &*file.cast::<Null>() }
}

unsafe extern "C" fn close(file: *mut c_void) {
    // SAFETY: `open` made it of a box, and no call on it follows.
    let null = unsafe { Box::from_raw(file.cast::<Null>()) };
    // No caller is left to hear of an error.
    let _ = null.settle();
}

unsafe extern "C" fn read(file: *mut c_void, buffer: *mut c_void, count: u64, offset: u64) -> i64 {
    let there = null(file).length.load(Ordering::Acquire);
    let some = there.saturating_sub(offset).min(count);
    let bytes = usize::try_from(some).unwrap_or(0);
    // SAFETY: the node's buffer has room for `count` bytes.
    unsafe { std::ptr::write_bytes(buffer.cast::<u8>(), 0, bytes) };
    i64::try_from(some).unwrap_or(0)
}

unsafe extern "C" fn write(file: *mut c_void, _: *const c_void, count: u64, offset: u64) -> i64 {
    null(file)
        .length
        .fetch_max(offset + count, Ordering::AcqRel);
    i64::try_from(count).unwrap_or(-EINVAL)
}

unsafe extern "C" fn truncate(file: *mut c_void, length: u64) -> c_int {
    null(file).length.store(length, Ordering::Release);
    done(null(file).settle())
}

unsafe extern "C" fn sync(file: *mut c_void, _what: c_int) -> c_int {
    done(null(file).settle())
}

unsafe extern "C" fn length(file: *mut c_void) -> i64 {
    match null(file).settle() {
        Ok(length) => i64::try_from(length).unwrap_or(i64::MAX),
        Err(error) => errno(&error).into(),
    }
}

unsafe extern "C" fn allocate(_file: *mut c_void, _length: u64) -> c_int {
    0
}

static TABLE: EngineTable = EngineTable {
    abi: ABI,
    #[expect(clippy::cast_possible_truncation, reason = "some 120 bytes")]
    size: size_of::<EngineTable>() as u32,
    name: c"null".as_ptr(),
    threads: ANY_CALLS,
    capabilities: OUTLIVES_PROCESS,
    memory_alignment: 1,
    open_volume: Some(open_volume),
    close_volume: Some(close_volume),
    open: Some(open),
    close: Some(close),
    read: Some(read),
    write: Some(write),
    truncate: Some(truncate),
    sync: Some(sync),
    length: Some(length),
    allocate: Some(allocate),
    last_error: None,
    trim: None,
};

/// What the node asks for.
#[unsafe(no_mangle)]
pub extern "C" fn hayloft_engine() -> *const EngineTable {
    &raw const TABLE
}
