//! Blocks of a replicated file, one after the other.

use bytes::BytesMut;
use hayloft_wire::ids::ExtendedBlock;
use hayloft_wire::packet::MAX_PREFIX_BYTES;
use hayloft_wire::proto::hdfs as pb;
use hayloft_wire::proto::hdfs::{DatanodeInfo, LocatedBlock};
use hayloft_wire::transfer::Stage;
use tracing::debug;

use super::block_pipe::BlockPipe;
use super::calls_for_open_file::OpenFile;
use super::error::FileError;
use super::node_link::Target;
use super::rebuild_pipeline::Rebuild;

/// Packets on their way.
const WINDOW: usize = 16;
/// A new block is tried on other nodes so often.
const NEW_BLOCKS_MAX: u32 = 4;
/// Most data of a packet.
const PACKET_DATA_MAX: usize = 1 << 20;

/// Data in a packet of `packet_bytes`: as many whole chunks as fit with their checksums and the
/// longest header, as Hadoop's client reckons; at least one.
pub(super) fn packet_data(packet_bytes: usize, chunk: usize, sum: usize) -> usize {
    let packet_bytes = packet_bytes.min(PACKET_DATA_MAX);
    let chunks = packet_bytes.saturating_sub(MAX_PREFIX_BYTES) / (chunk + sum);
    chunks.max(1) * chunk
}

/// Blocks one after the other.
pub(super) struct BlockWriter {
    /// The block that is being written.
    pipe: Option<BlockPipe>,
    pub(super) rebuild: Rebuild,
    /// The next packet.
    packet: BytesMut,
    /// Offset behind `packet`.
    at: u64,
    chunk: u64,
    packet_data: usize,
    /// Last block of the file that is whole.
    previous: Option<pb::ExtendedBlock>,
    /// A block that is to be written on.
    append: Option<LocatedBlock>,
}

impl BlockWriter {
    /// Blocks behind `last`, which has room when it is given.
    pub(super) fn new(file: &OpenFile, last: Option<LocatedBlock>) -> Self {
        let sums = file.form.checksum;
        let (room, full) = match last {
            Some(last) if last.b.num_bytes() < file.block_size => (Some(last), None),
            Some(last) => (None, Some(last.b)),
            None => (None, None),
        };
        Self {
            pipe: None,
            rebuild: Rebuild::default(),
            packet: BytesMut::new(),
            at: 0,
            chunk: u64::from(sums.bytes_per_checksum()),
            packet_data: packet_data(file.form.packet_bytes, sums.chunk_size(), sums.sum_size()),
            previous: full,
            append: room,
        }
    }

    pub(super) async fn write(
        &mut self,
        file: &OpenFile,
        mut data: &[u8],
    ) -> Result<(), FileError> {
        while !data.is_empty() {
            if self.pipe.is_none() {
                self.begin(file).await?;
            }
            let room = self.room(file).min(data.len());
            let (now, later) = data.split_at(room);
            self.packet.extend_from_slice(now);
            self.at += now.len() as u64;
            data = later;
            if self.room(file) == 0 {
                self.send(file).await?;
            }
            if self.at == file.block_size {
                self.end(file).await?;
            }
        }
        Ok(())
    }

    /// Bytes that fit into the packet.
    fn room(&self, file: &OpenFile) -> usize {
        let begins = self.at - self.packet.len() as u64;
        // A chunk that is there in part is filled by a packet of its own.
        let packet = match begins % self.chunk {
            0 => self.packet_data as u64,
            within => self.chunk - within,
        };
        let most = packet.min(file.block_size - begins);
        usize::try_from(most).unwrap_or(usize::MAX) - self.packet.len()
    }

    /// Opens the next block, or the one that is to be written on.
    async fn begin(&mut self, file: &OpenFile) -> Result<(), FileError> {
        self.packet.reserve(self.packet_data);
        if let Some(last) = self.append.take() {
            let block = ExtendedBlock::try_from(&last.b).map_err(FileError::failed)?;
            self.at = block.block.num_bytes;
            let targets = Target::all_of(&last);
            let mut pipe =
                BlockPipe::new(block, last.block_token, targets, file.form.checksum, WINDOW);
            self.rebuild = Rebuild::of_append();
            self.rebuild.run(file, &mut pipe, None).await?;
            self.pipe = Some(pipe);
            return Ok(());
        }
        self.at = 0;
        self.rebuild = Rebuild::default();
        let mut excluded: Vec<DatanodeInfo> = Vec::new();
        let mut attempt = 0;
        loop {
            attempt += 1;
            let located = file.add_block(self.previous.clone(), &excluded).await?;
            let block = ExtendedBlock::try_from(&located.b).map_err(FileError::failed)?;
            let targets = Target::all_of(&located);
            let stamp = block.block.generation_stamp;
            let token = located.block_token.clone();
            let mut pipe = BlockPipe::new(block, token, targets, file.form.checksum, WINDOW);
            let opened = pipe.open(&file.client, Stage::PipelineSetupCreate, stamp);
            let Err(failed) = opened.await else {
                self.pipe = Some(pipe);
                return Ok(());
            };
            debug!(trouble = %failed.trouble, "a new block is tried on other nodes");
            file.abandon(&located.b).await?;
            excluded.extend(located.locs.get(failed.culprit).cloned());
            if attempt == NEW_BLOCKS_MAX {
                let why = failed.trouble;
                return Err(FileError::failed(format_args!(
                    "Unable to create new block: {why}"
                )));
            }
        }
    }

    /// Sends the packet.
    async fn send(&mut self, file: &OpenFile) -> Result<(), FileError> {
        let Some(pipe) = &mut self.pipe else {
            return Ok(());
        };
        let sent = pipe.send(&self.packet, false, false).await;
        self.packet.clear();
        match sent {
            Ok(()) => Ok(()),
            Err(failed) => self.rebuild.run(file, pipe, Some(failed)).await,
        }
    }

    /// Ends the block: all of it is acknowledged, then its end.
    async fn end(&mut self, file: &OpenFile) -> Result<(), FileError> {
        if !self.packet.is_empty() {
            self.send(file).await?;
        }
        let Some(mut pipe) = self.pipe.take() else {
            return Ok(());
        };
        while let Err(failed) = pipe.flush().await {
            self.rebuild.run(file, &mut pipe, Some(failed)).await?;
        }
        let mut ended = pipe.send(&[], true, file.form.sync_blocks).await;
        loop {
            if ended.is_ok() {
                ended = pipe.flush().await;
            }
            match ended {
                Ok(()) => break,
                Err(failed) => self.rebuild.run(file, &mut pipe, Some(failed)).await?,
            }
            ended = Ok(());
        }
        let mut whole = pipe.block.clone();
        whole.block.num_bytes = self.at;
        self.previous = Some((&whole).into());
        Ok(())
    }

    pub(super) async fn keep_alive(&mut self, file: &OpenFile) -> Result<(), FileError> {
        let Some(pipe) = &mut self.pipe else {
            return Ok(());
        };
        match pipe.keep_alive().await {
            Ok(()) => Ok(()),
            Err(failed) => self.rebuild.run(file, pipe, Some(failed)).await,
        }
    }

    /// Ends what was begun, and gives the last block.
    pub(super) async fn finish(
        &mut self,
        file: &OpenFile,
    ) -> Result<Option<pb::ExtendedBlock>, FileError> {
        self.end(file).await?;
        if let Some(untouched) = self.append.take() {
            // Nothing was written behind it.
            self.previous = Some(untouched.b);
        }
        Ok(self.previous.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::packet_data;

    #[test]
    fn a_packet_carries_what_java_puts_into_it() {
        assert_eq!(packet_data(65536, 512, 4), 126 * 512);
        assert_eq!(packet_data(0, 512, 4), 512, "at least a chunk");
        assert_eq!(packet_data(65536, 1 << 20, 4), 1 << 20);
        assert!(packet_data(usize::MAX, 512, 4) < 1 << 20);
    }
}
