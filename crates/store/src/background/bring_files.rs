//! How the files of a replica come to another volume: by hard link, or by a copy that is verified
//! on the way.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join;
use hayloft_io::{DataFile, DataFiles, IoClass, IoError, IoOp, OpenMode, patiently};
use hayloft_wire::checksum::{DataChecksum, META_HEADER_LEN};
use tokio::time::Instant;

use crate::replica::file_pair::{self, Pair};
use crate::volume::BlockPoolSlice;

/// Bytes copied at a time, at least; a whole number of chunks.
const PIECE_BYTES: usize = 1 << 20;
/// The same of a copy that yields while clients wait for a disk: they wait behind so much.
const PIECE_BESIDE_CLIENTS: usize = 256 << 10;
/// Bytes that are written before those of the last window have to be on the device, while no client
/// wants its disk. Twice as much may wait for the device.
const WINDOW_BYTES: u64 = 8 << 20;
/// On whose behalf it is copied.
const CLASS: IoClass = IoClass::Balancer;
/// Longest rest after a piece. A disk that is slow for another reason does not double its time.
const REST_MAX: Duration = Duration::from_millis(200);

/// What a copy does while clients wait for one of its disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// It goes on: writers wait for the memory that it frees.
    Steady,
    /// It rests after each piece, as long as that piece took.
    Yielding,
}

impl Pace {
    /// Bytes to copy at a time.
    fn piece(self, clients_wait: bool) -> usize {
        match self {
            Self::Yielding if clients_wait => PIECE_BESIDE_CLIENTS,
            Self::Yielding | Self::Steady => PIECE_BYTES,
        }
    }

    /// How long to rest after a piece that took so long.
    fn rest(self, took: Duration, clients_wait: bool) -> Duration {
        match self {
            Self::Yielding if clients_wait => took.min(REST_MAX),
            Self::Yielding | Self::Steady => Duration::ZERO,
        }
    }
}

/// Gives a pair second names in a new directory, and makes what it holds durable: its commit round
/// may be to come, and is forgotten with its old place. Gives the bytes of both files, or `None`
/// where the file system does not link them: to another mount below the same one, or a file of
/// another owner.
pub(super) fn link_pair(from: &Pair, to: &Pair, len: u64) -> io::Result<Option<u64>> {
    crate::layout::dirs::make_dir(&to.dir)?;
    for (old, new) in [(from.meta(), to.meta()), (from.data(), to.data())] {
        match fs::hard_link(&old, &new) {
            Err(e) if cannot_link(&e) => {
                fs::remove_dir_all(&to.dir)?;
                return Ok(None);
            }
            other => other?,
        }
        file_pair::sync_file(&new)?;
    }
    let (data, meta) = (fs::metadata(to.data())?, fs::metadata(to.meta())?);
    if data.len() != len {
        return Err(damaged(format!(
            "the data file has {} bytes, the replica {len}",
            data.len()
        )));
    }
    Ok(Some(len.saturating_add(meta.len())))
}

fn cannot_link(error: &io::Error) -> bool {
    use io::ErrorKind::{CrossesDevices, PermissionDenied, TooManyLinks, Unsupported};
    matches!(
        error.kind(),
        CrossesDevices | PermissionDenied | TooManyLinks | Unsupported
    )
}

/// Copies a pair to the device and compares every chunk with its checksum on the way. Each disk
/// does its own part, a piece at a time, so that one that hangs is known for it.
///
/// What was written goes to the device while the next window is copied, beside clients after each
/// piece: a sync of a whole block would have them wait behind all of its bytes.
pub(crate) async fn copy_verified(
    from: &BlockPoolSlice,
    to: &BlockPoolSlice,
    source: &Pair,
    scratch: &Pair,
    len: u64,
    pace: Pace,
) -> Result<DataChecksum, IoError> {
    let (read_path, write_path) = (source.data(), scratch.data());
    let (pair, data_files) = (source.clone(), from.volume.data_files());
    let open = move || Source::open(&data_files, &pair, len);
    let mut reading = file_pair::on_disk(from, CLASS, IoOp::Read, &read_path, open).await?;
    let checksum = reading.checksum;
    let copy = Arc::new(create(to, scratch, Arc::clone(&reading.meta)).await?);
    let paths = (&*read_path, &*write_path);
    let mut written = false;
    loop {
        let begun = Instant::now();
        let window = copy_window((from, to), paths, reading, &copy, pace);
        let before = write_back(to, scratch, &copy, written);
        let ((rest, ended), ()) = try_join(window, before).await?;
        if ended {
            break;
        }
        (reading, written) = (rest, true);
        let rest = pace.rest(begun.elapsed(), clients_wait((from, to)));
        tokio::time::sleep(rest).await;
    }
    file_pair::on_disk(to, CLASS, IoOp::Sync, &write_path, move || copy.sync()).await?;
    Ok(checksum)
}

/// Copies a window: one piece while clients wait. True when that came to the replica's end.
async fn copy_window(
    (from, to): (&BlockPoolSlice, &BlockPoolSlice),
    (read_path, write_path): (&Path, &Path),
    mut reading: Source,
    copy: &Arc<DataFile>,
    pace: Pace,
) -> Result<(Source, bool), IoError> {
    let mut copied = 0;
    loop {
        let bytes = pace.piece(clients_wait((from, to)));
        let offset = reading.offset();
        let read = move || reading.next(bytes).map(|piece| (reading, piece));
        let (rest, piece) = file_pair::on_disk(from, CLASS, IoOp::Read, read_path, read).await?;
        reading = rest;
        if piece.is_empty() {
            return Ok((reading, true));
        }
        copied += piece.len() as u64;
        let file = Arc::clone(copy);
        let write = move || file.write_all_at(&piece, offset);
        file_pair::on_disk(to, CLASS, IoOp::Write, write_path, write).await?;
        if copied >= WINDOW_BYTES || clients_wait((from, to)) {
            return Ok((reading, false));
        }
    }
}

/// The new pair: its meta file is durable, its data file is empty.
async fn create(to: &BlockPoolSlice, scratch: &Pair, meta: Arc<[u8]>) -> Result<DataFile, IoError> {
    let (pair, data_files) = (scratch.clone(), to.volume.data_files());
    let create = move || {
        crate::layout::dirs::make_dir(&pair.dir)?;
        let mut copy = patiently(|| File::create_new(pair.meta()))?;
        copy.write_all(&meta)?;
        copy.sync_all()?;
        data_files.open(&pair.data(), OpenMode::CreateNew)
    };
    file_pair::on_disk(to, CLASS, IoOp::Write, &scratch.data(), create).await
}

/// Waits until the device has all that was written, if that is `due`.
async fn write_back(
    to: &BlockPoolSlice,
    scratch: &Pair,
    copy: &Arc<DataFile>,
    due: bool,
) -> Result<(), IoError> {
    if !due {
        return Ok(());
    }
    let copy = Arc::clone(copy);
    let write_back = move || copy.write_back();
    file_pair::on_disk(to, CLASS, IoOp::Writeback, &scratch.data(), write_back).await
}

/// Whether clients read or write on the disks of these volumes at this moment.
fn clients_wait((from, to): (&BlockPoolSlice, &BlockPoolSlice)) -> bool {
    [from, to].into_iter().any(|slice| {
        let disk = slice.volume.engine.disk();
        let classes = [IoClass::ClientRead, IoClass::ClientWrite];
        classes.into_iter().any(|class| disk.pending(class) > 0)
    })
}

/// A replica that is read from its beginning to its end and compared with its checksums.
struct Source {
    data: DataFile,
    meta: Arc<[u8]>,
    checksum: DataChecksum,
    /// Bytes of `meta` before the checksums of what is left.
    at: usize,
    left: u64,
    len: u64,
}

impl Source {
    fn open(data_files: &DataFiles, pair: &Pair, len: u64) -> io::Result<Self> {
        let mut file = patiently(|| File::open(pair.meta()))?;
        let mut header = [0; META_HEADER_LEN];
        file.read_exact(&mut header)?;
        let checksum =
            DataChecksum::decode_meta_header(&header).map_err(|e| damaged(e.to_string()))?;
        let sums = usize::try_from(checksum.meta_len(len))
            .map_err(|_| damaged(format!("{len} bytes have too many checksums")))?;
        if file.metadata()?.len() < sums as u64 {
            return Err(damaged(format!(
                "the meta file has not the checksums of {len} bytes"
            )));
        }
        let mut meta = vec![0; sums];
        meta[..META_HEADER_LEN].copy_from_slice(&header);
        file.read_exact(&mut meta[META_HEADER_LEN..])?;
        Ok(Self {
            data: data_files.open(&pair.data(), OpenMode::ReadOnly)?,
            meta: meta.into(),
            checksum,
            at: META_HEADER_LEN,
            left: len,
            len,
        })
    }

    /// Where the next piece is in the replica, in bytes.
    fn offset(&self) -> u64 {
        self.len - self.left
    }

    /// The next piece of so many bytes, or the chunk more that they begin, verified; empty at the
    /// end.
    fn next(&mut self, bytes: usize) -> io::Result<Vec<u8>> {
        let whole = bytes.next_multiple_of(self.checksum.chunk_size());
        let n = usize::try_from(self.left).map_or(whole, |left| left.min(whole));
        let mut piece = vec![0; n];
        self.data.read_exact_at(&mut piece, self.offset())?;
        let end = self.at + self.checksum.sums_len(n);
        let sums = self.meta.get(self.at..end);
        let sums = sums.ok_or_else(|| damaged("the checksums end early".to_owned()))?;
        self.checksum
            .verify(&piece, sums)
            .map_err(|e| damaged(e.to_string()))?;
        (self.at, self.left) = (end, self.left - n as u64);
        if n == 0 && self.data.length()? > self.len {
            return Err(damaged(
                "the data file is longer than the replica".to_owned(),
            ));
        }
        Ok(piece)
    }
}

fn damaged(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_copy_that_yields_rests_and_only_beside_clients() {
        let took = Duration::from_millis(30);
        assert_eq!(Pace::Yielding.rest(took, true), took);
        assert_eq!(Pace::Yielding.rest(took * 100, true), REST_MAX);
        assert_eq!(Pace::Yielding.piece(true), PIECE_BESIDE_CLIENTS);
        for (pace, clients_wait) in [
            (Pace::Yielding, false),
            (Pace::Steady, false),
            (Pace::Steady, true),
        ] {
            assert_eq!(pace.rest(took, clients_wait), Duration::ZERO);
            assert_eq!(pace.piece(clients_wait), PIECE_BYTES);
        }
    }
}
