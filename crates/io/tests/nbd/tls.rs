//! Connections by TLS: with a shared key and with certificates. Never another server, never in the
//! clear.

use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use hayloft_io::SyncKind;

use super::rig::{Rig, reads_back, write};

/// A line of a file of shared keys, as `psktool` writes them.
fn keys(rig: &Rig, name: &str, digit: char) -> PathBuf {
    let path = rig.dir.path().join(name);
    let line = format!("node:{}\n", String::from(digit).repeat(64));
    std::fs::write(&path, line).expect("writes");
    path
}

/// A directory with a key and a certificate that signs itself, as nbdkit and libnbd name them.
/// `None` without openssl; the reason is printed.
fn certificates(rig: &Rig, name: &str) -> Option<PathBuf> {
    let dir = rig.dir.path().join(name);
    std::fs::create_dir(&dir).expect("creates");
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=localhost",
        ])
        .args([
            "-newkey",
            "rsa:2048",
            "-addext",
            "subjectAltName=DNS:localhost",
        ])
        .arg("-keyout")
        .arg(dir.join("server-key.pem"))
        .arg("-out")
        .arg(dir.join("server-cert.pem"))
        .output();
    match made {
        Err(error) => {
            println!("skipped: openssl: {error}");
            return None;
        }
        Ok(made) => assert!(made.status.success(), "{made:?}"),
    }
    std::fs::copy(dir.join("server-cert.pem"), dir.join("ca-cert.pem")).expect("copies");
    Some(dir)
}

fn option(name: &str, path: &Path) -> String {
    format!("{name}={}", path.display())
}

/// The engine's name for TLS, with a parameter behind the socket.
fn by_tls(rig: &Rig, user: &str, parameter: &str) -> String {
    let (so, socket) = (rig.dir.path().join("nbd.so"), rig.socket());
    let (so, socket) = (so.display(), socket.display());
    format!("plugin:{so} nbds+unix://{user}/?socket={socket}&{parameter} timeout=5")
}

/// A port on 127.0.0.1 whose connections lead to the server's socket, as long as the process runs.
fn port_before(socket: PathBuf) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("has one").port();
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            if let Ok(server) = UnixStream::connect(&socket) {
                std::thread::spawn(move || join(client, server));
            }
        }
    });
    port
}

/// Passes bytes on both ways until one side ends.
fn join(mut client: TcpStream, mut server: UnixStream) {
    let (Ok(mut asked), Ok(mut told)) = (client.try_clone(), server.try_clone()) else {
        return;
    };
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut asked, &mut told);
        let _ = told.shutdown(std::net::Shutdown::Both);
    });
    let _ = std::io::copy(&mut server, &mut client);
    let _ = client.shutdown(std::net::Shutdown::Both);
}

async fn works(rig: &mut Rig, server: &[&str], name: &str) {
    let engine = rig.try_engine(name).unwrap_or_else(|e| panic!("{e}"));
    let file = rig.file(&engine, "blk_1").await;
    write(&file, 0).await.expect("writes");
    file.sync(SyncKind::All).await.expect("syncs");
    rig.start_with(server, &[]);
    // The first request finds the connection dead, the next connects again, by TLS again.
    let _ = reads_back(&file).await;
    assert!(reads_back(&file).await.expect("is back"));
    write(&file, 100_000).await.expect("writes");
    file.sync(SyncKind::Data).await.expect("nothing was lost");
}

fn refused(rig: &Rig, name: &str, wanted: &str) {
    let error = rig.try_engine(name).expect_err("must not connect");
    let error = error.to_string();
    assert!(error.contains("connect"), "{name}: {error}");
    assert!(error.contains(wanted), "{name}: {error}");
}

#[tokio::test]
async fn a_shared_key_opens_and_another_does_not() {
    let Some(mut rig) = Rig::new() else { return };
    let (key, other) = (keys(&rig, "key", '4'), keys(&rig, "other", '5'));
    let with = option("--tls-psk", &key);
    let server = ["--tls=require", &with];
    rig.start_with(&server, &[]);
    let name = |key: &Path| by_tls(&rig, "node@", &option("tls-psk-file", key));
    let (right, wrong) = (name(&key), name(&other));
    refused(&rig, &wrong, "TLS");
    let in_the_clear = rig.name();
    refused(&rig, &in_the_clear, "TLS");
    works(&mut rig, &server, &right).await;
    rig.start();
    refused(&rig, &right, "TLS");
}

/// By TCP: over a socket of this machine libnbd encrypts, but takes any certificate.
#[tokio::test]
async fn a_certificate_and_its_name_are_checked() {
    let Some(mut rig) = Rig::new() else { return };
    let (Some(ours), Some(foreign)) = (certificates(&rig, "ours"), certificates(&rig, "foreign"))
    else {
        return;
    };
    let with = option("--tls-certificates", &ours);
    let server = ["--tls=require", &with];
    rig.start_with(&server, &[]);
    let (so, port) = (rig.dir.path().join("nbd.so"), port_before(rig.socket()));
    let name = |host: &str, dir: &Path| {
        let trusted = option("tls-certificates", dir);
        format!(
            "plugin:{} nbds://{host}:{port}/?{trusted} timeout=5",
            so.display()
        )
    };
    refused(&rig, &name("localhost", &foreign), "certificate");
    refused(&rig, &name("127.0.0.1", &ours), "certificate");
    let right = name("localhost", &ours);
    works(&mut rig, &server, &right).await;
}
