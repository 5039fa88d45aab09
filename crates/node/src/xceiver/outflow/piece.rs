//! Pieces of a replica on their way to a socket: where they come from, and how much at a time.

use std::os::fd::BorrowedFd;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use hayloft_io::AlignedBuf;
use hayloft_store::StoreError;

use super::Outflow;

/// Data read from the disk at a time.
const PIECE: usize = 1 << 20;

/// Data taken from the page cache at a time: what was copied is still in the processor's cache when it is sent.
const PIECE_RESIDENT: usize = 256 << 10;

/// Data read at a time when memory is short.
const PIECE_SHORT_OF_MEMORY: usize = 64 << 10;

/// Shorter pieces are read without asking first where they are: the engine tries the page cache by itself.
const NOT_ASKED: usize = 128 << 10;

/// A piece of data, ready to be sent.
pub(super) struct Piece<'a> {
    pub offset: u64,
    pub len: usize,
    pub body: Body<'a>,
    pub sums: Bytes,
}

pub(super) enum Body<'a> {
    Read(AlignedBuf),
    /// In the page cache of this file.
    Resident(BorrowedFd<'a>),
}

/// A piece that is being read.
pub(super) struct Loading<'a> {
    pub offset: u64,
    pub len: usize,
    from_disk: bool,
    body: LoadingBody<'a>,
    sums: BoxFuture<'a, Result<Bytes, StoreError>>,
}

enum LoadingBody<'a> {
    Read(BoxFuture<'a, Result<AlignedBuf, StoreError>>),
    Resident(BorrowedFd<'a>),
}

impl<'a> Loading<'a> {
    /// Whether the disk is waited for.
    pub fn is_from_disk(&self) -> bool {
        self.from_disk
    }

    /// Waits until it is read.
    ///
    /// # Errors
    /// Those of reading.
    pub async fn done(self) -> Result<Piece<'a>, StoreError> {
        let body = match self.body {
            LoadingBody::Read(data) => Body::Read(data.await?),
            LoadingBody::Resident(file) => Body::Resident(file),
        };
        Ok(Piece {
            offset: self.offset,
            len: self.len,
            body,
            sums: self.sums.await?,
        })
    }
}

impl Outflow<'_> {
    /// Begins to load the piece at `offset`. `None` when it has to wait for memory, which the `first` never has.
    /// `behind`: the peer is slower than we are.
    pub(super) fn load(&self, offset: u64, first: bool, behind: bool) -> Option<Loading<'_>> {
        let left = usize::try_from(self.range.end - offset).unwrap_or(usize::MAX);
        let cached = self.whole_packets(PIECE_RESIDENT).min(left);
        let resident = (left > NOT_ASKED)
            .then(|| self.reader.resident(offset, cached as u64))
            .flatten();
        let wanted = if resident.is_some() {
            cached
        } else {
            self.whole_packets(PIECE).min(left)
        };
        let (len, body) = match resident {
            Some(file) if behind => (wanted, LoadingBody::Resident(file)),
            _ => {
                let (buf, len) = self.buffer(wanted, first)?;
                let data = self.reader.read_data(buf, offset, len);
                (len, LoadingBody::Read(Box::pin(data)))
            }
        };
        Some(Loading {
            offset,
            len,
            from_disk: resident.is_none(),
            body,
            sums: self.sums(offset, len),
        })
    }

    /// `bytes`, cut to whole packets.
    fn whole_packets(&self, bytes: usize) -> usize {
        let packet = self.packet_data();
        (bytes / packet).max(1) * packet
    }

    /// Memory for `wanted` bytes or fewer, and how many.
    fn buffer(&self, wanted: usize, first: bool) -> Option<(AlignedBuf, usize)> {
        let pool = self.memory;
        // Looking ahead leaves a quarter to those who have nothing yet.
        if (first || pool.in_use() + wanted <= pool.budget() / 4 * 3)
            && let Ok(Some(buf)) = pool.try_acquire(wanted)
        {
            return Some((buf, wanted));
        }
        // Slow readers hold the memory. A small buffer of one's own keeps every reader going.
        first.then(|| {
            let len = self.whole_packets(PIECE_SHORT_OF_MEMORY).min(wanted);
            (AlignedBuf::unpooled(len), len)
        })
    }

    /// Checksums of the chunks of `len` bytes at `offset`.
    fn sums(&self, offset: u64, len: usize) -> BoxFuture<'_, Result<Bytes, StoreError>> {
        if self.range.checksum.sum_size() == 0 {
            return Box::pin(std::future::ready(Ok(Bytes::new())));
        }
        let chunk = u64::from(self.range.checksum.bytes_per_checksum());
        let count = (len as u64).div_ceil(chunk);
        Box::pin(self.reader.read_sums(offset / chunk, count))
    }
}
