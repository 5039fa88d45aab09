//! Connections of the web port: threads of their own, and limits on all that a peer may do.

use std::sync::Arc;
use std::time::Duration;

use axum::{Extension, Router};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, warn};

use super::patience::{PatientStream, Peer};
use super::tls::Tls;
use super::{WebHost, router};

/// Connections at once; more wait to be accepted.
const CONNECTIONS_MAX: usize = 1024;
/// A request's head comes within this time. An idle connection is closed after it, too.
const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// No connection lasts longer, unless a file is sent or received over it: a client that reads
/// slowly keeps its place for so long.
const CONNECTION_LASTS: Duration = Duration::from_secs(120);
/// A client takes something within this time.
const WRITE_WITHIN: Duration = Duration::from_secs(60);
/// Threads: one for scrapes while files are on their way through the other.
const THREADS: usize = 2;
/// Bytes of a request's head, and headers in it.
const HEAD_BYTES_MAX: usize = 16 << 10;
const HEADERS_MAX: usize = 100;

/// Where the web is served.
#[derive(Default)]
pub(crate) struct WebPorts {
    pub(crate) plain: Option<TcpListener>,
    pub(crate) tls: Option<(TcpListener, Arc<Tls>)>,
}

/// Serves the web ports until the node stops, on threads of its own.
pub(crate) fn serve(host: Arc<dyn WebHost>, ports: WebPorts, stop: CancellationToken) {
    let span = tracing::Span::current();
    let thread = std::thread::Builder::new().name("http".into());
    let spawned = thread.spawn(move || {
        let _entered = span.enter();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("http")
            .enable_all()
            .build();
        match runtime {
            Ok(runtime) => {
                runtime.block_on(serve_all(host, ports, stop));
                // Files that are still written stay open, as when the node is killed.
                runtime.shutdown_background();
            }
            Err(error) => error!(%error, "the web port is not served: no runtime for it"),
        }
    });
    if let Err(error) = spawned {
        error!(%error, "the web port is not served: no thread for it");
    }
}

async fn serve_all(host: Arc<dyn WebHost>, ports: WebPorts, stop: CancellationToken) {
    let web = Web {
        router: router(host),
        places: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
        stop,
    };
    let plain = async {
        if let Some(listener) = ports.plain {
            web.accept(listener, None).await;
        }
    };
    let tls = async {
        if let Some((listener, tls)) = ports.tls {
            let watch = Arc::clone(&tls).watch(web.stop.clone());
            tokio::join!(watch, web.accept(listener, Some(tls)));
        }
    };
    tokio::join!(plain, tls);
}

/// What both ports serve, and share.
struct Web {
    router: Router,
    places: Arc<Semaphore>,
    stop: CancellationToken,
}

impl Web {
    async fn accept(&self, listener: TcpListener, tls: Option<Arc<Tls>>) {
        // It belongs to the runtime that bound it.
        let listener = listener.into_std().and_then(TcpListener::from_std);
        let listener = match listener {
            Ok(listener) => listener,
            Err(error) => {
                error!(%error, "the web port is not served");
                return;
            }
        };
        loop {
            let place = Arc::clone(&self.places).acquire_owned();
            let accepted = async {
                let place = place.await.ok()?;
                Some((place, listener.accept().await))
            };
            let (place, accepted) = tokio::select! {
                () = self.stop.cancelled() => return,
                accepted = accepted => match accepted {
                    Some(accepted) => accepted,
                    None => return,
                },
            };
            let (stream, peer) = match accepted {
                Ok((stream, from)) => (stream, Peer::new(from.ip())),
                Err(error) => {
                    warn!(%error, "the web port cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let router = self.router.clone().layer(Extension(peer.clone()));
            let (stop, tls) = (self.stop.clone(), tls.clone());
            let stream = PatientStream::new(stream, WRITE_WITHIN);
            tokio::spawn(async move {
                let _place = place;
                let serving = async {
                    match tls {
                        None => serve_one(stream, router, peer).await,
                        Some(tls) => {
                            match timeout(HEAD_WITHIN, tls.acceptor().accept(stream)).await {
                                Ok(Ok(stream)) => serve_one(stream, router, peer).await,
                                Ok(Err(error)) => {
                                    debug!(%error, "no TLS with a client of the web port")
                                }
                                Err(_) => debug!("a client of the web port does not begin TLS"),
                            }
                        }
                    }
                };
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = serving => {}
                }
            });
        }
    }
}

/// Serves one connection to its end.
async fn serve_one<S>(stream: S, router: Router, peer: Peer)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let too_long = async {
        tokio::time::sleep(CONNECTION_LASTS).await;
        if peer.lasts() {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        () = too_long => {}
        () = peer.ended().cancelled() => {}
        ended = connection => if let Err(error) = ended {
            debug!(%error, "a connection of the web port ended early");
        },
    }
}
