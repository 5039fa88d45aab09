//! `InterDatanodeProtocol`: this node's part in block recoveries that another node leads.

use bytes::Bytes;
use hayloft_store::{StoreError, StoreErrorKind};
use hayloft_wire::frame;
use hayloft_wire::ids::ExtendedBlock;
use hayloft_wire::proto::interdatanode::{
    InitReplicaRecoveryRequest, InitReplicaRecoveryResponse, UpdateReplicaUnderRecoveryRequest,
    UpdateReplicaUnderRecoveryResponse,
};

use hayloft_wire::rpc::names;

use super::context::{Context, decode, impossible};
use crate::recovery::when_another_leads;
use hayloft_rpc::server::Caller;
use hayloft_rpc::server::fault::RpcFault;

pub(super) async fn call(
    cx: &Context,
    caller: &Caller,
    method: &str,
    request: Bytes,
) -> Result<Bytes, RpcFault> {
    cx.users.require_datanode(caller).await?;
    match method {
        "initReplicaRecovery" => init(cx, decode(request)?).await,
        "updateReplicaUnderRecovery" => update(cx, decode(request)?).await,
        _ => Err(RpcFault::no_such_method(
            names::INTER_DATANODE_PROTOCOL.name,
            method,
        )),
    }
}

async fn init(cx: &Context, request: InitReplicaRecoveryRequest) -> Result<Bytes, RpcFault> {
    let order = request.block;
    let block = ExtendedBlock::try_from(&order.block.b).map_err(impossible)?;
    let found = when_another_leads::init(cx.host.as_ref(), &block, order.new_gen_stamp)
        .await
        .map_err(|error| store_fault(&error))?;
    Ok(frame::delimited(&match found {
        None => InitReplicaRecoveryResponse::default(),
        Some(info) => InitReplicaRecoveryResponse {
            replica_found: true,
            state: Some(info.original_state as i32),
            block: Some(info.block.into()),
        },
    }))
}

async fn update(
    cx: &Context,
    request: UpdateReplicaUnderRecoveryRequest,
) -> Result<Bytes, RpcFault> {
    let block = ExtendedBlock::try_from(&request.block).map_err(impossible)?;
    let storage = when_another_leads::update(
        cx.host.as_ref(),
        &block,
        request.recovery_id,
        request.new_block_id().cast_signed(),
        request.new_length,
    )
    .await
    .map_err(|error| store_fault(&error))?;
    Ok(frame::delimited(&UpdateReplicaUnderRecoveryResponse {
        storage_uuid: Some(storage),
    }))
}

/// What a failure of the store looks like to the primary. A missing replica and a newer recovery
/// have classes of their own; all else is an `IOException`, as in Apache's recovery.
fn store_fault(error: &StoreError) -> RpcFault {
    let class = match error.kind() {
        StoreErrorKind::NotFound | StoreErrorKind::RecoveryInProgress => error.java_class(),
        _ => names::IO_EXCEPTION,
    };
    RpcFault::application(class, error.to_string())
}
