//! Passwords of `ssl-server.xml`: from the credential providers that it names, else as it has them.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use hayloft_conf::Configuration;
use zeroize::Zeroizing;

use super::jceks;
use crate::http::secret_file;

/// Names the providers, with commas.
const PROVIDERS: &str = "hadoop.security.credential.provider.path";
/// File in the configuration's directory with the password of the providers' stores.
const PASSWORD_FILE: &str = "hadoop.security.credstore.java-keystore-provider.password-file";
/// Environment variable with that password, which goes before the file.
const PASSWORD_VARIABLE: &str = "HADOOP_CREDSTORE_PASSWORD";
/// What Hadoop takes without either.
const PASSWORD: &str = "none";
/// Ways to a store in a file.
const SCHEMES: [&str; 2] = ["jceks://file/", "localjceks://file/"];

/// Where passwords are.
pub(super) struct Credentials<'a> {
    server: &'a Configuration,
    stores: Vec<PathBuf>,
}

impl<'a> Credentials<'a> {
    /// Of `server`, an `ssl-server.xml`: other files' providers do not count, as in Hadoop.
    ///
    /// # Errors
    /// A provider that is not served, in words for the operator.
    pub(super) fn of(server: &'a Configuration) -> Result<Self, String> {
        let named = server.text(PROVIDERS).unwrap_or_default();
        let named = named
            .split(',')
            .map(str::trim)
            .filter(|uri| !uri.is_empty());
        let stores = named.map(|uri| {
            let path = SCHEMES.iter().find_map(|scheme| uri.strip_prefix(scheme));
            let path = path.ok_or_else(|| {
                format!(
                    "{PROVIDERS} ({}) has {uri}: jceks://file/PATH and localjceks://file/PATH are \
                     read",
                    server.origin(PROVIDERS)
                )
            });
            path.map(|path| Path::new("/").join(path))
        });
        Ok(Self {
            server,
            stores: stores.collect::<Result<_, String>>()?,
        })
    }

    /// The password with this name, if there is one.
    ///
    /// # Errors
    /// A store cannot be read, in words for the operator.
    pub(super) fn password(&self, name: &str) -> Result<Option<String>, String> {
        for path in &self.stores {
            let unusable = |why: String| {
                format!(
                    "the credential store {} cannot be used: {why}",
                    path.display()
                )
            };
            let bytes = match secret_file::read(path) {
                Ok(bytes) => bytes,
                // As in Hadoop, one that is not there has no passwords.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(unusable(error.to_string())),
            };
            let opened = self.store_password()?;
            let found = jceks::secret(&bytes, &opened, name).map_err(unusable)?;
            if let Some(password) = found {
                return Ok(Some(password.to_string()));
            }
        }
        Ok(self.server.text(name))
    }

    fn store_password(&self) -> Result<Zeroizing<String>, String> {
        if let Ok(password) = std::env::var(PASSWORD_VARIABLE) {
            return Ok(Zeroizing::new(password));
        }
        let Some(file) = self.server.text(PASSWORD_FILE) else {
            return Ok(Zeroizing::new(PASSWORD.to_owned()));
        };
        let directory = self.server.directory().unwrap_or(Path::new(""));
        let file = directory.join(file);
        let bytes = secret_file::read(&file).map_err(|error| {
            let shown = file.display();
            format!("{PASSWORD_FILE}: {shown} cannot be read: {error}")
        })?;
        let text = String::from_utf8_lossy(&bytes);
        Ok(Zeroizing::new(text.trim().to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STORE: &[u8] = include_bytes!("jceks_of_hadoop.jceks");
    const KEYSTORE: &str = "ssl.server.keystore.password";

    fn server(properties: &[(&str, &str)]) -> Configuration {
        Configuration::from_properties(properties.iter().copied()).expect("valid")
    }

    #[test]
    fn providers_go_before_what_the_file_says() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = dir.path().join("store.jceks");
        std::fs::write(&store, STORE).expect("written");
        let there = format!(
            "localjceks://file{0}/none.jceks, jceks://file{0}/store.jceks",
            dir.path().display()
        );
        let server = server(&[
            (PROVIDERS, &there),
            (KEYSTORE, "clear"),
            ("ssl.server.truststore.password", "trusted"),
        ]);
        let credentials = Credentials::of(&server).expect("served");
        let of = |name| credentials.password(name).expect("readable");
        assert_eq!(of(KEYSTORE).as_deref(), Some("Changeit-ü"));
        let clear = of("ssl.server.truststore.password");
        assert_eq!(clear.as_deref(), Some("trusted"));
        assert_eq!(of("ssl.server.x"), None);
        std::fs::write(&store, &STORE[..500]).expect("written");
        let refused = credentials.password(KEYSTORE).unwrap_err();
        assert!(refused.contains("store.jceks cannot be used"), "{refused}");
    }

    #[test]
    fn other_providers_are_refused() {
        for uri in ["jceks://hdfs@nn:8020/x", "user:///", "bcfks://file/x"] {
            let server = server(&[(PROVIDERS, uri)]);
            let refused = Credentials::of(&server).map(drop).unwrap_err();
            assert!(refused.contains(PROVIDERS) && refused.contains(uri));
        }
    }
}
