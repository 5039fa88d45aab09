//! Entry points for fuzzers: one function a decoder, which must hold for any bytes.
//!
//! - `handshake`: steps of the handshake before a data transfer
//! - `sasl`: handshakes of SASL and the messages behind them, with their seeds
//! - `seeds`: valid inputs from which fuzzers start
//!
//! Beyond "does not panic" each checks what its decoder promises. Incomplete input leaves the
//! buffer alone. What was decoded encodes to something that decodes to the same. The package
//! `fuzz/` at the root of the repository gives them to cargo-fuzz; the test runs them on any
//! toolchain.

use bytes::{Bytes, BytesMut};

use hayloft_wire::block_report::{ReportDecoder, ReportEncoder};
use hayloft_wire::block_token::BlockTokenIdentifier;
use hayloft_wire::checksum::DataChecksum;
use hayloft_wire::frame;
use hayloft_wire::limits::MAX_TOKEN_BYTES;
use hayloft_wire::packet::{self, PacketParser};
use hayloft_wire::pipeline_ack::PipelineAck;
use hayloft_wire::proto::{clientdatanode, datanode, interdatanode};
use hayloft_wire::rpc;
use hayloft_wire::schema::WireMessage;
use hayloft_wire::token_text::{token_from_text, token_to_text};
use hayloft_wire::transfer::{self, OpMessage, OpRequest};

mod handshake;
mod sasl;
pub mod seeds;

/// A fuzzing target.
#[derive(Clone, Copy, Debug)]
pub struct FuzzTarget {
    /// Name, also of its file under `fuzz/fuzz_targets`.
    pub name: &'static str,
    /// What must hold for any bytes.
    pub run: fn(&[u8]),
    /// Valid inputs to mutate.
    pub seeds: fn() -> Vec<Bytes>,
}

/// Every target.
pub const TARGETS: &[FuzzTarget] = &[
    FuzzTarget {
        name: "op_request",
        run: op_request,
        seeds: seeds::op_requests,
    },
    FuzzTarget {
        name: "op_response",
        run: op_response,
        seeds: seeds::op_responses,
    },
    FuzzTarget {
        name: "packets",
        run: packets,
        seeds: seeds::packets,
    },
    FuzzTarget {
        name: "acks",
        run: acks,
        seeds: seeds::acks,
    },
    FuzzTarget {
        name: "rpc_connection",
        run: rpc_connection,
        seeds: seeds::rpc_connections,
    },
    FuzzTarget {
        name: "rpc_request",
        run: rpc_request,
        seeds: seeds::rpc_requests,
    },
    FuzzTarget {
        name: "rpc_response",
        run: rpc_response,
        seeds: seeds::rpc_responses,
    },
    FuzzTarget {
        name: "messages",
        run: messages,
        seeds: seeds::messages,
    },
    FuzzTarget {
        name: "block_token",
        run: block_token,
        seeds: seeds::block_tokens,
    },
    FuzzTarget {
        name: "token_text",
        run: token_text,
        seeds: seeds::token_texts,
    },
    FuzzTarget {
        name: "block_report",
        run: block_report,
        seeds: seeds::block_reports,
    },
    FuzzTarget {
        name: "meta_header",
        run: meta_header,
        seeds: seeds::meta_headers,
    },
    FuzzTarget {
        name: "sasl",
        run: sasl,
        seeds: sasl::seeds,
    },
    FuzzTarget {
        name: "handshake",
        run: handshake,
        seeds: handshake::seeds,
    },
];

/// Decodes the front of `data`; checks that an incomplete decode changes nothing.
fn decode_front<T, E>(
    data: &[u8],
    decode: impl Fn(&mut BytesMut) -> Result<Option<T>, E>,
) -> Option<T> {
    let mut buf = BytesMut::from(data);
    match decode(&mut buf) {
        Ok(None) => {
            assert_eq!(&buf[..], data, "incomplete input must stay as it is");
            None
        }
        Ok(Some(value)) => {
            assert!(data.ends_with(&buf), "a decode takes from the front only");
            Some(value)
        }
        Err(_) => None,
    }
}

/// Requests of data transfer.
pub fn op_request(data: &[u8]) {
    let Some(request) = decode_front(data, transfer::decode_request) else {
        return;
    };
    match request {
        OpRequest::WriteBlock(r) => op_again(&r.message),
        OpRequest::ReadBlock(r) => op_again(&r.message),
        OpRequest::ReplaceBlock(r) => op_again(&r.message),
        OpRequest::CopyBlock(r) => op_again(&r.message),
        OpRequest::BlockChecksum(r) => op_again(&r.message),
        OpRequest::TransferBlock(r) => op_again(&r.message),
        OpRequest::RequestShortCircuitFds(r) => op_again(&r.message),
        OpRequest::BlockGroupChecksum(r) => op_again(&r.message),
        OpRequest::ReleaseShortCircuitFds(m) => op_again(&m),
        OpRequest::RequestShortCircuitShm(m) => op_again(&m),
        OpRequest::Custom(m) => op_again(&m),
    }
}

fn op_again<M: OpMessage>(message: &M) {
    let mut buf = BytesMut::new();
    transfer::encode_request(message, &mut buf);
    let again = transfer::decode_request(&mut buf).expect("our own encoding is valid");
    assert_eq!(again.map(|request| request.op()), Some(M::OP));
    assert!(buf.is_empty());
}

/// Answers of data transfer.
pub fn op_response(data: &[u8]) {
    if let Some(response) = decode_front(data, transfer::decode_response) {
        let _any_status = response.outcome();
        message_again(&response);
    }
    let _any_outcome = decode_front(data, transfer::decode_client_read_status);
}

/// A stream of packets.
pub fn packets(data: &[u8]) {
    let parser = PacketParser::default();
    let mut buf = BytesMut::from(data);
    while let Ok(Some(packet)) = parser.parse(&mut buf) {
        assert_eq!(packet.data.len(), packet.header.data_len as usize);
        assert!(packet.raw.ends_with(&packet.data));
        let mut again = BytesMut::new();
        packet::encode_packet(&packet.header, &packet.sums, &packet.data, &mut again);
        let again = parser.parse(&mut again).expect("valid").expect("complete");
        assert_eq!(
            (again.header, again.sums, again.data),
            (packet.header, packet.sums, packet.data)
        );
    }
}

/// Acknowledgements.
pub fn acks(data: &[u8]) {
    let Some(ack) = decode_front(data, PipelineAck::decode) else {
        return;
    };
    let _any_outcome = (ack.is_success(), ack.oob_status());
    let mut buf = BytesMut::from(&ack.to_bytes()[..]);
    assert_eq!(PipelineAck::decode(&mut buf), Ok(Some(ack)));
}

/// The start of an RPC connection: header, then frames.
pub fn rpc_connection(data: &[u8]) {
    const LIMIT_BYTES: usize = 1 << 16;
    let mut buf = BytesMut::from(data);
    if !matches!(rpc::ConnectionHeader::decode(&mut buf), Ok(Some(_))) {
        return;
    }
    while let Ok(Some(frame)) = rpc::decode_frame(&mut buf, LIMIT_BYTES) {
        rpc_request(&frame);
    }
}

/// A frame from an RPC client.
pub fn rpc_request(data: &[u8]) {
    match rpc::parse_request(Bytes::copy_from_slice(data)) {
        Ok(rpc::IncomingFrame::Call(call)) => {
            for decode in CALL_MESSAGES {
                decode(call.message.clone());
            }
            let _frame = rpc::encode_success(&call.header, &call.request);
        }
        Ok(rpc::IncomingFrame::Sasl(_, sasl)) => {
            let _frame = rpc::encode_sasl_response(&sasl);
        }
        Ok(rpc::IncomingFrame::Context(_) | rpc::IncomingFrame::Ping) => {}
        Err(bad) => {
            let _frame = rpc::encode_fatal(bad.header.as_deref(), &bad.error);
        }
    }
}

/// A frame from an RPC server.
pub fn rpc_response(data: &[u8]) {
    let Ok(response) = rpc::parse_response(Bytes::copy_from_slice(data)) else {
        return;
    };
    match response.outcome {
        Ok(body) => messages(&body),
        Err(error) => {
            let _any_text = (error.summary().len(), error.to_string());
        }
    }
}

fn try_message<M: WireMessage + PartialEq>(bytes: Bytes) {
    if let Ok(message) = frame::decode::<M>(bytes) {
        message_again(&message);
    }
}

fn message_again<M: WireMessage + PartialEq>(message: &M) {
    let again: M =
        frame::decode(message.encode_to_vec().into()).expect("our own encoding is valid");
    // Not compared by value: a float that is no number differs from itself.
    assert_eq!(again.encode_to_vec(), message.encode_to_vec());
}

/// Messages that clients and DataNodes send to our RPC server.
const CALL_MESSAGES: &[fn(Bytes)] = &[
    try_message::<interdatanode::InitReplicaRecoveryRequest>,
    try_message::<interdatanode::UpdateReplicaUnderRecoveryRequest>,
    try_message::<clientdatanode::GetReplicaVisibleLengthRequest>,
    try_message::<clientdatanode::DeleteBlockPoolRequest>,
    try_message::<clientdatanode::GetBlockLocalPathInfoRequest>,
    try_message::<clientdatanode::SubmitDiskBalancerPlanRequest>,
    try_message::<clientdatanode::TriggerBlockReportRequest>,
];

/// Messages that a NameNode sends us, and the richest of ours.
pub fn messages(data: &[u8]) {
    let bytes = Bytes::copy_from_slice(data);
    try_message::<datanode::HeartbeatResponse>(bytes.clone());
    try_message::<datanode::BlockReportResponse>(bytes.clone());
    try_message::<datanode::CacheReportResponse>(bytes.clone());
    try_message::<datanode::RegisterDatanodeResponse>(bytes.clone());
    try_message::<datanode::HeartbeatRequest>(bytes.clone());
    for decode in CALL_MESSAGES {
        decode(bytes.clone());
    }
}

/// Block token identifiers.
pub fn block_token(data: &[u8]) {
    let Ok(token) = BlockTokenIdentifier::decode(&Bytes::copy_from_slice(data)) else {
        return;
    };
    // The forms differ in length. An expiry date before 1970 or just after can make the first byte
    // of the older form look like that of the other.
    let again = [token.encode_protobuf(), token.encode_legacy()];
    let comparable = if token.expiry_millis > 127 { 2 } else { 1 };
    for bytes in again
        .iter()
        .take(comparable)
        .filter(|b| b.len() <= MAX_TOKEN_BYTES)
    {
        assert_eq!(BlockTokenIdentifier::decode(bytes).as_ref(), Ok(&token));
    }
}

/// Tokens of users, as text.
pub fn token_text(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if let Ok(token) = token_from_text(text) {
        assert_eq!(token_from_text(&token_to_text(&token)), Ok(token));
    }
}

/// Block report buffers; the first byte says where the buffers are cut.
pub fn block_report(data: &[u8]) {
    let Some((&cut, rest)) = data.split_first() else {
        return;
    };
    let buffers: Vec<Bytes> = rest
        .chunks(usize::from(cut).max(1))
        .map(Bytes::copy_from_slice)
        .collect();
    let mut encoder = ReportEncoder::new();
    let mut replicas = Vec::new();
    for replica in ReportDecoder::new(&buffers) {
        let Ok(replica) = replica else { break };
        encoder.push(replica);
        replicas.push(replica);
    }
    let (count, buffers) = encoder.finish();
    assert_eq!(count, replicas.len() as u64);
    let again: Result<Vec<_>, _> = ReportDecoder::new(&buffers).collect();
    assert_eq!(again, Ok(replicas));
}

/// Headers of meta files.
pub fn meta_header(data: &[u8]) {
    if let Ok(checksum) = DataChecksum::decode_meta_header(data) {
        assert!(data.starts_with(&checksum.encode_meta_header()));
    }
}

/// Handshakes of SASL, and messages behind them.
pub fn sasl(data: &[u8]) {
    sasl::check(data);
}

/// Steps of the handshake before a data transfer.
pub fn handshake(data: &[u8]) {
    handshake::check(data);
}
