//! Packets: the unit in which block data travels, both ways.
//!
//! ```text
//! PLEN  int32   4 + length of the checksums + length of the data (counts itself, not the header)
//! HLEN  int16   length of the header
//! header        protobuf, fixed-width fields: 25 bytes, 27 with syncBlock
//! checksums     one for each chunk of the data
//! data
//! ```
//!
//! Nothing is copied on receipt. The parts of a [`Packet`] are views of the bytes received, and
//! [`Packet::raw`] is the whole of it, to be forwarded unchanged.

use bytes::{BufMut, Bytes, BytesMut};

use crate::limits::{MAX_PACKET_BYTES, MAX_PACKET_HEADER_BYTES};
use crate::varint;

/// Bytes of PLEN and HLEN.
pub const LENGTHS_BYTES: usize = 6;

/// Longest prefix (lengths and header) of the packets that this crate encodes.
pub const MAX_PREFIX_BYTES: usize = LENGTHS_BYTES + 27;

/// Sequence number of a heartbeat packet: no data, acknowledged like any other.
pub const HEARTBEAT_SEQNO: i64 = -1;

/// PLEN counts its own four bytes.
const PLEN_BYTES: usize = 4;

/// Header of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketHeader {
    /// Offset of the data in the block, in bytes; at most `i64::MAX` once decoded.
    pub offset_in_block: u64,
    /// Sequence number, -1 for a heartbeat.
    pub seqno: i64,
    /// Whether the block ends with this packet.
    pub last_packet_in_block: bool,
    /// Length of the data in bytes.
    pub data_len: u32,
    /// Whether the data must be on the medium before the acknowledgement.
    pub sync_block: bool,
}

/// Why bytes are not a packet. The stream cannot be followed further: close the connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    /// PLEN smaller than itself, or negative.
    #[error("packet with a payload length of {0}")]
    PayloadLength(i32),
    /// Header empty, negative or longer than the limit.
    #[error("packet with a header of {0} bytes; 1 to {MAX_PACKET_HEADER_BYTES} are accepted")]
    HeaderLength(i16),
    /// The whole is longer than the limit.
    #[error(
        "packet of {packet_bytes} bytes; at most {limit_bytes} are accepted \
            (dfs.data.transfer.max.packet.size)"
    )]
    TooLong {
        /// Length the peer announced.
        packet_bytes: u64,
        /// The limit.
        limit_bytes: u32,
    },
    /// The header is no protobuf or lacks a field.
    #[error("undecodable packet header: {0}")]
    Header(&'static str),
    /// More data than payload.
    #[error("packet claims {data_bytes} bytes of data in a payload of {payload_bytes}")]
    DataLength {
        /// Length of the data by the header.
        data_bytes: i64,
        /// Checksums and data together.
        payload_bytes: usize,
    },
    /// A negative offset.
    #[error("packet at the offset {0}")]
    Offset(i64),
}

impl PacketHeader {
    /// Length of the encoded header: 25, or 27 with `sync_block`.
    #[must_use]
    pub const fn encoded_len(&self) -> usize {
        if self.sync_block { 27 } else { 25 }
    }

    /// Whether this is a heartbeat.
    #[must_use]
    pub const fn is_heartbeat(&self) -> bool {
        self.seqno == HEARTBEAT_SEQNO
    }

    /// Appends the prefix of a packet (lengths and header), to be followed by `sums_len` bytes of
    /// checksums and `data_len` bytes of data.
    ///
    /// # Panics
    /// When payload and checksums exceed the 31 bits of PLEN, which no limit of this crate allows.
    pub fn encode_prefix(&self, sums_len: usize, out: &mut impl BufMut) {
        let payload = PLEN_BYTES as u64 + sums_len as u64 + u64::from(self.data_len);
        out.put_i32(i32::try_from(payload).expect("packets are far smaller than 2 GiB"));
        out.put_i16(if self.sync_block { 27 } else { 25 });
        out.put_u8(TAG_OFFSET);
        out.put_u64_le(self.offset_in_block);
        out.put_u8(TAG_SEQNO);
        out.put_i64_le(self.seqno);
        out.put_u8(TAG_LAST);
        out.put_u8(u8::from(self.last_packet_in_block));
        out.put_u8(TAG_DATA_LEN);
        out.put_u32_le(self.data_len);
        if self.sync_block {
            // Absent means false, and very old readers know only the shorter form.
            out.put_u8(TAG_SYNC);
            out.put_u8(1);
        }
    }

    /// Decodes the header's protobuf. Fields may come in any order and unknown ones are skipped.
    pub fn decode(bytes: &[u8]) -> Result<Self, PacketError> {
        let mut fields = HeaderFields {
            rest: bytes,
            ..HeaderFields::default()
        };
        while !fields.rest.is_empty() {
            fields.next()?;
        }
        fields.finish()
    }
}

const TAG_OFFSET: u8 = 1 << 3 | 1;
const TAG_SEQNO: u8 = 2 << 3 | 1;
const TAG_LAST: u8 = 3 << 3;
const TAG_DATA_LEN: u8 = 4 << 3 | 5;
const TAG_SYNC: u8 = 5 << 3;

/// Fields of a header as they turn up.
#[derive(Default)]
struct HeaderFields<'a> {
    rest: &'a [u8],
    offset: Option<i64>,
    seqno: Option<i64>,
    last: Option<bool>,
    data_len: Option<i32>,
    sync: bool,
}

impl HeaderFields<'_> {
    fn next(&mut self) -> Result<(), PacketError> {
        let key = self.varint()?;
        match u8::try_from(key) {
            Ok(TAG_OFFSET) => self.offset = Some(i64::from_le_bytes(self.array()?)),
            Ok(TAG_SEQNO) => self.seqno = Some(i64::from_le_bytes(self.array()?)),
            Ok(TAG_LAST) => self.last = Some(self.varint()? != 0),
            Ok(TAG_DATA_LEN) => self.data_len = Some(i32::from_le_bytes(self.array()?)),
            Ok(TAG_SYNC) => self.sync = self.varint()? != 0,
            _ => self.skip(key)?,
        }
        Ok(())
    }

    fn varint(&mut self) -> Result<u64, PacketError> {
        varint::read_u64(&mut self.rest).ok_or(PacketError::Header("bad varint"))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], PacketError> {
        let (head, tail) = self
            .rest
            .split_first_chunk::<N>()
            .ok_or(PacketError::Header("cut off in a field"))?;
        self.rest = tail;
        Ok(*head)
    }

    fn skip(&mut self, key: u64) -> Result<(), PacketError> {
        let len = match key & 7 {
            0 => {
                self.varint()?;
                0
            }
            1 => 8,
            2 => self.varint()?,
            5 => 4,
            _ => return Err(PacketError::Header("unknown wire type")),
        };
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        self.rest = self
            .rest
            .get(len..)
            .ok_or(PacketError::Header("cut off in a field"))?;
        Ok(())
    }

    fn finish(self) -> Result<PacketHeader, PacketError> {
        let missing = PacketError::Header("a required field is missing");
        let (Some(offset), Some(seqno), Some(last), Some(data_len)) =
            (self.offset, self.seqno, self.last, self.data_len)
        else {
            return Err(missing);
        };
        let offset_in_block = u64::try_from(offset).map_err(|_| PacketError::Offset(offset))?;
        let data_len = u32::try_from(data_len).map_err(|_| PacketError::DataLength {
            data_bytes: i64::from(data_len),
            payload_bytes: 0,
        })?;
        Ok(PacketHeader {
            offset_in_block,
            seqno,
            last_packet_in_block: last,
            data_len,
            sync_block: self.sync,
        })
    }
}

/// Where the parts of the packet at the front of a buffer lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketLayout {
    /// The header.
    pub header: PacketHeader,
    /// Bytes of lengths and header; the checksums start there.
    pub prefix_len: usize,
    /// Bytes of checksums.
    pub sums_len: usize,
    /// Bytes of data.
    pub data_len: usize,
}

impl PacketLayout {
    /// Bytes of the whole packet.
    #[must_use]
    pub const fn total_len(&self) -> usize {
        self.prefix_len + self.sums_len + self.data_len
    }

    /// Looks at the packet at the front of `bytes`, of which the prefix suffices. `Ok(None)`: the
    /// prefix is incomplete. For receivers that read the data into memory of their own.
    pub fn peek(bytes: &[u8], limit_bytes: u32) -> Result<Option<PacketLayout>, PacketError> {
        let Some([p0, p1, p2, p3, h0, h1]) = bytes.first_chunk::<LENGTHS_BYTES>() else {
            return Ok(None);
        };
        let plen = i32::from_be_bytes([*p0, *p1, *p2, *p3]);
        let hlen = i16::from_be_bytes([*h0, *h1]);
        let payload_bytes = usize::try_from(plen)
            .ok()
            .and_then(|plen| plen.checked_sub(PLEN_BYTES))
            .ok_or(PacketError::PayloadLength(plen))?;
        let header_bytes = usize::try_from(hlen)
            .ok()
            .filter(|len| (1..=MAX_PACKET_HEADER_BYTES).contains(len))
            .ok_or(PacketError::HeaderLength(hlen))?;
        let packet_bytes = (PLEN_BYTES + payload_bytes + header_bytes) as u64;
        if packet_bytes > u64::from(limit_bytes) {
            return Err(PacketError::TooLong {
                packet_bytes,
                limit_bytes,
            });
        }
        let prefix_len = LENGTHS_BYTES + header_bytes;
        let Some(header) = bytes.get(LENGTHS_BYTES..prefix_len) else {
            return Ok(None);
        };
        let header = PacketHeader::decode(header)?;
        let data_len = header.data_len as usize;
        let sums_len = payload_bytes
            .checked_sub(data_len)
            .ok_or(PacketError::DataLength {
                data_bytes: i64::from(header.data_len),
                payload_bytes,
            })?;
        Ok(Some(PacketLayout {
            header,
            prefix_len,
            sums_len,
            data_len,
        }))
    }
}

/// A packet as received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The header.
    pub header: PacketHeader,
    /// The checksums; may be empty when the sender computes none.
    pub sums: Bytes,
    /// The data.
    pub data: Bytes,
    /// The whole packet, to be forwarded unchanged.
    pub raw: Bytes,
}

/// Takes packets from a receive buffer.
#[derive(Clone, Copy, Debug)]
pub struct PacketParser {
    limit_bytes: u32,
}

impl Default for PacketParser {
    fn default() -> Self {
        PacketParser {
            limit_bytes: MAX_PACKET_BYTES,
        }
    }
}

impl PacketParser {
    /// A parser that accepts packets up to `limit_bytes` (`dfs.data.transfer.max.packet.size`);
    /// more than 1 GiB counts as 1 GiB.
    #[must_use]
    pub fn new(limit_bytes: u32) -> Self {
        PacketParser {
            limit_bytes: limit_bytes.min(1 << 30),
        }
    }

    /// Takes the packet at the front of `buf`. `Ok(None)`: incomplete, read more (room is made in
    /// `buf` in step with what arrives).
    pub fn parse(&self, buf: &mut BytesMut) -> Result<Option<Packet>, PacketError> {
        let Some(layout) = PacketLayout::peek(buf, self.limit_bytes)? else {
            return Ok(None);
        };
        let total = layout.total_len();
        if buf.len() < total {
            crate::frame::reserve_for(buf, total);
            return Ok(None);
        }
        let raw = buf.split_to(total).freeze();
        let data_at = layout.prefix_len + layout.sums_len;
        Ok(Some(Packet {
            header: layout.header,
            sums: raw.slice(layout.prefix_len..data_at),
            data: raw.slice(data_at..),
            raw,
        }))
    }
}

/// Appends a whole packet.
pub fn encode_packet(header: &PacketHeader, sums: &[u8], data: &[u8], out: &mut BytesMut) {
    debug_assert_eq!(header.data_len as usize, data.len());
    out.reserve(MAX_PREFIX_BYTES + sums.len() + data.len());
    header.encode_prefix(sums.len(), out);
    out.extend_from_slice(sums);
    out.extend_from_slice(data);
}

#[cfg(test)]
#[path = "packet_tests.rs"]
mod tests;
