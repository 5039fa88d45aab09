//! A node with services towards fakes.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use futures_util::future::BoxFuture;
use hayloft_conf::{Configuration, KeyGenerator, SharedConfig};
use hayloft_store::StartOption;
use hayloft_wire::ids::{ExtendedBlock, PoolId};
use hayloft_wire::proto::datanode::{SlowDiskReport, SlowPeerReport};
use hayloft_wire::proto::hdfs::BlockEcReconstructionInfo;
use hayloft_wire::proto::hdfs_server::RecoveringBlock;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{FakeNameNode, FakeStore, UUID};
use crate::identity::{Identity, Registered};
use crate::namenode::NameNodes;
use crate::namenode::held_pools::HeldPools;
use crate::namenode::inventory::Inventory;
use crate::namenode::service_side::NodeSide;
use crate::namenode::work::{NodeLoad, NodeWork, Targets};
use crate::outliers::OutlierReports;
use crate::security::{BlockTokens, TokenSettings};

/// Counts orders; a copy takes for ever.
#[derive(Default)]
pub struct FakeWork {
    pub transfers: Mutex<Vec<ExtendedBlock>>,
    /// Blocks to recover, by id.
    pub recoveries: Mutex<Vec<u64>>,
    /// Groups to reconstruct, by block id; each takes for ever.
    pub reconstructions: Mutex<Vec<i64>>,
    pub bandwidth: Mutex<u64>,
    pub searches: Mutex<u32>,
}

impl NodeWork for FakeWork {
    fn transfer(&self, block: ExtendedBlock, _: Targets) -> BoxFuture<'static, Result<(), String>> {
        self.transfers.lock().expect("no panic").push(block);
        Box::pin(std::future::pending())
    }

    fn recover(&self, _: PoolId, orders: Vec<RecoveringBlock>) -> BoxFuture<'static, ()> {
        let ids = orders.iter().map(|order| order.block.b.block_id);
        self.recoveries.lock().expect("no panic").extend(ids);
        Box::pin(async {})
    }

    fn reconstruct(
        &self,
        _: PoolId,
        order: BlockEcReconstructionInfo,
    ) -> BoxFuture<'static, Result<(), String>> {
        let id = order.block.block_id.cast_signed();
        self.reconstructions.lock().expect("no panic").push(id);
        Box::pin(std::future::pending())
    }

    fn set_balancer_bandwidth(&self, bytes_per_second: u64) {
        *self.bandwidth.lock().expect("no panic") = bytes_per_second;
    }

    fn load(&self) -> NodeLoad {
        NodeLoad {
            xmits: 1,
            xceivers: 2,
        }
    }

    fn outliers(&self) -> OutlierReports {
        *self.searches.lock().expect("no panic") += 1;
        OutlierReports {
            slow_peers: vec![SlowPeerReport {
                data_node_id: Some("127.0.0.9:9864".to_owned()),
                aggregate_latency: Some(50.0),
                median: Some(1.0),
                mad: Some(0.0),
                upper_limit_latency: Some(5.0),
            }],
            slow_disks: vec![SlowDiskReport {
                base_path: Some("/slow/".to_owned()),
                mean_write_io_latency: Some(500.0),
                ..SlowDiskReport::default()
            }],
        }
    }
}

/// A node with services towards fakes.
pub struct Node {
    pub services: NameNodes,
    pub store: Arc<FakeStore>,
    pub work: Arc<FakeWork>,
    pub shutdown: CancellationToken,
}

impl Drop for Node {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

impl Node {
    /// Started, heartbeats every `heartbeat`, with more properties.
    pub fn start(namenodes: &[&FakeNameNode], heartbeat: &str, more: &[(&str, &str)]) -> Self {
        let mut properties: Vec<(String, String)> = vec![
            ("dfs.nameservices".into(), "ns".into()),
            ("dfs.heartbeat.interval".into(), heartbeat.into()),
        ];
        let ids: Vec<String> = (1..=namenodes.len()).map(|n| format!("nn{n}")).collect();
        properties.push(("dfs.ha.namenodes.ns".into(), ids.join(",")));
        for (id, namenode) in ids.iter().zip(namenodes) {
            properties.push((
                format!("dfs.namenode.rpc-address.ns.{id}"),
                namenode.addr.to_string(),
            ));
        }
        properties.extend(more.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
        let config = Configuration::from_properties(properties).expect("valid");
        let store = Arc::new(FakeStore::default());
        let work = Arc::new(FakeWork::default());
        let shutdown = CancellationToken::new();
        let services = NameNodes::over(NodeSide {
            store: Arc::clone(&store) as Arc<dyn Inventory>,
            config: SharedConfig::new(config),
            identity: Identity {
                local: None,
                registered: Registered::default(),
                datanode_uuid: UUID.to_owned(),
                host_name: "localhost".to_owned(),
                ip_addr: "127.0.0.1".to_owned(),
                xfer_port: 1,
                info_port: 2,
                info_secure_port: 0,
                ipc_port: 3,
            },
            start: StartOption::Regular,
            shutdown: shutdown.clone(),
            tasks: TaskTracker::new(),
            activity: Arc::default(),
            tokens: BlockTokens::new(TokenSettings {
                algorithm: KeyGenerator::HmacSha1,
                protobuf: false,
                user: "hdfs".to_owned(),
            }),
            pools: HeldPools::default(),
            work: OnceLock::new(),
        });
        services
            .start(Arc::clone(&work) as Arc<dyn NodeWork>)
            .expect("configured");
        Self {
            services,
            store,
            work,
            shutdown,
        }
    }
}

/// Waits until it holds, at most five seconds.
pub async fn eventually(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(5);
    while !holds() {
        assert!(Instant::now() < deadline, "not within five seconds: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
