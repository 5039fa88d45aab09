//! Packets there and back, against prost's encoding, and what a receiver must refuse.

use proptest::prelude::*;
use prost::Message as _;

use super::*;
use crate::proto::datatransfer as pb;

fn header() -> impl Strategy<Value = PacketHeader> {
    (
        0..=i64::MAX.unsigned_abs(),
        any::<i64>(),
        any::<bool>(),
        0u32..5000,
        any::<bool>(),
    )
        .prop_map(
            |(offset_in_block, seqno, last_packet_in_block, data_len, sync_block)| PacketHeader {
                offset_in_block,
                seqno,
                last_packet_in_block,
                data_len,
                sync_block,
            },
        )
}

fn as_proto(header: &PacketHeader) -> pb::PacketHeader {
    pb::PacketHeader {
        offset_in_block: header.offset_in_block.cast_signed(),
        seqno: header.seqno,
        last_packet_in_block: header.last_packet_in_block,
        data_len: i32::try_from(header.data_len).expect("small"),
        sync_block: header.sync_block.then_some(true),
    }
}

fn lengths(plen: i32, hlen: i16) -> Vec<u8> {
    [&plen.to_be_bytes()[..], &hlen.to_be_bytes()[..]].concat()
}

fn refuse(bytes: &[u8]) -> PacketError {
    PacketParser::default()
        .parse(&mut BytesMut::from(bytes))
        .expect_err("refused")
}

#[test]
fn prefixes_are_hadoops() {
    let header = PacketHeader {
        offset_in_block: 65536,
        seqno: 42,
        data_len: 1000,
        ..PacketHeader::default()
    };
    let mut plain = BytesMut::new();
    header.encode_prefix(8, &mut plain);
    let expected = b"\x00\x00\x03\xf4\x00\x19\x09\0\0\x01\0\0\0\0\0\
        \x11\x2a\0\0\0\0\0\0\0\x18\0\x25\xe8\x03\0\0";
    assert_eq!(&plain[..], expected);
    let mut sync = BytesMut::new();
    PacketHeader {
        sync_block: true,
        last_packet_in_block: true,
        ..header
    }
    .encode_prefix(8, &mut sync);
    assert_eq!(
        (sync[5], &sync[24..26], &sync[31..]),
        (27, &[0x18, 1][..], &[0x28, 1][..])
    );
    assert_eq!(sync.len(), MAX_PREFIX_BYTES);
}

#[test]
fn lying_lengths_are_refused_from_six_bytes() {
    assert_eq!(refuse(&lengths(3, 25)), PacketError::PayloadLength(3));
    assert_eq!(refuse(&lengths(-1, 25)), PacketError::PayloadLength(-1));
    assert_eq!(
        refuse(&lengths(i32::MIN, 25)),
        PacketError::PayloadLength(i32::MIN)
    );
    assert_eq!(refuse(&lengths(4, 0)), PacketError::HeaderLength(0));
    assert_eq!(refuse(&lengths(4, -1)), PacketError::HeaderLength(-1));
    assert_eq!(refuse(&lengths(4, 2000)), PacketError::HeaderLength(2000));
    assert!(matches!(
        refuse(&lengths(i32::MAX, 25)),
        PacketError::TooLong { .. }
    ));
    let limit = i32::try_from(MAX_PACKET_BYTES).expect("small");
    assert!(matches!(
        refuse(&lengths(limit, 25)),
        PacketError::TooLong { .. }
    ));
    let just = BytesMut::from(&lengths(limit - 25, 25)[..]);
    assert_eq!(PacketParser::default().parse(&mut just.clone()), Ok(None));
}

#[test]
fn more_data_than_payload_is_refused() {
    let mut out = BytesMut::new();
    let header = PacketHeader {
        data_len: 100,
        ..PacketHeader::default()
    };
    header.encode_prefix(0, &mut out);
    out[3] = 50;
    assert!(matches!(
        refuse(&out),
        PacketError::DataLength {
            data_bytes: 100,
            payload_bytes: 46
        }
    ));
}

#[test]
fn negative_offsets_and_lengths_are_refused() {
    let wrong = |message: pb::PacketHeader| PacketHeader::decode(&message.encode_to_vec());
    let good = pb::PacketHeader::default();
    assert!(
        wrong(pb::PacketHeader {
            offset_in_block: -1,
            ..good
        })
        .is_err()
    );
    assert!(
        wrong(pb::PacketHeader {
            data_len: -1,
            ..good
        })
        .is_err()
    );
    assert!(wrong(good).is_ok());
    assert!(PacketHeader::decode(&[]).is_err());
}

#[test]
fn promises_buy_no_memory() {
    let mut buf = BytesMut::new();
    let header = PacketHeader {
        data_len: MAX_PACKET_BYTES - 100,
        ..PacketHeader::default()
    };
    header.encode_prefix(0, &mut buf);
    assert_eq!(PacketParser::default().parse(&mut buf), Ok(None));
    assert!(
        buf.capacity() <= 4 * crate::frame::MIN_RESERVE_BYTES,
        "{}",
        buf.capacity()
    );
}

proptest! {
    #[test]
    fn headers_are_hadoops(header in header()) {
        let mut out = BytesMut::new();
        header.encode_prefix(0, &mut out);
        prop_assert_eq!(out.len(), LENGTHS_BYTES + header.encoded_len());
        prop_assert_eq!(&out[LENGTHS_BYTES..], &as_proto(&header).encode_to_vec()[..]);
        prop_assert_eq!(PacketHeader::decode(&out[LENGTHS_BYTES..]), Ok(header));
    }

    #[test]
    fn packets_there_and_back_in_any_split(
        headers in prop::collection::vec(header(), 1..4),
        sums in prop::collection::vec(any::<u8>(), 0..64),
        step in 1usize..200,
    ) {
        let mut stream = BytesMut::new();
        for header in &headers {
            encode_packet(header, &sums, &vec![7; header.data_len as usize], &mut stream);
        }
        let (mut buf, mut seen) = (BytesMut::new(), Vec::new());
        for piece in stream.chunks(step) {
            buf.extend_from_slice(piece);
            while let Some(packet) = PacketParser::default().parse(&mut buf).expect("valid") {
                seen.push(packet);
            }
        }
        prop_assert!(buf.is_empty());
        prop_assert_eq!(seen.len(), headers.len());
        let mut forwarded = BytesMut::new();
        for (packet, header) in seen.iter().zip(&headers) {
            prop_assert_eq!(&packet.header, header);
            prop_assert_eq!(&packet.sums[..], &sums[..]);
            prop_assert_eq!(packet.data.len(), header.data_len as usize);
            forwarded.extend_from_slice(&packet.raw);
        }
        prop_assert_eq!(forwarded, stream);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut buf = BytesMut::from(&bytes[..]);
        let _any_outcome = PacketParser::default().parse(&mut buf);
        let _any_outcome = PacketHeader::decode(&bytes);
    }
}
