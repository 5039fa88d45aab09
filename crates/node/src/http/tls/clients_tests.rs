//! Clients with and without certificates, and truststores as Java's keytool makes them.

use std::process::Command;
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::super::{Source, Suites, Tls};
use super::*;

const PASSWORD: &str = "changeit";

/// A directory with keystores called by the names of those whose keys they hold.
struct Stores(tempfile::TempDir);

impl Stores {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs keytool in the directory on one keystore; false where there is none.
    fn keytool(&self, store: &str, arguments: &str) -> bool {
        let ran = Command::new("keytool")
            .current_dir(self.0.path())
            .args(arguments.split_whitespace())
            .args(["-storepass", PASSWORD, "-keystore", store])
            .output();
        match ran {
            Ok(ran) => {
                let said = String::from_utf8_lossy(&ran.stdout);
                assert!(ran.status.success(), "{arguments}: {said}");
                true
            }
            Err(error) => {
                println!("skipped: keytool: {error}");
                false
            }
        }
    }

    /// A key that `name` itself signs, and its certificate as `NAME.der`.
    fn key(&self, name: &str, more: &str) -> bool {
        let make = format!(
            "-genkeypair -alias {name} -keyalg EC -groupname secp256r1 -dname CN={name} {more} \
             -storetype PKCS12 -keypass {PASSWORD}"
        );
        let export = format!("-exportcert -alias {name} -file {name}.der");
        self.keytool(name, &make) && self.keytool(name, &export)
    }

    /// A key whose certificate `ca` signs.
    fn signed(&self, name: &str, ca: &str) {
        self.key(name, "");
        self.keytool(name, &format!("-certreq -alias {name} -file {name}.csr"));
        let sign = format!("-gencert -alias {ca} -infile {name}.csr -outfile {name}.der");
        self.keytool(ca, &sign);
        for of in [ca, name] {
            let import = format!("-importcert -noprompt -alias {of} -file {of}.der");
            self.keytool(name, &import);
        }
    }

    /// A truststore with the certificate of `ca`.
    fn trusting(&self, name: &str, kind: &str, ca: &str) {
        let import = format!("-importcert -noprompt -alias {ca} -file {ca}.der -storetype {kind}");
        self.keytool(name, &import);
    }

    fn truststore(&self, name: &str, password: Option<&str>) -> Truststore {
        Truststore {
            path: self.path(name),
            password: password.map(str::to_owned),
        }
    }

    /// A node that is called `node`, and serves clients that the truststore trusts.
    fn source(&self, truststore: &str) -> Source {
        Source {
            path: self.path("node"),
            password: PASSWORD.into(),
            key_password: PASSWORD.into(),
            truststore: Some(self.truststore(truststore, Some(PASSWORD))),
            suites: Suites::default(),
            interval: Duration::from_millis(100),
        }
    }

    /// Whether the node accepts a client with the key of that name.
    async fn accepts(&self, tls: TlsAcceptor, client: Option<&str>) -> Result<(), String> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        let node = std::fs::read(self.path("node.der")).expect("reads");
        roots.add(node.into()).expect("a certificate");
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots);
        let config = match client {
            None => config.with_no_client_auth(),
            Some(name) => {
                let pair = keystore::read(&self.path(name), PASSWORD, PASSWORD).expect("reads");
                let chain = pair.chain.into_iter().map(CertificateDer::from).collect();
                let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(pair.key));
                config.with_client_auth_cert(chain, key).expect("a pair")
            }
        };
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        let connector = TlsConnector::from(Arc::new(config));
        let name = ServerName::try_from("localhost").expect("a name");
        let (accepted, connected) = tokio::join!(tls.accept(ours), connector.connect(name, theirs));
        // The node's certificate is not what a client is refused for.
        if accepted.is_ok() {
            connected.expect("a server that it knows");
        }
        accepted.map(|_| ()).map_err(|error| error.to_string())
    }
}

#[tokio::test]
async fn only_clients_whose_certificate_is_trusted_are_served() {
    let stores = Stores::new();
    if !stores.key("node", "-ext SAN=DNS:localhost") {
        return;
    }
    for ca in ["ca", "another"] {
        stores.key(ca, "-ext bc=ca:true");
    }
    stores.signed("alice", "ca");
    stores.signed("mallory", "another");
    stores.trusting("jks", "JKS", "ca");
    stores.trusting("pkcs12", "PKCS12", "ca");
    // As Java has it, whom a key belongs to is trusted as well.
    for truststore in ["jks", "pkcs12", "ca"] {
        let tls = stores.source(truststore).load().expect("reads");
        let of = |client| stores.accepts(TlsAcceptor::from(Arc::clone(&tls)), client);
        of(Some("alice")).await.expect(truststore);
        let none = of(None).await.expect_err("no certificate");
        assert!(none.contains("sent no certificates"), "{none}");
        let other = of(Some("mallory")).await.expect_err("of another");
        assert!(other.contains("UnknownIssuer"), "{other}");
    }
    // Whom it trusts changes while the node runs.
    let source = stores.source("jks");
    let tls = Arc::new(Tls::of(source).expect("reads"));
    let stop = tokio_util::sync::CancellationToken::new();
    let watching = tokio::spawn(Arc::clone(&tls).watch(stop.clone()));
    std::fs::remove_file(stores.path("jks")).expect("removes");
    stores.trusting("jks", "JKS", "another");
    let mut tries = 100;
    while let Err(error) = stores.accepts(tls.acceptor(), Some("mallory")).await {
        tries -= 1;
        assert!(tries > 0, "{error}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let other = stores.accepts(tls.acceptor(), Some("alice")).await;
    other.expect_err("trusted no more");
    stop.cancel();
    watching.await.expect("ends");
}

#[test]
fn a_truststore_that_trusts_none_is_told_of() {
    let stores = Stores::new();
    if !stores.key("ca", "-ext bc=ca:true") {
        return;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let error = |name: &str, password: Option<&str>, wanted: &str| {
        let refused = stores.truststore(name, password).verifier(&provider);
        let refused = refused.expect_err("cannot be used");
        let file = stores.path(name).display().to_string();
        assert!(
            refused.contains(wanted) && refused.contains(&file),
            "{refused}"
        );
    };
    for (name, kind, wrong) in [
        ("jks", "JKS", "the password is wrong"),
        ("pkcs12", "PKCS12", "neither JKS nor a PKCS12"),
    ] {
        stores.trusting(name, kind, "ca");
        error(name, Some("changes"), wrong);
        stores.keytool(name, "-delete -alias ca");
        error(name, Some(PASSWORD), "keytool -importcert");
    }
    error("nowhere", None, "No such file");
    // A password only shows that a JKS is whole: what is damaged is words without it, too.
    stores.trusting("whole", "JKS", "ca");
    let open = stores.truststore("whole", None).verifier(&provider);
    open.expect("needs no password");
    let whole = std::fs::read(stores.path("whole")).expect("reads");
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] = !damaged[at];
        for bytes in [&damaged, &whole[..at]] {
            std::fs::write(stores.path("damaged"), bytes).expect("writes");
            let _ = stores.truststore("damaged", None).verifier(&provider);
            let known = stores.truststore("damaged", Some(PASSWORD));
            known.verifier(&provider).expect_err("damaged");
        }
    }
}

#[test]
fn either_switch_demands_certificates() {
    let of = |core: &[(&str, &str)], server: &[(&str, &str)]| {
        let [core, server] = [core, server].map(|properties| {
            Configuration::from_properties(properties.iter().copied()).expect("valid")
        });
        let truststore = Truststore::of(&core, &server, "ssl-server.xml")?;
        Ok::<_, String>(truststore.map(|of| (of.path, of.password)))
    };
    let [first, second] = SWITCHES;
    let location = (LOCATION, "/t");
    let found = Ok(Some((PathBuf::from("/t"), None)));
    assert_eq!(of(&[("a", "b")], &[location]), Ok(None));
    assert_eq!(of(&[(first, "true")], &[location]), found);
    assert_eq!(of(&[("a", "b")], &[location, (second, "True")]), found);
    assert_eq!(of(&[(first, "false")], &[location, (first, "true")]), found);
    assert_eq!(of(&[(first, "true")], &[(first, "false")]), Ok(None));
    let password = ("ssl.server.truststore.password", "x");
    let found = Ok(Some((PathBuf::from("/t"), Some("x".to_owned()))));
    assert_eq!(of(&[(first, "true")], &[location, password]), found);
    let lacks = of(&[(first, "true")], &[("a", "b")]).expect_err("no truststore");
    assert!(
        lacks.contains("ssl-server.xml lacks ssl.server.truststore.location"),
        "{lacks}"
    );
}
