//! The descriptions agree with themselves and with prost, and the check refuses what it must.

use std::collections::HashSet;

use proptest::prelude::*;
use prost::Message as _;

use super::*;
use crate::proto::{datanode, datatransfer, hdfs};

const PLENTY_BYTES: usize = 1 << 20;

fn all_messages() -> impl Iterator<Item = &'static MessageDesc> {
    crate::proto::MESSAGES
        .iter()
        .flat_map(|module| module.iter().copied())
}

#[test]
fn names_and_numbers_are_unique() {
    let mut names = HashSet::new();
    for desc in all_messages() {
        assert!(names.insert(desc.full_name), "{} twice", desc.full_name);
        let numbers: HashSet<u32> = desc.fields.iter().map(|field| field.number).collect();
        assert_eq!(
            numbers.len(),
            desc.fields.len(),
            "a number twice in {}",
            desc.full_name
        );
    }
    let mut enums = HashSet::new();
    for desc in crate::proto::ENUMS.iter().flat_map(|module| module.iter()) {
        assert!(enums.insert(desc.rust_name), "{} twice", desc.rust_name);
    }
}

#[test]
fn every_source_file_of_messages_is_in_the_table() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/proto");
    let files = std::fs::read_dir(folder).expect("readable").count();
    assert_eq!(
        files,
        crate::proto::MESSAGES.len() + 1,
        "one file is mod.rs"
    );
}

#[test]
fn table_names_a_type_for_every_message_and_enum_field() {
    let table = crate::field_table::field_table();
    assert!(table.lines().count() > 600);
    for line in table.lines().filter(|line| line.starts_with("field ")) {
        let words: Vec<&str> = line.split(' ').collect();
        let needs_type = matches!(words[4], "message" | "enum");
        assert_eq!(needs_type, words[7] != "-", "{line}");
    }
    assert!(table.contains(
        "\nfield hadoop.hdfs.OpWriteBlockProto storage_type 11 enum optional - \
            hadoop.hdfs.StorageTypeProto Disk\n"
    ));
    assert!(
        table.contains("\nfield hadoop.hdfs.PipelineAckProto flag 4 uint32 repeated packed - -\n")
    );
}

#[test]
fn attributes_are_read_word_by_word() {
    let field = FieldDesc::parse("x", r#"sint32, optional, tag = "5", default = "-1""#, None);
    assert_eq!(
        (field.kind, field.label, field.number),
        (FieldKind::Sint32, Label::Optional, 5)
    );
    assert_eq!(
        (field.packed, field.default(), field.enum_name()),
        (false, Some("-1"), None)
    );
    let field = FieldDesc::parse(
        "x",
        r#"enumeration = "A", repeated, packed = "true", tag = "12""#,
        None,
    );
    assert_eq!(
        (field.kind, field.number, field.packed),
        (FieldKind::Enum, 12, true)
    );
    assert_eq!(field.enum_name(), Some("A"));
}

#[test]
fn absent_required_fields_are_named() {
    let error = check::<hdfs::Block>(&[8, 1], PLENTY_BYTES).expect_err("refused");
    assert_eq!(
        error,
        SchemaError::MissingField {
            message: "hadoop.hdfs.BlockProto",
            field: "gen_stamp"
        }
    );
    // Deep inside, too: an operation whose block is empty.
    let error = check::<datatransfer::OpCopyBlock>(&[10, 2, 10, 0], PLENTY_BYTES);
    assert!(matches!(
        error,
        Err(SchemaError::MissingField {
            field: "pool_id",
            ..
        })
    ));
}

#[test]
fn unknown_fields_pass_and_malformed_ones_do_not() {
    let block = [8, 1, 16, 1];
    let with = |more: &[u8]| check::<hdfs::Block>(&[&block, more].concat(), PLENTY_BYTES);
    assert_eq!(with(&[]), Ok(()));
    assert_eq!(with(&[0xA0, 6, 1]), Ok(()), "field 100, varint");
    assert_eq!(with(&[0xA2, 6, 2, 0xFF, 0xFF]), Ok(()), "field 100, bytes");
    for bad in [
        &[0xA3, 6][..],
        &[0xA2, 6, 2, 0],
        &[0xA0],
        &[0, 1],
        &[10, 0],
        &[0xA2, 6, 0xFF, 0xFF],
    ] {
        assert!(with(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn memory_is_budgeted_before_it_is_taken() {
    // 1000 empty storage reports would be refused for their missing ids; blocks are whole.
    let block = hdfs::Block {
        block_id: 1,
        gen_stamp: 1,
        num_bytes: None,
    };
    let command = datanode::BlockCommand {
        action: 1,
        blocks: vec![block; 1000],
        ..datanode::BlockCommand::default()
    };
    let bytes = command.encode_to_vec();
    let needs = 1000 * size_of::<hdfs::Block>();
    assert!(check::<datanode::BlockCommand>(&bytes, needs + 1000).is_ok());
    assert!(matches!(
        check::<datanode::BlockCommand>(&bytes, needs),
        Err(SchemaError::TooLarge { .. })
    ));
}

#[test]
fn packed_and_unpacked_lists_are_both_read() {
    for bytes in [
        &[8, 1, 18, 1, b'p', 26, 2, 1, 2][..],
        &[8, 1, 18, 1, b'p', 24, 1, 24, 2],
    ] {
        assert_eq!(
            check::<datanode::BlockIdCommand>(bytes, PLENTY_BYTES),
            Ok(())
        );
        let command = datanode::BlockIdCommand::decode(bytes).expect("valid");
        assert_eq!(command.block_ids, [1, 2]);
    }
}

/// Messages that lists on the wire are made of. A busy NameNode may send very many of each, and the
/// budget of [`crate::frame::decode`] must let them pass.
#[test]
fn honest_lists_fit_the_budget_of_frames() {
    let command = datanode::BlockCommand {
        action: datanode::BlockCommandAction::Transfer.into(),
        block_pool_id: "BP-1".into(),
        blocks: vec![
            hdfs::Block {
                block_id: 1 << 30,
                gen_stamp: 1001,
                num_bytes: Some(1)
            };
            5000
        ],
        targets: vec![hdfs::DatanodeInfos::default(); 5000],
        target_storage_uuids: vec![
            hdfs::StorageUuids {
                storage_uuids: vec!["DS-1".into()]
            };
            5000
        ],
        target_storage_types: vec![
            hdfs::StorageTypes {
                storage_types: vec![1]
            };
            5000
        ],
    };
    let decoded = crate::frame::decode::<datanode::BlockCommand>(command.encode_to_vec().into());
    assert_eq!(decoded, Ok(command));
    let cached = datanode::BlockIdCommand {
        action: datanode::BlockIdCommandAction::Cache.into(),
        block_pool_id: "BP-1".into(),
        block_ids: vec![1; 100_000],
    };
    let decoded = crate::frame::decode::<datanode::BlockIdCommand>(cached.encode_to_vec().into());
    assert_eq!(decoded, Ok(cached));
}

proptest! {
    /// What prost writes passes, what the check passes prost reads (but for text that is no UTF-8).
    #[test]
    fn check_and_prost_agree(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        let checked = check::<hdfs::DatanodeStorage>(&bytes, PLENTY_BYTES);
        match hdfs::DatanodeStorage::decode(&bytes[..]) {
            Ok(message) => prop_assert!(check::<hdfs::DatanodeStorage>(
                &message.encode_to_vec(), PLENTY_BYTES).is_ok()),
            Err(error) if checked.is_ok() => prop_assert!(error.to_string().contains("UTF-8")),
            Err(_) => {}
        }
    }
}
