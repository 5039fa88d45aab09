//! One connection: takes frames in, hands out calls, writes answers.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use hayloft_wire::rpc::{self, RpcSasl};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::exchange::{Exchange, NotBelieved, Proven};
use super::fault::RpcFault;
use super::negotiation::{Action, Header, Session};
use super::received_frames::{End, Frame, Reader};
use super::run_calls::{Outgoing, start_call, write_answers};
use super::{Service, Shared, response_frames};
use crate::log_limit::LogLimit;
use crate::security::Wrapping;

/// Answers that wait to be written.
const ANSWERS: usize = 32;

/// Serves one connection to its end.
pub(super) async fn run<S: Service>(
    shared: &Arc<Shared<S>>,
    stream: TcpStream,
    address: SocketAddr,
) {
    let (read, write) = stream.into_split();
    let (answers, queue) = mpsc::channel::<Outgoing>(ANSWERS);
    let broken = CancellationToken::new();
    let writer = shared.tasks.spawn(write_answers(
        write,
        queue,
        shared.limits.write_timeout,
        broken.clone(),
        Arc::clone(&shared.stats),
    ));
    let mut reader = Reader::new(shared.as_ref(), read, broken);
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
    if matches!(end, End::Refused(_) | End::Fault(_) | End::NotBelieved(_)) {
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
        End::FrameLength { .. }
        | End::Refused(_)
        | End::Fault(_)
        | End::NotBelieved(_)
        | End::Unwrapped(_) => {
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
    answers: &mpsc::Sender<Outgoing>,
    address: SocketAddr,
) -> Result<Never, End> {
    let header = reader.header().await?;
    let Header::Rpc { sasl } = header else {
        if let Some(last_words) = header.refusal() {
            send(answers, last_words).await?;
        }
        return Err(End::Refused(header));
    };
    let security = shared.service.security();
    let tokens = shared.service.tokens();
    let mut session = Session::new(address, sasl, security.clone(), tokens);
    if let Some((last_words, fault)) = session.unproven() {
        shared.stats.refused.add(1);
        send(answers, last_words).await?;
        return Err(End::Fault(fault));
    }
    if security.is_some() {
        reader.distrust();
    }
    let known_by = Instant::now() + 3 * shared.limits.patience;
    let unknown_until = |session: &Session| (!session.established()).then_some(known_by);
    let mut exchange = None;
    let mut wrapping: Option<Arc<Wrapping>> = None;
    let in_flight = Arc::new(Semaphore::new(shared.limits.calls_per_connection));
    loop {
        let frame = next_frame(shared, reader, &in_flight, unknown_until(&session)).await?;
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
            Action::Exchange { anew, token } => {
                if anew {
                    exchange = security.clone().map(Exchange::new);
                }
                let proven = one_step(shared, exchange.as_mut(), answers, &token).await?;
                if let Some(proven) = proven {
                    wrapping = believe(reader, &mut session, proven);
                    exchange = None;
                }
            }
            Action::Believe(proven, last) => {
                send(answers, last).await?;
                wrapping = believe(reader, &mut session, *proven);
            }
            Action::Reply(bytes) => send(answers, bytes).await?,
            Action::Close(last_words, fault) => {
                send_wrapped(answers, last_words, wrapping).await?;
                return Err(End::Fault(fault));
            }
            Action::Call(header, call) => {
                let came = Instant::now();
                let room = room_for_call(shared, &in_flight, &reader.broken).await?;
                shared.stats.enqueue.add(came.elapsed());
                start_call(
                    shared,
                    (answers, &wrapping),
                    header,
                    call,
                    (room, frame.budget),
                );
            }
        }
    }
}

/// Goes on as agreed with a client that has proved who it is; what wraps the frames to it.
fn believe<S: Service>(
    reader: &mut Reader<'_, S>,
    session: &mut Session,
    proven: Proven,
) -> Option<Arc<Wrapping>> {
    let wrapping = proven.wrapping.clone();
    if let Some(wrapping) = &wrapping {
        reader.unwrap_with(Arc::clone(wrapping));
    }
    reader.trust();
    session.prove(proven);
    wrapping
}

/// The next frame. A client of whom nothing is known has to have said who it is by `unknown_until`:
/// pings do not help it.
async fn next_frame<S: Service>(
    shared: &Shared<S>,
    reader: &mut Reader<'_, S>,
    in_flight: &Semaphore,
    unknown_until: Option<Instant>,
) -> Result<Frame, End> {
    let Some(until) = unknown_until else {
        let busy = || in_flight.available_permits() < shared.limits.calls_per_connection;
        return reader.frame(shared.idle_limit(), busy).await;
    };
    let frame = timeout_at(until, reader.frame(shared.limits.patience, || false)).await;
    frame.map_err(|_| End::Slow("saying who it is"))?
}

/// Takes in a client's token, and answers it. Gives back who it is, once that is proved.
async fn one_step<S: Service>(
    shared: &Arc<Shared<S>>,
    exchange: Option<&mut Exchange>,
    answers: &mpsc::Sender<Outgoing>,
    token: &[u8],
) -> Result<Option<Proven>, End> {
    let Some(exchange) = exchange else {
        return Err(End::Fault(RpcFault::invalid_header(
            "No exchange has begun",
        )));
    };
    match exchange.step(token).await {
        Ok(stepped) => {
            let message = RpcSasl {
                version: Some(0),
                state: stepped.state.into(),
                token: stepped.token.map(Bytes::from),
                auths: Vec::new(),
            };
            send(answers, rpc::encode_sasl_response(&message)).await?;
            Ok(stepped.proven)
        }
        Err(NotBelieved { fault, reason }) => {
            shared.stats.refused.add(1);
            let call = response_frames::out_of_band(rpc::CALL_SASL);
            send(answers, response_frames::failure(&call, &fault)).await?;
            Err(End::NotBelieved(reason))
        }
    }
}

async fn send(answers: &mpsc::Sender<Outgoing>, bytes: Bytes) -> Result<(), End> {
    send_wrapped(answers, bytes, None).await
}

async fn send_wrapped(
    answers: &mpsc::Sender<Outgoing>,
    bytes: Bytes,
    wrapping: Option<Arc<Wrapping>>,
) -> Result<(), End> {
    let answer = Outgoing { bytes, wrapping };
    answers.send(answer).await.map_err(|_| End::NotReading)
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
