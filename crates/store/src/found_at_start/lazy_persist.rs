//! What Apache's node and this one leave of replicas that are in memory first: copies in
//! `lazypersist` of a disk, and replicas in memory that have no checksums.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use hayloft_io::{DataFiles, OpenMode, patiently};
use hayloft_wire::checksum::{DataChecksum, META_HEADER_LEN};
use tracing::{info, warn};

use super::{Found, Orphans, Progress, walk};
use crate::layout::names::PoolPaths;
use crate::replica::file_pair::Pair;

/// Bytes of which checksums are made at a time, at least.
const PIECE_BYTES: usize = 1 << 20;

/// Adds the copies in `lazypersist` to the finalized replicas of a volume. One that is there
/// already goes: the move of its files to `finalized` did not come to its end, or another task
/// was faster. A meta file that such a move left is an orphan.
pub fn add_copies(
    data_files: &DataFiles,
    paths: &PoolPaths,
    finalized: &mut Vec<Found>,
    orphans: &mut Orphans,
    progress: &Progress,
) -> io::Result<()> {
    let (mut copies, left) = walk(&paths.lazy_persist(), 1, progress)?;
    orphans.meta.extend(left.meta);
    if copies.is_empty() {
        return Ok(());
    }
    let mut there: HashMap<i64, (u64, u64)> = HashMap::new();
    there.extend(copies.iter().map(|found| (found.block.id, (0, 0))));
    for found in finalized.iter() {
        if let Some(newest) = there.get_mut(&found.block.id) {
            let block = found.block;
            *newest = (*newest).max((block.generation_stamp, block.num_bytes));
        }
    }
    copies.retain(|copy| {
        let block = copy.block;
        let newest = there.get(&block.id).copied().unwrap_or_default();
        if newest < (block.generation_stamp, block.num_bytes) {
            return true;
        }
        info!(%block, "a copy in lazypersist is in finalized, too: removing it");
        if let Some(dir) = &copy.dir
            && let Err(error) = remove(data_files, dir, copy)
        {
            warn!(%block, dir = %dir.display(), %error, "cannot remove a copy in lazypersist");
        }
        false
    });
    finalized.extend(copies);
    Ok(())
}

fn remove(data_files: &DataFiles, dir: &Path, copy: &Found) -> io::Result<()> {
    let pair = Pair {
        dir: dir.to_owned(),
        id: copy.block.id,
        generation_stamp: copy.block.generation_stamp,
    };
    data_files.remove(&pair.data())?;
    fs::remove_file(pair.meta())
}

/// Makes the checksums of replicas in memory that have none: Apache's node stores those that its
/// client sent, and clients of single replicas send none. One that fails stays as it is.
pub fn complete_sums(data_files: &DataFiles, paths: &PoolPaths, finalized: &[Found]) {
    for found in finalized {
        let block = found.block;
        let pair = Pair::finalized(paths, block.id, block.generation_stamp);
        match complete(data_files, &pair, block.num_bytes) {
            Ok(false) => {}
            Ok(true) => info!(%block, "made the checksums of a replica in memory that had none"),
            Err(error) => warn!(%block, %error, "cannot make the checksums of a replica in \
                memory that has none"),
        }
    }
}

/// Whether there were none.
fn complete(data_files: &DataFiles, pair: &Pair, len: u64) -> io::Result<bool> {
    let mut meta = patiently(|| File::open(pair.meta()))?;
    if len == 0 || meta.metadata()?.len() != META_HEADER_LEN as u64 {
        return Ok(false);
    }
    let mut header = [0; META_HEADER_LEN];
    meta.read_exact(&mut header)?;
    let checksum = DataChecksum::decode_meta_header(&header)
        .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e.to_string()))?;
    if checksum.sum_size() == 0 {
        return Ok(false);
    }
    let data = data_files.open(&pair.data(), OpenMode::ReadOnly)?;
    let scratch = pair.meta().with_extension("sums");
    let mut made = File::create(&scratch)?;
    made.write_all(&header)?;
    let mut piece = vec![0; PIECE_BYTES.next_multiple_of(checksum.chunk_size())];
    let mut at = 0;
    while at < len {
        let bytes = usize::try_from(len - at).map_or(piece.len(), |left| left.min(piece.len()));
        data.read_exact_at(&mut piece[..bytes], at)?;
        let mut sums = Vec::new();
        checksum.compute(&piece[..bytes], &mut sums);
        made.write_all(&sums)?;
        at += bytes as u64;
    }
    fs::rename(&scratch, pair.meta())?;
    Ok(true)
}
