//! Where the content of a stub is: extents of the device, in an extended attribute of the file.

use std::fs::File;

use rustix::fs::{XattrFlags, fgetxattr, fsetxattr};
use rustix::io::Errno;

use super::free_units::{Extent, UNIT};
use super::headers::HEADER;
use super::{DeviceId, crc};

/// The attribute.
pub(super) const ATTRIBUTE: &str = "user.hayloft.at";
/// Extents that a stub can have. Their attribute fits into the inode's block of ext4 (4 KiB).
pub(super) const EXTENTS_MAX: usize = 200;

const MAGIC: [u8; 4] = *b"HLF1";
const HEAD: usize = 4 + 16 + 2;
const EXTENT: usize = 8 + 4;
const BYTES_MAX: usize = HEAD + EXTENTS_MAX * EXTENT + 4;

/// Magic, device, count, extents (first unit, units), CRC-32C of all before; little endian.
fn encode(device: &DeviceId, extents: &[Extent]) -> Vec<u8> {
    let count = u16::try_from(extents.len()).expect("EXTENTS_MAX was checked");
    let mut bytes = Vec::with_capacity(HEAD + extents.len() * EXTENT + 4);
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(device);
    bytes.extend_from_slice(&count.to_le_bytes());
    for extent in extents {
        bytes.extend_from_slice(&extent.first.to_le_bytes());
        bytes.extend_from_slice(&extent.units.to_le_bytes());
    }
    bytes.extend_from_slice(&crc(&bytes).to_le_bytes());
    bytes
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N]
        .try_into()
        .expect("the length was checked")
}

/// The extents in `bytes`, on the device `device` of `units`, of a file of `len` bytes.
///
/// # Errors
/// What is wrong, in words.
fn decode(bytes: &[u8], device: &DeviceId, units: u64, len: u64) -> Result<Vec<Extent>, String> {
    if bytes.len() < HEAD + 4 || bytes[..4] != MAGIC {
        return Err("it has another form".into());
    }
    let (body, sum) = bytes.split_at(bytes.len() - 4);
    if crc(body).to_le_bytes() != sum {
        return Err("its checksum is wrong".into());
    }
    if number::<16>(body, 4) != *device {
        return Err("it is of another device".into());
    }
    let count = usize::from(u16::from_le_bytes(number(body, 20)));
    if count > EXTENTS_MAX || body.len() != HEAD + count * EXTENT {
        return Err(format!("it says that it has {count} extents"));
    }
    let mut extents = Vec::with_capacity(count);
    for at in (HEAD..body.len()).step_by(EXTENT) {
        let first = u64::from_le_bytes(number(body, at));
        let extent = Extent {
            first,
            units: u32::from_le_bytes(number(body, at + 8)),
        };
        let end = first.checked_add(u64::from(extent.units));
        if extent.units == 0 || first < HEADER / UNIT || end.is_none_or(|end| end > units) {
            let least = HEADER / UNIT;
            return Err(format!(
                "it names unit {first}, which is none of {least} to {units}"
            ));
        }
        extents.push(extent);
    }
    let room: u64 = extents.iter().map(|e| u64::from(e.units) * UNIT).sum();
    if room < len {
        return Err(format!("it has room for {room} of {len} bytes"));
    }
    Ok(extents)
}

/// Why a stub's extents are not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NoExtents {
    /// What the attribute says cannot be trusted, in words.
    Damaged(String),
    /// It could not be read: it may well say where the bytes are.
    Unread(Errno),
}

impl std::fmt::Display for NoExtents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Damaged(why) => f.write_str(why),
            Self::Unread(errno) => {
                write!(f, "{ATTRIBUTE}: {}", std::io::Error::from(*errno))
            }
        }
    }
}

/// Reads the extents of a stub of `len` bytes. A file without the attribute has none, and must be
/// empty.
///
/// # Errors
/// What is wrong.
pub(super) fn read(
    file: &File,
    device: &DeviceId,
    units: u64,
    len: u64,
) -> Result<Vec<Extent>, NoExtents> {
    let damaged = |why: String| Err(NoExtents::Damaged(why));
    let mut bytes = [0; BYTES_MAX];
    let name = ATTRIBUTE;
    match fgetxattr(file, name, &mut bytes[..]) {
        Ok(count) => decode(&bytes[..count], device, units, len)
            .or_else(|why| damaged(format!("{name}: {why}"))),
        Err(Errno::NODATA) if len == 0 => Ok(Vec::new()),
        Err(Errno::NODATA) => damaged(format!(
            "it has {len} bytes and no attribute {name} that says where they are"
        )),
        Err(Errno::RANGE) => damaged(format!("{name} is too long")),
        Err(errno) => Err(NoExtents::Unread(errno)),
    }
}

/// Notes the extents of a stub. Durable after a sync of the file.
pub(super) fn write(file: &File, device: &DeviceId, extents: &[Extent]) -> Result<(), Errno> {
    fsetxattr(
        file,
        ATTRIBUTE,
        &encode(device, extents),
        XattrFlags::empty(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_all_else_refused() {
        let device = [7; 16];
        let extent = |first, units| Extent { first, units };
        let extents = [extent(16, 2), extent(22, 1)];
        let bytes = encode(&device, &extents);
        let len = 3 * UNIT;
        assert_eq!(decode(&bytes, &device, 23, len), Ok(extents.to_vec()));
        let error = |bytes: &[u8], device: [u8; 16], units, len, what: &str| {
            let error = decode(bytes, &device, units, len).expect_err("refused");
            assert!(error.contains(what), "{error}");
        };
        error(&bytes, [8; 16], 23, len, "another device");
        error(
            &bytes,
            device,
            22,
            len,
            "unit 22, which is none of 16 to 22",
        );
        error(&bytes, device, 23, len + 1, "has room for");
        error(&[], device, 23, len, "another form");
        for cut in 0..bytes.len() {
            decode(&bytes[..cut], &device, 23, len).expect_err("torn");
        }
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1;
            decode(&flipped, &device, 23, len).expect_err("flipped");
        }
        for wrong in [extent(16, 0), extent(15, 2), extent(u64::MAX, 1)] {
            error(
                &encode(&device, &[wrong]),
                device,
                23,
                0,
                "which is none of",
            );
        }
        let most = vec![extent(16, 1); EXTENTS_MAX];
        assert!(encode(&device, &most).len() <= BYTES_MAX);
    }
}
