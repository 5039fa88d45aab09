//! Metrics that are pushed to sinks: each name that Apache's node sends, ours sends too.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::{TcpListener, UdpSocket};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use hayloft_testkit::error::Result;
use hayloft_testkit::suite::{expect, passed};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Outcome, TestkitError};

use crate::{Lab, OURS, STOCK};

/// Records of a Java virtual machine, of logins and of Hadoop's own metrics. Of the first ours has
/// some metrics.
const OF_JAVA: [&str; 4] = ["JvmMetrics", "UgiMetrics", "MetricsSystem", "HttpServer2"];
/// What each sink has to hear of.
const RECORDS: [&str; 6] = [
    "dfs.datanode",
    "dfs.FsVolume",
    "FsDatasetImpl",
    "rpc.rpc",
    "rpcdetailed.rpcdetailed",
    "JvmMetrics",
];
const TAGS: [&str; 8] = [
    "Context",
    "Hostname",
    "NumOpenConnectionsPerUser",
    "ProcessName",
    "StorageInfo",
    "VolumeName",
    "port",
    "serverName",
];
const USERS: &str = "NumOpenConnectionsPerUser={";
const HEARD: Duration = Duration::from_secs(90);

type Lines = Arc<Mutex<BTreeSet<String>>>;

/// The three sinks of a node, and what they heard: names without values.
struct Sinks {
    properties: String,
    graphite: Lines,
    statsd: Lines,
    file: PathBuf,
    /// What is a node's own, and what stands for it.
    own: Vec<(String, &'static str)>,
}

fn failed(error: std::io::Error) -> TestkitError {
    TestkitError::Talk(format!("a sink: {error}"))
}

fn add(lines: &Lines, line: String) {
    let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
    lines.insert(line);
}

impl Sinks {
    fn listen(own: Vec<(String, &'static str)>, file: PathBuf) -> Result<Self> {
        let (graphite, statsd) = (Lines::default(), Lines::default());
        let tcp = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
        let udp = UdpSocket::bind("127.0.0.1:0").map_err(failed)?;
        let [to_tcp, to_udp] = [tcp.local_addr(), udp.local_addr()];
        let [to_tcp, to_udp] = [
            to_tcp.map_err(failed)?.port(),
            to_udp.map_err(failed)?.port(),
        ];
        let (heard, names) = (Arc::clone(&graphite), own.clone());
        thread::spawn(move || {
            for stream in tcp.incoming().flatten() {
                for line in BufReader::new(stream).lines().map_while(|line| line.ok()) {
                    // A name, a value, a time.
                    let mut parts = line.rsplitn(3, ' ');
                    let time = parts.next().and_then(|time| time.parse::<u32>().ok());
                    let value = parts.next().and_then(|value| value.parse::<f64>().ok());
                    let well = time.is_some() && value.is_some();
                    let name = parts.next().filter(|_| well).unwrap_or("no metric");
                    add(&heard, without_own(name, &names));
                }
            }
        });
        let heard = Arc::clone(&statsd);
        thread::spawn(move || {
            let mut bytes = [0; 2048];
            while let Ok(got) = udp.recv(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..got]).into_owned();
                let (name, rest) = text.split_once(':').unwrap_or((&text, ""));
                let (value, kind) = rest.split_once('|').unwrap_or((rest, ""));
                let well = value.parse::<f64>().is_ok();
                let line = if well {
                    format!("{name}|{kind}")
                } else {
                    text.clone()
                };
                add(&heard, line);
            }
        });
        let class = "org.apache.hadoop.metrics2.sink";
        let properties = format!(
            "*.period=2\n*.sink.g.class={class}.GraphiteSink\n\
             datanode.sink.g.server_host=127.0.0.1\ndatanode.sink.g.server_port={to_tcp}\n\
             datanode.sink.g.metrics_prefix=hdfs.test\n\
             datanode.sink.s.class={class}.StatsDSink\n\
             datanode.sink.s.server.host=127.0.0.1\ndatanode.sink.s.server.port={to_udp}\n\
             datanode.sink.s.service.name=swapped\n\
             datanode.sink.s.record.filter.exclude=rpc*\n\
             datanode.sink.f.class={class}.FileSink\ndatanode.sink.f.filename={}\n\
             datanode.sink.f.metric.filter.exclude={{*AvgTime\\,Gc*}}\n\
             datanode.sink.odd.class={class}.PrometheusMetricsSink\n",
            file.display()
        );
        Ok(Self {
            properties,
            graphite,
            statsd,
            file,
            own,
        })
    }

    /// What the three heard, each line behind the name of its sink.
    fn heard(&self) -> Result<BTreeSet<String>> {
        let mut all = BTreeSet::new();
        for (name, lines) in [("graphite", &self.graphite), ("statsd", &self.statsd)] {
            let lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
            all.extend(lines.iter().map(|line| format!("{name} {line}")));
        }
        // The last line may not be whole yet.
        let text = fs::read_to_string(&self.file).unwrap_or_default();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        for line in whole.lines() {
            let line = without_own(line, &self.own);
            let (time, rest) = line.split_once(' ').unwrap_or((&line, ""));
            expect(time.parse::<u64>().is_ok(), || line.clone())?;
            let (record, items) = rest.split_once(": ").unwrap_or((rest, ""));
            let name = |item: &str| item.split('=').next().unwrap_or_default().to_owned();
            let is_tag = |item: &&str| TAGS.contains(&name(item).as_str());
            // In their order.
            let tags = items
                .split(", ")
                .filter(is_tag)
                .collect::<Vec<_>>()
                .join(", ");
            let metrics = items.split(", ").filter(|item| !is_tag(item));
            all.extend(metrics.map(|item| format!("file {record} {tags}: {}", name(item))));
        }
        Ok(all)
    }
}

/// A name without what is the node's own, and without who happens to be connected.
fn without_own(name: &str, own: &[(String, &'static str)]) -> String {
    let mut name = name.to_owned();
    for (value, by) in own {
        name = name.replace(value, by);
    }
    if let Some(at) = name.find(USERS).map(|at| at + USERS.len())
        && let Some(len) = name[at..].find('}')
    {
        name.replace_range(at..at + len, "");
    }
    name
}

impl Lab {
    fn sinks(&mut self, node: usize) -> Result<Sinks> {
        let file = self.cluster.dir().join(format!("metrics-{node}.out"));
        let node = self.cluster.node(node);
        let mut own: Vec<_> = node
            .volumes()
            .map(|path| (path.display().to_string(), "VOLUME"))
            .collect();
        let port = node.ipc().rsplit(':').next().unwrap_or_default().to_owned();
        own.push((format!("port={port}"), "port=PORT"));
        let sinks = Sinks::listen(own, file)?;
        let path = node.conf_dir().join("hadoop-metrics2.properties");
        fs::write(path, &sinks.properties).map_err(failed)?;
        Ok(sinks)
    }

    /// Each name and each type of each sink is that of Apache's node.
    pub fn pushed(&mut self) -> Result<Outcome> {
        let (ours, stock) = (self.sinks(OURS)?, self.sinks(STOCK)?);
        for node in [OURS, STOCK] {
            self.cluster.node(node).stop()?;
            self.cluster.start_node(node)?;
        }
        self.cluster.wait_all_live()?;
        // Clients keep the connection to a node that is gone for ten seconds: their next call on it
        // fails, and the one after that does not.
        wait::until("calls to both nodes", HEARD, || {
            let asked = self.ask_rpc();
            Ok(asked.map_or_else(|e| Seen::NotYet(e.to_string()), Seen::Done))
        })?;
        let same = wait::until("the same names from both nodes", HEARD, || {
            let (ours, stock) = (ours.heard()?, stock.heard()?);
            let lacking = RECORDS.iter().find(|record| {
                let has = |heard: &BTreeSet<String>| heard.iter().any(|l| l.contains(**record));
                !has(&ours) || !has(&stock)
            });
            if let Some(record) = lacking {
                return Ok(Seen::NotYet(format!("no {record} yet")));
            }
            let of_java = |name: &&String| OF_JAVA.iter().any(|record| name.contains(record));
            let missing = stock.difference(&ours).filter(|name| !of_java(name));
            let missing = missing.map(|name| format!("- {name}"));
            let odd = ours.difference(&stock).map(|name| format!("+ {name}"));
            let differ: Vec<String> = missing.chain(odd).collect();
            Ok(match differ.is_empty() {
                true => Seen::Done(ours.len()),
                false => Seen::NotYet(differ.join("\n")),
            })
        })?;
        println!("web: {same} names in three sinks are those of Apache's node");
        expect(same > 300, || same.to_string())?;
        let log = fs::read_to_string(self.cluster.node(OURS).log()).map_err(failed)?;
        let warned = "the sink odd (org.apache.hadoop.metrics2.sink.PrometheusMetricsSink) gets";
        expect(log.contains(warned), || log.clone())?;
        passed()
    }
}
