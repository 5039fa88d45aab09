//! `hayloft swap` on the host of a stock secure `DataNode`, which Hadoop's shell starts; and such a
//! host.

use hayloft_testkit::error::Result;
use hayloft_testkit::node::Kind;
use hayloft_testkit::realm::Realm;
use hayloft_testkit::suite::{expect, expect_eq, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Cluster, Driver, Outcome, Suite, TestkitError};
use serde_json::{Value, json};
use std::fs;
use std::process::Command;

use crate::shell_host::ShellHost;
use crate::{BLOCK, encrypted, over_https, realm};

/// The node on the host; a node of ours that stays is behind it.
pub const HOST: usize = 0;
/// Bytes of each file: some of its blocks are on the host's node alone.
const BYTES: u64 = 12 * BLOCK + 777;

pub fn cases(suite: &mut Suite) {
    let mut on = suite.group(Host::start, Host::end);
    on.case("secure_swap_begins_at_a_stock_node", |host| {
        host.apache_writes()
    });
    on.case("no_secure_swap_without_a_proof", |host| host.unproven());
    on.case("no_secure_swap_while_the_kdc_is_away", |host| {
        host.without_kdc()
    });
    on.case("secure_swap_in_with_a_ticket", |host| host.swap_in());
    on.case("secure_swap_out_with_the_nodes_keytab", |host| {
        host.swap_out()
    });
    on.case("a_secure_swap_that_fails_goes_back", |host| {
        host.goes_back()
    });
}

/// A host whose node Hadoop's shell starts.
pub struct Host {
    pub cluster: Cluster,
    pub fs: Driver,
    pub realm: Realm,
    pub shell: ShellHost,
    files: Vec<(String, u64)>,
}

impl Host {
    fn start() -> Result<Self> {
        let realm = realm()?;
        let (builder, _) = encrypted(&realm)?;
        let cluster = builder
            .conf("dfs.replication", 1)
            // As most clusters have it: DataNodes are superusers.
            .conf(
                "hadoop.user.group.static.mapping.overrides",
                "hdfs=supergroup;nn=supergroup;dn=supergroup;ann=users",
            )
            .node(over_https(Kind::Apache)?.0)
            .node(over_https(Kind::Hayloft)?.0)
            .start()?;
        Self::of(cluster, realm)
    }

    /// Makes the first node of a cluster that of a host.
    pub fn of(mut cluster: Cluster, realm: Realm) -> Result<Self> {
        let fs = cluster.driver()?;
        let shell = ShellHost::of(&mut cluster, HOST)?;
        Ok(Self {
            cluster,
            fs,
            realm,
            shell,
            files: Vec::new(),
        })
    }

    pub fn end(self, failed: bool) {
        self.shell.end(failed);
        self.cluster.conclude(failed);
    }

    /// `hayloft swap`; with a ticket cache if not that of the test, where `None` is none.
    pub fn swap(&self, words: &[&str], cache: Option<&str>) -> Result<(i32, Value)> {
        let cache = cache.map(|cache| format!("FILE:{cache}"));
        let cache = cache.as_deref().map(|cache| ("KRB5CCNAME", cache));
        self.shell.swap(words, cache.as_slice())
    }

    pub fn put(&mut self, path: &str) -> Result<()> {
        let seed = self.files.len() as u64 + 1;
        self.fs.put(path, BYTES, seed, json!({}))?;
        self.files.push((path.to_owned(), seed));
        Ok(())
    }

    pub fn check(&self) -> Result<()> {
        let mut files = self.files.iter();
        files.try_for_each(|(path, seed)| self.fs.check(path, BYTES, *seed))
    }

    fn apache_writes(&mut self) -> Result<Outcome> {
        self.shell.daemon("start")?;
        wait::until("a node of the host", seconds(60), || {
            let (_, report) = self.swap(&["status"], None)?;
            let live = report["live"][0]["state"] == "In Service";
            Ok(match ShellHost::runs(&report, "apache", "apache") {
                Ok(()) if live => Seen::Done(()),
                _ => Seen::NotYet(report.to_string()),
            })
        })?;
        self.cluster.namenode(0).wait_live(2, seconds(60))?;
        for number in 0..3 {
            self.put(&format!("/by-apache-{number}"))?;
        }
        let there = self.cluster.node(HOST).all_block_files().len();
        expect(there > 4, || format!("{there} files on the host's node"))?;
        self.check()?;
        passed()
    }

    /// Says these words at a check, and changes nothing.
    fn stops(&self, swap: (i32, Value), words: &[&str]) -> Result<()> {
        let (code, report) = swap;
        let said = report["steps"].to_string();
        let all = words.iter().all(|part| said.contains(part));
        expect(code == 1 && all, || report.to_string())?;
        ShellHost::runs(&report, "apache", "apache")
    }

    fn unproven(&mut self) -> Result<Outcome> {
        // A node's file that names no keytab, and no ticket.
        let site = self.shell.conf.join("hdfs-site.xml");
        let text = fs::read_to_string(&site).map_err(TestkitError::file("reading", &site))?;
        let write = |text: &str| fs::write(&site, text).map_err(TestkitError::file("w", &site));
        write(&text.replace("services.keytab", "no-such.keytab"))?;
        let asked = self.swap(&["status"], Some("/no-such-cache"));
        let refused = self.swap(&["in"], Some("/no-such-cache"));
        write(&text)?;
        let (_, told) = asked?;
        let told = told["steps"].to_string();
        expect(told.contains("neither a ticket nor"), || told.clone())?;
        self.stops(refused?, &["no-such.keytab cannot be read"])?;
        // A ticket of a user who is no superuser.
        let keytab = self.realm.keytab("ann.keytab", &["ann"])?;
        self.realm.kinit("ann", &keytab)?;
        let refused = self.swap(&["in"], None);
        self.realm
            .kinit("hdfs", &self.realm.dir().join("services.keytab"))?;
        let advice = "run this as a superuser of HDFS (kinit";
        self.stops(refused?, &["Superuser privilege is required", advice])?;
        passed()
    }

    /// Neither node would start again.
    fn without_kdc(&mut self) -> Result<Outcome> {
        self.realm.stop()?;
        let refused = self.swap(&["in"], None);
        self.realm.start()?;
        self.stops(refused?, &["no KDC answers"])?;
        self.check()?;
        passed()
    }

    fn swap_in(&mut self) -> Result<Outcome> {
        let (code, report) = self.swap(&["in", "--dry-run"], None)?;
        expect(code == 0, || report.to_string())?;
        ShellHost::runs(&report, "apache", "apache")?;
        let (code, report) = self.swap(&["in"], None)?;
        expect(code == 0, || report.to_string())?;
        ShellHost::runs(&report, "hayloft", "hayloft")?;
        expect_eq("blocks", &report["blocks_after"], &report["blocks_before"])?;
        expect_eq("live", &report["live"][0]["state"], &json!("In Service"))?;
        let steps = report["steps"].to_string();
        for words in [
            "the node logs in as dn/localhost@",
            "a new block, which was read",
            "AES",
        ] {
            expect(steps.contains(words), || format!("no {words:?}: {steps}"))?;
        }
        self.check()?;
        self.put("/by-ours")?;
        self.check()?;
        let (code, status) = self.swap(&["status"], None)?;
        expect(code == 0, || status.to_string())?;
        expect_eq("the process", &status["runs"], &report["runs"])?;
        let (code, again) = self.swap(&["in"], None)?;
        expect_eq("a second one has nothing to do", code, 0)?;
        expect_eq("the process", &again["runs"], &report["runs"])?;
        passed()
    }

    fn swap_out(&mut self) -> Result<Outcome> {
        let (code, report) = self.swap(&["out"], Some("/no-such-cache"))?;
        expect(code == 0, || report.to_string())?;
        ShellHost::runs(&report, "apache", "apache")?;
        expect_eq("blocks", &report["blocks_after"], &report["blocks_before"])?;
        expect(!self.shell.conf.join("shellprofile.d").exists(), || {
            "the profile is left".into()
        })?;
        self.check()?;
        passed()
    }

    /// A program in the place of ours that never holds the directories.
    fn goes_back(&mut self) -> Result<Outcome> {
        let sleeper = self.shell.home.join("sleeper");
        fs::write(&sleeper, "#!/bin/sh\nexec sleep 300\n")
            .map_err(TestkitError::file("writing", &sleeper))?;
        let chmod = Command::new("chmod").arg("755").arg(&sleeper).status();
        chmod.map_err(TestkitError::file("changing", &sleeper))?;
        let path = self.shell.conf.join("hadoop-env.sh");
        let was = fs::read_to_string(&path).map_err(TestkitError::file("reading", &path))?;
        let write = |text: String| fs::write(&path, text).map_err(TestkitError::file("w", &path));
        write(format!("{was}HAYLOFT={}\n", sleeper.display()))?;
        let asked = self.swap(&["in", "--within", "15"], None);
        write(was)?;
        let (code, report) = asked?;
        expect(code == 1 && report["went_back"] == true, || {
            report.to_string()
        })?;
        ShellHost::runs(&report, "apache", "apache")?;
        self.check()?;
        passed()
    }
}
