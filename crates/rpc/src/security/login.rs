//! Who this process is, from a keytab or a ticket cache, renewed in time.
//!
//! As Java does, a login is made anew at 80 % of its ticket's life, and at most each 60 s. Each
//! login reads the keytab again, so that a replaced one is taken up. While a new login fails, the
//! old ticket is used as long as it lasts.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex as StdMutex, OnceLock, PoisonError};
use std::time::Duration;

use hayloft_gss::GssCredentials;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tracing::{info, warn};

use super::off_threads::{BlockedCall, KdcOrCaller, off_threads};

/// How long a login may take: MIT's library asks each KDC several times.
const LOGIN_LIMIT: Duration = Duration::from_secs(60);
/// Least time between two logins while a ticket is good.
const AGAIN: Duration = Duration::from_secs(60);
/// Least time between two logins that fail.
const AGAIN_WITHOUT: Duration = Duration::from_secs(1);

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
    state: Mutex<LoginState>,
}

#[derive(Debug, Default)]
struct LoginState {
    held: Option<Held>,
    /// When a login was last tried, and why it failed.
    tried: Option<(Instant, Option<BlockedCall>)>,
    /// A server did not believe the ticket.
    doubted: bool,
}

#[derive(Debug)]
struct Held {
    credentials: Arc<GssCredentials>,
    since: Instant,
    life: Duration,
}

impl Held {
    fn is_good(&self) -> bool {
        self.since.elapsed() < self.life
    }

    fn is_fresh(&self) -> bool {
        !self.fresh_for().is_zero()
    }

    /// Time until it has to be renewed: 80 % of its life after it was made.
    fn fresh_for(&self) -> Duration {
        (self.life / 10 * 8).saturating_sub(self.since.elapsed())
    }
}

impl KerberosLogin {
    /// The login from `source`: one for all who ask in this process.
    #[must_use]
    pub fn from(source: LoginSource) -> Arc<Self> {
        static ALL: OnceLock<StdMutex<HashMap<LoginSource, Arc<KerberosLogin>>>> = OnceLock::new();
        let all = ALL.get_or_init(StdMutex::default);
        let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
        let login = all.entry(source.clone()).or_insert_with(|| {
            Arc::new(Self {
                source,
                state: Mutex::default(),
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

    /// Credentials with a good ticket. Callers at the same time share one login.
    pub(crate) async fn credentials(&self) -> Result<Arc<GssCredentials>, BlockedCall> {
        let mut state = self.state.lock().await;
        let usable = state.held.as_ref().filter(|held| held.is_good());
        let wait = if usable.is_some() {
            AGAIN
        } else {
            AGAIN_WITHOUT
        };
        let tried_lately = state.tried.as_ref().filter(|(at, _)| at.elapsed() < wait);
        if let Some(held) = usable
            && ((held.is_fresh() && !state.doubted) || tried_lately.is_some())
        {
            return Ok(Arc::clone(&held.credentials));
        }
        if let (None, Some((_, Some(error)))) = (usable, tried_lately) {
            return Err(error.clone());
        }
        let source = self.source.clone();
        let made = off_threads(KdcOrCaller::Kdc, LOGIN_LIMIT, move || match source {
            LoginSource::Keytab { principal, path } => GssCredentials::log_in(&principal, &path),
            LoginSource::TicketCache => GssCredentials::of_ticket_cache(),
        })
        .await;
        state.tried = Some((Instant::now(), made.as_ref().err().cloned()));
        match made {
            Ok(credentials) => {
                let life = credentials.lifetime().unwrap_or(Duration::MAX);
                if let LoginSource::Keytab { path, .. } = &self.source {
                    let principal = credentials.principal();
                    info!(principal, keytab = %path.display(), ?life, "logged in with Kerberos");
                }
                let credentials = Arc::new(credentials);
                let held = Held {
                    credentials: Arc::clone(&credentials),
                    since: Instant::now(),
                    life,
                };
                state.held = Some(held);
                state.doubted = false;
                Ok(credentials)
            }
            Err(error) => match state.held.as_ref().filter(|held| held.is_good()) {
                Some(held) => {
                    let left = held.life.saturating_sub(held.since.elapsed());
                    warn!(
                        ?left,
                        "the ticket cannot be renewed, the old one is used: {error}"
                    );
                    Ok(Arc::clone(&held.credentials))
                }
                None => Err(error),
            },
        }
    }

    /// Renews the login in time, so that the KDC may be away when a connection is lost. Never ends.
    pub async fn keep_fresh(&self) {
        loop {
            let state = self.state.lock().await;
            let due = state.held.as_ref().filter(|held| held.is_fresh());
            let due = due.map_or(AGAIN, Held::fresh_for);
            drop(state);
            tokio::time::sleep(due.max(AGAIN_WITHOUT)).await;
            if let Err(error) = self.credentials().await {
                warn!("the ticket has run out, and there is no new one: {error}");
            }
        }
    }

    /// A server did not believe the ticket: the next connection logs in anew, when the last login
    /// is old enough.
    pub(crate) async fn doubt(&self) {
        self.state.lock().await.doubted = true;
    }
}
