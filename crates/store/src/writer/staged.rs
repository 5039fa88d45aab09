//! A replica's bytes on their way through staging.

use hayloft_io::staging::{Append, Landing, SEGMENT_BYTES, StagedFile};
use hayloft_wire::checksum::DataChecksum;

use super::ReplicaWriter;
use super::carry::grow;
use crate::error::StoreError;
use crate::types::PacketData;

/// What became of packets offered to [`ReplicaWriter::stage`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "packets that were not kept have to be written"]
pub enum Staged {
    /// Data and checksums outlive a killed process.
    Kept,
    /// Nothing was done: no segments are free. [`ReplicaWriter::write`] waits for them.
    NoRoom,
    /// Nothing was done: this replica is not staged. [`ReplicaWriter::write`] writes to its files.
    Unstaged,
}

impl ReplicaWriter {
    /// Stages from now on what is written, when the checksum is known and everything suits.
    pub(super) fn begin_staging(&mut self) {
        let (checksum, len) = {
            let status = self.live.status();
            (status.checksum, status.bytes_on_disk)
        };
        let Some(checksum) = checksum else { return };
        let files = (&self.data, &self.meta);
        let volume = &self.live.slice.volume;
        self.staged = crate::staging::stage(&self.inner, volume, files, checksum, len);
        if let (Some(staged), Some(behind)) = (&self.staged, &self.behind) {
            staged.mind_page_cache(behind);
        }
        // Reserving room waits for the direct writes of the file that are in progress (ext4), and new ones for it: first
        // the one, then the others.
        if let Some(staged) = self.staged.as_ref().filter(|_| self.to_allocate) {
            staged.hold();
        }
        self.live.status().staged.clone_from(&self.staged);
    }

    /// A handle to receive packets' data where it will be staged, to be used beside this writer. `None` when the
    /// replica is not staged. Ask after [`set_checksum`](Self::set_checksum).
    #[must_use]
    pub fn landing(&self) -> Option<Landing> {
        self.staged.as_ref().map(StagedFile::landing)
    }

    /// As [`write`](Self::write) without ever waiting: the packets are committed in staging, or nothing is done.
    /// Cheap, in particular when the data lies where its [`Landing`] put it: to be called from the loop that
    /// receives. What an acknowledgement after [`Staged::Kept`] rests on: data and checksums are in a segment whose
    /// descriptor counts them, so that the next start writes them to the files if this process is killed.
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    pub fn stage(&mut self, packets: &[PacketData]) -> Result<Staged, StoreError> {
        if self.staged.as_ref().is_some_and(|staged| staged.is_lost()) {
            return Ok(Staged::Unstaged); // Writing moves it to another area first.
        }
        self.commit(packets)
    }

    fn commit(&mut self, packets: &[PacketData]) -> Result<Staged, StoreError> {
        let Some(staged) = &self.staged else {
            return Ok(Staged::Unstaged);
        };
        let (disk, tail, plan) = self.planned(packets)?;
        if plan.data.is_empty() {
            return Ok(Staged::Kept);
        }
        let outcome = staged.try_append(tail.len, &plan.data, &plan.sums);
        let failed = |e| StoreError::io(format!("staging replica {}", self.live.block()), e);
        match outcome.map_err(|e| self.examine(failed(e)))? {
            Append::NoRoom => return Ok(Staged::NoRoom),
            Append::Committed => {}
        }
        grow(&self.live, disk, tail, plan.tail);
        self.data_synced = false;
        self.allocate_ahead();
        Ok(Staged::Kept)
    }

    /// Stages packets, waiting for segments where there are none.
    pub(super) async fn stage_all(&mut self, packets: Vec<PacketData>) -> Result<(), StoreError> {
        if self.commit(&packets)? != Staged::NoRoom {
            return Ok(());
        }
        for packet in packets {
            for part in in_parts(packet, self.client) {
                self.stage_waiting(part).await?;
            }
        }
        Ok(())
    }

    async fn stage_waiting(&mut self, packet: PacketData) -> Result<(), StoreError> {
        let part = [packet];
        while self.commit(&part)? == Staged::NoRoom {
            let Some(staged) = &self.staged else {
                return Ok(());
            };
            let room = staged.make_room(part[0].data.len());
            let failed = |e| StoreError::io(format!("staging replica {}", self.live.block()), e);
            tokio::select! {
                room = room => room.map_err(|e| self.examine(failed(e)))?,
                () = self.cancel.cancelled() => return Err(self.was_cancelled()),
            }
        }
        Ok(())
    }

    /// When somebody has removed the staging area: what is in it goes to the files, and the replica is staged in the
    /// fresh area, if there is one. Afterwards everything that was taken outlives a killed process again.
    pub(super) async fn leave_lost_area(&mut self) -> Result<(), StoreError> {
        if self.staged.as_ref().is_some_and(|staged| staged.is_lost()) {
            self.close_staging().await.map_err(|e| self.examine(e))?;
            self.begin_staging();
        }
        Ok(())
    }

    /// Everything staged is in the files; nothing is staged any more.
    pub(super) async fn close_staging(&mut self) -> Result<(), StoreError> {
        let failed = |e| StoreError::io(format!("writing replica {}", self.live.block()), e);
        if let Some(staged) = &self.staged {
            // Fails when they were given up, as with a volume that is lost.
            staged.close().await.map_err(failed)?;
        }
        self.live.close_staging().await.map_err(failed)?;
        self.staged = None;
        Ok(())
    }
}

/// Cuts a packet where segments end, so that each part finds room in any area. The parts' checksums are those
/// of the packet: chunks end there too.
fn in_parts(packet: PacketData, client: Option<DataChecksum>) -> Vec<PacketData> {
    let segment = SEGMENT_BYTES as u64;
    let Some(client) = client.filter(|c| SEGMENT_BYTES.is_multiple_of(c.chunk_size())) else {
        return vec![packet];
    };
    let chunk = u64::from(client.bytes_per_checksum());
    let end = packet.offset.saturating_add(packet.data.len() as u64);
    let mut parts = Vec::new();
    let mut from = packet.offset;
    while from < end {
        let to = end.min(from - from % segment + segment);
        let place = |at: u64| usize::try_from(at - packet.offset).unwrap_or(usize::MAX);
        let sums = |chunks: u64| {
            let first = packet.offset / chunk;
            let at = usize::try_from(chunks - first).unwrap_or(usize::MAX);
            at.saturating_mul(client.sum_size()).min(packet.sums.len())
        };
        parts.push(PacketData {
            offset: from,
            data: packet
                .data
                .without(place(from))
                .first(place(to) - place(from)),
            sums: packet
                .sums
                .slice(sums(from / chunk)..sums(to.div_ceil(chunk))),
        });
        from = to;
    }
    parts
}
