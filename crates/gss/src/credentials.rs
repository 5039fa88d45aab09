//! Who we are: a keytab, a ticket cache, or what accepts callers.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::error::GssError;
use super::handles::{Cred, Store};
use super::keytab::Keytab;
use super::library::Library;

/// A cache in memory, forgotten when it goes.
struct MemoryCache {
    library: &'static Library,
    name: String,
}

impl MemoryCache {
    fn new(library: &'static Library) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("MEMORY:hayloft-{}-{number}", std::process::id());
        Self { library, name }
    }
}

impl Drop for MemoryCache {
    fn drop(&mut self) {
        self.library.destroy_cache(&self.name);
    }
}

/// Proof of who we are, for calling others or for being called.
pub struct GssCredentials {
    // In this order: the credentials go before their cache.
    cred: Cred,
    principal: String,
    lifetime: Option<Duration>,
    _cache: Option<MemoryCache>,
}

impl GssCredentials {
    /// Logs in: gets a ticket for `principal` with its key in `keytab`. Tickets are kept in memory
    /// and go with the credentials. Asks the KDC, which may take many seconds.
    ///
    /// # Errors
    /// The keytab cannot be read or has no such principal, the KDC refuses or does not answer, the
    /// clocks differ: each with what to do.
    pub fn log_in(principal: &str, keytab: &Path) -> Result<Self, GssError> {
        let library = Library::get()?;
        let keys = Keytab::read(keytab)?;
        let realm = || library.default_realm();
        keys.require(keytab, principal, realm)?;
        let cache = MemoryCache::new(library);
        let store = Store::Keytab {
            keytab,
            cache: &cache.name,
        };
        let cred = Cred::acquire(library, Some(principal), &store)?;
        Self::asked(cred, Some(cache))
    }

    /// Takes the ticket that `kinit` left, where `KRB5CCNAME` or krb5.conf says.
    ///
    /// # Errors
    /// There is none, or it has run out.
    pub fn of_ticket_cache() -> Result<Self, GssError> {
        let library = Library::get()?;
        let cred = Cred::acquire(library, None, &Store::Tickets)?;
        Self::asked(cred, None)
    }

    /// The keys of `keytab`, with which callers are accepted as calling `principal`.
    ///
    /// # Errors
    /// The keytab cannot be read or has no such principal.
    pub fn accepting(principal: &str, keytab: &Path) -> Result<Self, GssError> {
        let library = Library::get()?;
        let keys = Keytab::read(keytab)?;
        keys.require(keytab, principal, || library.default_realm())?;
        let cred = Cred::acquire(library, Some(principal), &Store::Accept { keytab })?;
        Ok(Self {
            cred,
            principal: principal.to_owned(),
            lifetime: None,
            _cache: None,
        })
    }

    /// The keys of `keytab`, with which callers of any of its principals are accepted, by SPNEGO
    /// too. [`GssContext::called`](super::GssContext::called) says whom a caller meant.
    ///
    /// # Errors
    /// The keytab cannot be read.
    pub fn accepting_any(keytab: &Path) -> Result<Self, GssError> {
        let library = Library::get()?;
        Keytab::read(keytab)?;
        Ok(Self {
            cred: Cred::acquire(library, None, &Store::Accept { keytab })?,
            principal: "any of a keytab".to_owned(),
            lifetime: None,
            _cache: None,
        })
    }

    fn asked(cred: Cred, cache: Option<MemoryCache>) -> Result<Self, GssError> {
        let (principal, seconds) = cred.inquire()?;
        if seconds == 0 {
            return Err(GssError::Expired { principal });
        }
        Ok(Self {
            cred,
            principal,
            lifetime: Some(Duration::from_secs(seconds.into())),
            _cache: cache,
        })
    }

    /// Whose they are, with the realm.
    #[must_use]
    pub fn principal(&self) -> &str {
        &self.principal
    }

    /// How long the ticket was good when they were made; `None` for keys, which do not end.
    #[must_use]
    pub fn lifetime(&self) -> Option<Duration> {
        self.lifetime
    }

    pub(super) fn cred(&self) -> &Cred {
        &self.cred
    }
}

impl std::fmt::Debug for GssCredentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "GssCredentials({})", self.principal)
    }
}
