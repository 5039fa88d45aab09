//! Sinks that listen, are away, come back, or take nothing.

use std::io::Read as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hayloft_conf::{HostPort, SinkTarget};
use serde_json::Number;
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::time::timeout;

use super::*;
use crate::http::Metric;

const PERIOD: Duration = Duration::from_millis(20);
const SOON: Duration = Duration::from_secs(20);

fn record(name: &'static str, context: &str, metrics: &[(&str, u64, bool)]) -> Record {
    let tag = |name: &str, value: Option<&str>| (name.to_owned(), value.map(str::to_owned));
    let metrics = metrics.iter().map(|(name, value, grows)| Metric {
        name: (*name).to_owned(),
        value: Number::from(*value),
        grows: *grows,
    });
    Record {
        source: format!("Source-{name}"),
        name,
        tags: vec![
            tag("SessionId", None),
            tag("Context", Some(context)),
            tag("Hostname", Some("dn1.example.com")),
        ],
        metrics: metrics.collect(),
    }
}

fn some() -> Vec<Record> {
    vec![
        record(
            "datanode",
            "dfs",
            &[("BytesRead", 7, true), ("Now", 1, false)],
        ),
        record("a.b.Impl", "FSDatasetState", &[("Capacity", 9, false)]),
    ]
}

fn sink(target: SinkTarget) -> MetricsSink {
    MetricsSink {
        name: "s".into(),
        place: "file:1".into(),
        target,
        period: PERIOD,
        context: None,
        sources: None,
        records: None,
        metrics: None,
    }
}

fn graphite(port: u16) -> MetricsSink {
    sink(SinkTarget::Graphite {
        server: local(port),
        prefix: "pre".into(),
    })
}

fn local(port: u16) -> HostPort {
    HostPort {
        host: "127.0.0.1".into(),
        port,
    }
}

/// What is pushed to the sink until this is dropped; counts the snapshots.
struct Pushing(CancellationToken, Arc<AtomicU64>);

impl Pushing {
    fn to(sink: MetricsSink, of: impl Fn() -> Vec<Record> + Send + Sync + 'static) -> Self {
        let (stop, taken) = (CancellationToken::new(), Arc::<AtomicU64>::default());
        let count = Arc::clone(&taken);
        let records = Arc::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
            of()
        });
        tokio::spawn(push(records, None, sink, stop.clone()));
        Self(stop, taken)
    }
}

impl Drop for Pushing {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Reads until the lines have been there so many times.
async fn read_times(stream: &mut TcpStream, times: usize) -> String {
    let mut text = String::new();
    while text.matches("Capacity").count() < times || !text.ends_with('\n') {
        let mut bytes = [0; 4096];
        let read = timeout(SOON, stream.read(&mut bytes)).await;
        let read = read.expect("in time").expect("readable");
        assert!(read > 0, "closed after {text}");
        text += std::str::from_utf8(&bytes[..read]).expect("text");
    }
    text
}

#[test]
fn lines_are_those_of_hadoop_s_sinks() {
    let at = Duration::from_millis(1_700_000_000_123);
    let of = |target: SinkTarget, node| lines::of(&sink(target), some(), node, at).concat();
    let prefix = || String::from("pre");
    let server = || local(1);
    let text = of(
        SinkTarget::Graphite {
            server: server(),
            prefix: prefix(),
        },
        None,
    );
    let wanted = "pre.dfs.datanode.Context=dfs.Hostname=dn1.example.com.BytesRead 7 1700000000\n\
                  pre.dfs.datanode.Context=dfs.Hostname=dn1.example.com.Now 1 1700000000\n\
                  pre.FSDatasetState.a.b.Impl.Context=FSDatasetState.Hostname=dn1.example.com.\
                  Capacity 9 1700000000\n";
    assert_eq!(text, wanted);
    let statsd = |with_host, service: Option<&str>, node| {
        let (server, service) = (server(), service.map(str::to_owned));
        let target = SinkTarget::StatsD {
            server,
            with_host,
            service,
        };
        lines::of(&sink(target), some(), node, at)
    };
    let all = [
        "dn1.hdfs.dfs.datanode.BytesRead:7|c",
        "dn1.hdfs.dfs.datanode.Now:1|g",
        "dn1.hdfs.FSDatasetState.a-b-Impl.Capacity:9|g",
    ];
    assert_eq!(statsd(true, Some("hdfs"), None), all);
    assert_eq!(statsd(false, None, None)[1], "null.dfs.datanode.Now:1|g");
    assert_eq!(
        statsd(false, None, Some("a"))[1],
        "a.null.dfs.datanode.Now:1|g"
    );
    let text = of(SinkTarget::File(None), None);
    let wanted = "1700000000123 dfs.datanode: SessionId=null, Context=dfs, \
                  Hostname=dn1.example.com, BytesRead=7, Now=1\n\
                  1700000000123 FSDatasetState.a.b.Impl: SessionId=null, Context=FSDatasetState, \
                  Hostname=dn1.example.com, Capacity=9\n";
    assert_eq!(text, wanted);
    // Virtual nodes of a host are told apart.
    assert_eq!(
        statsd(true, None, Some("a"))[1],
        "a-dn1.null.dfs.datanode.Now:1|g"
    );
    assert!(of(SinkTarget::File(None), Some("a")).contains("Hostname=a-dn1.example.com,"));
}

#[test]
fn a_sink_gets_what_it_wants() {
    let dir = tempfile::tempdir().expect("a directory");
    let lines = |options: &str| {
        let own = "datanode.sink.f.";
        let class = "org.apache.hadoop.metrics2.sink.FileSink";
        let text = format!("{own}class={class}\n{}", options.replace("OWN.", own));
        let path = dir.path().join("hadoop-metrics2.properties");
        std::fs::write(path, text).expect("written");
        std::fs::write(dir.path().join("hdfs-site.xml"), "<configuration/>").expect("written");
        let config = hayloft_conf::Configuration::load(dir.path(), &[]).expect("a configuration");
        let found = config.metrics_sinks();
        assert_eq!(found.warnings, [""; 0]);
        let lines = lines::of(&found.sinks[0], some(), None, Duration::from_secs(1));
        let lines = lines.iter().map(|line| {
            let rest = line.trim_end().strip_prefix("1000 ").expect("the time");
            let head = rest.split(':').next().unwrap_or_default();
            let metrics = rest.split("example.com").nth(1).unwrap_or_default();
            format!("{head}{metrics}")
        });
        lines.collect::<Vec<_>>()
    };
    let (first, second) = (
        "dfs.datanode, BytesRead=7, Now=1",
        "FSDatasetState.a.b.Impl, Capacity=9",
    );
    assert_eq!(lines(""), [first, second]);
    assert_eq!(lines("OWN.context=dfs\n"), [first]);
    assert_eq!(lines("OWN.source.filter.include=*Impl\n"), [second]);
    assert_eq!(lines("OWN.record.filter.exclude=data*\n"), [second]);
    assert_eq!(
        lines("OWN.record.filter.exclude.tags=Context:dfs\n"),
        [second]
    );
    // A record stays without its metrics, as Apache's.
    let few = lines("OWN.metric.filter.include=B*\n");
    assert_eq!(
        few,
        ["dfs.datanode, BytesRead=7", "FSDatasetState.a.b.Impl"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn graphite_gets_lines_and_is_found_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let _pushing = Pushing::to(graphite(port), some);
    let (mut stream, _) = listener.accept().await.expect("connected");
    let text = read_times(&mut stream, 2).await;
    let line = "pre.dfs.datanode.Context=dfs.Hostname=dn1.example.com.BytesRead 7 ";
    assert!(text.starts_with(line), "{text}");
    // One that is closed costs no snapshot, since the next is not written into it.
    drop(stream);
    let (mut stream, _) = timeout(SOON, listener.accept())
        .await
        .expect("soon")
        .expect("again");
    assert!(read_times(&mut stream, 1).await.starts_with(line));
    // One that is away for a while.
    drop((stream, listener));
    tokio::time::sleep(10 * PERIOD).await;
    let listener = TcpListener::bind(("127.0.0.1", port))
        .await
        .expect("the port");
    let (mut stream, _) = timeout(SOON, listener.accept())
        .await
        .expect("soon")
        .expect("again");
    assert!(read_times(&mut stream, 3).await.starts_with(line));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sink_that_takes_nothing_makes_no_snapshots_wait() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("bound").port();
    // More than the buffers of a socket hold.
    let much = || {
        let long = "x".repeat(1 << 20);
        let one = || record("datanode", "dfs", &[(&long, 1, false)]);
        std::iter::repeat_with(one).take(32).collect::<Vec<_>>()
    };
    let pushing = Pushing::to(graphite(port), much);
    let (_stream, _) = listener.accept().await.expect("connected");
    tokio::time::sleep(Duration::from_secs(2)).await;
    let taken = pushing.1.load(Ordering::Relaxed);
    assert_eq!(taken, 1, "one is on its way, and none behind it");
}

#[tokio::test(flavor = "multi_thread")]
async fn statsd_gets_a_datagram_for_each_metric() {
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
    let port = socket.local_addr().expect("bound").port();
    let target = SinkTarget::StatsD {
        server: local(port),
        with_host: true,
        service: Some("dn".into()),
    };
    let _pushing = Pushing::to(sink(target), some);
    for wanted in ["BytesRead:7|c", "Now:1|g"] {
        let mut bytes = [0; 512];
        let got = timeout(SOON, socket.recv(&mut bytes)).await;
        let got = got.expect("in time").expect("received");
        let text = std::str::from_utf8(&bytes[..got]).expect("text");
        assert_eq!(text, format!("dn1.dn.dfs.datanode.{wanted}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_begun_anew_and_grows() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("metrics.out");
    std::fs::write(&path, "of an earlier start\n").expect("written");
    let _pushing = Pushing::to(sink(SinkTarget::File(Some(path.clone()))), some);
    let read = async {
        loop {
            tokio::time::sleep(PERIOD).await;
            let mut text = String::new();
            let mut file = std::fs::File::open(&path).expect("there");
            file.read_to_string(&mut text).expect("readable");
            if text.matches("Capacity=9\n").count() > 2 {
                return text;
            }
        }
    };
    let text = timeout(SOON, read).await.expect("in time");
    assert!(
        !text.contains("earlier") && text.contains(" dfs.datanode: "),
        "{text}"
    );
    // Another node of the process does not begin it again.
    let _another = Pushing::to(sink(SinkTarget::File(Some(path.clone()))), some);
    tokio::time::sleep(PERIOD * 3).await;
    let later = std::fs::read_to_string(&path).expect("readable");
    assert!(later.starts_with(&text), "{later}");
}

#[tokio::test]
async fn what_lies_in_a_connection_that_dies_is_lost() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let mut outlet = outlet::Outlet::new(graphite(port).target);
    let send = async |outlet: &mut outlet::Outlet| {
        let sent = outlet.send(vec!["a line\n".into()]).await;
        sent.expect("sent");
        outlet.take_lost()
    };
    assert_eq!(send(&mut outlet).await, 0);
    let (stream, _) = listener.accept().await.expect("connected");
    assert_eq!(send(&mut outlet).await, 0);
    // As a server that is killed: what it has not read is answered with a reset.
    stream.set_zero_linger().expect("set");
    drop(stream);
    tokio::time::sleep(10 * PERIOD).await;
    // However long the period is.
    outlet.age(Duration::from_secs(3600));
    assert_eq!(send(&mut outlet).await, 2, "over another connection");
    let (mut stream, _) = listener.accept().await.expect("connected again");
    // One that closes in peace has taken all.
    let mut line = [0; 7];
    stream.read_exact(&mut line).await.expect("a line");
    drop(stream);
    tokio::time::sleep(10 * PERIOD).await;
    assert_eq!(send(&mut outlet).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_hangs_is_told_of_once_and_waited_for() {
    let mut told = 0;
    for (seconds, wanted) in [(1, 0), (29, 0), (3600, 1)] {
        let work = async {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            seconds
        };
        assert_eq!(telling_when_late(work, || told += 1).await, seconds);
        assert_eq!(told, wanted, "after {seconds} s");
    }
}

#[tokio::test]
async fn what_a_living_connection_took_long_ago_is_not_lost() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let mut outlet = outlet::Outlet::new(graphite(port).target);
    let send = async |outlet: &mut outlet::Outlet| {
        let sent = outlet.send(vec!["a line\n".into()]).await;
        sent.expect("sent");
        outlet.take_lost()
    };
    assert_eq!(send(&mut outlet).await, 0);
    let (stream, _) = listener.accept().await.expect("connected");
    outlet.age(Duration::from_secs(3600));
    assert_eq!(send(&mut outlet).await, 0);
    stream.set_zero_linger().expect("set");
    drop(stream);
    tokio::time::sleep(10 * PERIOD).await;
    assert_eq!(send(&mut outlet).await, 1);
}

#[tokio::test]
async fn a_slow_reader_of_a_pipe_gets_whole_lines() {
    let dir = tempfile::tempdir().expect("a directory");
    let pipe = dir.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("it runs").success());
    // Both ways, so that opening it does not wait.
    let reader = std::fs::File::options().read(true).write(true).open(&pipe);
    let mut reader = reader.expect("opens");
    let mut outlet = outlet::Outlet::new(SinkTarget::File(Some(pipe)));
    // More than a pipe holds.
    let lines: Vec<String> = (0..20_000).map(|n| format!("line {n}\n")).collect();
    let all: String = lines.concat();
    let reading = tokio::task::spawn_blocking(move || {
        std::thread::sleep(Duration::from_millis(300));
        let mut got = vec![0; all.len()];
        std::io::Read::read_exact(&mut reader, &mut got).expect("reads");
        assert_eq!(got, all.as_bytes());
    });
    outlet.send(lines).await.expect("sent");
    reading.await.expect("whole lines");
}

#[tokio::test]
async fn a_pipe_without_a_reader_is_an_error() {
    let dir = tempfile::tempdir().expect("a directory");
    let pipe = dir.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("it runs").success());
    let mut outlet = outlet::Outlet::new(SinkTarget::File(Some(pipe)));
    let sent = timeout(SOON, outlet.send(vec!["a line\n".into()])).await;
    assert!(sent.expect("in time").is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sink_ends_with_the_node() {
    let (stop, records) = (CancellationToken::new(), Arc::new(some));
    // No address of a server.
    let unknown = sink(SinkTarget::Graphite {
        server: HostPort {
            host: "no.such.host.invalid".into(),
            port: 1,
        },
        prefix: String::new(),
    });
    let pushing = tokio::spawn(push(records, None, unknown, stop.clone()));
    tokio::time::sleep(5 * PERIOD).await;
    assert!(
        !pushing.is_finished(),
        "what cannot be reached ends nothing"
    );
    stop.cancel();
    timeout(SOON, pushing)
        .await
        .expect("in time")
        .expect("well");
}
