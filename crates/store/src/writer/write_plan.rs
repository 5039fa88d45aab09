//! What a run of packets means for the files: pure.
//!
//! Clients send data again after a pipeline failure, and a partial chunk again in full after an
//! hflush. They append in the middle of a chunk. Whatever the packets overlap, the result is one
//! contiguous piece of new data, and the checksums from the first chunk that it touches on.

use bytes::Bytes;
use hayloft_wire::checksum::{ChecksumKind, DataChecksum};

use crate::replica::Tail;
use crate::types::{PacketData, Pieces};

/// What to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// New data, to be written at the old length.
    pub data: Vec<Bytes>,
    /// Checksums as in the meta file.
    pub sums: Vec<u8>,
    /// Number of the chunk that the first of the checksums belongs to.
    pub first_chunk: u64,
    /// A checksum on the disk, of a partial chunk, is replaced: data has to be there first.
    pub completes_chunk: bool,
    /// The end afterwards.
    pub tail: Tail,
}

impl Plan {
    /// Offset in the meta file of its first checksum.
    pub fn sums_at(&self, disk: DataChecksum) -> u64 {
        let chunk = u64::from(disk.bytes_per_checksum());
        disk.meta_len(self.first_chunk.saturating_mul(chunk))
    }

    /// Leaves of a plan that goes on at `from` what is in the chunk of that byte; gives what
    /// follows it, and where that begins. `None` when nothing does.
    pub fn split_first_chunk(&mut self, disk: DataChecksum, from: u64) -> Option<(u64, Self)> {
        let chunk = u64::from(disk.bytes_per_checksum());
        let boundary = (from / chunk + 1).saturating_mul(chunk);
        if self.tail.len <= boundary {
            return None;
        }
        let mut head = usize::try_from(boundary - from).expect("at most a chunk");
        let mut rest = Vec::with_capacity(self.data.len());
        self.data.retain_mut(|piece| {
            let kept = piece.split_to(head.min(piece.len()));
            head -= kept.len();
            let behind = std::mem::replace(piece, kept);
            rest.extend(Some(behind).filter(|behind| !behind.is_empty()));
            !piece.is_empty()
        });
        let rest = Self {
            data: rest,
            sums: self.sums.split_off(disk.sum_size()),
            first_chunk: self.first_chunk + 1,
            completes_chunk: false,
            tail: self.tail,
        };
        self.tail = Tail {
            len: boundary,
            crc: 0,
        };
        Some((boundary, rest))
    }
}

/// Why packets cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Bytes between are missing.
    #[error("packet at {offset} leaves a gap: the replica has {len} bytes")]
    Gap {
        /// Where the packet begins.
        offset: u64,
        /// Where the replica ends.
        len: u64,
    },
    /// The checksum that the client sends for a chunk covers other bytes than those on the disk.
    #[error(
        "the bytes on the disk of the chunk at {chunk_start} are not those that the client sends \
            again"
    )]
    Mismatch {
        /// Where the chunk begins.
        chunk_start: u64,
    },
}

/// Plans the writing of `packets`, whose checksums were verified against their data, to a replica
/// that ends at `tail` and has checksums of `disk`.
///
/// What a packet says of itself was checked when it was made. Here it meets the replica's state:
/// its length, and the CRC of its last chunk.
pub fn plan(tail: Tail, disk: DataChecksum, packets: &[PacketData]) -> Result<Plan, PlanError> {
    let chunk = u64::from(disk.bytes_per_checksum());
    let first_chunk = tail.len / chunk;
    let mut plan = Plan {
        data: Vec::with_capacity(packets.len()),
        sums: Vec::new(),
        first_chunk,
        completes_chunk: false,
        tail,
    };
    for packet in packets {
        add(&mut plan, disk, packet)?;
    }
    plan.completes_chunk = !plan.data.is_empty() && !tail.len.is_multiple_of(chunk);
    Ok(plan)
}

fn add(plan: &mut Plan, disk: DataChecksum, packet: &PacketData) -> Result<(), PlanError> {
    let (offset, end) = (packet.offset(), packet.end());
    if packet.data().is_empty() {
        return Ok(());
    }
    if offset > plan.tail.len {
        return Err(PlanError::Gap {
            offset,
            len: plan.tail.len,
        });
    }
    if end <= plan.tail.len {
        return Ok(()); // All of it is there already.
    }
    let known = usize::try_from(plan.tail.len - offset).expect("less than the packet's length");
    let fresh = packet.data().without(known);
    if disk.kind() != ChecksumKind::Null {
        let given = (disk == packet.checksum()).then_some(&packet.sums()[..]);
        add_sums(plan, disk, offset, &fresh, given)?;
    }
    plan.tail.len = end;
    plan.data.extend(fresh.iter().cloned());
    Ok(())
}

/// Adds the checksums of `fresh`, which follows `plan.tail`; `given` are those of the whole packet
/// that begins at `offset`, when they can be used as they are.
fn add_sums(
    plan: &mut Plan,
    disk: DataChecksum,
    offset: u64,
    fresh: &Pieces,
    given: Option<&[u8]>,
) -> Result<(), PlanError> {
    let chunk = u64::from(disk.bytes_per_checksum());
    let size = disk.sum_size();
    let from = plan.tail.len;
    let sum_of = |sums: &[u8], number: u64| {
        let at = usize::try_from(number - offset / chunk).expect("a chunk of the packet") * size;
        u32::from_be_bytes(
            *sums[at..]
                .first_chunk()
                .expect("as many checksums as chunks, checked before"),
        )
    };
    let in_chunk = usize::try_from(from % chunk).expect("less than a chunk");
    let mut head_len = 0;
    if in_chunk > 0 {
        head_len = fresh.len().min(disk.chunk_size() - in_chunk);
        let head = fresh.first(head_len);
        let crc = head.iter().fold(plan.tail.crc, |crc, piece| {
            disk.kind().crc_append(crc, piece)
        });
        let chunk_start = from - from % chunk;
        if let Some(sums) = given
            && offset <= chunk_start
            && sum_of(sums, from / chunk) != crc
        {
            return Err(PlanError::Mismatch { chunk_start });
        }
        let at =
            usize::try_from(from / chunk - plan.first_chunk).expect("a chunk of the run") * size;
        plan.sums.truncate(at);
        plan.sums.extend_from_slice(&crc.to_be_bytes());
        plan.tail.crc = crc;
    }
    if fresh.len() > head_len {
        match given {
            Some(sums) => {
                let at = usize::try_from(from.div_ceil(chunk) - offset / chunk)
                    .expect("a chunk of the packet")
                    * size;
                plan.sums.extend_from_slice(&sums[at..]);
            }
            None => compute(disk, &fresh.without(head_len), &mut plan.sums),
        }
        plan.tail.crc =
            u32::from_be_bytes(*plan.sums.last_chunk().expect("a checksum was just added"));
    }
    if (from + fresh.len() as u64).is_multiple_of(chunk) {
        plan.tail.crc = 0;
    }
    Ok(())
}

/// The checksums of data that begins with a chunk, whose pieces may end anywhere.
fn compute(disk: DataChecksum, data: &Pieces, sums: &mut Vec<u8>) {
    let chunk = disk.chunk_size();
    let (mut crc, mut filled) = (0, 0);
    for piece in data.iter() {
        let mut rest = &piece[..];
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(chunk - filled));
            crc = disk.kind().crc_append(crc, now);
            filled += now.len();
            rest = later;
            if filled == chunk {
                sums.extend_from_slice(&crc.to_be_bytes());
                (crc, filled) = (0, 0);
            }
        }
    }
    if filled > 0 {
        sums.extend_from_slice(&crc.to_be_bytes());
    }
}

#[cfg(test)]
mod tests;
