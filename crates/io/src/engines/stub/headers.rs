//! The first MiB of a device: its header, twice, and what the disk does not give of it.

use std::path::Path;

use bytes::Bytes;
use tracing::warn;

use super::{DeviceId, crc};
use crate::blocking_engine::Blocking;
use crate::error::{IoError, IoErrorKind, IoOp};
use crate::types::SyncKind;

/// Bytes at the beginning of a device that no replica gets.
pub(super) const HEADER: u64 = 1 << 20;
/// Where in them a check writes what it reads back.
pub(super) const PROBE_AT: u64 = HEADER / 2;
pub(super) const PROBE_BYTES: usize = 4096;
/// Where in them the headers are, and what they are called.
const PLACES: [(&str, u64); 2] = [("first", 0), ("second", HEADER / 4 * 3)];
const MAGIC: &[u8; 8] = b"HAYLOFT1";
/// Magic, in which 1 stands for this form and for units of 64 KiB; device, size, CRC-32C.
const HEADER_BYTES: usize = 8 + 16 + 8 + 4;
/// A header is written with zeros behind it, up to the largest sector: to write a part of a sector
/// it must be read first, which is what may fail.
const PIECE: usize = 4096;
/// Pieces that a disk need not give. Each may cost seconds, and one that has more is lost.
const UNREADABLE_MAX: usize = 8;

/// What a directory or a device says of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub id: DeviceId,
    /// Bytes of the device then.
    pub size: u64,
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

    pub(super) fn text(self) -> String {
        format!("device={}\nbytes={}\n", hex(&self.id), self.size)
    }

    pub(super) fn from_text(text: &str) -> Option<Self> {
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

pub(super) fn blank(bytes: &[u8]) -> bool {
    bytes.iter().all(|b| *b == 0)
}

/// A device's first MiB, with zeros for what cannot be read.
#[derive(Debug)]
pub(super) struct Head {
    bytes: Vec<u8>,
    /// Where pieces that cannot be read begin.
    unreadable: Vec<u64>,
    /// The first error of these.
    error: Option<IoError>,
}

impl Head {
    /// Reads it, piece by piece where the disk does not give all at once.
    ///
    /// # Errors
    /// Those of the device, but for a few pieces that cannot be read.
    pub(super) fn read<D: Blocking>(device: &D) -> Result<Self, IoError> {
        let len = usize::try_from(HEADER).unwrap_or(0);
        let mut head = Self {
            bytes: vec![0; len],
            unreadable: Vec::new(),
            error: None,
        };
        match device.read(&mut head.bytes, len, 0) {
            Ok(there) => {
                head.bytes.truncate(there);
                return Ok(head);
            }
            Err(error) if error.kind() == IoErrorKind::MediaError => {}
            Err(error) => return Err(error),
        }
        for (piece, at) in head.bytes.chunks_mut(PIECE).zip((0_u64..).step_by(PIECE)) {
            match device.read(piece, PIECE, at) {
                Ok(there) => piece[there..].fill(0),
                Err(error) => {
                    let lost = error.kind() != IoErrorKind::MediaError;
                    if lost || head.unreadable.len() >= UNREADABLE_MAX {
                        return Err(error);
                    }
                    let path = device.path().display();
                    warn!(%path, at, %error, "a device does not give a part of its first MiB");
                    piece.fill(0);
                    head.unreadable.push(at);
                    head.error.get_or_insert(error);
                }
            }
        }
        Ok(head)
    }

    /// Why a part of it cannot be read, if one cannot.
    pub(super) fn error(&self) -> Option<&IoError> {
        self.error.as_ref()
    }

    /// What it says. The second copy counts where the first is torn, blank or cannot be read: what
    /// is there otherwise is another program's. So is anything beside what the node writes.
    pub(super) fn named(&self) -> Option<Named> {
        let [first, second] = self.copies();
        let beginning = self.bytes.get(..HEADER_BYTES)?;
        let torn = blank(beginning) || beginning.starts_with(MAGIC);
        let named = first.or_else(|| second.filter(|_| torn));
        named.filter(|_| self.is_only_ours())
    }

    fn copies(&self) -> [Option<Named>; 2] {
        PLACES.map(|(_, at)| Named::from_header(self.bytes.get(usize::try_from(at).ok()?..)?))
    }

    /// Whether nothing is there.
    pub(super) fn is_blank(&self) -> bool {
        self.error.is_none() && blank(&self.bytes)
    }

    /// Whether it is blank but for its headers and what checks of the disk write. Another program
    /// may have spared the headers.
    fn is_only_ours(&self) -> bool {
        let place = |at: u64, bytes: usize| {
            let at = usize::try_from(at).unwrap_or(usize::MAX);
            at..at.saturating_add(bytes)
        };
        let ours = [
            place(PLACES[0].1, HEADER_BYTES),
            place(PROBE_AT, PROBE_BYTES),
            place(PLACES[1].1, HEADER_BYTES),
        ];
        let ends = ours.iter().map(|range| range.end);
        let starts = ours.iter().skip(1).map(|range| range.start);
        let gaps = ends.zip(starts.chain([self.bytes.len()]));
        gaps.into_iter()
            .all(|(from, to)| self.bytes.get(from..to).is_some_and(blank))
    }

    /// What is wrong with it as that of the device `ours`, as sentences.
    pub(super) fn findings(&self, ours: Named) -> Vec<String> {
        let mut wrong = Vec::new();
        let unread: Vec<&(&str, u64)> = {
            let places = PLACES.iter();
            places
                .filter(|it| self.unreadable.contains(&it.1))
                .collect()
        };
        for (place, copy) in PLACES.iter().zip(self.copies()) {
            let which = place.0;
            match copy {
                Some(copy) if copy.id == ours.id => {}
                Some(copy) => wrong.push(format!(
                    "the {which} header is of device {}, and the directory's is {}",
                    hex(&copy.id),
                    hex(&ours.id)
                )),
                None if unread.contains(&place) => {
                    wrong.push(format!("the {which} header cannot be read"));
                }
                None => wrong.push(format!("the {which} header is damaged")),
            }
        }
        let is_header = |at: &u64| unread.iter().any(|place| place.1 == *at);
        for at in self.unreadable.iter().filter(|at| !is_header(at)) {
            wrong.push(format!(
                "{PIECE} bytes at {at} of the device cannot be read"
            ));
        }
        if !self.is_only_ours() {
            wrong.push("another program wrote to its first MiB: a start refuses it".to_owned());
        }
        wrong
    }

    /// Writes each header again that is damaged or cannot be read. Gives what stays so, in words.
    ///
    /// # Errors
    /// Those of the device that are not of the medium.
    pub(super) fn mend<D: Blocking>(
        &self,
        device: &D,
        ours: Named,
    ) -> Result<Option<String>, IoError> {
        let mut damage = None;
        for (place, copy) in PLACES.into_iter().zip(self.copies()) {
            if copy.is_none_or(|copy| copy.id != ours.id) {
                damage = damage.or(rewrite(device, place, ours)?);
            }
        }
        Ok(damage)
    }
}

/// Writes a header again, and reads it. Where that cannot be done, gives what is wrong, in words:
/// the other header stands in for it.
fn rewrite<D: Blocking>(
    device: &D,
    (which, at): (&str, u64),
    ours: Named,
) -> Result<Option<String>, IoError> {
    let path = device.path().display();
    let why = match write(device, at, ours).and_then(|()| read(device, at)) {
        Ok(Some(back)) if back == ours => {
            warn!(%path, which, "one of the two headers of the device was damaged, and is written \
                again");
            return Ok(None);
        }
        Ok(_) => "the device does not give back what was written".to_owned(),
        Err(error) if error.kind() == IoErrorKind::MediaError => error.to_string(),
        Err(error) => return Err(error),
    };
    let damage = format!(
        "the {which} header of its device is damaged and cannot be written again, the other one \
         stands in for it ({why})"
    );
    warn!(%path, "{damage}");
    Ok(Some(damage))
}

fn write<D: Blocking>(device: &D, at: u64, named: Named) -> Result<(), IoError> {
    let mut piece = named.header();
    piece.resize(PIECE, 0);
    device.write(&[&Bytes::from(piece)], at).1?;
    device.sync(SyncKind::All)
}

fn read<D: Blocking>(device: &D, at: u64) -> Result<Option<Named>, IoError> {
    let mut head = [0; HEADER_BYTES];
    device.read(&mut head, HEADER_BYTES, at)?;
    Ok(Named::from_header(&head))
}

/// Writes both headers, the first at last.
///
/// # Errors
/// Those of the device; `MediaError` when it begins with another one afterwards.
pub(super) fn begin<D: Blocking>(device: &D, root: &Path, named: Named) -> Result<(), IoError> {
    for (_, at) in PLACES.into_iter().rev() {
        write(device, at, named)?;
    }
    // Another process may have been given the same device at the same time.
    match read(device, PLACES[0].1)? {
        Some(first) if first.id == named.id => Ok(()),
        _ => Err(changed(root)),
    }
}

fn changed(root: &Path) -> IoError {
    let text = "the device no longer begins as it did: it was changed or exchanged";
    IoError::new(IoErrorKind::MediaError, IoOp::Read, root, text)
}

/// Makes sure that the device begins with the header that it had. A header that is damaged beside
/// it is written again; what stays damaged is given in words, and the other stands in for it.
///
/// # Errors
/// `MediaError` when it begins otherwise, or neither header can be read; those of the device.
pub(super) fn is_still<D: Blocking>(
    device: &D,
    root: &Path,
    ours: Named,
) -> Result<Option<String>, IoError> {
    let copies = PLACES.map(|(_, at)| read(device, at));
    let is_ours = |copy: &Result<Option<Named>, IoError>| {
        let named = copy.as_ref().ok().copied().flatten();
        named.is_some_and(|named| named.id == ours.id)
    };
    match &copies {
        [first, _] if is_ours(first) => {}
        [Err(error), second] if error.kind() == IoErrorKind::MediaError && is_ours(second) => {}
        [Err(error), _] => return Err(error.clone()),
        _ => return Err(changed(root)),
    }
    let mut damage = None;
    for (place, copy) in PLACES.into_iter().zip(&copies) {
        if !is_ours(copy) {
            damage = rewrite(device, place, ours)?;
        }
    }
    Ok(damage)
}
