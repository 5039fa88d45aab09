//! Who this process is, from a keytab or a ticket cache, renewed in time.
//!
//! As Java does, a login is made anew at 80 % of its ticket's life, and at most each 60 s. Each
//! login reads the keytab again, so that a replaced one is taken up. While a new login fails, the
//! old ticket is used as long as it lasts.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use hayloft_gss::GssCredentials;
use tracing::{info, warn};

use super::off_threads::{BlockedCall, OffThreads, off_threads};
use super::renewal::Renewal;

/// How long a login may take: MIT's library asks each KDC several times.
const LOGIN_LIMIT: Duration = Duration::from_secs(60);

/// Where the proof of a login is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LoginSource {
    /// A key in a keytab.
    Keytab {
        /// Whose key, without `_HOST`.
        principal: String,
        /// The file.
        path: PathBuf,
    },
    /// What `kinit` left.
    TicketCache,
}

/// A login of this process, shared by all its connections.
#[derive(Debug)]
pub struct KerberosLogin {
    source: LoginSource,
    tickets: Arc<Renewal<GssCredentials>>,
}

impl KerberosLogin {
    /// The login from `source`: one for all who ask in this process.
    #[must_use]
    pub fn from(source: LoginSource) -> Arc<Self> {
        static ALL: OnceLock<Mutex<HashMap<LoginSource, Arc<KerberosLogin>>>> = OnceLock::new();
        let all = ALL.get_or_init(Mutex::default);
        let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
        let login = all.entry(source.clone()).or_insert_with(|| {
            Arc::new(Self {
                source,
                tickets: Arc::default(),
            })
        });
        Arc::clone(login)
    }

    /// Logs in, if that has to be. Gives back the full principal.
    ///
    /// # Errors
    /// Why there is no ticket, and what to do about it.
    pub async fn check(&self) -> Result<String, String> {
        let credentials = self.credentials().await;
        let named = credentials.map(|credentials| credentials.principal().to_owned());
        named.map_err(|error| error.to_string())
    }

    /// Credentials with a good ticket. Callers at the same time share one login, and wait for it
    /// only when there is no good ticket.
    pub(crate) async fn credentials(&self) -> Result<Arc<GssCredentials>, BlockedCall> {
        self.tickets.get(self.log_in()).await
    }

    /// A login, and how long its ticket is good.
    fn log_in(
        &self,
    ) -> impl Future<Output = Result<(GssCredentials, Duration), BlockedCall>> + Send + use<> {
        let source = self.source.clone();
        let tickets = Arc::clone(&self.tickets);
        async move {
            let from = source.clone();
            let made = off_threads(OffThreads::Login, LOGIN_LIMIT, move || match from {
                LoginSource::Keytab { principal, path } => {
                    GssCredentials::log_in(&principal, &path)
                }
                LoginSource::TicketCache => GssCredentials::of_ticket_cache(),
            });
            let credentials = made.await.inspect_err(|error| {
                if let Some(left) = tickets.left() {
                    warn!(
                        ?left,
                        "the ticket cannot be renewed, the old one is used: {error}"
                    );
                }
            })?;
            let life = credentials.lifetime().unwrap_or(Duration::MAX);
            if let LoginSource::Keytab { path, .. } = &source {
                let principal = credentials.principal();
                info!(principal, keytab = %path.display(), ?life, "logged in with Kerberos");
            }
            Ok((credentials, life))
        }
    }

    /// Renews the login in time, so that the KDC may be away when a connection is lost. Never ends.
    pub async fn keep_fresh(&self) {
        loop {
            tokio::time::sleep(self.tickets.due_in()).await;
            if let Err(error) = self.credentials().await {
                warn!("the ticket has run out, and there is no new one: {error}");
            }
        }
    }

    /// A server did not believe the ticket: a new one is got, when the last login is old enough.
    pub(crate) fn doubt(&self) {
        self.tickets.doubt(self.log_in());
    }
}
