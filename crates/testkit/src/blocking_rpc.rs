//! Calls of a Hadoop server by RPC, from threads that wait for the answer.

use crate::error::{Result, TestkitError};
use hayloft_rpc::{RpcClient, RpcError, RpcOptions};
use hayloft_wire::rpc::names::Protocol;
use hayloft_wire::schema::WireMessage;
use tokio::runtime::Runtime;

/// A server, and a thread that talks to it.
#[derive(Debug)]
pub struct BlockingRpc {
    runtime: Runtime,
    rpc: RpcClient,
    /// What it is, for errors.
    server: &'static str,
}

impl BlockingRpc {
    /// A client of the `server` at `address` (`host:port`).
    ///
    /// # Errors
    /// When threads cannot be started.
    pub fn new(
        server: &'static str,
        address: &str,
        protocol: Protocol,
        options: RpcOptions,
    ) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("lab-rpc")
            .enable_all()
            .build()
            .map_err(|error| TestkitError::Talk(format!("cannot start threads: {error}")))?;
        Ok(Self {
            runtime,
            rpc: RpcClient::new(address, protocol, options),
            server,
        })
    }

    /// `host:port` of the server.
    #[must_use]
    pub fn address(&self) -> &str {
        self.rpc.address()
    }

    /// Calls a method.
    ///
    /// # Errors
    /// When the server refuses or does not answer.
    pub fn call<Req, Resp>(&self, method: &'static str, request: &Req) -> Result<Resp>
    where
        Req: prost::Message,
        Resp: WireMessage,
    {
        let answer: std::result::Result<Resp, RpcError> =
            self.runtime.block_on(self.rpc.call(method, request));
        let server = self.server;
        answer.map_err(|error| TestkitError::Talk(format!("{server}: {method}: {error}")))
    }
}
