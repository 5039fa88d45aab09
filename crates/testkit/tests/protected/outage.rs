//! A quarter of an hour of load while all tickets last two minutes and keys of block tokens one,
//! and the KDC is away for ten minutes of it: what has begun goes on, and what stops begins again
//! by itself.

use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::class;
use hayloft_testkit::node::{Kind, NodeSpec};
use hayloft_testkit::realm::Realm;
use hayloft_testkit::suite::{expect, expect_eq, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Cluster, Driver, Outcome, Suite, TestkitError};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::{BLOCK, encrypted, realm};

/// Nodes of ours; one of Apache's comes behind them.
const OURS: usize = 3;
/// Longest life of every ticket.
const LIFE: &str = "2 minutes";
/// Whose tickets they are.
const PRINCIPALS: [&str; 3] = ["hdfs", "nn/localhost", "dn/localhost"];
/// All of it.
const LOAD: Duration = Duration::from_secs(900);
/// When what happens.
const EVENTS: [(Duration, Event); 5] = [
    (Duration::from_secs(120), Event::KdcGoes),
    // No ticket of before is good then.
    (Duration::from_secs(300), Event::TicketsAreOver),
    (Duration::from_secs(480), Event::WriterDies),
    (Duration::from_secs(640), Event::NameNodeAnew),
    (Duration::from_secs(720), Event::KdcComes),
];
/// From the KDC's return until every node serves again.
const WELL_WITHIN: Duration = Duration::from_secs(120);
/// Lines of a node's log that warn, at most: one in five seconds.
const WARNINGS: usize = 180;
/// What a node may warn of: each says to an operator what is away and what to look at.
const UNDERSTOOD: [&str; 5] = [
    "no KDC answers: see that it runs",
    "heartbeat failed, will go on trying: ",
    "waiting for the NameNode: ",
    // Of its start.
    "has no effect: ",
    "open files are limited to ",
];

#[derive(Clone, Copy, Debug)]
enum Event {
    KdcGoes,
    TicketsAreOver,
    WriterDies,
    NameNodeAnew,
    KdcComes,
}

pub fn cases(suite: &mut Suite) {
    let mut on = suite.group(Lab::start, |lab, failed| {
        for principal in PRINCIPALS {
            let _as_before = lab.realm.limit_life(principal, "1 day");
        }
        lab.cluster.conclude(failed);
    });
    on.case("short_tickets_and_keys_outlive_their_kdc", Lab::outlived);
}

/// A writer that stays open, and how far it is.
struct Writer {
    path: String,
    written: u64,
}

struct Lab {
    cluster: Cluster,
    fs: Driver,
    realm: Realm,
    /// The krb5.conf of our nodes alone, so that they can be cut off from the KDC.
    krb5_conf: PathBuf,
    writer: Writer,
    /// Files that are there, of two blocks each.
    files: Vec<String>,
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).map_err(TestkitError::file("writing", path))
}

impl Lab {
    fn start() -> Result<Self> {
        let realm = realm()?;
        let krb5_conf = realm.dir().join("krb5-of-nodes.conf");
        let mut builder = encrypted(&realm)?
            .conf("dfs.replication", 2)
            .conf("dfs.block.access.key.update.interval", 1)
            .conf("dfs.block.access.token.lifetime", 1)
            // A connection that was proved once stays, however slow the machine is.
            .conf("ipc.client.connection.maxidletime", 300_000);
        for principal in PRINCIPALS {
            realm.limit_life(principal, LIFE)?;
        }
        for _ in 0..OURS {
            let mut spec = NodeSpec::new(Kind::Hayloft);
            let own = krb5_conf.display().to_string();
            spec.env.push(("KRB5_CONFIG".to_owned(), own));
            builder = builder.node(spec);
        }
        Self::reach_kdc(&realm, &krb5_conf, true)?;
        let cluster = builder.nodes(1, Kind::Apache).start()?;
        let fs = Self::client(&realm, &cluster)?;
        let writer = Self::begin(&fs, 0)?;
        Ok(Self {
            cluster,
            fs,
            realm,
            krb5_conf,
            writer,
            files: Vec::new(),
        })
    }

    /// Whether our nodes find the KDC.
    fn reach_kdc(realm: &Realm, krb5_conf: &Path, reach: bool) -> Result<()> {
        let path = realm.dir().join("krb5.conf");
        let text = std::fs::read_to_string(&path).map_err(TestkitError::file("reading", &path))?;
        let kdc = format!("kdc = 127.0.0.1:{}", realm.port());
        let there = if reach {
            kdc.as_str()
        } else {
            "kdc = 127.0.0.1:1"
        };
        write(krb5_conf, &text.replace(&kdc, there))
    }

    /// Stock clients with a ticket of now: they look for it when they are first asked for
    /// something, and its life shall not pass while they start.
    fn client(realm: &Realm, cluster: &Cluster) -> Result<Driver> {
        let fs = cluster.driver()?;
        realm.kinit("hdfs", &realm.dir().join("services.keytab"))?;
        Ok(fs)
    }

    /// As a user's own cron job does it: without a KDC the old ticket stays.
    fn renew(&self) {
        let services = self.realm.dir().join("services.keytab");
        let _no_kdc = self.realm.kinit("hdfs", &services);
    }

    fn begin(fs: &Driver, number: usize) -> Result<Writer> {
        let path = format!("/open-{number}");
        fs.create("w", &path, 5, json!({}))?;
        Ok(Writer { path, written: 0 })
    }

    /// What a client does in a moment: the open file grows, and a new one is written and read, and
    /// an old one read.
    fn works(&mut self) -> Result<()> {
        self.fs.write("w", BLOCK / 8)?;
        self.fs.handle("hflush", "w")?;
        self.writer.written += BLOCK / 8;
        let number = self.files.len();
        if number.is_multiple_of(8) {
            self.renew();
        }
        let path = format!("/load/{number}");
        self.fs.put(&path, BLOCK + 1, number as u64, json!({}))?;
        self.files.push(path);
        for number in [number, number / 2] {
            self.fs
                .check(&self.files[number], BLOCK + 1, number as u64)?;
        }
        Ok(())
    }

    fn outlived(&mut self) -> Result<Outcome> {
        let begun = Instant::now();
        let mut due = EVENTS.into_iter().peekable();
        while begun.elapsed() < LOAD || due.peek().is_some() {
            if let Some((_, event)) = due.next_if(|(at, _)| begun.elapsed() >= *at) {
                println!("protected: {event:?} after {:?}", begun.elapsed());
                self.happens(event, begun)?;
            }
            self.works()
                .inspect_err(|_| println!("protected: after {:?}", begun.elapsed()))?;
            std::thread::sleep(seconds(2));
        }
        println!("protected: {} files", self.files.len());
        self.renew();
        self.closes()?;
        self.fs.recover_lease("/dead", seconds(120))?;
        self.fs.check("/dead", BLOCK / 2, 9)?;
        self.fs.check("/copied", 2 * BLOCK, 8)?;
        self.fs = Self::client(&self.realm, &self.cluster)?;
        for node in 0..OURS {
            let ipc = self.cluster.node(node).ipc();
            for command in ["-getDatanodeInfo", "-triggerBlockReport"] {
                self.fs.tool(class::DFSADMIN, &[command, &ipc])?.ok()?;
            }
        }
        self.understood()
    }

    fn closes(&mut self) -> Result<()> {
        self.fs.handle("close", "w")?;
        self.fs.check(&self.writer.path, self.writer.written, 5)
    }

    fn happens(&mut self, event: Event, begun: Instant) -> Result<()> {
        match event {
            Event::KdcGoes => {
                self.realm.stop()?;
                Self::reach_kdc(&self.realm, &self.krb5_conf, false)
            }
            Event::TicketsAreOver => self.without_tickets(),
            Event::WriterDies => self.writer_dies(),
            Event::NameNodeAnew => self.namenode_anew(begun),
            Event::KdcComes => Ok(()),
        }
    }

    /// Connections of before go on: heartbeats, commands, and data by tokens.
    fn without_tickets(&mut self) -> Result<()> {
        for node in 0..OURS {
            let log = self.log_of(node);
            expect(log.contains("the ticket has run out"), || {
                format!("node {node} does not say that its ticket is over")
            })?;
        }
        self.cluster.namenode(0).wait_live(OURS + 1, seconds(20))?;
        // A copy from node to node, by a command of the NameNode.
        self.fs.put("/copied", 2 * BLOCK, 8, json!({}))?;
        self.fs.fs(&["-setrep", "3", "/copied"])?;
        self.fs.wait_replicas("/copied", 3, seconds(60))?;
        // Nothing is proved anew.
        let services = self.realm.dir().join("services.keytab");
        expect(self.realm.kinit("hdfs", &services).is_err(), || {
            "the KDC is there".into()
        })
    }

    /// Its lease is recovered by the node that is asked to, with its own replica alone, as Apache's
    /// would do it: it cannot call the others.
    fn writer_dies(&mut self) -> Result<()> {
        self.fs.create("d", "/dead", 9, json!({}))?;
        self.fs.write("d", BLOCK / 2)?;
        self.fs.handle("hflush", "d")?;
        self.fs.handle("abandon", "d")?;
        let asked = self.fs.call("recoverLease", json!({"path": "/dead"}))?;
        expect(asked["closed"] == false, || asked.to_string())
    }

    /// A NameNode cannot start without a KDC. Once it has one, nodes that have none wait for it;
    /// and serve once they have.
    fn namenode_anew(&mut self, begun: Instant) -> Result<()> {
        self.closes()?;
        self.cluster.namenode(0).kill()?;
        self.realm.start()?;
        self.cluster.namenode(0).start(&[])?;
        let back = EVENTS[EVENTS.len() - 1].0;
        std::thread::sleep(back.saturating_sub(begun.elapsed()));
        let live = wait::until("the NameNode counts its nodes", seconds(120), || {
            let asked = self.cluster.namenode_bean(0, "FSNamesystemState");
            Ok(match asked.map(|bean| bean["NumLiveDataNodes"].as_u64()) {
                Ok(Some(live)) => Seen::Done(live),
                other => Seen::NotYet(format!("{other:?}")),
            })
        })?;
        println!("protected: {live} live nodes before ours have a KDC");
        expect(live <= 1, || format!("{live} live nodes"))?;
        for node in 0..OURS {
            self.cluster.node(node).process()?.check_alive()?;
        }
        Self::reach_kdc(&self.realm, &self.krb5_conf, true)?;
        let returned = Instant::now();
        let namenode = self.cluster.namenode(0);
        namenode.wait_live(OURS + 1, WELL_WITHIN)?;
        namenode.wait_out_of_safe_mode(WELL_WITHIN)?;
        println!(
            "protected: all nodes are live {:?} later",
            returned.elapsed()
        );
        self.fs = Self::client(&self.realm, &self.cluster)?;
        self.fs.check(&self.writer.path, self.writer.written, 5)?;
        self.writer = Self::begin(&self.fs, 1)?;
        Ok(())
    }

    fn log_of(&mut self, node: usize) -> String {
        std::fs::read_to_string(self.cluster.node(node).log()).unwrap_or_default()
    }

    /// What the nodes warned of is understood without their source, and is not told too often.
    fn understood(&mut self) -> Result<Outcome> {
        for node in 0..OURS {
            let log = self.log_of(node);
            let mut odd = BTreeMap::new();
            let mut warnings = 0;
            for line in log.lines() {
                let warns = [" WARN ", " ERROR ", "panicked"];
                if warns.iter().any(|mark| line.contains(mark)) {
                    warnings += 1;
                    if !UNDERSTOOD.iter().any(|words| line.contains(words)) {
                        odd.insert(line.chars().skip(25).collect::<String>(), ());
                    }
                }
            }
            println!("protected: node {node} warned {warnings} times");
            expect(odd.is_empty(), || format!("node {node}: {odd:#?}"))?;
            expect(warnings <= WARNINGS, || format!("{warnings} warnings"))?;
            let refused = log.matches("block token verification failed").count();
            expect_eq("good tokens that were refused", refused, 0)?;
        }
        passed()
    }
}
