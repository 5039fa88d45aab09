//! Valid inputs from which fuzzers start.

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;

use hayloft_wire::block_report::{ReportEncoder, ReportedReplica};
use hayloft_wire::block_token::{AccessMode, BlockTokenIdentifier};
use hayloft_wire::checksum::{ChecksumKind, DataChecksum};
use hayloft_wire::ids::{Block, ExtendedBlock, PoolId, ReplicaState, StorageType};
use hayloft_wire::packet::{self, PacketHeader};
use hayloft_wire::pipeline_ack::{Ecn, Hop, PipelineAck, Slow};
use hayloft_wire::proto::{
    datanode, datatransfer as pb, hdfs, hdfs_server, interdatanode, security,
};
use hayloft_wire::rpc::{self, names};
use hayloft_wire::token_text::token_to_text;
use hayloft_wire::transfer::{self, BlockOpResponse, OpMessage, Stage, Status};

fn block() -> ExtendedBlock {
    let pool = PoolId::new("BP-1-10.0.0.1-1700000000000").expect("a valid id");
    ExtendedBlock::new(pool, Block::new(1_073_741_825, 1001, 128 << 20))
}

fn checksum() -> DataChecksum {
    DataChecksum::new(ChecksumKind::Crc32c, 512).expect("a valid chunk size")
}

fn token() -> security::Token {
    security::Token {
        identifier: Bytes::from_static(b"identifier"),
        password: Bytes::from_static(b"password"),
        kind: hayloft_wire::block_token::BLOCK_TOKEN_KIND.to_owned(),
        service: String::new(),
    }
}

fn datanode() -> hdfs::DatanodeInfo {
    let id = hdfs::DatanodeId {
        ip_addr: "10.0.0.2".into(),
        host_name: "node-2".into(),
        datanode_uuid: "4a3f".into(),
        xfer_port: 9866,
        info_port: 9864,
        ipc_port: 9867,
        info_secure_port: None,
    };
    hdfs::DatanodeInfo {
        id,
        capacity: Some(1 << 40),
        ..hdfs::DatanodeInfo::default()
    }
}

fn request(message: &impl OpMessage) -> Bytes {
    let mut out = BytesMut::new();
    transfer::encode_request(message, &mut out);
    out.freeze()
}

/// Requests of data transfer.
pub fn op_requests() -> Vec<Bytes> {
    let base = transfer::base_header(&block(), token());
    let client = transfer::client_header(&block(), token(), "client");
    let datanodes = hdfs::DatanodeInfos {
        datanodes: vec![datanode(); 3],
    };
    vec![
        request(&pb::OpWriteBlock {
            header: client.clone(),
            targets: vec![datanode(); 2],
            stage: Stage::PipelineSetupCreate.into(),
            pipeline_size: 3,
            requested_checksum: checksum().into(),
            target_storage_types: vec![StorageType::Disk.into(); 2],
            target_pinnings: vec![false; 2],
            target_storage_ids: vec!["DS-1".into(); 2],
            ..pb::OpWriteBlock::default()
        }),
        request(&pb::OpReadBlock {
            header: client.clone(),
            offset: 100,
            len: 1000,
            ..pb::OpReadBlock::default()
        }),
        request(&pb::OpTransferBlock {
            header: client,
            targets: vec![datanode()],
            ..pb::OpTransferBlock::default()
        }),
        request(&pb::OpReplaceBlock {
            header: base.clone(),
            del_hint: "4a3f".into(),
            source: datanode(),
            ..pb::OpReplaceBlock::default()
        }),
        request(&pb::OpBlockGroupChecksum {
            header: base.clone(),
            datanodes,
            block_tokens: vec![token(); 3],
            block_indices: vec![0, 1, 2],
            ..pb::OpBlockGroupChecksum::default()
        }),
        request(&pb::OpCopyBlock {
            header: base.clone(),
        }),
        request(&pb::OpRequestShortCircuitAccess {
            header: base,
            max_version: 1,
            slot_id: Some(slot()),
            supports_receipt_verification: Some(true),
        }),
        request(&pb::ReleaseShortCircuitAccessRequest {
            slot_id: slot(),
            trace_info: None,
        }),
        request(&pb::ShortCircuitShmRequest {
            client_name: "client".into(),
            trace_info: None,
        }),
    ]
}

/// A slot of a segment that a client has at the domain socket.
fn slot() -> pb::ShortCircuitShmSlot {
    pb::ShortCircuitShmSlot {
        shm_id: pb::ShortCircuitShmId { hi: -1, lo: 7 },
        slot_idx: 3,
    }
}

/// Answers of data transfer.
pub fn op_responses() -> Vec<Bytes> {
    [
        BlockOpResponse::read(checksum(), 512),
        BlockOpResponse::error(Status::ErrorAccessToken, "expired"),
        BlockOpResponse::pipeline(Status::Error, "10.0.0.2:9866"),
    ]
    .iter()
    .map(hayloft_wire::frame::delimited)
    .collect()
}

/// Streams of packets.
pub fn packets() -> Vec<Bytes> {
    let mut out = BytesMut::new();
    let data = [7u8; 1000];
    let mut sums = Vec::new();
    checksum().compute(&data, &mut sums);
    let header = PacketHeader {
        data_len: 1000,
        ..PacketHeader::default()
    };
    packet::encode_packet(&header, &sums, &data, &mut out);
    let last = PacketHeader {
        offset_in_block: 1000,
        seqno: 1,
        last_packet_in_block: true,
        data_len: 0,
        sync_block: true,
    };
    packet::encode_packet(&last, &[], &[], &mut out);
    vec![out.freeze()]
}

/// Acknowledgements.
pub fn acks() -> Vec<Bytes> {
    let hop = Hop::new(Status::Success, Ecn::Supported, Slow::Normal);
    vec![
        PipelineAck::new(7, vec![hop; 3], 1_000_000).to_bytes(),
        PipelineAck::oob(Status::OobRestart).to_bytes(),
    ]
}

fn call(method: &str, message: &impl Message) -> Bytes {
    rpc::encode_call(
        &rpc::call_header(1, [7; rpc::CLIENT_ID_BYTES], 0),
        names::INTER_DATANODE_PROTOCOL,
        method,
        message,
    )
}

fn recovering() -> interdatanode::InitReplicaRecoveryRequest {
    let block = hdfs::LocatedBlock {
        b: (&block()).into(),
        locs: vec![datanode(); 2],
        block_token: token(),
        storage_types: vec![StorageType::Disk.into(); 2],
        storage_ids: vec!["DS-1".into(); 2],
        ..hdfs::LocatedBlock::default()
    };
    let block = hdfs_server::RecoveringBlock {
        new_gen_stamp: 1002,
        block,
        ..hdfs_server::RecoveringBlock::default()
    };
    interdatanode::InitReplicaRecoveryRequest { block }
}

fn client_frames() -> Vec<Bytes> {
    vec![
        rpc::encode_context([7; 16], None, names::INTER_DATANODE_PROTOCOL),
        rpc::encode_ping([7; 16]),
        rpc::encode_sasl_request(&rpc::RpcSasl::step(rpc::SaslState::Initiate, &b"abc"[..])),
        call("initReplicaRecovery", &recovering()),
    ]
}

/// Whole connections.
pub fn rpc_connections() -> Vec<Bytes> {
    let header = rpc::ConnectionHeader {
        service_class: 0,
        auth: rpc::AuthProtocol::None,
    };
    let mut out = BytesMut::from(&header.encode()[..]);
    for frame in client_frames() {
        out.put(frame);
    }
    vec![out.freeze()]
}

/// A frame without its length.
fn inside(frame: Bytes) -> Bytes {
    frame.slice(4..)
}

/// Frames from clients.
pub fn rpc_requests() -> Vec<Bytes> {
    client_frames().into_iter().map(inside).collect()
}

/// Frames from servers.
pub fn rpc_responses() -> Vec<Bytes> {
    let header = rpc::call_header(1, [7; rpc::CLIENT_ID_BYTES], 0);
    vec![
        inside(rpc::encode_success(&header, &heartbeat_response())),
        inside(rpc::encode_error(
            &header,
            rpc::RpcErrorCode::ErrorApplication,
            names::STANDBY_EXCEPTION,
            "standby\n\tat",
        )),
        inside(rpc::encode_sasl_response(&rpc::RpcSasl::simple_only())),
    ]
}

fn heartbeat_response() -> datanode::HeartbeatResponse {
    let transfer = datanode::BlockCommand {
        action: datanode::BlockCommandAction::Transfer.into(),
        block_pool_id: "BP-1".into(),
        blocks: vec![block().block.into(); 2],
        targets: vec![
            hdfs::DatanodeInfos {
                datanodes: vec![datanode()]
            };
            2
        ],
        target_storage_uuids: vec![
            hdfs::StorageUuids {
                storage_uuids: vec!["DS-1".into()]
            };
            2
        ],
        target_storage_types: vec![
            hdfs::StorageTypes {
                storage_types: vec![StorageType::Disk.into()]
            };
            2
        ],
    };
    let recovery = datanode::BlockRecoveryCommand {
        blocks: vec![recovering().block],
    };
    let command = datanode::DatanodeCommand::default();
    datanode::HeartbeatResponse {
        cmds: vec![
            datanode::DatanodeCommand {
                cmd_type: datanode::DatanodeCommandType::BlockCommand.into(),
                blk_cmd: Some(transfer),
                ..command.clone()
            },
            datanode::DatanodeCommand {
                cmd_type: datanode::DatanodeCommandType::BlockRecoveryCommand.into(),
                recovery_cmd: Some(recovery),
                ..command
            },
        ],
        ha_status: hdfs_server::NnHaStatusHeartbeat {
            state: hdfs_server::NnHaState::Active.into(),
            txid: 9,
        },
        ..datanode::HeartbeatResponse::default()
    }
}

/// Messages of RPC.
pub fn messages() -> Vec<Bytes> {
    vec![
        heartbeat_response().encode_to_vec().into(),
        recovering().encode_to_vec().into(),
    ]
}

/// Block token identifiers in both forms.
pub fn block_tokens() -> Vec<Bytes> {
    let token = BlockTokenIdentifier {
        expiry_millis: 1_700_000_000_123,
        key_id: -7,
        user: Some("hdfs".into()),
        pool: "BP-1".into(),
        block_id: -16,
        modes: vec![AccessMode::Read, AccessMode::Replace],
        storage_types: vec![StorageType::Ssd],
        storage_ids: vec!["DS-1".into()],
        handshake_secret: Bytes::from_static(b"secret"),
    };
    vec![token.encode_legacy(), token.encode_protobuf()]
}

/// Tokens of users, as text.
pub fn token_texts() -> Vec<Bytes> {
    vec![token_to_text(&token()).into()]
}

/// Block report buffers behind a byte that says where they are cut.
pub fn block_reports() -> Vec<Bytes> {
    let mut encoder = ReportEncoder::new();
    encoder.extend((0..20).map(|i| ReportedReplica {
        block: Block::new(i - 10, 1000, 1 << 27),
        state: ReplicaState::Finalized,
    }));
    let mut out = BytesMut::from(&[7u8][..]);
    for buffer in encoder.finish().1 {
        out.put(buffer);
    }
    vec![out.freeze()]
}

/// Headers of meta files.
pub fn meta_headers() -> Vec<Bytes> {
    vec![Bytes::copy_from_slice(&checksum().encode_meta_header())]
}
