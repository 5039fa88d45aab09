//! The domain socket beside the data transfer port: the same operations for clients of this host.

use std::sync::Arc;

use hayloft_io::Means;
use hayloft_rpc::AcceptTrouble;

use super::context::Xceivers;
use super::net::domain_listener::DomainListener;
use super::server::{Accepted, admit};

/// Serves connections until shutdown; those that are busy then are waited for by
/// [`serve`](super::serve). The socket file goes with the listener.
pub async fn serve_domain(x: Xceivers, listener: DomainListener) {
    x.segments().enable();
    let mut trouble = AcceptTrouble::of("domain socket");
    loop {
        let accepted = tokio::select! {
            () = x.shutdown_token().cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok(stream) => {
                trouble.works();
                if let Ok(stream) = stream.into_std() {
                    let path = Arc::clone(listener.path());
                    admit(&x, x.threads(), Accepted::Domain(stream, path));
                }
            }
            Err(error) => {
                if let Some(means) = Means::lacking(&error) {
                    means.note();
                }
                tokio::select! {
                    () = x.shutdown_token().cancelled() => return,
                    () = tokio::time::sleep(trouble.failed(&error)) => {}
                }
            }
        }
    }
}
