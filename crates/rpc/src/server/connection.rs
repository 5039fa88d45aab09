//! One connection: reads frames, hands out calls, writes answers.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use hayloft_wire::rpc::CONNECTION_HEADER_BYTES;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedReadHalf;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{Duration, Instant, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::fault::RpcFault;
use super::negotiation::{Action, Header, Session};
use super::run_calls::{start_call, write_answers};
use super::{BUDGET_UNIT, Service, Shared};
use crate::log_limit::LogLimit;

/// Frames up to this size do not draw on the shared budget.
const SMALL_FRAME: usize = 64 << 10;
/// Memory grows by at most this much ahead of the bytes that have come.
const GROWTH: usize = 64 << 10;
/// Buffer of a connection at rest.
const BUFFER: usize = 4 << 10;
/// Slowest pace at which a frame may come in once `patience` is over.
const SLOWEST_BYTES_PER_S: usize = 64 << 10;
/// How long, and for how many bytes, a refused client may go on sending.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 64 << 10;
/// Answers that wait to be written.
const ANSWERS: usize = 32;

/// Why a connection ends.
#[derive(Debug, thiserror::Error)]
enum End {
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
    #[error("the client does not take its answers")]
    NotReading,
}

/// Serves one connection to its end.
pub(super) async fn run<S: Service>(
    shared: &Arc<Shared<S>>,
    stream: TcpStream,
    address: SocketAddr,
) {
    let (read, write) = stream.into_split();
    let (answers, queue) = mpsc::channel(ANSWERS);
    let broken = CancellationToken::new();
    let writer = shared.tasks.spawn(write_answers(
        write,
        queue,
        shared.limits.write_timeout,
        broken.clone(),
        Arc::clone(&shared.stats),
    ));
    let mut reader = Reader {
        shared: shared.as_ref(),
        read,
        buffer: BytesMut::with_capacity(BUFFER),
        broken,
    };
    let end = match serve(shared, &mut reader, &answers, address).await {
        Ok(never) => match never {},
        Err(end) => end,
    };
    // Calls under way hold the channel open: their answers still go out before the socket closes.
    drop(answers);
    log_end(&end, address, &shared.log_limit);
    if !matches!(end, End::NotReading | End::Io(_)) {
        // The writer ends by itself; waiting keeps this connection counted until then.
        let _joined = writer.await;
    }
    if matches!(end, End::Refused(_) | End::Fault(_)) {
        reader.linger().await;
    }
}

/// Says why a connection ended: what a stranger can cause at will, within limits.
fn log_end(end: &End, address: SocketAddr, log_limit: &LogLimit) {
    match end {
        End::Closed | End::Stopping | End::Idle(_) => {
            debug!(%address, reason = %end, "RPC connection closed");
        }
        End::Io(_) | End::Truncated(_) | End::Slow(_) | End::NotReading => {
            if let Some(skipped) = log_limit.may_log() {
                info!(%address, skipped, reason = %end, "RPC connection lost");
            }
        }
        End::FrameLength { .. } | End::Refused(_) | End::Fault(_) => {
            if let Some(skipped) = log_limit.may_log() {
                warn!(%address, skipped, reason = %end, "RPC connection refused");
            }
        }
    }
}

/// Uninhabited: a connection is served until it ends.
enum Never {}

async fn serve<S: Service>(
    shared: &Arc<Shared<S>>,
    reader: &mut Reader<'_, S>,
    answers: &mpsc::Sender<Bytes>,
    address: SocketAddr,
) -> Result<Never, End> {
    let header = reader.header().await?;
    let Header::Rpc { sasl } = header else {
        if let Some(last_words) = header.refusal() {
            send(answers, last_words).await?;
        }
        return Err(End::Refused(header));
    };
    let mut session = Session::new(address, sasl);
    let in_flight = Arc::new(Semaphore::new(shared.limits.calls_per_connection));
    loop {
        let silence = if session.established() {
            shared.idle_limit()
        } else {
            shared.limits.patience
        };
        let busy = || in_flight.available_permits() < shared.limits.calls_per_connection;
        let frame = reader.frame(silence, busy).await?;
        let action = match session.on_frame(frame.bytes) {
            Action::Authorize(caller) => match shared.service.authorize(&caller).await {
                Ok(()) => {
                    shared.stats.authorized.add(1);
                    session.admit(caller);
                    Action::Nothing
                }
                Err(why) => {
                    shared.stats.refused.add(1);
                    Session::reject(why)
                }
            },
            action => action,
        };
        match action {
            Action::Nothing | Action::Authorize(_) => {}
            Action::Reply(bytes) => send(answers, bytes).await?,
            Action::Close(last_words, fault) => {
                send(answers, last_words).await?;
                return Err(End::Fault(fault));
            }
            Action::Call(header, call) => {
                let came = Instant::now();
                let room = room_for_call(shared, &in_flight, &reader.broken).await?;
                shared.stats.enqueue.add(came.elapsed());
                start_call(shared, answers, header, call, (room, frame.budget));
            }
        }
    }
}

async fn send(answers: &mpsc::Sender<Bytes>, bytes: Bytes) -> Result<(), End> {
    answers.send(bytes).await.map_err(|_| End::NotReading)
}

/// Permits that a call holds until it is answered.
type Room = (OwnedSemaphorePermit, OwnedSemaphorePermit);

/// Waits until the connection and the port may have one more call; meanwhile nothing is read.
async fn room_for_call<S: Service>(
    shared: &Arc<Shared<S>>,
    in_flight: &Arc<Semaphore>,
    broken: &CancellationToken,
) -> Result<Room, End> {
    let room = async {
        let own = Arc::clone(in_flight).acquire_owned().await;
        let common = Arc::clone(&shared.queue).acquire_owned().await;
        own.ok()
            .zip(common.ok())
            .expect("the permits are never closed")
    };
    tokio::select! {
        room = room => Ok(room),
        () = shared.stop.cancelled() => Err(End::Stopping),
        () = broken.cancelled() => Err(End::NotReading),
    }
}

/// A frame without its length, and its share of the receive budget when it is a big one.
struct Frame {
    bytes: Bytes,
    budget: Option<OwnedSemaphorePermit>,
}

/// The receiving half with its buffer.
struct Reader<'a, S> {
    shared: &'a Shared<S>,
    read: OwnedReadHalf,
    buffer: BytesMut,
    /// Set when answers can no longer be written.
    broken: CancellationToken,
}

impl<S> Reader<'_, S> {
    /// Reads the connection header. The first four bytes decide whether it is a browser.
    async fn header(&mut self) -> Result<Header, End> {
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
    async fn linger(&mut self) {
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

    /// Reads one frame without its length. Waits for its beginning for `silence`, and again as long
    /// as the client has calls under way (`busy`).
    async fn frame(&mut self, silence: Duration, busy: impl Fn() -> bool) -> Result<Frame, End> {
        const WHAT: &str = "a frame";
        if self.buffer.is_empty() {
            self.wait_for_bytes(silence, busy).await?;
        }
        let patience = self.shared.limits.patience;
        timeout(patience, self.fill(4, WHAT))
            .await
            .map_err(|_| End::Slow(WHAT))??;
        let announced = self.buffer.get_i32();
        let limit = self.shared.limits.frame_bytes;
        let length = usize::try_from(announced)
            .ok()
            .filter(|length| *length <= limit)
            .ok_or(End::FrameLength { announced, limit })?;
        let budget = self.budget(length).await?;
        let deadline = patience + Duration::from_secs((length / SLOWEST_BYTES_PER_S) as u64);
        timeout(deadline, self.fill(length, WHAT))
            .await
            .map_err(|_| End::Slow(WHAT))??;
        let bytes = self.buffer.split_to(length).freeze();
        self.shared.stats.received_bytes.add(4 + length);
        if self.buffer.is_empty() && length > SMALL_FRAME {
            self.buffer = BytesMut::with_capacity(BUFFER);
        }
        Ok(Frame { bytes, budget })
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
