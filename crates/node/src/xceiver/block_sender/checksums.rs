//! Checksums of a replica on its way to a socket: read for many pieces at a time.
//!
//! Each read of the meta file is a system call, and on rotating media a move of the head away from
//! the data and back.

use std::collections::VecDeque;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use hayloft_io::AlignedBuf;
use hayloft_store::StoreError;

use crate::xceiver::block_sender::BlockSender;
use crate::xceiver::stats::Activity;

/// Checksums read first: with chunks of 512 bytes those of 8 MiB. A client that reads to the end of
/// the block asks for more; many stop before.
const WINDOW_FIRST: usize = 64 << 10;

/// Checksums read at a time after that, and at once on rotating media: with chunks of 512 bytes
/// those of a block of 128 MiB.
const WINDOW: usize = 1 << 20;

/// The same with more readers than [`FEW`]: those of 32 MiB.
pub const WINDOW_OF_MANY: usize = 256 << 10;
const FEW: usize = 4;

/// Checksums read when memory is short.
const WINDOW_SHORT_OF_MEMORY: usize = 8 << 10;

/// Less than this is not worth a place in the pool.
const UNPOOLED: usize = 16 << 10;

/// The checksums of some data.
struct Window<'a> {
    /// Of the data, in bytes.
    start: u64,
    end: u64,
    arrival: Arrival<'a>,
}

enum Arrival<'a> {
    Coming(BoxFuture<'a, Result<Bytes, StoreError>>),
    Here(Bytes),
}

impl Window<'_> {
    /// Waits until they are here.
    async fn arrive(&mut self) -> Result<Bytes, StoreError> {
        let sums = match &mut self.arrival {
            Arrival::Here(sums) => return Ok(sums.clone()),
            Arrival::Coming(coming) => coming.await?,
        };
        self.arrival = Arrival::Here(sums.clone());
        Ok(sums)
    }
}

/// The checksums that were read or are being read, in order.
pub struct Sums<'a> {
    windows: VecDeque<Window<'a>>,
    first: bool,
}

impl<'a> Sums<'a> {
    pub fn new() -> Self {
        Self {
            windows: VecDeque::new(),
            first: true,
        }
    }

    /// Makes sure that those of the data at `offset` are here or on their way, and says up to
    /// where.
    pub fn ask(&mut self, sender: &'a BlockSender<'_>, offset: u64) -> u64 {
        if sender.range.checksum.sum_size() == 0 {
            return sender.range.end;
        }
        if let Some(last) = self.windows.back().filter(|last| offset < last.end) {
            return last.end;
        }
        let window = begin(sender, offset, self.first);
        self.first = false;
        let end = window.end;
        self.windows.push_back(window);
        end
    }

    /// Waits for those of the data at `offset` before a caller asks for that data. A head that is
    /// at the data when they come to be read leaves it for them, while the data cannot be sent
    /// without them.
    ///
    /// # Errors
    /// Those of reading.
    pub async fn before_data(
        &mut self,
        sender: &'a BlockSender<'_>,
        offset: u64,
    ) -> Result<(), StoreError> {
        let has_sums = sender.range.checksum.sum_size() > 0;
        if has_sums && offset + (window_data(sender, offset, self.first) as u64) < sender.range.end
        {
            // Those of the next windows too, as long as the head is there. This comes before the
            // first one is asked for, which has to wait for those of other readers: the disk takes
            // the hints of all of them in its own order.
            sender.reader.read_sums_ahead().await;
        }
        self.ask(sender, offset);
        match self.windows.back_mut() {
            Some(window) => window.arrive().await.map(drop),
            None => Ok(()),
        }
    }

    /// Those of `len` bytes at `offset`, for which [`ask`](Self::ask) was called; offsets do not go
    /// back.
    ///
    /// # Errors
    /// Those of reading.
    pub async fn of(
        &mut self,
        sender: &BlockSender<'_>,
        offset: u64,
        len: usize,
    ) -> Result<Bytes, StoreError> {
        while self.windows.front().is_some_and(|w| w.end <= offset) {
            self.windows.pop_front();
        }
        let Some(window) = self.windows.front_mut() else {
            return Ok(Bytes::new()); // There are none.
        };
        let sums = window.arrive().await?;
        let before = usize::try_from(offset - window.start).expect("a window is far below 4 GiB");
        let checksum = sender.range.checksum;
        let from = checksum.sums_len(before);
        Ok(sums.slice(from..from + checksum.sums_len(len)))
    }
}

/// Bytes of data from `offset` on whose checksums have so many bytes, at most.
fn data_of(sender: &BlockSender<'_>, offset: u64, sums: usize) -> usize {
    let checksum = sender.range.checksum;
    let left = usize::try_from(sender.range.end - offset).unwrap_or(usize::MAX);
    let data = sums / checksum.sum_size() * checksum.chunk_size();
    sender.whole_packets(data).min(left)
}

/// Bytes of data from `offset` on whose checksums are read at a time.
fn window_data(sender: &BlockSender<'_>, offset: u64, first: bool) -> usize {
    let sums = if first && !sender.reader.is_on_rotating_media() {
        WINDOW_FIRST
    } else if sender.stats.now(Activity::Reader) > FEW {
        WINDOW_OF_MANY
    } else {
        WINDOW
    };
    data_of(sender, offset, sums)
}

/// Begins to read checksums from those of the data at `offset` on.
fn begin<'a>(sender: &'a BlockSender<'_>, offset: u64, first: bool) -> Window<'a> {
    let checksum = sender.range.checksum;
    let mut len = window_data(sender, offset, first);
    let bytes = checksum.sums_len(len);
    let pooled = (bytes > UNPOOLED)
        .then(|| sender.memory_ahead(bytes))
        .flatten();
    let buf = pooled.unwrap_or_else(|| {
        len = len.min(data_of(sender, offset, WINDOW_SHORT_OF_MEMORY));
        AlignedBuf::unpooled(checksum.sums_len(len))
    });
    let chunk = u64::from(checksum.bytes_per_checksum());
    let count = (len as u64).div_ceil(chunk);
    Window {
        start: offset,
        end: offset + len as u64,
        arrival: Arrival::Coming(Box::pin(sender.reader.read_sums_to(
            buf,
            offset / chunk,
            count,
        ))),
    }
}
