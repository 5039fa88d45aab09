//! Calls on their way to their answers, and answers on their way out.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt;
use hayloft_wire::rpc::{self, RpcRequestHeader};
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::mpsc;
use tokio::time::{Duration, Instant, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, debug, error};

use super::fault::RpcFault;
use super::negotiation::RpcCall;
use super::stats::RpcStats;
use super::{Service, Shared, response_frames};
use crate::security::Wrapping;

/// Answers that are ready go out together up to so many bytes.
const BATCH: usize = 64 << 10;

/// A frame on its way out, and what wraps it.
pub(super) struct Outgoing {
    pub(super) bytes: Bytes,
    pub(super) wrapping: Option<Arc<Wrapping>>,
}

/// Lets a call run on its own; `held` is released when it is answered.
pub(super) fn start_call<S: Service>(
    shared: &Arc<Shared<S>>,
    (answers, wrapping): (&mpsc::Sender<Outgoing>, &Option<Arc<Wrapping>>),
    header: Box<RpcRequestHeader>,
    call: RpcCall,
    held: impl Send + 'static,
) {
    let shared = Arc::clone(shared);
    shared.stats.requests.add(1);
    let (answers, wrapping) = (answers.clone(), wrapping.clone());
    let tasks = shared.tasks.clone();
    let answering = async move {
        let (method, stats) = (call.method.clone(), &shared.stats);
        let came = Instant::now();
        let waiting = stats.waiting.hold();
        let (answer, processing) = {
            let _handler = shared.handlers.acquire().await;
            drop(waiting);
            stats.queue.add(came.elapsed());
            let _running = stats.running.hold();
            let began = Instant::now();
            let answer = AssertUnwindSafe(shared.service.call(call))
                .catch_unwind()
                .await;
            (answer, began.elapsed())
        };
        stats.processing.add(processing);
        if !matches!(&answer, Ok(Err(fault)) if fault.is_unknown_method()) {
            stats.called(&method, processing, came.elapsed());
        }
        let answer = answer.unwrap_or_else(|_panic| {
            error!(
                method,
                "an RPC call failed inside the node; please report this"
            );
            Err(RpcFault::io(format!("{method} failed inside the DataNode")))
        });
        let bytes = match answer {
            Ok(body) => {
                stats.successes.add(1);
                rpc::encode_success_delimited(&header, &body)
            }
            Err(fault) => {
                debug!(method, %fault, "RPC call refused");
                response_frames::failure(&header, &fault)
            }
        };
        // An error means the connection is gone; the client will ask again on another one.
        let made = Instant::now();
        let _sent = answers.send(Outgoing { bytes, wrapping }).await;
        stats.response.add(made.elapsed());
        drop(held);
    };
    tasks.spawn(answering.in_current_span());
}

/// Writes answers in the order they are ready, as many at once as there are.
pub(super) async fn write_answers(
    mut write: OwnedWriteHalf,
    mut queue: mpsc::Receiver<Outgoing>,
    limit: Duration,
    broken: CancellationToken,
    stats: Arc<RpcStats>,
) {
    let mut batch = BytesMut::new();
    while let Some(first) = queue.recv().await {
        let Some(first) = wrapped(first).await else {
            broken.cancel();
            return;
        };
        let sent = timeout(limit, async {
            let Ok(second) = queue.try_recv() else {
                return write.write_all(&first).await.map(|()| first.len());
            };
            batch.clear();
            batch.extend_from_slice(&first);
            let mut next = Some(second);
            while let Some(answer) = next.take() {
                let answer = wrapped(answer).await;
                let answer = answer.ok_or_else(|| std::io::Error::other("it cannot be wrapped"))?;
                batch.extend_from_slice(&answer);
                if batch.len() < BATCH {
                    next = queue.try_recv().ok();
                }
            }
            write.write_all(&batch).await.map(|()| batch.len())
        })
        .await;
        let Ok(Ok(bytes)) = sent else {
            broken.cancel();
            return;
        };
        stats.sent_bytes.add(bytes);
    }
    // The client sees the end of the stream even when its own half stays open.
    let _ended = timeout(limit, write.shutdown()).await;
}

/// The bytes for the socket. `None`: they cannot be wrapped, and nothing may go out in clear.
async fn wrapped(answer: Outgoing) -> Option<Bytes> {
    let Some(wrapping) = answer.wrapping else {
        return Some(answer.bytes);
    };
    match wrapping
        .wrap_whole(answer.bytes, rpc::encode_sasl_response)
        .await
    {
        Ok(bytes) => Some(bytes),
        Err(error) => {
            debug!(%error, "an answer cannot be wrapped");
            None
        }
    }
}
