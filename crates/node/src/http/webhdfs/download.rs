//! `OPEN` and `GETFILECHECKSUM`.

use std::fmt::Write as _;

use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use serde_json::json;
use tracing::debug;

use super::closing;
use super::parameters::Parameters;
use super::refusal::Refusal;
use hayloft_client::{FileChecksum, FileClient, FileReader, Turn};

/// Bytes of Java's checksum object as a whole; those that it does not use are zeros.
const JAVA_CHECKSUM_BYTES: usize = 32;

/// A range of a file.
pub(super) async fn open(
    client: FileClient,
    parameters: &Parameters,
    turn: Turn,
) -> Result<Response, Refusal> {
    parameters.int("buffersize", 1)?;
    let offset = parameters.long("offset", 0)?.unwrap_or(0);
    let length = parameters.long("length", 0)?;
    let opening = FileReader::open(client, &parameters.path, offset, length);
    let reader = turn.ours(opening).await?;
    let headers = [
        (header::ACCESS_CONTROL_ALLOW_METHODS, "GET".to_owned()),
        (header::ACCESS_CONTROL_ALLOW_ORIGIN, "*".to_owned()),
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (header::CONTENT_LENGTH, reader.remaining().to_string()),
    ];
    let bytes = stream::try_unfold((reader, turn), |(mut reader, turn)| async move {
        match turn.ours(reader.next()).await {
            Ok(bytes) => Ok(bytes.map(|bytes| {
                turn.moved(bytes.len());
                (bytes, (reader, turn))
            })),
            Err(error) => {
                // The head is gone: all that is left is to cut the body off.
                debug!(%error, "a file cannot be read on, its reader gets no more");
                Err(std::io::Error::other(error))
            }
        }
    });
    Ok(closing((headers, Body::from_stream(bytes)).into_response()))
}

/// One checksum for a file.
pub(super) async fn checksum(
    client: FileClient,
    parameters: &Parameters,
    turn: Turn,
) -> Result<Response, Refusal> {
    let computing = FileChecksum::of(&client, &parameters.path);
    let checksum = turn.ours(computing).await?;
    let bytes = checksum.bytes();
    let length = bytes.len();
    let mut hex = String::new();
    for byte in bytes {
        let _ = write!(hex, "{byte:02x}");
    }
    let padded = 2 * JAVA_CHECKSUM_BYTES;
    let body = json!({"FileChecksum": {
        "algorithm": checksum.algorithm(),
        "bytes": format!("{hex:0<padded$}"),
        "length": length,
    }});
    let kind = [(header::CONTENT_TYPE, "application/json; charset=utf-8")];
    Ok(closing((kind, body.to_string()).into_response()))
}
