//! The data transfer port: connections in, one task each, one operation after another.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hayloft_io::Means;
use hayloft_rpc::AcceptTrouble;
use hayloft_wire::transfer::{self, Op, OpError, OpRequest};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, MissedTickBehavior};
use tracing::Instrument as _;

use super::block_receiver;
use super::check_token;
use super::context::{AfterOperation, Xceivers};
use super::error::XferError;
use super::log_writers::LogThread;
use super::ops::{
    block_checksum, block_group_checksum, copy_and_replace, read_block, short_circuit,
    transfer_block,
};
use super::segments::OwnSegment;
use super::settings::Settings;
use super::stats::{Activity, Gauge, count_operation};
use crate::xceiver::net::conn::Conn;
use crate::xceiver::net::handshake::{self, HandshakeRefused};
use crate::xceiver::net::loopback_congestion::Pacing;
use crate::xceiver::net::thread_of_its_own::run_alone;
use crate::xceiver::net::threads::{ThreadPlace, Threads};

/// Operations in progress get this long to end by themselves at shutdown.
const DRAIN: Duration = Duration::from_secs(2);

/// How often idle memory and the threads are looked at.
const LOOK: Duration = Duration::from_millis(500);

/// Buffers that were not used for so long go back to the system: readers come in bursts, and new
/// memory has to be cleared.
const IDLE_MEMORY: Duration = Duration::from_secs(60);

/// Serves connections until shutdown, then waits for those that are busy, a moment.
pub async fn serve(x: Xceivers, listener: TcpListener) {
    let threads = x.threads();
    let pacing = Pacing::of_listener(&listener, x.settings().unpaced_local);
    let mut trouble = AcceptTrouble::of("data transfer");
    let mut short = Means::Memory.met();
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let accepted = tokio::select! {
            () = x.shutdown_token().cancelled() => break,
            _ = look.tick() => {
                // Where memory is short, what is idle goes at once.
                let now = Means::Memory.met();
                let calm = std::mem::replace(&mut short, now) == now;
                x.memory().trim(if calm { IDLE_MEMORY } else { Duration::ZERO });
                continue;
            }
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                trouble.works();
                pacing.settle(&stream);
                if let Ok(stream) = stream.into_std() {
                    admit(&x, threads, Accepted::Tcp(stream));
                }
            }
            Err(error) => {
                if let Some(means) = Means::lacking(&error) {
                    means.note();
                }
                tokio::select! {
                    () = x.shutdown_token().cancelled() => break,
                    () = tokio::time::sleep(trouble.failed(&error)) => {}
                }
            }
        }
    }
    drop(listener);
    x.tasks().close();
    if tokio::time::timeout(DRAIN, x.tasks().wait()).await.is_err() {
        tracing::info!(
            connections = x.stats().now(Activity::Connection),
            "data transfer connections are cut off by the shutdown"
        );
    }
}

/// A connection that was accepted, to be given to a thread.
pub(super) enum Accepted {
    /// At the port.
    Tcp(std::net::TcpStream),
    /// At this path.
    Domain(std::os::unix::net::UnixStream, Arc<Path>),
}

/// Starts a connection's task, unless too many are open: then it is closed without a word, which
/// stock clients take for a busy node.
pub(super) fn admit(x: &Xceivers, threads: &Threads, accepted: Accepted) {
    let settings = x.settings();
    let full = x.stats().now(Activity::Connection) >= settings.max_connections;
    let Some(place) = x.client_place().filter(|_| !full) else {
        x.stats().rejected.add(1);
        if let Some(skipped) = x.log_limit().may_log() {
            let limit = match full {
                true => "dfs.datanode.max.transfer.threads",
                false => "open files (LimitNOFILE, ulimit -n)",
            };
            tracing::warn!(
                skipped,
                "a data transfer connection was closed: the limit of {limit} is reached"
            );
        }
        return;
    };
    let gauge = x.stats().enter(Activity::Connection);
    let (x, tasks) = (x.clone(), x.tasks().clone());
    let session = |thread| async move {
        // From now on this thread looks after it.
        let Some(conn) = opened(&x, &settings, accepted).await else {
            return;
        };
        let session = Session {
            x,
            conn,
            settings,
            gauge,
            _place: place,
        };
        session.run(thread).await;
    };
    threads.spawn(&tasks, |thread| session(thread).in_current_span());
}

/// The connection behind its handshake, if it needs one; `None` when it is not served.
async fn opened(x: &Xceivers, settings: &Settings, accepted: Accepted) -> Option<Conn> {
    let gone = |error: &std::io::Error| {
        tracing::debug!(%error, "a data transfer connection was gone at once");
    };
    let stream = match accepted {
        Accepted::Tcp(stream) => stream,
        Accepted::Domain(stream, path) => {
            let stream = UnixStream::from_std(stream).inspect_err(gone).ok()?;
            let conn = Conn::domain(stream, &path, settings);
            return conn.inspect_err(gone).ok();
        }
    };
    let mut stream = TcpStream::from_std(stream).inspect_err(gone).ok()?;
    let accepted = tokio::select! {
        () = x.shutdown_token().cancelled() => return None,
        accepted = handshake::accept(x, settings, &mut stream) => accepted,
    };
    match accepted {
        Ok(protected) => Conn::new(stream, protected, x.memory(), settings)
            .inspect_err(gone)
            .ok(),
        Err(refused) => {
            let peer = stream
                .peer_addr()
                .map_or_else(|_| "?".to_owned(), |peer| peer.to_string());
            refuse(x, &peer, &refused);
            None
        }
    }
}

/// Logs a client that is not served, within limits.
fn refuse(x: &Xceivers, peer: &str, refused: &HandshakeRefused) {
    if refused.is_routine() {
        tracing::debug!(peer, "the SASL handshake of a connection failed: {refused}");
    } else if let Some(skipped) = x.log_limit().may_log() {
        tracing::warn!(
            peer,
            skipped,
            "the SASL handshake of a connection failed: {refused}"
        );
    }
}

/// An open connection and what it needs.
struct Session {
    x: Xceivers,
    conn: Conn,
    settings: Arc<Settings>,
    gauge: Gauge,
    _place: OwnedSemaphorePermit,
}

impl Session {
    /// Runs the operations of the connection to its end.
    async fn run(mut self, place: ThreadPlace) {
        let mut limit = self.settings.read_timeout;
        while let Some(request) = self.next(limit).await {
            if let Some(thread) = self.own_thread(&request) {
                return self.perform_alone(place, thread, request).await;
            }
            match self.perform(&place, request).await {
                AfterOperation::KeepAlive => {}
                AfterOperation::Close => return,
                AfterOperation::Watch(segment) => return self.watch(place, segment).await,
            }
            self.conn.shrink();
            limit = self.settings.keepalive;
        }
    }

    /// A thread for a log's writer. It takes the descriptors of one more connection, so it needs
    /// the place of one. Who has no token for the block gets none, and is answered as others are.
    fn own_thread(&self, request: &OpRequest) -> Option<(LogThread, OwnedSemaphorePermit)> {
        let OpRequest::WriteBlock(write) = request else {
            return None;
        };
        let client = &write.message.header.client_name;
        let thread = self.x.log_writers().thread_for(client)?;
        let permitted = check_token::permits(&self.x, request);
        permitted.then_some((thread, self.x.client_place()?))
    }

    /// Carries the last request of a connection out on a thread of its own, or here if none can be
    /// had.
    async fn perform_alone(
        mut self,
        place: ThreadPlace,
        thread: (LogThread, OwnedSemaphorePermit),
        request: OpRequest,
    ) {
        drop(place);
        // The stop waits for it as for others, and no longer.
        let kept = (thread, self.x.tasks().token());
        let work = move || {
            let last = async move {
                self.conn = match self.conn.settle_here() {
                    Ok(conn) => conn,
                    Err(error) => {
                        tracing::warn!(%error, "a connection of a log's writer is closed");
                        return;
                    }
                };
                self.perform(&ThreadPlace::alone(), request).await;
            };
            last.in_current_span()
        };
        let span = tracing::Span::current();
        let work = move || span.in_scope(work);
        if let Err((error, work)) = run_alone("hayloft-log", kept, work) {
            Means::Threads.note();
            tracing::debug!(%error, "no thread for a log's writer");
            work().await;
        }
    }

    /// The next request; `None` when there will be none.
    async fn next(&mut self, limit: Duration) -> Option<OpRequest> {
        let request = tokio::select! {
            () = self.x.shutdown_token().cancelled() => return None,
            request = next_request(&mut self.conn, limit) => request,
        };
        request.unwrap_or_else(|error| {
            complain(&self.x, &self.conn, &error);
            None
        })
    }

    /// From now on the connection says whether the client of a segment lives, and is none of
    /// transfers any more.
    async fn watch(mut self, place: ThreadPlace, segment: OwnSegment) {
        drop((self.gauge, place));
        tokio::select! {
            () = self.x.shutdown_token().cancelled() => {}
            () = short_circuit::watch(&mut self.conn, segment) => {}
        }
    }

    /// Carries a request out; what becomes of the connection.
    async fn perform(&mut self, place: &ThreadPlace, request: OpRequest) -> AfterOperation {
        let op = request.op();
        let began = Instant::now();
        let _busy = place.busy();
        let outcome = Box::pin(perform(&self.x, &mut self.conn, request)).await;
        let took = began.elapsed();
        let millis = took.as_millis();
        count_operation(self.x.activity(), op, took, &outcome);
        match outcome {
            Ok(next) => {
                tracing::debug!(op = op.name(), peer = self.conn.peer_name(), millis, "done");
                match next {
                    AfterOperation::KeepAlive if self.settings.keepalive.is_zero() => {
                        AfterOperation::Close
                    }
                    next => next,
                }
            }
            Err(error) => {
                report(&self.x, op, self.conn.peer_name(), &error);
                AfterOperation::Close
            }
        }
    }
}

/// A request that could not be taken.
enum RequestError {
    Op(OpError),
    Io(std::io::Error),
}

/// Waits for a request; `None` when the peer went away or stayed silent between requests.
async fn next_request(conn: &mut Conn, limit: Duration) -> Result<Option<OpRequest>, RequestError> {
    let deadline = (!limit.is_zero()).then(|| Instant::now() + limit);
    loop {
        if let Some(request) = conn
            .decode(transfer::decode_request)
            .map_err(RequestError::Op)?
        {
            return Ok(Some(request));
        }
        // One deadline for the whole request: sending it byte by byte does not hold the connection.
        let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
        match conn.fill(left).await {
            Ok(true) => {}
            Ok(false) if conn.inbox_is_empty() => return Ok(None),
            Ok(false) => return Err(RequestError::Io(std::io::ErrorKind::UnexpectedEof.into())),
            Err(_) if conn.inbox_is_empty() => return Ok(None),
            Err(error) => return Err(RequestError::Io(error)),
        }
    }
}

/// Logs a request that makes no sense, within limits.
fn complain(x: &Xceivers, conn: &Conn, error: &RequestError) {
    let Some(skipped) = x.log_limit().may_log() else {
        return;
    };
    let reason = match error {
        RequestError::Op(error) => error.to_string(),
        RequestError::Io(error) => format!("the request was not completed: {error}"),
    };
    tracing::warn!(
        peer = conn.peer_name(),
        skipped,
        "closing a data transfer connection: {reason}"
    );
}

/// Logs a failed operation: loudly only if someone should look at it, and within limits.
pub(super) fn report(x: &Xceivers, op: Op, peer: &str, error: &XferError) {
    let op = op.name();
    // Counted, and said for all of them.
    if error.lacks_means() {
        tracing::debug!(op, peer, "refused: {error}");
        return;
    }
    // What a peer can cause without a token hides nothing else, and readers that had enough hide
    // neither.
    let limit = match error {
        _ if error.is_peer_gone() => x.gone_limit(),
        _ if error.needs_no_token() => x.log_limit(),
        _ => x.failure_limit(),
    };
    let Some(skipped) = limit.may_log() else {
        return;
    };
    let (loud, what) = match error {
        _ if error.is_peer_gone() => (false, "ended early"),
        // Clients whose token has expired fetch a new one.
        XferError::Token(refused) => (!refused.is_routine(), "block token verification failed"),
        XferError::Protocol { .. } => (true, "closing a data transfer connection"),
        _ => (true, "failed"),
    };
    match loud {
        true => tracing::warn!(op, peer, skipped, "{what}: {error}"),
        false => tracing::info!(op, peer, skipped, "{what}: {error}"),
    }
}

async fn perform(
    x: &Xceivers,
    conn: &mut Conn,
    request: OpRequest,
) -> Result<AfterOperation, XferError> {
    if let Some(answer) = short_circuit::refusal_before_ready(x, &request).await {
        conn.write_message(&answer).await?;
        return Ok(AfterOperation::KeepAlive);
    }
    check_token::check(x, conn, &request).await?;
    match request {
        OpRequest::WriteBlock(request) => block_receiver::write_block(x, conn, *request).await,
        OpRequest::ReadBlock(request) => read_block::read_block(x, conn, *request).await,
        OpRequest::ReplaceBlock(request) => {
            copy_and_replace::replace_block(x, conn, *request).await
        }
        OpRequest::CopyBlock(request) => copy_and_replace::copy_block(x, conn, *request).await,
        OpRequest::BlockChecksum(request) => {
            block_checksum::block_checksum(x, conn, *request).await
        }
        OpRequest::TransferBlock(request) => {
            transfer_block::on_client_order(x, conn, *request).await
        }
        OpRequest::BlockGroupChecksum(request) => {
            block_group_checksum::group_checksum(x, conn, *request).await
        }
        OpRequest::RequestShortCircuitFds(request) => {
            short_circuit::pass_descriptors(x, conn, *request).await
        }
        OpRequest::ReleaseShortCircuitFds(request) => {
            short_circuit::release(x, conn, &request).await
        }
        OpRequest::RequestShortCircuitShm(_) => {
            let segment = short_circuit::share_memory(x, conn).await?;
            Ok(segment.map_or(AfterOperation::KeepAlive, AfterOperation::Watch))
        }
        OpRequest::Custom(request) => Err(XferError::protocol(
            conn.peer_name(),
            format!("custom operation {:?} is unknown", request.custom_id),
        )),
    }
}
