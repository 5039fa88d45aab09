//! Whose a device is: its first bytes and a file in the volume's directory name each other.

use std::collections::HashSet;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tracing::warn;

use super::{DeviceId, crc};
use crate::blocking_engine::Blocking;
use crate::error::{IoError, IoErrorKind, IoOp};
use crate::locks;
use crate::names_and_directories::{read_small, replace};
use crate::types::SyncKind;

/// Bytes at the beginning of a device that no replica gets.
pub(super) const HEADER: u64 = 1 << 20;
/// Where in them a check writes what it reads back.
const PROBE_AT: u64 = HEADER / 2;
const PROBE_BYTES: usize = 4096;
/// Where in them the header is a second time.
const COPY_AT: u64 = HEADER / 4 * 3;
/// The file in the volume's directory that names the device.
pub(super) const NAME_FILE: &str = "hayloft.device";
/// The smallest device that is worth it.
const DEVICE_MIN: u64 = 16 << 20;
const MAGIC: &[u8; 8] = b"HAYLOFT1";
/// Magic, in which 1 stands for this form and for units of 64 KiB; device, size, CRC-32C.
const HEADER_BYTES: usize = 8 + 16 + 8 + 4;
const NAME_BYTES_MAX: usize = 4096;

fn refused(root: &Path, why: impl std::fmt::Display) -> IoError {
    let text = format!("its device cannot be used: {why}");
    IoError::new(IoErrorKind::Invalid, IoOp::Open, root, text)
}

/// What a directory or a device says of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Named {
    id: DeviceId,
    /// Bytes of the device then.
    size: u64,
}

impl Named {
    fn header(self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&self.id);
        bytes.extend_from_slice(&self.size.to_le_bytes());
        bytes.extend_from_slice(&crc(&bytes).to_le_bytes());
        bytes
    }

    fn from_header(bytes: &[u8]) -> Option<Self> {
        let (body, sum) = bytes.get(..HEADER_BYTES)?.split_at(HEADER_BYTES - 4);
        if body[..8] != *MAGIC || crc(body).to_le_bytes() != sum {
            return None;
        }
        Some(Self {
            id: body[8..24].try_into().ok()?,
            size: u64::from_le_bytes(body[24..].try_into().ok()?),
        })
    }

    /// What a device's first MiB says. The second copy counts where the first is torn or blank:
    /// what is there otherwise is another program's. So is anything beside what the node writes.
    fn on_device(head: &[u8]) -> Option<Self> {
        let [first, second] = Self::copies(head);
        let beginning = head.get(..HEADER_BYTES)?;
        let torn = blank(beginning) || beginning.starts_with(MAGIC);
        let named = first.or_else(|| second.filter(|_| torn));
        named.filter(|_| is_only_ours(head))
    }

    /// The two headers of a device's first MiB.
    fn copies(head: &[u8]) -> [Option<Self>; 2] {
        [0, COPY_AT].map(|at| Self::from_header(head.get(usize::try_from(at).ok()?..)?))
    }

    fn text(self) -> String {
        format!("device={}\nbytes={}\n", hex(&self.id), self.size)
    }

    fn from_text(text: &str) -> Option<Self> {
        let value = |key: &str| {
            text.lines()
                .find_map(|l| l.strip_prefix(key)?.strip_prefix('='))
        };
        let id = u128::from_str_radix(value("device")?, 16).ok()?;
        Some(Self {
            id: id.to_be_bytes(),
            size: value("bytes")?.parse().ok()?,
        })
    }
}

pub(super) fn hex(id: &DeviceId) -> String {
    format!("{:032x}", u128::from_be_bytes(*id))
}

/// Devices that volumes of this process have, and the right to look at one.
static IN_USE: Mutex<Option<HashSet<DeviceId>>> = Mutex::new(None);
/// A volume that was taken out and comes back waits so long for its files to be closed.
const CLOSED_WITHIN: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A device that this process has for one volume. Others may have it when this is dropped.
#[derive(Debug)]
pub(super) struct Adopted {
    pub(super) id: DeviceId,
    /// Bytes of the device.
    pub(super) size: u64,
}

impl Drop for Adopted {
    fn drop(&mut self) {
        if let Some(in_use) = &mut *locks::lock(&IN_USE) {
            in_use.remove(&self.id);
        }
    }
}

/// As [`belongs`], for one volume at a time: another one would place blocks over its own.
pub(super) fn adopt<D: Blocking>(device: &D, root: &Path, wipe: bool) -> Result<Adopted, IoError> {
    let began = Instant::now();
    loop {
        {
            let mut in_use = locks::lock(&IN_USE);
            let (id, size) = belongs(device, root, wipe)?;
            if in_use.get_or_insert_default().insert(id) {
                return Ok(Adopted { id, size });
            }
        }
        if began.elapsed() > CLOSED_WITHIN {
            let why = "files of it are still open in this process: try again later";
            return Err(refused(root, why));
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Makes sure that the device belongs to the volume in `root`, or that both are new: then makes
/// them belong together. `wipe`: whatever is on the device goes.
///
/// # Errors
/// `Invalid` in words for the operator; those of the device.
fn belongs<D: Blocking>(device: &D, root: &Path, wipe: bool) -> Result<(DeviceId, u64), IoError> {
    let size = device.length()?;
    if size < DEVICE_MIN {
        let why = format!("it has {size} bytes, and must have {DEVICE_MIN} at least");
        return Err(refused(root, why));
    }
    let head = read(device, 0)?;
    let ours = named(root)?;
    let theirs = Named::on_device(&head);
    let id = match (ours, theirs) {
        (Some(ours), Some(theirs)) if ours.id == theirs.id => {
            if size < ours.size {
                let (is, was) = (size, ours.size);
                let why = format!("it has {is} bytes and had {was}: give it its size back");
                return Err(refused(root, why));
            }
            if size > ours.size {
                note(root, Named { size, ..ours })?;
            }
            if Named::copies(&head).map(|copy| copy.map(|it| it.id)) != [Some(ours.id); 2] {
                warn!(path = %root.display(), "one of the two headers of the device was damaged");
                begin(device, root, ours)?;
            }
            ours.id
        }
        // A stop between the two halves of making them belong together.
        (Some(ours), None)
            if size == ours.size && is_blank(device, &head, size)? && !has_blocks(root) =>
        {
            begin(device, root, ours)?;
            ours.id
        }
        (Some(ours), theirs) => {
            let there = theirs.map_or_else(
                || "no device of Hayloft's, or another program wrote to it".to_owned(),
                |theirs| hex(&theirs.id),
            );
            let why = format!(
                "the directory belongs to device {}, and this is {there}: name the right one in \
                 hayloft.io.engine",
                hex(&ours.id)
            );
            return Err(refused(root, why));
        }
        (None, _) => format(device, root, size, (theirs, &head), wipe)?,
    };
    Ok((id, size))
}

fn format<D: Blocking>(
    device: &D,
    root: &Path,
    size: u64,
    (theirs, head): (Option<Named>, &[u8]),
    wipe: bool,
) -> Result<DeviceId, IoError> {
    if let Some(theirs) = theirs.filter(|_| !wipe) {
        let why = format!(
            "it holds the blocks of another volume (device {}): name that volume's directory, or \
             clear the first MiB of the device",
            hex(&theirs.id)
        );
        return Err(refused(root, why));
    }
    if !wipe && !is_blank(device, head, size)? {
        let why = "there is something on it already: clear its first and its last MiB if it may go";
        return Err(refused(root, why));
    }
    if has_blocks(root) {
        let why = "blocks are in the files of this directory: it must be a new one";
        return Err(refused(root, why));
    }
    let mut id = [0; 16];
    let random = File::open("/dev/urandom").and_then(|mut random| random.read_exact(&mut id));
    random.map_err(|e| IoError::from_std(IoOp::Open, Path::new("/dev/urandom"), &e))?;
    let named = Named { id, size };
    if wipe {
        let zeros = Bytes::from(vec![0; head.len()]);
        device.write(&[&zeros], 0).1?;
        device.write(&[&zeros], size - HEADER).1?;
    }
    note(root, named)?;
    begin(device, root, named)?;
    Ok(id)
}

/// Whether nothing is on it: tables of partitions and of some file systems are at the end too.
fn is_blank<D: Blocking>(device: &D, head: &[u8], size: u64) -> Result<bool, IoError> {
    Ok(blank(head) && blank(&read(device, size - HEADER)?))
}

fn begin<D: Blocking>(device: &D, root: &Path, named: Named) -> Result<(), IoError> {
    let header = Bytes::from(named.header());
    for at in [COPY_AT, 0] {
        device.write(&[&header], at).1?;
        device.sync(SyncKind::All)?;
    }
    // Another process may have been given the same device at the same time.
    is_still(device, root, &named.id)
}

fn blank(bytes: &[u8]) -> bool {
    bytes.iter().all(|b| *b == 0)
}

/// Whether the first MiB is blank but for its headers and what checks of the disk write. Another
/// program may have spared the headers.
fn is_only_ours(head: &[u8]) -> bool {
    let place = |at: u64, bytes: usize| {
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        at..at.saturating_add(bytes)
    };
    let ours = [
        place(0, HEADER_BYTES),
        place(PROBE_AT, PROBE_BYTES),
        place(COPY_AT, HEADER_BYTES),
    ];
    let ends = ours.iter().map(|range| range.end);
    let starts = ours.iter().skip(1).map(|range| range.start);
    let gaps = ends.zip(starts.chain([head.len()]));
    gaps.into_iter()
        .all(|(from, to)| head.get(from..to).is_some_and(blank))
}

fn has_blocks(root: &Path) -> bool {
    root.join("current/VERSION").exists()
}

fn read<D: Blocking>(device: &D, at: u64) -> Result<Vec<u8>, IoError> {
    let len = usize::try_from(HEADER).unwrap_or(0);
    let mut bytes = vec![0; len];
    let there = device.read(&mut bytes, len, at)?;
    bytes.truncate(there);
    Ok(bytes)
}

/// Whether the device begins with the header that it had.
pub(super) fn is_still<D: Blocking>(device: &D, root: &Path, id: &DeviceId) -> Result<(), IoError> {
    let mut head = [0; HEADER_BYTES];
    device.read(&mut head, HEADER_BYTES, 0)?;
    match Named::from_header(&head) {
        Some(named) if named.id == *id => Ok(()),
        _ => {
            let text = "the device no longer begins as it did: it was changed or exchanged";
            Err(IoError::new(
                IoErrorKind::MediaError,
                IoOp::Read,
                root,
                text,
            ))
        }
    }
}

/// What is wrong with a device that belongs to the volume in `root`, as sentences; its identity and
/// size. Changes nothing.
///
/// # Errors
/// When the directory has no device; those of the device.
pub(super) fn look_at<D: Blocking>(
    device: &D,
    root: &Path,
) -> Result<(DeviceId, u64, Vec<String>), IoError> {
    let ours = must_be_named(root)?;
    let (size, head) = (device.length()?, read(device, 0)?);
    let mut wrong = Vec::new();
    for (which, copy) in ["first", "second"].into_iter().zip(Named::copies(&head)) {
        match copy {
            Some(copy) if copy.id == ours.id => {}
            Some(copy) => wrong.push(format!(
                "the {which} header is of device {}, and the directory's is {}",
                hex(&copy.id),
                hex(&ours.id)
            )),
            None => wrong.push(format!("the {which} header is damaged")),
        }
    }
    if !is_only_ours(&head) {
        wrong.push("another program wrote to its first MiB: a start refuses it".to_owned());
    }
    if size < ours.size {
        let was = ours.size;
        wrong.push(format!("the device has {size} bytes and had {was}"));
    }
    Ok((ours.id, size, wrong))
}

/// Writes to the place that is kept for it, flushes, and reads back what was written.
///
/// # Errors
/// Of the device; `MediaError` when it gives back something else.
pub(super) fn probe<D: Blocking>(
    device: &D,
    root: &Path,
    flush: impl FnOnce() -> Result<(), IoError>,
) -> Result<(), IoError> {
    static PROBES: AtomicU64 = AtomicU64::new(0);
    let number = PROBES.fetch_add(1, Ordering::Relaxed) ^ u64::from(std::process::id()) << 32;
    let written = number.to_le_bytes().repeat(PROBE_BYTES / size_of::<u64>());
    let written = Bytes::from(written);
    device.write(&[&written], PROBE_AT).1?;
    flush()?;
    let mut back = vec![0; PROBE_BYTES];
    let n = device.read(&mut back, PROBE_BYTES, PROBE_AT)?;
    if back[..n] == written[..] {
        return Ok(());
    }
    let text = "the device does not give back what was written to it";
    let kind = IoErrorKind::MediaError;
    Err(IoError::new(kind, IoOp::Read, root, text))
}

/// What the directory says of its device.
fn named(root: &Path) -> Result<Option<Named>, IoError> {
    let text = match read_small(&root.join(NAME_FILE), NAME_BYTES_MAX) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) if error.kind() == IoErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    match Named::from_text(&text) {
        Some(named) => Ok(Some(named)),
        None => Err(refused(root, format!("{NAME_FILE} there names no device"))),
    }
}

fn must_be_named(root: &Path) -> Result<Named, IoError> {
    let none = || refused(root, "the directory has none: no node has used it yet");
    named(root)?.ok_or_else(none)
}

/// Refuses a directory that has no device.
///
/// # Errors
/// `Invalid`; of the file that says so.
pub fn must_have_device(root: &Path) -> Result<(), IoError> {
    must_be_named(root).map(drop)
}

fn note(root: &Path, named: Named) -> Result<(), IoError> {
    replace(&root.join(NAME_FILE), named.text().as_bytes(), 0o600)
}
