//! Pieces of a replica on their way to a socket: where they come from, and how much at a time.

use std::collections::VecDeque;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use hayloft_io::AlignedBuf;
use hayloft_store::StoreError;

use crate::xceiver::block_sender::checksums::{Sums, WINDOW_OF_MANY};
use crate::xceiver::block_sender::{BlockSender, LONG_READ};
use crate::xceiver::stats::Activity;

/// Data read from the disk first, so that the reader has something soon. Each further piece is
/// twice as large.
const PIECE_FIRST: usize = 1 << 20;

/// Data read around the page cache at a time, at most. Every piece wakes a thread of the disk and
/// then one of ours.
const PIECE: usize = 4 << 20;

/// Data read into the page cache at a time, sent from there at a time, and asked for at a time.
/// What is copied out of it, where it is not sent from there, is still in the processor's cache
/// when it is sent.
const PIECE_CACHED: usize = 1 << 20;

/// Data copied out of the page cache at a time for a connection that is encrypted. The engine
/// copies so much on the thread that asks. Its processor's cache has it when it is encrypted.
const PIECE_COPIED: usize = 256 << 10;

/// Data read from the disk at a time when many readers share the memory.
const PIECE_LEAST: usize = 256 << 10;

/// Data read at a time when memory is short.
const PIECE_SHORT_OF_MEMORY: usize = 64 << 10;

/// Shorter pieces are read without asking first where they are: the engine tries the page cache by
/// itself.
const NOT_ASKED: usize = 128 << 10;

/// Pieces that are read while one is being sent.
const AHEAD: usize = 2;

/// The same for a few readers of flash around the page cache; in there the system reads ahead. With
/// two pieces a lone reader had 0.7 of what the device gives: no other reader keeps it busy.
const AHEAD_OF_FEW: usize = 4;

/// Readers that are a few.
const FEW: usize = 2;

/// A piece of data, ready to be sent.
pub struct Piece {
    pub offset: u64,
    pub len: usize,
    pub body: Body,
    pub sums: Bytes,
}

pub enum Body {
    Read(AlignedBuf),
    /// In the page cache.
    Resident,
}

/// A piece that is being read.
struct Loading<'a> {
    offset: u64,
    len: usize,
    /// Whether the disk is waited for.
    from_disk: bool,
    body: LoadingBody<'a>,
}

enum LoadingBody<'a> {
    Read(BoxFuture<'a, Result<AlignedBuf, StoreError>>),
    /// On its way into the page cache.
    Cached(BoxFuture<'a, bool>),
    Resident,
}

/// What is being read of a replica that is sent.
pub struct Ahead<'a> {
    sender: &'a BlockSender<'a>,
    pieces: VecDeque<Loading<'a>>,
    sums: Sums<'a>,
    /// Where the next piece begins.
    next: u64,
    /// Size of the next piece that comes from the disk.
    piece: usize,
    /// Up to where the page cache had everything when it was asked.
    resident: Option<u64>,
    /// Nothing is read before its checksums are here.
    sums_first: bool,
    /// Whether what is read stays in the page cache, once that is known.
    fills_cache: Option<bool>,
    /// What is read into the page cache has stayed there until it was sent.
    loads: bool,
}

impl<'a> Ahead<'a> {
    pub fn new(sender: &'a BlockSender<'a>) -> Self {
        Self {
            sender,
            pieces: VecDeque::with_capacity(AHEAD_OF_FEW + 1),
            sums: Sums::new(),
            next: sender.range.start,
            piece: PIECE_FIRST,
            resident: None,
            sums_first: sender.reader.is_on_rotating_media() && sender.range.len() > LONG_READ,
            fills_cache: None,
            loads: true,
        }
    }

    /// The next piece when it is read; `None` after the last.
    ///
    /// # Errors
    /// Those of reading.
    pub async fn next(&mut self) -> Result<Option<Piece>, StoreError> {
        if std::mem::take(&mut self.sums_first) {
            self.sums.before_data(self.sender, self.next).await?;
        }
        self.look();
        let Some(loading) = self.pieces.pop_front() else {
            return Ok(None);
        };
        let Loading { offset, len, .. } = loading;
        let body = match loading.body {
            LoadingBody::Read(data) => {
                let data = data.await?;
                self.learn(offset, len);
                Body::Read(data)
            }
            LoadingBody::Cached(there) => {
                // A slow peer, a machine short of memory, a file system that keeps nothing:
                // sendfile would wait for the disk.
                if there.await && self.sender.reader.resident(offset, len as u64) {
                    Body::Resident
                } else {
                    // Whatever kept it from there: reading says what it is, or does without.
                    self.loads = false;
                    Body::Read(self.sender.read_late(offset, len).await?)
                }
            }
            LoadingBody::Resident => Body::Resident,
        };
        let sums = self.sums.of(self.sender, offset, len).await?;
        self.look();
        Ok(Some(Piece {
            offset,
            len,
            body,
            sums,
        }))
    }

    /// Begins to load pieces, as far as they may be loaded now.
    fn look(&mut self) {
        // Behind what is resident there is nothing to wait for.
        while self.pieces.len() < self.ahead()
            && self.pieces.back().is_none_or(|last| last.from_disk)
            && self.next < self.sender.range.end
        {
            let Some(piece) = self.load() else {
                return;
            };
            self.next += piece.len as u64;
            self.pieces.push_back(piece);
        }
    }

    /// Pieces that are loaded while one is being sent.
    fn ahead(&self) -> usize {
        if self.sender.cache.readahead == 0 {
            1
        } else if self.fills_cache == Some(true) {
            AHEAD
        } else {
            self.sender.pieces_ahead()
        }
    }

    /// Begins to load the next piece. `None` when it has to wait for memory, which the first never
    /// has.
    fn load(&mut self) -> Option<Loading<'a>> {
        let (sender, offset) = (self.sender, self.next);
        let first = self.pieces.is_empty();
        let resident = self.resident(offset);
        // Checksums before the data: they are needed with its first piece.
        let end = self.sums.ask(sender, offset);
        let left = usize::try_from(end - offset).unwrap_or(usize::MAX);
        let cached = sender.whole_packets(PIECE_CACHED).min(left);
        let copied = !resident && self.copied(offset, left);
        let (len, body) = if resident {
            (cached, LoadingBody::Resident)
        } else if let Some(there) = self.cache_first(offset, cached) {
            (cached, LoadingBody::Cached(there))
        } else {
            let from_disk = self.piece.min(sender.piece_max()).min(self.piece_most());
            let wanted = if copied { PIECE_COPIED } else { from_disk };
            let wanted = sender.whole_packets(wanted).min(left);
            let (buf, len) = sender.buffer(wanted, first)?;
            let data = sender.reader.read_data(buf, offset, len);
            (len, LoadingBody::Read(Box::pin(data)))
        };
        let from_disk = !resident && !copied;
        if from_disk {
            self.piece = (2 * self.piece).min(PIECE);
        }
        Some(Loading {
            offset,
            len,
            from_disk,
            body,
        })
    }

    /// Whether the page cache has the next piece of `left` bytes, which cannot be sent from there.
    fn copied(&self, offset: u64, left: usize) -> bool {
        let asked = left > NOT_ASKED && !self.sender.cache.send_file;
        let len = left.min(PIECE_COPIED) as u64;
        asked && self.sender.reader.resident(offset, len)
    }

    /// Has `len` bytes read into the page cache, to be sent from there, where the engine keeps in
    /// there what it reads. A head that moves for every piece had better be given large ones, by
    /// engines that can.
    fn cache_first(&mut self, offset: u64, len: usize) -> Option<BoxFuture<'a, bool>> {
        let reader = self.sender.reader;
        let large = reader.goes_around_cache() && reader.is_on_rotating_media();
        // What a socket holds of the page cache cannot be dropped from there.
        if large || !self.loads || self.sender.drops_behind() || !self.sends_file(offset) {
            return None;
        }
        let load = reader.load(offset, len);
        match load {
            Some(_) => self.fills_cache = Some(true),
            // Only what came before was read before: from here on it may be another way.
            None if self.fills_cache == Some(true) => self.fills_cache = None,
            None => {}
        }
        load.map(|there| Box::pin(there) as BoxFuture<'a, bool>)
    }

    /// Whether it is worth sending what follows `offset` from the page cache.
    fn sends_file(&self, offset: u64) -> bool {
        self.sender.cache.send_file && self.sender.range.end - offset > NOT_ASKED as u64
    }

    /// An engine that goes around the page cache reads through it what was read before. The kernel
    /// reads ahead by itself then, in large pages where it is asked in order. Small ones, which it
    /// takes for pieces asked for at random, cost every later reader more.
    fn learn(&mut self, offset: u64, len: usize) {
        let reader = self.sender.reader;
        // A head that moves for every piece had better be given large ones.
        let may = !reader.is_on_rotating_media() && self.next < self.sender.range.end;
        if self.fills_cache.is_none() && may {
            self.fills_cache = Some(reader.resident(offset, len as u64));
        }
    }

    /// Data read from the disk at a time, at most, by where it stays.
    fn piece_most(&self) -> usize {
        if self.fills_cache == Some(true) {
            PIECE_CACHED
        } else {
            PIECE
        }
    }

    /// Whether the page cache has what follows `offset`.
    fn resident(&mut self, offset: u64) -> bool {
        let end = self.sender.range.end;
        let wanted = (offset + PIECE_CACHED as u64).min(end);
        if self.resident.is_some_and(|until| wanted <= until) {
            return true;
        }
        let is_there =
            self.sends_file(offset) && self.sender.reader.resident(offset, wanted - offset);
        self.resident = is_there.then_some(wanted);
        is_there
    }
}

impl BlockSender<'_> {
    /// Data read from the disk at a time when all readers want as much: so that each has its pieces
    /// ahead. A reader of rotating media that has none loses the disk to another one after every
    /// piece.
    fn piece_max(&self) -> usize {
        let most = if self.reader.goes_around_cache() {
            PIECE
        } else {
            PIECE_CACHED
        };
        let readers = self.stats.now(Activity::Reader).max(1);
        let pieces = self.pieces_ahead() + 1;
        let share = (self.budget_ahead() / readers).saturating_sub(WINDOW_OF_MANY) / pieces;
        // Powers of two: sizes that come back find memory that an earlier piece left.
        let share = share.checked_ilog2().map_or(0, |power| 1 << power);
        share.clamp(PIECE_LEAST, most)
    }

    /// Pieces that are read while one is being sent.
    fn pieces_ahead(&self) -> usize {
        let reader = self.reader;
        let alone = self.stats.now(Activity::Reader) <= FEW && !reader.is_on_rotating_media();
        if alone && reader.goes_around_cache() {
            AHEAD_OF_FEW
        } else {
            AHEAD
        }
    }

    /// What all readers may use ahead: the rest is for readers that have nothing yet.
    fn budget_ahead(&self) -> usize {
        self.memory.budget() / 8 * 7
    }

    /// `bytes`, cut to whole packets.
    pub fn whole_packets(&self, bytes: usize) -> usize {
        let packet = self.packet_data();
        (bytes / packet).max(1) * packet
    }

    /// Memory for `bytes` that are not needed yet, if there is enough.
    pub fn memory_ahead(&self, bytes: usize) -> Option<AlignedBuf> {
        let pool = self.memory;
        if pool.in_use() + bytes > self.budget_ahead() {
            return None;
        }
        pool.try_acquire(bytes).ok().flatten()
    }

    /// Reads what was to be sent from the page cache and is not there.
    async fn read_late(&self, offset: u64, len: usize) -> Result<AlignedBuf, StoreError> {
        let buf = self.memory.try_acquire(len).ok().flatten();
        let buf = buf.unwrap_or_else(|| AlignedBuf::unpooled(len));
        self.reader.read_data(buf, offset, len).await
    }

    /// Memory for `wanted` bytes or fewer, and how many.
    fn buffer(&self, wanted: usize, first: bool) -> Option<(AlignedBuf, usize)> {
        let ahead = self.memory.try_acquire_below(wanted, self.budget_ahead());
        if let Ok(Some(buf)) = ahead {
            return Some((buf, wanted));
        }
        if !first {
            return None;
        }
        let least = self.whole_packets(PIECE_LEAST).min(wanted);
        for len in [wanted, least] {
            if let Ok(Some(buf)) = self.memory.try_acquire(len) {
                return Some((buf, len));
            }
        }
        // Slow readers hold the memory. A small buffer of one's own keeps every reader going.
        let len = self.whole_packets(PIECE_SHORT_OF_MEMORY).min(wanted);
        Some((AlignedBuf::unpooled(len), len))
    }
}
