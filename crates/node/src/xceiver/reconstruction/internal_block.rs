//! One internal block, read from its start or from later on, in order, and verified.

use bytes::Bytes;
use hayloft_client::{BlockRange, RangeStream};
use hayloft_io::{AlignedBuf, IoClass};
use hayloft_store::ReplicaReader;
use hayloft_wire::block_token::AccessMode;
use hayloft_wire::checksum::DataChecksum;
use hayloft_wire::ids::ExtendedBlock;

use super::what_is_left::InternalReplica;
use crate::security::Access;
use crate::xceiver::context::Xceivers;
use crate::xceiver::error::XferError;
use crate::xceiver::net::connect_to_node::{self, NodeForBlock};
use crate::xceiver::ops::read_block;
use crate::xceiver::settings::Settings;

/// Bytes of a local replica that are read at a time, where memory allows.
const LOCAL_PIECE: usize = 1 << 20;
/// The same where it does not.
const LOCAL_PIECE_SHORT_OF_MEMORY: usize = 64 << 10;

/// What is read.
#[derive(Debug)]
pub(super) struct SourceRange {
    pub(super) block: ExtendedBlock,
    /// First byte.
    pub(super) from: u64,
    /// Behind the last byte.
    pub(super) end: u64,
}

/// An internal block that is being read.
pub(super) enum SourceStream {
    /// From this node's own disk.
    Local(Box<LocalStream>),
    /// From another node.
    Remote(Box<RemoteStream>),
}

impl SourceStream {
    /// Begins to read. A replica of this node is not read over the network.
    ///
    /// # Errors
    /// The node cannot be reached, or has no such replica.
    pub(super) async fn open(
        x: &Xceivers,
        settings: &Settings,
        replica: &InternalReplica,
        range: SourceRange,
    ) -> Result<Self, XferError> {
        let own = x.link().identity(&range.block.pool);
        if own.is_some_and(|own| own.datanode_uuid == replica.node.id.datanode_uuid) {
            let local = LocalStream::open(x, range).await?;
            return Ok(Self::Local(Box::new(local)));
        }
        let remote = RemoteStream::open(x, settings, replica, range).await?;
        Ok(Self::Remote(Box::new(remote)))
    }

    /// How the replica is checksummed.
    pub(super) fn checksum(&self) -> DataChecksum {
        match self {
            Self::Local(local) => local.reader.checksum(),
            Self::Remote(remote) => remote.stream.checksum(),
        }
    }

    /// Fills `buf` with the next bytes. They are within the range. After an error, or when the
    /// future is dropped, the stream is of no more use.
    ///
    /// # Errors
    /// `Checksum` for a corrupt replica, and what reading meets.
    pub(super) async fn read(&mut self, buf: &mut [u8]) -> Result<(), XferError> {
        match self {
            Self::Local(local) => local.read(buf).await,
            Self::Remote(remote) => remote.read(buf).await,
        }
    }

    /// Ends a stream that was read to its end, as its node expects it.
    pub(super) async fn finish(self) {
        if let Self::Remote(remote) = self {
            remote.finish().await;
        }
    }
}

/// A replica of this node.
pub(super) struct LocalStream {
    x: Xceivers,
    reader: ReplicaReader,
    /// What was read and verified, and how much of it was given out.
    piece: AlignedBuf,
    given: usize,
    /// Offset behind `piece`.
    at: u64,
    end: u64,
}

impl LocalStream {
    async fn open(x: &Xceivers, range: SourceRange) -> Result<Self, XferError> {
        let SourceRange { block, from, end } = range;
        let (reader, readable) = read_block::open_for_copy(x, &block, end).await?;
        let at = readable.checksum.chunk_start(from);
        Ok(Self {
            x: x.clone(),
            reader: reader.with_class(IoClass::Replication),
            piece: AlignedBuf::empty(),
            // Checksums are of whole chunks: what is before `from` counts as given out.
            given: usize::try_from(from - at).expect("within a chunk"),
            at,
            end: readable.end,
        })
    }

    async fn read(&mut self, buf: &mut [u8]) -> Result<(), XferError> {
        let mut filled = 0;
        while filled < buf.len() {
            if self.given >= self.piece.len() {
                self.next_piece().await?;
            }
            let there = &self.piece.as_slice()[self.given..];
            let now = there.len().min(buf.len() - filled);
            buf[filled..filled + now].copy_from_slice(&there[..now]);
            filled += now;
            self.given += now;
        }
        Ok(())
    }

    /// Reads and verifies the next piece.
    async fn next_piece(&mut self) -> Result<(), XferError> {
        self.given -= self.piece.len();
        let checksum = self.reader.checksum();
        let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
        if left == 0 {
            let text = format!(
                "a read beyond {} bytes of {}",
                self.end,
                self.reader.block()
            );
            return Err(XferError::Refused(text));
        }
        let size = |most: usize| {
            let whole = (most / checksum.chunk_size()).max(1) * checksum.chunk_size();
            whole.min(left)
        };
        // The memory of the last piece goes back first.
        self.piece = AlignedBuf::empty();
        let pooled = self.x.memory().try_acquire(size(LOCAL_PIECE));
        let (buf, len) = match pooled.ok().flatten() {
            Some(buf) => (buf, size(LOCAL_PIECE)),
            None => {
                let len = size(LOCAL_PIECE_SHORT_OF_MEMORY);
                (AlignedBuf::unpooled(len), len)
            }
        };
        let chunk = u64::from(checksum.bytes_per_checksum());
        let count = (len as u64).div_ceil(chunk);
        let sums = self.reader.read_sums(self.at / chunk, count);
        let data = self.reader.read_data(buf, self.at, len);
        let (sums, data) = futures_util::future::try_join(sums, data).await?;
        checksum
            .verify(&data.as_slice()[..len], &sums)
            .map_err(|mismatch| {
                XferError::Checksum(format!(
                    "{} at {}: {mismatch}",
                    self.reader.block(),
                    self.at
                ))
            })?;
        self.piece = data;
        self.at += len as u64;
        Ok(())
    }
}

/// A replica of another node.
pub(super) struct RemoteStream {
    stream: RangeStream,
    /// What came beyond what was asked for.
    rest: Bytes,
}

impl RemoteStream {
    async fn open(
        x: &Xceivers,
        settings: &Settings,
        replica: &InternalReplica,
        range: SourceRange,
    ) -> Result<Self, XferError> {
        let silence = settings.downstream_read_timeout(1);
        // For a client its own token is used: one of this node would let the source, which the
        // client names, read on for as long as it likes.
        let token = match replica.token.identifier.is_empty() {
            true => x.token(&range.block, Access::to(AccessMode::Read))?,
            false => replica.token.clone(),
        };
        let from = NodeForBlock {
            node: &replica.node.id,
            pool: &range.block.pool,
            token: &token,
        };
        let link = connect_to_node::link(x, settings, from, silence).await?;
        let range = BlockRange {
            token,
            block: range.block,
            from: range.from,
            end: range.end,
        };
        Ok(Self {
            stream: RangeStream::open(link, "", range).await?,
            rest: Bytes::new(),
        })
    }

    async fn read(&mut self, buf: &mut [u8]) -> Result<(), XferError> {
        let mut filled = 0;
        while filled < buf.len() {
            if self.rest.is_empty() {
                let next = self.stream.next().await?;
                self.rest = next.ok_or_else(|| {
                    XferError::Refused("a read beyond the end of its range".to_owned())
                })?;
            }
            let now = self.rest.len().min(buf.len() - filled);
            buf[filled..filled + now].copy_from_slice(&self.rest.split_to(now));
            filled += now;
        }
        Ok(())
    }

    /// Takes the empty last packet and says that all was well. A node that hears nothing takes that
    /// for a reader that broke down.
    async fn finish(mut self) {
        while let Ok(Some(_more)) = self.stream.next().await {}
    }
}
