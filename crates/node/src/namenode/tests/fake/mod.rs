//! A NameNode, a store and a node that do as the test says and remember what they were told. Only
//! for timing and order; whether a real NameNode agrees is tested against a real one.

mod node;
mod store;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use hayloft_wire::frame;
use hayloft_wire::proto::datanode::{
    BlockReceivedAndDeletedRequest, BlockReceivedAndDeletedResponse, BlockReportRequest,
    BlockReportResponse, CacheReportRequest, CacheReportResponse, DatanodeCommand,
    ErrorReportResponse, HeartbeatRequest, HeartbeatResponse, LifelineResponse,
    RegisterDatanodeRequest, RegisterDatanodeResponse, ReportBadBlocksRequest,
    ReportBadBlocksResponse,
};
use hayloft_wire::proto::hdfs::RollingUpgradeStatus;
use hayloft_wire::proto::hdfs_server::{
    ExportedBlockKeys, NamespaceInfo, NnHaState, NnHaStatusHeartbeat,
    StorageInfo as WireStorageInfo, VersionResponse,
};
use hayloft_wire::rpc::{self, IncomingFrame, RpcErrorCode, RpcRequestHeader};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

pub use node::{Node, eventually};
pub use store::{FakeStore, storage};

pub const POOL: &str = "BP-1-127.0.0.1-1";
pub const UUID: &str = "00000000-0000-0000-0000-000000000001";

/// One thing that the NameNode was told.
#[derive(Clone, Debug, PartialEq)]
pub enum Told {
    Version,
    Registered,
    Heartbeat(Box<HeartbeatRequest>),
    /// (block id, generation stamp, status) of all entries.
    Incremental(Vec<(i64, u64, i32)>),
    Full(Box<BlockReportRequest>),
    /// The ids of the blocks that are cached.
    Cached(Vec<i64>),
    Bad(ReportBadBlocksRequest),
    Lifeline,
    Error,
}

/// How the fake NameNode answers.
pub struct Script {
    pub ha: NnHaState,
    pub txid: u64,
    pub namespace_id: u32,
    pub commands: VecDeque<DatanodeCommand>,
    pub lease: u64,
    pub report_takes: Duration,
    /// The full report's message with this number fails, once.
    pub fail_report_rpc: Option<i32>,
    /// How long the NameNode thinks over an incremental report.
    pub incremental_takes: Duration,
    /// Incremental reports that fail before one is taken.
    pub incremental_failures: usize,
    /// Exception class for heartbeats.
    pub refuse: Option<&'static str>,
    /// Exception class for the handshake.
    pub refuse_version: Option<&'static str>,
    /// Block tokens are on.
    pub tokens: bool,
    /// Keys that the registration hands out with them.
    pub keys: ExportedBlockKeys,
    /// Heartbeats are never answered.
    pub hang: bool,
    pub rolling_upgrade: Option<RollingUpgradeStatus>,
    pub told: Vec<(Instant, Told)>,
}

#[derive(Clone)]
pub struct FakeNameNode {
    pub addr: SocketAddr,
    script: Arc<Mutex<Script>>,
    server: Arc<Mutex<Option<JoinHandle<()>>>>,
}

impl FakeNameNode {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let fake = Self {
            addr: listener.local_addr().expect("address"),
            script: Arc::new(Mutex::new(Script {
                ha: NnHaState::Active,
                txid: 10,
                namespace_id: 7,
                commands: VecDeque::new(),
                lease: 99,
                report_takes: Duration::ZERO,
                fail_report_rpc: None,
                incremental_takes: Duration::ZERO,
                incremental_failures: 0,
                refuse: None,
                refuse_version: None,
                tokens: false,
                keys: super::commands::keys(),
                hang: false,
                rolling_upgrade: None,
                told: Vec::new(),
            })),
            server: Arc::default(),
        };
        fake.serve(listener);
        fake
    }

    fn serve(&self, listener: TcpListener) {
        let script = Arc::clone(&self.script);
        let server = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(connection(stream, Arc::clone(&script)));
            }
        });
        *self.server.lock().expect("no panic") = Some(server);
    }

    /// Goes away, with all connections.
    pub async fn stop(&self) {
        let server = self.server.lock().expect("no panic").take();
        if let Some(server) = server {
            server.abort();
            let _ = server.await;
        }
    }

    /// Comes back at the same address.
    pub async fn restart(&self) {
        let listener = TcpListener::bind(self.addr)
            .await
            .expect("the port is still free");
        self.serve(listener);
    }

    pub fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().expect("no panic")
    }

    pub fn command(&self, command: DatanodeCommand) {
        self.script().commands.push_back(command);
    }

    pub fn count(&self, what: impl Fn(&Told) -> bool) -> usize {
        self.script()
            .told
            .iter()
            .filter(|(_, told)| what(told))
            .count()
    }

    /// All entries of incremental reports that were taken.
    pub fn news(&self) -> Vec<(i64, u64, i32)> {
        let script = self.script();
        let news = script.told.iter().filter_map(|(_, told)| match told {
            Told::Incremental(entries) => Some(entries.clone()),
            _ => None,
        });
        news.flatten().collect()
    }
}

async fn connection(mut stream: tokio::net::TcpStream, script: Arc<Mutex<Script>>) {
    let mut header = [0; rpc::CONNECTION_HEADER_BYTES];
    if stream.read_exact(&mut header).await.is_err() {
        return;
    }
    let (mut read, mut write) = stream.into_split();
    let (answers, mut queue) = mpsc::channel::<Bytes>(64);
    let mut calls = tokio::task::JoinSet::new();
    calls.spawn(async move {
        while let Some(answer) = queue.recv().await {
            if write.write_all(&answer).await.is_err() {
                return;
            }
        }
    });
    while let Ok(len) = read.read_u32().await {
        let mut frame = vec![0; usize::try_from(len).expect("fits")];
        if read.read_exact(&mut frame).await.is_err() {
            return;
        }
        if let Ok(IncomingFrame::Call(call)) = rpc::parse_request(frame.into()) {
            let (script, answers) = (Arc::clone(&script), answers.clone());
            calls.spawn(async move {
                let answer = serve_call(&call, &script).await;
                let _ = answers.send(answer).await;
            });
        }
    }
}

fn error(header: &RpcRequestHeader, class: &str) -> Bytes {
    rpc::encode_error(
        header,
        RpcErrorCode::ErrorApplication,
        class,
        "as the test says",
    )
}

async fn serve_call(call: &rpc::IncomingCall, script: &Mutex<Script>) -> Bytes {
    let header = &call.header;
    let message = call.message.clone();
    let tell = |told| {
        script
            .lock()
            .expect("no panic")
            .told
            .push((Instant::now(), told))
    };
    match call.request.method_name.as_str() {
        "versionRequest" => {
            tell(Told::Version);
            let script = script.lock().expect("no panic");
            if let Some(class) = script.refuse_version {
                return error(header, class);
            }
            let namespace_id = script.namespace_id;
            rpc::encode_success(header, &version(namespace_id))
        }
        "registerDatanode" => {
            tell(Told::Registered);
            let request: RegisterDatanodeRequest = frame::decode(message).expect("registration");
            let mut registration = request.registration;
            let script = script.lock().expect("no panic");
            if script.tokens {
                registration.keys = script.keys.clone();
            }
            rpc::encode_success(header, &RegisterDatanodeResponse { registration })
        }
        "sendHeartbeat" => {
            let request: HeartbeatRequest = frame::decode(message).expect("heartbeat");
            let wants_lease = request.request_full_block_report_lease();
            tell(Told::Heartbeat(Box::new(request)));
            let hang = script.lock().expect("no panic").hang;
            if hang {
                return std::future::pending().await;
            }
            let mut script = script.lock().expect("no panic");
            if let Some(class) = script.refuse {
                return error(header, class);
            }
            let answer = HeartbeatResponse {
                cmds: script.commands.drain(..).collect(),
                ha_status: NnHaStatusHeartbeat {
                    state: script.ha.into(),
                    txid: script.txid,
                },
                rolling_upgrade_status_v2: script.rolling_upgrade.clone(),
                full_block_report_lease_id: Some(if wants_lease { script.lease } else { 0 }),
                ..HeartbeatResponse::default()
            };
            rpc::encode_success(header, &answer)
        }
        "blockReceivedAndDeleted" => {
            let takes = script.lock().expect("no panic").incremental_takes;
            tokio::time::sleep(takes).await;
            {
                let mut script = script.lock().expect("no panic");
                if script.incremental_failures > 0 {
                    script.incremental_failures -= 1;
                    return error(header, "java.io.IOException");
                }
            }
            let request: BlockReceivedAndDeletedRequest = frame::decode(message).expect("report");
            let entries = request.blocks.iter().flat_map(|storage| &storage.blocks);
            let entries = entries
                .map(|entry| {
                    (
                        entry.block.block_id.cast_signed(),
                        entry.block.gen_stamp,
                        entry.status,
                    )
                })
                .collect();
            tell(Told::Incremental(entries));
            rpc::encode_success(header, &BlockReceivedAndDeletedResponse {})
        }
        "blockReport" => {
            let request: BlockReportRequest = frame::decode(message).expect("report");
            let takes = script.lock().expect("no panic").report_takes;
            tokio::time::sleep(takes).await;
            let cur_rpc = request.context.as_ref().map(|context| context.cur_rpc);
            tell(Told::Full(Box::new(request)));
            let mut script = script.lock().expect("no panic");
            if cur_rpc.is_some() && script.fail_report_rpc == cur_rpc {
                script.fail_report_rpc = None;
                return error(header, "java.io.IOException");
            }
            rpc::encode_success(header, &BlockReportResponse { cmd: None })
        }
        "cacheReport" => {
            let request: CacheReportRequest = frame::decode(message).expect("cache report");
            assert_eq!(request.block_pool_id, POOL);
            let ids = request.blocks.iter().map(|id| id.cast_signed());
            tell(Told::Cached(ids.collect()));
            rpc::encode_success(header, &CacheReportResponse { cmd: None })
        }
        "reportBadBlocks" => {
            tell(Told::Bad(frame::decode(message).expect("bad blocks")));
            rpc::encode_success(header, &ReportBadBlocksResponse {})
        }
        "sendLifeline" => {
            tell(Told::Lifeline);
            rpc::encode_success(header, &LifelineResponse {})
        }
        "errorReport" => {
            tell(Told::Error);
            rpc::encode_success(header, &ErrorReportResponse {})
        }
        other => error(header, &format!("no.such.{other}Exception")),
    }
}

fn version(namespace_id: u32) -> VersionResponse {
    VersionResponse {
        info: NamespaceInfo {
            block_pool_id: POOL.to_owned(),
            storage_info: WireStorageInfo {
                layout_version: (-67i32).cast_unsigned(),
                namespce_id: namespace_id,
                cluster_id: "CID-1".to_owned(),
                c_time: 0,
            },
            software_version: "3.5.0".to_owned(),
            capabilities: Some(1),
            ..NamespaceInfo::default()
        },
    }
}
