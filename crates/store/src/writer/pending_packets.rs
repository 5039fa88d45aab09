//! Packets that were accepted and are not in the replica's files yet, and when they are written.

use bytes::Bytes;
use hayloft_io::{BufferPool, WRITE_BUFFER, WriteBuffers};
use hayloft_wire::checksum::DataChecksum;

use crate::replica::Tail;
use crate::writer::write_plan::Plan;

/// Bytes that one write takes at most.
const WRITE_MAX: u64 = 4 << 20;

/// Aligned bytes from which on a write may go around the page cache before its buffer is full.
pub const DIRECT_MIN: u64 = 128 << 10;

/// Fewer bytes go through the page cache anyway: they are not brought to aligned memory.
const COPY_MIN: u64 = 64 << 10;

/// Direct writes end at multiples of this, in bytes, and of the chunk size.
const PAGE: u64 = 4096;

/// What is to be written now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Whole buffers; what does not fill one waits for more.
    Full,
    /// Also less: nothing more can be received at once. An unaligned rest may wait for the next.
    Drained,
    /// Everything: the client, a sync or a close waits for it.
    All,
}

/// See the [module](self).
#[derive(Debug)]
pub struct PendingPackets {
    buffers: WriteBuffers,
    checksum: DataChecksum,
    /// Writes are cut at multiples of this, where going around the page cache pays; else `None`.
    write_alignment: Option<u64>,
    /// The end of what was taken.
    taken: Tail,
    /// The end of what was accepted.
    received: Tail,
    /// Checksums from the chunk on that holds the first byte that was not taken.
    sums: Vec<u8>,
    /// Number of that chunk.
    first_chunk: u64,
}

impl PendingPackets {
    /// For a replica that ends at `tail`. `direct`: its engine writes aligned runs around the page
    /// cache.
    pub fn new(pool: &BufferPool, checksum: DataChecksum, tail: Tail, direct: bool) -> Self {
        let chunk = u64::from(checksum.bytes_per_checksum());
        let regular = chunk.is_power_of_two() && chunk <= WRITE_BUFFER as u64;
        Self {
            buffers: WriteBuffers::new(pool, tail.len),
            checksum,
            write_alignment: (direct && regular).then_some(PAGE.max(chunk)),
            taken: tail,
            received: tail,
            sums: Vec::new(),
            first_chunk: tail.len / chunk,
        }
    }

    /// Memory to receive packets' data in, where that saves a copy.
    pub fn receive_buffers(&self) -> Option<WriteBuffers> {
        self.write_alignment.map(|_| self.buffers.clone())
    }

    /// The end of what was accepted.
    pub fn received(&self) -> Tail {
        self.received
    }

    /// Accepts what was planned from [`received`](Self::received) on.
    pub fn accept(&mut self, plan: Plan) {
        let waiting = plan.tail.len - self.taken.len;
        let copy = self.write_alignment.is_some() && waiting >= COPY_MIN;
        self.buffers.append(&plan.data, copy);
        let ahead = plan.first_chunk.saturating_sub(self.first_chunk);
        let keep = self.sums_of(ahead);
        self.sums.truncate(keep);
        self.sums.extend_from_slice(&plan.sums);
        self.received = plan.tail;
    }

    fn sums_of(&self, chunks: u64) -> usize {
        let chunks = usize::try_from(chunks).unwrap_or(usize::MAX);
        chunks.saturating_mul(self.checksum.sum_size())
    }

    /// Offset of a chunk in the data file.
    pub fn chunk_start(&self, chunk: u64) -> u64 {
        chunk.saturating_mul(u64::from(self.checksum.bytes_per_checksum()))
    }

    /// Where the next write ends; `None` when nothing is to be written now.
    pub fn cut(&self, due: Due) -> Option<u64> {
        let (from, to) = (self.taken.len, self.received.len);
        if from == to {
            return None;
        }
        let most = from - from % WRITE_BUFFER as u64 + WRITE_MAX;
        let Some(write_alignment) = self.write_alignment else {
            let some = due != Due::Full || to - from >= WRITE_BUFFER as u64;
            return some.then_some(to);
        };
        if to >= most {
            return Some(most);
        }
        let full = to - to % WRITE_BUFFER as u64;
        let aligned = to - to % write_alignment;
        match due {
            Due::Full => (full > from).then_some(full),
            Due::Drained if aligned.saturating_sub(from) >= DIRECT_MIN => Some(aligned),
            Due::Drained | Due::All => Some(to),
        }
    }

    /// Takes what is to be written up to `cut`, with the end that it follows.
    pub fn take(&mut self, cut: u64) -> (Tail, Plan) {
        let before = self.taken;
        let chunk = u64::from(self.checksum.bytes_per_checksum());
        let len = usize::try_from(cut - before.len).unwrap_or(usize::MAX);
        let data: Vec<Bytes> = self.buffers.take(len);
        let first_chunk = self.first_chunk;
        let whole = cut.is_multiple_of(chunk);
        let tail = if whole {
            Tail { len: cut, crc: 0 }
        } else {
            self.received
        };
        // The checksum of a partial chunk stays here too: what follows replaces it.
        let upto = self.sums_of(cut.div_ceil(chunk) - first_chunk);
        let sums = self.sums[..upto].to_vec();
        self.sums.drain(..self.sums_of(cut / chunk - first_chunk));
        self.first_chunk = cut / chunk;
        self.taken = tail;
        if cut == self.received.len {
            self.buffers.release();
        }
        let completes_chunk = !before.len.is_multiple_of(chunk);
        let plan = Plan {
            data,
            sums,
            first_chunk,
            completes_chunk,
            tail,
        };
        (before, plan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::PacketData;
    use crate::writer::write_plan::plan;
    use hayloft_wire::checksum::ChecksumKind;
    use proptest::prelude::*;

    fn bytes(from: u64, len: u64) -> Vec<u8> {
        let byte = |i: u64| u8::try_from(i % 253).expect("below 256");
        (from..from + len).map(byte).collect()
    }

    fn packet(checksum: DataChecksum, from: u64, len: u64) -> PacketData {
        let chunk = u64::from(checksum.bytes_per_checksum());
        let (mut sums, mut at, end) = (Vec::new(), from, from + len);
        while at < end {
            let to = end.min((at / chunk + 1) * chunk);
            checksum.compute(&bytes(at, to - at), &mut sums);
            at = to;
        }
        PacketData::new(checksum, from, bytes(from, len).into(), sums.into()).expect("agrees")
    }

    /// What files become when everything is written in the pieces that `take` gives.
    struct Files {
        data: Vec<u8>,
        sums: Vec<u8>,
    }

    impl Files {
        fn write(&mut self, checksum: DataChecksum, before: Tail, plan: &Plan) {
            assert_eq!(self.data.len() as u64, before.len);
            for piece in &plan.data {
                self.data.extend_from_slice(piece);
            }
            assert_eq!(self.data.len() as u64, plan.tail.len);
            let at = usize::try_from(plan.first_chunk).expect("small") * checksum.sum_size();
            self.sums.truncate(at);
            assert_eq!(self.sums.len(), at, "no gap");
            self.sums.extend_from_slice(&plan.sums);
        }
    }

    proptest! {
        #[test]
        fn whatever_is_taken_is_what_was_accepted(
            chunk in prop::sample::select(vec![512_u32, 4096, 1000]),
            direct: bool,
            steps in prop::collection::vec((1_u64..400_000, 0..4_u8), 1..20),
        ) {
            let checksum = DataChecksum::new(ChecksumKind::Crc32c, chunk).expect("valid");
            let pool = BufferPool::new(8 << 20);
            let mut pending = PendingPackets::new(&pool, checksum, Tail::default(), direct);
            let mut files = Files { data: Vec::new(), sums: Vec::new() };
            let mut len = 0_u64;
            for (bytes, due) in steps {
                let in_chunk = len % u64::from(chunk);
                let packets = [packet(checksum, len - in_chunk, bytes + in_chunk)];
                let planned = plan(pending.received(), checksum, &packets);
                pending.accept(planned.expect("fits"));
                len += bytes;
                let due = [Due::Full, Due::Drained, Due::All][usize::from(due % 3)];
                while let Some(cut) = pending.cut(due) {
                    let (before, plan) = pending.take(cut);
                    files.write(checksum, before, &plan);
                }
            }
            while let Some(cut) = pending.cut(Due::All) {
                let (before, plan) = pending.take(cut);
                files.write(checksum, before, &plan);
            }
            prop_assert_eq!(files.data.len() as u64, len);
            prop_assert!(files.data == bytes(0, len));
            prop_assert!(checksum.verify(&files.data, &files.sums).is_ok());
        }
    }

    #[test]
    fn a_direct_write_ends_at_a_page_until_everything_is_asked_for() {
        let checksum = DataChecksum::new(ChecksumKind::Crc32c, 512).expect("valid");
        let pool = BufferPool::new(8 << 20);
        let mut pending = PendingPackets::new(&pool, checksum, Tail::default(), true);
        let packets = [packet(checksum, 0, 200_000)];
        let planned = plan(Tail::default(), checksum, &packets).expect("fits");
        pending.accept(planned);
        assert_eq!(pending.cut(Due::Full), None);
        assert_eq!(pending.cut(Due::Drained), Some(48 * 4096));
        let (_, taken) = pending.take(48 * 4096);
        assert_eq!((taken.data.len(), taken.tail.crc), (1, 0));
        assert_eq!(pending.cut(Due::Drained), Some(200_000));
        assert_eq!(pending.cut(Due::All), Some(200_000));
    }
}
