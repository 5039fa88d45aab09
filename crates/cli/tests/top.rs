//! `hayloft top` against a node, and against small servers that answer as nodes and a NameNode do.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

/// A server that gives each path's answer; `None` ends the connection without one. An answer that
/// begins with a status has no other.
fn server(answer: impl Fn(&str) -> Option<String> + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let _ = serve(socket.expect("a client"), &answer);
        }
    });
    addr
}

fn serve(socket: TcpStream, answer: &impl Fn(&str) -> Option<String>) -> std::io::Result<()> {
    let mut lines = BufReader::new(socket.try_clone()?).lines();
    let first = lines.next().unwrap_or_else(|| Ok(String::new()))?;
    // All of the head: a socket that is closed with unread bytes resets the connection.
    while lines
        .next()
        .is_some_and(|line| line.is_ok_and(|line| !line.is_empty()))
    {}
    let path = first.split(' ').nth(1).unwrap_or_default();
    if let Some(body) = answer(path) {
        let mut socket = socket;
        if body.starts_with("HTTP/") {
            return socket.write_all(body.as_bytes());
        }
        write!(socket, "HTTP/1.0 200 OK\r\nConnection: close\r\n\r\n{body}")?;
    }
    Ok(())
}

/// A node whose counters rise with each answer.
fn node() -> SocketAddr {
    let asked = Arc::new(AtomicU64::new(0));
    let recorded = include_str!("../src/top/recorded.json");
    let recorded: Value = serde_json::from_str(recorded).expect("JSON");
    server(move |path| {
        let n = asked.fetch_add(1, Ordering::Relaxed);
        let mut live = recorded.clone();
        live["up_ms"] = (120_000 + n).into();
        live["written_bytes"] = (n << 30).into();
        let service = &mut live["disks"][0]["classes"][0]["service"];
        service["count"] = (n * 10).into();
        service["sum"] = (n * 1_000_000).into();
        (path == "/live").then(|| live.to_string())
    })
}

fn namenode(nodes: &[SocketAddr]) -> SocketAddr {
    let live: serde_json::Map<String, Value> = nodes
        .iter()
        .map(|addr| {
            let node = serde_json::json!({"infoAddr": addr, "adminState": "In Service"});
            (format!("name{addr}"), node)
        })
        .collect();
    let bean = serde_json::json!({
        "name": "Hadoop:service=NameNode,name=NameNodeInfo",
        "LiveNodes": Value::Object(live).to_string(),
        "DeadNodes": "{}",
    });
    let page = serde_json::json!({"beans": [bean]}).to_string();
    server(move |path| path.starts_with("/jmx?qry=").then(|| page.clone()))
}

fn top(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hayloft"));
    for name in ["HADOOP_CONF_DIR", "HADOOP_HOME"] {
        command.env_remove(name);
    }
    command.arg("top").args(arguments).output().expect("runs")
}

#[test]
fn nodes_are_found_through_the_namenode() {
    let (first, second) = (node(), node());
    let gone = TcpListener::bind("127.0.0.1:0").expect("a port");
    let gone = gone.local_addr().expect("bound");
    let namenode = namenode(&[first, second, gone]).to_string();
    let output = top(&["--once", "--json", "--namenode", &namenode]);
    assert_eq!(output.status.code(), Some(1), "one is silent: {output:?}");
    let view: Value = serde_json::from_slice(&output.stdout).expect("one object");
    let nodes = view["nodes"].as_array().expect("nodes");
    assert_eq!(nodes.len(), 3);
    let of = |addr: SocketAddr| {
        let node = nodes
            .iter()
            .find(|node| node["address"] == addr.to_string());
        node.expect("listed").clone()
    };
    assert_eq!(of(first)["state"], "In Service");
    assert_eq!(of(first)["remaining_bytes"], 2_900_000_000_000.0);
    let written = of(second)["rates"]["written_per_second"].as_f64();
    assert!(written.is_some_and(|rate| rate > 1e7), "{view:#}");
    let class = &of(first)["rates"]["disks"][0]["classes"][0];
    assert_eq!(class["class"], "client-write");
    assert_eq!(class["service_mean"], 0.1);
    assert_eq!(of(first)["gravity"], "trouble", "a volume has failed");
    let error = of(gone)["error"].as_str().expect("told").to_owned();
    assert!(error.starts_with("does not answer"), "{error}");
}

#[test]
fn what_is_no_terminal_gets_a_table() {
    let (well, mute) = (node().to_string(), server(|_| None).to_string());
    let stock = server(|_| Some("HTTP/1.1 404 Not Found\r\n\r\n".to_owned())).to_string();
    let other = server(|_| Some("{\"up_ms\": 1}".to_owned())).to_string();
    let tickets = server(|_| Some("HTTP/1.1 401 Unauthorized\r\n\r\n".to_owned())).to_string();
    let names = [&well, &mute, &stock, &other, &tickets].map(|name| ["--node", name]);
    let output = top(names.as_flattened());
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.starts_with("   NODE"), "{said}");
    for part in [
        &*format!("! {mute}: does not answer: "),
        &format!("! {stock}: answers /live with HTTP/1.1 404 Not Found: it is no Hayloft node"),
        &format!("! {other}: its /live is not that of a Hayloft node"),
        &format!("! {tickets}: answers /live with HTTP/1.1 401 Unauthorized: it wants a ticket"),
        "client-write",
        "100 ms",
        "The volume /data/2 has failed: Input/output error.",
    ] {
        assert!(said.contains(part), "{part:?} is missing in\n{said}");
    }
    assert!(!said.contains('\u{1b}'), "no escapes: {said}");
}

#[test]
fn a_namenode_that_is_not_there_is_named() {
    let gone = TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = gone.local_addr().expect("bound").to_string();
    drop(gone);
    let output = top(&["--once", "--namenode", &addr]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains(&addr) && said.contains("--node HOST:PORT"),
        "{said}"
    );
    let output = top(&["--once", "--conf", "/nonexistent"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn pages_that_are_not_in_clear_are_refused_with_what_to_do() {
    let dir = tempfile::tempdir().expect("a directory");
    for (name, value, what) in [
        (
            "dfs.http.policy",
            "HTTPS_ONLY",
            "web pages over HTTPS alone are not asked",
        ),
        (
            "hadoop.http.authentication.type",
            "kerberos",
            "web pages for callers with tickets are not asked",
        ),
        // It goes on, and finds no NameNode.
        ("dfs.http.policy", "HTTP_AND_HTTPS", "NameNode 127.0.0.1:1"),
    ] {
        let text = format!(
            "<configuration>\
             <property><name>fs.defaultFS</name><value>hdfs://127.0.0.1:1</value></property>\
             <property><name>dfs.namenode.http-address</name><value>127.0.0.1:1</value></property>\
             <property><name>hadoop.http.filter.initializers</name>\
             <value>org.apache.hadoop.security.AuthenticationFilterInitializer</value></property>\
             <property><name>{name}</name><value>{value}</value></property>\
             </configuration>"
        );
        std::fs::write(dir.path().join("hdfs-site.xml"), text).expect("written");
        let output = top(&["--once", "--conf", &dir.path().display().to_string()]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(what), "{said}");
        let refused = what.starts_with("web pages");
        assert_eq!(said.contains("have curl ask its /live"), refused, "{said}");
    }
}

/// A `hayloft node` that waits for its NameNode; it ends with the test.
struct RealNode {
    process: std::process::Child,
    dir: tempfile::TempDir,
}

impl Drop for RealNode {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl RealNode {
    fn start() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let data = dir.path().join("data").display().to_string();
        let any = "127.0.0.1:0";
        let properties = [
            ("dfs.namenode.rpc-address", "127.0.0.1:1"),
            ("dfs.datanode.data.dir", &data),
            ("dfs.datanode.address", any),
            ("dfs.datanode.ipc.address", any),
            ("dfs.datanode.http.address", any),
        ];
        let body: String = properties
            .iter()
            .map(|(name, value)| {
                format!("<property><name>{name}</name><value>{value}</value></property>")
            })
            .collect();
        let text = format!("<configuration>{body}</configuration>");
        std::fs::write(dir.path().join("hdfs-site.xml"), text).expect("written");
        let log = std::fs::File::create(dir.path().join("log")).expect("made");
        let process = Command::new(env!("CARGO_BIN_EXE_hayloft"))
            .args(["node", "--conf"])
            .arg(dir.path())
            .env_remove("HAYLOFT_LOG")
            .stdout(log.try_clone().expect("a second handle"))
            .stderr(log)
            .spawn()
            .expect("runs");
        Self { process, dir }
    }

    /// The port that its log names.
    fn web_port(&self) -> u16 {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let log = std::fs::read_to_string(self.dir.path().join("log")).expect("there");
            let port = log.split_once(" http=").and_then(|(_, rest)| {
                let (port, _) = rest.split_once(' ')?;
                port.parse().ok()
            });
            if let Some(port) = port {
                return port;
            }
            assert!(Instant::now() < end, "no port within 60 s: {log}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn a_real_node_is_read() {
    let node = RealNode::start();
    let address = format!("127.0.0.1:{}", node.web_port());
    let output = top(&["--once", "--json", "--node", &address]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let view: Value = serde_json::from_slice(&output.stdout).expect("one object");
    let node = &view["nodes"][0];
    assert!(
        node["capacity_bytes"]
            .as_f64()
            .is_some_and(|bytes| bytes > 0.0),
        "{view:#}"
    );
    assert_eq!(
        node["findings"][0],
        serde_json::json!({
            "gravity": "trouble",
            "text": "Not registered with the NameNode 127.0.0.1:1: CONNECTING.",
        })
    );
    let rates = &node["rates"];
    assert!(
        rates["seconds"]
            .as_f64()
            .is_some_and(|seconds| seconds > 0.5),
        "{view:#}"
    );
    let class = &rates["disks"][0]["classes"][0]["class"];
    assert_eq!(class, "client-write", "{view:#}");
}
