//! How much of a replica that was being written is intact.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use hayloft_io::{DataFile, DataFiles, IoOp, OpenMode, patiently};
use hayloft_wire::checksum::{ChecksumKind, DataChecksum, META_HEADER_LEN};

use crate::replica::{Tail, kept_end};

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
/// The writer puts data before checksums whenever it completes a partial chunk. A process killed
/// between the two leaves a checksum that covers only the beginning of the chunk on the disk. That
/// beginning was acknowledged, and is found by trying every length.
pub fn validate(files: &DataFiles, data: &Path, meta: &Path) -> io::Result<Valid> {
    let data = files.open(data, OpenMode::ReadOnly)?;
    let meta = patiently(|| File::open(meta))?;
    let (data_len, meta_len) = (data.length()?, meta.metadata()?.len());
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

/// Whether nothing is missing of what both files hold but a part of the last chunk: a process that
/// is killed leaves no damage before that.
pub fn reaches_last_chunk(
    files: &DataFiles,
    data: &Path,
    meta: &Path,
    valid: &Valid,
) -> io::Result<bool> {
    let data_len = files.open(data, OpenMode::ReadOnly)?.length()?;
    let Some(checksum) = valid.checksum else {
        return Ok(data_len == 0);
    };
    if checksum.kind() == ChecksumKind::Null {
        return Ok(valid.len == data_len);
    }
    let meta_len = patiently(|| File::open(meta))?.metadata()?.len();
    let chunk = u64::from(checksum.bytes_per_checksum());
    let sums = meta_len.saturating_sub(META_HEADER_LEN as u64) / checksum.sum_size() as u64;
    let chunks = data_len.div_ceil(chunk).min(sums);
    Ok(valid.len >= chunks.saturating_sub(1) * chunk)
}

fn read_sum(meta: &File, checksum: DataChecksum, chunk: u64) -> io::Result<u32> {
    let mut sum = [0; 4];
    let offset = META_HEADER_LEN as u64 + chunk * checksum.sum_size() as u64;
    meta.read_exact_at(&mut sum, offset)?;
    Ok(u32::from_be_bytes(sum))
}

/// Reads at most a chunk, whose size [`DataChecksum`] limits.
fn read_tail(data: &DataFile, start: u64, len: u64) -> io::Result<Vec<u8>> {
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

/// Whether the first `len` bytes are there and all of their checksums are right. Reads all of them.
/// `None` when not.
pub fn whole(files: &DataFiles, data: &Path, meta: &Path, len: u64) -> io::Result<Option<Valid>> {
    let data = files.open(data, OpenMode::ReadOnly)?;
    let meta = patiently(|| File::open(meta))?;
    let (data_len, meta_len) = (data.length()?, meta.metadata()?.len());
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
    Ok((intact(&data, &meta, &valid)? == len).then_some(valid))
}

/// Up to where the first `valid.len` bytes match their checksums: all of them, or the beginning of
/// the first chunk that does not. Both files are long enough. Reads all of it.
pub fn intact(data: &DataFile, meta: &File, valid: &Valid) -> io::Result<u64> {
    let len = valid.len;
    let Some(checksum) = valid.checksum.filter(|c| c.kind() != ChecksumKind::Null) else {
        return Ok(len);
    };
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
        if let Err(mismatch) = checksum.verify(&bytes[..n], sums) {
            let good = mismatch.offset / chunk * chunk;
            return Ok(at + good as u64);
        }
        at += n as u64;
    }
    Ok(len)
}

/// As much of a replica as is intact where that is more than `valid`, which its checksums say: up
/// to a [kept end](kept_end).
pub fn with_kept_end(
    files: &DataFiles,
    data: &Path,
    meta: &Path,
    valid: Valid,
) -> io::Result<Valid> {
    let Some(checksum) = valid.checksum.filter(|c| c.kind() != ChecksumKind::Null) else {
        return Ok(valid);
    };
    let meta = patiently(|| File::open(meta))?;
    let meta_len = meta.metadata()?.len();
    // Without them the checksums decide, as on a file system that keeps none.
    let ends = kept_end::kept(&meta).unwrap_or_default().into_iter();
    for Tail { len, crc } in ends.filter(|end| end.len > valid.len) {
        let data = files.open(data, OpenMode::ReadOnly)?;
        if len > data.length()? || checksum.meta_len(len) > meta_len {
            continue;
        }
        let start = checksum.chunk_start(len);
        let tail = read_tail(&data, start, len - start)?;
        let before = Valid {
            len: start,
            ..valid
        };
        if checksum.kind().crc(&tail) == crc && intact(&data, &meta, &before)? == start {
            return Ok(Valid {
                len,
                last_crc: crc,
                ..valid
            });
        }
    }
    Ok(valid)
}

/// Cuts both files to what is intact.
pub fn cut(files: &DataFiles, data: &Path, meta: &Path, valid: &Valid) -> io::Result<()> {
    let data = files.open(data, OpenMode::ReadWrite)?;
    // Also when it is as long as that already: blocks may have been reserved behind the end.
    // Written back before, as in [`files::trim`](crate::replica::file_pair::trim).
    if data.length()? >= valid.len {
        data.write_back()?;
        data.set_len(valid.len)?;
    }
    let Some(checksum) = valid.checksum else {
        return Ok(());
    };
    let meta = patiently(|| OpenOptions::new().read(true).write(true).open(meta))?;
    // When it was written is of its writer: the next start asks for that again.
    let written = meta.metadata()?.modified()?;
    let meta_len = checksum.meta_len(valid.len);
    if meta.metadata()?.len() > meta_len {
        meta.set_len(meta_len)?;
        meta.set_modified(written)?;
    }
    let start = checksum.chunk_start(valid.len);
    let partial = start < valid.len && checksum.kind() != ChecksumKind::Null;
    let chunk = start / u64::from(checksum.bytes_per_checksum());
    if partial && read_sum(&meta, checksum, chunk)? != valid.last_crc {
        // Its end was kept beside the checksum of what is gone.
        meta.write_all_at(&valid.last_crc.to_be_bytes(), checksum.meta_len(start))?;
        meta.set_modified(written)?;
    }
    Ok(())
}

/// Inode of a data file that cannot be cut, after its checksums were.
#[cfg(test)]
pub static CANNOT_BE_CUT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

/// A replica that is to be shortened, looked at: its files are open, and nothing was changed yet.
pub struct Cut {
    data: DataFile,
    meta: File,
    checksum: DataChecksum,
    len: u64,
    /// Checksum of the new last chunk, which is partial.
    crc: Option<u32>,
}

impl Cut {
    /// Of a replica to `len` bytes. Blocking.
    ///
    /// Errors: `InvalidData` when the chunk that is cut does not match its checksum: a new checksum
    /// would make damaged bytes look right.
    ///
    /// `known` is the end of the replica as its writer knows it: beyond that the files may hold
    /// anything.
    pub fn of(
        files: &DataFiles,
        data: &Path,
        meta: &Path,
        checksum: DataChecksum,
        len: u64,
        known: Option<Tail>,
    ) -> io::Result<Self> {
        let meta = patiently(|| OpenOptions::new().read(true).write(true).open(meta))?;
        let mut this = Self {
            data: files.open(data, OpenMode::ReadWrite)?,
            meta,
            checksum,
            len,
            crc: None,
        };
        let start = checksum.chunk_start(len);
        if checksum.kind() == ChecksumKind::Null || start == len {
            return Ok(this);
        }
        let chunk = u64::from(checksum.bytes_per_checksum());
        let mut there = chunk.min(this.data.length()?.saturating_sub(start));
        let stored = match known {
            Some(known) if known.len < start + chunk => {
                there = there.min(known.len.saturating_sub(start));
                known.crc
            }
            _ => read_sum(&this.meta, checksum, start / chunk)?,
        };
        let tail = read_tail(&this.data, start, there)?;
        let keep = usize::try_from(len - start)
            .map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        if longest_match(checksum.kind(), &tail, stored).is_none_or(|intact| intact < keep) {
            let text = format!("the chunk at byte {start} does not match its checksum");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        this.crc = Some(checksum.kind().crc(&tail[..keep]));
        Ok(this)
    }

    #[cfg(test)]
    fn may_be_cut(&self) -> io::Result<()> {
        use std::os::unix::fs::MetadataExt as _;
        let Some(data) = self.data.as_plain() else {
            return Ok(());
        };
        let inode = data.metadata()?.ino();
        if CANNOT_BE_CUT.load(std::sync::atomic::Ordering::Relaxed) == inode {
            return Err(io::Error::from_raw_os_error(5));
        }
        Ok(())
    }

    /// CRC of the last chunk when that is partial.
    pub fn last_crc(&self) -> u32 {
        self.crc.unwrap_or(0)
    }

    /// Makes it. A stop at any point leaves what a start cuts to at least `len` bytes. `promise`
    /// says how many bytes of the replica may have to outlive power loss, and which end is kept.
    /// The result is the one that is kept then. Blocking.
    ///
    /// Where ends can be kept, the three calls come right after one another, in Apache's order:
    /// data, checksums, that of the new last chunk. A stop between them costs Apache's start that
    /// chunk.
    ///
    /// Errors: what failed. The files may be in any of these states then, and checksums beyond
    /// `len` are gone.
    pub fn make(self, promise: (u64, Option<Tail>)) -> Result<Option<Tail>, (IoOp, io::Error)> {
        let cut = |e| (IoOp::Truncate, e);
        let sums = self.checksum.meta_len(self.len);
        let (synced_len, kept) = promise;
        let kept = kept.filter(|end| end.len <= self.len);
        let Some(crc) = self.crc else {
            self.meta.set_len(sums).map_err(cut)?;
            #[cfg(test)]
            self.may_be_cut().map_err(cut)?;
            self.data.set_len(self.len).map_err(cut)?;
            return Ok(kept);
        };
        let end = Tail { len: self.len, crc };
        let start = self.checksum.chunk_start(self.len);
        let at = self.checksum.meta_len(start);
        let bytes = crc.to_be_bytes();
        let ends: Vec<Tail> = kept.into_iter().chain([end]).collect();
        if kept_end::keep(&self.meta, &ends).is_ok() {
            let promised = synced_len > start && kept.map(|end| end.len) != Some(synced_len);
            if promised {
                self.data.sync().map_err(|e| (IoOp::Sync, e))?;
                self.meta.sync_all().map_err(|e| (IoOp::Sync, e))?;
            }
            #[cfg(test)]
            self.may_be_cut().map_err(cut)?;
            self.data.set_len(self.len).map_err(cut)?;
            self.meta.set_len(sums).map_err(cut)?;
            self.meta.write_all_at(&bytes, at).map_err(cut)?;
            return Ok(if promised { Some(end) } else { kept });
        }
        self.meta.set_len(sums).map_err(cut)?;
        self.meta.write_all_at(&bytes, at).map_err(cut)?;
        // Before the data is cut. Were the cut data on the device first when power is lost, its
        // checksum would cover more bytes, and an hsynced tail would count as damaged.
        self.meta.sync_data().map_err(|e| (IoOp::Sync, e))?;
        #[cfg(test)]
        self.may_be_cut().map_err(cut)?;
        self.data.set_len(self.len).map_err(cut)?;
        Ok(None)
    }
}
