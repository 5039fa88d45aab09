//! One replica opened for reading.

use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use bytes::Bytes;
use hayloft_io::Media;
use hayloft_io::{Advice, AlignedBuf, Completion, EngineFile, IoClass, IoError, IoErrorKind, IoOp};
use hayloft_wire::checksum::DataChecksum;
use hayloft_wire::ids::ExtendedBlock;
use tracing::debug;

use crate::error::StoreError;
use crate::protection::{Damage, DecodedFiles, Mender};
use crate::state::StoreState;
use crate::transitions::check_volume::examine;
use crate::types::StorageInfo;
use crate::volume::BlockPoolSlice;

/// One replica opened for reading: a snapshot of its length and of the checksum of its last partial
/// chunk. Data and checksums always fit together, also while it is being written. It stays readable
/// when the replica is deleted or moved.
#[derive(Debug)]
pub struct ReplicaReader {
    pub(super) store: Arc<StoreState>,
    pub(super) slice: Arc<BlockPoolSlice>,
    /// The storage that the replica is reported on.
    pub(super) storage: StorageInfo,
    pub(super) block: ExtendedBlock,
    pub(super) visible_len: u64,
    pub(super) readable_len: u64,
    pub(super) checksum: DataChecksum,
    /// CRC of the last chunk up to `readable_len`, when that is partial.
    pub(super) last_crc: Option<u32>,
    /// All of it is in its files, and stays as it is.
    pub(super) whole: bool,
    /// Decodes what its files have not; `None` when not all of it is protected.
    pub(super) mender: Option<Box<dyn Mender>>,
    pub(super) own: Own,
    pub(super) data: Arc<dyn EngineFile>,
    pub(super) meta: Option<Arc<dyn EngineFile>>,
    pub(super) class: IoClass,
}

/// Whose bytes a reader has, and what an error says of the replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Own {
    /// The replica's; an error makes it suspect, and its protection may help out.
    Shared,
    /// The replica's and no others.
    Alone,
    /// Decoded: errors are those of other volumes, which have been examined.
    Decoded,
}

/// A range of the meta file.
struct WantedSums {
    meta: Arc<dyn EngineFile>,
    offset: u64,
    len: usize,
    /// Number of the first chunk, and of chunks.
    first: u64,
    count: u64,
    /// The last of them is that of the last chunk.
    to_end: bool,
}

impl ReplicaReader {
    /// A reader of a whole replica that is decoded: `files` are its data and its meta file. `slice`
    /// names a disk for what has none.
    pub(super) fn decoded(
        store: &Arc<StoreState>,
        slice: &Arc<BlockPoolSlice>,
        storage: StorageInfo,
        block: ExtendedBlock,
        files: DecodedFiles,
    ) -> Self {
        Self {
            store: Arc::clone(store),
            slice: Arc::clone(slice),
            storage,
            visible_len: block.block.num_bytes,
            readable_len: block.block.num_bytes,
            block,
            checksum: files.checksum,
            last_crc: None,
            whole: true,
            mender: None,
            own: Own::Decoded,
            data: files.data,
            meta: Some(files.meta),
            class: IoClass::ClientRead,
        }
    }

    /// The block with the generation stamp of the replica and the visible length.
    #[must_use]
    pub fn block(&self) -> &ExtendedBlock {
        &self.block
    }

    /// The volume.
    #[must_use]
    pub fn storage(&self) -> &StorageInfo {
        &self.storage
    }

    /// Bytes that a client may ask for.
    #[must_use]
    pub fn visible_len(&self) -> u64 {
        self.visible_len
    }

    /// Bytes for which data and checksums of this reader are consistent (at least the visible
    /// length). A range is extended to the end of its last chunk, but not beyond this.
    #[must_use]
    pub fn readable_len(&self) -> u64 {
        self.readable_len
    }

    /// How the data is checksummed. NULL when the meta file says so; without a meta file too, which
    /// only [`Store::open_reader`](crate::Store::open_reader) lets pass.
    #[must_use]
    pub fn checksum(&self) -> DataChecksum {
        self.checksum
    }

    /// Reads `len` bytes at `offset` to the start of `buf`. `offset + len` must not go beyond
    /// `readable_len`. The read is on its way when this returns, if the disk's queue has room.
    ///
    /// # Errors
    /// `Corrupt` when the data file is shorter than it should be, `Illegal`, `Io`.
    pub fn read_data(
        &self,
        buf: AlignedBuf,
        offset: u64,
        len: usize,
    ) -> impl Future<Output = Result<AlignedBuf, StoreError>> + Send + use<'_> {
        let end = u64::try_from(len)
            .ok()
            .and_then(|len| offset.checked_add(len));
        let read = if end.is_none_or(|end| end > self.readable_len) {
            let text = format!(
                "{len} bytes at {offset} of {}, of which {} can be read",
                self.block, self.readable_len
            );
            Err(StoreError::illegal(text))
        } else {
            Ok(self.data.read_at(buf, offset, len))
        };
        async move {
            let Completion { buf, result } = read?.await;
            let error = match result {
                Ok(n) if n >= len => return Ok(buf),
                Ok(n) => self.too_short("data", offset, len, n),
                Err(e) => self.failed(e, Some(offset..offset.saturating_add(len as u64))),
            };
            let Some(mender) = &self.mender else {
                return Err(error);
            };
            mender.found(Damage::Suspected);
            mender.data(buf, offset, len).await.ok_or(error)
        }
    }

    /// Whether all of the replica is protected: what is read has to be compared with its
    /// checksums then before anyone gets it, and [`mend`](Self::mend) has the bytes that should be
    /// there.
    #[must_use]
    pub fn is_protected(&self) -> bool {
        self.mender.is_some()
    }

    /// A range of whole chunks whose bytes differ from their checksums, decoded from what protects
    /// it, with checksums that fit; `None` when that cannot be done. The replica is mended in the
    /// background, or reported.
    pub async fn mend(&self, offset: u64, len: usize) -> Option<(AlignedBuf, Bytes)> {
        let mender = self.mender.as_ref()?;
        mender.found(Damage::Certain);
        let chunk = u64::from(self.checksum.bytes_per_checksum());
        let (first, count) = (offset / chunk, (len as u64).div_ceil(chunk));
        let sums = mender.sums(self.checksum, first, count).await?;
        let data = mender.data(AlignedBuf::unpooled(len), offset, len).await?;
        Some((data, sums))
    }

    /// Its files could not be opened: all that is read is decoded.
    #[must_use]
    pub fn is_decoded(&self) -> bool {
        self.own == Own::Decoded
    }

    /// Reads the checksums of `count` chunks from chunk number `first` on. Empty with NULL
    /// checksums. The read is on its way when this returns, if the disk's queue has room.
    ///
    /// # Errors
    /// `Corrupt` when the meta file is missing or shorter than it should be, `Illegal`, `Io`.
    pub fn read_sums(
        &self,
        first: u64,
        count: u64,
    ) -> impl Future<Output = Result<Bytes, StoreError>> + Send + use<'_> {
        let wanted = self.sums_at(first, count);
        let buf = match &wanted {
            Ok(Some(wanted)) => AlignedBuf::unpooled(wanted.len),
            _ => AlignedBuf::empty(),
        };
        self.load_sums(wanted, buf)
    }

    /// As [`read_sums`](Self::read_sums), to the start of `buf`, which has room for them.
    ///
    /// # Errors
    /// As `read_sums`.
    pub fn read_sums_to(
        &self,
        buf: AlignedBuf,
        first: u64,
        count: u64,
    ) -> impl Future<Output = Result<Bytes, StoreError>> + Send + use<'_> {
        self.load_sums(self.sums_at(first, count), buf)
    }

    fn load_sums(
        &self,
        wanted: Result<Option<WantedSums>, StoreError>,
        buf: AlignedBuf,
    ) -> impl Future<Output = Result<Bytes, StoreError>> + Send + use<'_> {
        let read = wanted.map(|wanted| {
            wanted.map(|wanted| {
                let read = wanted.meta.read_at(buf, wanted.offset, wanted.len);
                (read, wanted)
            })
        });
        async move {
            let Some((read, wanted)) = read? else {
                return Ok(Bytes::new());
            };
            let error = match read.await.into_result() {
                Ok((buf, n)) if n >= wanted.len => return Ok(self.with_last(buf, &wanted)),
                Ok((_, n)) => self.too_short("meta", wanted.offset, wanted.len, n),
                Err(e) => self.failed(e, None),
            };
            let Some(mender) = &self.mender else {
                return Err(error);
            };
            mender.found(Damage::Suspected);
            let decoded = mender.sums(self.checksum, wanted.first, wanted.count);
            decoded.await.ok_or(error)
        }
    }

    /// The checksums that were read, with that of the last chunk as it was at the opening.
    fn with_last(&self, mut buf: AlignedBuf, wanted: &WantedSums) -> Bytes {
        if let Some(crc) = self.last_crc.filter(|_| wanted.to_end) {
            let at = wanted.len - self.checksum.sum_size();
            buf.as_mut_slice()[at..].copy_from_slice(&crc.to_be_bytes());
        }
        buf.freeze()
    }

    /// Where these checksums are; `None` when there are none to read.
    fn sums_at(&self, first: u64, count: u64) -> Result<Option<WantedSums>, StoreError> {
        let size = self.checksum.sum_size();
        let chunk = u64::from(self.checksum.bytes_per_checksum());
        let chunks = self.readable_len.div_ceil(chunk);
        let end = first.checked_add(count).filter(|end| *end <= chunks);
        let len = usize::try_from(count)
            .ok()
            .and_then(|n| n.checked_mul(size))
            .filter(|n| *n <= hayloft_io::BUFFER_MAX);
        let (Some(end), Some(len)) = (end, len) else {
            let text = format!(
                "{count} checksums at {first} of {}, which has {chunks}",
                self.block
            );
            return Err(StoreError::illegal(text));
        };
        if len == 0 {
            return Ok(None);
        }
        let Some(meta) = &self.meta else {
            let text = format!("{}: the meta file is missing", self.block);
            return Err(StoreError::corrupt(text));
        };
        Ok(Some(WantedSums {
            meta: Arc::clone(meta),
            offset: self.checksum.meta_len(first * chunk),
            len,
            first,
            count,
            to_end: end == chunks,
        }))
    }

    /// Whether all of the range is in the page cache, for [`send_with`](Self::send_with). `false`
    /// also when the engine has no descriptor, and for a replica that is being written.
    #[must_use]
    pub fn resident(&self, offset: u64, len: u64) -> bool {
        let end = offset.checked_add(len);
        let Some(fd) = self.data.fd().filter(|_| self.whole) else {
            return false;
        };
        end.is_some_and(|end| end <= self.readable_len) && hayloft_io::is_resident(fd, offset, len)
    }

    /// Runs `send` on a thread of the disk. It sends from the data file what
    /// [`resident`](Self::resident) found in the page cache. For a page that has left it meanwhile
    /// that thread waits, and no connection. The file stays open until `send` has ended, also when
    /// the future is dropped.
    ///
    /// # Errors
    /// `Io` when the engine has no descriptor, or `send` panicked.
    pub fn send_with<T, F>(
        &self,
        send: F,
    ) -> impl Future<Output = Result<T, StoreError>> + Send + use<'_, T, F>
    where
        T: Send + 'static,
        F: FnOnce(BorrowedFd<'_>) -> T + Send + 'static,
    {
        let data = Arc::clone(&self.data);
        let disk = self.slice.volume.engine.disk();
        let sent = disk.run_send(self.class, self.data.path(), move |path| match data.fd() {
            Some(fd) => Ok(send(fd)),
            None => Err(IoError::new(
                IoErrorKind::Unsupported,
                IoOp::Read,
                path,
                "the engine has no descriptor to send from",
            )),
        });
        async move { sent.await.map_err(|error| self.failed(error, None)) }
    }

    /// Has the range read into the page cache and nowhere else. The read is on its way when this
    /// returns, if the disk's queue has room. `None` where the engine does not keep in there what
    /// it reads.
    ///
    /// The future tells whether all of it got there; [`resident`](Self::resident) tells whether it
    /// still is. Where it did not, for whatever reason, [`read_data`](Self::read_data) says what
    /// the matter is.
    pub fn load(
        &self,
        offset: u64,
        len: usize,
    ) -> Option<impl Future<Output = bool> + Send + use<'_>> {
        self.data.fd().filter(|_| self.whole)?;
        let end = u64::try_from(len)
            .ok()
            .and_then(|len| offset.checked_add(len))?;
        if end > self.readable_len || !self.data.caches(offset) {
            return None;
        }
        let load = self.data.load(offset, len);
        Some(async move {
            match load.await {
                Ok(n) => n == len,
                Err(error) => {
                    debug!(block = %self.block, %error, "not read into the page cache");
                    false
                }
            }
        })
    }

    /// Whether large reads go around the page cache: into memory that is aligned, at no cost per
    /// page.
    #[must_use]
    pub fn goes_around_cache(&self) -> bool {
        self.slice.volume.engine.capabilities().memory_alignment > 1
    }

    /// Whether the replica is on a disk whose head has to move.
    #[must_use]
    pub fn is_on_rotating_media(&self) -> bool {
        self.slice.volume.engine.disk().media() == Media::Rotating
    }

    /// A caching hint about a range of the data; `len` 0 means to the end. Errors are of no
    /// consequence and dropped.
    pub async fn advise(&self, advice: Advice, offset: u64, len: u64) {
        let _ = self.data.advise(advice, offset, len).await;
    }

    /// Asks the system to have all checksums in the page cache soon: one move of the head instead
    /// of several. Errors are of no consequence and dropped.
    pub async fn read_sums_ahead(&self) {
        if let Some(meta) = &self.meta {
            let _ = meta.advise(Advice::WillNeed, 0, 0).await;
        }
    }

    /// On whose behalf later reads run; `ClientRead` at first.
    #[must_use]
    pub fn with_class(mut self, class: IoClass) -> Self {
        self.data = self.data.with_class(class);
        self.meta = self.meta.map(|meta| meta.with_class(class));
        self.class = class;
        self
    }

    /// The same, of the replica's own two files alone.
    #[must_use]
    pub(crate) fn alone(mut self) -> Self {
        self.own = Own::Alone;
        self.mender = None;
        self
    }

    /// Drops what the page cache has of the replica, as far as its engine does that.
    pub(crate) async fn forget_cached(&self) {
        self.advise(Advice::DontNeed, 0, 0).await;
        self.forget_cached_sums().await;
    }

    /// The same of its checksums.
    pub(crate) async fn forget_cached_sums(&self) {
        if let Some(meta) = &self.meta {
            let _ = meta.advise(Advice::DontNeed, 0, 0).await;
        }
    }

    /// What it means that its files cannot be read, `at` a place of its data or not.
    fn failed(&self, error: IoError, at: Option<Range<u64>>) -> StoreError {
        let of_disk = error.kind().suspects_volume();
        let error = StoreError::io(format!("reading replica {}", self.block), error);
        match self.own {
            Own::Decoded => return error,
            // Its group mends it, or makes it suspect.
            Own::Shared if self.mender.is_some() => {}
            Own::Shared if of_disk => self.store.mark_unreadable(&self.block, at),
            Own::Shared | Own::Alone => {}
        }
        examine(&self.store, &self.slice.volume, error)
    }

    fn too_short(&self, file: &str, offset: u64, len: usize, n: usize) -> StoreError {
        let text = format!(
            "{}: the {file} file ends {n} bytes after {offset}, {len} were expected",
            self.block
        );
        StoreError::corrupt(text)
    }
}
