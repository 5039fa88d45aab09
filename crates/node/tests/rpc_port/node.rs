//! A node with a real store and a served IPC port; what surrounds it is faked.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use hayloft_conf::{Configuration, HostPort, SharedConfig};
use hayloft_node::disk_balancer::{DiskBalancer, DiskBalancerParts};
use hayloft_node::ipc::{self, Host};
use hayloft_node::security::TokenRefused;
use hayloft_rpc::{CLIENT_DATANODE_PROTOCOL, RpcClient, RpcError, RpcOptions, current_user};
use hayloft_store::{
    PacketData, PoolSpec, StartOption, StorageInfo, Store, StoreConfig, VolumeConfig, WriteOptions,
};
use hayloft_wire::block_token::BlockTokenIdentifier;
use hayloft_wire::checksum::{ChecksumKind, DataChecksum};
use hayloft_wire::ids::{Block, ExtendedBlock, PoolId, ReplicaState};
use hayloft_wire::proto::datanode::CommitBlockSynchronizationRequest;
use hayloft_wire::proto::hdfs as pb;
use hayloft_wire::schema::WireMessage;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub fn pool() -> PoolId {
    PoolId::new("BP-1-127.0.0.1-1700000000000").expect("valid")
}

pub fn block(id: i64, stamp: u64, length: u64) -> ExtendedBlock {
    ExtendedBlock::new(pool(), Block::new(id, stamp, length))
}

/// What the rest of a node would have been told to do.
#[derive(Default)]
pub struct Seen {
    pub received: Mutex<Vec<ExtendedBlock>>,
    pub commits: Mutex<Vec<CommitBlockSynchronizationRequest>>,
    pub reports: Mutex<Vec<(bool, Option<String>)>>,
    pub evictions: AtomicUsize,
    pub shutdowns: AtomicUsize,
    pub changes: AtomicUsize,
    /// Block tokens are on.
    pub tokens: AtomicBool,
}

pub struct FakeHost {
    pub config: SharedConfig,
    pub store: Store,
    pub disk_balancer: DiskBalancer,
    pub id: pb::DatanodeId,
    pub seen: Seen,
}

impl Host for FakeHost {
    fn local_address(&self) -> Option<std::net::IpAddr> {
        None
    }

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

    fn check_reader(
        &self,
        _block: &ExtendedBlock,
        proved: Option<&BlockTokenIdentifier>,
    ) -> Result<(), TokenRefused> {
        if self.seen.tokens.load(Ordering::SeqCst) && proved.is_none() {
            return Err(TokenRefused::NotProved);
        }
        Ok(())
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

    fn disk_balancer(&self) -> &DiskBalancer {
        &self.disk_balancer
    }

    fn shutdown(&self, _for_upgrade: bool) -> bool {
        self.seen.shutdowns.fetch_add(1, Ordering::SeqCst) == 0
    }

    fn config_changed(&self) {
        self.seen.changes.fetch_add(1, Ordering::SeqCst);
    }
}

/// A node: directory, store, IPC port.
pub struct Node {
    pub dir: TempDir,
    pub host: Arc<FakeHost>,
    pub address: String,
    pub stop: CancellationToken,
    _events: mpsc::Receiver<hayloft_store::StoreEvent>,
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

pub fn write_site(dir: &Path, properties: &[(&str, &str)]) {
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
    pub async fn start(name: &str) -> Self {
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
        let stop = CancellationToken::new();
        let config = SharedConfig::new(config);
        let disk_balancer = DiskBalancer::new(DiskBalancerParts {
            store: store.clone(),
            config: config.clone(),
            tell: Arc::new(|_| ()),
            in_special_state: false,
            tasks: TaskTracker::new(),
            stop: stop.clone(),
        });
        let host = Arc::new(FakeHost {
            config,
            store,
            disk_balancer,
            id: pb::DatanodeId {
                ip_addr: "127.0.0.1".to_owned(),
                datanode_uuid: name.to_owned(),
                ipc_port: u32::from(address.port()),
                ..pb::DatanodeId::default()
            },
            seen: Seen::default(),
        });
        let counts = Arc::default();
        tokio::spawn(ipc::serve(
            host.clone(),
            (listener, None),
            usize::MAX,
            stop.clone(),
            counts,
        ));
        Self {
            dir,
            host,
            address: address.to_string(),
            stop,
            _events: events,
        }
    }

    pub fn client(&self, user: &str) -> RpcClient {
        let options = RpcOptions {
            user: user.to_owned(),
            ..RpcOptions::default()
        };
        RpcClient::new(self.address.clone(), CLIENT_DATANODE_PROTOCOL, options)
    }

    pub fn admin(&self) -> RpcClient {
        self.client(&current_user())
    }

    /// A replica with `length` bytes of which `acked` were acknowledged; finalized when asked for.
    pub async fn replica(&self, id: i64, length: usize, acked: u64, finalize: bool) {
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
        let packet = PacketData::new(checksum, 0, data.into(), Bytes::from(sums)).expect("agrees");
        writer.write(vec![packet]).await.expect("writes");
        writer.set_bytes_acked(acked);
        if finalize {
            writer.finalize().await.expect("finalizes");
        }
    }

    pub fn state(&self, id: i64) -> Option<(u64, u64, ReplicaState)> {
        let replica = self.host.store.replica(&pool(), id)?;
        let block = replica.block.block;
        Some((block.generation_stamp, block.num_bytes, replica.state))
    }
}

/// Calls a method that must succeed.
pub async fn done<Resp: WireMessage>(
    client: &RpcClient,
    method: &'static str,
    request: &impl WireMessage,
) -> Resp {
    client.call(method, request).await.expect("succeeds")
}
