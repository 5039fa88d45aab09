//! Calls to one address, over one connection at a time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hayloft_wire::schema::WireMessage;
use tokio::sync::Mutex;

use super::{RpcConnection, RpcError, RpcOptions};
use crate::Protocol;

/// Calls to the server at one address. Connects when a call needs it; when the connection was lost,
/// the next call resolves the name again and makes a new one. A failed call is never repeated here:
/// only the caller knows whether that is harmless. Clones share the connection.
#[derive(Clone, Debug)]
pub struct RpcClient {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    address: String,
    protocol: Protocol,
    options: RpcOptions,
    /// Held while connecting, so that callers at the same time share one attempt's outcome.
    connection: Mutex<Option<RpcConnection>>,
}

impl RpcClient {
    /// A client for `address` ("host:port"), not yet connected.
    #[must_use]
    pub fn new(address: impl Into<String>, protocol: Protocol, options: RpcOptions) -> Self {
        Self {
            inner: Arc::new(Inner {
                address: address.into(),
                protocol,
                options,
                connection: Mutex::new(None),
            }),
        }
    }

    /// Host and port as given.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.inner.address
    }

    /// Calls `method` of the client's protocol and waits for the answer, at most `call_timeout`.
    ///
    /// # Errors
    /// As [`RpcConnection::call`], and [`RpcError::Connect`].
    pub async fn call<Req, Resp>(
        &self,
        method: &'static str,
        request: &Req,
    ) -> Result<Resp, RpcError>
    where
        Req: prost::Message,
        Resp: WireMessage,
    {
        self.call_within(method, request, self.inner.options.call_timeout)
            .await
    }

    /// [`call`](Self::call) with a limit of its own; `None` waits until the connection ends.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    pub async fn call_within<Req, Resp>(
        &self,
        method: &'static str,
        request: &Req,
        limit: Option<Duration>,
    ) -> Result<Resp, RpcError>
    where
        Req: prost::Message,
        Resp: WireMessage,
    {
        let connection = self.connection().await?;
        connection
            .call_within(self.inner.protocol, method, request, limit)
            .await
    }

    /// The connection, made now when there is none.
    ///
    /// # Errors
    /// [`RpcError::Connect`].
    pub async fn connection(&self) -> Result<RpcConnection, RpcError> {
        let inner = &*self.inner;
        let mut slot = inner.connection.lock().await;
        if let Some(connection) = slot.as_ref().filter(|connection| !connection.is_closed()) {
            return Ok(connection.clone());
        }
        *slot = None;
        let peers = addresses_of(&inner.address).await;
        let peers = peers.map_err(|error| unresolved(&inner.address, error))?;
        let mut failed = None;
        for peer in peers {
            match RpcConnection::connect(
                &inner.address,
                peer,
                inner.protocol,
                inner.options.clone(),
            )
            .await
            {
                Ok(connection) => {
                    *slot = Some(connection.clone());
                    return Ok(connection);
                }
                Err(error) => failed = Some(error),
            }
        }
        Err(failed.unwrap_or_else(|| unresolved(&inner.address, "the name has no address")))
    }

    /// Ends the present connection, if any; the next call makes a new one.
    pub async fn disconnect(&self) {
        if let Some(connection) = self.inner.connection.lock().await.take() {
            connection.close();
        }
    }
}

fn unresolved(address: &str, reason: impl ToString) -> RpcError {
    RpcError::Connect {
        address: address.to_owned(),
        reason: reason.to_string(),
    }
}

/// The addresses of a "host:port", IPv4 first as a Hadoop daemon prefers it.
///
/// # Errors
/// The name is not known, or no name server answers.
pub async fn addresses_of(address: &str) -> std::io::Result<Vec<SocketAddr>> {
    let found = tokio::net::lookup_host(address).await?;
    let (mut peers, v6): (Vec<_>, Vec<_>) = found.partition(SocketAddr::is_ipv4);
    peers.extend(v6);
    Ok(peers)
}
