//! Certificates of clients: who signed them is in a truststore, which keytool makes.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use hayloft_conf::{Configuration, keys};
use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use tracing::warn;

use super::credentials::Credentials;
use super::{changed, keystore};

/// Switches that demand certificates: that of DataNodes, and that of Hadoop's other web servers.
const SWITCHES: [&str; 2] = [
    "hadoop.ssl.require.client.cert",
    "ssl.server.need.client.auth",
];
const LOCATION: &str = "ssl.server.truststore.location";
/// Bytes of the signers' names that a client is told; it is told none when there are more.
const NAMES_BYTES_MAX: usize = 32 << 10;

/// Where the truststore is, and what it was closed with.
pub(super) struct Truststore {
    pub(super) path: PathBuf,
    /// Without it nothing shows that the file is whole.
    pub(super) password: Option<String>,
}

impl Truststore {
    /// Of `server`, which is the file `name`; `None` when clients need no certificate.
    ///
    /// # Errors
    /// In words for the operator.
    pub(super) fn of(
        config: &Configuration,
        server: &Configuration,
        name: &str,
    ) -> Result<Option<Self>, String> {
        let [first, second] = SWITCHES;
        let is_on = |switch| {
            let text = server.text(switch);
            text.is_some_and(|text| text.eq_ignore_ascii_case("true"))
        };
        // What the file says of the first goes before what other files say.
        let required = if server.names().any(|name| name == first) {
            is_on(first)
        } else {
            config.get(&keys::CLIENT_CERT)
        };
        if !required && !is_on(second) {
            return Ok(None);
        }
        let path = server.text(LOCATION).ok_or_else(|| {
            format!("{name} lacks {LOCATION}, which {first} or {second} makes necessary")
        })?;
        Ok(Some(Self {
            path: path.into(),
            password: Credentials::of(server)?.password("ssl.server.truststore.password")?,
        }))
    }

    /// What accepts certificates that are signed by those in it.
    ///
    /// # Errors
    /// In words for the operator.
    pub(super) fn verifier(
        &self,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Arc<dyn ClientCertVerifier>, String> {
        let failed = |why: String| {
            let path = self.path.display();
            format!("the truststore {path} ({LOCATION}) cannot be used: {why}")
        };
        let trusted = keystore::trusted(&self.path, self.password.as_deref()).map_err(failed)?;
        let mut roots = RootCertStore::empty();
        let trusted = trusted.into_iter().map(CertificateDer::from);
        let (taken, left) = roots.add_parsable_certificates(trusted);
        if taken == 0 {
            let why = "it has no certificate of a signer: add one with keytool -importcert";
            return Err(failed(why.to_owned()));
        }
        if left > 0 {
            warn!(truststore = %self.path.display(), left, "certificates that cannot be read");
        }
        let names: usize = roots
            .subjects()
            .iter()
            .map(|name| name.as_ref().len())
            .sum();
        let builder =
            WebPkiClientVerifier::builder_with_provider(roots.into(), Arc::clone(provider));
        let builder = match names {
            0..=NAMES_BYTES_MAX => builder,
            _ => builder.clear_root_hint_subjects(),
        };
        builder.build().map_err(|e| failed(e.to_string()))
    }

    pub(super) fn changed(&self) -> Option<SystemTime> {
        changed(&self.path)
    }
}

#[cfg(test)]
#[path = "clients_tests.rs"]
mod tests;
