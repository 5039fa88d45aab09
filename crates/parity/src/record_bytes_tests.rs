//! Records come back as they were, and nothing else comes back.

use std::sync::Arc;

use hayloft_wire::ids::PoolId;
use proptest::prelude::*;

use super::*;
use crate::record::{COVERED_MAX, REVISION_MAX};
use crate::{
    FileStamp, GroupId, MemberRecord, ParityRecord, ParityShape, SECTION_BYTES_MAX, Section,
};

fn bytes(n: u8, len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| n ^ u8::try_from(i % 251).expect("small"))
        .collect()
}

/// A record of `members` and the sections that it names.
fn sample(members: u8, shape: ParityShape) -> (GroupRecord, Vec<Vec<u8>>) {
    let parity = u8::try_from(shape.parity()).expect("small");
    let sections: Vec<Vec<u8>> = (0..members + parity)
        .map(|n| bytes(n, 7 + 4 * usize::from(n)))
        .collect();
    let section = |n: u8| Section::of(&sections[usize::from(n)]).expect("small");
    let members: Vec<MemberRecord> = (0..members)
        .map(|n| MemberRecord {
            block_id: -1 - i64::from(n),
            generation_stamp: 1001 + u64::from(n),
            covered: 100 + u64::from(n),
            storage: format!("DS-{n}").into(),
            root: format!("/disks/{n}").into(),
            stamp: FileStamp {
                inode: u64::MAX - u64::from(n),
                changed_ns: -5,
                len: 100,
            },
            dropped: n == 1,
            sums: section(n),
        })
        .collect();
    let first = u8::try_from(members.len()).expect("small");
    let parity = (0..parity).map(|n| ParityRecord {
        storage: format!("DS-p{n}").into(),
        root: format!("/disks/p{n}").into(),
        sums: section(first + n),
    });
    let record = GroupRecord {
        id: GroupId(0x0123_4567_89ab_cdef),
        revision: 3,
        shape,
        pool: PoolId::new("BP-1-10.0.0.1-1").expect("valid"),
        members,
        parity: parity.collect(),
        copies: vec!["DS-p0".into(), "DS-0".into()],
    };
    (record, sections)
}

fn six_one() -> ParityShape {
    ParityShape::new(6, 1).expect("valid")
}

#[test]
fn names_of_groups_come_back_and_others_are_refused() {
    let id = GroupId(0xabc);
    let name = id.to_string();
    assert_eq!(name, "00000000000000000000000000000abc");
    assert_eq!(name.parse(), Ok(id));
    let upper = name.to_uppercase();
    for wrong in [
        "",
        "abc",
        upper.as_str(),
        "+0000000000000000000000000000abc",
    ] {
        assert!(wrong.parse::<GroupId>().is_err(), "{wrong}");
    }
}

#[test]
fn sections_are_found_behind_the_head() {
    let (record, sections) = sample(4, six_one());
    let file = encode(&record, &sections).expect("encodes");
    let (_, head_len) = GroupRecord::decode(&file).expect("decodes");
    for (n, expected) in sections.iter().enumerate() {
        let (at, section) = record.section(n, head_len).expect("there");
        let at = usize::try_from(at).expect("small");
        let found = &file[at..at + section.len as usize];
        assert!(section.matches(found) && found == expected);
    }
    assert_eq!(record.section(5, head_len), None);
    assert_eq!(file.len() as u64, head_len as u64 + record.sections_len());
}

#[test]
fn every_flipped_bit_of_a_head_is_seen() {
    let (record, sections) = sample(3, six_one());
    let file = encode(&record, &sections).expect("encodes");
    let (_, head_len) = GroupRecord::decode(&file).expect("decodes");
    for at in 0..head_len * 8 {
        let mut broken = file.clone();
        broken[at / 8] ^= 1 << (at % 8);
        assert!(GroupRecord::decode(&broken).is_err(), "bit {at}");
    }
    for len in 0..head_len {
        assert!(GroupRecord::decode(&file[..len]).is_err(), "{len} bytes");
    }
}

#[test]
fn a_later_version_is_named_as_such() {
    let (record, sections) = sample(3, six_one());
    let mut file = encode(&record, &sections).expect("encodes");
    let low_byte_of_version = MAGIC.len() + 1;
    file[low_byte_of_version] += 1;
    let later = GroupRecord::decode(&file).expect_err("refused");
    assert_eq!(later, RecordError::Later(VERSION + 1));
    assert!(later.to_string().contains("of version 2"), "{later}");
    file[low_byte_of_version] = 0;
    assert_eq!(GroupRecord::decode(&file), Err(RecordError::Foreign));
}

#[test]
fn what_would_not_be_read_is_not_written() {
    let (good, sections) = sample(6, six_one());
    let refused = |change: &dyn Fn(&mut GroupRecord)| {
        let mut record = good.clone();
        change(&mut record);
        encode(&record, &sections).expect_err("refused")
    };
    assert_eq!(
        refused(&|r| r.copies.clear()),
        RecordError::Field("number of copies")
    );
    assert_eq!(
        refused(&|r| r.members[0].covered = 0),
        RecordError::Field("covered length")
    );
    assert_eq!(
        refused(&|r| r.members[0].covered = COVERED_MAX + 1),
        RecordError::Field("covered length")
    );
    assert_eq!(
        refused(&|r| r.revision = u64::MAX),
        RecordError::Field("revision")
    );
    let members = RecordError::Field("number of members");
    assert_eq!(refused(&|r| r.members.clear()), members);
    assert_eq!(refused(&|r| r.members.push(r.members[0].clone())), members);
    let long: Arc<str> = "x".repeat(5000).into();
    assert_eq!(
        refused(&|r| r.members[2].root = Arc::clone(&long)),
        RecordError::TooLarge("text")
    );
    assert_eq!(
        refused(&|r| r.members[2].sums.crc ^= 1),
        RecordError::Field("sections")
    );
    assert_eq!(
        refused(&|r| r.members[2].sums.len = SECTION_BYTES_MAX + 1),
        RecordError::TooLarge("sections")
    );
}

proptest! {
    #[test]
    fn records_come_back(data in 1..10_u8, fewer in 0..9_u8, parity in 1..4_u8,
        revision in 0..=REVISION_MAX) {
        let shape = ParityShape::new(data, parity).expect("valid");
        let (mut record, sections) = sample(data.saturating_sub(fewer).max(1), shape);
        record.revision = revision;
        let mut file = encode(&record, &sections).expect("encodes");
        prop_assert_eq!(&GroupRecord::decode(&file).expect("decodes").0, &record);
        // More bytes behind it are of no matter: they are sections.
        file.push(0);
        prop_assert_eq!(&GroupRecord::decode(&file).expect("decodes").0, &record);
    }

    /// Any bytes under a right checksum are a record or an error, and no panic.
    #[test]
    fn any_head_is_taken(
        head in proptest::collection::vec(any::<u8>(), 0..300),
        at in 0..200_usize, value: u8,
    ) {
        let wrap = |head: &[u8]| {
            let mut file = MAGIC.to_vec();
            file.put_u16(VERSION);
            file.put_u32(u32::try_from(head.len()).expect("small"));
            file.put_slice(head);
            file.put_u32(ChecksumKind::Crc32c.crc(&file));
            file
        };
        let _ = GroupRecord::decode(&head);
        let _ = GroupRecord::decode(&wrap(&head));
        // Close to a right one.
        let (record, sections) = sample(2, six_one());
        let mut near = encode(&record, &sections).expect("encodes");
        let len = GroupRecord::head_len(&near).expect("right");
        near.truncate(len - 4);
        let mut near = near.split_off(RECORD_START);
        if let Some(byte) = near.get_mut(at) {
            *byte = value;
        }
        if let Ok((changed, _)) = GroupRecord::decode(&wrap(&near)) {
            prop_assert!(changed.members.len() <= changed.shape.data());
        }
    }
}
