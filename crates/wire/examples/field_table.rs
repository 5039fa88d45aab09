//! Prints what the crate believes of Hadoop's wire, for a Java test that knows the truth.
//!
//! One fact a line, columns parted by spaces:
//!
//! ```text
//! message hadoop.hdfs.BlockProto
//! field <message> <name> <number> <type> <label> <packed|-> <type name|-> <default|->
//! enum hadoop.hdfs.Status
//! value hadoop.hdfs.Status Success 0
//! constant <Java class> <static field> <number>
//! op READ_BLOCK 81
//! protocol <name> <version>
//! exception <Java class>
//! ```

use std::fmt::{self, Write as _};

use hayloft_wire::proto::{ENUMS, MESSAGES};
use hayloft_wire::schema::{FieldDesc, Label, MessageDesc};
use hayloft_wire::{block_report, checksum, packet, pipeline_ack, rpc, transfer};

fn main() {
    print!("{}", field_table());
}

fn field_table() -> String {
    let mut out = String::new();
    write_table(&mut out).expect("a string takes whatever is written");
    out
}

fn write_table(out: &mut String) -> fmt::Result {
    for desc in MESSAGES.iter().flat_map(|module| module.iter()) {
        writeln!(out, "message {}", desc.full_name)?;
        for field in desc.fields {
            write_field(out, desc, field)?;
        }
    }
    for desc in ENUMS.iter().flat_map(|module| module.iter()) {
        writeln!(out, "enum {}", desc.full_name)?;
        for (name, number) in desc.values {
            writeln!(out, "value {} {name} {number}", desc.full_name)?;
        }
    }
    for (class, field, number) in CONSTANTS {
        writeln!(out, "constant {class} {field} {number}")?;
    }
    for op in transfer::Op::ALL {
        writeln!(out, "op {} {}", op.name(), op.code())?;
    }
    for protocol in rpc::names::PROTOCOLS {
        writeln!(out, "protocol {} {}", protocol.name, protocol.version)?;
    }
    for class in rpc::names::EXCEPTIONS {
        writeln!(out, "exception {class}")?;
    }
    Ok(())
}

fn write_field(out: &mut String, desc: &MessageDesc, field: &FieldDesc) -> fmt::Result {
    let label = match field.label {
        Label::Required => "required",
        Label::Optional => "optional",
        Label::Repeated => "repeated",
    };
    writeln!(
        out,
        "field {} {} {} {} {label} {} {} {}",
        desc.full_name,
        field.name.trim_start_matches("r#"),
        field.number,
        field.kind.name(),
        if field.packed { "packed" } else { "-" },
        type_name(field).unwrap_or("-"),
        field.default().unwrap_or("-"),
    )
}

fn type_name(field: &FieldDesc) -> Option<&'static str> {
    if let Some(nested) = field.nested {
        return Some(nested.full_name);
    }
    let rust_name = field.enum_name()?;
    let mut enums = ENUMS.iter().flat_map(|module| module.iter());
    enums
        .find(|desc| desc.rust_name == rust_name)
        .map(|desc| desc.full_name)
}

const TRANSFER: &str = "org.apache.hadoop.hdfs.protocol.datatransfer.DataTransferProtocol";
const PACKET_HEADER: &str = "org.apache.hadoop.hdfs.protocol.datatransfer.PacketHeader";
const PIPELINE_ACK: &str = "org.apache.hadoop.hdfs.protocol.datatransfer.PipelineAck";
const RPC: &str = "org.apache.hadoop.ipc.RpcConstants";
const META_HEADER: &str = "org.apache.hadoop.hdfs.server.datanode.BlockMetadataHeader";
const BLOCK_LIST: &str = "org.apache.hadoop.hdfs.protocol.BlockListAsLongs";

/// Java class, static field, our value.
#[expect(clippy::cast_possible_wrap, reason = "small constants")]
const CONSTANTS: &[(&str, &str, i64)] = &[
    (
        TRANSFER,
        "DATA_TRANSFER_VERSION",
        transfer::DATA_TRANSFER_VERSION as i64,
    ),
    (
        PACKET_HEADER,
        "PKT_LENGTHS_LEN",
        packet::LENGTHS_BYTES as i64,
    ),
    (
        PACKET_HEADER,
        "PKT_MAX_HEADER_LEN",
        packet::MAX_PREFIX_BYTES as i64,
    ),
    (PIPELINE_ACK, "UNKOWN_SEQNO", pipeline_ack::UNKNOWN_SEQNO),
    (
        RPC,
        "AUTHORIZATION_FAILED_CALL_ID",
        rpc::CALL_AUTHORIZATION_FAILED as i64,
    ),
    (RPC, "INVALID_CALL_ID", rpc::CALL_INVALID as i64),
    (RPC, "CONNECTION_CONTEXT_CALL_ID", rpc::CALL_CONTEXT as i64),
    (RPC, "PING_CALL_ID", rpc::CALL_PING as i64),
    (RPC, "CURRENT_VERSION", rpc::RPC_VERSION as i64),
    (META_HEADER, "VERSION", checksum::META_VERSION as i64),
    (BLOCK_LIST, "CHUNK_SIZE", block_report::BUFFER_BYTES as i64),
];

#[cfg(test)]
mod tests {
    use super::field_table;

    #[test]
    fn table_names_a_type_for_every_message_and_enum_field() {
        let table = field_table();
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
            table.contains(
                "\nfield hadoop.hdfs.PipelineAckProto flag 4 uint32 repeated packed - -\n"
            )
        );
    }
}
