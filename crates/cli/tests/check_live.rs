//! `hayloft node --check-live` beside ports that stand for a node's.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::Command;

/// A server that gives each client this answer; its port.
fn server(answer: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            // One that only connects has left.
            if client.read(&mut [0; 1024]).is_ok_and(|bytes| bytes > 0) {
                let _ = client.write_all(answer.as_bytes());
            }
        }
    });
    port
}

/// A port that nothing listens at.
fn closed() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("bound").port()
}

/// Exit code and answer, for ports of data transfer and of the web.
fn asked(transfer: u16, web: u16, more: &[&str]) -> (Option<i32>, String) {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("hdfs-site.xml"), "<configuration/>").expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_hayloft"));
    command.args(["node", "--check-live", "--conf"]);
    command.arg(dir.path());
    command.arg(format!("-Ddfs.datanode.address=0.0.0.0:{transfer}"));
    command.arg(format!("-Ddfs.datanode.http.address=0.0.0.0:{web}"));
    command.arg(format!("-Ddfs.datanode.https.address=127.0.0.1:{web}"));
    let output = command.args(more).output().expect("the binary runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.code(), said)
}

#[test]
fn a_node_is_live_when_both_ports_answer() {
    let transfer = server("");
    // A page that wants a ticket is an answer.
    let web = server("HTTP/1.1 401 Unauthorized\r\n\r\n");
    let yes = (Some(0), "yes: the node answers\n".to_owned());
    assert_eq!(asked(transfer, web, &[]), yes);
    // There no certificate is at hand: that it listens has to do.
    let silent = server("");
    assert_eq!(
        asked(transfer, silent, &["-Ddfs.http.policy=HTTPS_ONLY"]),
        yes
    );
}

#[test]
fn what_does_not_answer_is_named() {
    let (transfer, web) = (server(""), server("HTTP/1.0 200 OK\r\n\r\n"));
    for (ports, part) in [
        ((closed(), web), "data transfer at 0.0.0.0:"),
        ((transfer, closed()), "the web port at 0.0.0.0:"),
        ((transfer, server("SSH-2.0-x\r\n")), "no HTTP"),
        ((0, web), "give the node a port"),
    ] {
        let (code, said) = asked(ports.0, ports.1, &[]);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.starts_with("no: ") && said.contains(part), "{said}");
    }
}
