//! The RPC client and the RPC server of ours with each other, and with nodes.

use bytes::Bytes;
use hayloft_rpc::server::fault::RpcFault;
use hayloft_rpc::server::{Caller, Limits, RpcCall, RpcServerSecurity, Service, serve};
use hayloft_rpc::{
    CLIENT_DATANODE_PROTOCOL, KerberosLogin, LoginSource, RpcClient, RpcOptions, RpcQuality,
    RpcSecurity, ServerPrincipal,
};
use hayloft_testkit::error::Result;
use hayloft_testkit::realm::REALM;
use hayloft_testkit::suite::{expect, expect_eq, passed};
use hayloft_testkit::{Outcome, Suite, TestkitError};
use hayloft_wire::proto::clientdatanode::{
    GetDatanodeInfoRequest, GetDatanodeInfoResponse, GetReplicaVisibleLengthRequest,
    TriggerBlockReportRequest, TriggerBlockReportResponse,
};
use hayloft_wire::proto::datanode::{ErrorReportRequest, VersionEcho};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

use crate::{at_localhost, realm};
