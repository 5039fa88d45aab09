//! Requests that a page of another site made a browser send: refused without a header of our own,
//! which such a page cannot set (`dfs.webhdfs.rest-csrf.*`).

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use hayloft_conf::{Configuration, keys, patterns};
use hyper::ext::ReasonPhrase;

use super::super::WebHost;
use super::has_guard;

/// The handler's name in Apache's configuration.
const HANDLER: &str = "RestCsrfPreventionFilterHandler";

const REASON: &str = "Missing Required Header for CSRF Vulnerability Protection";

/// Lets a request pass, or refuses it.
pub(in super::super) async fn guard(
    State(host): State<Arc<dyn WebHost>>,
    request: Request,
    next: Next,
) -> Response {
    let config = host.config().current();
    let guards = config.get(&keys::WEBHDFS_CSRF_ENABLED) && has_guard(&config, HANDLER);
    if guards && !passes(&config, &request) {
        return refuse(request).await;
    }
    next.run(request).await
}

/// Takes what the client sends, too: a connection that is closed with bytes unread is reset, and
/// the client then does not see why.
async fn refuse(request: Request) -> Response {
    // A client that waits to be told to go on sends nothing until then.
    if !request.headers().contains_key(header::EXPECT) {
        super::drop_some(request.into_body()).await;
    }
    let close = [(header::CONNECTION, "close")];
    let mut response = (StatusCode::BAD_REQUEST, close, REASON).into_response();
    // Hadoop's client shows the reason of the status line, not the body.
    let reason = ReasonPhrase::from_static(REASON.as_bytes());
    response.extensions_mut().insert(reason);
    response
}

fn passes(config: &Configuration, request: &Request) -> bool {
    let agent = request.headers().get(header::USER_AGENT);
    let agent = agent.and_then(|agent| agent.to_str().ok());
    let browsers = config.get(&keys::WEBHDFS_CSRF_BROWSERS);
    // A pattern that is none takes every agent for a browser.
    let is_browser = |agent: &str| {
        let mut all = browsers.split(',').map(str::trim);
        all.any(|pattern| patterns::whole(pattern).is_none_or(|of| of.is_match(agent)))
    };
    if !agent.is_some_and(is_browser) {
        return true;
    }
    let ignored = config.get(&keys::WEBHDFS_CSRF_METHODS_TO_IGNORE);
    let method = request.method().as_str();
    let ignores = ignored.split(',').any(|one| one.trim() == method);
    ignores
        || request
            .headers()
            .contains_key(&*config.get(&keys::WEBHDFS_CSRF_HEADER))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::body::Body;
    use futures_util::StreamExt as _;

    use super::*;

    fn request(method: &str, headers: &[(&str, &str)]) -> Request {
        let mut request = Request::builder().method(method).uri("/webhdfs/v1/a");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(Body::empty()).expect("a request")
    }

    #[tokio::test]
    async fn a_refused_client_s_body_is_taken_unless_it_waits() {
        for (waits, pieces_taken) in [(false, 3), (true, 0)] {
            let taken = Arc::new(AtomicUsize::new(0));
            let counter = Arc::clone(&taken);
            let pieces = futures_util::stream::iter(0..3).map(move |_| {
                counter.fetch_add(1, Ordering::Relaxed);
                Ok::<_, std::io::Error>("piece")
            });
            let mut request = Request::builder().method("PUT").uri("/webhdfs/v1/a");
            if waits {
                request = request.header(header::EXPECT, "100-continue");
            }
            let request = request.body(Body::from_stream(pieces)).expect("a request");
            let response = refuse(request).await;
            assert_eq!(response.status(), StatusCode::BAD_REQUEST);
            let reason = response.extensions().get::<ReasonPhrase>();
            assert_eq!(reason.map(ReasonPhrase::as_bytes), Some(REASON.as_bytes()));
            assert_eq!(
                taken.load(Ordering::Relaxed),
                pieces_taken,
                "waits: {waits}"
            );
        }
    }

    #[test]
    fn browsers_need_the_header() {
        let config = Configuration::from_properties([("dfs.webhdfs.rest-csrf.enabled", "true")]);
        let config = config.expect("valid");
        let of = |method, headers: &[(&str, &str)]| passes(&config, &request(method, headers));
        let browser = ("user-agent", "Mozilla/5.0 (X11)");
        assert!(!of("PUT", &[browser]));
        assert!(of("PUT", &[browser, ("x-xsrf-header", "")]));
        assert!(of("GET", &[browser]) && of("OPTIONS", &[browser]));
        assert!(of("PUT", &[("user-agent", "curl/8 Mozilla")]) && of("PUT", &[]));
        let config = Configuration::from_properties([
            ("dfs.webhdfs.rest-csrf.enabled", "true"),
            (
                "dfs.webhdfs.rest-csrf.browser-useragents-regex",
                "Moz|Mozilla",
            ),
        ]);
        let config = config.expect("valid");
        let named = request("PUT", &[("user-agent", "Mozilla")]);
        assert!(!passes(&config, &named), "the second of two names");
    }
}
