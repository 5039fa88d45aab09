//! Kerberos by the system's GSSAPI library (MIT), opened when it is needed.
//!
//! - `library`: the shared object and its functions
//! - `handles`: what it gives out, owned; the two have the only unsafe code here
//! - `credentials`: who we are: a keytab, a ticket cache, or what accepts callers
//! - `context`: the exchange with one peer, and what is wrapped after it
//! - `error`: what failed, and what to do about it
//! - `keytab`: the principals in a keytab, so that a wrong one is named
//!
//! A node without Kerberos never opens the library and needs none. Every call here may block: on
//! the network when tickets are fetched, on files for keytabs. Callers run them off their async
//! threads. `KRB5_CONFIG` of the environment names another krb5.conf, as for Kerberos' own tools.

mod context;
mod credentials;
mod error;
mod handles;
mod keytab;
mod library;

pub use context::{GssContext, GssStep};
pub use credentials::GssCredentials;
pub use error::GssError;
pub use keytab::{Keytab, KeytabError};

/// The realm of names that have none, by krb5.conf.
///
/// # Errors
/// The library is missing, or krb5.conf names no default realm.
pub fn default_realm() -> Result<String, GssError> {
    library::Library::get()?.default_realm()
}
