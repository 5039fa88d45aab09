//! A clock that is ten minutes off: that of one node, or of the KDC. Debian's libfaketime shows it
//! to the process.

use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::class;
use hayloft_testkit::node::{Kind, NodeSpec};
use hayloft_testkit::realm::Realm;
use hayloft_testkit::suite::{expect, expect_eq, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Cluster, Driver, Outcome, Suite, TestkitError};
use serde_json::json;
use std::path::{Path, PathBuf};

use crate::{BLOCK, realm, secure};

/// The node whose clock is off; one whose clock is right is behind it.
const OFF: usize = 0;
/// What the node has to say of its own ticket, and of callers', whatever the library calls it.
const SKEW: &str = "Clock skew too great in KDC reply: the clocks of this host and of the KDC";
const NOT_BELIEVED: &str = "the client is not believed: accepting a caller: ";
const ADVICE: &str = "correct them (chrony or ntpd)";
/// Of a refusal by the NameNode.
const LOOK: &str = "correct the clocks of this host, of the KDC and of that server";
/// What it says once a NameNode believes it.
const REGISTERED: &str = "registered as";

pub fn cases(suite: &mut Suite) {
    let Some(library) = library() else {
        suite.case("clocks", || {
            let why = "no libfaketime: install faketime";
            Ok(Outcome::Skipped(why.into()))
        });
        return;
    };
    let mut on = suite.group(
        move || Lab::start(library),
        |lab, failed| lab.cluster.conclude(failed),
    );
    on.case("a_clock_that_nothing_corrects_is_named", |lab| {
        lab.uncorrected()
    });
    on.case("a_node_with_a_wrong_clock_serves_and_names_it", |lab| {
        lab.corrected()
    });
    on.case("a_kdc_with_a_wrong_clock_is_outlived", |lab| lab.of_kdc());
}

fn library() -> Option<PathBuf> {
    let dirs = std::fs::read_dir("/usr/lib")
        .into_iter()
        .flatten()
        .flatten();
    let mut files = dirs.map(|dir| dir.path().join("faketime/libfaketimeMT.so.1"));
    files.find(|file| file.is_file())
}

/// What a process takes for the time.
struct Clock {
    file: PathBuf,
    library: PathBuf,
}

impl Clock {
    fn new(file: PathBuf, library: &Path) -> Result<Self> {
        let clock = Self {
            file,
            library: library.to_owned(),
        };
        clock.is("+0")?;
        Ok(clock)
    }

    /// So much beside the host's, from now on.
    fn is(&self, off: &str) -> Result<()> {
        let written = std::fs::write(&self.file, format!("{off}\n"));
        written.map_err(TestkitError::file("writing", &self.file))
    }

    fn variables(&self) -> Vec<(String, String)> {
        [
            ("LD_PRELOAD", self.library.display().to_string()),
            ("FAKETIME_TIMESTAMP_FILE", self.file.display().to_string()),
            // A change counts at once, and no time limit runs out by it.
            ("FAKETIME_NO_CACHE", "1".to_owned()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
            ("NO_FAKE_STAT", "1".to_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .to_vec()
    }
}

struct Lab {
    cluster: Cluster,
    fs: Driver,
    realm: Realm,
    of_node: Clock,
    of_kdc: Clock,
    /// The krb5.conf of the node alone.
    krb5_conf: PathBuf,
    /// What is in that of all.
    text: String,
}

impl Lab {
    fn start(library: PathBuf) -> Result<Self> {
        let mut realm = realm()?;
        let clock = |name: &str| Clock::new(realm.dir().join(name), &library);
        let (of_node, of_kdc) = (clock("clock-of-node")?, clock("clock-of-kdc")?);
        realm.stop()?;
        realm.start_with(of_kdc.variables())?;
        let path = realm.dir().join("krb5.conf");
        let text = std::fs::read_to_string(&path).map_err(TestkitError::file("reading", &path))?;
        let krb5_conf = realm.dir().join("krb5-of-node.conf");
        std::fs::write(&krb5_conf, &text).map_err(TestkitError::file("writing", &krb5_conf))?;
        let mut spec = NodeSpec::new(Kind::Hayloft);
        spec.env = of_node.variables();
        let own = krb5_conf.display().to_string();
        spec.env.push(("KRB5_CONFIG".to_owned(), own));
        let cluster = secure(&realm, "privacy")?
            .conf("dfs.replication", 2)
            .node(spec)
            .nodes(1, Kind::Hayloft)
            .start()?;
        let fs = cluster.driver()?;
        Ok(Self {
            cluster,
            fs,
            realm,
            of_node,
            of_kdc,
            krb5_conf,
            text,
        })
    }

    fn said(&mut self, words: &str) -> usize {
        let log = std::fs::read_to_string(self.cluster.node(OFF).log()).unwrap_or_default();
        log.matches(words).count()
    }

    /// Waits until the node has said these words more often than before. A login is made anew a
    /// minute after the last one.
    fn wait_said(&mut self, words: &str, before: usize) -> Result<()> {
        wait::until(words, seconds(150), || {
            Ok(match self.said(words) {
                times if times > before => Seen::Done(()),
                times => Seen::NotYet(format!("{times} times")),
            })
        })
    }

    /// Starts it anew; gives back how often it has registered before.
    fn start_anew(&mut self) -> Result<usize> {
        self.cluster.node(OFF).stop()?;
        let before = self.said(REGISTERED);
        self.cluster.start_node_without_waiting(OFF)?;
        Ok(before)
    }

    /// Where `kdc_timesync` is off, a wrong clock keeps a node from its start.
    fn uncorrected(&mut self) -> Result<Outcome> {
        let write = |path: &Path, text: &str| {
            std::fs::write(path, text).map_err(TestkitError::file("writing", path))
        };
        let off = self
            .text
            .replace("[libdefaults]\n", "[libdefaults]\n kdc_timesync = 0\n");
        write(&self.krb5_conf, &off)?;
        for clock in ["-10m", "+10m"] {
            let before = [SKEW, ADVICE].map(|words| self.said(words));
            self.of_node.is(clock)?;
            self.start_anew()?;
            let status = self.cluster.node(OFF).process()?.wait(seconds(60))?;
            expect_eq("exit code", status.code(), Some(2))?;
            let _gone = self.cluster.node(OFF).kill();
            self.wait_said(SKEW, before[0])?;
            self.wait_said(ADVICE, before[1])?;
            // As systemd does it, once the clock is right.
            self.of_node.is("+0")?;
            let registered = self.start_anew()?;
            self.wait_said(REGISTERED, registered)?;
        }
        write(&self.krb5_conf, &self.text)?;
        passed()
    }

    fn asks(&mut self) -> Result<bool> {
        let ipc = self.cluster.node(OFF).ipc();
        let asked = self.fs.tool(class::DFSADMIN, &["-getDatanodeInfo", &ipc])?;
        Ok(asked.code == 0)
    }

    /// The library goes by the KDC's clock when it logs in and calls, and by its own for callers.
    fn corrected(&mut self) -> Result<Outcome> {
        for (number, clock) in ["-10m", "+10m"].into_iter().enumerate() {
            self.of_node.is(clock)?;
            let registered = self.start_anew()?;
            self.wait_said(REGISTERED, registered)?;
            self.cluster.wait_all_live()?;
            let path = format!("/clock-{number}");
            self.fs.put(&path, 3 * BLOCK, 7, json!({}))?;
            self.fs.wait_replicas(&path, 2, seconds(60))?;
            self.fs.check(&path, 3 * BLOCK, 7)?;
            let before = [NOT_BELIEVED, ADVICE].map(|words| self.said(words));
            expect(!self.asks()?, || "a caller of another time is heard".into())?;
            self.wait_said(NOT_BELIEVED, before[0])?;
            self.wait_said(ADVICE, before[1])?;
            self.of_node.is("+0")?;
            wait::until("callers are heard again", seconds(60), || {
                Ok(match self.asks()? {
                    true => Seen::Done(()),
                    false => Seen::NotYet(String::new()),
                })
            })?;
            // The login of before has another time: the node makes a new one.
            let registered = self.said(REGISTERED);
            self.cluster.namenode(0).kill()?;
            self.cluster.namenode(0).start(&[])?;
            self.wait_said(REGISTERED, registered)?;
            self.cluster.wait_all_live()?;
            self.fs = self.cluster.driver()?;
            self.fs.check(&path, 3 * BLOCK, 7)?;
        }
        passed()
    }

    /// The NameNode does not believe tickets of another time, and tells its own log alone.
    fn of_kdc(&mut self) -> Result<Outcome> {
        for clock in ["-10m", "+10m"] {
            let before = self.said(LOOK);
            self.of_kdc.is(clock)?;
            let registered = self.start_anew()?;
            self.wait_said(LOOK, before)?;
            self.cluster.node(OFF).process()?.check_alive()?;
            expect_eq("registered", self.said(REGISTERED), registered)?;
            self.of_kdc.is("+0")?;
            self.wait_said(REGISTERED, registered)?;
        }
        self.realm.stop()?;
        passed()
    }
}
