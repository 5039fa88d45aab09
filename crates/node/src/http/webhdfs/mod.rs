//! WebHDFS as Apache's DataNode serves it: the bytes of files, for clients that a NameNode sends
//! here.
//!
//! | module | what it is |
//! |---|---|
//! | `parameters` | path and parameters of a request, and what is wrong with them |
//! | `caller` | who asks, and which NameNode |
//! | `refusal` | errors as Hadoop's clients know them |
//! | `download` | `OPEN` and `GETFILECHECKSUM` |
//! | `upload` | `CREATE` and `APPEND` |
//! | `hosts` | who may read from where |
//! | `browsers` | requests that a page of another site made a browser send |
//!
//! A request never acts as the node's own user, and never makes the node talk to a NameNode that is
//! not in its configuration.

mod browsers;
mod caller;
mod download;
mod hosts;
mod parameters;
mod refusal;
mod upload;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::any;
use axum::{Extension, Router};
use hayloft_conf::{Configuration, keys};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::WebHost;
use super::stalled_connections::Peer;
use caller::NameNodeGroups;
use hayloft_client::{ClientSettings, FileClient, FileTransfer, StripeRoom, Turns};
use parameters::Parameters;
use refusal::Refusal;

pub(super) use browsers::guard;

/// Below it are the paths of files.
const ROOT: &str = "/webhdfs/v1";
/// Files that are read or written at a time.
const TRANSFERS_MAX: usize = 256;
/// Striped files among them whose cells are in memory: those that are written, and those that are
/// decoded because units are lost.
const STRIPED_MAX: usize = 16;
/// Bytes that are taken and dropped of what a client sends although it is refused, and for how
/// long: a connection that is closed before them may lose the answer.
const DROPPED_BYTES_MAX: usize = 1 << 20;
const DROPPED_WITHIN: Duration = Duration::from_secs(3);

/// What requests share.
pub(super) struct WebHdfs {
    host: Arc<dyn WebHost>,
    groups: NameNodeGroups,
    turns: Turns,
    /// Of striped files; each has one of `turns`, too.
    stripes: Arc<Turns>,
}

/// Serves everything below [`ROOT`].
pub(super) fn router(host: Arc<dyn WebHost>) -> Router {
    let shared = Arc::new(WebHdfs {
        host,
        groups: NameNodeGroups::default(),
        turns: Turns::new(TRANSFERS_MAX),
        stripes: Arc::new(Turns::new(STRIPED_MAX)),
    });
    Router::new()
        .route(ROOT, any(serve))
        .route("/webhdfs/v1/", any(serve))
        .route("/webhdfs/v1/{*path}", any(serve))
        .with_state(shared)
}

async fn serve(
    State(shared): State<Arc<WebHdfs>>,
    peer: Option<Extension<Peer>>,
    request: Request,
) -> Response {
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let peer = peer.map(|Extension(peer)| peer);
    let response = match answer(&shared, peer.as_ref(), request).await {
        Ok(response) => response,
        Err((refusal, rest)) => {
            if let Some(body) = rest {
                drop_some(body).await;
            }
            refusal.into_response()
        }
    };
    // Not the whole of it: delegation tokens are in the query.
    let is_name = |op: &String| op.bytes().all(|byte| byte.is_ascii_alphabetic());
    let op = super::parameter(uri.query(), "op").filter(is_name);
    let path = uri.path();
    debug!(%method, path, op, status = response.status().as_u16(), "WebHDFS");
    response
}

/// What a refused client had begun to send.
type Unread = Option<Body>;

async fn answer(
    shared: &Arc<WebHdfs>,
    peer: Option<&Peer>,
    request: Request,
) -> Result<Response, (Refusal, Unread)> {
    let (head, body) = request.into_parts();
    // A client that waits to be told to go on sends nothing until then.
    let waits = head.headers.contains_key(header::EXPECT);
    let outcome = dispatch(shared, peer, &head, body).await;
    outcome.map_err(|(refusal, body)| (refusal, body.filter(|_| !waits)))
}

async fn dispatch(
    shared: &Arc<WebHdfs>,
    peer: Option<&Peer>,
    head: &Parts,
    body: Body,
) -> Result<Response, (Refusal, Unread)> {
    let prepared = async {
        let parameters = Parameters::of(&head.uri)?;
        let config = shared.host.config().current();
        let caller = caller::identify(&config, &parameters)?;
        Ok((parameters, config, caller))
    };
    let (parameters, config, caller) = match prepared.await {
        Ok(prepared) => prepared,
        Err(refusal) => return Err((refusal, Some(body))),
    };
    let op = parameters.get("op").map(str::to_ascii_uppercase);
    let wanted = match (op.as_deref(), &head.method) {
        (Some("CREATE"), &Method::OPTIONS) => return Ok(preflight()),
        (Some("CREATE"), &Method::PUT) => Wanted::Create,
        (Some("APPEND"), &Method::POST) => Wanted::Append,
        (Some("OPEN"), &Method::GET) => Wanted::Open,
        (Some("GETFILECHECKSUM"), &Method::GET) => Wanted::Checksum,
        _ => {
            let named = parameters.get("op").unwrap_or("null");
            let refusal = Refusal::argument(format!("Invalid operation {named}"));
            return Err((refusal, Some(body)));
        }
    };
    let ready = async {
        if matches!(wanted, Wanted::Open) {
            hosts::check(&config, &parameters, peer.map(|peer| peer.address))?;
        }
        let group = shared.groups.find(&config, &parameters).await?;
        let settings = ClientSettings::new(&config, shared.host.local_address());
        // A client that does not read can only be cut off; one that sends gets an answer.
        let ended = match (&wanted, peer) {
            (Wanted::Open, Some(peer)) => peer.ended().clone(),
            _ => CancellationToken::new(),
        };
        let transfer = FileTransfer::new(ended);
        let turn = shared.turns.next(&transfer).await;
        let turn = turn.ok_or_else(Refusal::busy)?;
        let stripes = StripeRoom::new(Arc::clone(&shared.stripes), transfer);
        let client = FileClient::new(&group, Arc::new(settings), caller, stripes);
        if let Some(peer) = peer {
            peer.may_last();
        }
        Ok((client, turn))
    };
    let (client, turn) = match ready.await {
        Ok(ready) => ready,
        Err(refusal) => return Err((refusal, Some(body))),
    };
    match wanted {
        Wanted::Create => upload::create(&config, client, &parameters, body, turn).await,
        Wanted::Append => upload::append(client, &parameters, body, turn).await,
        Wanted::Open => download::open(client, &parameters, turn)
            .await
            .map_err(no_body),
        Wanted::Checksum => download::checksum(client, &parameters, turn)
            .await
            .map_err(no_body),
    }
}

/// Whether the class of that name is among Apache's guards of WebHDFS.
fn has_guard(config: &Configuration, class: &str) -> bool {
    let all = config.get(&keys::HTTPSERVER_FILTER_HANDLERS);
    all.split(',').any(|one| one.trim().ends_with(class))
}

/// What is asked for.
enum Wanted {
    Create,
    Append,
    Open,
    Checksum,
}

fn no_body(refusal: Refusal) -> (Refusal, Unread) {
    (refusal, None)
}

/// Tells a browser that pages of other sites may send files here, as the NameNode's page does. That
/// page names a content type, which a browser sends only with permission: Apache's node does not
/// give it, and uploads fail there (HDFS-17040).
fn preflight() -> Response {
    let headers = [
        (header::ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, "accept, content-type"),
        (header::ACCESS_CONTROL_ALLOW_METHODS, "PUT"),
        (header::ACCESS_CONTROL_MAX_AGE, "1728000"),
        (header::CONTENT_LENGTH, "0"),
        (header::CONNECTION, "keep-alive"),
    ];
    (StatusCode::OK, headers).into_response()
}

/// An answer after which the connection is closed.
fn closing(mut response: Response) -> Response {
    let close = HeaderValue::from_static("close");
    response.headers_mut().insert(header::CONNECTION, close);
    response
}

/// Takes what a refused client sends, within limits.
async fn drop_some(body: Body) {
    use futures_util::StreamExt as _;
    let mut frames = body.into_data_stream();
    let taking = async {
        let mut taken = 0;
        while taken < DROPPED_BYTES_MAX {
            match frames.next().await {
                Some(Ok(bytes)) => taken += bytes.len(),
                _ => break,
            }
        }
    };
    let _ = tokio::time::timeout(DROPPED_WITHIN, taking).await;
}
