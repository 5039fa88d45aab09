//! The two tasks of a connection, and what they share with its calls.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use hayloft_wire::frame;
use hayloft_wire::rpc::{self as wire, CALL_SASL, CLIENT_ID_BYTES, RpcSasl, SaslState};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{RpcError, RpcOptions, remote_error};
use crate::security::Wrapping;

/// A frame is read in steps of this size, so that a lying length costs no memory.
const READ_STEP_BYTES: usize = 64 << 10;
/// What wrapping may add to a message, bytes.
const WRAPPING_BYTES: usize = 4 << 10;
/// Bytes of a successful answer, or why there are none.
pub(super) type Answer = Result<Bytes, RpcError>;

/// What the two tasks and the calls share.
pub(super) struct Shared {
    pub(super) address: String,
    pub(super) peer: SocketAddr,
    pub(super) client_id: [u8; CLIENT_ID_BYTES],
    pub(super) options: RpcOptions,
    pub(super) next_call_id: AtomicI32,
    /// Calls waiting for an answer, or the reason why there will be none.
    pub(super) pending: Mutex<Result<HashMap<i32, oneshot::Sender<Answer>>, RpcError>>,
    pub(super) calls: Semaphore,
    pub(super) started: Instant,
    /// Milliseconds after `started` at which the server was last heard.
    pub(super) heard_ms: AtomicU64,
    pub(super) closed: CancellationToken,
}

impl Shared {
    /// Ends the connection: every waiting and later call fails with `error`.
    pub(super) fn fail(&self, error: &RpcError) {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(calls) = &mut *pending {
            let calls = std::mem::take(calls);
            *pending = Err(error.clone());
            drop(pending);
            for waiting in calls.into_values() {
                // The caller may have gone; no other task wants to know.
                let _ = waiting.send(Err(error.clone()));
            }
        }
        self.closed.cancel();
    }

    pub(super) fn waiting(&self) -> usize {
        let pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        pending.as_ref().map_or(0, HashMap::len)
    }

    pub(super) fn take(&self, call_id: i32) -> Option<oneshot::Sender<Answer>> {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        pending.as_mut().ok()?.remove(&call_id)
    }

    pub(super) fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    pub(super) fn lost(&self, reason: impl ToString) -> RpcError {
        RpcError::Lost {
            address: self.address.clone(),
            reason: reason.to_string(),
        }
    }

    pub(super) fn malformed(&self, reason: impl ToString) -> RpcError {
        RpcError::Malformed {
            address: self.address.clone(),
            reason: reason.to_string(),
        }
    }
}

/// Writes queued frames, and pings while calls wait on a silent server.
pub(super) async fn write_frames<W: AsyncWrite + Unpin>(
    shared: Arc<Shared>,
    mut socket: W,
    (preamble, mut queue): (Bytes, mpsc::Receiver<Bytes>),
    wrapping: Option<Arc<Wrapping>>,
) {
    let ping = wire::encode_ping(shared.client_id);
    let ping_interval = shared.options.ping_interval.unwrap_or(Duration::MAX);
    let mut next = Some(preamble);
    loop {
        if let Some(bytes) = next.take() {
            let bytes = match &wrapping {
                None => bytes,
                Some(wrapping) => {
                    let wrapped = wrapping.wrap_in_pieces(bytes, wire::encode_sasl_request);
                    match wrapped.await {
                        Ok(wrapped) => wrapped,
                        Err(error) => {
                            shared.fail(&shared.lost(error));
                            break;
                        }
                    }
                }
            };
            let written = tokio::select! {
                written = socket.write_all(&bytes) => written,
                () = shared.closed.cancelled() => break,
            };
            if let Err(error) = written {
                shared.fail(&shared.lost(error));
                break;
            }
        }
        tokio::select! {
            frame = queue.recv() => match frame {
                Some(frame) => next = Some(frame),
                None => break,
            },
            () = shared.closed.cancelled() => break,
            () = tokio::time::sleep(ping_interval) => {
                if shared.waiting() > 0 {
                    next = Some(ping.clone());
                }
            }
        }
    }
    // Best effort: the peer learns sooner that no more requests come.
    let _ = socket.shutdown().await;
}

/// Reads answers until the connection ends.
pub(super) async fn read_answers<R: AsyncRead + Unpin>(
    shared: Arc<Shared>,
    mut frames: FrameReader<R>,
) {
    let error = loop {
        let frame = tokio::select! {
            frame = frames.next(&shared) => frame,
            () = shared.closed.cancelled() => return,
        };
        match frame.and_then(|frame| deliver(&shared, frame)) {
            Ok(()) => shared.heard_ms.store(shared.now_ms(), Ordering::Relaxed),
            Err(error) => break error,
        }
    };
    shared.fail(&error);
}

/// The server's frames, as they come or out of `WRAP` messages.
pub(super) struct FrameReader<R> {
    socket: R,
    wrapping: Option<Arc<Wrapping>>,
    /// What was unwrapped and is no whole frame yet.
    unwrapped: BytesMut,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    pub(super) fn new(socket: R, wrapping: Option<Arc<Wrapping>>) -> Self {
        Self {
            socket,
            wrapping,
            unwrapped: BytesMut::new(),
        }
    }

    /// The next frame, without its length.
    async fn next(&mut self, shared: &Shared) -> Result<Bytes, RpcError> {
        let limit = shared.options.response_max_bytes;
        let Some(wrapping) = self.wrapping.clone() else {
            return read_frame(&mut self.socket, shared, limit).await;
        };
        loop {
            if let Some(length) = self.unwrapped.first_chunk::<4>() {
                let length = announced(shared, u32::from_be_bytes(*length), limit)?;
                if self.unwrapped.len() - 4 >= length {
                    self.unwrapped.advance(4);
                    return Ok(self.unwrapped.split_to(length).freeze());
                }
            }
            let most = limit.saturating_add(WRAPPING_BYTES);
            let outer = read_frame(&mut self.socket, shared, most).await?;
            let message = wire::parse_response(outer).map_err(|error| shared.malformed(error))?;
            let id = message.call_id();
            // Not even a refusal is believed in clear: anyone between could have written it.
            let body = message.outcome.map_err(|_| {
                shared.malformed("an error in clear where wrapped frames were agreed")
            })?;
            let sasl: RpcSasl = frame::decode(body).map_err(|error| shared.malformed(error))?;
            let token = sasl
                .token
                .filter(|_| sasl.state == i32::from(SaslState::Wrap));
            let (Some(token), CALL_SASL) = (token, id) else {
                return Err(shared.malformed("a frame in clear where wrapped ones were agreed"));
            };
            let plain = wrapping
                .unwrap(token)
                .await
                .map_err(|error| shared.lost(error))?;
            self.unwrapped.extend_from_slice(&plain);
        }
    }
}

/// A length that a server announced, if it is acceptable.
fn announced(shared: &Shared, announced: u32, limit: usize) -> Result<usize, RpcError> {
    let len = usize::try_from(announced).unwrap_or(usize::MAX);
    if len > limit {
        return Err(shared.malformed(format!(
            "it announced {announced} bytes; at most {limit} are accepted \
                (ipc.maximum.response.length)"
        )));
    }
    Ok(len)
}

/// Reads one frame, without its length.
pub(super) async fn read_frame<R: AsyncRead + Unpin>(
    socket: &mut R,
    shared: &Shared,
    limit: usize,
) -> Result<Bytes, RpcError> {
    let length = socket
        .read_u32()
        .await
        .map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => shared.lost("the server closed it"),
            _ => shared.lost(error),
        })?;
    let len = announced(shared, length, limit)?;
    let mut frame = BytesMut::with_capacity(len.min(READ_STEP_BYTES));
    while frame.len() < len {
        let step = (len - frame.len()).min(READ_STEP_BYTES);
        frame.reserve(step);
        let mut room = (&mut frame).limit(step);
        let read = socket
            .read_buf(&mut room)
            .await
            .map_err(|error| shared.lost(error))?;
        if read == 0 {
            return Err(shared.lost("the server closed it in the middle of an answer"));
        }
    }
    Ok(frame.freeze())
}

/// Hands an answer to its call. An error ends the connection.
fn deliver(shared: &Shared, frame: Bytes) -> Result<(), RpcError> {
    let response = wire::parse_response(frame).map_err(|error| shared.malformed(error))?;
    let waiting = shared.take(response.call_id());
    let outcome = response.outcome.map_err(remote_error);
    let (answer, last) = match outcome {
        Ok(bytes) => (Ok(bytes), None),
        Err((error, fatal)) => (Err(error.clone()), fatal.then_some(error)),
    };
    // Without a waiting call: it timed out or was cancelled, the answer is of no use.
    if let Some(waiting) = waiting {
        let _ = waiting.send(answer);
    }
    last.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::tests::{refusal, shared};
    use crate::security::tests::Plain;

    #[tokio::test]
    async fn nothing_in_clear_is_believed_where_wrapped_frames_were_agreed() {
        let shared = shared(([127, 0, 0, 1], 1).into());
        let first = |bytes: Bytes| {
            let shared = &shared;
            async move {
                let mut frames = FrameReader::new(&bytes[..], Some(Plain::wrapping(1 << 16)));
                frames.next(shared).await
            }
        };
        for call in [CALL_SASL, 0, -3] {
            let clear = refusal(call, "org.example.DisallowedDatanodeException", "go away");
            let got = first(clear).await;
            assert!(matches!(&got, Err(RpcError::Malformed { .. })), "{got:?}");
        }
        let inner = refusal(0, "org.example.DisallowedDatanodeException", "go away");
        let wrapped = wire::encode_sasl_response(&RpcSasl::step(SaslState::Wrap, inner.to_vec()));
        assert_eq!(first(wrapped).await.expect("a frame"), inner.slice(4..));
    }
}
