//! READ_BLOCK as a client: whole blocks one after the other, or small ranges anywhere.

use super::data::Data;
use super::link::Link;
use super::tally::LatencyTally;
use super::{Check, LoadPlace};
use crate::error::{Result, TestkitError};
use hayloft_wire::checksum::DataChecksum;
use hayloft_wire::frame;
use hayloft_wire::limits::MAX_PACKET_BYTES;
use hayloft_wire::packet::{PacketHeader, PacketLayout};
use hayloft_wire::proto::datatransfer as pb;
use hayloft_wire::proto::security::Token;
use hayloft_wire::transfer::{self, Status};
use std::net::SocketAddr;
use std::ops::Range;
use std::time::Instant;

/// A client that reads from one node after the other, keeping its connection as stock clients do.
#[derive(Debug)]
pub struct Reader<'a> {
    data: &'a Data,
    check: Check,
    buffer_bytes: usize,
    link: Option<(SocketAddr, Link)>,
    sums: Vec<u8>,
}

impl<'a> Reader<'a> {
    /// A reader that receives at most `buffer_bytes` at once.
    #[must_use]
    pub fn new(data: &'a Data, check: Check, buffer_bytes: usize) -> Self {
        Self {
            data,
            check,
            buffer_bytes,
            link: None,
            sums: Vec::new(),
        }
    }

    /// Reads `len` bytes at `offset` of a block from its replica number `replica`.
    ///
    /// # Errors
    /// When the node refuses, goes away, or sends other bytes than were written.
    pub fn read(
        &mut self,
        place: &LoadPlace,
        replica: usize,
        offset: u64,
        len: u64,
        tally: &mut LatencyTally,
    ) -> Result<()> {
        let began = Instant::now();
        let address = address(place, replica)?;
        let kept = self.link.take().filter(|(peer, _)| *peer == address);
        // A kept connection may have been closed by the node in between; a new one must work.
        let again = kept.and_then(|(_, mut link)| {
            let info = ask(&mut link, place, offset, len).ok()?;
            Some((link, info))
        });
        let (mut link, info) = match again {
            Some(open) => open,
            None => {
                let mut link = Link::connect(address, self.buffer_bytes)?;
                let info = ask(&mut link, place, offset, len)?;
                (link, info)
            }
        };
        self.range(&mut link, place, &info, offset..offset + len)?;
        self.link = Some((address, link));
        tally.count(len, began.elapsed());
        Ok(())
    }

    fn range(
        &mut self,
        link: &mut Link,
        place: &LoadPlace,
        info: &pb::ReadOpChecksumInfo,
        range: Range<u64>,
    ) -> Result<()> {
        let checksum = DataChecksum::try_from(&info.checksum).map_err(|e| link.error(e))?;
        let salt = Data::salt(place.block.block.id);
        let mut at = info.chunk_offset;
        loop {
            let header = self.packet(link, salt, checksum)?;
            if header.last_packet_in_block {
                break;
            }
            if header.offset_in_block != at {
                let seen = header.offset_in_block;
                return Err(link.error(format_args!("a packet at {seen}, not at {at}")));
            }
            at += u64::from(header.data_len);
        }
        if info.chunk_offset > range.start || at < range.end {
            let from = info.chunk_offset;
            return Err(link.error(format_args!("bytes {from} to {at} for {range:?}")));
        }
        let status = pb::ClientReadStatus {
            status: Status::ChecksumOk.into(),
        };
        link.send(&frame::delimited(&status))
    }

    /// Receives one packet, looking at its data as it comes.
    fn packet(
        &mut self,
        link: &mut Link,
        salt: u64,
        checksum: DataChecksum,
    ) -> Result<PacketHeader> {
        let layout = loop {
            let seen = PacketLayout::peek(link.held(), MAX_PACKET_BYTES);
            if let Some(layout) = seen.map_err(|error| link.error(error))? {
                break layout;
            }
            link.receive(true)?;
        };
        link.take(layout.prefix_len);
        let keep_sums = self.check == Check::Sums;
        self.sums.clear();
        let mut left = layout.sums_len;
        while left > 0 {
            let piece = piece(link, left, 1)?;
            if keep_sums {
                self.sums.extend_from_slice(&link.held()[..piece]);
            }
            link.take(piece);
            left -= piece;
        }
        let unit = if keep_sums { checksum.chunk_size() } else { 1 };
        let mut at = layout.header.offset_in_block;
        let mut done = 0;
        while done < layout.data_len {
            let piece = piece(link, layout.data_len - done, unit)?;
            let bytes = &link.held()[..piece];
            let good = match self.check {
                Check::Nothing => true,
                Check::Bytes => self.data.matches(salt, at, bytes),
                Check::Sums => {
                    let from = done / unit * checksum.sum_size();
                    let sums = self.sums.get(from..from + checksum.sums_len(piece));
                    sums.is_some_and(|sums| checksum.verify(bytes, sums).is_ok())
                }
            };
            if !good {
                return Err(TestkitError::Expectation(format!(
                    "what was read differs from what was written, in {piece} bytes at {at}"
                )));
            }
            link.take(piece);
            done += piece;
            at += piece as u64;
        }
        Ok(layout.header)
    }
}

/// Asks for a range.
fn ask(
    link: &mut Link,
    place: &LoadPlace,
    offset: u64,
    len: u64,
) -> Result<pb::ReadOpChecksumInfo> {
    link.request(&pb::OpReadBlock {
        header: transfer::client_header(&place.block, Token::default(), &place.client),
        offset,
        len,
        send_checksums: Some(true),
        caching_strategy: None,
    })?;
    let response = link.response()?;
    response
        .read_op_checksum_info
        .ok_or_else(|| link.error("an answer to a read without its checksum"))
}

/// Waits for some of the next `left` bytes: all of them, or a multiple of `unit` that is not zero.
fn piece(link: &mut Link, left: usize, unit: usize) -> Result<usize> {
    loop {
        let held = link.held().len();
        let whole = if held >= left {
            left
        } else {
            held / unit * unit
        };
        if whole > 0 {
            return Ok(whole);
        }
        link.receive(true)?;
    }
}

/// Data transfer address of a block's replica number `replica`.
pub(super) fn address(place: &LoadPlace, replica: usize) -> Result<SocketAddr> {
    let id = place.block.block.id;
    let none = || TestkitError::Talk(format!("block {id} has no replica {replica}"));
    let address = place.nodes.get(replica).ok_or_else(none)?.id.xfer_addr();
    let wrong = |error| TestkitError::Talk(format!("{address} is no address of a node: {error}"));
    address.parse().map_err(wrong)
}

/// Offsets for random reads: SplitMix64, the same for every peer.
#[derive(Clone, Debug)]
pub struct Offsets(u64);

impl Offsets {
    /// A sequence of its own for each seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `limit` (0 when that is 0).
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % limit.max(1)
    }
}
