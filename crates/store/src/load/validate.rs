//! How much of a replica that was being written is intact.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use hayloft_wire::checksum::{ChecksumKind, DataChecksum, META_HEADER_LEN};

use crate::plan::Tail;

/// What is intact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Valid {
    /// Bytes of data with right checksums.
    pub len: u64,
    /// Checksum of the meta file, when it has a header.
    pub checksum: Option<DataChecksum>,
    /// CRC of the last chunk when that is partial.
    pub last_crc: u32,
}

/// Finds the longest beginning of the data whose last chunk has a right checksum. Earlier chunks
/// are taken to be right: they were written in order.
///
/// The writer puts data before checksums whenever it completes a partial chunk. A process killed between the
/// two leaves a checksum that covers only the beginning of the chunk on the disk: that beginning
/// was acknowledged, and is found by trying every length.
pub fn validate(data: &Path, meta: &Path) -> io::Result<Valid> {
    let (data, meta) = (File::open(data)?, File::open(meta)?);
    let (data_len, meta_len) = (data.metadata()?.len(), meta.metadata()?.len());
    let mut header = [0; META_HEADER_LEN];
    let nothing = Valid {
        len: 0,
        checksum: None,
        last_crc: 0,
    };
    if meta_len < header.len() as u64 {
        return Ok(nothing);
    }
    meta.read_exact_at(&mut header, 0)?;
    let Ok(checksum) = DataChecksum::decode_meta_header(&header) else {
        return Ok(nothing);
    };
    if checksum.kind() == ChecksumKind::Null {
        return Ok(Valid {
            len: data_len,
            checksum: Some(checksum),
            last_crc: 0,
        });
    }
    let chunk = u64::from(checksum.bytes_per_checksum());
    let sums = (meta_len - META_HEADER_LEN as u64) / checksum.sum_size() as u64;
    let mut chunks = data_len.div_ceil(chunk).min(sums);
    while let Some(last) = chunks.checked_sub(1) {
        let start = last * chunk;
        let stored = read_sum(&meta, checksum, last)?;
        let tail = read_tail(&data, start, chunk.min(data_len - start))?;
        if let Some(len) = longest_match(checksum.kind(), &tail, stored) {
            let partial = (len as u64) < chunk;
            return Ok(Valid {
                len: start + len as u64,
                checksum: Some(checksum),
                last_crc: if partial { stored } else { 0 },
            });
        }
        chunks = last;
    }
    Ok(Valid {
        len: 0,
        checksum: Some(checksum),
        last_crc: 0,
    })
}

fn read_sum(meta: &File, checksum: DataChecksum, chunk: u64) -> io::Result<u32> {
    let mut sum = [0; 4];
    let offset = META_HEADER_LEN as u64 + chunk * checksum.sum_size() as u64;
    meta.read_exact_at(&mut sum, offset)?;
    Ok(u32::from_be_bytes(sum))
}

/// Reads at most a chunk, whose size [`DataChecksum`] limits.
fn read_tail(data: &File, start: u64, len: u64) -> io::Result<Vec<u8>> {
    let len = usize::try_from(len).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    let mut tail = vec![0; len];
    data.read_exact_at(&mut tail, start)?;
    Ok(tail)
}

/// The greatest length, above 0, of a beginning of `tail` with the checksum `stored`.
fn longest_match(kind: ChecksumKind, tail: &[u8], stored: u32) -> Option<usize> {
    if kind.crc(tail) == stored && !tail.is_empty() {
        return Some(tail.len());
    }
    let mut crc = 0;
    let mut longest = None;
    for (at, byte) in tail.iter().enumerate() {
        crc = kind.crc_append(crc, std::slice::from_ref(byte));
        if crc == stored {
            longest = Some(at + 1);
        }
    }
    longest
}

/// Bytes read at a time, at most: a chunk may be larger, as [`DataChecksum`] allows.
const PIECE: usize = 1 << 20;

/// Whether the first `len` bytes are there and all of their checksums are right. Reads all of them. `None` when not.
pub fn whole(data: &Path, meta: &Path, len: u64) -> io::Result<Option<Valid>> {
    let (data, meta) = (File::open(data)?, File::open(meta)?);
    let (data_len, meta_len) = (data.metadata()?.len(), meta.metadata()?.len());
    let mut header = [0; META_HEADER_LEN];
    if data_len < len || meta_len < header.len() as u64 {
        return Ok(None);
    }
    meta.read_exact_at(&mut header, 0)?;
    let Ok(checksum) = DataChecksum::decode_meta_header(&header) else {
        return Ok(None);
    };
    let valid = Valid {
        len,
        checksum: Some(checksum),
        last_crc: 0,
    };
    if checksum.kind() == ChecksumKind::Null {
        return Ok(Some(valid));
    }
    if meta_len < checksum.meta_len(len) {
        return Ok(None);
    }
    let chunk = checksum.chunk_size();
    let piece = PIECE.next_multiple_of(chunk);
    let mut bytes = vec![0; piece];
    let mut sums = vec![0; piece / chunk * checksum.sum_size()];
    let mut at = 0;
    while at < len {
        let n = usize::try_from(len - at).map_or(piece, |left| left.min(piece));
        let sums = &mut sums[..n.div_ceil(chunk) * checksum.sum_size()];
        data.read_exact_at(&mut bytes[..n], at)?;
        meta.read_exact_at(sums, checksum.meta_len(at))?;
        if checksum.verify(&bytes[..n], sums).is_err() {
            return Ok(None);
        }
        at += n as u64;
    }
    Ok(Some(valid))
}

/// Cuts both files to what is intact.
pub fn cut(data: &Path, meta: &Path, valid: &Valid) -> io::Result<()> {
    let open = |path: &Path| OpenOptions::new().write(true).open(path);
    let data = open(data)?;
    // Also when it is as long as that already: blocks may have been reserved behind the end.
    if data.metadata()?.len() >= valid.len {
        data.set_len(valid.len)?;
    }
    let Some(checksum) = valid.checksum else {
        return Ok(());
    };
    let meta = open(meta)?;
    let meta_len = checksum.meta_len(valid.len);
    if meta.metadata()?.len() > meta_len {
        meta.set_len(meta_len)?;
    }
    Ok(())
}

/// Shortens a replica to `len` bytes: the meta file first (fewer checksums, then the one of the new last
/// chunk), then the data, so that a stop at any point leaves something that [`validate`] cuts to at
/// least `len` bytes. Gives back the CRC of the last chunk when it is partial. Blocking.
///
/// Errors: `InvalidData` when the chunk that is cut does not match its checksum: a new checksum
/// would make damaged bytes look right.
///
/// `known` is the end of the replica as its writer knows it: beyond that the files may hold
/// anything.
pub fn recompute_tail(
    data: &Path,
    meta: &Path,
    checksum: DataChecksum,
    len: u64,
    known: Option<Tail>,
) -> io::Result<u32> {
    let open = |path: &Path| OpenOptions::new().read(true).write(true).open(path);
    let (data, meta) = (open(data)?, open(meta)?);
    let start = checksum.chunk_start(len);
    let mut last_crc = 0;
    if checksum.kind() == ChecksumKind::Null || start == len {
        meta.set_len(checksum.meta_len(len))?;
    } else {
        let chunk = u64::from(checksum.bytes_per_checksum());
        let mut there = chunk.min(data.metadata()?.len().saturating_sub(start));
        let stored = match known {
            Some(known) if known.len < start + chunk => {
                there = there.min(known.len.saturating_sub(start));
                known.crc
            }
            _ => read_sum(&meta, checksum, start / chunk)?,
        };
        let tail = read_tail(&data, start, there)?;
        let keep = usize::try_from(len - start)
            .map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        if longest_match(checksum.kind(), &tail, stored).is_none_or(|intact| intact < keep) {
            let text = format!("the chunk at byte {start} does not match its checksum");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        last_crc = checksum.kind().crc(&tail[..keep]);
        meta.set_len(checksum.meta_len(len))?;
        meta.write_all_at(&last_crc.to_be_bytes(), checksum.meta_len(start))?;
        // Before the data is cut: should that be on the device first when power is lost, the bytes that stay would
        // have a checksum of more than them, and an hsynced tail would count as damaged.
        meta.sync_data()?;
    }
    data.set_len(len)?;
    Ok(last_crc)
}
