//! A NameNode and a node that do as a test says: what is asked of them where something fails.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard};

use bytes::{Bytes, BytesMut};
use hayloft_rpc::server::fault::RpcFault;
use hayloft_rpc::server::{Caller as RpcCaller, Limits, RpcCall, Service, serve};
use hayloft_wire::checksum::{ChecksumKind, DataChecksum};
use hayloft_wire::frame;
use hayloft_wire::packet::{PacketHeader, encode_packet};
use hayloft_wire::proto::client as pb;
use hayloft_wire::proto::file_status::{FileEncryptionInfo, HdfsFileStatus};
use hayloft_wire::proto::hdfs::{
    DatanodeId, DatanodeInfo, EcSchema, ErasureCodingPolicy, ExtendedBlock, LocatedBlock,
};
use hayloft_wire::proto::namespace::GetFsStatsResponse;
use hayloft_wire::transfer::{self, BlockOpResponse, OpRequest};
use prost::Message as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use super::*;

const CELL: u64 = 1024;
const CHUNK: u64 = 512;
/// Two whole stripes of two cells, and a part of a third.
const GROUP: u64 = 4 * CELL + 700;
const GROUP_ID: i64 = -1 << 20;
const APPENDED: u64 = 7;

/// What a node does with one request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// Closes the connection without an answer.
    Refuse,
    /// Closes it behind the first packet.
    Break,
    /// Sends other bytes than it should.
    Flip,
}

/// What both do, and were asked.
#[derive(Default)]
struct Script {
    /// By index of the unit, the next one last.
    faults: HashMap<usize, Vec<Fault>>,
    /// Reads by index of the unit, with the offset that they begin at.
    reads: Vec<(usize, u64)>,
    located: usize,
    /// Another file has taken the striped one's name.
    replaced: bool,
    completed: Vec<pb::CompleteRequest>,
    bad: Vec<LocatedBlock>,
}

type Shared = Arc<Mutex<Script>>;

fn locked(script: &Shared) -> MutexGuard<'_, Script> {
    script.lock().expect("no panic")
}

fn byte(at: u64) -> u8 {
    u8::try_from(at % 251).expect("less than 251")
}

/// Bytes of the units: two with data, then their parity.
fn units() -> Vec<Vec<u8>> {
    let mut units = vec![Vec::new(), Vec::new()];
    for at in 0..GROUP {
        units[usize::try_from(at / CELL % 2).expect("0 or 1")].push(byte(at));
    }
    let other = units[1].iter().copied().chain(std::iter::repeat(0));
    let parity = units[0].iter().zip(other).map(|(a, b)| a ^ b).collect();
    units.push(parity);
    units
}

/// A NameNode that has one striped file, and one that may be appended to but is encrypted.
struct NameNode {
    script: Shared,
    /// Of the node that has all units.
    node: u16,
    /// Units that are known.
    width: u8,
}

fn block(id: i64, len: u64) -> ExtendedBlock {
    ExtendedBlock {
        pool_id: "BP-1-127.0.0.1-1".into(),
        block_id: id.cast_unsigned(),
        generation_stamp: 1001,
        num_bytes: Some(len),
    }
}

impl NameNode {
    fn located(&self) -> pb::LocatedBlocks {
        let node = DatanodeInfo {
            id: DatanodeId {
                ip_addr: "127.0.0.1".into(),
                xfer_port: self.node.into(),
                ..DatanodeId::default()
            },
            ..DatanodeInfo::default()
        };
        let width = usize::from(self.width);
        let group = LocatedBlock {
            b: block(GROUP_ID, GROUP),
            locs: vec![node; width],
            is_cached: vec![true; width],
            storage_types: vec![1; width],
            storage_ids: (0..width).map(|index| format!("DS-{index}")).collect(),
            block_indices: Some((0..self.width).collect::<Vec<_>>().into()),
            ..LocatedBlock::default()
        };
        pb::LocatedBlocks {
            file_length: GROUP,
            blocks: vec![group],
            is_last_block_complete: true,
            ec_policy: Some(ErasureCodingPolicy {
                id: 70,
                cell_size: Some(u32::try_from(CELL).expect("small")),
                schema: Some(EcSchema {
                    codec_name: "xor".into(),
                    data_units: 2,
                    parity_units: 1,
                    ..EcSchema::default()
                }),
                ..ErasureCodingPolicy::default()
            }),
            ..pb::LocatedBlocks::default()
        }
    }
}

impl Service for NameNode {
    async fn authorize(&self, _caller: &RpcCaller) -> Result<(), String> {
        Ok(())
    }

    async fn call(&self, call: RpcCall) -> Result<Bytes, RpcFault> {
        let mut script = locked(&self.script);
        Ok(match call.method.as_str() {
            "getServerDefaults" => frame::delimited(&pb::GetServerDefaultsResponse {
                server_defaults: pb::FsServerDefaults {
                    bytes_per_checksum: 512,
                    write_packet_size: 65_536,
                    ..pb::FsServerDefaults::default()
                },
            }),
            "append" => frame::delimited(&pb::AppendResponse {
                block: Some(LocatedBlock {
                    b: block(1, APPENDED),
                    ..LocatedBlock::default()
                }),
                stat: Some(HdfsFileStatus {
                    blocksize: Some(CELL),
                    file_id: Some(16_386),
                    file_encryption_info: Some(FileEncryptionInfo::default()),
                    ..HdfsFileStatus::default()
                }),
            }),
            "complete" => {
                let request = pb::CompleteRequest::decode(call.request).expect("a request");
                script.completed.push(request);
                frame::delimited(&pb::CompleteResponse { result: true })
            }
            "getBlockLocations" => {
                script.located += 1;
                let mut locations = self.located();
                if script.replaced {
                    locations.blocks[0].b = block(GROUP_ID - 16, GROUP);
                }
                let locations = Some(locations);
                frame::delimited(&pb::GetBlockLocationsResponse { locations })
            }
            "getFsStats" => frame::delimited(&GetFsStatsResponse::default()),
            "reportBadBlocks" => {
                let request = pb::ReportBadReplicasRequest::decode(call.request);
                script.bad.extend(request.expect("a request").blocks);
                frame::delimited(&pb::ReportBadReplicasResponse {})
            }
            other => return Err(RpcFault::no_such_method(&call.protocol, other)),
        })
    }
}

/// Serves one read of a unit.
async fn serve_read(mut socket: TcpStream, script: Shared) -> Option<()> {
    let mut buffer = BytesMut::new();
    let read = loop {
        match transfer::decode_request(&mut buffer).ok()? {
            Some(OpRequest::ReadBlock(read)) => break read,
            Some(_) => return None,
            None => socket.read_buf(&mut buffer).await.ok()?,
        };
    };
    let index = usize::try_from(read.block.block.id - GROUP_ID).ok()?;
    let fault = {
        let mut script = locked(&script);
        script.reads.push((index, read.message.offset));
        script.faults.get_mut(&index).and_then(Vec::pop)
    };
    if fault == Some(Fault::Refuse) {
        return None;
    }
    let sums = DataChecksum::new(ChecksumKind::Crc32c, 512).expect("valid");
    let first = read.message.offset / CHUNK * CHUNK;
    let mut out = BytesMut::from(&frame::delimited(&BlockOpResponse::read(sums, first))[..]);
    let unit = units().swap_remove(index);
    let mut at = usize::try_from(first).ok()?;
    let packet = |at: usize, data: &[u8], out: &mut BytesMut| {
        let header = PacketHeader {
            offset_in_block: at as u64,
            last_packet_in_block: data.is_empty(),
            data_len: u32::try_from(data.len()).expect("small"),
            ..PacketHeader::default()
        };
        let mut all = Vec::new();
        sums.compute(data, &mut all);
        let mut data = data.to_vec();
        if let (Some(Fault::Flip), Some(byte)) = (fault, data.first_mut()) {
            *byte ^= 1;
        }
        encode_packet(&header, &all, &data, out);
    };
    for data in unit[at..].chunks(512) {
        packet(at, data, &mut out);
        at += data.len();
        if fault == Some(Fault::Break) {
            socket.write_all(&out).await.ok()?;
            return None;
        }
    }
    packet(at, &[], &mut out);
    socket.write_all(&out).await.ok()?;
    let _ = socket.read(&mut [0; 100]).await;
    Some(())
}

/// Both, and a client of theirs; the NameNode knows `width` units.
async fn start(width: u8) -> (FileClient, Shared) {
    let script = Shared::default();
    let bind = async || TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let (node, namenode) = (bind().await, bind().await);
    let address = |of: &TcpListener| of.local_addr().expect("bound");
    let (at, rpc): (SocketAddr, SocketAddr) = (address(&node), address(&namenode));
    let of_node = Arc::clone(&script);
    tokio::spawn(async move {
        while let Ok((socket, _)) = node.accept().await {
            tokio::spawn(serve_read(socket, Arc::clone(&of_node)));
        }
    });
    let service = NameNode {
        script: Arc::clone(&script),
        node: at.port(),
        width,
    };
    let stop = CancellationToken::new();
    tokio::spawn(serve(namenode, service, Limits::default(), stop));
    let config = Configuration::from_properties([("a", "b")]).expect("valid");
    let caller = FileUser {
        user: "alice".into(),
        ..FileUser::default()
    };
    let group = NameNodeGroup::new(vec![rpc.to_string()]);
    let settings = Arc::new(ClientSettings::new(&config, None));
    let transfer = FileTransfer::new(CancellationToken::new());
    let stripes = StripeRoom::new(Arc::new(Turns::new(1)), transfer);
    let client = FileClient::new(&group, settings, caller, stripes);
    (client, script)
}

/// One that takes connections and answers nothing costs a call its limit, and the next one nothing.
#[tokio::test]
async fn a_mute_namenode_is_left_for_the_other() {
    let (other, _script) = start(2).await;
    let mute = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let first = mute.local_addr().expect("bound").to_string();
    let config = Configuration::from_properties([("a", "b")]).expect("valid");
    let settings = ClientSettings::new(&config, None).answered_within(Duration::from_millis(300));
    let transfer = FileTransfer::new(CancellationToken::new());
    let client = FileClient::new(
        &NameNodeGroup::new(vec![first, other.namenode().to_owned()]),
        Arc::new(settings),
        FileUser::default(),
        StripeRoom::new(Arc::new(Turns::new(1)), transfer),
    );
    let began = std::time::Instant::now();
    client.missing_blocks().await.expect("the other answers");
    assert_eq!(client.namenode(), other.namenode());
    client.missing_blocks().await.expect("it still does");
    assert!(began.elapsed() < Duration::from_secs(10));
}

/// Reads the striped file with these faults, and finds it whole.
async fn read_with(width: u8, faults: &[(usize, &[Fault])]) -> Shared {
    let (client, script) = start(width).await;
    locked(&script).faults = faults
        .iter()
        .map(|&(index, of)| (index, of.to_vec()))
        .collect();
    let mut reader = FileReader::open(client, "/f", 0, None)
        .await
        .expect("it is there");
    let mut all = Vec::new();
    while let Some(bytes) = reader.next().await.expect("it can be read") {
        all.extend_from_slice(&bytes);
    }
    assert!((0..GROUP).map(byte).eq(all), "other bytes");
    script
}

#[tokio::test]
async fn a_unit_whose_connection_ends_is_read_on() {
    let script = read_with(2, &[(0, &[Fault::Break, Fault::Break])]).await;
    let script = locked(&script);
    let of_unit: Vec<u64> = script
        .reads
        .iter()
        .filter(|of| of.0 == 0)
        .map(|of| of.1)
        .collect();
    assert_eq!((of_unit, script.located), (vec![0, 512, 1024], 1));
}

#[tokio::test]
async fn a_group_that_cannot_be_read_is_asked_for_again() {
    let script = read_with(2, &[(1, &[Fault::Refuse])]).await;
    assert_eq!(locked(&script).located, 2);
    let (client, script) = start(2).await;
    locked(&script).faults = HashMap::from([(0, vec![Fault::Refuse; 9])]);
    let mut reader = FileReader::open(client, "/f", 0, None)
        .await
        .expect("it is there");
    let missing = reader.next().await.expect_err("no unit");
    assert!(matches!(missing, FileError::BlockMissing(_)), "{missing}");
    assert_eq!(locked(&script).located, 4, "three rounds");
}

#[tokio::test]
async fn a_file_of_the_same_name_is_not_read_on() {
    let (client, script) = start(2).await;
    let opening = FileReader::open(client, "/f", 0, None).await;
    let mut reader = opening.expect("it is there");
    {
        let mut script = locked(&script);
        script.faults = HashMap::from([(1, vec![Fault::Refuse])]);
        script.replaced = true;
    }
    let changed = loop {
        match reader.next().await {
            Ok(bytes) => assert!(bytes.is_some(), "the end"),
            Err(error) => break error.to_string(),
        }
    };
    assert!(changed.contains("has changed"), "{changed}");
}

#[tokio::test]
async fn a_corrupt_unit_is_told_of_and_decoded() {
    let script = read_with(3, &[(1, &[Fault::Flip])]).await;
    let bad = locked(&script).bad.clone();
    let [bad] = &bad[..] else {
        panic!("{bad:?}");
    };
    assert_eq!(bad.b.block_id, (GROUP_ID + 1).cast_unsigned());
    assert_eq!(
        (bad.locs.len(), &bad.storage_ids[..]),
        (1, &["DS-1".to_owned()][..])
    );
    assert!(bad.is_cached.is_empty() && bad.block_indices.is_none());
}

#[tokio::test]
async fn a_file_that_cannot_be_written_on_is_ended() {
    let (client, script) = start(2).await;
    let name = client.name.clone();
    let refused = FileWriter::append(client, "/encrypted").await.err();
    assert!(
        matches!(refused, Some(FileError::NotAllowed(_))),
        "{refused:?}"
    );
    let wanted = pb::CompleteRequest {
        src: "/encrypted".into(),
        client_name: name,
        last: Some(block(1, APPENDED)),
        file_id: Some(16_386),
    };
    assert_eq!(locked(&script).completed, [wanted]);
}
