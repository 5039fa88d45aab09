//! Whose a device is: its first bytes and a file in the volume's directory name each other.

use std::collections::HashSet;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::DeviceId;
use super::headers::{HEADER, Head, Named, PROBE_AT, PROBE_BYTES, begin, blank, hex};
use crate::blocking_engine::Blocking;
use crate::error::{IoError, IoErrorKind, IoOp};
use crate::locks;
use crate::names_and_directories::{read_small, replace};

/// The file in the volume's directory that names the device.
pub(super) const NAME_FILE: &str = "hayloft.device";
/// The smallest device that is worth it.
const DEVICE_MIN: u64 = 16 << 20;
const NAME_BYTES_MAX: usize = 4096;

fn refused(root: &Path, why: impl std::fmt::Display) -> IoError {
    let text = format!("its device cannot be used: {why}");
    IoError::new(IoErrorKind::Invalid, IoOp::Open, root, text)
}

/// Devices that volumes of this process have.
static IN_USE: Mutex<Option<HashSet<DeviceId>>> = Mutex::new(None);
/// Held while a new device gets its name: two volumes may have been given the same one.
static NAMING: Mutex<()> = Mutex::new(());
/// A volume that was taken out and comes back waits so long for its files to be closed.
const CLOSED_WITHIN: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A device that this process has for one volume. Others may have it when this is dropped.
#[derive(Debug)]
pub(super) struct Adopted {
    pub(super) id: DeviceId,
    /// Bytes of the device.
    pub(super) size: u64,
    /// What is wrong with one of its headers, in words.
    pub(super) damage: Mutex<Option<String>>,
}

impl Adopted {
    /// `None`: another volume of this process has it.
    fn claim(id: DeviceId, size: u64) -> Option<Self> {
        let mut in_use = locks::lock(&IN_USE);
        in_use.get_or_insert_default().insert(id).then(|| Self {
            id,
            size,
            damage: Mutex::default(),
        })
    }
}

impl Drop for Adopted {
    fn drop(&mut self) {
        forget(&self.id);
    }
}

/// Lets other volumes have the device.
pub(super) fn forget(id: &DeviceId) {
    if let Some(in_use) = &mut *locks::lock(&IN_USE) {
        in_use.remove(id);
    }
}

/// Makes sure that the device belongs to the volume in `root`, or that both are new: then makes
/// them belong together. For one volume at a time: another one would place blocks over its own.
/// `wipe`: whatever is on the device goes.
///
/// # Errors
/// `Invalid` in words for the operator; those of the device.
pub(super) fn adopt<D: Blocking>(device: &D, root: &Path, wipe: bool) -> Result<Adopted, IoError> {
    let size = device.length()?;
    if size < DEVICE_MIN {
        let why = format!("it has {size} bytes, and must have {DEVICE_MIN} at least");
        return Err(refused(root, why));
    }
    let began = Instant::now();
    loop {
        let head = Head::read(device)?;
        let (ours, head) = match known(device, root, size, &head)? {
            Some(ours) => (ours, Some(head)),
            None => (make_them_belong(device, root, size, wipe)?, None),
        };
        if let Some(adopted) = Adopted::claim(ours.id, size) {
            if size > ours.size {
                note(root, Named { size, ..ours })?;
            }
            let damage = head.map(|head| head.mend(device, ours)).transpose()?;
            *locks::lock(&adopted.damage) = damage.flatten();
            return Ok(adopted);
        }
        if began.elapsed() > CLOSED_WITHIN {
            let why = "files of it are still open in this process: try again later";
            return Err(refused(root, why));
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// What the directory says of the device, if it is the device's. `None`: the two do not belong
/// together yet.
fn known<D: Blocking>(
    device: &D,
    root: &Path,
    size: u64,
    head: &Head,
) -> Result<Option<Named>, IoError> {
    let Some(ours) = named(root)? else {
        return Ok(None);
    };
    let there = match head.named() {
        Some(theirs) if theirs.id == ours.id && size < ours.size => {
            let was = ours.size;
            let why = format!("it has {size} bytes and had {was}: give it its size back");
            return Err(refused(root, why));
        }
        Some(theirs) if theirs.id == ours.id => return Ok(Some(ours)),
        Some(theirs) => hex(&theirs.id),
        // A stop between the two halves of making them belong together.
        None if size == ours.size && is_blank(device, head, size)? && !has_blocks(root) => {
            return Ok(None);
        }
        None => match head.error() {
            Some(error) => return Err(error.clone().with_context("no header can be read")),
            None => "no device of Hayloft's, or another program wrote to it".to_owned(),
        },
    };
    let why = format!(
        "the directory belongs to device {}, and this is {there}: name the right one in \
         hayloft.io.engine",
        hex(&ours.id)
    );
    Err(refused(root, why))
}

/// Gives a new device its name, or goes on with that.
fn make_them_belong<D: Blocking>(
    device: &D,
    root: &Path,
    size: u64,
    wipe: bool,
) -> Result<Named, IoError> {
    let _turn = locks::lock(&NAMING);
    // Another volume may have named it meanwhile.
    let head = Head::read(device)?;
    match (known(device, root, size, &head)?, named(root)?) {
        (Some(ours), _) => Ok(ours),
        (None, Some(ours)) => {
            begin(device, root, ours)?;
            Ok(ours)
        }
        (None, None) => format(device, root, size, &head, wipe),
    }
}

fn format<D: Blocking>(
    device: &D,
    root: &Path,
    size: u64,
    head: &Head,
    wipe: bool,
) -> Result<Named, IoError> {
    if let Some(theirs) = head.named().filter(|_| !wipe) {
        let why = format!(
            "it holds the blocks of another volume (device {}): name that volume's directory, or \
             clear the first MiB of the device",
            hex(&theirs.id)
        );
        return Err(refused(root, why));
    }
    if let Some(error) = head.error().filter(|_| !wipe) {
        return Err(error.clone());
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
        let zeros = Bytes::from(vec![0; usize::try_from(HEADER).unwrap_or(0)]);
        device.write(&[&zeros], 0).1?;
        device.write(&[&zeros], size - HEADER).1?;
    }
    note(root, named)?;
    begin(device, root, named)?;
    Ok(named)
}

/// Whether nothing is on it: tables of partitions and of some file systems are at the end too.
fn is_blank<D: Blocking>(device: &D, head: &Head, size: u64) -> Result<bool, IoError> {
    if !head.is_blank() {
        return Ok(false);
    }
    let mut end = vec![0; usize::try_from(HEADER).unwrap_or(0)];
    let len = end.len();
    device.read(&mut end, len, size - HEADER)?;
    Ok(blank(&end))
}

fn has_blocks(root: &Path) -> bool {
    root.join("current/VERSION").exists()
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
    let size = device.length()?;
    let mut wrong = Head::read(device)?.findings(ours);
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
