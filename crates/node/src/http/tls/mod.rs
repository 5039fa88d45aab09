//! TLS of the web port: key and certificates of Hadoop's `ssl-server.xml`, read again when the
//! keystore or the truststore changes.
//!
//! - `clients`: certificates of clients: who signed them is in a truststore, which keytool makes
//! - `credentials`: passwords, from the providers that the file names or from itself
//! - `der`: bytes of keystores and keys, taken apart
//! - `ec_keys`: keys of elliptic curves as rustls takes them
//! - `java_objects`: objects as Java writes them
//! - `jceks`: the format of those providers' stores
//! - `jks`: Java's own format of keystores
//! - `key_pair`: a private key with its certificates
//! - `keystore`: what keystores of Java's hold
//! - `suites`: cipher suites by the names that Java has for them

mod clients;
mod credentials;
mod der;
mod ec_keys;
mod java_objects;
mod jceks;
mod jks;
mod key_pair;
mod keystore;
mod suites;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use hayloft_conf::{Configuration, keys};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use clients::Truststore;
use credentials::Credentials;
use suites::Suites;

/// What the web port speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Policy {
    /// Plain HTTP.
    pub(crate) plain: bool,
    /// HTTPS.
    pub(crate) tls: bool,
}

impl Policy {
    /// Of `dfs.http.policy`.
    ///
    /// # Errors
    /// In words for the operator.
    pub(crate) fn of(config: &Configuration) -> Result<Self, String> {
        let name = config.get(&keys::HTTP_POLICY);
        let (plain, tls) = match name.trim().to_ascii_uppercase().as_str() {
            "HTTP_ONLY" => (true, false),
            "HTTPS_ONLY" => (false, true),
            "HTTP_AND_HTTPS" => (true, true),
            _ => {
                return Err(format!(
                    "dfs.http.policy is {name:?}: HTTP_ONLY, HTTPS_ONLY or HTTP_AND_HTTPS"
                ));
            }
        };
        Ok(Self { plain, tls })
    }
}

/// Where the keystore is, and what opens it.
struct Source {
    path: PathBuf,
    password: String,
    key_password: String,
    /// Whose clients are served; `None`: all.
    truststore: Option<Truststore>,
    suites: Suites,
    /// How often the files are looked at.
    interval: Duration,
}

/// When keystore and truststore were changed last.
type Changed = [Option<SystemTime>; 2];

/// TLS as connections get it; what changes is for later ones.
pub(crate) struct Tls {
    source: Source,
    /// When the files that were read first had been changed.
    read: Changed,
    current: ArcSwap<ServerConfig>,
}

/// Without the passwords: logs and messages of failed tests are read by many.
impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Source");
        shown.field("path", &self.path);
        shown.field("interval", &self.interval);
        shown.finish_non_exhaustive()
    }
}

impl Source {
    fn of(config: &Configuration) -> Result<Self, String> {
        let name = config.get(&keys::HTTPS_KEYSTORE_RESOURCE);
        let server = config.resource(&name).map_err(|e| e.to_string())?;
        let text = |key: &str| server.text(key);
        let needed = |key: &str| text(key).ok_or_else(|| format!("{name} lacks {key}"));
        let credentials = Credentials::of(&server)?;
        let key = "ssl.server.keystore.password";
        let password = credentials.password(key)?;
        let password =
            password.ok_or_else(|| format!("{name} lacks {key}, and no store has it"))?;
        let key_password = credentials.password("ssl.server.keystore.keypassword")?;
        let interval = text("ssl.server.stores.reload.interval").and_then(|v| v.parse().ok());
        Ok(Self {
            path: needed("ssl.server.keystore.location")?.into(),
            key_password: key_password.unwrap_or_else(|| password.clone()),
            password,
            truststore: Truststore::of(config, &server, &name)?,
            suites: Suites::of(&server),
            interval: Duration::from_millis(interval.unwrap_or(10_000)).max(MIN_INTERVAL),
        })
    }

    fn load(&self) -> Result<Arc<ServerConfig>, String> {
        let provider = Arc::new(self.suites.provider()?);
        let failed =
            |why: String| format!("the keystore {} cannot be used: {why}", self.path.display());
        let pair = keystore::read(&self.path, &self.password, &self.key_password);
        let pair = pair.map_err(failed)?;
        let chain = pair.chain.into_iter().map(CertificateDer::from).collect();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(pair.key));
        let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|e| failed(e.to_string()))?;
        let config = match &self.truststore {
            None => config.with_no_client_auth(),
            Some(truststore) => config.with_client_cert_verifier(truststore.verifier(&provider)?),
        };
        let config = config
            .with_single_cert(chain, key)
            .map_err(|e| failed(e.to_string()))?;
        Ok(Arc::new(config))
    }

    fn changed(&self) -> Changed {
        let truststore = self.truststore.as_ref();
        [
            changed(&self.path),
            truststore.and_then(Truststore::changed),
        ]
    }
}

/// When a file was changed last.
fn changed(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).ok()?.modified().ok()
}

const MIN_INTERVAL: Duration = Duration::from_millis(100);

impl Tls {
    /// As the configuration and its `ssl-server.xml` have it. Blocking.
    ///
    /// # Errors
    /// In words for the operator.
    pub(crate) fn new(config: &Configuration) -> Result<Self, String> {
        Self::of(Source::of(config)?)
    }

    fn of(source: Source) -> Result<Self, String> {
        let read = source.changed();
        let current = ArcSwap::new(source.load()?);
        Ok(Self {
            source,
            read,
            current,
        })
    }

    /// What a new connection is accepted with.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.current.load_full())
    }

    /// Reads the files again when one changes, until the node stops. One that cannot be used
    /// changes nothing.
    pub(super) async fn watch(self: Arc<Self>, stop: CancellationToken) {
        let mut seen = self.read;
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(self.source.interval) => {}
            }
            let this = Arc::clone(&self);
            let before = seen;
            let looked = tokio::task::spawn_blocking(move || {
                let now = this.source.changed();
                (now, (now != before).then(|| this.source.load()))
            });
            let Ok((now, loaded)) = looked.await else {
                continue;
            };
            seen = now;
            match loaded {
                Some(Ok(config)) => {
                    self.current.store(config);
                    info!(keystore = %self.source.path.display(), "new certificates are in use");
                }
                Some(Err(why)) => warn!("{why}; going on with the certificates that were read"),
                None => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;
