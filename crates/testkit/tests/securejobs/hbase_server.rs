//! A stock HBase: ZooKeeper, a master, region servers and clients, a small JVM each.

use hayloft_testkit::Cluster;
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::hadoop::{Hadoop, Jvm, repository_root};
use hayloft_testkit::hadoop_conf::Conf;
use hayloft_testkit::hbase::FLAGS;
use hayloft_testkit::ports;
use hayloft_testkit::process::Process;
use hayloft_testkit::suite::{expect, seconds};
use hayloft_testkit::wait::{self, Seen};
use std::path::{Path, PathBuf};
use std::time::Duration;

const ZOOKEEPER: &str = "org.apache.zookeeper.server.ZooKeeperServerMain";
const MASTER: &str = "org.apache.hadoop.hbase.master.HMaster";
const REGION_SERVER: &str = "org.apache.hadoop.hbase.regionserver.HRegionServer";
/// How long a server may take until it serves, on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(360);
/// How long a client may work.
const CLIENT_LIMIT: Duration = Duration::from_secs(360);

/// A running HBase. Its servers end with it.
pub struct HBase {
    hadoop: Hadoop,
    dir: PathBuf,
    clients: usize,
    region_servers: usize,
    pub region_server: Option<Process>,
    pub master: Option<Process>,
    _zookeeper: Process,
}

impl HBase {
    /// Starts it with the write-ahead logs of `provider`, its files below `/hbase-PROVIDER`, and
    /// the keys `more` over its own.
    pub fn start(
        home: &Path,
        cluster: &Cluster,
        provider: &'static str,
        more: &Conf,
    ) -> Result<Self> {
        let hadoop = Hadoop::locate_in(Some(home))?;
        let dir = cluster.dir().join(format!("hbase-{provider}"));
        let zookeeper_port = ports::free()?;
        let conf = dir.join("conf");
        cluster.conf().write_dir(&conf)?;
        let mut site = site(cluster, &dir, provider, zookeeper_port)?;
        site.overlay(more);
        let path = conf.join("hbase-site.xml");
        std::fs::write(&path, site.to_xml()).map_err(TestkitError::file("writing", path))?;
        let data = dir.join("zookeeper").display().to_string();
        let arguments = [&zookeeper_port.to_string(), data.as_str(), "1000"];
        let zookeeper = java(&hadoop, &dir, "zookeeper", 64, ZOOKEEPER, &arguments)?;
        let mut hbase = Self {
            hadoop,
            dir,
            clients: 0,
            region_servers: 0,
            region_server: None,
            master: None,
            _zookeeper: zookeeper,
        };
        hbase.start_master()?;
        hbase.start_region_server()?;
        hbase.wait_said("Master has completed initialization")?;
        Ok(hbase)
    }

    /// Waits until the master says it.
    fn wait_said(&mut self, words: &str) -> Result<()> {
        let log = self.dir.join("master.log");
        wait::until(words, START_LIMIT, || {
            for server in self.master.iter_mut().chain(&mut self.region_server) {
                server.check_alive()?;
            }
            Ok(match count(&log, words) {
                0 => Seen::NotYet(format!("see {}", log.display())),
                _ => Seen::Done(()),
            })
        })
    }

    pub fn start_master(&mut self) -> Result<()> {
        let arguments = ["start"];
        let master = java(&self.hadoop, &self.dir, "master", 384, MASTER, &arguments)?;
        self.master = Some(master);
        Ok(())
    }

    pub fn start_region_server(&mut self) -> Result<()> {
        let name = format!("region-server-{}", self.region_servers);
        self.region_servers += 1;
        let arguments = ["start"];
        let server = java(
            &self.hadoop,
            &self.dir,
            &name,
            384,
            REGION_SERVER,
            &arguments,
        )?;
        self.region_server = Some(server);
        Ok(())
    }

    pub fn kill_region_server(&mut self) -> Result<()> {
        let server = self.region_server.take();
        server.map_or(Ok(()), |mut server| server.kill().map(drop))
    }

    /// How often the region servers have said these words.
    pub fn said(&self, words: &str) -> usize {
        let logs = 0..self.region_servers;
        logs.map(|at| count(&self.dir.join(format!("region-server-{at}.log")), words))
            .sum()
    }

    /// Starts the client program with these arguments.
    pub fn begin(&mut self, arguments: &[&str]) -> Result<Client> {
        self.clients += 1;
        let name = format!("client-{}-{}", self.clients, arguments[0]);
        let source = repository_root().join("hadoop/hbase/Rows.java");
        let source = source.display().to_string();
        java(&self.hadoop, &self.dir, &name, 256, &source, arguments).map(Client)
    }

    /// Runs the client program to its end.
    pub fn run(&mut self, arguments: &[&str]) -> Result<()> {
        self.begin(arguments)?.end()
    }
}

/// A client program that runs.
pub struct Client(pub Process);

impl Client {
    /// Waits until it has said these words.
    pub fn wait_said(&mut self, words: &str) -> Result<()> {
        wait::until(words, CLIENT_LIMIT, || self.look_for(words))
    }

    /// Whether it has said these words; an error if it has ended without them.
    pub fn look_for(&mut self, words: &str) -> Result<Seen<()>> {
        let alive = self.0.check_alive();
        if count(self.0.log(), words) > 0 {
            return Ok(Seen::Done(()));
        }
        alive?;
        Ok(Seen::NotYet(format!("see {}", self.0.log().display())))
    }

    /// Waits for its end, which has to be a good one.
    pub fn end(mut self) -> Result<()> {
        let status = self.0.wait(CLIENT_LIMIT)?;
        let log = std::fs::read_to_string(self.0.log()).unwrap_or_default();
        let well = status.success() && log.lines().any(|line| line == "ok");
        expect(well, || self.0.error(status.to_string()).to_string())
    }
}

fn count(log: &Path, words: &str) -> usize {
    let text = std::fs::read(log).unwrap_or_default();
    String::from_utf8_lossy(&text).matches(words).count()
}

fn java(
    hadoop: &Hadoop,
    dir: &Path,
    name: &str,
    heap: u32,
    main: &str,
    arguments: &[&str],
) -> Result<Process> {
    let mut jvm = Jvm::small(&dir.join("conf"), dir, heap);
    jvm.flags.extend(FLAGS.map(String::from));
    hadoop.java(name, &jvm, main, arguments).start()
}

/// HBase's own keys.
fn site(cluster: &Cluster, dir: &Path, provider: &str, zookeeper: u16) -> Result<Conf> {
    let uri = cluster.conf().get("fs.defaultFS").unwrap_or_default();
    let mut conf = Conf::new()
        .with("hbase.rootdir", format!("{uri}/hbase-{provider}"))
        .with("hbase.cluster.distributed", true)
        .with("hbase.tmp.dir", dir.join("tmp").display())
        .with("hbase.zookeeper.quorum", "127.0.0.1")
        .with("hbase.zookeeper.property.clientPort", zookeeper)
        .with("zookeeper.session.timeout", 20_000)
        .with("hbase.wal.provider", provider)
        .with("hbase.master.port", ports::free()?)
        .with("hbase.regionserver.port", 0)
        .with("hbase.master.wait.on.regionservers.mintostart", 1)
        .with("hbase.regionserver.handler.count", 8)
        .with("hbase.regionserver.msginterval", 1000)
        .with("hbase.client.operation.timeout", seconds(120).as_millis());
    for server in ["master", "regionserver"] {
        conf.set(format!("hbase.{server}.info.port"), -1)
            .set(format!("hbase.{server}.hostname"), "localhost");
    }
    Ok(conf)
}
