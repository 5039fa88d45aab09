//! The API server over TLS: trusted by the pod's `ca.crt` alone.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use hayloft_topology::SourceSettings;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::fake::{ask, place};

const NODE: &str = r#"{"metadata": {"name": "n1",
  "labels": {"topology.kubernetes.io/zone": "z"}}}"#;

/// A certificate for 127.0.0.1 that signs itself. None without openssl; the reason is printed.
fn certificate(dir: &Path) -> Option<()> {
    let words = "req -x509 -nodes -days 2 -subj /CN=api -newkey ec -pkeyopt \
                 ec_paramgen_curve:prime256v1 -addext \
                 basicConstraints=critical,CA:FALSE -addext subjectAltName=IP:127.0.0.1";
    let made = Command::new("openssl")
        .args(words.split_whitespace())
        .arg("-keyout")
        .arg(dir.join("key.pem"))
        .arg("-out")
        .arg(dir.join("ca.crt"))
        .output();
    match made {
        Err(error) => {
            println!("skipped: openssl: {error}");
            None
        }
        Ok(made) => {
            assert!(made.status.success(), "{made:?}");
            Some(())
        }
    }
}

fn server(dir: &Path) -> SocketAddr {
    let chain = CertificateDer::pem_file_iter(dir.join("ca.crt")).expect("readable");
    let key = PrivateKeyDer::from_pem_file(dir.join("key.pem")).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(chain.flatten().collect(), key)
        .expect("a pair");
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let session = ServerConnection::new(Arc::clone(&config)).expect("a session");
            let mut stream = StreamOwned::new(session, socket);
            let mut head = [0; 4096];
            // A client that does not trust us leaves here.
            if stream.read(&mut head).is_ok_and(|n| n > 0) {
                let length = NODE.len();
                let _ = write!(
                    stream,
                    "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{NODE}"
                );
                let _ = stream.flush();
            }
        }
    });
    at
}

#[test]
fn the_api_server_is_trusted_by_the_pods_certificate_alone() {
    let (ours, other) = (tempfile::tempdir(), tempfile::tempdir());
    let (ours, other) = (ours.expect("a directory"), other.expect("a directory"));
    if certificate(ours.path()).is_none() || certificate(other.path()).is_none() {
        return;
    }
    let at = server(ours.path());
    let settings = |account: &Path| {
        fs::write(account.join("token"), "t").expect("written");
        SourceSettings {
            kubernetes_api: Some(format!("https://{at}").parse().expect("an address")),
            kubernetes_node: Some("n1".to_owned()),
            kubernetes_account: Some(account.to_owned()),
            ..SourceSettings::default()
        }
    };
    let found = ask("kubernetes", &settings(ours.path()));
    assert_eq!(place(&found), ("/z/n1", Some("n1")));
    let said = ask("kubernetes", &settings(other.path())).expect_err("a stranger");
    assert!(said.contains("certificate"), "{said}");
}
