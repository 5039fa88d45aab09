//! One connection of Hadoop RPC: many calls in flight, answers in any order.
//!
//! Two tasks serve a connection: one writes frames from a bounded queue, one reads answers and
//! hands them to the waiting calls. The connection ends when its last handle is dropped, on the
//! first error of either task, and on a fatal answer. It also ends when a call timed out and
//! nothing at all was heard from the server since. It never comes back: the owner makes a new one.
//! With Kerberos or a token, both sides first prove who they are, and frames may be wrapped from
//! then on.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt as _;
use hayloft_wire::frame;
use hayloft_wire::proto::rpc::UserInformation;
use hayloft_wire::rpc::{self as wire, AuthProtocol, ConnectionHeader};
use hayloft_wire::schema::WireMessage;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::authenticate::authenticate;
use super::connection_tasks::{Answer, FrameReader, Shared, read_answers, write_frames};
use super::prove_by_token::prove_by_token;
use super::sasl_messages::refused;
use super::{RpcError, RpcOptions};
use crate::Protocol;
use crate::security::Wrapping;

/// Calls in flight on one connection; more wait.
const CALLS_MAX: usize = 256;
/// Frames waiting to be written.
const WRITE_QUEUE: usize = 32;
/// How long both sides may take to prove who they are, with a KDC and a name server between.
const PROOF_LIMIT: Duration = Duration::from_secs(90);

/// Connects to `peer`, from an address of this host if one is given.
///
/// # Errors
/// Of the system: the address is not this host's, of another family than `peer`'s, or `peer` does
/// not answer.
pub async fn connect_from(local: Option<IpAddr>, peer: SocketAddr) -> std::io::Result<TcpStream> {
    let Some(local) = local else {
        return TcpStream::connect(peer).await;
    };
    let socket = if peer.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    bind_to(&socket, local)?;
    socket.connect(peer).await
}

/// Has a socket connect from `local`, from a port that the system chooses.
///
/// # Errors
/// The address is not this host's, or of another family than the socket's.
pub fn bind_to(socket: &TcpSocket, local: IpAddr) -> std::io::Result<()> {
    // Ports of connections that ended a moment ago may be taken too: there are not many.
    socket.set_reuseaddr(true)?;
    socket.bind(SocketAddr::new(local, 0))
}

/// Ends the connection when the last handle goes, or a task of it: after a panic no call waits for
/// ever.
struct LastHandle(Arc<Shared>);

impl Drop for LastHandle {
    fn drop(&mut self) {
        self.0.fail(&self.0.lost("it was closed by us"));
    }
}

/// Removes a call that its caller no longer waits for.
struct Waiting<'a> {
    shared: &'a Shared,
    call_id: i32,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.shared.take(self.call_id);
    }
}

/// A handle to an established connection; clones share it.
#[derive(Clone)]
pub struct RpcConnection {
    shared: Arc<Shared>,
    frames: mpsc::Sender<Bytes>,
    _last: Arc<LastHandle>,
}

impl RpcConnection {
    /// Connects to `peer`, called `address` in errors, for calls of `protocol`. A server may allow
    /// or refuse users by the protocol named here; calls of others are possible.
    ///
    /// # Errors
    /// [`RpcError::Connect`]; with Kerberos also [`RpcError::Unproven`], and what the server
    /// refuses.
    pub async fn connect(
        address: &str,
        peer: SocketAddr,
        protocol: Protocol,
        options: RpcOptions,
    ) -> Result<Self, RpcError> {
        let cannot = |reason: String| RpcError::Connect {
            address: address.to_owned(),
            reason,
        };
        let limit = options.connect_timeout;
        let from = options.local;
        let origin = from.map_or_else(String::new, |local| format!(" from {local}"));
        let mut stream = match timeout(limit, connect_from(from, peer)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(cannot(format!("{error} ({peer}{origin})"))),
            Err(_) => return Err(cannot(format!("no connection to {peer} within {limit:?}"))),
        };
        stream
            .set_nodelay(true)
            .map_err(|error| cannot(error.to_string()))?;
        let shared = Arc::new(Shared {
            address: address.to_owned(),
            peer,
            client_id: uuid::Uuid::new_v4().into_bytes(),
            options,
            next_call_id: AtomicI32::new(0),
            pending: Mutex::new(Ok(HashMap::new())),
            calls: Semaphore::new(CALLS_MAX),
            started: Instant::now(),
            heard_ms: AtomicU64::new(0),
            closed: CancellationToken::new(),
        });
        let (preamble, wrapping) = open(&mut stream, &shared, protocol).await?;
        let (read_half, write_half) = stream.into_split();
        let (frames, queue) = mpsc::channel(WRITE_QUEUE);
        let incoming = FrameReader::new(read_half, wrapping.clone());
        let writing = write_frames(Arc::clone(&shared), write_half, (preamble, queue), wrapping);
        let reading = read_answers(Arc::clone(&shared), incoming);
        let (writes, reads) = (Arc::clone(&shared), Arc::clone(&shared));
        let (writes, reads) = (LastHandle(writes), LastHandle(reads));
        tokio::spawn(writing.map(|()| drop(writes)));
        tokio::spawn(reading.map(|()| drop(reads)));
        let last = Arc::new(LastHandle(Arc::clone(&shared)));
        Ok(Self {
            shared,
            frames,
            _last: last,
        })
    }

    /// Calls `method` and waits for its answer, at most `call_timeout` of the options.
    ///
    /// # Errors [`RpcError::Remote`] when the server answers with an exception, the others when no
    /// answer came. Then the server may still have carried out the call.
    pub async fn call<Req, Resp>(
        &self,
        protocol: Protocol,
        method: &'static str,
        request: &Req,
    ) -> Result<Resp, RpcError>
    where
        Req: prost::Message,
        Resp: WireMessage,
    {
        self.call_within(protocol, method, request, self.shared.options.call_timeout)
            .await
    }

    /// [`call`](Self::call) with a limit of its own; `None` waits until the connection ends.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    pub async fn call_within<Req, Resp>(
        &self,
        protocol: Protocol,
        method: &'static str,
        request: &Req,
        limit: Option<Duration>,
    ) -> Result<Resp, RpcError>
    where
        Req: prost::Message,
        Resp: WireMessage,
    {
        let shared = &*self.shared;
        let call_id = shared.next_call_id.fetch_add(1, Ordering::Relaxed) & i32::MAX;
        let frame = request_frame(shared, call_id, protocol, method, request)?;
        let sent_ms = shared.now_ms();
        let exchange = self.exchange(call_id, frame);
        let answer = match limit {
            None => exchange.await,
            Some(limit) => match timeout(limit, exchange).await {
                Ok(answer) => answer,
                Err(_) => {
                    let error = RpcError::Timeout {
                        address: shared.address.clone(),
                        method,
                        after: limit,
                    };
                    // A server that answers others is only slow with this call.
                    if shared.heard_ms.load(Ordering::Relaxed) <= sent_ms {
                        shared.fail(&shared.lost(format!("no answer within {limit:?}")));
                    }
                    return Err(error);
                }
            },
        };
        frame::decode(answer?).map_err(|error| shared.malformed(format!("{method}: {error}")))
    }

    /// Sends a frame and waits for the bytes of its answer.
    async fn exchange(&self, call_id: i32, frame: Bytes) -> Answer {
        let shared = &*self.shared;
        let closed = || shared.lost("it was closed");
        let _permit = shared.calls.acquire().await.map_err(|_| closed())?;
        let (answer_to, answer) = oneshot::channel();
        {
            let mut pending = shared
                .pending
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            match &mut *pending {
                Ok(calls) => calls.insert(call_id, answer_to),
                Err(error) => return Err(error.clone()),
            };
        }
        let _waiting = Waiting { shared, call_id };
        if self.frames.send(frame).await.is_err() {
            // The writer has ended; why is known to `fail`, which answers below.
            shared.fail(&closed());
        }
        answer.await.unwrap_or_else(|_| Err(closed()))
    }

    /// Whether the connection has ended; calls on it fail from then on.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.shared.closed.is_cancelled()
    }

    /// Ends the connection for all handles.
    pub fn close(&self) {
        self.shared.fail(&self.shared.lost("it was closed by us"));
    }
}

impl std::fmt::Debug for RpcConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "RpcConnection({} at {})",
            self.shared.address, self.shared.peer
        )
    }
}

/// Proves who we are, where that is asked for. What goes out next, and what wraps it.
async fn open(
    stream: &mut TcpStream,
    shared: &Shared,
    protocol: Protocol,
) -> Result<(Bytes, Option<Arc<Wrapping>>), RpcError> {
    let options = &shared.options;
    if let Some(token) = &options.token {
        let wrapping = in_time(shared, prove_by_token(stream, shared, token)).await?;
        // Whose token it is the server knows, and asks for no name.
        let user = UserInformation::default();
        return Ok((context(shared, user, protocol), wrapping));
    }
    let Some(security) = &options.security else {
        let header = ConnectionHeader {
            service_class: 0,
            auth: AuthProtocol::None,
        };
        let user = UserInformation {
            effective_user: Some(options.user.clone()),
            real_user: options.real_user.clone(),
        };
        let mut out = BytesMut::from(&header.encode()[..]);
        out.extend_from_slice(&context(shared, user, protocol));
        return Ok((out.freeze(), None));
    };
    let proven = in_time(shared, authenticate(stream, shared, security)).await?;
    // Who really connects is known by then; the context names whom the calls are made as.
    let user = UserInformation {
        effective_user: Some(proven.principal),
        real_user: None,
    };
    Ok((context(shared, user, protocol), proven.wrapping))
}

/// Waits for a proof of who is who, but not for ever.
async fn in_time<T>(
    shared: &Shared,
    proving: impl Future<Output = Result<T, RpcError>>,
) -> Result<T, RpcError> {
    let proof = timeout(PROOF_LIMIT, proving).await;
    proof.unwrap_or_else(|_| {
        let why = format!("no end of the exchange within {PROOF_LIMIT:?}");
        Err(refused(shared, why))
    })
}

/// The connection context, which comes before all calls.
fn context(shared: &Shared, user: UserInformation, protocol: Protocol) -> Bytes {
    wire::encode_context(shared.client_id, Some(user), protocol)
}

/// Room left for headers below the limit on a whole frame.
const HEADERS_BYTES: usize = 1024;

fn request_frame<Req: prost::Message>(
    shared: &Shared,
    call_id: i32,
    protocol: Protocol,
    method: &'static str,
    request: &Req,
) -> Result<Bytes, RpcError> {
    let limit = shared.options.request_max_bytes;
    let len = request.encoded_len();
    if len.saturating_add(HEADERS_BYTES) > limit {
        return Err(RpcError::TooLarge { method, len, limit });
    }
    let header = wire::call_header(call_id, shared.client_id, 0);
    Ok(wire::encode_call(&header, protocol, method, request))
}
