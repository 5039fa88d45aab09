//! How the files of a replica come to another volume: by hard link, or by a copy that is verified
//! on the way.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
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
/// Bytes that may wait for the device while no client wants its disk.
const DIRTY_MAX: u64 = 8 << 20;
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
/// What was written goes to the device on the way, beside clients after each piece: a sync of a
/// whole block would have them wait behind all of its bytes.
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
    let (mut at, mut dirty, mut beside_clients) = (0, 0, false);
    loop {
        let begun = Instant::now();
        let read = move || reading.next().map(|piece| (reading, piece));
        let read = file_pair::on_disk(from, CLASS, IoOp::Read, &read_path, read);
        let due = dirty >= if beside_clients { 1 } else { DIRTY_MAX };
        let ((rest, piece), ()) = try_join(read, write_back(to, scratch, &copy, due)).await?;
        if piece.is_empty() {
            break;
        }
        reading = rest;
        let (offset, bytes) = (at, piece.len() as u64);
        let file = Arc::clone(&copy);
        let write = move || file.write_all_at(&piece, offset);
        file_pair::on_disk(to, CLASS, IoOp::Write, &write_path, write).await?;
        at += bytes;
        dirty = if due { bytes } else { dirty + bytes };
        beside_clients = [from, to].into_iter().any(clients_wait);
        tokio::time::sleep(pace.rest(begun.elapsed(), beside_clients)).await;
    }
    file_pair::on_disk(to, CLASS, IoOp::Sync, &write_path, move || copy.sync()).await?;
    Ok(checksum)
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

/// Whether clients read or write on the disk of a volume at this moment.
fn clients_wait(slice: &BlockPoolSlice) -> bool {
    let disk = slice.volume.engine.disk();
    let classes = [IoClass::ClientRead, IoClass::ClientWrite];
    classes.into_iter().any(|class| disk.pending(class) > 0)
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

    /// The next piece, verified; empty at the end.
    fn next(&mut self) -> io::Result<Vec<u8>> {
        let whole = PIECE_BYTES.next_multiple_of(self.checksum.chunk_size());
        let n = usize::try_from(self.left).map_or(whole, |left| left.min(whole));
        let mut piece = vec![0; n];
        self.data.read_exact_at(&mut piece, self.len - self.left)?;
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
        for (pace, clients_wait) in [
            (Pace::Yielding, false),
            (Pace::Steady, false),
            (Pace::Steady, true),
        ] {
            assert_eq!(pace.rest(took, clients_wait), Duration::ZERO);
        }
    }
}
