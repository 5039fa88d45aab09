//! The IPC port of nodes with real stores, called over TCP with this crate's own RPC client; and
//! block recovery between such nodes. What surrounds them is faked.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use hayloft_node::config::{Configuration, HostPort, SharedConfig};
use hayloft_node::ipc::{self, Host};
use hayloft_node::recovery::BlockRecovery;
use hayloft_node::rpc::{
    CLIENT_DATANODE_PROTOCOL, INTER_DATANODE_PROTOCOL, RpcClient, RpcError, RpcOptions,
    current_user,
};
use hayloft_store::{
    PacketData, PoolSpec, StartOption, StorageInfo, Store, StoreConfig, VolumeConfig, WriteOptions,
};
use hayloft_wire::checksum::{ChecksumKind, DataChecksum};
use hayloft_wire::ids::{Block, ExtendedBlock, PoolId, ReplicaState};
use hayloft_wire::proto::clientdatanode::*;
use hayloft_wire::proto::datanode::CommitBlockSynchronizationRequest;
use hayloft_wire::proto::hdfs as pb;
use hayloft_wire::proto::interdatanode::{InitReplicaRecoveryRequest, InitReplicaRecoveryResponse};
use hayloft_wire::proto::reconfiguration::*;
use hayloft_wire::rpc::names;
use hayloft_wire::schema::WireMessage;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

fn pool() -> PoolId {
    PoolId::new("BP-1-127.0.0.1-1700000000000").expect("valid")
}

fn block(id: i64, stamp: u64, length: u64) -> ExtendedBlock {
    ExtendedBlock::new(pool(), Block::new(id, stamp, length))
}

/// What the rest of a node would have been told to do.
#[derive(Default)]
struct Seen {
    received: Mutex<Vec<ExtendedBlock>>,
    commits: Mutex<Vec<CommitBlockSynchronizationRequest>>,
    reports: Mutex<Vec<(bool, Option<String>)>>,
    evictions: AtomicUsize,
    shutdowns: AtomicUsize,
    changes: AtomicUsize,
}

struct FakeHost {
    config: SharedConfig,
    store: Store,
    id: pb::DatanodeId,
    seen: Seen,
}

impl Host for FakeHost {
    fn config(&self) -> &SharedConfig {
        &self.config
    }

    fn store(&self) -> &Store {
        &self.store
    }

    fn software_version(&self) -> String {
        "3.5.0".to_owned()
    }

    fn uptime(&self) -> Duration {
        Duration::from_millis(12_999)
    }

    fn serves(&self, of: &PoolId) -> bool {
        *of == pool()
    }

    fn registration(&self, of: &PoolId) -> Option<pb::DatanodeId> {
        (*of == pool()).then(|| self.id.clone())
    }

    fn received(&self, block: &ExtendedBlock, _storage: &StorageInfo) {
        self.seen
            .received
            .lock()
            .expect("no panic")
            .push(block.clone());
    }

    fn commit_block_synchronization<'a>(
        &'a self,
        _pool: &'a PoolId,
        request: CommitBlockSynchronizationRequest,
    ) -> BoxFuture<'a, Result<(), RpcError>> {
        self.seen.commits.lock().expect("no panic").push(request);
        async { Ok(()) }.boxed()
    }

    fn refresh_namenodes(&self) -> BoxFuture<'_, Result<(), String>> {
        async { Err("no NameNode is configured".to_owned()) }.boxed()
    }

    fn namenodes(&self) -> Vec<HostPort> {
        let named = |text| HostPort::parse_with_default(text, None).expect("valid");
        vec![named("localhost:8020"), named("10.1.2.3:8020")]
    }

    fn trigger_block_report(&self, incremental: bool, namenode: Option<&HostPort>) {
        let report = (incremental, namenode.map(ToString::to_string));
        self.seen.reports.lock().expect("no panic").push(report);
    }

    fn evict_writers(&self) {
        self.seen.evictions.fetch_add(1, Ordering::SeqCst);
    }

    fn balancer_bandwidth(&self) -> u64 {
        12_345
    }

    fn shutdown(&self, _for_upgrade: bool) -> bool {
        self.seen.shutdowns.fetch_add(1, Ordering::SeqCst) == 0
    }

    fn config_changed(&self) {
        self.seen.changes.fetch_add(1, Ordering::SeqCst);
    }
}

/// A node: directory, store, IPC port.
struct Node {
    dir: TempDir,
    host: Arc<FakeHost>,
    address: String,
    stop: CancellationToken,
    _events: mpsc::Receiver<hayloft_store::StoreEvent>,
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn write_site(dir: &Path, properties: &[(&str, &str)]) {
    let properties: String = properties
        .iter()
        .map(|(name, value)| {
            format!("<property><name>{name}</name><value>{value}</value></property>")
        })
        .collect();
    let text = format!("<configuration>{properties}</configuration>");
    std::fs::write(dir.join("hdfs-site.xml"), text).expect("writable");
}

impl Node {
    async fn start(name: &str) -> Self {
        let dir = tempfile::tempdir().expect("temporary directory");
        let data = dir.path().join("data");
        let data_dir = data.display().to_string();
        write_site(dir.path(), &[("dfs.datanode.data.dir", &data_dir)]);
        let config = Configuration::load(dir.path(), &[]).expect("valid");
        let (sender, events) = mpsc::channel(100);
        let store_config = StoreConfig {
            volumes: vec![VolumeConfig::new(&data)],
            writer_stop_timeout: Duration::from_millis(500),
            ..StoreConfig::default()
        };
        let store = Store::open(store_config, sender).await.expect("opens");
        let spec = PoolSpec {
            pool: pool(),
            cluster_id: "CID-1".to_owned(),
            namespace_id: 77,
            ctime: 0,
        };
        store
            .add_pool(spec, StartOption::Regular)
            .await
            .expect("loads");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let host = Arc::new(FakeHost {
            config: SharedConfig::new(config),
            store,
            id: pb::DatanodeId {
                ip_addr: "127.0.0.1".to_owned(),
                datanode_uuid: name.to_owned(),
                ipc_port: u32::from(address.port()),
                ..pb::DatanodeId::default()
            },
            seen: Seen::default(),
        });
        let stop = CancellationToken::new();
        tokio::spawn(ipc::serve(host.clone(), listener, stop.clone()));
        Self {
            dir,
            host,
            address: address.to_string(),
            stop,
            _events: events,
        }
    }

    fn client(&self, user: &str) -> RpcClient {
        let options = RpcOptions {
            user: user.to_owned(),
            ..RpcOptions::default()
        };
        RpcClient::new(self.address.clone(), CLIENT_DATANODE_PROTOCOL, options)
    }

    fn admin(&self) -> RpcClient {
        self.client(&current_user())
    }

    /// A replica with `length` bytes of which `acked` were acknowledged; finalized when asked for.
    async fn replica(&self, id: i64, length: usize, acked: u64, finalize: bool) {
        let mut writer = self
            .host
            .store
            .create_rbw(&block(id, 1000, 0), WriteOptions::default())
            .await
            .expect("creates");
        let checksum = DataChecksum::new(ChecksumKind::Crc32c, 512).expect("valid");
        writer.set_checksum(checksum).await.expect("header");
        let data = vec![7_u8; length];
        let mut sums = Vec::new();
        for chunk in data.chunks(512) {
            checksum.compute(chunk, &mut sums);
        }
        let packet = PacketData {
            offset: 0,
            data: data.into(),
            sums: Bytes::from(sums),
        };
        writer.write(vec![packet]).await.expect("writes");
        writer.set_bytes_acked(acked);
        if finalize {
            writer.finalize().await.expect("finalizes");
        }
    }

    fn state(&self, id: i64) -> Option<(u64, u64, ReplicaState)> {
        let replica = self.host.store.replica(&pool(), id)?;
        let block = replica.block.block;
        Some((block.generation_stamp, block.num_bytes, replica.state))
    }
}

async fn length(client: &RpcClient, of: &ExtendedBlock) -> Result<u64, RpcError> {
    let request = GetReplicaVisibleLengthRequest { block: of.into() };
    let answer: Result<GetReplicaVisibleLengthResponse, _> =
        client.call("getReplicaVisibleLength", &request).await;
    answer.map(|answer| answer.length)
}

/// Class and message of the exception that a call ends with.
fn refusal<T: std::fmt::Debug>(result: Result<T, RpcError>) -> (String, String) {
    match result {
        Err(RpcError::Remote { class, message, .. }) => (class, message),
        other => panic!("no remote error: {other:?}"),
    }
}

/// Calls a method that must succeed.
async fn done<Resp: WireMessage>(
    client: &RpcClient,
    method: &'static str,
    request: &impl WireMessage,
) -> Resp {
    client.call(method, request).await.expect("succeeds")
}

#[tokio::test]
async fn readers_learn_how_much_they_may_see() {
    let node = Node::start("a").await;
    let client = node.client("anyone");
    node.replica(1, 3000, 3000, true).await;
    node.replica(2, 3000, 1234, false).await;
    assert_eq!(length(&client, &block(1, 1000, 0)).await.ok(), Some(3000));
    assert_eq!(length(&client, &block(2, 1000, 0)).await.ok(), Some(1234));
    assert_eq!(length(&client, &block(1, 999, 0)).await.ok(), Some(3000));
    let newer = length(&client, &block(1, 1001, 0)).await;
    assert_eq!(refusal(newer).0, names::IO_EXCEPTION);
    let missing = length(&client, &block(3, 1000, 0)).await;
    assert_eq!(refusal(missing).0, names::REPLICA_NOT_FOUND);
    let temporary = node
        .host
        .store
        .create_temporary(&block(4, 1000, 0), WriteOptions::default())
        .await
        .expect("creates");
    let unseen = length(&client, &block(4, 1000, 0)).await;
    assert_eq!(unseen.ok(), Some(u64::MAX));
    drop(temporary);
    let other = PoolId::new("BP-other").expect("valid");
    let unregistered = length(&client, &ExtendedBlock::new(other, Block::new(1, 1, 1))).await;
    assert_eq!(refusal(unregistered).0, names::RETRIABLE_EXCEPTION);
}

#[tokio::test]
async fn strangers_may_ask_but_not_command() {
    let node = Node::start("a").await;
    let stranger = node.client("nobody-special");
    let info: GetDatanodeInfoResponse =
        done(&stranger, "getDatanodeInfo", &GetDatanodeInfoRequest {}).await;
    assert_eq!(info.local_info.software_version, "3.5.0");
    assert_eq!(info.local_info.config_version, "core-3.0.0,hdfs-1");
    assert_eq!(info.local_info.uptime, 12);
    let bandwidth: GetBalancerBandwidthResponse = done(
        &stranger,
        "getBalancerBandwidth",
        &GetBalancerBandwidthRequest {},
    )
    .await;
    assert_eq!(bandwidth.bandwidth, 12_345);
    let refused: Result<EvictWritersResponse, _> =
        stranger.call("evictWriters", &EvictWritersRequest {}).await;
    assert_eq!(refusal(refused).0, names::ACCESS_CONTROL_EXCEPTION);
    let refused: Result<StartReconfigurationResponse, _> = stranger
        .call("startReconfiguration", &StartReconfigurationRequest {})
        .await;
    assert_eq!(refusal(refused).0, names::ACCESS_CONTROL_EXCEPTION);
    let shutdown = ShutdownDatanodeRequest { for_upgrade: false };
    let refused: Result<ShutdownDatanodeResponse, _> =
        stranger.call("shutdownDatanode", &shutdown).await;
    assert_eq!(refusal(refused).0, names::ACCESS_CONTROL_EXCEPTION);
    assert_eq!(node.host.seen.evictions.load(Ordering::SeqCst), 0);
    assert_eq!(node.host.seen.shutdowns.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn administrators_command() {
    let node = Node::start("a").await;
    node.replica(1, 3000, 3000, true).await;
    let admin = node.admin();
    let _: EvictWritersResponse = done(&admin, "evictWriters", &EvictWritersRequest {}).await;
    assert_eq!(node.host.seen.evictions.load(Ordering::SeqCst), 1);
    let volumes: GetVolumeReportResponse =
        done(&admin, "getVolumeReport", &GetVolumeReportRequest {}).await;
    assert_eq!(volumes.volume_info.len(), 1);
    assert_eq!(volumes.volume_info[0].num_blocks, 1);
    let refreshed: Result<RefreshNamenodesResponse, _> = admin
        .call("refreshNamenodes", &RefreshNamenodesRequest {})
        .await;
    assert_eq!(refusal(refreshed).1, "no NameNode is configured");
    let shutdown = ShutdownDatanodeRequest { for_upgrade: true };
    let _: ShutdownDatanodeResponse = done(&admin, "shutdownDatanode", &shutdown).await;
    let again: Result<ShutdownDatanodeResponse, _> =
        admin.call("shutdownDatanode", &shutdown).await;
    assert_eq!(refusal(again).1, "Shutdown already in progress.");
}

#[tokio::test]
async fn reports_are_triggered_at_one_namenode_or_all() {
    let node = Node::start("a").await;
    let admin = node.admin();
    for (incremental, address) in [
        (false, None),
        (true, Some("127.0.0.1:8020")),
        (true, Some("10.1.2.3:8020")),
        (false, Some("10.9.9.9:8020")),
    ] {
        let request = TriggerBlockReportRequest {
            incremental,
            nn_address: address.map(str::to_owned),
        };
        let _: TriggerBlockReportResponse = done(&admin, "triggerBlockReport", &request).await;
    }
    let wanted = [
        (false, None),
        (true, Some("localhost:8020".to_owned())),
        (true, Some("10.1.2.3:8020".to_owned())),
    ];
    assert_eq!(*node.host.seen.reports.lock().expect("no panic"), wanted);
    let nonsense = TriggerBlockReportRequest {
        incremental: false,
        nn_address: Some("no port".to_owned()),
    };
    let refused: Result<TriggerBlockReportResponse, _> =
        admin.call("triggerBlockReport", &nonsense).await;
    assert_eq!(refusal(refused).0, names::IO_EXCEPTION);
}

#[tokio::test]
async fn pools_in_use_stay() {
    let node = Node::start("a").await;
    let admin = node.admin();
    let delete = |name: &str| DeleteBlockPoolRequest {
        block_pool: name.to_owned(),
        force: true,
    };
    let refused: Result<DeleteBlockPoolResponse, _> = admin
        .call("deleteBlockPool", &delete(pool().as_str()))
        .await;
    assert!(
        refusal(refused)
            .1
            .starts_with("The block pool is still running.")
    );
    // One that is not there is deleted already.
    let _: DeleteBlockPoolResponse = done(&admin, "deleteBlockPool", &delete("BP-none")).await;
    let refused: Result<DeleteBlockPoolResponse, _> =
        admin.call("deleteBlockPool", &delete("../../etc")).await;
    assert_eq!(refusal(refused).0, names::IO_EXCEPTION);
}

#[tokio::test]
async fn what_is_not_there_says_so_as_apaches_does() {
    let node = Node::start("a").await;
    let admin = node.admin();
    let volumes = DiskBalancerSettingRequest {
        key: "DiskBalancerVolumeName".to_owned(),
    };
    let setting: Result<DiskBalancerSettingResponse, _> =
        admin.call("getDiskBalancerSetting", &volumes).await;
    assert_eq!(refusal(setting).0, names::DISK_BALANCER_EXCEPTION);
    let query: Result<QueryPlanStatusResponse, _> = admin
        .call("queryDiskBalancerPlan", &QueryPlanStatusRequest {})
        .await;
    assert_eq!(refusal(query).1, "Disk Balancer is not enabled.");
    let local = GetBlockLocalPathInfoRequest {
        block: (&block(1, 1000, 0)).into(),
        ..GetBlockLocalPathInfoRequest::default()
    };
    let refused: Result<GetBlockLocalPathInfoResponse, _> =
        admin.call("getBlockLocalPathInfo", &local).await;
    assert_eq!(refusal(refused).0, names::ACCESS_CONTROL_EXCEPTION);
    let unknown: Result<EvictWritersResponse, _> = admin.call("fly", &EvictWritersRequest {}).await;
    assert_eq!(refusal(unknown).0, names::RPC_NO_SUCH_METHOD);
}

async fn status(admin: &RpcClient) -> GetReconfigurationStatusResponse {
    let request = GetReconfigurationStatusRequest {};
    done(admin, "getReconfigurationStatus", &request).await
}

async fn reconfigured(admin: &RpcClient) -> GetReconfigurationStatusResponse {
    let request = StartReconfigurationRequest {};
    let _: StartReconfigurationResponse = done(admin, "startReconfiguration", &request).await;
    loop {
        let status = status(admin).await;
        if status.end_time.is_some() {
            return status;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn changed_files_are_taken_over_key_by_key() {
    let node = Node::start("a").await;
    let admin = node.admin();
    let before = status(&admin).await;
    assert_eq!((before.start_time, before.end_time), (0, None));
    let data = node.dir.path().join("data").display().to_string();
    write_site(
        node.dir.path(),
        &[
            ("dfs.datanode.data.dir", &data),
            ("dfs.datanode.max.transfer.threads", "123"),
            ("dfs.blockreport.intervalMsec", "often"),
            ("dfs.datanode.address", "0.0.0.0:1"),
        ],
    );
    let status = reconfigured(&admin).await;
    let outcome = |name: &str| {
        let mut changes = status.changes.iter();
        changes.find(|change| change.name == name).cloned()
    };
    let threads = outcome("dfs.datanode.max.transfer.threads").expect("changed");
    assert_eq!(threads.old_value, "4096");
    assert_eq!(threads.new_value.as_deref(), Some("123"));
    assert_eq!(threads.error_message, None);
    let interval = outcome("dfs.blockreport.intervalMsec").expect("tried");
    assert!(
        interval
            .error_message
            .is_some_and(|why| why.contains("often"))
    );
    assert_eq!(status.changes.len(), 2, "{status:?}");
    assert_eq!(node.host.seen.changes.load(Ordering::SeqCst), 1);
    let config = node.host.config.current();
    let now = |name: &str| config.text(name);
    assert_eq!(
        now("dfs.datanode.max.transfer.threads").as_deref(),
        Some("123")
    );
    assert_eq!(
        now("dfs.blockreport.intervalMsec").as_deref(),
        Some("21600000")
    );
}

fn recovering(id: i64, recovery_id: u64, nodes: &[&Node]) -> pb::RecoveringBlock {
    pb::RecoveringBlock {
        new_gen_stamp: recovery_id,
        block: pb::LocatedBlock {
            b: (&block(id, 1000, 0)).into(),
            locs: nodes
                .iter()
                .map(|node| pb::DatanodeInfo {
                    id: node.host.id.clone(),
                    ..pb::DatanodeInfo::default()
                })
                .collect(),
            ..pb::LocatedBlock::default()
        },
        ..pb::RecoveringBlock::default()
    }
}

/// Lets `primary` carry out an order to its end.
async fn recover(primary: &Node, order: pb::RecoveringBlock) {
    let tasks = TaskTracker::new();
    let recovery = BlockRecovery::new(primary.host.clone(), primary.stop.clone(), tasks.clone());
    recovery.recover_blocks("the NameNode", vec![order]);
    tasks.close();
    tasks.wait().await;
}

fn only_commit(node: &Node) -> CommitBlockSynchronizationRequest {
    let commits = node.host.seen.commits.lock().expect("no panic");
    assert_eq!(commits.len(), 1);
    commits[0].clone()
}

#[tokio::test]
async fn a_dead_writers_replicas_become_equal() {
    let (a, b) = (Node::start("a").await, Node::start("b").await);
    a.replica(9, 3000, 1000, false).await;
    b.replica(9, 2000, 1000, false).await;
    recover(&a, recovering(9, 1001, &[&a, &b])).await;
    let commit = only_commit(&a);
    assert_eq!((commit.new_gen_stamp, commit.new_length), (1001, 2000));
    assert_eq!(commit.new_taragets.len(), 2);
    for node in [&a, &b] {
        assert_eq!(node.state(9), Some((1001, 2000, ReplicaState::Finalized)));
        let received = node.host.seen.received.lock().expect("no panic");
        assert_eq!(*received, [block(9, 1001, 2000)]);
    }
}

#[tokio::test]
async fn a_recovery_with_an_older_id_changes_nothing() {
    let (a, b) = (Node::start("a").await, Node::start("b").await);
    a.replica(9, 3000, 1000, false).await;
    b.replica(9, 2000, 1000, false).await;
    let request = InitReplicaRecoveryRequest {
        block: recovering(9, 1005, &[]),
    };
    let options = RpcOptions::default();
    let client = RpcClient::new(b.address.clone(), INTER_DATANODE_PROTOCOL, options);
    let answer: InitReplicaRecoveryResponse = done(&client, "initReplicaRecovery", &request).await;
    assert_eq!(answer.state, Some(ReplicaState::Rbw as i32));
    assert_eq!(answer.block.map(|found| found.num_bytes()), Some(2000));
    recover(&a, recovering(9, 1001, &[&a, &b])).await;
    assert!(a.host.seen.commits.lock().expect("no panic").is_empty());
    recover(&a, recovering(9, 1006, &[&a, &b])).await;
    assert_eq!(only_commit(&a).new_gen_stamp, 1006);
}

#[tokio::test]
async fn a_truncate_of_a_shared_block_copies_it() {
    let (a, b) = (Node::start("a").await, Node::start("b").await);
    for node in [&a, &b] {
        node.replica(9, 3000, 3000, true).await;
    }
    let order = pb::RecoveringBlock {
        truncate_block: Some(Block::new(10, 1001, 700).into()),
        ..recovering(9, 1001, &[&a, &b])
    };
    recover(&b, order).await;
    assert_eq!(only_commit(&b).new_length, 700);
    for node in [&a, &b] {
        assert_eq!(node.state(10), Some((1001, 700, ReplicaState::Finalized)));
        assert_eq!(node.state(9).map(|(_, length, _)| length), Some(3000));
    }
}

#[tokio::test]
async fn a_missing_node_does_not_stop_the_others() {
    let (a, b) = (Node::start("a").await, Node::start("b").await);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let free = listener.local_addr().expect("bound").port();
    drop(listener);
    let mut order = recovering(9, 1001, &[&a, &b, &b]);
    order.block.locs[2].id.ipc_port = u32::from(free);
    a.replica(9, 3000, 1000, false).await;
    recover(&a, order).await;
    let commit = only_commit(&a);
    assert_eq!(commit.new_length, 3000);
    assert_eq!(commit.new_taragets.len(), 1);
}
