//! Finishing what a killed process left in its staging area. Blocking.
//!
//! Every segment is written to its files again, whether or not that had been done: its bytes are the same. Main
//! bytes reach the device before side bytes, so that power loss right after leaves side bytes that fit.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate};
use tracing::{info, warn};

use super::layout::{
    ARENA_SEGMENTS, Descriptor, OWNED_AT, PAGE, Record, SEGMENT_BYTES, SIDE_BYTES, Target,
    arena_offset, arenas_in, data_at, decode, descriptor_at, side_at,
};
use crate::error::{IoError, IoOp};

/// A directory that staged files may lie in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// The directory.
    pub path: PathBuf,
    /// It can be used now. What belongs into one that cannot is kept for a later start.
    pub usable: bool,
}

/// What was found in the area of an earlier process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Main files that got bytes.
    pub files: usize,
    /// Segments written to their files.
    pub segments: usize,
    /// Main bytes in them.
    pub bytes: u64,
    /// Segments whose files are not there any more: deleted or renamed by somebody else.
    pub gone: usize,
    /// Descriptors that cannot be understood.
    pub damaged: usize,
    /// Segments that could not be written now: they stay for the next start.
    pub kept: usize,
}

impl Replayed {
    /// Both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            files: self.files + other.files,
            segments: self.segments + other.segments,
            bytes: self.bytes + other.bytes,
            gone: self.gone + other.gone,
            damaged: self.damaged + other.damaged,
            kept: self.kept + other.kept,
        }
    }
}

/// A segment in the file.
#[derive(Debug)]
struct Entry {
    arena: usize,
    slot: usize,
    target: Target,
    record: Record,
}

impl Entry {
    fn at(&self, place: usize) -> u64 {
        arena_offset(self.arena) + place as u64
    }
}

/// What became of a segment.
enum Outcome {
    Written,
    Gone(&'static str),
    Kept,
}

/// Writes all segments of `area` to their files and marks those as free that are done. Never fails for one
/// segment; the error is that of reading the area itself.
pub(super) fn replay(area: &File, path: &Path, roots: &[Root]) -> Result<Replayed, IoError> {
    let failed = |e: io::Error| {
        IoError::from_std(IoOp::Read, path, &e).with_context("reading a staging area")
    };
    let mut done = Replayed::default();
    let (mut entries, free) = entries(area, path, &mut done).map_err(failed)?;
    entries
        .sort_by(|a, b| (&a.target.main, a.target.offset).cmp(&(&b.target.main, b.target.offset)));
    for group in entries.chunk_by(|a, b| a.target.main == b.target.main) {
        let outcomes = replay_file(area, group, roots).map_err(failed)?;
        let mut wrote = false;
        for (entry, outcome) in group.iter().zip(outcomes) {
            let main = entry.target.main.display();
            let (offset, len) = (entry.target.offset, entry.record.len);
            match outcome {
                Outcome::Written => {
                    wrote = true;
                    done.segments += 1;
                    done.bytes += u64::from(len);
                }
                Outcome::Gone(why) => {
                    done.gone += 1;
                    info!(file = %main, offset, len, why, "staged bytes of an earlier process are not wanted any more");
                }
                Outcome::Kept => {
                    done.kept += 1;
                    continue;
                }
            }
            let free = entry.at(descriptor_at(entry.slot) + OWNED_AT);
            area.write_all_at(&0_u64.to_le_bytes(), free)
                .map_err(failed)?;
        }
        done.files += usize::from(wrote);
    }
    if done.kept > 0 {
        give_back(area, &free);
    }
    Ok(done)
}

/// Gives the memory of these segments back: what is kept beside them may stay for long. They were free when this began: of others the
/// kernel may still be writing what the earlier process had asked it to; the next start finds them free.
fn give_back(area: &File, free: &[Place]) {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    for (arena, slot) in free {
        let at = arena_offset(*arena) + data_at(*slot) as u64;
        // Where that cannot be done it stays.
        let _ = fallocate(area, flags, at, SEGMENT_BYTES as u64);
    }
}

/// Arena and slot of a segment.
type Place = (usize, usize);

/// The descriptors in use, and the places of those that are free.
fn entries(area: &File, path: &Path, done: &mut Replayed) -> io::Result<(Vec<Entry>, Vec<Place>)> {
    let arenas = arenas_in(area.metadata()?.len());
    let (mut entries, mut free) = (Vec::new(), Vec::new());
    let mut page = [0; PAGE];
    for arena in 0..arenas {
        for slot in 0..ARENA_SEGMENTS {
            let at = arena_offset(arena) + descriptor_at(slot) as u64;
            if !read_there(area, &mut page, at)? {
                return Ok((entries, free));
            }
            match decode(&page) {
                Descriptor::Free => free.push((arena, slot)),
                Descriptor::Used(target, record) => {
                    // Nothing was committed in an empty one.
                    if record.len > 0 {
                        entries.push(Entry {
                            arena,
                            slot,
                            target,
                            record,
                        });
                    }
                }
                Descriptor::Damaged(why) => {
                    done.damaged += 1;
                    warn!(area = %path.display(), arena, slot, why,
                        "a descriptor in the staging area of an earlier process is damaged: its bytes are lost, and the \
                         replica that they belong to ends before them");
                }
            }
        }
    }
    Ok((entries, free))
}

/// A file in one of the usable `roots` that the area, which somebody may be using, has bytes for.
pub(super) fn wanted_by(area: &File, roots: &[Root]) -> io::Result<Option<PathBuf>> {
    let mut page = [0; PAGE];
    for arena in 0..arenas_in(area.metadata()?.len()) {
        for slot in 0..ARENA_SEGMENTS {
            let at = arena_offset(arena) + descriptor_at(slot) as u64;
            if !read_there(area, &mut page, at)? {
                return Ok(None);
            }
            if let Descriptor::Used(target, _) = decode(&page)
                && roots
                    .iter()
                    .any(|root| root.usable && is_inside(&target.main, &root.path))
            {
                return Ok(Some(target.main));
            }
        }
    }
    Ok(None)
}

/// Fills `buf`; false when the file ends before.
fn read_there(file: &File, buf: &mut [u8], at: u64) -> io::Result<bool> {
    match file.read_exact_at(buf, at) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(e) => Err(e),
    }
}

/// Writes the segments of one main file, which are in order. The error is that of reading the area.
fn replay_file(area: &File, group: &[Entry], roots: &[Root]) -> io::Result<Vec<Outcome>> {
    let all = |make: fn() -> Outcome| group.iter().map(|_| make()).collect();
    let main = &group[0].target.main;
    match roots.iter().find(|root| is_inside(main, &root.path)) {
        // Taken out of the configuration for this start only, perhaps.
        None => {
            warn!(file = %main.display(), "staged bytes of an earlier process are for a directory that is not configured: they are \
                kept for a start that has it. Remove the area (.kept-) to give them up");
            return Ok(all(|| Outcome::Kept));
        }
        Some(root) if !root.usable => {
            warn!(file = %main.display(), "staged bytes of an earlier process wait for their volume: they are kept for a later start");
            return Ok(all(|| Outcome::Kept));
        }
        Some(_) => {}
    }
    let kept = |file: &Path, error: &io::Error| {
        warn!(file = %file.display(), %error, "cannot write staged bytes of an earlier process: they are kept for a later start");
    };
    let file = match open(main) {
        Ok(Some(file)) => file,
        Ok(None) => return Ok(all(|| Outcome::Gone("the file is not there"))),
        Err(error) => {
            kept(main, &error);
            return Ok(all(|| Outcome::Kept));
        }
    };
    let mut sides = Vec::with_capacity(group.len());
    let mut outcomes = Vec::with_capacity(group.len());
    let mut data = vec![0; SEGMENT_BYTES];
    let mut stuck = false;
    for entry in group {
        // Behind bytes that could not be written now: they would look as if the file had been cut before them, or leave
        // a hole.
        if stuck {
            outcomes.push(Outcome::Kept);
            continue;
        }
        // First: a side file of another name says that somebody has changed both since.
        let side = match side_file(entry, roots) {
            Ok(Some(side)) => side,
            Ok(None) => {
                outcomes.push(Outcome::Gone("the side file is not there"));
                continue;
            }
            Err(error) => {
                kept(&entry.target.side, &error);
                outcomes.push(Outcome::Kept);
                stuck = true;
                continue;
            }
        };
        outcomes.push(match write_main(area, entry, &file, &mut data)? {
            Ok(None) => {
                sides.push((outcomes.len(), entry, side));
                Outcome::Written
            }
            Ok(Some(why)) => Outcome::Gone(why),
            Err(error) => {
                kept(main, &error);
                stuck = true;
                Outcome::Kept
            }
        });
    }
    if let Err(error) = file.sync_data() {
        kept(main, &error);
        return Ok(all(|| Outcome::Kept));
    }
    for (at, entry, side) in sides {
        if let Err(error) = write_side(area, entry, side.as_ref())? {
            kept(&entry.target.side, &error);
            outcomes[at] = Outcome::Kept;
        }
    }
    Ok(outcomes)
}

/// Inside the directory, also when somebody who wrote the descriptor tried to climb out.
fn is_inside(file: &Path, root: &Path) -> bool {
    let climbs = file
        .components()
        .any(|c| matches!(c, std::path::Component::ParentDir));
    !climbs && file.starts_with(root)
}

/// An existing regular file for writing; `None` when it is not there.
fn open(path: &Path) -> io::Result<Option<File>> {
    let file = OpenOptions::new()
        .write(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path);
    match file {
        Ok(file) => Ok(file.metadata()?.is_file().then_some(file)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// The side file; `Some(None)` when the segment has no side bytes.
fn side_file(entry: &Entry, roots: &[Root]) -> io::Result<Option<Option<File>>> {
    if entry.record.side_len == 0 {
        return Ok(Some(None));
    }
    let side = &entry.target.side;
    if !roots.iter().any(|root| is_inside(side, &root.path)) {
        return Ok(None);
    }
    Ok(open(side)?.map(Some))
}

type Written<T> = io::Result<io::Result<T>>;

/// Writes the main bytes. The outer error is that of reading the area; `Some` says why the file is another one.
fn write_main(
    area: &File,
    entry: &Entry,
    file: &File,
    buf: &mut [u8],
) -> Written<Option<&'static str>> {
    let (target, record) = (&entry.target, entry.record);
    let from = entry.at(data_at(entry.slot)) + u64::from(target.start);
    let bytes = &mut buf[..record.len as usize];
    area.read_exact_at(bytes, from)?;
    let write = || {
        let meta = file.metadata()?;
        if target.inode != 0 && meta.ino() != target.inode {
            return Ok(Some("another file has its name now"));
        }
        if meta.len() < target.offset {
            return Ok(Some(
                "the file ends before its place: it was cut since, or bytes before it are lost",
            ));
        }
        file.write_all_at(bytes, target.offset)?;
        Ok(None)
    };
    Ok(write())
}

fn write_side(area: &File, entry: &Entry, side: Option<&File>) -> Written<()> {
    let Some(file) = side else { return Ok(Ok(())) };
    let (target, record) = (&entry.target, entry.record);
    let mut bytes = vec![0; record.side_len as usize];
    debug_assert!(bytes.len() <= SIDE_BYTES, "checked when it was decoded");
    area.read_exact_at(&mut bytes, entry.at(side_at(entry.slot)))?;
    // The record's own copy counts: the one in place may be of a commit that was never published.
    let unit = target.unit as usize;
    let len = bytes.len();
    if let Some(last) = bytes.get_mut(len.saturating_sub(unit)..) {
        let n = last.len();
        last.copy_from_slice(&record.last[..n]);
    }
    let write = || {
        file.write_all_at(&bytes, target.side_offset)?;
        file.sync_data()
    };
    Ok(write())
}
