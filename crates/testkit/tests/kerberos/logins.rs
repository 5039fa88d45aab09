//! Nodes that cannot log in, NameNodes that are not the one, tickets that run out, a KDC that is
//! away.

use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::hayloft_binary;
use hayloft_testkit::node::{Kind, NodeSpec};
use hayloft_testkit::realm::Realm;
use hayloft_testkit::suite::{expect, expect_eq, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Cluster, Driver, Outcome, Suite, TestkitError};
use serde_json::json;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use crate::{BLOCK, at_localhost, realm, secure};

/// How long the tickets of the last case are renewed.
const RENEWED: Duration = Duration::from_secs(330);
/// What happens meanwhile, and when.
const EVENTS: [(Duration, Event); 4] = [
    (Duration::from_secs(50), Event::KdcGoes),
    (Duration::from_secs(110), Event::KdcComes),
    (Duration::from_secs(160), Event::NewKey),
    (Duration::from_secs(250), Event::NameNodeAnew),
];
/// Log line of a login.
const LOGGED_IN: &str = "logged in with Kerberos";

pub fn cases(suite: &mut Suite) {
    let mut on = suite.group(Lab::start, |lab, failed| lab.cluster.conclude(failed));
    on.case(
        "what_keeps_a_node_from_logging_in_is_said",
        Lab::not_logged_in,
    );
    on.case(
        "a_namenode_of_another_name_is_not_served",
        Lab::another_name,
    );
    on.case("a_replaced_keytab_and_short_tickets", Lab::short_tickets);
}

#[derive(Clone, Copy)]
enum Event {
    KdcGoes,
    KdcComes,
    NewKey,
    NameNodeAnew,
}

struct Lab {
    cluster: Cluster,
    fs: Driver,
    realm: Realm,
}

impl Lab {
    /// Two nodes: one as usual, one whose tickets last two minutes.
    fn start() -> Result<Self> {
        let realm = realm()?;
        let keytab = realm.keytab("short.keytab", &["short/localhost"])?;
        realm.limit_life("short/localhost", "2 minutes")?;
        let short = NodeSpec::new(Kind::Hayloft)
            .conf("dfs.datanode.kerberos.principal", at_localhost("short"))
            .conf("dfs.datanode.keytab.file", keytab.display());
        let cluster = secure(&realm, "privacy")?
            .conf("dfs.replication", 2)
            .nodes(1, Kind::Hayloft)
            .node(short)
            .start()?;
        let fs = cluster.driver()?;
        Ok(Self { cluster, fs, realm })
    }

    fn log_of(&mut self, index: usize) -> String {
        std::fs::read_to_string(self.cluster.node(index).log()).unwrap_or_default()
    }

    /// Waits until the log has `words` more than `times` times.
    fn wait_said(&mut self, words: &str, times: usize, limit: Duration) -> Result<()> {
        wait::until(words, limit, || {
            let log = self.log_of(0);
            let found = log.matches(words).count();
            let last = log.lines().last().unwrap_or_default().to_owned();
            Ok(if found > times {
                Seen::Done(())
            } else {
                Seen::NotYet(last)
            })
        })
    }

    /// Starts node 0 with these changes; it has to end with exit code 2, or else to go on, and its
    /// log has to say `words`.
    fn says(&mut self, changes: &[(&str, String)], words: &str, ends: bool) -> Result<()> {
        let before = self.log_of(0).matches(words).count();
        let kept = self.cluster.node(0).conf_mut().clone();
        for (key, value) in changes {
            self.cluster.node(0).conf_mut().set(*key, value);
        }
        let conf = self.cluster.conf().clone();
        let node = self.cluster.node(0);
        node.stop()?;
        node.start_without_waiting(&conf)?;
        let said = self.wait_said(words, before, seconds(60));
        let node = self.cluster.node(0);
        *node.conf_mut() = kept;
        said?;
        if ends {
            let status = node.process()?.wait(seconds(20))?;
            expect_eq("exit code", status.code(), Some(2))?;
        } else {
            node.process()?.check_alive()?;
        }
        let _gone = node.kill();
        Ok(())
    }

    fn not_logged_in(&mut self) -> Result<Outcome> {
        let keytab = "dfs.datanode.keytab.file";
        let gone = self
            .realm
            .dir()
            .join("no-such.keytab")
            .display()
            .to_string();
        self.says(&[(keytab, gone)], "no-such.keytab cannot be read", true)?;
        let other = self.realm.keytab("other.keytab", &["other/localhost"])?;
        let other = other.display().to_string();
        self.says(
            &[(keytab, other.clone())],
            "it has other/localhost@HAYLOFT.TEST",
            true,
        )?;
        let principal = "dfs.datanode.kerberos.principal";
        let stranger = [(principal, at_localhost("stranger"))];
        self.says(&stranger, "has no key of stranger/localhost", true)?;
        let elsewhere = [(principal, "dn/localhost@OTHER".to_owned())];
        self.says(&elsewhere, "has no key of dn/localhost@OTHER", true)?;
        self.other_encryption()?;
        self.hidden_keytab()?;
        // The key in the keytab is of before.
        let _newer = self.realm.keytab("newer.keytab", &["other/localhost"])?;
        let stale = [(keytab, other), (principal, at_localhost("other"))];
        self.says(&stale, "export the keytab again", true)?;
        self.realm.stop()?;
        self.says(&[], "no KDC answers", true)?;
        self.stops_beside_a_silent_kdc()?;
        self.realm.start()?;
        self.cluster.heal()?;
        passed()
    }

    /// A further node ends with an error, and its log says `words`.
    fn refused(&self, spec: NodeSpec, words: &str) -> Result<()> {
        let (refused, log) = self.cluster.refused_node(spec)?;
        expect(refused && log.contains(words), || {
            format!("{words:?} is not said: {log}")
        })
    }

    /// krb5.conf permits no encryption that keytab and KDC have keys of.
    fn other_encryption(&self) -> Result<()> {
        let usual = self.realm.dir().join("krb5.conf");
        let text =
            std::fs::read_to_string(&usual).map_err(TestkitError::file("reading", &usual))?;
        let permitted = |line: &str| match line.contains("permitted_enctypes") {
            true => " permitted_enctypes = camellia256-cts-cmac\n".to_owned(),
            false => format!("{line}\n"),
        };
        let text: String = text.lines().map(permitted).collect();
        let other = self.realm.dir().join("other-krb5.conf");
        std::fs::write(&other, text).map_err(TestkitError::file("writing", &other))?;
        let spec = NodeSpec {
            env: vec![("KRB5_CONFIG".to_owned(), other.display().to_string())],
            ..NodeSpec::new(Kind::Hayloft)
        };
        self.refused(spec, "an encryption type that both allow")
    }

    /// The keytab is there, and the node's user may not read it: root, too, without the capability
    /// to read everything.
    fn hidden_keytab(&self) -> Result<()> {
        let keytab = self.realm.keytab("hidden.keytab", &["hidden/localhost"])?;
        let none = std::fs::Permissions::from_mode(0o000);
        std::fs::set_permissions(&keytab, none).map_err(TestkitError::file("hiding", &keytab))?;
        let mut spec = NodeSpec::new(Kind::Hayloft)
            .conf("dfs.datanode.kerberos.principal", at_localhost("hidden"))
            .conf("dfs.datanode.keytab.file", keytab.display());
        if std::fs::read(&keytab).is_ok() {
            let without = self.cluster.dir().join("without-capabilities");
            let caps = "-dac_override,-dac_read_search";
            let text = format!(
                "#!/bin/sh\nexec setpriv --inh-caps={caps} --bounding-set={caps} '{}' \"$@\"\n",
                hayloft_binary()?.display()
            );
            std::fs::write(&without, text).map_err(TestkitError::file("writing", &without))?;
            let runs = std::fs::Permissions::from_mode(0o755);
            let set = std::fs::set_permissions(&without, runs);
            set.map_err(TestkitError::file("setting the mode of", &without))?;
            spec.binary = Some(without);
        }
        self.refused(spec, "hidden.keytab cannot be read: Permission denied")
    }

    /// One that takes connections and says nothing keeps no node from its stop.
    fn stops_beside_a_silent_kdc(&mut self) -> Result<()> {
        let silent = TcpListener::bind(("127.0.0.1", self.realm.port()));
        let _silent = silent.map_err(|error| TestkitError::Talk(error.to_string()))?;
        let conf = self.cluster.conf().clone();
        let node = self.cluster.node(0);
        node.start_without_waiting(&conf)?;
        std::thread::sleep(seconds(3));
        node.process()?.check_alive()?;
        node.process()?.stop(seconds(10)).map(drop)
    }

    fn another_name(&mut self) -> Result<Outcome> {
        let other = [("dfs.namenode.kerberos.principal", at_localhost("other"))];
        self.says(
            &other,
            "the server is nn/localhost, but dfs.namenode.kerberos.principal",
            false,
        )?;
        let like = [(
            "dfs.namenode.kerberos.principal.pattern",
            "x*/*@*".to_owned(),
        )];
        self.says(&like, "does not allow", false)?;
        // The KDC knows no way to that realm.
        let elsewhere = [(
            "dfs.namenode.kerberos.principal",
            "nn/localhost@OTHER".to_owned(),
        )];
        let unknown = "compare dfs.namenode.kerberos.principal with the KDC's list";
        self.says(&elsewhere, unknown, false)?;
        self.cluster.heal()?;
        passed()
    }

    fn happens(&mut self, event: Event) -> Result<()> {
        match event {
            Event::KdcGoes => self.realm.stop(),
            Event::KdcComes => self.realm.start(),
            Event::NewKey => self
                .realm
                .keytab("short.keytab", &["short/localhost"])
                .map(drop),
            Event::NameNodeAnew => {
                let namenode = self.cluster.namenode(0);
                namenode.stop()?;
                namenode.start(&[])
            }
        }
    }

    /// The KDC is away under a writer, the key of the node is replaced, tickets of two minutes are
    /// renewed, and the NameNode is started anew with all that.
    fn short_tickets(&mut self) -> Result<Outcome> {
        let begun = Instant::now();
        self.fs.create("w", "/slow-0", 5, json!({}))?;
        let (mut written, mut step, mut writer) = (0, 0, 0);
        let mut due = EVENTS.into_iter().peekable();
        while begun.elapsed() < RENEWED || due.peek().is_some() {
            self.fs.write("w", BLOCK / 8)?;
            self.fs.handle("hflush", "w")?;
            written += BLOCK / 8;
            let path = format!("/during-{step}");
            self.fs.put(&path, BLOCK + 1, step, json!({}))?;
            self.fs.check(&path, BLOCK + 1, step)?;
            if let Some((_, event)) = due.next_if(|(at, _)| begun.elapsed() >= *at) {
                if matches!(event, Event::NameNodeAnew) {
                    // The stock client's connection ends with its NameNode.
                    self.fs.handle("close", "w")?;
                    self.happens(event)?;
                    self.fs = self.cluster.driver()?;
                    self.fs.check(&format!("/slow-{writer}"), written, 5)?;
                    (writer, written) = (writer + 1, 0);
                    self.fs
                        .create("w", &format!("/slow-{writer}"), 5, json!({}))?;
                } else {
                    self.happens(event)?;
                }
            }
            step += 1;
            std::thread::sleep(seconds(2));
        }
        self.fs.handle("close", "w")?;
        self.fs.check(&format!("/slow-{writer}"), written, 5)?;
        self.cluster.wait_all_live()?;
        let logins = self.log_of(1).matches(LOGGED_IN).count();
        let kept = self
            .log_of(1)
            .matches("the ticket cannot be renewed")
            .count();
        expect(kept >= 1, || "the KDC was away at no renewal".to_owned())?;
        expect(logins >= 3, || format!("{logins} logins in {RENEWED:?}"))?;
        passed()
    }
}
