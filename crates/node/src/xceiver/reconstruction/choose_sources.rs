//! The internal blocks that a reconstruction reads, each from one of its replicas. One that fails
//! or is slow is replaced by another, of the same block or of one that is not read yet.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Mutex;
use std::time::Duration;

use futures_util::future::try_join_all;
use hayloft_io::locks::lock;
use hayloft_wire::checksum::DataChecksum;
use hayloft_wire::proto::hdfs::DatanodeInfo;
use tokio::time::timeout;

use super::internal_block::{SourceRange, SourceStream};
use super::what_is_left::{InternalReplica, StripedGroup};
use crate::xceiver::context::Xceivers;
use crate::xceiver::error::XferError;
use crate::xceiver::ops::read_block::after_read_error;
use crate::xceiver::settings::Settings;

/// The sources of one reconstruction.
pub(super) struct Sources<'a> {
    context: SharedBySlots<'a>,
    slots: Vec<Slot>,
}

/// What all slots share.
struct SharedBySlots<'a> {
    x: &'a Xceivers,
    settings: &'a Settings,
    group: &'a StripedGroup,
    /// Behind the last byte that is needed of any internal block.
    end: u64,
    spares: Mutex<Spares>,
}

/// Replicas that are not read.
struct Spares {
    waiting: VecDeque<InternalReplica>,
    /// Of each index, whether a slot reads it.
    in_use: Vec<bool>,
}

/// A place for a source.
struct Slot {
    replica: InternalReplica,
    /// `None` before it is opened.
    stream: Option<SourceStream>,
}

/// How reading from a source went.
enum ReadOutcome {
    Done,
    Failed(XferError),
    /// There is another one, and this one takes long.
    Slow,
}

impl<'a> Sources<'a> {
    /// Chooses sources for the first `end` bytes of the internal blocks of `group`. Replicas of
    /// this node come first, then those named first.
    ///
    /// # Errors
    /// `Refused` when fewer internal blocks are left than are needed.
    pub(super) fn choose(
        x: &'a Xceivers,
        settings: &'a Settings,
        group: &'a StripedGroup,
        end: u64,
    ) -> Result<Self, XferError> {
        let own = x.link().identity(&group.block.pool);
        let is_own = |node: &DatanodeInfo| {
            own.as_ref()
                .is_some_and(|own| own.datanode_uuid == node.id.datanode_uuid)
        };
        let with_data = |replica: &&InternalReplica| !group.is_empty(replica.index);
        let mut waiting: Vec<_> = group.replicas.iter().filter(with_data).cloned().collect();
        waiting.sort_by_key(|replica| !is_own(&replica.node));
        let mut spares = Spares {
            waiting: waiting.into(),
            in_use: vec![false; group.stripe.width()],
        };
        let needed = group.sources_needed();
        let slots: Vec<Slot> = std::iter::from_fn(|| spares.take(None).map(Slot::new))
            .take(needed)
            .collect();
        if slots.len() < needed {
            return Err(XferError::Refused(format!(
                "{} internal blocks of {} are left, and {needed} are needed",
                slots.len(),
                group.block
            )));
        }
        let spares = Mutex::new(spares);
        let context = SharedBySlots {
            x,
            settings,
            group,
            end,
            spares,
        };
        Ok(Self { context, slots })
    }

    /// Opens all of them, and says how the first one is checksummed.
    ///
    /// # Errors
    /// Too few can be opened; why the last one could not.
    pub(super) async fn open(&mut self) -> Result<DataChecksum, XferError> {
        let context = &self.context;
        let opening = self
            .slots
            .iter_mut()
            .map(|slot| context.fill(slot, 0, &mut []));
        try_join_all(opening).await?;
        let first = self.slots.iter().find_map(|slot| slot.stream.as_ref());
        let checksum = first.map(SourceStream::checksum);
        checksum.ok_or_else(|| XferError::Refused("a group without data".to_owned()))
    }

    /// Reads the bytes of all sources from `start` on into `buffers`, one a source, and says which
    /// internal block each is of. What an internal block does not have counts as zeros.
    ///
    /// # Errors
    /// Too few sources are left; why the last one failed.
    pub(super) async fn fill<'b>(
        &mut self,
        start: u64,
        buffers: impl Iterator<Item = &'b mut [u8]>,
    ) -> Result<Vec<usize>, XferError> {
        let context = &self.context;
        let filling = self.slots.iter_mut().zip(buffers);
        let filling = filling.map(|(slot, buffer)| context.fill(slot, start, buffer));
        try_join_all(filling).await?;
        Ok(self.slots.iter().map(|slot| slot.replica.index).collect())
    }

    /// Ends them: what was needed was read.
    pub(super) async fn finish(self) {
        let ending = self.slots.into_iter().filter_map(|slot| slot.stream);
        // What they still have to say is a packet each.
        let all = futures_util::future::join_all(ending.map(SourceStream::finish));
        let limit = self.context.settings.reconstruction.read_timeout;
        let _slow = timeout(limit, all).await;
    }
}

impl SharedBySlots<'_> {
    /// Reads from the slot's source, or from another one that takes its place.
    async fn fill(&self, slot: &mut Slot, start: u64, buffer: &mut [u8]) -> Result<(), XferError> {
        loop {
            let end = self.end_of(slot.replica.index);
            let there = usize::try_from(end.saturating_sub(start)).unwrap_or(usize::MAX);
            let (data, padding) = buffer.split_at_mut(there.min(buffer.len()));
            padding.fill(0);
            if there == 0 {
                return Ok(());
            }
            match self.read(slot, start, data).await {
                ReadOutcome::Done => return Ok(()),
                ReadOutcome::Failed(error) => {
                    self.blame(&slot.replica, &error).await;
                    let next = self.take_spare(slot.replica.index);
                    *slot = Slot::new(next.ok_or(error)?);
                }
                ReadOutcome::Slow => {
                    let Slot { replica, .. } = slot;
                    tracing::info!(group = %self.group.block, "{} is slow to send internal block \
                        {}", replica.node.id.xfer_addr(), replica.index);
                    // Another slot may have taken the last spare meanwhile: then it begins anew.
                    let next = self.take_spare(replica.index);
                    *slot = Slot::new(next.unwrap_or_else(|| replica.clone()));
                }
            }
        }
    }

    /// Behind the last byte that is needed of internal block `index`.
    fn end_of(&self, index: usize) -> u64 {
        self.group.internal_len(index).min(self.end)
    }

    /// Reads, as long as it takes where there is no other source.
    async fn read(&self, slot: &mut Slot, start: u64, data: &mut [u8]) -> ReadOutcome {
        let limit: Duration = self.settings.reconstruction.read_timeout;
        let index = slot.replica.index;
        let mut reading = pin!(self.open_and_read(slot, start, data));
        loop {
            match timeout(limit, &mut reading).await {
                Ok(Ok(())) => return ReadOutcome::Done,
                Ok(Err(error)) => return ReadOutcome::Failed(error),
                Err(_) if self.has_spare(index) => return ReadOutcome::Slow,
                Err(_) => {}
            }
        }
    }

    async fn open_and_read(
        &self,
        slot: &mut Slot,
        start: u64,
        data: &mut [u8],
    ) -> Result<(), XferError> {
        let Slot { replica, stream } = slot;
        let stream = match stream {
            Some(stream) => stream,
            None => {
                let range = SourceRange {
                    block: self
                        .group
                        .stripe
                        .internal_block(&self.group.block, replica.index),
                    from: start,
                    end: self.end_of(replica.index),
                };
                let opened = SourceStream::open(self.x, self.settings, replica, range).await?;
                stream.insert(opened)
            }
        };
        stream.read(data).await
    }

    /// Tells whom it concerns that a source failed.
    async fn blame(&self, replica: &InternalReplica, error: &XferError) {
        let block = self
            .group
            .stripe
            .internal_block(&self.group.block, replica.index);
        let node = replica.node.id.xfer_addr();
        tracing::warn!(%block, node, "a source of a reconstruction failed: {error}");
        if matches!(error, XferError::Checksum(_)) {
            self.x.link().remote_bad_block(&replica.node, &block);
        }
        // For a replica of this node.
        after_read_error(self.x, &block, error).await;
    }

    fn take_spare(&self, instead_of: usize) -> Option<InternalReplica> {
        let mut spares = lock(&self.spares);
        spares.take(Some(instead_of))
    }

    fn has_spare(&self, instead_of: usize) -> bool {
        let spares = lock(&self.spares);
        spares.position(Some(instead_of)).is_some()
    }
}

impl Spares {
    /// A replica of an internal block that no slot reads, or of the one whose source it takes the
    /// place of.
    fn take(&mut self, instead_of: Option<usize>) -> Option<InternalReplica> {
        let at = self.position(instead_of)?;
        if let Some(index) = instead_of {
            self.in_use[index] = false;
        }
        let replica = self.waiting.remove(at)?;
        self.in_use[replica.index] = true;
        Some(replica)
    }

    fn position(&self, instead_of: Option<usize>) -> Option<usize> {
        let free = |index: usize| !self.in_use[index] || Some(index) == instead_of;
        self.waiting.iter().position(|replica| free(replica.index))
    }
}

impl Slot {
    fn new(replica: InternalReplica) -> Self {
        Self {
            replica,
            stream: None,
        }
    }
}
