//! Whose a device is: its first bytes and a file in the volume's directory name each other.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::path::Path;

use bytes::Bytes;

use super::{DeviceId, crc};
use crate::engine::SyncKind;
use crate::engines::blocking::Blocking;
use crate::error::{IoError, IoErrorKind, IoOp};

/// Bytes at the beginning of a device that no replica gets.
pub(super) const HEADER: u64 = 1 << 20;
/// The file in the volume's directory that names the device.
pub(super) const NAME_FILE: &str = "hayloft.device";
/// The smallest device that is worth it.
const DEVICE_MIN: u64 = 16 << 20;
const MAGIC: &[u8; 8] = b"HAYLOFT1";
/// Magic, device, size, CRC-32C.
const HEADER_BYTES: usize = 8 + 16 + 8 + 4;
const NAME_BYTES_MAX: u64 = 4096;

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

fn hex(id: &DeviceId) -> String {
    format!("{:032x}", u128::from_be_bytes(*id))
}

/// Makes sure that the device belongs to the volume in `root`, or that both are new: then makes
/// them belong together. `wipe`: whatever is on the device goes.
///
/// # Errors
/// `Invalid` in words for the operator; those of the device.
pub(super) fn adopt<D: Blocking>(
    device: &D,
    root: &Path,
    wipe: bool,
) -> Result<(DeviceId, u64), IoError> {
    let size = device.length()?;
    if size < DEVICE_MIN {
        let why = format!("it has {size} bytes, and must have {DEVICE_MIN} at least");
        return Err(refused(root, why));
    }
    let head = read(device, 0)?;
    let ours = named(root)?;
    let theirs = Named::from_header(&head);
    let id = match (ours, theirs) {
        (Some(ours), Some(theirs)) if ours.id == theirs.id => {
            if size < ours.size {
                let (is, was) = (size, ours.size);
                let why = format!("it has {is} bytes and had {was}: give it its size back");
                return Err(refused(root, why));
            }
            ours.id
        }
        // A stop between the two halves of making them belong together.
        (Some(ours), None) if blank(&head) && !has_blocks(root) => {
            begin(device, ours)?;
            ours.id
        }
        (Some(ours), theirs) => {
            let there = theirs.map_or("no device of Hayloft's".to_owned(), |t| hex(&t.id));
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
    // Tables of partitions and of some file systems are at the end too.
    let may_go = wipe || blank(head) && blank(&read(device, size - HEADER)?);
    if !may_go {
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
    note(root, named).map_err(|e| IoError::from_std(IoOp::Replace, root, &e))?;
    begin(device, named)?;
    Ok(id)
}

fn begin<D: Blocking>(device: &D, named: Named) -> Result<(), IoError> {
    let header = Bytes::from(named.header());
    device.write(&[&header], 0).1?;
    device.sync(SyncKind::All)?;
    // Another directory may have been given the same device at the same time.
    is_still(device, Path::new("a new device"), &named.id)
}

fn blank(bytes: &[u8]) -> bool {
    bytes.iter().all(|b| *b == 0)
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

/// What the directory says of its device.
fn named(root: &Path) -> Result<Option<Named>, IoError> {
    let path = root.join(NAME_FILE);
    let mut text = String::new();
    match File::open(&path) {
        Ok(file) => {
            let read = file.take(NAME_BYTES_MAX).read_to_string(&mut text);
            read.map_err(|e| IoError::from_std(IoOp::ReadSmall, &path, &e))?;
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(IoError::from_std(IoOp::Open, &path, &e)),
    }
    match Named::from_text(&text) {
        Some(named) => Ok(Some(named)),
        None => Err(refused(root, format!("{NAME_FILE} there names no device"))),
    }
}

fn note(root: &Path, named: Named) -> std::io::Result<()> {
    let (path, temporary) = (root.join(NAME_FILE), root.join("hayloft.device.tmp"));
    let mut file = File::create(&temporary)?;
    file.write_all(named.text().as_bytes())?;
    file.sync_all()?;
    fs::rename(&temporary, &path)?;
    File::open(root)?.sync_all()
}
