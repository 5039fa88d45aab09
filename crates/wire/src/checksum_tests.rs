//! Checksums against published check values, and the algebra against plain computation.

use proptest::prelude::*;

use super::*;

const KINDS: [ChecksumKind; 2] = [ChecksumKind::Crc32, ChecksumKind::Crc32c];

#[test]
fn published_check_values() {
    assert_eq!(ChecksumKind::Crc32.crc(b"123456789"), 0xCBF4_3926);
    assert_eq!(ChecksumKind::Crc32c.crc(b"123456789"), 0xE306_9283);
}

#[test]
fn meta_header_is_apaches() {
    let checksum = DataChecksum::new(ChecksumKind::Crc32c, 512).expect("valid");
    let header = checksum.encode_meta_header();
    assert_eq!(header, [0, 1, 2, 0, 0, 2, 0]);
    assert_eq!(DataChecksum::decode_meta_header(&header), Ok(checksum));
    assert_eq!(
        DataChecksum::decode_meta_header(&header[..6]),
        Err(ChecksumError::MetaTruncated(6))
    );
    assert_eq!(
        DataChecksum::decode_meta_header(&[0, 2, 2, 0, 0, 2, 0]),
        Err(ChecksumError::MetaVersion(2))
    );
    assert_eq!(
        DataChecksum::decode_meta_header(&[0, 1, 3, 0, 0, 2, 0]),
        Err(ChecksumError::FieldKind(3))
    );
    assert!(DataChecksum::decode_meta_header(&[0, 1, 2, 0, 0, 0, 0]).is_err());
    assert!(DataChecksum::decode_meta_header(&[0, 1, 2, 0xFF, 0, 0, 0]).is_err());
}

/// What Hadoop 3.5.0 computes over 1300 bytes `i * 7`, 512 a chunk. These are chunk sums, the
/// composite CRC, and the composite CRCs of stripes of 1024 bytes.
const HADOOPS: [(ChecksumKind, [u32; 3], u32, [u32; 2]); 2] = [
    (
        ChecksumKind::Crc32,
        [0x1F9A_B551, 0x1F9A_B551, 0xB989_F703],
        0xDBDF_6A16,
        [0x28D2_9E67, 0xB989_F703],
    ),
    (
        ChecksumKind::Crc32c,
        [0x74E9_3F07, 0x74E9_3F07, 0x80A8_A179],
        0x1683_3432,
        [0x7E5A_7A0B, 0x80A8_A179],
    ),
];

#[test]
fn sums_and_composites_are_hadoops() {
    let data: Vec<u8> = (0u8..=255)
        .cycle()
        .take(1300)
        .map(|i| i.wrapping_mul(7))
        .collect();
    for (kind, sums, whole, stripes) in HADOOPS {
        let checksum = DataChecksum::new(kind, 512).expect("valid");
        let mut computed = Vec::new();
        checksum.compute(&data, &mut computed);
        assert_eq!(computed, sums.map(u32::to_be_bytes).concat());
        let composite = |stripe| {
            let mut composite = CompositeCrc::new(kind, 512, stripe);
            for (sum, chunk) in sums.into_iter().zip(data.chunks(512)) {
                composite.update(sum, chunk.len() as u64).expect("fits");
            }
            composite.finish()
        };
        assert_eq!(composite(None), whole.to_be_bytes());
        assert_eq!(
            composite(Some(1024)),
            stripes.map(u32::to_be_bytes).concat()
        );
    }
}

#[test]
fn wrong_number_of_sums_is_a_mismatch() {
    let checksum = DataChecksum::new(ChecksumKind::Crc32, 4).expect("valid");
    let mut sums = Vec::new();
    checksum.compute(b"abcdefgh", &mut sums);
    assert_eq!(checksum.verify(b"abcdefgh", &sums), Ok(()));
    assert_eq!(
        checksum
            .verify(b"abcdefgh", &sums[..4])
            .map_err(|e| e.offset),
        Err(4)
    );
    assert_eq!(
        checksum.verify(b"abcd", &sums).map_err(|e| e.offset),
        Err(4)
    );
    assert_eq!(
        checksum
            .verify(b"abcdefgh", &sums[..7])
            .map_err(|e| e.offset),
        Err(4)
    );
    sums.push(0);
    assert!(checksum.verify(b"abcdefgh", &sums).is_err());
}

#[test]
fn stripes_must_fit_chunks() {
    let mut composite = CompositeCrc::new(ChecksumKind::Crc32c, 512, Some(1000));
    assert!(composite.update(1, 512).is_ok());
    assert!(composite.update(1, 512).is_err());
}

#[test]
fn nothing_has_no_composite() {
    assert!(
        CompositeCrc::new(ChecksumKind::Crc32c, 512, None)
            .finish()
            .is_empty()
    );
}

fn kind() -> impl Strategy<Value = ChecksumKind> {
    prop::sample::select(&KINDS[..])
}

proptest! {
    #[test]
    fn computed_sums_verify_and_a_flipped_bit_is_found(
        kind in kind(),
        chunk in 1u32..700,
        mut data in prop::collection::vec(any::<u8>(), 1..3000),
        flip in any::<prop::sample::Index>(),
        bit in 0u8..8,
    ) {
        let checksum = DataChecksum::new(kind, chunk).expect("valid");
        let mut sums = Vec::new();
        checksum.compute(&data, &mut sums);
        prop_assert_eq!(sums.len(), checksum.sums_len(data.len()));
        let meta_len = (META_HEADER_LEN + sums.len()) as u64;
        prop_assert_eq!(checksum.meta_len(data.len() as u64), meta_len);
        prop_assert_eq!(checksum.verify(&data, &sums), Ok(()));
        let at = flip.index(data.len());
        data[at] ^= 1 << bit;
        let mismatch = checksum.verify(&data, &sums).expect_err("a flipped bit");
        prop_assert_eq!(mismatch.offset, at - at % chunk as usize);
    }

    #[test]
    fn appending_equals_computing_whole(
        kind in kind(),
        a in prop::collection::vec(any::<u8>(), 0..2000),
        b in prop::collection::vec(any::<u8>(), 0..2000),
    ) {
        let whole = kind.crc(&[a.as_slice(), b.as_slice()].concat());
        prop_assert_eq!(kind.crc_append(kind.crc(&a), &b), whole);
        let shift = CrcShift::new(kind, b.len() as u64);
        prop_assert_eq!(shift.append(kind.crc(&a), kind.crc(&b)), whole);
    }

    #[test]
    fn composite_equals_crc_of_each_stripe(
        kind in kind(),
        chunk in 1u32..100,
        chunks_per_stripe in 1u64..5,
        data in prop::collection::vec(any::<u8>(), 0..2000),
    ) {
        let stripe = chunks_per_stripe * u64::from(chunk);
        let mut striped = CompositeCrc::new(kind, chunk, Some(stripe));
        let mut one = CompositeCrc::new(kind, chunk, None);
        for piece in data.chunks(chunk as usize) {
            striped.update(kind.crc(piece), piece.len() as u64).expect("fits");
            one.update(kind.crc(piece), piece.len() as u64).expect("fits");
        }
        let expected: Vec<u8> = data
            .chunks(usize::try_from(stripe).expect("small"))
            .flat_map(|s| kind.crc(s).to_be_bytes())
            .collect();
        prop_assert_eq!(striped.finish(), expected);
        let whole = if data.is_empty() { vec![] } else { kind.crc(&data).to_be_bytes().to_vec() };
        prop_assert_eq!(one.finish(), whole);
    }

    #[test]
    fn meta_headers_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..16)) {
        if let Ok(checksum) = DataChecksum::decode_meta_header(&bytes) {
            prop_assert_eq!(&checksum.encode_meta_header()[..], &bytes[..META_HEADER_LEN]);
        }
    }
}
