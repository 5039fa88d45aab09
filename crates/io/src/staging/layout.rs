//! Where things are in the staging area's file, and what a segment's descriptor says: pure.
//!
//! ```text
//! page 0                     header: magic, version, sizes
//! arena 0, arena 1, ...      every 6 MiB, each: a hole, then
//!                                  16 descriptors (a page each),
//!                                  16 side regions (a page each),
//!                                  16 x 256 KiB of data, from a multiple of 2 MiB on
//! ```
//! The holes let data lie in huge pages; they take no memory. All numbers are little-endian. A descriptor is recoverable alone:
//!
//! ```text
//!   0  u64  owned: 0 free, 1 in use; written last when taken, first when given back
//!   8  u64  sequence: the record in force is record[sequence & 1]
//!  16  record 0 and, at 48, record 1: u32 len, u32 side_len, [u8; 8] last side bytes, u64 check
//!  80  u64  check of the bytes from 88 to the end of the paths
//!  88  u64  offset of the first byte in the main file
//!  96  u64  offset of the first side byte in the side file
//! 104  u64  inode of the main file (0: not known)
//! 112  u32  place of the first byte in the segment
//! 116  u32  side bytes per unit (at most 8)
//! 120  u16  length of the main path, u16 length of the side path, then both
//! ```
//! The *last* side bytes are those of the last unit, which covers a part of the main file that is still
//! growing: they change with every record, and the record that is in force must keep its own.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::mapping::HUGE_PAGE;

/// Version of this layout. Another one is never guessed at.
pub const VERSION: u32 = 2;
/// First bytes of the file.
pub const MAGIC: [u8; 8] = *b"hayStage";

/// Unit of everything in the file.
pub const PAGE: usize = 4096;
/// Bytes of data in a segment; main file offsets are cut at multiples of it.
pub const SEGMENT_BYTES: usize = 256 << 10;
/// Side bytes that a segment has room for.
pub const SIDE_BYTES: usize = PAGE;
/// Segments that come and go together.
pub const ARENA_SEGMENTS: usize = 16;
/// Bytes of an arena.
pub const ARENA_BYTES: usize = ARENA_SEGMENTS * (PAGE + SIDE_BYTES + SEGMENT_BYTES);
/// From the beginning of one arena to that of the next.
const ARENA_STRIDE: u64 = 6 << 20;
/// Where the first arena begins: its data begins at a multiple of a huge page, and so does that of the others.
const ARENA_FIRST: u64 = (HUGE_PAGE - ARENA_SEGMENTS * (PAGE + SIDE_BYTES)) as u64;
const _: () = assert!(
    ARENA_STRIDE.is_multiple_of(HUGE_PAGE as u64)
        && ARENA_STRIDE >= ARENA_BYTES as u64
        && ARENA_FIRST >= PAGE as u64,
    "arenas touch neither each other nor the header"
);
/// Bytes of both paths together that a descriptor has room for.
pub const PATHS_MAX: usize = PAGE - PATHS_AT;

/// Side bytes per unit, at most: what a record keeps of the last one.
pub const UNIT_MAX: usize = 8;

/// Place of the word that says whether a descriptor is in use.
pub const OWNED_AT: usize = 0;
/// Place of the word that says which record is in force.
pub const SEQUENCE_AT: usize = 8;
const RECORDS_AT: usize = 16;
/// Bytes of a record.
pub const RECORD_BYTES: usize = 32;
const CHECK_AT: usize = 80;
const TARGET_AT: usize = 88;
const PATHS_AT: usize = 124;

/// Where an arena begins in the file.
#[must_use]
pub fn arena_offset(arena: usize) -> u64 {
    ARENA_FIRST.saturating_add((arena as u64).saturating_mul(ARENA_STRIDE))
}

/// Most arenas of an area: a number of segments has to fit into a semaphore, and a start looks at all of them.
pub const ARENAS_MAX: usize = 1 << 20;

/// Arenas that begin in a file of `len` bytes, of those that an area may have: a length is whatever somebody made it.
#[must_use]
pub fn arenas_in(len: u64) -> usize {
    let arenas = len.saturating_sub(ARENA_FIRST).div_ceil(ARENA_STRIDE);
    usize::try_from(arenas).map_or(ARENAS_MAX, |arenas| arenas.min(ARENAS_MAX))
}

/// Where a descriptor begins in its arena.
#[must_use]
pub fn descriptor_at(slot: usize) -> usize {
    slot * PAGE
}

/// Where a side region begins in its arena.
#[must_use]
pub fn side_at(slot: usize) -> usize {
    ARENA_SEGMENTS * PAGE + slot * SIDE_BYTES
}

/// Where data begins in its arena.
#[must_use]
pub fn data_at(slot: usize) -> usize {
    ARENA_SEGMENTS * (PAGE + SIDE_BYTES) + slot * SEGMENT_BYTES
}

/// Where the record of a sequence number is in its descriptor.
#[must_use]
pub fn record_at(sequence: u64) -> usize {
    RECORDS_AT + usize::from(sequence & 1 == 1) * RECORD_BYTES
}

/// Where the header has the boot that the area is of.
const BOOT_AT: usize = 28;

/// A boot of a machine; zeros where that is not known.
pub type BootId = [u8; 16];

/// The present one. An area in memory ends with it; one on a disk is there afterwards, and what it holds then is whatever
/// the kernel had written.
#[must_use]
pub fn boot_id() -> BootId {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16).map_or([0; 16], u128::to_be_bytes)
}

/// The first page of the file.
#[must_use]
pub fn header(boot: BootId) -> [u8; PAGE] {
    let mut page = [0; PAGE];
    page[..8].copy_from_slice(&MAGIC);
    page[8..12].copy_from_slice(&VERSION.to_le_bytes());
    let sizes = [PAGE, SEGMENT_BYTES, SIDE_BYTES, ARENA_SEGMENTS];
    for (at, size) in (12..).step_by(4).zip(sizes) {
        let size = u32::try_from(size).expect("the sizes are small constants");
        page[at..at + 4].copy_from_slice(&size.to_le_bytes());
    }
    page[BOOT_AT..BOOT_AT + boot.len()].copy_from_slice(&boot);
    page
}

/// What the first page of a file says that it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// An area of this layout.
    Ours,
    /// The same, of another boot.
    OtherBoot,
    /// An area of another version or other sizes.
    Other(u32),
    /// Never finished: nothing can be in it.
    Unfinished,
    /// Something else.
    Foreign,
}

/// Looks at the first page of a file; `page` is shorter when the file is. `now`: the present boot.
#[must_use]
pub fn examine_header(page: &[u8], now: BootId) -> Header {
    if page.iter().all(|b| *b == 0) {
        return Header::Unfinished;
    }
    if page.len() < 12 || page[..8] != MAGIC {
        return Header::Foreign;
    }
    let boot = page.get(BOOT_AT..BOOT_AT + now.len());
    let boot = boot.and_then(|boot| BootId::try_from(boot).ok());
    if let Some(boot) = boot.filter(|boot| page == header(*boot)) {
        let unknown = [boot, now].contains(&[0; 16]);
        return if unknown || boot == now {
            Header::Ours
        } else {
            Header::OtherBoot
        };
    }
    Header::Other(u32::from_le_bytes([page[8], page[9], page[10], page[11]]))
}

/// Files and places that a segment's bytes are on their way to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Main file.
    pub main: PathBuf,
    /// Side file.
    pub side: PathBuf,
    /// Offset of the segment's first byte in the main file.
    pub offset: u64,
    /// Offset of its first side byte in the side file.
    pub side_offset: u64,
    /// Inode of the main file; 0 when not known.
    pub inode: u64,
    /// Place of the first byte in the segment.
    pub start: u32,
    /// Side bytes per unit.
    pub unit: u32,
}

/// Whether both paths fit into a descriptor.
#[must_use]
pub fn paths_fit(main: &Path, side: &Path) -> bool {
    let (main, side) = (main.as_os_str().len(), side.as_os_str().len());
    main.saturating_add(side) <= PATHS_MAX
}

/// The part of a descriptor that says where the bytes go, from [`target_at`] on. `None` when the paths do not fit.
#[must_use]
pub fn encode_target(target: &Target) -> Option<Vec<u8>> {
    if !paths_fit(&target.main, &target.side) {
        return None;
    }
    let (main, side) = (
        target.main.as_os_str().as_bytes(),
        target.side.as_os_str().as_bytes(),
    );
    let mut bytes = Vec::with_capacity(PATHS_AT - CHECK_AT + main.len() + side.len());
    bytes.extend_from_slice(&[0; 8]);
    bytes.extend_from_slice(&target.offset.to_le_bytes());
    bytes.extend_from_slice(&target.side_offset.to_le_bytes());
    bytes.extend_from_slice(&target.inode.to_le_bytes());
    bytes.extend_from_slice(&target.start.to_le_bytes());
    bytes.extend_from_slice(&target.unit.to_le_bytes());
    bytes.extend_from_slice(&u16::try_from(main.len()).ok()?.to_le_bytes());
    bytes.extend_from_slice(&u16::try_from(side.len()).ok()?.to_le_bytes());
    debug_assert_eq!(bytes.len(), PATHS_AT - CHECK_AT);
    bytes.extend_from_slice(main);
    bytes.extend_from_slice(side);
    let check = check(&bytes[8..]);
    bytes[..8].copy_from_slice(&check.to_le_bytes());
    Some(bytes)
}

/// Where [`encode_target`]'s bytes go in the descriptor.
#[must_use]
pub fn target_at() -> usize {
    CHECK_AT
}

/// How much of a segment is committed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Bytes from the segment's first one on.
    pub len: u32,
    /// Side bytes.
    pub side_len: u32,
    /// The last side bytes, as many as a unit has.
    pub last: [u8; UNIT_MAX],
}

/// The bytes of a record.
#[must_use]
pub fn encode_record(record: Record, sequence: u64) -> [u8; RECORD_BYTES] {
    let mut bytes = [0; RECORD_BYTES];
    bytes[..4].copy_from_slice(&record.len.to_le_bytes());
    bytes[4..8].copy_from_slice(&record.side_len.to_le_bytes());
    bytes[8..16].copy_from_slice(&record.last);
    let check = check(&bytes[..16]) ^ sequence;
    bytes[16..24].copy_from_slice(&check.to_le_bytes());
    bytes
}

fn decode_record(bytes: &[u8], sequence: u64) -> Option<Record> {
    let word = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    let stored = u64::from_le_bytes(*bytes.get(16..)?.first_chunk()?);
    if stored != check(bytes.get(..16)?) ^ sequence {
        return None;
    }
    Some(Record {
        len: word(0)?,
        side_len: word(4)?,
        last: *bytes.get(8..)?.first_chunk()?,
    })
}

/// What a descriptor says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Descriptor {
    /// Not in use.
    Free,
    /// In use.
    Used(Target, Record),
    /// In use and damaged; the text says how.
    Damaged(&'static str),
}

/// Reads a descriptor. Everything it says is checked: the bytes come from a file.
#[must_use]
pub fn decode(page: &[u8; PAGE]) -> Descriptor {
    let long = |at: usize| u64::from_le_bytes(*page[at..].first_chunk().expect("within the page"));
    let word = |at: usize| u32::from_le_bytes(*page[at..].first_chunk().expect("within the page"));
    let short = |at: usize| {
        usize::from(u16::from_le_bytes(
            *page[at..].first_chunk().expect("within the page"),
        ))
    };
    match long(OWNED_AT) {
        0 => return Descriptor::Free,
        1 => {}
        _ => return Descriptor::Damaged("neither free nor in use"),
    }
    let (main_len, side_len) = (short(TARGET_AT + 32), short(TARGET_AT + 34));
    let end = PATHS_AT + main_len + side_len;
    if end > PAGE {
        return Descriptor::Damaged("its paths are longer than it");
    }
    if long(CHECK_AT) != check(&page[TARGET_AT..end]) {
        return Descriptor::Damaged("its target does not match its check");
    }
    let sequence = long(SEQUENCE_AT);
    let at = record_at(sequence);
    let Some(record) = decode_record(&page[at..at + RECORD_BYTES], sequence) else {
        return Descriptor::Damaged("its record does not match its check");
    };
    let path = |from: usize, len: usize| PathBuf::from(OsStr::from_bytes(&page[from..from + len]));
    let target = Target {
        offset: long(TARGET_AT),
        side_offset: long(TARGET_AT + 8),
        inode: long(TARGET_AT + 16),
        start: word(TARGET_AT + 24),
        unit: word(TARGET_AT + 28),
        main: path(PATHS_AT, main_len),
        side: path(PATHS_AT + main_len, side_len),
    };
    match plausible(&target, record) {
        Ok(()) => Descriptor::Used(target, record),
        Err(why) => Descriptor::Damaged(why),
    }
}

fn plausible(target: &Target, record: Record) -> Result<(), &'static str> {
    let end = u64::from(target.start) + u64::from(record.len);
    if end > SEGMENT_BYTES as u64 {
        return Err("its length goes beyond the segment");
    }
    if record.side_len as usize > SIDE_BYTES {
        return Err("its side bytes go beyond their place");
    }
    if target.unit as usize > UNIT_MAX || (target.unit == 0 && record.side_len > 0) {
        return Err("its side bytes have no possible unit");
    }
    let fits = |from: u64, len: u32| {
        from.checked_add(u64::from(len))
            .is_some_and(|end| i64::try_from(end).is_ok())
    };
    if !fits(target.offset, record.len) || !fits(target.side_offset, record.side_len) {
        return Err("its place is beyond the greatest file length");
    }
    if !target.main.is_absolute() || !target.side.is_absolute() {
        return Err("its paths are not absolute");
    }
    Ok(())
}

/// FNV-1a over 8 bytes at a time: tells damage, not malice.
fn check(bytes: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut step = |word: u64| {
        hash = (hash ^ word)
            .wrapping_mul(0x0000_0100_0000_01b3)
            .rotate_left(23)
    };
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        step(u64::from_le_bytes(*word));
    }
    for byte in rest {
        step(u64::from(*byte));
    }
    step(bytes.len() as u64);
    hash
}
