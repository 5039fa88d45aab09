//! Tokens against bytes that Hadoop 3.5.0 wrote, and what must be refused.

use proptest::prelude::*;

use super::*;

const FULL_LEGACY: &str = "8a018bcfe5687b8512d68600000004686466730000001b42502d312d31302e302e302e31\
    2d31373030303030303030303030807fffffffffffffef02045245414405575249544502044449534b035353440200\
    00000444532d310000000444532d3203010203";
const FULL_PROTOBUF: &str = "08fbd095ffbc3110f9d2b4ff0f1a0468646673221b42502d312d31302e302e302e312d\
    3137303030303030303030303028908080808080808080013001300238013802420444532d31420444532d324a0301\
    0203";
const LEAST_LEGACY: &str = "8a018bcfe5687b05ffffffff0000000442502d318c400000010104434f50590000";
const LEAST_PROTOBUF: &str = "08fbd095ffbc311005220442502d312881808080043003";

fn unhex(text: &str) -> Bytes {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
    digits
        .chunks(2)
        .map(|pair| u8::try_from(pair[0] << 4 | pair[1]).expect("a byte"))
        .collect()
}

fn full() -> BlockTokenIdentifier {
    BlockTokenIdentifier {
        expiry_millis: 1_700_000_000_123,
        key_id: -1_234_567,
        user: Some("hdfs".into()),
        pool: "BP-1-10.0.0.1-1700000000000".into(),
        block_id: -9_223_372_036_854_775_792,
        modes: vec![AccessMode::Read, AccessMode::Write],
        storage_types: vec![StorageType::Disk, StorageType::Ssd],
        storage_ids: vec!["DS-1".into(), "DS-2".into()],
        handshake_secret: Bytes::from_static(&[1, 2, 3]),
    }
}

fn least() -> BlockTokenIdentifier {
    BlockTokenIdentifier {
        expiry_millis: 1_700_000_000_123,
        key_id: 5,
        pool: "BP-1".into(),
        block_id: 1_073_741_825,
        modes: vec![AccessMode::Copy],
        ..BlockTokenIdentifier::default()
    }
}

#[test]
fn hadoops_bytes_are_read_and_written() {
    for (token, legacy, protobuf) in [
        (full(), FULL_LEGACY, FULL_PROTOBUF),
        (least(), LEAST_LEGACY, LEAST_PROTOBUF),
    ] {
        let (legacy, protobuf) = (unhex(legacy), unhex(protobuf));
        assert_eq!(BlockTokenIdentifier::decode(&legacy), Ok(token.clone()));
        assert_eq!(BlockTokenIdentifier::decode(&protobuf), Ok(token.clone()));
        assert_eq!(token.encode_legacy(), legacy);
        assert_eq!(token.encode_protobuf(), protobuf);
    }
}

#[test]
fn older_tokens_end_early() {
    let whole = unhex(LEAST_LEGACY);
    let without_lists = whole.slice(..whole.len() - 2);
    assert_eq!(BlockTokenIdentifier::decode(&without_lists), Ok(least()));
    let cut = whole.slice(..whole.len() - 3);
    assert_eq!(
        BlockTokenIdentifier::decode(&cut),
        Err(TokenError::Truncated("access modes"))
    );
}

#[test]
fn rights_are_those_named() {
    let token = full();
    assert!(token.allows(AccessMode::Read) && !token.allows(AccessMode::Replace));
    let pool = PoolId::new(&token.pool).expect("valid");
    assert!(token.is_for(&pool, token.block_id) && !token.is_for(&pool, 1));
}

#[test]
fn nothing_and_too_much_are_refused() {
    assert_eq!(
        BlockTokenIdentifier::decode(&Bytes::new()),
        Err(TokenError::Empty)
    );
    let long = Bytes::from(vec![0; MAX_TOKEN_BYTES + 1]);
    assert!(matches!(
        BlockTokenIdentifier::decode(&long),
        Err(TokenError::TooLong(_))
    ));
}

proptest! {
    #[test]
    fn integers_there_and_back(value: i64) {
        let mut out = BytesMut::new();
        write_vlong(&mut out, value);
        let mut reader = WritableReader { rest: &out };
        prop_assert_eq!(reader.vlong("value"), Ok(value));
        prop_assert!(reader.rest.is_empty());
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _any_outcome = BlockTokenIdentifier::decode(&Bytes::from(bytes));
    }

    #[test]
    fn flipped_bytes_never_panic(at in any::<prop::sample::Index>(), value: u8) {
        for text in [FULL_LEGACY, FULL_PROTOBUF] {
            let mut bytes = unhex(text).to_vec();
            let at = at.index(bytes.len());
            bytes[at] = value;
            let _any_outcome = BlockTokenIdentifier::decode(&Bytes::from(bytes));
        }
    }
}
