//! The IPC port of nodes with real stores, called over TCP with this crate's own RPC client; and
//! block recovery between such nodes.

mod node;
mod recovery;

use std::sync::atomic::Ordering;
use std::time::Duration;

use hayloft_node::disk_balancer::plan_id;
use hayloft_rpc::{RpcClient, RpcError};
use hayloft_store::WriteOptions;
use hayloft_wire::ids::{Block, ExtendedBlock, PoolId};
use hayloft_wire::proto::clientdatanode::*;
use hayloft_wire::proto::reconfiguration::*;
use hayloft_wire::rpc::names;

use node::{Node, block, done, pool, write_site};

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
    node.host.seen.tokens.store(true, Ordering::SeqCst);
    let unproved = length(&client, &block(1, 1000, 0)).await;
    assert_eq!(refusal(unproved).0, names::IO_EXCEPTION);
    node.host.seen.tokens.store(false, Ordering::SeqCst);
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
    let stranger = node.client("an-unknown-user");
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

#[tokio::test]
async fn the_disk_balancer_answers_administrators_only() {
    let node = Node::start("a").await;
    let admin = node.admin();
    let query = QueryPlanStatusRequest {};
    let idle: QueryPlanStatusResponse = done(&admin, "queryDiskBalancerPlan", &query).await;
    assert_eq!((idle.result, idle.plan_id), (Some(0), Some(String::new())));
    assert_eq!(idle.current_status.as_deref(), Some("[]"));
    let plan = |node_uuid: &str| {
        let plan = format!(r#"{{"nodeUUID":"{node_uuid}","volumeSetPlans":[]}}"#);
        SubmitDiskBalancerPlanRequest {
            plan_id: plan_id(&plan),
            plan,
            ignore_date_check: Some(true),
            ..SubmitDiskBalancerPlanRequest::default()
        }
    };
    let refused: Result<SubmitDiskBalancerPlanResponse, _> =
        admin.call("submitDiskBalancerPlan", &plan("another")).await;
    let (class, text) = refusal(refused);
    assert_eq!(class, names::DISK_BALANCER_EXCEPTION);
    assert_eq!(text, "Plan was generated for another node.");
    let own = plan(&node.host.store.datanode_uuid());
    let _: SubmitDiskBalancerPlanResponse = done(&admin, "submitDiskBalancerPlan", &own).await;
    let cancel = CancelPlanRequest {
        plan_id: own.plan_id.clone(),
    };
    let _: CancelPlanResponse = done(&admin, "cancelDiskBalancerPlan", &cancel).await;
    let after: QueryPlanStatusResponse = done(&admin, "queryDiskBalancerPlan", &query).await;
    assert_eq!(after.plan_id, Some(own.plan_id.clone()));
    let stranger = node.client("an-unknown-user");
    let refused: Result<SubmitDiskBalancerPlanResponse, _> =
        stranger.call("submitDiskBalancerPlan", &own).await;
    assert_eq!(refusal(refused).0, names::ACCESS_CONTROL_EXCEPTION);
    let refused: Result<CancelPlanResponse, _> =
        stranger.call("cancelDiskBalancerPlan", &cancel).await;
    assert_eq!(refusal(refused).0, names::ACCESS_CONTROL_EXCEPTION);
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
