//! `ReconfigurationProtocol`, whose three methods are also part of `ClientDatanodeProtocol`.

use std::sync::Arc;

use bytes::Bytes;
use hayloft_wire::frame;
use hayloft_wire::proto::reconfiguration::{
    GetReconfigurationStatusRequest, ListReconfigurablePropertiesRequest,
    ListReconfigurablePropertiesResponse, StartReconfigurationRequest,
    StartReconfigurationResponse,
};
use hayloft_wire::rpc::names;

use super::apply_changed_keys;
use super::context::{Context, decode};
use hayloft_rpc::server::Caller;
use hayloft_rpc::server::fault::RpcFault;

pub(super) async fn call(
    cx: &Context,
    caller: &Caller,
    method: &str,
    request: Bytes,
) -> Result<Bytes, RpcFault> {
    match method {
        "startReconfiguration" => {
            decode::<StartReconfigurationRequest>(request)?;
            cx.users.require_superuser(caller).await?;
            cx.reconfiguration.start(Arc::clone(&cx.host))?;
            Ok(frame::delimited(&StartReconfigurationResponse {}))
        }
        "getReconfigurationStatus" => {
            decode::<GetReconfigurationStatusRequest>(request)?;
            cx.users.require_superuser(caller).await?;
            Ok(frame::delimited(&cx.reconfiguration.status()))
        }
        "listReconfigurableProperties" => {
            decode::<ListReconfigurablePropertiesRequest>(request)?;
            cx.users.require_superuser(caller).await?;
            Ok(frame::delimited(&ListReconfigurablePropertiesResponse {
                name: apply_changed_keys::properties(),
            }))
        }
        _ => Err(RpcFault::no_such_method(
            names::RECONFIGURATION_PROTOCOL.name,
            method,
        )),
    }
}
