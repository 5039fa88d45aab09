//! What stands before the pages of the web port (`hadoop.http.filter.initializers`), as before
//! those of Apache's node: all of them, and not WebHDFS, whose callers a NameNode knows.
//!
//! - `administrators`: pages that are for administrators alone
//! - `authentication`: tickets of Kerberos, or a name in the URL; and the cookie for later requests
//! - `cookie`: that cookie

mod administrators;
mod authentication;
mod cookie;

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use hayloft_conf::{Configuration, SharedConfig, keys};

use administrators::Administrators;
pub(super) use administrators::{to_insight, to_the_log};
use authentication::Authentication;

/// Whether a connection is over TLS.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OverTls(pub(super) bool);

/// Who asks, as far as the filters know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WebUser {
    /// Short name.
    name: Option<String>,
    /// Whether that was proved by a ticket, or by a cookie for one.
    proved: bool,
}

/// What passed a filter.
#[derive(Debug, Default)]
struct Passed {
    user: WebUser,
    /// For the answer.
    headers: Vec<(HeaderName, HeaderValue)>,
}

/// Why a request got no further.
#[derive(Debug)]
struct Refused {
    status: StatusCode,
    message: &'static str,
    headers: Vec<(HeaderName, HeaderValue)>,
}

/// One filter.
#[derive(Debug)]
enum Filter {
    /// Callers without a name have this one.
    StaticUser(String),
    /// Callers say, or prove, who they are.
    Authentication(Box<Authentication>),
}

/// All filters, in order, and who administers the node.
#[derive(Debug)]
pub(crate) struct WebFilters {
    filters: Vec<Filter>,
    administrators: Arc<Administrators>,
}

impl WebFilters {
    /// Those of the configuration. Reads the secret of cookies, and the keytab. Blocking.
    ///
    /// # Errors
    /// What is not served, or cannot be used; in words for the operator.
    pub(crate) async fn of(config: &SharedConfig) -> Result<Self, String> {
        let current = config.current();
        let all = current.get(&keys::HTTP_FILTERS);
        let all = all.split(',').map(str::trim).filter(|one| !one.is_empty());
        let mut filters = Vec::new();
        for class in all {
            filters.extend(filter(&current, class).await?);
        }
        Ok(Self {
            filters,
            administrators: Arc::new(Administrators::of(config)?),
        })
    }

    /// Who administers the node.
    pub(super) fn administrators(&self) -> Arc<Administrators> {
        Arc::clone(&self.administrators)
    }

    async fn pass(&self, request: &Asked<'_>) -> Result<Passed, Refused> {
        let mut passed = Passed::default();
        for filter in &self.filters {
            match filter {
                Filter::StaticUser(name) => {
                    passed.user.name.get_or_insert_with(|| name.clone());
                }
                Filter::Authentication(authentication) => {
                    let known = authentication.pass(request).await?;
                    passed.user = known.user;
                    passed.headers.extend(known.headers);
                }
            }
        }
        Ok(passed)
    }
}

/// The filter of a class; `None` for one that changes nothing here.
async fn filter(config: &Configuration, class: &str) -> Result<Option<Filter>, String> {
    // A class of the same name elsewhere may ask for a login.
    match class {
        "org.apache.hadoop.http.lib.StaticUserWebFilter" => {
            let user = config.get(&keys::HTTP_STATIC_USER);
            Ok(Some(Filter::StaticUser(user)))
        }
        "org.apache.hadoop.security.AuthenticationFilterInitializer" => {
            let authentication = Authentication::of(config).await?;
            Ok(Some(Filter::Authentication(Box::new(authentication))))
        }
        // It tells browsers that pages of other sites may read: without it they may not.
        "org.apache.hadoop.security.HttpCrossOriginFilterInitializer" => Ok(None),
        _ => Err(format!(
            "{} ({}) has {class}, which this version does not have: take it out for this node; \
             org.apache.hadoop.http.lib.StaticUserWebFilter and \
             org.apache.hadoop.security.AuthenticationFilterInitializer are served",
            keys::HTTP_FILTERS.name(),
            config.origin(keys::HTTP_FILTERS.name())
        )),
    }
}

/// What filters look at of a request.
#[derive(Clone, Copy, Debug)]
struct Asked<'a> {
    path: &'a str,
    query: Option<&'a str>,
    headers: &'a HeaderMap,
    over_tls: bool,
}

/// Lets through who passes all filters; the pages learn who it is.
pub(super) async fn stand_before(
    State(filters): State<Arc<WebFilters>>,
    mut request: Request,
    next: Next,
) -> Response {
    let over_tls = request.extensions().get::<OverTls>().copied();
    let asked = Asked {
        path: request.uri().path(),
        query: request.uri().query(),
        headers: request.headers(),
        over_tls: over_tls.unwrap_or_default().0,
    };
    match filters.pass(&asked).await {
        Ok(Passed { user, headers }) => {
            request.extensions_mut().insert(user);
            let mut response = next.run(request).await;
            response.headers_mut().extend(headers);
            response
        }
        Err(refused) => {
            let kind = [(header::CONTENT_TYPE, "text/plain;charset=utf-8")];
            let mut response = (refused.status, kind, refused.message).into_response();
            response.headers_mut().extend(refused.headers);
            response
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn filters(properties: &[(&str, &str)]) -> Result<WebFilters, String> {
        let config = Configuration::from_properties(properties.iter().copied());
        WebFilters::of(&SharedConfig::new(config.expect("valid"))).await
    }

    async fn user(properties: &[(&str, &str)], query: &str) -> Option<String> {
        let headers = HeaderMap::new();
        let asked = Asked {
            path: "/jmx",
            query: Some(query),
            headers: &headers,
            over_tls: false,
        };
        let filters = filters(properties).await.expect("usable");
        let passed = filters.pass(&asked).await.expect("passes");
        passed.user.name
    }

    const FILTERS: &str = "hadoop.http.filter.initializers";
    const STATIC: &str = "org.apache.hadoop.http.lib.StaticUserWebFilter";
    const TICKETS: &str = "org.apache.hadoop.security.AuthenticationFilterInitializer";

    #[tokio::test]
    async fn the_last_filter_to_know_a_caller_counts() {
        assert_eq!(user(&[], "").await.as_deref(), Some("dr.who"));
        let both = format!("{STATIC},{TICKETS}");
        let both = [(FILTERS, both.as_str())];
        assert_eq!(user(&both, "").await, None);
        assert_eq!(user(&both, "user.name=ann").await.as_deref(), Some("ann"));
        let turned = format!("{TICKETS},{STATIC}");
        let turned = [(FILTERS, turned.as_str())];
        assert_eq!(user(&turned, "").await.as_deref(), Some("dr.who"));
        assert_eq!(user(&turned, "user.name=ann").await.as_deref(), Some("ann"));
    }

    #[tokio::test]
    async fn what_would_leave_pages_open_is_refused() {
        for (properties, told) in [
            (vec![(FILTERS, "org.example.Filter")], "org.example.Filter"),
            (
                vec![(FILTERS, "x.ProxyUserAuthenticationFilterInitializer")],
                "does not have",
            ),
            (
                vec![
                    (FILTERS, TICKETS),
                    ("hadoop.http.authentication.type", "ldap"),
                ],
                "hadoop.http.authentication.type",
            ),
            (
                vec![
                    (FILTERS, TICKETS),
                    ("hadoop.http.authentication.type", "kerberos"),
                ],
                "kerberos.keytab is not set",
            ),
            (
                vec![
                    (FILTERS, TICKETS),
                    (
                        "hadoop.http.authentication.signer.secret.provider",
                        "zookeeper",
                    ),
                ],
                "file and random are served",
            ),
        ] {
            let refused = filters(&properties).await.expect_err("refused");
            assert!(refused.contains(told), "{refused}");
        }
    }
}
