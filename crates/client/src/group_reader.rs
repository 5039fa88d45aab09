//! A range of a striped block group: cells of its data units in turn. Where a unit cannot be read,
//! whole stripes are read from as many other units as it takes, and decoded.
//!
//! A unit whose connection ends is read on over another one, as long as each brings something.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use futures_util::future::join_all;
use hayloft_coder::Coder;
use hayloft_wire::ids::ExtendedBlock;
use hayloft_wire::proto::hdfs::{ErasureCodingPolicy, LocatedBlock};
use hayloft_wire::proto::security::Token;
use tracing::debug;

use super::block_range::{BlockRange, RangeStream};
use super::error::FileError;
use super::locate_blocks::report_bad;
use super::node_link::{NodeTrouble, Target};
use super::{FileClient, Turn};
use crate::stripe::{self, Stripe};

/// Largest cell; a stripe of such cells is held in memory where units are lost.
pub(super) const CELL_BYTES_MAX: u64 = 8 << 20;

/// The policy of a striped file; the one with the number 0 stands for replication.
pub(super) fn striped(policy: Option<&ErasureCodingPolicy>) -> Option<&ErasureCodingPolicy> {
    policy.filter(|policy| policy.id != 0)
}

/// The shape of a group and its code.
pub(super) fn shape(policy: &ErasureCodingPolicy) -> Result<(Stripe, Coder), FileError> {
    let known = Stripe::of(policy).zip(stripe::codec(policy));
    let (stripe, codec) = known.ok_or_else(|| {
        FileError::failed(format_args!(
            "erasure coding policy {} is not known here and came without its schema",
            policy.id
        ))
    })?;
    if stripe.cell > CELL_BYTES_MAX {
        return Err(FileError::failed(format_args!(
            "cells of {} bytes are larger than {CELL_BYTES_MAX}",
            stripe.cell
        )));
    }
    let coder = Coder::new(codec, stripe.data, stripe.parity).map_err(FileError::failed)?;
    Ok((stripe, coder))
}

/// One internal block.
struct Unit {
    target: Target,
    token: Token,
    stream: Option<RangeStream>,
    /// The stream has given something: one that breaks after that is opened again.
    gave: bool,
    /// Offset of the next byte of the stream.
    at: u64,
    /// What came beyond what was wanted.
    rest: Bytes,
}

/// A block group that is being read.
pub(super) struct GroupReader {
    stripe: Stripe,
    coder: Coder,
    pub(super) block: ExtendedBlock,
    /// By index; `None`: nowhere, or it failed.
    units: Vec<Option<Unit>>,
    at: u64,
    end: u64,
    /// Some unit that is wanted is lost.
    decoding: bool,
    /// For the cells of a stripe.
    room: Option<Turn>,
    /// Decoded cells of the present stripe, from `at` on.
    decoded: Bytes,
    last_trouble: Option<NodeTrouble>,
}

impl GroupReader {
    /// Reads nothing yet.
    pub(super) fn new(
        policy: &ErasureCodingPolicy,
        located: &LocatedBlock,
        block: ExtendedBlock,
        range: Range<u64>,
    ) -> Result<Self, FileError> {
        let (stripe, coder) = shape(policy)?;
        let mut units: Vec<Option<Unit>> = (0..stripe.width()).map(|_| None).collect();
        let indices = located.block_indices.clone().unwrap_or_default();
        let targets = Target::all_of(located).into_iter();
        for (place, (&index, target)) in indices.iter().zip(targets).enumerate() {
            let token = located.block_tokens.get(place).cloned().unwrap_or_default();
            if let Some(unit) = units.get_mut(usize::from(index)) {
                *unit = Some(Unit {
                    target,
                    token,
                    stream: None,
                    gave: false,
                    at: 0,
                    rest: Bytes::new(),
                });
            }
        }
        Ok(Self {
            stripe,
            coder,
            block,
            units,
            at: range.start,
            end: range.end,
            decoding: false,
            room: None,
            decoded: Bytes::new(),
            last_trouble: None,
        })
    }

    /// The next bytes, some of them; `None` at the end of the range.
    pub(super) async fn next(&mut self, client: &FileClient) -> Result<Option<Bytes>, FileError> {
        while self.at < self.end {
            let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
            let bytes = if self.decoding {
                if self.decoded.is_empty() {
                    self.decode_stripe(client).await?;
                }
                self.decoded.split_to(left.min(self.decoded.len()))
            } else {
                match self.next_of_cell(client, left).await {
                    Some(bytes) => bytes,
                    None => continue,
                }
            };
            self.at += bytes.len() as u64;
            return Ok(Some(bytes));
        }
        Ok(None)
    }

    /// Reads on in the cell at `at`; `None` when its unit is lost.
    async fn next_of_cell(&mut self, client: &FileClient, left: usize) -> Option<Bytes> {
        let Stripe { cell, data, .. } = self.stripe;
        let number = self.at / cell;
        let index = usize::try_from(number % data as u64).unwrap_or(0);
        let within = self.at % cell;
        let offset = number / data as u64 * cell + within;
        let wanted = usize::try_from(cell - within).unwrap_or(usize::MAX);
        let wanted = wanted.min(left);
        let end = self.internal_end(index);
        let read = read_some(
            client,
            self.internal(index),
            &mut self.units[index],
            offset,
            end,
        );
        match read.await {
            Ok(mut bytes) => {
                let rest = bytes.split_off(wanted.min(bytes.len()));
                if let Some(unit) = &mut self.units[index] {
                    unit.rest = rest;
                }
                Some(bytes)
            }
            Err(trouble) => {
                self.lose(client, index, trouble).await;
                None
            }
        }
    }

    fn internal(&self, index: usize) -> ExtendedBlock {
        self.stripe.internal_block(&self.block, index)
    }

    /// Behind the last byte of a unit that the range needs.
    fn internal_end(&self, index: usize) -> u64 {
        let Stripe { cell, data, .. } = self.stripe;
        let rows = self.end.div_ceil(cell * data as u64);
        let whole = self.stripe.internal_len(self.block.block.num_bytes, index);
        whole.min(rows.saturating_mul(cell))
    }

    async fn lose(&mut self, client: &FileClient, index: usize, trouble: NodeTrouble) {
        debug!(%trouble, index, block = %self.block, "a unit of a group is lost, it is decoded");
        let unit = self.units[index].take();
        self.decoding = true;
        if let Some(unit) = unit.filter(|_| trouble.corrupt) {
            report_bad(client, &self.internal(index), unit.target).await;
        }
        self.last_trouble = Some(trouble);
    }

    /// Reads the stripe at `at` from enough units and decodes what is lost of it.
    async fn decode_stripe(&mut self, client: &FileClient) -> Result<(), FileError> {
        if self.room.is_none() {
            self.room = Some(client.stripes.enter().await?);
        }
        let Stripe { cell, data, .. } = self.stripe;
        let row = self.at / (cell * data as u64);
        let lens: Vec<usize> = (0..self.stripe.width())
            .map(|index| {
                let whole = self.stripe.internal_len(self.block.block.num_bytes, index);
                let len = whole.saturating_sub(row * cell).min(cell);
                usize::try_from(len).unwrap_or(0)
            })
            .collect();
        let longest = lens[0];
        let mut cells: Vec<Option<Vec<u8>>> = vec![None; self.stripe.width()];
        while cells.iter().flatten().count() < data {
            let missing = data - cells.iter().flatten().count();
            let more = (0..cells.len()).filter(|&index| {
                // An empty unit is nowhere, and all zeros.
                cells[index].is_none() && (lens[index] == 0 || self.units[index].is_some())
            });
            let more: Vec<usize> = more.take(missing).collect();
            if more.len() < missing {
                let why = self.last_trouble.as_ref();
                let why = why.map_or_else(String::new, |trouble| format!(" ({trouble})"));
                let text = format!("too few units of {} can be read{why}", self.block);
                return Err(FileError::BlockMissing(text));
            }
            let mut reads = Vec::with_capacity(more.len());
            let blocks: Vec<_> = more.iter().map(|&index| self.internal(index)).collect();
            let ends: Vec<_> = more.iter().map(|&index| self.internal_end(index)).collect();
            for (index, unit) in self.units.iter_mut().enumerate() {
                let Some(place) = more.iter().position(|&wanted| wanted == index) else {
                    continue;
                };
                let (block, end) = (blocks[place].clone(), ends[place]);
                let len = lens[index];
                reads.push(async move {
                    let cell = read_cell(client, block, unit, row * cell, len, longest, end).await;
                    (index, cell)
                });
            }
            for (index, cell) in join_all(reads).await {
                match cell {
                    Ok(cell) => cells[index] = Some(cell),
                    Err(trouble) => self.lose(client, index, trouble).await,
                }
            }
        }
        self.complete(&mut cells, longest)?;
        let mut stripe = BytesMut::with_capacity(longest * data);
        for (cell, len) in cells.iter().zip(&lens).take(data) {
            let cell = cell.as_deref().unwrap_or_default();
            stripe.extend_from_slice(&cell[..*len.min(&cell.len())]);
        }
        let given = usize::try_from(self.at % (cell * data as u64)).unwrap_or(usize::MAX);
        let mut stripe = stripe.freeze();
        if given >= stripe.len() {
            let text = format!("{} ends before {}", self.block, self.at);
            return Err(FileError::BlockMissing(text));
        }
        self.decoded = stripe.split_off(given);
        Ok(())
    }

    /// Computes the data cells that are not there.
    fn complete(&self, cells: &mut [Option<Vec<u8>>], len: usize) -> Result<(), FileError> {
        let data = self.stripe.data;
        let wanted: Vec<usize> = (0..data).filter(|&index| cells[index].is_none()).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let mut out = vec![vec![0; len]; wanted.len()];
        let sources: Vec<(usize, &[u8])> = cells
            .iter()
            .enumerate()
            .filter_map(|(index, cell)| Some((index, cell.as_deref()?)))
            .collect();
        let mut buffers: Vec<&mut [u8]> = out.iter_mut().map(Vec::as_mut_slice).collect();
        self.coder
            .reconstruct(&sources, &wanted, &mut buffers)
            .map_err(FileError::failed)?;
        for (index, cell) in wanted.into_iter().zip(out) {
            cells[index] = Some(cell);
        }
        Ok(())
    }
}

fn lost(block: &ExtendedBlock) -> NodeTrouble {
    NodeTrouble {
        node: block.to_string(),
        reason: "no node has this unit".to_owned(),
        corrupt: false,
    }
}

/// The next bytes of a unit at `offset`, at least one.
async fn read_some(
    client: &FileClient,
    block: ExtendedBlock,
    slot: &mut Option<Unit>,
    offset: u64,
    end: u64,
) -> Result<Bytes, NodeTrouble> {
    let unit = slot.as_mut().ok_or_else(|| lost(&block))?;
    if unit.at - unit.rest.len() as u64 != offset {
        unit.stream = None;
        unit.rest = Bytes::new();
    }
    if !unit.rest.is_empty() {
        return Ok(std::mem::take(&mut unit.rest));
    }
    unit.at = offset;
    loop {
        let stream = match &mut unit.stream {
            Some(stream) => stream,
            None => {
                let range = BlockRange {
                    block: block.clone(),
                    token: unit.token.clone(),
                    from: offset,
                    end,
                };
                unit.gave = false;
                let opened = client.read_range(&unit.target.node.id, range).await?;
                unit.stream.insert(opened)
            }
        };
        match stream.next().await {
            Ok(Some(bytes)) => {
                unit.gave = true;
                unit.at += bytes.len() as u64;
                return Ok(bytes);
            }
            Ok(None) => {
                return Err(NodeTrouble {
                    reason: format!("it ends before {end}"),
                    ..lost(&block)
                });
            }
            Err(trouble) if unit.gave && !trouble.corrupt => {
                debug!(%trouble, %block, "a unit of a group is read on over a new connection");
                unit.stream = None;
            }
            Err(trouble) => return Err(trouble),
        }
    }
}

/// A cell of a unit, followed by zeros up to `padded`.
async fn read_cell(
    client: &FileClient,
    block: ExtendedBlock,
    slot: &mut Option<Unit>,
    offset: u64,
    len: usize,
    padded: usize,
    end: u64,
) -> Result<Vec<u8>, NodeTrouble> {
    let mut cell = Vec::with_capacity(padded);
    while cell.len() < len {
        let at = offset + cell.len() as u64;
        let mut bytes = read_some(client, block.clone(), slot, at, end).await?;
        let rest = bytes.split_off(bytes.len().min(len - cell.len()));
        cell.extend_from_slice(&bytes);
        if let Some(unit) = slot {
            unit.rest = rest;
        }
    }
    cell.resize(padded, 0);
    Ok(cell)
}
