//! WRITE_BLOCK as a client: packets ahead of their acknowledgements, up to a window.

use super::data::{CHUNK, Data, SPAN_MAX};
use super::link::Link;
use super::read::address;
use super::tally::LatencyTally;
use super::{LoadPlace, LoadSettings};
use crate::error::Result;
use bytes::BytesMut;
use hayloft_wire::packet::{MAX_PREFIX_BYTES, PacketHeader};
use hayloft_wire::pipeline_ack::PipelineAck;
use hayloft_wire::proto::datatransfer as pb;
use hayloft_wire::proto::hdfs::DatanodeInfo;
use hayloft_wire::proto::security::Token;
use hayloft_wire::transfer::{self, Stage};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::time::Instant;

/// Packets handed to the kernel at once: fewer calls than a Java client makes, so that the client
/// does not limit what is measured.
const BATCH: usize = 8;

/// Data in each packet of `packet_bytes` (`dfs.client-write-packet-size`): as many whole chunks as
/// fit with their checksums and the longest header, as Hadoop's client reckons.
pub fn packet_data(packet_bytes: usize) -> usize {
    let chunks = packet_bytes.saturating_sub(MAX_PREFIX_BYTES) / (CHUNK + 4);
    (chunks.max(1) * CHUNK).min(SPAN_MAX)
}

/// Writes one block through its pipeline and waits until it is finalized.
///
/// # Errors
/// When a node refuses, acknowledges anything but success, or goes away.
pub fn write_block(
    settings: &LoadSettings,
    data: &Data,
    place: &LoadPlace,
    tally: &mut LatencyTally,
) -> Result<()> {
    let began = Instant::now();
    let mut link = Link::connect(address(place, 0)?, 0)?;
    link.request(&request(data, place))?;
    link.response()?;
    let packet = packet_data(settings.packet_bytes);
    Stream {
        settings,
        data,
        place,
        salt: Data::salt(place.block.block.id),
        packet,
        // One more packet, empty, ends the block.
        packets: place.len.div_ceil(packet as u64) + 1,
        sent: 0,
        acked: 0,
        sent_at: VecDeque::new(),
    }
    .run(&mut link, tally)?;
    tally.count(place.len, began.elapsed());
    Ok(())
}

fn request(data: &Data, place: &LoadPlace) -> pb::OpWriteBlock {
    let further: Vec<DatanodeInfo> = place.nodes[1..].to_vec();
    let ids: Vec<String> = place.storage_ids.iter().skip(1).cloned().collect();
    pb::OpWriteBlock {
        header: transfer::client_header(&place.block, Token::default(), &place.client),
        target_storage_types: vec![1; further.len()],
        target_pinnings: vec![false; further.len()],
        target_storage_ids: ids,
        targets: further,
        stage: Stage::PipelineSetupCreate.into(),
        pipeline_size: u32::try_from(place.nodes.len()).expect("a few nodes"),
        latest_generation_stamp: place.block.block.generation_stamp,
        requested_checksum: data.checksum().into(),
        storage_type: Some(1),
        storage_id: place.storage_ids.first().cloned(),
        ..pb::OpWriteBlock::default()
    }
}

/// A block on its way.
struct Stream<'a> {
    settings: &'a LoadSettings,
    data: &'a Data,
    place: &'a LoadPlace,
    salt: u64,
    /// Data bytes of a full packet.
    packet: usize,
    packets: u64,
    sent: u64,
    acked: u64,
    /// When the packets were sent that are not acknowledged, oldest first.
    sent_at: VecDeque<Instant>,
}

impl Stream<'_> {
    fn run(mut self, link: &mut Link, tally: &mut LatencyTally) -> Result<()> {
        while self.acked < self.packets {
            let room = self.room();
            if room > 0 {
                self.send(link, room)?;
            }
            let must_wait = self.room() == 0;
            let known = self.acked;
            loop {
                while let Some(ack) = link.decode(PipelineAck::decode)? {
                    self.acknowledged(link, &ack, tally)?;
                }
                let wait = must_wait && self.acked == known;
                if self.acked == self.packets || !link.receive(wait)? {
                    break;
                }
            }
        }
        Ok(())
    }

    /// How many packets may be sent now.
    fn room(&self) -> usize {
        let in_flight = self.sent - self.acked;
        let window = self.settings.window as u64;
        let mut room = window
            .saturating_sub(in_flight)
            .min(self.packets - self.sent);
        if let Some(every) = self.settings.flush_every() {
            // A client that calls hflush waits for everything sent before it goes on.
            let group_end = self.sent / every * every + every;
            room = room.min(group_end - self.sent);
            if in_flight > 0 && self.sent.is_multiple_of(every) {
                room = 0;
            }
        }
        usize::try_from(room).unwrap_or(BATCH).min(BATCH)
    }

    fn send(&mut self, link: &mut Link, count: usize) -> Result<()> {
        let mut prefixes = BytesMut::with_capacity(count * MAX_PREFIX_BYTES);
        let mut spare = Vec::new();
        let mut cuts = Vec::with_capacity(count);
        for seqno in self.sent..self.sent + count as u64 {
            let offset = (seqno * self.packet as u64).min(self.place.len);
            let left = self.place.len - offset;
            let len = usize::try_from(left).map_or(self.packet, |left| left.min(self.packet));
            let sums = self.data.sums(self.salt, offset, len, &mut spare);
            let at = prefixes.len();
            let header = self.header(seqno, offset, len);
            let sums_len = self.data.checksum().sums_len(len);
            header.encode_prefix(sums_len, &mut prefixes);
            cuts.push((
                at..prefixes.len(),
                sums,
                self.data.bytes(self.salt, offset, len),
            ));
        }
        let mut parts = Vec::with_capacity(3 * count);
        for (prefix, sums, bytes) in &cuts {
            parts.push(IoSlice::new(&prefixes[prefix.clone()]));
            // Only the block's last data packet, one in a batch, has its checksums in the spare
            // vector.
            let own = sums.is_empty() && !bytes.is_empty();
            parts.push(IoSlice::new(if own { &spare } else { sums }));
            parts.push(IoSlice::new(bytes));
        }
        parts.retain(|part| !part.is_empty());
        let now = Instant::now();
        link.send_parts(&mut parts)?;
        self.sent_at.extend(std::iter::repeat_n(now, count));
        self.sent += count as u64;
        Ok(())
    }

    fn header(&self, seqno: u64, offset: u64, len: usize) -> PacketHeader {
        let sync = self.settings.sync_every;
        PacketHeader {
            offset_in_block: offset,
            seqno: seqno.cast_signed(),
            last_packet_in_block: seqno + 1 == self.packets,
            data_len: u32::try_from(len).expect("at most a MiB"),
            sync_block: sync > 0 && (seqno + 1).is_multiple_of(sync.into()),
        }
    }

    fn acknowledged(
        &mut self,
        link: &Link,
        ack: &PipelineAck,
        tally: &mut LatencyTally,
    ) -> Result<()> {
        let whole = ack.hops.len() == self.place.nodes.len();
        if ack.seqno.cast_unsigned() != self.acked || !ack.is_success() || !whole {
            return Err(link.error(format_args!(
                "packet {} of block {} was answered with {ack:?}",
                self.acked, self.place.block.block.id
            )));
        }
        self.acked += 1;
        if let Some(at) = self.sent_at.pop_front() {
            tally.ack.record(at.elapsed());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_packet_of_64_kib_carries_what_java_puts_into_it() {
        assert_eq!(super::packet_data(65536), 126 * 512);
        assert_eq!(super::packet_data(0), 512, "at least a chunk");
        assert_eq!(super::packet_data(usize::MAX), super::SPAN_MAX);
    }
}
