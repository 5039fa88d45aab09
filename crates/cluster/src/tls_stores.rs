//! A key for the web servers of a cluster, made by Java's keytool, and a store of its certificate
//! for their clients.
//!
//! Who may read the directory has the key: the password is no secret.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{ClusterError, Result};
use crate::hadoop::of_java;
use crate::hadoop_conf::Conf;

/// Opens both stores.
const PASSWORD: &str = "not-secret";
/// Days for which the certificate counts.
const DAYS: &str = "3650";
/// The entry of the stores.
const ALIAS: &str = "server";

/// The stores in a directory.
#[derive(Clone, Debug)]
pub struct TlsStores {
    dir: PathBuf,
}

impl TlsStores {
    /// Those of `dir`, made or not.
    #[must_use]
    pub fn at(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The servers' certificate (PEM).
    #[must_use]
    pub fn certificate(&self) -> PathBuf {
        self.file("certificate.pem")
    }

    /// Makes them, for servers of this host's loop-back address.
    ///
    /// # Errors
    /// There is no keytool, or it fails.
    pub fn make(&self) -> Result<()> {
        let pem = self.certificate().display().to_string();
        let [keystore, truststore] =
            ["keystore", "truststore"].map(|name| self.file(name).display().to_string());
        let run = |what: &[&str], store: &str| {
            let into = [
                "-alias",
                ALIAS,
                "-storetype",
                "PKCS12",
                "-storepass",
                PASSWORD,
            ];
            keytool(&[what, &into, &["-keystore", store]].concat())
        };
        let names = "SAN=IP:127.0.0.1,DNS:localhost";
        let key = ["-genkeypair", "-keyalg", "RSA", "-validity", DAYS];
        let named = ["-dname", "CN=localhost", "-ext", names];
        run(&[&key[..], &named].concat(), &keystore)?;
        run(&["-exportcert", "-rfc", "-file", &pem], &keystore)?;
        run(&["-importcert", "-noprompt", "-file", &pem], &truststore)
    }

    /// Has servers and clients use them.
    pub fn configure(&self, conf: &mut Conf) {
        for (of, store) in [
            ("server.keystore", "keystore"),
            ("server.truststore", "truststore"),
            ("client.truststore", "truststore"),
        ] {
            conf.set(format!("ssl.{of}.location"), self.file(store).display())
                .set(format!("ssl.{of}.password"), PASSWORD)
                .set(format!("ssl.{of}.type"), "pkcs12");
        }
        conf.set("ssl.server.keystore.keypassword", PASSWORD);
    }
}

fn keytool(args: &[&str]) -> Result<()> {
    let program = of_java("keytool");
    let ran = Command::new(&program).args(args).output();
    let ran = ran.map_err(|error| match error.kind() {
        ErrorKind::NotFound => ClusterError::Missing {
            what: program.clone(),
            todo: "install a JDK, version 17 or later, or set JAVA_HOME".to_owned(),
        },
        _ => ClusterError::file("running", &program)(error),
    })?;
    if ran.status.success() {
        return Ok(());
    }
    // It complains on stdout.
    let said = String::from_utf8_lossy(&ran.stdout).trim().to_owned();
    let what = format!("no certificate could be made by {program}: {said}");
    Err(ClusterError::Expectation(what))
}
