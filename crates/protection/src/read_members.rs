//! Members of a new group: replicas that may be some, and what the encoder reads of them, from
//! memory where they are, else from disk.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::FutureExt as _;
use hayloft_io::{AlignedBuf, EngineFile, OpenMode, locks};
use hayloft_parity::{FileStamp, SECTION_BYTES_MAX, SumsCheck, UnitSums};
use hayloft_store::StoreError;
use hayloft_store::inside::{BlockPoolSlice, FinalReplica, Pair, Pool};
use hayloft_wire::ids::{Block, ExtendedBlock};

use super::read_units::stamp;
use super::replica_changes::recent_key;
use super::volumes::{UnitPlace, answer};
use super::{ENCODING, Parity, STRIDE};

/// A finalized replica that may become a member.
#[derive(Clone, Debug)]
pub struct ParityCandidate {
    /// Its volume.
    pub place: UnitPlace,
    /// Its pool.
    pub pool: Arc<Pool>,
    /// The pool's part on the volume.
    pub slice: Arc<BlockPoolSlice>,
    /// Block id.
    pub id: i64,
    /// As the map had it.
    pub replica: FinalReplica,
    /// A group that is to be replaced decodes all of it meanwhile.
    pub covered: bool,
}

impl ParityCandidate {
    pub(super) fn pair(&self) -> Pair {
        Pair::finalized(&self.slice.paths, self.id, self.replica.generation_stamp)
    }

    /// The block.
    pub fn block(&self) -> ExtendedBlock {
        let replica = &self.replica;
        let block = Block::new(self.id, replica.generation_stamp, replica.len);
        self.pool.extended(block)
    }
}

/// Why a group was not encoded.
#[derive(Debug)]
pub enum NotEncoded {
    /// A member changed meanwhile.
    Changed,
    /// This member cannot be read, or is not what its checksums say.
    Member(usize, StoreError),
    /// Parity or a record cannot be written.
    Parity(StoreError),
}

/// A member that is read.
pub(super) struct Source {
    pub data: Arc<dyn EngineFile>,
    pub sums: UnitSums,
    pub check: SumsCheck,
    pub stamp: FileStamp,
    pub buf: AlignedBuf,
    /// Strides of it that are in memory.
    recent: VecDeque<AlignedBuf>,
    /// All of it came from there.
    pub from_memory: bool,
}

pub(super) fn note_encoded(parity: &Parity, sources: &[Source]) {
    let mut encoded = locks::lock(&parity.encoded);
    for source in sources {
        encoded.0 += source.stamp.len;
        if source.from_memory {
            encoded.1 += source.stamp.len;
        }
    }
}

pub(super) async fn open_member(
    parity: &Parity,
    member: &ParityCandidate,
) -> Result<Source, StoreError> {
    let (place, pair) = (&member.place, member.pair());
    let block = member.block();
    let doing = format!("reading {block} for parity");
    let failed = |e| place.failed(&doing, e);
    let stamp = stamp(&place.into(), &pair.data(), ENCODING).await;
    let stamp = stamp.map_err(failed)?;
    let stamp = stamp.filter(|stamp| stamp.len == member.replica.len);
    let stamp = stamp.ok_or_else(|| StoreError::corrupt(format!("{doing}: another length")))?;
    let limit = usize::try_from(SECTION_BYTES_MAX).unwrap_or(usize::MAX);
    let meta = place.volume.meta(ENCODING).read_small(&pair.meta(), limit);
    let meta = answer(place, meta).await.map_err(failed)?;
    let sums = UnitSums::new(meta.into(), member.replica.len)
        .map_err(|e| StoreError::corrupt(format!("{doing}: its meta file: {e}")))?;
    let engine = &place.volume.engine;
    let data = engine.open(&pair.data(), OpenMode::ReadOnly, ENCODING);
    let data = answer(place, data).await.map_err(failed)?;
    let key = recent_key(&member.slice, member.id);
    let recent = parity.recent.take(&key, member.replica.len);
    // Strides from memory bring their own.
    let buf = match recent.is_empty() {
        true => AlignedBuf::unpooled(STRIDE),
        false => AlignedBuf::empty(),
    };
    Ok(Source {
        data,
        from_memory: !recent.is_empty(),
        recent,
        check: SumsCheck::new(sums.clone()),
        sums,
        stamp,
        buf,
    })
}

pub(super) fn take_check(source: &mut Source) -> SumsCheck {
    std::mem::replace(&mut source.check, SumsCheck::new(source.sums.clone()))
}

/// Bytes of a unit of `len` bytes in the range of `width` bytes at `offset`.
pub fn clip(len: u64, offset: u64, width: usize) -> usize {
    usize::try_from(len.saturating_sub(offset)).map_or(width, |left| left.min(width))
}

/// The same range of all members, filled up with zeros.
pub(super) async fn read_stride(
    members: &[ParityCandidate],
    sources: &mut [Source],
    offset: u64,
    width: usize,
) -> Result<Vec<AlignedBuf>, NotEncoded> {
    let reads = members.iter().zip(sources).map(|(member, source)| {
        let n = clip(member.replica.len, offset, width);
        let recent = source.recent.pop_front();
        let outcome = if let Some(buf) = recent {
            std::future::ready(Ok((buf, n))).left_future()
        } else {
            let buf = std::mem::replace(&mut source.buf, AlignedBuf::empty());
            let read = source.data.read_at(buf, offset, n);
            let read = async move { read.await.into_result() };
            answer(&member.place, read).right_future()
        };
        async move { (outcome.await, n) }
    });
    let reads = futures_util::future::join_all(reads).await;
    let mut bufs = Vec::new();
    for (at, ((read, wanted), member)) in reads.into_iter().zip(members).enumerate() {
        let block = member.block();
        let failed = |e| {
            member
                .place
                .failed(&format!("reading {block} for parity"), e)
        };
        let (mut buf, n) = read.map_err(|e| NotEncoded::Member(at, failed(e)))?;
        if n < wanted {
            let text = format!("{block}: its data file ends early");
            return Err(NotEncoded::Member(at, StoreError::corrupt(text)));
        }
        buf.as_mut_capacity()[n..width].fill(0);
        buf.set_len(width);
        bufs.push(buf);
    }
    Ok(bufs)
}
