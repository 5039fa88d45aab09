//! HBase on secure HDFS. Its `asyncfs` log speaks SASL by a client of its own, and its `filesystem`
//! log by Hadoop's.

use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop_conf::Conf;
use hayloft_testkit::hbase::fetched;
use hayloft_testkit::node::Kind;
use hayloft_testkit::realm::Realm;
use hayloft_testkit::suite::{expect, passed};
use hayloft_testkit::{Cluster, Driver, Outcome, Suite};
use std::path::{Path, PathBuf};

use crate::hbase_server::HBase;
use crate::{AES, AUTHENTICATION, INTEGRITY, PRIVACY, Protection};
use crate::{at_localhost, protected, realm};

/// The kinds of write-ahead logs, and what a region server says that has one.
const LOGS: [(&str, &str); 2] = [
    ("asyncfs", "AsyncFSWALProvider"),
    ("filesystem", "FSHLogProvider"),
];
/// Rows that are put, flushed, compacted and scanned.
const LOADED: &str = "20000";
/// Rows that are put one by one while a node is killed, and when that happens.
const WRITTEN: &str = "6000";
const KILL_AT: &str = "acknowledged 1500";

pub fn cases(suite: &mut Suite) {
    let home = match fetched() {
        Ok(home) => home,
        Err(why) => {
            suite.case("hbase", || Ok(Outcome::Skipped(why)));
            return;
        }
    };
    // Which logs with which protection, and how many of the three nodes are Apache's.
    let groups: [(Protection, &[usize], usize); 4] = [
        (AES, &[0, 1], 0),
        (PRIVACY, &[0, 1], 0),
        (INTEGRITY, &[0], 1),
        (AUTHENTICATION, &[0], 0),
    ];
    for (protection, logs, apaches) in groups {
        let home = home.clone();
        let mut on = suite.group(
            move || Lab::start(home, protection, apaches),
            |lab, failed| lab.cluster.conclude(failed),
        );
        for log in logs {
            let (provider, said) = LOGS[*log];
            let name = format!("hbase_{provider}_{}", protection.name);
            let node_dies = !(protection.has_messages && provider == "asyncfs");
            on.case(name, move |lab| lab.hbase(provider, said, node_dies));
        }
    }
}

struct Lab {
    cluster: Cluster,
    fs: Driver,
    _realm: Realm,
    home: PathBuf,
    keytab: PathBuf,
}

impl Lab {
    fn start(home: PathBuf, protection: Protection, apaches: usize) -> Result<Self> {
        let realm = realm()?;
        let keytab = realm.keytab("hbase.keytab", &["hbase/localhost"])?;
        let cluster = protected(&realm, protection)?
            .conf(
                "dfs.client.block.write.replace-datanode-on-failure.best-effort",
                true,
            )
            .nodes(3 - apaches, Kind::Hayloft)
            .nodes(apaches, Kind::Apache)
            .start()?;
        let fs = cluster.driver()?;
        Ok(Self {
            cluster,
            fs,
            _realm: realm,
            home,
            keytab,
        })
    }

    /// Rows that were acknowledged outlive a node that dies under their writers, and the region
    /// server, whose logs are then all that holds them.
    ///
    /// The client of `asyncfs` in 2.6.4 does not hear that a node has ended where SASL makes
    /// messages: its `SaslUnwrapHandler.channelInactive` passes nothing on. A log that is idle then
    /// waits for ever at its next sync, whatever node it was. So none dies there.
    fn hbase(&mut self, provider: &'static str, said: &str, node_dies: bool) -> Result<Outcome> {
        self.cluster.heal()?;
        let root = format!("/hbase-{provider}");
        self.fs.fs(&["-mkdir", &root])?;
        self.fs.fs(&["-chown", "hbase", &root])?;
        let mut hbase = HBase::start(&self.home, &self.cluster, provider, &keys(&self.keytab))?;
        hbase.run(&["load", LOADED])?;
        expect(hbase.said(said) > 0, || {
            format!("no region server has {said}")
        })?;
        let acknowledged = self.cluster.dir().join(format!("acknowledged-{provider}"));
        let acknowledged = acknowledged.display().to_string();
        let mut writers = hbase.begin(&["write", WRITTEN, &acknowledged])?;
        writers.wait_said(KILL_AT)?;
        if node_dies {
            self.cluster.node(0).kill()?;
        }
        writers.end()?;
        hbase.kill_region_server()?;
        hbase.start_region_server()?;
        hbase.run(&["verify", &acknowledged])?;
        passed()
    }
}

/// How its servers log in. HBase's own security stays simple: that of HDFS is what is looked at.
fn keys(keytab: &Path) -> Conf {
    let mut conf = Conf::new();
    for server in ["master", "regionserver"] {
        let principal = format!("hbase.{server}.kerberos.principal");
        conf.set(format!("hbase.{server}.keytab.file"), keytab.display())
            .set(principal, at_localhost("hbase"));
    }
    conf
}
