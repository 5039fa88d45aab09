//! Who is who on RPC connections, what client and server share.
//!
//! - `digest_layer`: frames inside the layer that holders of tokens agree on
//! - `login`: who this process is, from a keytab or a ticket cache, renewed in time
//! - `name_rules`: `hadoop.security.auth_to_local`: the short names of principals
//! - `off_threads`: calls that block, kept off the async threads and within limits
//! - `quality`: what is agreed at the end of a SASL exchange by GSSAPI (RFC 4752)
//! - `renewal`: what is good for a while, and made anew before that is over
//! - `server_principal`: whom a server has to be
//! - `token_proof`: a token that a caller holds
//! - `web_caller`: who proves to a web server who it is
//! - `wrapping`: frames inside `WRAP` messages, once integrity or privacy is agreed

mod digest_layer;
mod login;
pub mod name_rules;
mod off_threads;
mod quality;
mod renewal;
mod server_principal;
#[cfg(test)]
pub(crate) mod tests;
mod token_proof;
mod web_caller;
mod wrapping;

pub use login::{KerberosLogin, LoginSource};
pub use quality::{LayerOffer, RpcQuality};
pub use server_principal::{
    ServerPrincipal, for_host, in_realm, name_of, names_host, principal_at, usable_pattern,
};
pub use token_proof::TokenProof;
pub use web_caller::{HTTP_SERVICE, WebCaller, accept_web_caller, web_principals};

pub(crate) use digest_layer::in_digest;
pub(crate) use off_threads::{BlockedCall, OffThreads, off_threads};
pub(crate) use wrapping::Wrapping;

use std::sync::Arc;

/// How a client's connections prove who they are, and to whom.
#[derive(Clone, Debug)]
pub struct RpcSecurity {
    /// Who we are.
    pub login: Arc<KerberosLogin>,
    /// Whom the server has to be.
    pub server: ServerPrincipal,
    /// What protects the bytes, the most wanted first (`hadoop.rpc.protection`); not empty.
    pub qualities: Arc<[RpcQuality]>,
}

/// The realm of names that have none, by krb5.conf.
///
/// # Errors
/// Kerberos' library is missing, or krb5.conf names no realm; with what to do.
pub fn default_realm() -> Result<String, String> {
    hayloft_gss::default_realm().map_err(|error| error.to_string())
}
