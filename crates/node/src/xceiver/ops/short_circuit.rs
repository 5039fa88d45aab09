//! REQUEST_SHORT_CIRCUIT_FDS, REQUEST_SHORT_CIRCUIT_SHM and RELEASE_SHORT_CIRCUIT_FDS: clients of
//! this host get the files of a replica, and read by themselves.

use std::os::fd::AsFd as _;
use std::time::Duration;

use hayloft_store::{PlainFiles, StoreErrorKind};
use hayloft_wire::proto::datatransfer as pb;
use hayloft_wire::transfer::{BlockOpResponse, BlockRequest, OpRequest, Status};

use crate::activity::Count;
use crate::xceiver::context::{AfterOperation, Xceivers};
use crate::xceiver::error::XferError;
use crate::xceiver::net::conn::Conn;
use crate::xceiver::segments::{OwnSegment, RegisteredSlot};

/// Version of the files: block and meta file as they are.
const VERSION: u32 = 1;

/// How long a client may take to say that it has the descriptors.
const RECEIPT: Duration = Duration::from_secs(30);

const NOT_OVER_TCP: &str =
    "You cannot pass file descriptors over anything but a UNIX domain socket.";
const NO_FILES: &str = "this replica has no files of its own that are complete; read it over TCP";
const NO_SEGMENTS: &str =
    "This datanode has not been configured to support short-circuit shared memory segments.";
const TOO_MANY: &str = "as many shared memory segments are open as this node allows";

/// What a client of a pool that is not served yet is told at once: it reads over TCP, and that
/// waits. `None` for every other request.
pub async fn refusal_before_ready(x: &Xceivers, request: &OpRequest) -> Option<BlockOpResponse> {
    let OpRequest::RequestShortCircuitFds(request) = request else {
        return None;
    };
    let pool = &request.block.pool;
    if x.link().wait_ready(pool, Duration::ZERO).await {
        return None;
    }
    Some(unsupported(
        XferError::NotReady(pool.to_string()).to_string(),
    ))
}

/// With the version: the client takes another way for this read, and asks again for the next.
fn unsupported(why: impl Into<String>) -> BlockOpResponse {
    BlockOpResponse {
        short_circuit_access_version: Some(VERSION),
        ..BlockOpResponse::error(Status::ErrorUnsupported, why)
    }
}

/// Files for a client, and the slot by which it hears of changes.
struct Passed {
    files: PlainFiles,
    slot: Option<RegisteredSlot>,
}

/// Passes the descriptors of a replica's two files.
///
/// # Errors
/// The client went away, or did not say in time that it has them.
pub async fn pass_descriptors(
    x: &Xceivers,
    conn: &mut Conn,
    request: BlockRequest<pb::OpRequestShortCircuitAccess>,
) -> Result<AfterOperation, XferError> {
    let Passed { files, slot } = match prepare(x, conn, &request).await {
        Ok(passed) => passed,
        Err(refusal) => {
            conn.write_message(&refusal).await?;
            return Ok(AfterOperation::KeepAlive);
        }
    };
    let answer = BlockOpResponse {
        short_circuit_access_version: Some(VERSION),
        ..BlockOpResponse::of(Status::Success)
    };
    conn.write_message(&answer).await?;
    // As a byte: whether a receipt is expected.
    let asks = request.message.supports_receipt_verification == Some(true);
    let fds = [files.data.as_fd(), files.meta.as_fd()];
    let sent = conn.send_descriptors(&fds, u8::from(asks)).await;
    sent.map_err(|e| conn.socket_error(e))?;
    drop(files);
    if asks {
        let receipt = conn.read_exact_small(1, Some(RECEIPT)).await;
        let receipt = receipt.and_then(|byte| byte.ok_or(std::io::ErrorKind::UnexpectedEof.into()));
        receipt.map_err(|e| conn.socket_error(e))?;
    }
    if let Some(slot) = slot {
        slot.keep();
    }
    Ok(AfterOperation::KeepAlive)
}

/// Registers the slot, then opens the files: a change in between is told.
async fn prepare(
    x: &Xceivers,
    conn: &Conn,
    request: &BlockRequest<pb::OpRequestShortCircuitAccess>,
) -> Result<Passed, BlockOpResponse> {
    let error = |text: String| BlockOpResponse::error(Status::Error, text);
    let BlockRequest { block, message } = request;
    if !conn.passes_descriptors() {
        return Err(error(NOT_OVER_TCP.to_owned()));
    }
    let watch = |marks| x.store().watch_replica(block, marks);
    let slot = message.slot_id.as_ref();
    let slot = slot.map(|slot| x.segments().register(slot, watch));
    let slot = slot.transpose().map_err(error)?;
    let newest = message.max_version;
    if newest < VERSION {
        return Err(unsupported(format!(
            "Your client is too old to read this block!  Its format version is {VERSION}, but the \
             highest format version you can read is {newest}"
        )));
    }
    x.activity().add(Count::BlocksGetLocalPathInfo, 1);
    match x.store().open_plain_files(block).await {
        Ok(Some(files)) => Ok(Passed { files, slot }),
        Ok(None) => Err(unsupported(NO_FILES)),
        Err(e) if e.kind() == StoreErrorKind::NotFound => {
            Err(error(format!("No data exists for block {block}")))
        }
        // The process or the disk may do better later; over TCP the block may be decoded.
        Err(e)
            if matches!(
                e.kind(),
                StoreErrorKind::Retry | StoreErrorKind::VolumeFailed
            ) || e.io_error().is_some() =>
        {
            x.store().check_volumes_soon();
            Err(unsupported(e.to_string()))
        }
        Err(e) => Err(error(e.to_string())),
    }
}

/// Makes a segment for a client. With it the connection is used for nothing more: see
/// [`watch`]. `None`: the client was told why there is none.
///
/// # Errors
/// The client went away.
pub async fn share_memory(x: &Xceivers, conn: &Conn) -> Result<Option<OwnSegment>, XferError> {
    let answer = |status: Status, error: Option<String>| pb::ShortCircuitShmResponse {
        status: status.into(),
        error,
        id: None,
    };
    if !conn.passes_descriptors() {
        let text = format!(
            "Bad request from {}: must request a shared memory segment over a UNIX domain socket.",
            conn.peer_name()
        );
        conn.write_message(&answer(Status::ErrorInvalid, Some(text)))
            .await?;
        return Ok(None);
    }
    let failed =
        |error: std::io::Error| format!("Failed to create shared file descriptor: {error}");
    let created = match x.segment_place() {
        Some(place) => x.segments().create(place).map_err(failed),
        None => Err(format!("{NO_SEGMENTS} ({TOO_MANY})")),
    };
    let (segment, fd) = match created {
        Ok(created) => created,
        // Clients go on without shared memory: they hear nothing of changes then, as older ones do.
        // After another answer they would ask again without pause.
        Err(text) => {
            conn.write_message(&answer(Status::ErrorUnsupported, Some(text)))
                .await?;
            return Ok(None);
        }
    };
    let success = pb::ShortCircuitShmResponse {
        id: Some(segment.id()),
        ..answer(Status::Success, None)
    };
    conn.write_message(&success).await?;
    let sent = conn.send_descriptors(&[fd.as_fd()], 0).await;
    sent.map_err(|e| conn.socket_error(e))?;
    Ok(Some(segment))
}

/// Keeps a segment until its client ends the connection or says anything on it.
pub async fn watch(conn: &mut Conn, segment: OwnSegment) {
    if conn.inbox_is_empty() {
        let _ended = conn.fill(None).await;
    }
    drop(segment);
}

/// Gives a slot back.
///
/// # Errors
/// The client went away.
pub async fn release(
    x: &Xceivers,
    conn: &Conn,
    request: &pb::ReleaseShortCircuitAccessRequest,
) -> Result<AfterOperation, XferError> {
    let (status, error) = if x.segments().are_enabled() {
        match x.segments().release(&request.slot_id) {
            Ok(()) => (Status::Success, None),
            Err(text) => (Status::ErrorInvalid, Some(text)),
        }
    } else {
        let text = "unsupported operation".to_owned();
        (Status::ErrorUnsupported, Some(text))
    };
    let answer = pb::ReleaseShortCircuitAccessResponse {
        status: status.into(),
        error,
    };
    conn.write_message(&answer).await?;
    Ok(AfterOperation::KeepAlive)
}
