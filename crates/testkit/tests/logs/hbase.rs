//! HBase whose rows lie in its logs alone while nodes and region servers are killed.

use crate::hbase_server::{Client, HBase};
use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop_conf::Conf;
use hayloft_testkit::hbase::fetched;
use hayloft_testkit::node::Kind;
use hayloft_testkit::process::Process;
use hayloft_testkit::suite::{expect, passed, seconds};
use hayloft_testkit::{Cluster, Outcome, Suite, TestkitError, http, wait};
use std::path::Path;
use std::time::Instant;

/// Rows that are put in batches of [`BATCH`], flushed, compacted and scanned.
const LOADED: u64 = 200_000;
const BATCH: u64 = 500;
/// Rows that are put one by one; what their writers say when nodes, then a server, are killed.
const WRITTEN: &str = "8000";
const NODES_DIE: &str = "acknowledged 1500";
const SERVER_DIES: &str = "acknowledged 4000";
const ALL: &str = "acknowledged 8000";
/// Rows that are put before a snapshot, and again after it.
const SNAPPED: &str = "3000";
/// Lets writers go on where no third node lives.
pub const BEST_EFFORT: &str = "dfs.client.block.write.replace-datanode-on-failure.best-effort";

pub fn cases(suite: &mut Suite) {
    let home = match fetched() {
        Ok(home) => home,
        Err(why) => return suite.case("hbase", || Ok(Outcome::Skipped(why))),
    };
    // The log, whether it is hsynced, and how many of the three nodes are Apache's and live on.
    for (provider, hsync, apaches) in [
        ("asyncfs", true, 0),
        ("asyncfs", false, 0),
        ("asyncfs", true, 1),
        ("filesystem", true, 0),
        ("filesystem", false, 0),
    ] {
        let home = home.clone();
        let mut on = suite.group(
            move || Lab::start(&home, provider, hsync, apaches),
            |lab, failed| {
                drop(lab.hbase);
                lab.cluster.conclude(failed);
            },
        );
        let sync = if hsync { "hsync" } else { "hflush" };
        let mixed = if apaches > 0 { "_mixed" } else { "" };
        let name = format!("hbase_{provider}_{sync}{mixed}");
        on.case(format!("{name}_load"), move |lab| lab.load(provider, hsync));
        on.case(format!("{name}_all_nodes_killed"), move |lab| {
            lab.all_killed(3 - apaches)
        });
        // Store files are the same with both.
        if hsync {
            on.case(format!("{name}_snapshot"), Lab::snapshot);
        }
    }
}

struct Lab {
    cluster: Cluster,
    hbase: HBase,
}

impl Lab {
    fn start(home: &Path, provider: &'static str, hsync: bool, apaches: usize) -> Result<Self> {
        let cluster = Cluster::builder("logs-hbase")
            .conf(BEST_EFFORT, true)
            .nodes(3 - apaches, Kind::under_test())
            .nodes(apaches, Kind::Apache)
            .start()?;
        let keys = Conf::new()
            .with("hbase.wal.hsync", hsync)
            .with("zookeeper.session.timeout", seconds(10).as_millis());
        let hbase = HBase::start(home, &cluster, provider, &keys)?;
        Ok(Self { cluster, hbase })
    }

    /// How often the first node has synced because a client asked for it.
    fn syncs(&mut self) -> Result<u64> {
        let web = std::net::SocketAddr::from(([127, 0, 0, 1], self.cluster.node(0).http_port()));
        let text = http::get(web, "/jmx?qry=Hadoop:*")?;
        let all = serde_json::from_str::<serde_json::Value>(&text).unwrap_or_default();
        let mut beans = all["beans"].as_array().into_iter().flatten();
        let counted = beans.find_map(|bean| bean["FsyncCount"].as_u64());
        counted.ok_or_else(|| TestkitError::Talk("no bean of the node has FsyncCount".into()))
    }

    /// Every row is there, as it was put; and the logs are of the kind that was asked for.
    fn load(&mut self, provider: &str, hsync: bool) -> Result<Outcome> {
        let before = self.syncs()?;
        self.hbase.run(&["load", &LOADED.to_string()])?;
        let said = match provider {
            "asyncfs" => "AsyncFSWALProvider",
            _ => "FSHLogProvider",
        };
        let is_said = self.hbase.said(said) > 0;
        // The master hsyncs its own log in either case, a few dozen times.
        let synced = self.syncs()? - before;
        expect(is_said && (synced >= LOADED / BATCH) == hsync, || {
            format!("{said}: {is_said}, {synced} syncs with hsync {hsync}")
        })?;
        passed()
    }

    /// Every acknowledged row outlives a `kill -9` of the first nodes under the writers, and then
    /// of the region server, in whose memory it was besides.
    fn all_killed(&mut self, nodes: usize) -> Result<Outcome> {
        let file = self.cluster.dir().join("acknowledged");
        let file = file.display().to_string();
        let mut writers = self.hbase.begin(&["write", WRITTEN, &file])?;
        writers.wait_said(NODES_DIE)?;
        let killed = Instant::now();
        for index in 0..nodes {
            self.cluster.node(index).kill()?;
        }
        for index in 0..nodes {
            self.cluster.start_node(index)?;
        }
        self.write_on(&mut writers, SERVER_DIES)?;
        let after_nodes = killed.elapsed();
        self.hbase.kill_region_server()?;
        let killed = Instant::now();
        self.write_on(&mut writers, ALL)?;
        let after_server = killed.elapsed();
        println!("logs: to {SERVER_DIES}: {after_nodes:.1?}, to {ALL}: {after_server:.1?}");
        writers.end()?;
        self.hbase.run(&["verify", &file])?;
        passed()
    }

    /// A snapshot that was taken under writers keeps its rows through more writes and the `kill -9`
    /// of a node: its clone, and the table that is restored while the node is away, have them.
    fn snapshot(&mut self) -> Result<Outcome> {
        self.cluster.heal()?;
        let file = self.cluster.dir().join("snapped");
        let file = file.display().to_string();
        let mut client = self.hbase.begin(&["snapshot", SNAPPED, &file])?;
        client.wait_said("the snapshot is taken")?;
        self.cluster.node(0).kill()?;
        self.write_on(&mut client, "all rows are put")?;
        client.end()?;
        self.hbase.run(&["restore", &file])?;
        passed()
    }

    /// Waits until the writers say it, and starts servers of HBase that have ended: HBase ends them
    /// itself when a log cannot be written.
    fn write_on(&mut self, writers: &mut Client, mark: &str) -> Result<()> {
        let ended = |server: &mut Option<Process>| {
            let server = server.as_mut();
            server.is_none_or(|server| server.check_alive().is_err())
        };
        wait::until(mark, seconds(150), || {
            if ended(&mut self.hbase.master) {
                self.hbase.start_master()?;
            }
            if ended(&mut self.hbase.region_server) {
                self.hbase.start_region_server()?;
            }
            writers.look_for(mark)
        })
    }
}
