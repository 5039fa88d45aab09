//! Block groups of an erasure-coded file: cells go to the data units in turn, each stripe gets its
//! parity. Units may fail as long as the others can give back what was on them.

use bytes::BytesMut;
use hayloft_coder::Coder;
use hayloft_wire::ids::ExtendedBlock;
use hayloft_wire::proto::client as pb;
use hayloft_wire::proto::hdfs::{self, DatanodeId, ErasureCodingPolicy};
use hayloft_wire::transfer::Stage;
use tracing::debug;

use super::block_pipe::{BlockPipe, PipeTrouble};
use super::block_writer::packet_data;
use super::calls_for_open_file::OpenFile;
use super::error::FileError;
use super::group_reader::shape;
use super::node_link::Target;
use super::{Repeat, Turn};
use crate::stripe::Stripe;

/// Packets on their way to each unit.
const WINDOW: usize = 8;

/// One internal block of a group.
struct Unit {
    /// `None` without a node, or when it failed.
    pipe: Option<BlockPipe>,
    packet: BytesMut,
    /// Bytes of it, those of `packet` too.
    at: u64,
}

/// Groups one after the other.
pub(super) struct GroupWriter {
    stripe: Stripe,
    coder: Coder,
    packet_data: usize,
    group: Option<ExtendedBlock>,
    units: Vec<Unit>,
    /// For the cells of a stripe.
    room: Option<Turn>,
    /// Cells of the present stripe.
    cells: Vec<Vec<u8>>,
    /// Bytes of the group.
    at: u64,
    previous: Option<hdfs::ExtendedBlock>,
}

impl GroupWriter {
    pub(super) fn new(file: &OpenFile, policy: &ErasureCodingPolicy) -> Result<Self, FileError> {
        let (stripe, coder) = shape(policy)?;
        let sums = file.form.checksum;
        if !stripe
            .cell
            .is_multiple_of(u64::from(sums.bytes_per_checksum()))
        {
            return Err(FileError::failed(format_args!(
                "cells of {} bytes are no whole chunks of {}",
                stripe.cell,
                sums.bytes_per_checksum()
            )));
        }
        Ok(Self {
            packet_data: packet_data(file.form.packet_bytes, sums.chunk_size(), sums.sum_size()),
            group: None,
            units: Vec::new(),
            room: None,
            cells: vec![Vec::new(); stripe.data],
            at: 0,
            previous: None,
            stripe,
            coder,
        })
    }

    /// Data bytes of a whole group.
    fn group_size(&self, file: &OpenFile) -> u64 {
        file.block_size.saturating_mul(self.stripe.data as u64)
    }

    pub(super) async fn write(
        &mut self,
        file: &OpenFile,
        mut data: &[u8],
    ) -> Result<(), FileError> {
        while !data.is_empty() {
            if self.group.is_none() {
                self.begin(file).await?;
            }
            let Stripe {
                cell, data: width, ..
            } = self.stripe;
            let index = usize::try_from(self.at / cell % width as u64).unwrap_or(0);
            let room = (cell - self.at % cell).min(self.group_size(file) - self.at);
            let now = usize::try_from(room).unwrap_or(usize::MAX).min(data.len());
            let (now, later) = data.split_at(now);
            self.cells[index].extend_from_slice(now);
            self.push(file, index, now).await?;
            self.at += now.len() as u64;
            data = later;
            if self.at.is_multiple_of(cell) {
                self.send_packet(file, index).await?;
            }
            if self.at.is_multiple_of(cell * width as u64) {
                self.send_parity(file).await?;
            }
            if self.at == self.group_size(file) {
                self.end(file).await?;
            }
        }
        Ok(())
    }

    async fn begin(&mut self, file: &OpenFile) -> Result<(), FileError> {
        if self.room.is_none() {
            self.room = Some(file.client.stripes.enter().await?);
        }
        let located = file.add_block(self.previous.clone(), &[]).await?;
        let group = ExtendedBlock::try_from(&located.b).map_err(FileError::failed)?;
        let targets = Target::all_of(&located);
        let indices = located.block_indices.clone().unwrap_or_default();
        let unit = |index: usize| {
            let place = indices.iter().position(|&of| usize::from(of) == index);
            let place = place.filter(|&place| place < targets.len());
            let pipe = place.map(|place| {
                let token = located.block_tokens.get(place).cloned().unwrap_or_default();
                let mut block = self.stripe.internal_block(&group, index);
                block.block.num_bytes = 0;
                let target = vec![targets[place].clone()];
                BlockPipe::new(block, token, target, file.form.checksum, WINDOW)
            });
            Unit {
                pipe,
                packet: BytesMut::new(),
                at: 0,
            }
        };
        self.units = (0..self.stripe.width()).map(unit).collect();
        self.group = Some(group);
        self.at = 0;
        self.enough(None)
    }

    /// As many units are left as it takes to give back the others.
    fn enough(&self, why: Option<&PipeTrouble>) -> Result<(), FileError> {
        let left = self.units.iter().filter(|unit| unit.pipe.is_some()).count();
        if left >= self.stripe.data {
            return Ok(());
        }
        let why = why.map_or_else(String::new, |why| format!(": {}", why.trouble));
        Err(FileError::failed(format_args!(
            "only {left} units of the group are left, {} are needed{why}",
            self.stripe.data
        )))
    }

    /// Takes bytes of a unit in.
    async fn push(
        &mut self,
        file: &OpenFile,
        index: usize,
        mut data: &[u8],
    ) -> Result<(), FileError> {
        while !data.is_empty() {
            let unit = &mut self.units[index];
            let room = self.packet_data - unit.packet.len();
            let (now, later) = data.split_at(room.min(data.len()));
            unit.packet.extend_from_slice(now);
            unit.at += now.len() as u64;
            data = later;
            if unit.packet.len() == self.packet_data {
                self.send_packet(file, index).await?;
            }
        }
        Ok(())
    }

    /// Sends the packet of a unit, if there is one.
    async fn send_packet(&mut self, file: &OpenFile, index: usize) -> Result<(), FileError> {
        let unit = &mut self.units[index];
        let packet = unit.packet.split();
        let Some(pipe) = unit.pipe.as_mut().filter(|_| !packet.is_empty()) else {
            return Ok(());
        };
        let mut sent = Ok(());
        if !pipe.is_open() {
            let stamp = pipe.block.block.generation_stamp;
            sent = pipe
                .open(&file.client, Stage::PipelineSetupCreate, stamp)
                .await;
        }
        if sent.is_ok() {
            sent = pipe.send(&packet, false, false).await;
        }
        match sent {
            Ok(()) => Ok(()),
            Err(failed) => self.lose(file, index, failed).await,
        }
    }

    /// Computes the parity of the present stripe and sends it.
    async fn send_parity(&mut self, file: &OpenFile) -> Result<(), FileError> {
        let len = self.cells[0].len();
        if len == 0 {
            return Ok(());
        }
        for cell in &mut self.cells {
            cell.resize(len, 0);
        }
        let data: Vec<&[u8]> = self.cells.iter().map(Vec::as_slice).collect();
        let mut parity = vec![vec![0; len]; self.stripe.parity];
        let mut buffers: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
        self.coder
            .encode(&data, &mut buffers)
            .map_err(FileError::failed)?;
        for cell in &mut self.cells {
            cell.clear();
        }
        for (index, cell) in parity.iter().enumerate() {
            let index = self.stripe.data + index;
            self.push(file, index, cell).await?;
            self.send_packet(file, index).await?;
        }
        Ok(())
    }

    /// Ends the group.
    async fn end(&mut self, file: &OpenFile) -> Result<(), FileError> {
        if self.group.is_none() {
            return Ok(());
        }
        for index in 0..self.stripe.data {
            self.send_packet(file, index).await?;
        }
        self.send_parity(file).await?;
        self.flush(file).await?;
        for index in 0..self.units.len() {
            let unit = &mut self.units[index];
            let Some(pipe) = unit.pipe.as_mut().filter(|pipe| pipe.is_open()) else {
                continue;
            };
            if let Err(failed) = pipe.send(&[], true, file.form.sync_blocks).await {
                self.lose(file, index, failed).await?;
            }
        }
        self.flush(file).await?;
        let Some(mut group) = self.group.take() else {
            return Ok(());
        };
        group.block.num_bytes = self.at;
        self.previous = Some((&group).into());
        Ok(())
    }

    /// Waits for all acknowledgements.
    async fn flush(&mut self, file: &OpenFile) -> Result<(), FileError> {
        for index in 0..self.units.len() {
            while let Some(pipe) = &mut self.units[index].pipe {
                match pipe.flush().await {
                    Ok(()) => break,
                    Err(failed) => self.lose(file, index, failed).await?,
                }
            }
        }
        Ok(())
    }

    /// Goes on without a unit: the others get a new generation stamp, which the lost replica lacks.
    async fn lose(
        &mut self,
        file: &OpenFile,
        index: usize,
        failed: PipeTrouble,
    ) -> Result<(), FileError> {
        let (mut index, mut failed) = (index, failed);
        loop {
            debug!(trouble = %failed.trouble, index, "a group is written on without this unit");
            self.units[index].pipe = None;
            self.enough(Some(&failed))?;
            match self.restamp(file).await? {
                None => return Ok(()),
                Some((next, trouble)) => (index, failed) = (next, trouble),
            }
        }
    }

    /// Sets the pipelines of all units up anew; gives the one that failed.
    async fn restamp(
        &mut self,
        file: &OpenFile,
    ) -> Result<Option<(usize, PipeTrouble)>, FileError> {
        let Some(group) = &mut self.group else {
            return Ok(None);
        };
        let mut old = group.clone();
        old.block.num_bytes = acked(&self.units, self.stripe);
        let answer = file.new_stamp(&(&old).into()).await?;
        let updated = ExtendedBlock::try_from(&answer.b).map_err(FileError::failed)?;
        let stamp = updated.block.generation_stamp;
        for (index, unit) in self.units.iter_mut().enumerate() {
            let Some(pipe) = &mut unit.pipe else {
                continue;
            };
            if pipe.has_begun() {
                let closing = pipe.is_closing();
                let stage = if closing {
                    Stage::PipelineCloseRecovery
                } else {
                    Stage::PipelineSetupStreamingRecovery
                };
                let mut opened = pipe.open(&file.client, stage, stamp).await;
                if opened.is_ok() && closing {
                    pipe.set_closed();
                } else if opened.is_ok() {
                    opened = pipe.resend().await;
                }
                if let Err(failed) = opened {
                    return Ok(Some((index, failed)));
                }
            }
            pipe.block.block.generation_stamp = stamp;
        }
        group.block.generation_stamp = stamp;
        let mut new = group.clone();
        new.block.num_bytes = old.block.num_bytes;
        let target = |unit: &Unit| unit.pipe.as_ref().and_then(|p| p.targets.first().cloned());
        let targets: Vec<Option<Target>> = self.units.iter().map(target).collect();
        let request = pb::UpdatePipelineRequest {
            client_name: file.client.name.clone(),
            old_block: (&old).into(),
            new_block: (&new).into(),
            new_nodes: targets
                .iter()
                .map(|t| t.as_ref().map_or_else(no_node, |t| t.node.id.clone()))
                .collect(),
            storage_ids: targets
                .iter()
                .map(|t| {
                    t.as_ref()
                        .map_or_else(String::new, |t| t.storage_id.clone())
                })
                .collect(),
        };
        let _: pb::UpdatePipelineResponse = file
            .client
            .namenodes
            .call("updatePipeline", &request, Repeat::OnlyUnsent)
            .await?;
        Ok(None)
    }

    pub(super) async fn keep_alive(&mut self, file: &OpenFile) -> Result<(), FileError> {
        for index in 0..self.units.len() {
            let Some(pipe) = self.units[index]
                .pipe
                .as_mut()
                .filter(|pipe| pipe.is_open())
            else {
                continue;
            };
            if let Err(failed) = pipe.keep_alive().await {
                self.lose(file, index, failed).await?;
            }
        }
        Ok(())
    }

    /// Ends what was begun, and gives the last group.
    pub(super) async fn finish(
        &mut self,
        file: &OpenFile,
    ) -> Result<Option<hdfs::ExtendedBlock>, FileError> {
        self.end(file).await?;
        Ok(self.previous.clone())
    }
}

/// What stands for a node that is lost: a NameNode knows it by these words.
fn no_node() -> DatanodeId {
    let null = || "null".to_owned();
    DatanodeId {
        ip_addr: null(),
        host_name: null(),
        datanode_uuid: null(),
        ..DatanodeId::default()
    }
}

/// Data bytes of the group's beginning that every unit has acknowledged.
fn acked(units: &[Unit], stripe: Stripe) -> u64 {
    let whole = units
        .iter()
        .filter_map(|unit| unit.pipe.as_ref())
        .map(|pipe| pipe.acked() / stripe.cell);
    whole.min().unwrap_or(0) * stripe.cell * stripe.data as u64
}
