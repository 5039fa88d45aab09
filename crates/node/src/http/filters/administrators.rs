//! Pages that are for administrators alone.
//!
//! With `hadoop.security.authorization` these are `dfs.cluster.administrators`. As Apache's node
//! does, it believes the name that a filter of the type `simple` took from the caller. Without
//! authorization, Apache's node shows the log to everyone. With Kerberos only callers who proved
//! who they are see it here.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use hayloft_conf::{SharedConfig, keys};

use super::WebUser;
use crate::security::{AccessList, UserGroups};

/// What a caller hears who is none.
const REFUSED: &str = "Unauthenticated users are not authorized to access this page.";

/// Knows who administers the node.
#[derive(Debug)]
pub(crate) struct Administrators {
    config: SharedConfig,
    list: AccessList,
    groups: UserGroups,
}

impl Administrators {
    /// Those of the configuration.
    ///
    /// # Errors
    /// The list cannot be used, with its key.
    pub(super) fn of(config: &SharedConfig) -> Result<Self, String> {
        let key = keys::ADMINISTRATORS.name();
        let text = config.current().untrimmed(key);
        let text = text.map_err(|error| error.to_string())?.unwrap_or_default();
        let list = AccessList::parse(&text);
        Ok(Self {
            list: list.map_err(|allowed| format!("{key}: {allowed}"))?,
            groups: UserGroups::new(config.clone()),
            config: config.clone(),
        })
    }

    async fn has(&self, user: &WebUser) -> bool {
        let config = self.config.current();
        if !config.get(&keys::SECURITY_AUTHORIZATION) {
            return user.proved || !config.has_kerberos();
        }
        match &user.name {
            Some(name) => {
                let is_listed = self.list.has(name, false, &self.groups).await;
                is_listed.unwrap_or(false)
            }
            None => false,
        }
    }
}

/// Lets administrators through to the log.
pub(crate) async fn to_the_log(
    State(administrators): State<Arc<Administrators>>,
    request: Request,
    next: Next,
) -> Response {
    // Clients ask first how they have to prove who they are.
    if request.method() == Method::OPTIONS {
        return next.run(request).await;
    }
    let user = request.extensions().get::<WebUser>().cloned();
    if administrators.has(&user.unwrap_or_default()).await {
        return next.run(request).await;
    }
    (StatusCode::FORBIDDEN, REFUSED).into_response()
}

/// Lets callers through to what the node does: administrators alone, where the configuration says
/// so.
pub(crate) async fn to_insight(
    administrators: State<Arc<Administrators>>,
    request: Request,
    next: Next,
) -> Response {
    let config = administrators.config.current();
    if config.get(&keys::PAGES_OF_ADMINISTRATORS) {
        return to_the_log(administrators, request, next).await;
    }
    next.run(request).await
}

#[cfg(test)]
mod tests {
    use hayloft_conf::Configuration;

    use super::*;

    async fn may(properties: &[(&str, &str)], user: Option<&str>, proved: bool) -> bool {
        let base = [(keys::STATIC_GROUPS.name(), "ann=ops;bob=;dr.who=")];
        let all = base.into_iter().chain(properties.iter().copied());
        let config = Configuration::from_properties(all).expect("valid");
        let administrators = Administrators::of(&SharedConfig::new(config)).expect("usable");
        let user = WebUser {
            name: user.map(str::to_owned),
            proved,
        };
        administrators.has(&user).await
    }

    #[tokio::test]
    async fn with_authorization_the_list_decides() {
        let on = ("hadoop.security.authorization", "true");
        let list = ("dfs.cluster.administrators", "bob ops");
        for (user, is) in [
            (Some("ann"), true),
            (Some("bob"), true),
            (Some("dr.who"), false),
            (None, false),
        ] {
            assert_eq!(may(&[on, list], user, true).await, is, "{user:?}");
        }
        assert!(!may(&[on], Some("bob"), true).await);
        let all = ("dfs.cluster.administrators", "*");
        assert!(may(&[on, all], Some("dr.who"), false).await);
        assert!(!may(&[on, all], None, false).await);
        let group = ("dfs.cluster.administrators", " ops");
        assert!(may(&[on, group], Some("ann"), true).await);
    }

    #[tokio::test]
    async fn without_it_only_kerberos_keeps_the_log_from_strangers() {
        assert!(may(&[], None, false).await);
        let kerberos = [("hadoop.security.authentication", "kerberos")];
        assert!(!may(&kerberos, Some("dr.who"), false).await);
        assert!(may(&kerberos, Some("bob"), true).await);
    }
}
