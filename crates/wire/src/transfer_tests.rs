//! Requests and answers there and back, and what a server must refuse.

use proptest::prelude::*;

use super::*;
use crate::checksum::ChecksumKind;
use crate::ids::{Block, PoolId};
use crate::proto::security::Token;

fn block() -> ExtendedBlock {
    ExtendedBlock::new(
        PoolId::new("BP-1-10.0.0.1-1").expect("valid"),
        Block::new(-17, 1001, 42),
    )
}

fn write_message() -> pb::OpWriteBlock {
    pb::OpWriteBlock {
        header: client_header(&block(), Token::default(), "client-1"),
        targets: vec![hdfs::DatanodeInfo::default(); 2],
        stage: Stage::PipelineSetupCreate.into(),
        pipeline_size: 3,
        requested_checksum: DataChecksum::new(ChecksumKind::Crc32c, 512)
            .expect("valid")
            .into(),
        storage_type: Some(StorageType::Ssd.into()),
        ..pb::OpWriteBlock::default()
    }
}

fn encoded(message: &impl OpMessage) -> BytesMut {
    let mut out = BytesMut::new();
    encode_request(message, &mut out);
    out
}

#[test]
fn write_request_there_and_back() {
    let mut buf = encoded(&write_message());
    assert_eq!(&buf[..3], &[0, 28, 80]);
    let Ok(Some(OpRequest::WriteBlock(request))) = decode_request(&mut buf) else {
        panic!("a write request")
    };
    assert_eq!(request.block, block());
    assert_eq!(request.stage, Stage::PipelineSetupCreate);
    assert_eq!(request.storage_type, StorageType::Ssd);
    assert_eq!(request.message, write_message());
    assert!(buf.is_empty());
}

#[test]
fn every_prefix_is_incomplete() {
    let whole = encoded(&write_message());
    for end in 0..whole.len() {
        let mut part = BytesMut::from(&whole[..end]);
        assert_eq!(decode_request(&mut part), Ok(None), "at {end}");
        assert_eq!(part.len(), end);
    }
}

#[test]
fn wrong_versions_and_codes_are_named() {
    let refuse = |bytes: &[u8]| decode_request(&mut BytesMut::from(bytes)).expect_err("refused");
    assert_eq!(refuse(&[0xDE, 0xAD]), OpError::Sasl);
    assert_eq!(refuse(b"GET / HTTP/1.1"), OpError::Version(0x4745));
    assert_eq!(refuse(&[0, 28, 1]), OpError::UnknownOp(1));
    assert_eq!(refuse(&[0, 28, 82]), OpError::Unserved(Op::ReadMetadata));
    assert!(matches!(
        refuse(&[0, 28, 80, 0xFF, 0xFF, 0xFF, 0x7F]),
        OpError::Frame { .. }
    ));
    assert!(matches!(refuse(&[0, 28, 80, 0]), OpError::Frame { .. }));
}

#[test]
fn impossible_parts_are_refused() {
    let refuse = |m: &pb::OpWriteBlock| decode_request(&mut encoded(m)).expect_err("refused");
    let mut m = write_message();
    m.stage = 99;
    assert_eq!(refuse(&m), OpError::Stage(99));
    let mut m = write_message();
    m.requested_checksum.bytes_per_checksum = 0;
    assert!(matches!(refuse(&m), OpError::Checksum { .. }));
    let mut m = write_message();
    m.header.base_header.block.pool_id = "../x".into();
    assert!(matches!(refuse(&m), OpError::Block { .. }));
    let mut m = write_message();
    m.target_storage_ids = vec![String::new(); MAX_TARGETS + 1];
    assert!(matches!(
        refuse(&m),
        OpError::TooMany {
            list: "target storage ids",
            ..
        }
    ));
}

#[test]
fn a_cheap_message_cannot_buy_much_memory() {
    // Two bytes each of an empty repeated message whose struct takes hundreds.
    let body = [[0x12, 0]; MAX_OP_BYTES / 2].concat();
    let mut buf = BytesMut::from(&[0, 28, 80][..]);
    crate::varint::write_u64(&mut buf, body.len() as u64);
    buf.extend_from_slice(&body);
    let error = decode_request(&mut buf).expect_err("refused").to_string();
    assert!(
        error.contains("lacks its required") || error.contains("memory"),
        "{error}"
    );
}

#[test]
fn responses_there_and_back() {
    let checksum = DataChecksum::new(ChecksumKind::Crc32, 512).expect("valid");
    for response in [
        BlockOpResponse::success(),
        BlockOpResponse::error(Status::ErrorAccessToken, "no"),
        BlockOpResponse::read(checksum, 1024),
        BlockOpResponse::pipeline(Status::Success, ""),
    ] {
        let mut buf = BytesMut::from(&frame::delimited(&response)[..]);
        assert_eq!(decode_response(&mut buf), Ok(Some(response)));
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        op in 80u8..=90,
    ) {
        let mut buf = BytesMut::from(&bytes[..]);
        let _any_outcome = decode_request(&mut buf);
        let mut buf = BytesMut::from(&[&[0, 28, op], &bytes[..]].concat()[..]);
        let _any_outcome = decode_request(&mut buf);
        let mut buf = BytesMut::from(&bytes[..]);
        let _any_outcome = decode_response(&mut buf);
    }

    #[test]
    fn flipped_bytes_never_panic(at in any::<prop::sample::Index>(), value: u8) {
        let mut buf = encoded(&write_message());
        let at = at.index(buf.len());
        buf[at] = value;
        let _any_outcome = decode_request(&mut buf);
    }
}

#[test]
fn a_node_is_reported_by_its_https_port_where_it_has_one() {
    let mut id = hdfs::DatanodeId {
        ip_addr: "10.0.0.1".to_owned(),
        info_port: 9864,
        ..hdfs::DatanodeId::default()
    };
    assert_eq!(id.info_addr(), "10.0.0.1:9864");
    id.info_secure_port = Some(0);
    assert_eq!(id.info_addr(), "10.0.0.1:9864");
    id.info_secure_port = Some(9865);
    assert_eq!(id.info_addr(), "10.0.0.1:9865");
}
