//! `ClientDatanodeProtocol`: lengths of open files for readers, and the administrator's commands.

use std::net::SocketAddr;

use bytes::Bytes;
use hayloft_wire::frame;
use hayloft_wire::ids::{ExtendedBlock, PoolId};
use hayloft_wire::proto::clientdatanode::{
    CancelPlanRequest, CancelPlanResponse, DeleteBlockPoolRequest, DeleteBlockPoolResponse,
    DiskBalancerSettingRequest, DiskBalancerSettingResponse, EvictWritersRequest,
    EvictWritersResponse, GetBalancerBandwidthRequest, GetBalancerBandwidthResponse,
    GetBlockLocalPathInfoRequest, GetDatanodeInfoRequest, GetDatanodeInfoResponse,
    GetReplicaVisibleLengthRequest, GetReplicaVisibleLengthResponse, GetVolumeReportRequest,
    GetVolumeReportResponse, QueryPlanStatusRequest, RefreshNamenodesRequest,
    RefreshNamenodesResponse, ShutdownDatanodeRequest, ShutdownDatanodeResponse,
    SubmitDiskBalancerPlanRequest, SubmitDiskBalancerPlanResponse, TriggerBlockReportRequest,
    TriggerBlockReportResponse,
};
use hayloft_wire::proto::hdfs::{DatanodeLocalInfo, DatanodeVolumeInfo};
use tracing::info;

use hayloft_wire::rpc::names;

use super::context::{Context, decode, impossible};
use super::reconfiguration_protocol;
use crate::disk_balancer::PlanRefused;
use crate::security::TokenRefused;
use hayloft_conf::HostPort;
use hayloft_rpc::server::Caller;
use hayloft_rpc::server::fault::RpcFault;

/// Length that says "no reader may see any of it": clients ask another node then.
const NOT_VISIBLE: u64 = u64::MAX;
/// Users who may use the legacy way to read local files.
const LOCAL_PATH_USERS: &str = "dfs.block.local-path-access.user";

pub(super) async fn call(
    cx: &Context,
    caller: &Caller,
    method: &str,
    request: Bytes,
) -> Result<Bytes, RpcFault> {
    match method {
        "getReplicaVisibleLength" => visible_length(cx, caller, &decode(request)?),
        "getBlockLocalPathInfo" => local_path(cx, caller, &decode(request)?),
        "getDatanodeInfo" => {
            decode::<GetDatanodeInfoRequest>(request)?;
            Ok(datanode_info(cx))
        }
        "getBalancerBandwidth" => {
            decode::<GetBalancerBandwidthRequest>(request)?;
            Ok(frame::delimited(&GetBalancerBandwidthResponse {
                bandwidth: cx.host.balancer_bandwidth(),
            }))
        }
        "refreshNamenodes"
        | "deleteBlockPool"
        | "shutdownDatanode"
        | "evictWriters"
        | "getVolumeReport"
        | "triggerBlockReport"
        | "submitDiskBalancerPlan"
        | "cancelDiskBalancerPlan"
        | "queryDiskBalancerPlan"
        | "getDiskBalancerSetting" => {
            cx.users.require_superuser(caller).await?;
            administer(cx, method, request).await
        }
        "startReconfiguration" | "getReconfigurationStatus" | "listReconfigurableProperties" => {
            reconfiguration_protocol::call(cx, caller, method, request).await
        }
        _ => Err(RpcFault::no_such_method(
            names::CLIENT_DATANODE_PROTOCOL.name,
            method,
        )),
    }
}

/// The commands that only the superuser may give; that was checked.
async fn administer(cx: &Context, method: &str, request: Bytes) -> Result<Bytes, RpcFault> {
    match method {
        "refreshNamenodes" => {
            decode::<RefreshNamenodesRequest>(request)?;
            refresh_namenodes(cx).await
        }
        "deleteBlockPool" => delete_block_pool(cx, &decode(request)?).await,
        "shutdownDatanode" => shutdown(cx, &decode(request)?),
        "evictWriters" => {
            decode::<EvictWritersRequest>(request)?;
            info!("evicting all writers, as an administrator asked");
            cx.host.evict_writers();
            Ok(frame::delimited(&EvictWritersResponse {}))
        }
        "getVolumeReport" => {
            decode::<GetVolumeReportRequest>(request)?;
            Ok(volume_report(cx))
        }
        "triggerBlockReport" => trigger_block_report(cx, &decode(request)?).await,
        _ => disk_balancer(cx, method, request).await,
    }
}

/// The commands of `hdfs diskbalancer`.
async fn disk_balancer(cx: &Context, method: &str, request: Bytes) -> Result<Bytes, RpcFault> {
    let balancer = cx.host.disk_balancer();
    match method {
        "getDiskBalancerSetting" => {
            let request: DiskBalancerSettingRequest = decode(request)?;
            let value = balancer.setting(&request.key).map_err(balancer_refused)?;
            Ok(frame::delimited(&DiskBalancerSettingResponse { value }))
        }
        "submitDiskBalancerPlan" => {
            let request: SubmitDiskBalancerPlanRequest = decode(request)?;
            balancer.submit(&request).map_err(balancer_refused)?;
            Ok(frame::delimited(&SubmitDiskBalancerPlanResponse {}))
        }
        "cancelDiskBalancerPlan" => {
            let request: CancelPlanRequest = decode(request)?;
            let cancelled = balancer.cancel(&request.plan_id).await;
            cancelled.map_err(balancer_refused)?;
            Ok(frame::delimited(&CancelPlanResponse {}))
        }
        "queryDiskBalancerPlan" => {
            decode::<QueryPlanStatusRequest>(request)?;
            let status = balancer.query().map_err(balancer_refused)?;
            Ok(frame::delimited(&status))
        }
        _ => Err(RpcFault::no_such_method(
            names::CLIENT_DATANODE_PROTOCOL.name,
            method,
        )),
    }
}

fn visible_length(
    cx: &Context,
    caller: &Caller,
    request: &GetReplicaVisibleLengthRequest,
) -> Result<Bytes, RpcFault> {
    let block = ExtendedBlock::try_from(&request.block).map_err(impossible)?;
    if cx.host.registration(&block.pool).is_none() {
        return Err(RpcFault::application(
            names::RETRIABLE_EXCEPTION,
            "Datanode not registered. Try again later.",
        ));
    }
    let allowed = cx.host.check_reader(&block, caller.token.as_deref());
    allowed.map_err(|refused| not_allowed(&refused))?;
    let Some(replica) = cx.host.store().replica(&block.pool, block.block.id) else {
        return Err(RpcFault::application(
            names::REPLICA_NOT_FOUND,
            format!("Replica not found for {block}"),
        ));
    };
    let held = replica.block.block.generation_stamp;
    if held < block.block.generation_stamp {
        return Err(RpcFault::io(format!(
            "the replica of {block} here has the older generation stamp {held}"
        )));
    }
    let length = replica.visible_len.unwrap_or(NOT_VISIBLE);
    Ok(frame::delimited(&GetReplicaVisibleLengthResponse {
        length,
    }))
}

/// The refusal of a reader, of the class by which Apache's node refuses it.
fn not_allowed(refused: &TokenRefused) -> RpcFault {
    let text = refused.to_string();
    match refused {
        TokenRefused::NotProved => RpcFault::io(text),
        _ => RpcFault::application(names::INVALID_TOKEN, text),
    }
}

/// The legacy short circuit: refused by default, as in Apache's, and not built here.
fn local_path(
    cx: &Context,
    caller: &Caller,
    _request: &GetBlockLocalPathInfoRequest,
) -> Result<Bytes, RpcFault> {
    let user = cx.users.short_name(caller).unwrap_or_default();
    let allowed = cx.host.config().current().text(LOCAL_PATH_USERS);
    let listed = allowed
        .iter()
        .flat_map(|users| users.split(','))
        .any(|allowed| !user.is_empty() && allowed.trim() == user);
    if listed {
        return Err(RpcFault::unsupported(
            "this DataNode does not give out paths of block files; use the UNIX domain socket way \
                of short-circuit reads",
        ));
    }
    Err(RpcFault::access_denied(format!(
        "Can't continue with getBlockLocalPathInfo() authorization. The user {user} is not \
            configured in {LOCAL_PATH_USERS}"
    )))
}

fn datanode_info(cx: &Context) -> Bytes {
    let config = cx.host.config().current();
    let version = |name: &str, default: &str| config.text(name).unwrap_or(default.to_owned());
    frame::delimited(&GetDatanodeInfoResponse {
        local_info: DatanodeLocalInfo {
            software_version: cx.host.software_version(),
            config_version: format!(
                "core-{},hdfs-{}",
                version("hadoop.common.configuration.version", "3.0.0"),
                version("hadoop.hdfs.configuration.version", "1"),
            ),
            uptime: cx.host.uptime().as_secs(),
        },
    })
}

fn volume_report(cx: &Context) -> Bytes {
    let volumes = cx.host.store().volume_report();
    let volume_info = volumes
        .into_iter()
        .map(|volume| DatanodeVolumeInfo {
            path: volume.path.display().to_string(),
            storage_type: volume.storage.storage_type as i32,
            used_space: volume.used,
            free_space: volume.free,
            reserved_space: volume.reserved,
            reserved_space_for_replicas: volume.reserved_for_replicas,
            num_blocks: volume.blocks,
        })
        .collect();
    frame::delimited(&GetVolumeReportResponse { volume_info })
}

async fn refresh_namenodes(cx: &Context) -> Result<Bytes, RpcFault> {
    info!("taking over the NameNodes in the configuration files, as an administrator asked");
    cx.host.refresh_namenodes().await.map_err(RpcFault::io)?;
    Ok(frame::delimited(&RefreshNamenodesResponse {}))
}

async fn delete_block_pool(
    cx: &Context,
    request: &DeleteBlockPoolRequest,
) -> Result<Bytes, RpcFault> {
    let pool = PoolId::new(&request.block_pool).map_err(impossible)?;
    info!(%pool, force = request.force, "deleting a block pool, as an administrator asked");
    if cx.host.serves(&pool) {
        return Err(RpcFault::io(
            "The block pool is still running. First do a refreshNamenodes to shutdown the block \
                pool service",
        ));
    }
    cx.host
        .store()
        .remove_pool(&pool, request.force)
        .await
        .map_err(|error| RpcFault::io(error.to_string()))?;
    Ok(frame::delimited(&DeleteBlockPoolResponse {}))
}

fn shutdown(cx: &Context, request: &ShutdownDatanodeRequest) -> Result<Bytes, RpcFault> {
    info!(
        for_upgrade = request.for_upgrade,
        "stopping, as an administrator asked"
    );
    if !cx.host.shutdown(request.for_upgrade) {
        return Err(RpcFault::io("Shutdown already in progress."));
    }
    Ok(frame::delimited(&ShutdownDatanodeResponse {}))
}

async fn trigger_block_report(
    cx: &Context,
    request: &TriggerBlockReportRequest,
) -> Result<Bytes, RpcFault> {
    let named = request
        .nn_address
        .as_deref()
        .filter(|name| !name.is_empty());
    let Some(named) = named else {
        cx.host.trigger_block_report(request.incremental, None);
        return Ok(frame::delimited(&TriggerBlockReportResponse {}));
    };
    let wanted = HostPort::parse_with_default(named, None).map_err(|allowed| {
        RpcFault::io(format!("{named:?} is no address; allowed is {allowed}"))
    })?;
    // Hadoop compares addresses, not names.
    let addresses = resolve(&wanted).await;
    for namenode in cx.host.namenodes() {
        let same = namenode == wanted
            || resolve(&namenode)
                .await
                .iter()
                .any(|address| addresses.contains(address));
        if same {
            cx.host
                .trigger_block_report(request.incremental, Some(&namenode));
        }
    }
    Ok(frame::delimited(&TriggerBlockReportResponse {}))
}

/// The addresses of a name; none when it has none (now).
async fn resolve(name: &HostPort) -> Vec<SocketAddr> {
    match tokio::net::lookup_host((name.host.as_str(), name.port)).await {
        Ok(found) => found.collect(),
        Err(_) => Vec::new(),
    }
}

fn balancer_refused(refused: PlanRefused) -> RpcFault {
    RpcFault::application(names::DISK_BALANCER_EXCEPTION, refused.0)
}
