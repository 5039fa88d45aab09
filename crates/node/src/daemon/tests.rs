//! Processes of several nodes, without a NameNode.

use std::path::Path;
use std::time::Duration;

use tokio::net::TcpStream;

use super::*;

/// Nothing listens on port 1 of the loopback.
const NOWHERE: &str = "hdfs://127.0.0.1:1";

fn config(dir: &Path, more: &[(&str, &str)]) -> SharedConfig {
    let data = dir.join("data").display().to_string();
    let mut properties = vec![
        ("fs.defaultFS", NOWHERE),
        ("dfs.datanode.data.dir", data.as_str()),
        ("dfs.datanode.address", "127.0.0.1:0"),
        ("dfs.datanode.ipc.address", "127.0.0.1:0"),
        ("dfs.datanode.http.address", "127.0.0.1:0"),
    ];
    properties.extend_from_slice(more);
    SharedConfig::new(Configuration::from_properties(properties).expect("valid"))
}

async fn start(config: SharedConfig) -> Result<(), StartError> {
    let stop = CancellationToken::new();
    let running = run(
        config,
        StartOption::Regular,
        OpenedPorts::default(),
        stop.clone(),
    );
    tokio::select! {
        outcome = running => outcome,
        () = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            stop.cancel();
            std::future::pending().await
        } => unreachable!("pending"),
    }
}

async fn refusal(config: SharedConfig) -> String {
    start(config).await.expect_err("refused").to_string()
}

/// An address of the loopback whose port was free a moment ago.
fn free() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("bound").to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn virtual_nodes_have_a_directory_and_ports_each() {
    let dir = tempfile::tempdir().expect("a directory");
    let (a, b) = (free(), free());
    let config = config(
        dir.path(),
        &[
            ("hayloft.nodes", "a,b"),
            ("dfs.datanode.address.a", &a),
            ("dfs.datanode.ipc.address.b", &b),
        ],
    );
    let stop = CancellationToken::new();
    let running = tokio::spawn(run(
        config,
        StartOption::Regular,
        OpenedPorts::default(),
        stop.clone(),
    ));
    for address in [a, b] {
        for _ in 0..100 {
            if TcpStream::connect(&address).await.is_ok() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        TcpStream::connect(&address).await.expect("listens");
    }
    stop.cancel();
    running.await.expect("no panic").expect("a clean stop");
    for name in ["a", "b"] {
        assert!(dir.path().join("data").join(name).join("current").is_dir());
    }
    assert!(!dir.path().join("data/current").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_started_where_the_configuration_cannot_work() {
    let dir = tempfile::tempdir().expect("a directory");
    let shared = [
        ("hayloft.nodes", "a,b"),
        ("dfs.datanode.address.a", "127.0.0.1:7"),
        ("dfs.datanode.address.b", "127.0.0.1:7"),
    ];
    let said = refusal(config(dir.path(), &shared)).await;
    assert!(said.contains("would be one"), "{said}");
    let strange = [("hayloft.nodes", "a"), ("dfs.datanode.hostname.b", "x")];
    let said = refusal(config(dir.path(), &strange)).await;
    assert!(said.contains("does not list"), "{said}");
    assert!(!dir.path().join("data").exists());
}

/// A directory of one of them that another process uses ends the start of all.
#[tokio::test(flavor = "multi_thread")]
async fn one_that_cannot_be_opened_keeps_all_from_starting() {
    let dir = tempfile::tempdir().expect("a directory");
    let other = hayloft_store::StoreConfig {
        volumes: vec![hayloft_store::VolumeConfig::new(dir.path().join("data/b"))],
        ..hayloft_store::StoreConfig::default()
    };
    let (events, _news) = tokio::sync::mpsc::channel(1);
    let other = hayloft_store::Store::open(other, events)
        .await
        .expect("opens");
    let config = config(dir.path(), &[("hayloft.nodes", "a,b")]);
    let said = refusal(config.clone()).await;
    assert!(
        said.contains("virtual node b") && said.contains("in_use.lock"),
        "{said}"
    );
    other.shutdown().await;
    // The first one's directory was given up too.
    start(config).await.expect("starts and stops");
}

/// Two that a NameNode could not tell apart are refused.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_a_virtual_node_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    for (name, storage) in [("a", "DS-1"), ("b", "DS-2")] {
        let current = dir.path().join("data").join(name).join("current");
        std::fs::create_dir_all(&current).expect("created");
        let version = format!(
            "storageID={storage}\nclusterID=CID-1\ncTime=0\ndatanodeUuid=u\n\
             storageType=DATA_NODE\nlayoutVersion=-57\n"
        );
        std::fs::write(current.join("VERSION"), version).expect("written");
    }
    let said = refusal(config(dir.path(), &[("hayloft.nodes", "a,b")])).await;
    assert!(
        said.contains("a and b have the same datanodeUuid"),
        "{said}"
    );
}

#[test]
fn a_process_ends_well_when_any_of_its_nodes_was_told_to_stop() {
    let failed = || Err(StartError::Stopped("x".to_owned()));
    let stop = CancellationToken::new();
    assert!(verdict(vec![failed(), Ok(())], &stop).is_ok());
    assert!(verdict(vec![failed(), failed()], &stop).is_err());
    stop.cancel();
    assert!(verdict(vec![failed(), failed()], &stop).is_ok());
}

/// The second would take the socket of the first from its clients.
#[tokio::test(flavor = "multi_thread")]
async fn virtual_nodes_do_not_share_a_domain_socket() {
    let dir = tempfile::tempdir().expect("a directory");
    let shared = [
        ("hayloft.nodes", "a,b"),
        ("dfs.client.read.shortcircuit", "true"),
        ("dfs.domain.socket.path", "/run/hayloft-test/dn.sock"),
    ];
    let said = refusal(config(dir.path(), &shared)).await;
    assert!(
        said.contains("/run/hayloft-test/dn.sock") && said.contains("put _PORT in the path"),
        "{said}"
    );
    assert!(!dir.path().join("data").exists(), "nothing is opened");
}

/// The directory of temporary files is everyone's.
#[tokio::test(flavor = "multi_thread")]
async fn a_domain_socket_where_others_may_write_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let below = dir.path().join("below");
    std::fs::create_dir(&below).expect("created");
    let everyone = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
    std::fs::set_permissions(dir.path(), everyone).expect("set");
    let path = below.join("dn._PORT").display().to_string();
    let unsafe_path = [
        ("dfs.client.domain.socket.data.traffic", "true"),
        ("dfs.domain.socket.path", path.as_str()),
    ];
    let said = refusal(config(dir.path(), &unsafe_path)).await;
    let todo = format!("chmod o-w {}", dir.path().display());
    for part in ["dfs.domain.socket.path", "dn.", todo.as_str()] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!said.contains("_PORT"), "the port is in it: {said}");
}
