//! Connections of the web port: threads of their own, and limits on all that a peer may do.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::{Extension, Router};
use hayloft_io::locks::lock;
use hayloft_io::{Means, unbroken};
use hayloft_rpc::AcceptTrouble;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error};

use super::filters::OverTls;
use super::stalled_connections::{PatientStream, Peer};
use super::tls::Tls;
use super::{WebFilters, WebHost, router};
use crate::daemon::process_limits::keep_a_blocking_thread;

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
/// Bytes of a request's head, as Hadoop has it: tickets may carry groups of a directory.
pub(super) const HEAD_BYTES_MAX: usize = 64 << 10;
/// Headers in it.
const HEADERS_MAX: usize = 100;

/// A pause before threads are asked for again.
const AGAIN: Duration = Duration::from_secs(1);

/// Where the web is served.
#[derive(Default)]
pub(crate) struct WebPorts {
    pub(crate) plain: Option<TcpListener>,
    pub(crate) tls: Option<(TcpListener, Arc<Tls>)>,
}

/// Serves the web ports behind their filters until the node stops, on threads of its own. At most
/// `connections_max` connections are served at the same time. Where there are no threads it tries
/// again.
pub(crate) fn serve(
    host: Arc<dyn WebHost>,
    (ports, filters): (WebPorts, Arc<WebFilters>),
    connections_max: usize,
    stop: CancellationToken,
) {
    let span = tracing::Span::current();
    let places = Arc::new(Semaphore::new(connections_max.min(CONNECTIONS_MAX)));
    let waiting = Arc::new(Mutex::new(Some((host, ports, filters))));
    tokio::spawn(async move {
        loop {
            let (waiting, places) = (Arc::clone(&waiting), Arc::clone(&places));
            let (span, ended) = (span.clone(), stop.clone());
            let thread = std::thread::Builder::new().name("http".into());
            let spawned = thread.spawn(move || {
                let _entered = span.enter();
                let work = lock(&waiting).take();
                if let Some((host, ports, filters)) = work {
                    let routes = || router(Arc::clone(&host), Arc::clone(&filters));
                    serve_here(routes, ports, places, ended);
                }
            });
            let Err(error) = spawned else { return };
            Means::Threads.note();
            debug!(%error, "the web port waits for a thread");
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(AGAIN) => {}
            }
        }
    });
}

/// Serves on this thread, and others of its own.
fn serve_here(
    routes: impl Fn() -> Router,
    ports: WebPorts,
    places: Arc<Semaphore>,
    stop: CancellationToken,
) {
    let build = || {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("http")
            .enable_all()
            .build()
    };
    // A builder without its first thread panics.
    while !stop.is_cancelled() {
        match std::panic::catch_unwind(build) {
            Ok(Ok(runtime)) => {
                runtime.block_on(serve_all(routes, ports, places, stop));
                // Files that are still written stay open, as when the node is killed.
                runtime.shutdown_background();
                return;
            }
            Ok(Err(error)) => {
                Means::lacking(&error).unwrap_or(Means::Threads).note();
                debug!(%error, "the web port waits for a runtime");
            }
            Err(_) => Means::Threads.note(),
        }
        std::thread::sleep(AGAIN);
    }
}

async fn serve_all(
    routes: impl Fn() -> Router,
    ports: WebPorts,
    places: Arc<Semaphore>,
    stop: CancellationToken,
) {
    let plain = ports.plain.and_then(of_this_runtime);
    let tls = ports.tls;
    let tls = tls.and_then(|(listener, tls)| Some((of_this_runtime(listener)?, tls)));
    unbroken("web port", stop.cancelled(), || async {
        let web = Web {
            router: routes(),
            places: Arc::clone(&places),
            stop: stop.clone(),
        };
        let kept = keep_a_blocking_thread(stop.clone());
        let plain = async {
            if let Some(listener) = &plain {
                web.accept(listener, None).await;
            }
        };
        let tls = async {
            if let Some((listener, tls)) = &tls {
                let watch = Arc::clone(tls).watch(stop.clone());
                tokio::join!(watch, web.accept(listener, Some(tls)));
            }
        };
        tokio::join!(kept, plain, tls);
    })
    .await;
}

/// A listener belongs to the runtime that bound it, before.
fn of_this_runtime(listener: TcpListener) -> Option<TcpListener> {
    let listener = listener.into_std().and_then(TcpListener::from_std);
    let failed = |error: &std::io::Error| error!(%error, "the web port is not served");
    listener.inspect_err(failed).ok()
}

/// What both ports serve, and share.
struct Web {
    router: Router,
    places: Arc<Semaphore>,
    stop: CancellationToken,
}

impl Web {
    async fn accept(&self, listener: &TcpListener, tls: Option<&Arc<Tls>>) {
        let mut trouble = AcceptTrouble::of("web");
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
                Ok((stream, from)) => {
                    trouble.works();
                    (stream, Peer::new(from.ip()))
                }
                Err(error) => {
                    if let Some(means) = Means::lacking(&error) {
                        means.note();
                    }
                    tokio::select! {
                        () = self.stop.cancelled() => return,
                        () = tokio::time::sleep(trouble.failed(&error)) => {}
                    }
                    continue;
                }
            };
            let over_tls = Extension(OverTls(tls.is_some()));
            let router = self.router.clone().layer(Extension(peer.clone()));
            let router = router.layer(over_tls);
            let (stop, tls) = (self.stop.clone(), tls.cloned());
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    #[tokio::test]
    async fn the_web_port_begins_again_after_a_panic_and_stops_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let (begun, before) = (AtomicU32::new(0), hayloft_io::services_broken());
        let routes = || {
            assert!(begun.fetch_add(1, Ordering::Relaxed) > 0, "wrong");
            Router::new().fallback(async || "here")
        };
        let ports = WebPorts {
            plain: Some(listener),
            tls: None,
        };
        let (places, stop) = (Arc::new(Semaphore::new(4)), CancellationToken::new());
        let asking = async {
            let mut stream = tokio::net::TcpStream::connect(address).await?;
            let request = b"GET / HTTP/1.1\r\nHost: n\r\nConnection: close\r\n\r\n";
            stream.write_all(request).await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            stop.cancel();
            Ok::<_, std::io::Error>(answer)
        };
        let serving = serve_all(routes, ports, places, stop.clone());
        let (_, answer) = tokio::join!(serving, timeout(Duration::from_secs(30), asking));
        let answer = answer.expect("in time").expect("answers");
        assert!(answer.ends_with("here"), "{answer}");
        assert!(hayloft_io::services_broken() > before);
    }
}
