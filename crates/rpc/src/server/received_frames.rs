//! Frames as they come: whole, in time, within limits, and out of `WRAP` messages where wrapping
//! was agreed.

use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use hayloft_wire::rpc::{self, CONNECTION_HEADER_BYTES, IncomingFrame, SaslState};
use tokio::io::AsyncReadExt;
use tokio::net::tcp::OwnedReadHalf;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Duration, timeout};
use tokio_util::sync::CancellationToken;

use super::fault::RpcFault;
use super::negotiation::Header;
use super::{BUDGET_UNIT, Shared};
use crate::security::Wrapping;

/// What wrapping may add to a frame, bytes.
const WRAPPING_BYTES: usize = 4 << 10;
/// Frames up to this size do not draw on the shared budget: 64 KiB, wrapped.
const SMALL_FRAME: usize = (64 << 10) + WRAPPING_BYTES;
/// Longest frame of a client that has to prove who it is, before it has, bytes.
const UNPROVEN_BYTES_MAX: usize = 512 << 10;
/// Memory grows by at most this much ahead of the bytes that have come.
const GROWTH: usize = 64 << 10;
/// Buffer of a connection at rest.
const BUFFER: usize = 4 << 10;
/// Slowest pace at which a frame may come in once `patience` is over.
const SLOWEST_BYTES_PER_S: usize = 64 << 10;
/// How long, and for how many bytes, a refused client may go on sending.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 64 << 10;
/// What is in coming, in messages.
const FRAME: &str = "a frame";
/// Why a connection ends.
#[derive(Debug, thiserror::Error)]
pub(super) enum End {
    #[error("the client closed it")]
    Closed,
    #[error("it was silent for {0:?}")]
    Idle(Duration),
    #[error("the node is stopping")]
    Stopping,
    #[error("the client did not finish {0} in time")]
    Slow(&'static str),
    #[error("the client closed it inside {0}")]
    Truncated(&'static str),
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error(
        "the client announced a frame of {announced} bytes; 0 to {limit} are accepted \
            (ipc.maximum.data.length)"
    )]
    FrameLength { announced: i32, limit: usize },
    #[error("the client opened it with {0:?}")]
    Refused(Header),
    #[error("{0}")]
    Fault(RpcFault),
    #[error("the client is not believed: {0}")]
    NotBelieved(String),
    #[error("a wrapped frame of the client is not accepted: {0}")]
    Unwrapped(String),
    #[error("the client does not take its answers")]
    NotReading,
}

/// A frame without its length, and its share of the receive budget when it is a big one.
pub(super) struct Frame {
    pub(super) bytes: Bytes,
    pub(super) budget: Option<OwnedSemaphorePermit>,
}

/// The receiving half with its buffer.
pub(super) struct Reader<'a, S> {
    shared: &'a Shared<S>,
    read: OwnedReadHalf,
    buffer: BytesMut,
    /// Longest frame, bytes.
    limit: usize,
    /// What wraps the client's frames, once that is agreed.
    wrapping: Option<Arc<Wrapping>>,
    /// What was unwrapped and is no whole frame yet.
    unwrapped: BytesMut,
    /// Set when answers can no longer be written.
    pub(super) broken: CancellationToken,
}

impl<'a, S> Reader<'a, S> {
    pub(super) fn new(
        shared: &'a Shared<S>,
        read: OwnedReadHalf,
        broken: CancellationToken,
    ) -> Self {
        Self {
            shared,
            read,
            buffer: BytesMut::with_capacity(BUFFER),
            limit: shared.limits.frame_bytes,
            wrapping: None,
            unwrapped: BytesMut::new(),
            broken,
        }
    }

    /// Takes short frames alone, until it is known who sends them.
    pub(super) fn distrust(&mut self) {
        self.limit = self.limit.min(UNPROVEN_BYTES_MAX);
    }

    /// Takes frames up to the limit of the port.
    pub(super) fn trust(&mut self) {
        self.limit = self.shared.limits.frame_bytes;
    }

    /// Every frame from now on has to be inside `WRAP` messages.
    pub(super) fn unwrap_with(&mut self, wrapping: Arc<Wrapping>) {
        self.wrapping = Some(wrapping);
    }

    /// Reads the connection header. The first four bytes decide whether it is a browser.
    pub(super) async fn header(&mut self) -> Result<Header, End> {
        const WHAT: &str = "the connection header";
        let deadline = self.shared.limits.patience;
        timeout(deadline, self.fill(CONNECTION_HEADER_BYTES, WHAT))
            .await
            .map_err(|_| End::Slow(WHAT))??;
        let mut bytes = [0; CONNECTION_HEADER_BYTES];
        self.buffer.copy_to_slice(&mut bytes);
        Ok(Header::parse(&bytes))
    }

    /// Reads on for a moment after the last words. Closing a socket with unread bytes would take
    /// the words back before the client has read them.
    pub(super) async fn linger(&mut self) {
        let drained = async {
            let mut left = LINGER_BYTES;
            while left > 0 {
                self.buffer.clear();
                match self.read.read_buf(&mut self.buffer).await {
                    Ok(got) if got > 0 => left = left.saturating_sub(got),
                    _ => break,
                }
            }
        };
        let _over = timeout(LINGER, drained).await;
    }

    /// The next frame without its length, as it was before it was wrapped. Waits for its beginning
    /// for `silence`, and again as long as the client has calls under way (`busy`).
    pub(super) async fn frame(
        &mut self,
        silence: Duration,
        busy: impl Fn() -> bool,
    ) -> Result<Frame, End> {
        if let Some(wrapping) = self.wrapping.clone() {
            return self.wrapped_frame(&wrapping, silence, busy).await;
        }
        let length = self.announced(silence, busy).await?;
        let budget = self.budget(length).await?;
        let bytes = self.rest(length).await?;
        Ok(Frame { bytes, budget })
    }

    /// A frame out of `WRAP` messages. Its share of the budget is taken once and as a whole, and
    /// nothing is waited for but the client's bytes by who holds one. So a large message has to
    /// hold one frame, or a part of the frame that was announced: what Hadoop's clients send.
    async fn wrapped_frame(
        &mut self,
        wrapping: &Wrapping,
        silence: Duration,
        busy: impl Fn() -> bool,
    ) -> Result<Frame, End> {
        let mut budget = None;
        while self.unwrapped.is_empty() {
            let length = self.announced(silence, &busy).await?;
            budget = self.budget(length).await?;
            let message = self.rest(length).await?;
            self.unwrap(wrapping, message).await?;
        }
        self.unwrap_until(wrapping, 4, SMALL_FRAME).await?;
        let mut length = [0; 4];
        length.copy_from_slice(&self.unwrapped.split_to(4));
        let length = acceptable(i32::from_be_bytes(length), self.limit)?;
        if budget.is_some() {
            if self.unwrapped.len() != length {
                return Err(End::Unwrapped(format!(
                    "it has more than {SMALL_FRAME} bytes and is not one frame"
                )));
            }
        } else {
            budget = self.budget(length).await?;
        }
        let most = SMALL_FRAME.max(length.saturating_add(WRAPPING_BYTES));
        self.unwrap_until(wrapping, length, most).await?;
        let bytes = self.unwrapped.split_to(length).freeze();
        if length > SMALL_FRAME {
            // What is left is little, and would keep the memory of all.
            self.unwrapped = BytesMut::from(&self.unwrapped[..]);
        }
        Ok(Frame { bytes, budget })
    }

    /// Unwraps messages of up to `most` bytes until there are `length` bytes, in the time that a
    /// frame of this size has.
    async fn unwrap_until(
        &mut self,
        wrapping: &Wrapping,
        length: usize,
        most: usize,
    ) -> Result<(), End> {
        let limit = self.time_for(length);
        let unwrapping = async {
            while self.unwrapped.len() < length {
                let announced = self.announced(Duration::MAX, || true).await?;
                let most = SMALL_FRAME.max(most - self.unwrapped.len());
                if announced > most {
                    return Err(End::Unwrapped(format!(
                        "it has {announced} bytes where {most} would do"
                    )));
                }
                let message = self.rest(announced).await?;
                self.unwrap(wrapping, message).await?;
            }
            Ok(())
        };
        timeout(limit, unwrapping)
            .await
            .map_err(|_| End::Slow(FRAME))?
    }

    /// Adds what is in a `WRAP` message to what is unwrapped.
    async fn unwrap(&mut self, wrapping: &Wrapping, message: Bytes) -> Result<(), End> {
        let token = match rpc::parse_request(message) {
            Ok(IncomingFrame::Sasl(_, sasl)) if sasl.state == i32::from(SaslState::Wrap) => {
                sasl.token
            }
            _ => None,
        };
        let not_wrapped = || RpcFault::invalid_header("Client is not wrapping data");
        let token = token.ok_or_else(|| End::Fault(not_wrapped()))?;
        let plain = wrapping.unwrap(token).await;
        let plain = plain.map_err(|error| End::Unwrapped(error.to_string()))?;
        self.unwrapped.extend_from_slice(&plain);
        Ok(())
    }

    /// Waits for the next length on the socket, and takes it.
    async fn announced(
        &mut self,
        silence: Duration,
        busy: impl Fn() -> bool,
    ) -> Result<usize, End> {
        if self.buffer.is_empty() {
            self.wait_for_bytes(silence, busy).await?;
        }
        let patience = self.shared.limits.patience;
        timeout(patience, self.fill(4, FRAME))
            .await
            .map_err(|_| End::Slow(FRAME))??;
        acceptable(self.buffer.get_i32(), self.limit)
    }

    /// The bytes after a length.
    async fn rest(&mut self, length: usize) -> Result<Bytes, End> {
        timeout(self.time_for(length), self.fill(length, FRAME))
            .await
            .map_err(|_| End::Slow(FRAME))??;
        let bytes = self.buffer.split_to(length).freeze();
        self.shared.stats.received_bytes.add(4 + length);
        if self.buffer.is_empty() && length > SMALL_FRAME {
            self.buffer = BytesMut::with_capacity(BUFFER);
        }
        Ok(bytes)
    }

    /// How long so many bytes may be in coming.
    fn time_for(&self, length: usize) -> Duration {
        let pace = (length / SLOWEST_BYTES_PER_S) as u64;
        self.shared.limits.patience + Duration::from_secs(pace)
    }

    async fn wait_for_bytes(
        &mut self,
        silence: Duration,
        busy: impl Fn() -> bool,
    ) -> Result<(), End> {
        loop {
            self.buffer.reserve(BUFFER);
            let got = tokio::select! {
                got = timeout(silence, self.read.read_buf(&mut self.buffer)) => got,
                () = self.shared.stop.cancelled() => return Err(End::Stopping),
                () = self.broken.cancelled() => return Err(End::NotReading),
            };
            match got {
                Ok(Ok(0)) => return Err(End::Closed),
                Ok(Ok(_)) => return Ok(()),
                Ok(Err(error)) => return Err(End::Io(error)),
                Err(_) if busy() => {}
                Err(_) => return Err(End::Idle(silence)),
            }
        }
    }

    /// A share of the receive budget for a big frame.
    async fn budget(&self, length: usize) -> Result<Option<OwnedSemaphorePermit>, End> {
        if length <= SMALL_FRAME {
            return Ok(None);
        }
        let units = u32::try_from(length.div_ceil(BUDGET_UNIT)).expect("a frame is below 2 GiB");
        tokio::select! {
            permit = Arc::clone(&self.shared.budget).acquire_many_owned(units) => {
                Ok(Some(permit.expect("the budget is never closed")))
            }
            () = self.shared.stop.cancelled() => Err(End::Stopping),
        }
    }

    /// Reads until the buffer holds at least `length` bytes.
    async fn fill(&mut self, length: usize, what: &'static str) -> Result<(), End> {
        while self.buffer.len() < length {
            let missing = length - self.buffer.len();
            self.buffer.reserve(missing.clamp(BUFFER, GROWTH));
            if self.read.read_buf(&mut self.buffer).await? == 0 {
                return Err(
                    if self.buffer.is_empty() && length <= CONNECTION_HEADER_BYTES {
                        End::Closed
                    } else {
                        End::Truncated(what)
                    },
                );
            }
        }
        Ok(())
    }
}

/// A length that a client announced, if it is acceptable.
fn acceptable(announced: i32, limit: usize) -> Result<usize, End> {
    let length = usize::try_from(announced).ok();
    let length = length.filter(|length| *length <= limit);
    length.ok_or(End::FrameLength { announced, limit })
}
