//! The RPC port: connections in, bounded work out. A connection may open with no authentication or
//! with SASL, where SIMPLE is on offer. With [`Service::security`], Kerberos is all that is.
//!
//! - `connection`: one connection: reads frames, hands out calls, writes answers
//! - `exchange`: the server's side of a SASL exchange with Kerberos
//! - `fault`: refusals and failures as a Hadoop RPC caller sees them
//! - `negotiation`: what a connection has agreed on so far, without the socket
//! - `received_frames`: frames as they come: whole, in time, within limits, unwrapped
//! - `response_frames`: response frames: what the server puts on the wire
//! - `run_calls`: calls on their way to their answers, and answers on their way out
//! - `stats`: counts of what the RPC port does
//! - `tokens`: callers who prove that they hold a block token
//!
//! What bounds it:
//! - connections: [`Limits::connections`]; one more is closed at once,
//! - calls that run: [`Limits::handlers`], as Hadoop's handler threads,
//! - calls that wait: [`Limits::queue`] for the port and [`Limits::calls_per_connection`]; when
//!   either is used up nothing more is read from the socket, which is how the client learns,
//! - bytes of frames being received: small ones come for free, big ones share
//!   [`Limits::receive_bytes`] and memory grows only with bytes that have really come,
//! - time: a header, a context or a started frame has to be finished within [`Limits::patience`].
//!   Answers that the client does not take end the connection after [`Limits::write_timeout`].
//!
//! There is no retry cache. A client that lost its connection sends the call again with the same
//! call id and a higher retry count. It is carried out again. Everything served on this port either
//! only asks, or leads to the same state when done twice. Recovery is guarded by its recovery id; a
//! shutdown or reconfiguration under way refuses a second one with its own message.

mod connection;
mod exchange;
pub mod fault;
mod negotiation;
mod received_frames;
mod response_frames;
mod run_calls;
mod stats;
#[cfg(test)]
mod tests;
mod tokens;

pub use exchange::RpcServerSecurity;
pub use negotiation::{Caller, RpcCall};
pub use stats::{CallTime, MethodTimes, RpcCount, RpcStats};
pub use tokens::{RpcTokens, TokenPasswords};

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hayloft_wire::limits::MAX_RPC_FRAME_BYTES;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{Instrument as _, debug, info, warn};

use self::fault::RpcFault;
use crate::log_limit::LogLimit;
use crate::repeated_failures::AcceptTrouble;

/// What the server runs.
pub trait Service: Send + Sync + 'static {
    /// With what callers have to prove who they are; `None`: they are believed.
    fn security(&self) -> Option<Arc<RpcServerSecurity>> {
        None
    }

    /// With what callers may prove that they hold a block token; `None`: they may not.
    fn tokens(&self) -> Option<RpcTokens> {
        None
    }

    /// Whether the caller may connect, and act for another user if it asks to; an error says why
    /// not.
    fn authorize(&self, caller: &Caller) -> impl Future<Output = Result<(), String>> + Send;

    /// Carries out one call and gives back the encoded answer, length-delimited.
    fn call(&self, call: RpcCall) -> impl Future<Output = Result<Bytes, RpcFault>> + Send;
}

/// Bounds of the server; see the module.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Open connections.
    pub connections: usize,
    /// Calls that run at the same time.
    pub handlers: usize,
    /// Calls that wait for a handler or run.
    pub queue: usize,
    /// Calls of one connection that are not yet answered.
    pub calls_per_connection: usize,
    /// Longest frame, in bytes (`ipc.maximum.data.length`).
    pub frame_bytes: usize,
    /// Bytes of frames above 68 KiB that may be under way in total.
    pub receive_bytes: usize,
    /// Time to finish what was begun.
    pub patience: Duration,
    /// A connection without calls and news is closed after this long.
    pub idle: Duration,
    /// The same, once there are more connections than `idle_threshold`.
    pub idle_crowded: Duration,
    /// Connections from which on the shorter idle time holds.
    pub idle_threshold: usize,
    /// Time for the client to take an answer.
    pub write_timeout: Duration,
    /// Hears why a connection could not be accepted.
    pub not_accepted: fn(&io::Error),
}

impl Default for Limits {
    /// Hadoop's defaults where it has them; where Hadoop knows no bound, a generous one.
    fn default() -> Self {
        Self {
            connections: 4096,
            handlers: 10,
            queue: 1000,
            calls_per_connection: 128,
            frame_bytes: MAX_RPC_FRAME_BYTES,
            receive_bytes: 256 << 20,
            patience: Duration::from_secs(20),
            idle: Duration::from_secs(600),
            idle_crowded: Duration::from_secs(20),
            idle_threshold: 4000,
            write_timeout: Duration::from_secs(60),
            not_accepted: |_| {},
        }
    }
}

/// How long calls under way may go on after the order to stop.
const DRAIN: Duration = Duration::from_secs(5);

/// Smallest share of the receive budget.
pub(super) const BUDGET_UNIT: usize = 1 << 10;

/// What all connections share.
pub(super) struct Shared<S> {
    pub(super) service: S,
    pub(super) limits: Limits,
    pub(super) connections: Arc<Semaphore>,
    pub(super) handlers: Semaphore,
    pub(super) queue: Arc<Semaphore>,
    /// In units of [`BUDGET_UNIT`].
    pub(super) budget: Arc<Semaphore>,
    pub(super) stop: CancellationToken,
    pub(super) tasks: TaskTracker,
    pub(super) log_limit: LogLimit,
    pub(super) stats: Arc<RpcStats>,
}

impl<S> Shared<S> {
    fn new(service: S, limits: Limits, stop: CancellationToken, stats: Arc<RpcStats>) -> Self {
        // A frame of the largest size must fit into the budget, or it would wait forever.
        let budget = limits.receive_bytes.max(limits.frame_bytes) / BUDGET_UNIT + 1;
        Self {
            connections: Arc::new(Semaphore::new(limits.connections)),
            handlers: Semaphore::new(limits.handlers.max(1)),
            queue: Arc::new(Semaphore::new(limits.queue.max(1))),
            budget: Arc::new(Semaphore::new(budget.min(Semaphore::MAX_PERMITS))),
            service,
            limits,
            stop,
            tasks: TaskTracker::new(),
            log_limit: LogLimit::default(),
            stats,
        }
    }

    /// How long a connection may stay silent now.
    pub(super) fn idle_limit(&self) -> Duration {
        let open = self.limits.connections - self.connections.available_permits();
        if open > self.limits.idle_threshold {
            self.limits.idle_crowded
        } else {
            self.limits.idle
        }
    }
}

/// Serves the port until `stop`, then lets calls under way finish (for at most 5 s).
pub async fn serve<S: Service>(
    listener: TcpListener,
    service: S,
    limits: Limits,
    stop: CancellationToken,
) {
    serve_counted(listener, service, limits, stop, Arc::default()).await;
}

/// As [`serve`]; what goes on is counted in `stats`.
pub async fn serve_counted<S: Service>(
    listener: TcpListener,
    service: S,
    limits: Limits,
    stop: CancellationToken,
    stats: Arc<RpcStats>,
) {
    let shared = Arc::new(Shared::new(service, limits, stop, stats));
    let mut trouble = AcceptTrouble::of("RPC");
    loop {
        let accepted = tokio::select! {
            () = shared.stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, address)) => {
                trouble.works();
                admit(&shared, stream, address);
            }
            Err(error) if is_of_the_connection(&error) => {
                debug!(%error, "a connection ended before it was accepted");
            }
            Err(error) => {
                (shared.limits.not_accepted)(&error);
                tokio::select! {
                    () = shared.stop.cancelled() => break,
                    () = tokio::time::sleep(trouble.failed(&error)) => {}
                }
            }
        }
    }
    drop(listener);
    shared.tasks.close();
    if tokio::time::timeout(DRAIN, shared.tasks.wait())
        .await
        .is_err()
    {
        info!(
            left = shared.tasks.len(),
            "RPC calls did not end in time and are dropped"
        );
    }
}

fn admit<S: Service>(shared: &Arc<Shared<S>>, stream: TcpStream, address: SocketAddr) {
    let Ok(permit) = Arc::clone(&shared.connections).try_acquire_owned() else {
        shared.stats.dropped_connections.add(1);
        if let Some(skipped) = shared.log_limit.may_log() {
            warn!(
                %address,
                skipped,
                limit = shared.limits.connections,
                "too many RPC connections; closing the new one (ipc.server.max.connections)"
            );
        }
        return;
    };
    if let Err(error) = stream.set_nodelay(true) {
        debug!(%error, %address, "cannot switch off Nagle's algorithm");
    }
    let shared = Arc::clone(shared);
    let tasks = shared.tasks.clone();
    let serving = async move {
        let _permit = permit;
        let _open = shared.stats.open_connections.hold();
        connection::run(&shared, stream, address).await;
    };
    tasks.spawn(serving.in_current_span());
}

/// Errors of `accept` that say something about the connection and nothing about the port.
fn is_of_the_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    )
}
