//! `CREATE` and `APPEND`: a request's body becomes the bytes of a file.

use std::time::Duration;

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use futures_util::StreamExt as _;
use hayloft_conf::{Configuration, keys};
use tokio::time::MissedTickBehavior;
use tracing::{Instrument as _, debug};

use super::parameters::{Parameters, encoded};
use super::refusal::Refusal;
use super::{Unread, closing};
use hayloft_client::{CreateFile, FileClient, FileError, FileWriter, Turn};

/// So often the writer tells the nodes that it is still there: a node may get nothing for long
/// while a client sends slowly, of a striped file in particular.
const KEEP_ALIVE: Duration = Duration::from_secs(20);
/// So often, and the client counts as gone.
const KEEP_ALIVE_MAX: u32 = 6;
/// Permission of a new file where none is asked for.
const PERMISSION: u32 = 0o644;
const CREATE: u32 = 1;
const OVERWRITE: u32 = 2;

/// A new file.
pub(super) async fn create(
    config: &Configuration,
    client: FileClient,
    parameters: &Parameters,
    body: Body,
    turn: Turn,
) -> Result<Response, (Refusal, Unread)> {
    let wanted = match wanted(config, parameters) {
        Ok(wanted) => wanted,
        Err(refusal) => return Err((refusal, Some(body))),
    };
    let path = parameters.path.clone();
    let opening = async move { FileWriter::create(client, &path, &wanted).await };
    store(opening, body, turn).await?;
    let namenode = parameters.get("namenoderpcaddress").unwrap_or_default();
    // A scheme before it was looked past when the NameNode was found.
    let namenode = namenode.rsplit("://").next().unwrap_or_default();
    let place = format!("hdfs://{namenode}{}", encoded(&parameters.path));
    let headers = [
        (header::LOCATION, place),
        (header::CONTENT_LENGTH, "0".to_owned()),
        (header::ACCESS_CONTROL_ALLOW_ORIGIN, "*".to_owned()),
    ];
    Ok(closing((StatusCode::CREATED, headers).into_response()))
}

/// More bytes for a file.
pub(super) async fn append(
    client: FileClient,
    parameters: &Parameters,
    body: Body,
    turn: Turn,
) -> Result<Response, (Refusal, Unread)> {
    if let Err(refusal) = parameters.int("buffersize", 1) {
        return Err((refusal, Some(body)));
    }
    let path = parameters.path.clone();
    let opening = async move { FileWriter::append(client, &path).await };
    store(opening, body, turn).await?;
    let headers = [(header::CONTENT_LENGTH, "0")];
    Ok(closing((StatusCode::OK, headers).into_response()))
}

/// What the parameters ask for; read in Apache's order, so that the same one is complained about.
fn wanted(config: &Configuration, parameters: &Parameters) -> Result<CreateFile, Refusal> {
    parameters.int("buffersize", 1)?;
    let replication = parameters.short("replication", 1)?;
    let block_size = parameters.long("blocksize", 1)?;
    let unmasked = parameters.permission("unmaskedpermission")?;
    let permission = parameters.permission("permission")?;
    let create_parent = parameters.boolean("createparent", true)?;
    let flags = parameters.create_flags()?;
    let overwrite = parameters.boolean("overwrite", false)?;
    let mut flags = flags.unwrap_or_else(|| super::parameters::CreateFlags {
        bits: CREATE,
        ..Default::default()
    });
    if overwrite {
        flags.bits |= OVERWRITE;
    }
    let replication = replication.map(u32::from);
    Ok(CreateFile {
        permission: permission.unwrap_or(PERMISSION),
        unmasked,
        flags: flags.bits,
        create_parent,
        replication: replication.unwrap_or_else(|| config.get(&keys::REPLICATION)),
        block_size: block_size.unwrap_or_else(|| config.get(&keys::BLOCK_SIZE)),
        sync_blocks: flags.sync_blocks,
        no_local_write: flags.no_local_write,
        ignore_locality: flags.ignore_locality,
    })
}

/// Opens the file, writes the body and closes it. In a task of its own: a file that is opened is
/// closed, too, when the client goes away at any time and its connection's task ends.
async fn store(
    opening: impl Future<Output = Result<FileWriter, FileError>> + Send + 'static,
    body: Body,
    turn: Turn,
) -> Result<(), (Refusal, Unread)> {
    let storing = async move {
        match turn.ours(opening).await {
            Ok(writer) => copy(writer, body, turn).await,
            Err(error) => Err((error.into(), body)),
        }
    };
    match tokio::spawn(storing.in_current_span()).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err((refusal, body))) => Err((refusal, Some(body))),
        Err(error) => Err((Refusal::internal(error.to_string()), None)),
    }
}

async fn copy(mut writer: FileWriter, body: Body, turn: Turn) -> Result<(), (Refusal, Body)> {
    let mut frames = body.into_data_stream();
    let mut silent = 0;
    let mut outcome: Result<(), FileError> = Ok(());
    let mut complete = true;
    let mut stalled = false;
    let mut ticks = tokio::time::interval(KEEP_ALIVE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    while outcome.is_ok() {
        let frame = tokio::select! {
            frame = frames.next() => Some(frame),
            _ = ticks.tick() => None,
            () = turn.ended() => {
                stalled = true;
                break;
            }
        };
        match frame {
            Some(Some(Ok(bytes))) => {
                silent = 0;
                turn.moved(bytes.len());
                outcome = turn.ours(writer.write(&bytes)).await;
            }
            Some(None) => break,
            Some(Some(Err(error))) => {
                debug!(%error, "a client went away while it sent a file");
                complete = false;
                break;
            }
            None => {
                silent += 1;
                if silent == KEEP_ALIVE_MAX {
                    debug!("a client stopped in the middle of a file");
                    stalled = true;
                    break;
                }
                outcome = turn.ours(writer.keep_alive()).await;
            }
        }
    }
    let rest = || Body::from_stream(frames);
    if stalled {
        // Not closed: it would look whole. The NameNode closes it when its lease ends.
        drop(writer);
        return Err((Refusal::stalled(), Body::empty()));
    }
    match outcome {
        // Apache's node closes a file, too, of which only a part came.
        Ok(()) => outcome = turn.ours(writer.close()).await,
        // Nothing is written yet. Ended, or no client could write it until its lease ends.
        Err(FileError::Busy) => {
            if let Err(error) = turn.ours(writer.close()).await {
                debug!(%error, "a file that found no room could not be ended");
            }
        }
        Err(_) => drop(writer),
    }
    match (outcome, complete) {
        (Ok(()), true) => Ok(()),
        (Ok(()), false) => Err((Refusal::stalled(), Body::empty())),
        (Err(error), _) => Err((error.into(), rest())),
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use hayloft_client::{FileTransfer, Turns};

    #[tokio::test(start_paused = true)]
    async fn a_client_that_leaves_while_a_file_is_opened_does_not_end_that() {
        let transfer = FileTransfer::new(CancellationToken::new());
        let turn = Turns::new(1).next(&transfer).await;
        let (opened, is_opened) = oneshot::channel();
        let opening = async move {
            tokio::time::sleep(Duration::from_secs(5)).await;
            let _ = opened.send(());
            Err(FileError::BeyondEnd)
        };
        let storing = store(opening, Body::empty(), turn.expect("a place"));
        let left = tokio::time::timeout(Duration::from_secs(1), storing).await;
        assert!(left.is_err(), "the connection's task ends");
        is_opened.await.expect("the answer is waited for");
    }
}
