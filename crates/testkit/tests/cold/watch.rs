//! `hayloft cold watch` against a NameNode: passes, what comes back, kills, and bad neighbours.

use super::lab::{self, Lab, Scan, cold, start};
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::suite::{expect, expect_eq, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Outcome, Suite};
use serde_json::{Value, json};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Adds the cases.
pub fn cases(suite: &mut Suite) {
    let mut on = suite.group(with_archive, |lab, failed| lab.cluster.conclude(failed));
    on.case("a_watch_archives_and_gives_back", |lab| lab.watch_passes());
    on.case("a_watch_killed_before_it_sets_can_be_undone", |lab| {
        lab.watch_killed()
    });
    on.case("a_watch_says_what_it_cannot_do", |lab| lab.watch_refuses());
    on.case("a_watch_reads_the_audit_log", |lab| lab.watch_audit_log());
    on.case("a_watch_waits_for_its_namenode", |lab| lab.watch_waits());
}

fn with_archive() -> Result<Lab> {
    let mut lab = start()?;
    let volume = lab.cluster.dir().join("archive");
    lab.cluster.node(0).stop()?;
    lab.cluster.node(0).add_volume(Some("ARCHIVE"), &volume);
    lab.cluster.start_node(0)?;
    lab.cluster.wait_all_live()?;
    Ok(lab)
}

/// A watch that goes on by itself, killed when it is dropped.
struct Service(Child);

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn number(answer: &Value, path: &str) -> Option<u64> {
    answer.pointer(path).and_then(Value::as_u64)
}

fn status(state: &Path) -> Value {
    let text = fs::read(state.join("status.json")).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or(Value::Null)
}

impl Lab {
    fn watch_command(&self, state: &Path, words: &[&str]) -> Result<Command> {
        let state = state.display().to_string();
        let usual = ["watch", "/data", "--older-than=180d", "--state", &state];
        let conf = self.cluster.client_conf_dir();
        cold(&conf, &[&usual[..], words].concat())
    }

    /// One pass, which succeeds.
    fn pass(&self, state: &Path, words: &[&str]) -> Result<Scan> {
        let words = [&["--once", "--json"], words].concat();
        let pass = lab::run(self.watch_command(state, &words)?, None)?;
        expect(pass.code == Some(0), || pass.said.clone())?;
        Ok(pass)
    }

    fn service(&self, state: &Path, words: &[&str]) -> Result<Service> {
        let mut command = self.watch_command(state, words)?;
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn();
        child
            .map(Service)
            .map_err(TestkitError::file("running", Path::new("hayloft")))
    }

    fn undo(&self, file: &Path) -> Result<Value> {
        let file = file.display().to_string();
        let undone = self.scan_as(None, &["--undo", &file, "--json"])?;
        expect(undone.code == Some(0), || undone.said.clone())?;
        Ok(undone.answer["undone"].clone())
    }

    fn wait_status(&self, state: &Path, what: &str, is: impl Fn(&Value) -> bool) -> Result<()> {
        wait::until(what, seconds(180), || {
            let now = status(state);
            Ok(if is(&now) {
                Seen::Done(())
            } else {
                Seen::NotYet(now.to_string())
            })
        })
    }

    fn watch_passes(&mut self) -> Result<Outcome> {
        self.age()?;
        let before = self.policies()?;
        let state = self.cluster.dir().join("watch");
        // Directories with others below them come file by file.
        let first = self.pass(&state, &["--apply"])?;
        expect_eq("waiting", number(&first.answer, "/waiting_paths"), Some(6))?;
        expect_eq("policies", self.policies()?, before.clone())?;
        let dry = self.pass(&state, &[])?;
        expect_eq("due", number(&dry.answer, "/due_paths"), Some(6))?;
        expect_eq("policies", self.policies()?, before.clone())?;
        let second = self.pass(&state, &["--apply"])?;
        expect_eq("set", number(&second.answer, "/set/changed"), Some(6))?;
        let undo = PathBuf::from(second.answer["undo_file"].as_str().unwrap_or_default());
        expect_eq("undo file", undo.clone(), state.join("undo-3.jsonl"))?;
        let now = self.policies()?;
        let is_cold: Vec<bool> = now.iter().map(|policy| policy == "COLD").collect();
        let wanted = [false, false, true, true, false, true, true, false];
        expect_eq("what is COLD", is_cold, wanted.to_vec())?;
        // Each is read before two passes; one read alone brings nothing back.
        for (pass, given) in [(4, 0), (5, 2)] {
            self.fs.check("/data/single", 100_000, 6)?;
            self.fs.check("/data/hot/x", 100_000, 4)?;
            if pass == 5 {
                self.fs.check("/data/mixed/old", 100_000, 5)?;
            }
            let read = self.pass(&state, &["--apply"])?;
            expect_eq("pass", number(&read.answer, "/pass"), Some(pass))?;
            let back = number(&read.answer, "/given_back/changed");
            expect_eq("given back", back, Some(given))?;
        }
        let now = self.policies()?;
        for at in [3, 6] {
            expect_eq("what it had", &now[at], &before[at])?;
        }
        expect_eq("read once", &*now[5], "COLD")?;
        let place = state.display().to_string();
        let conf = self.cluster.client_conf_dir();
        let said = lab::run(
            cold(&conf, &["watch", "--status", "--state", &place])?,
            None,
        )?;
        expect(
            said.code == Some(0)
                && ["pass 5: ", "no watch runs"]
                    .iter()
                    .all(|part| said.said.contains(part)),
            || said.said.clone(),
        )?;
        let undone = self.undo(&undo)?;
        expect_eq("undone", number(&undone, "/changed"), Some(4))?;
        expect_eq("left", number(&undone, "/left"), Some(2))?;
        expect_eq("policies", self.policies()?, before)?;
        passed()
    }

    /// In safe mode nothing is looked at. Then one is killed as soon as its undo file is there,
    /// however many calls it has made.
    fn watch_killed(&mut self) -> Result<Outcome> {
        self.age()?;
        let before = self.policies()?;
        let state = self.cluster.dir().join("watch-killed");
        let words = ["--apply", "--after-passes=1"];
        self.fs.dfsadmin(&["-safemode", "enter"])?;
        let service = self.service(&state, &words)?;
        self.wait_status(&state, "the NameNode to refuse", |now| {
            now["error"]
                .as_str()
                .is_some_and(|why| why.contains("safe mode"))
        })?;
        let second = lab::run(self.watch_command(&state, &["--once"])?, None)?;
        expect(
            second.code == Some(2) && second.said.contains("another watch"),
            || second.said.clone(),
        )?;
        drop(service);
        let undo = state.join("undo-1.jsonl");
        expect(!undo.exists(), || "an undo file in safe mode".to_owned())?;
        self.fs.dfsadmin(&["-safemode", "leave"])?;
        let service = self.service(&state, &words)?;
        let start = Instant::now();
        while !undo.exists() && start.elapsed() < seconds(60) {
            std::thread::sleep(Duration::from_millis(1));
        }
        // SIGKILL.
        drop(service);
        let undone = self.undo(&undo)?;
        let done = ["/changed", "/left"].map(|what| number(&undone, what).unwrap_or(0));
        expect_eq("undone and left", done.iter().sum(), 6_u64)?;
        expect_eq("policies", self.policies()?, before.clone())?;
        // The next one goes on, and its list is another one.
        let next = self.pass(&state, &words)?;
        expect_eq("set", number(&next.answer, "/set/changed"), Some(6))?;
        let undone = self.undo(&state.join("undo-2.jsonl"))?;
        expect_eq("undone", number(&undone, "/changed"), Some(6))?;
        expect_eq("policies", self.policies()?, before)?;
        passed()
    }

    fn watch_refuses(&mut self) -> Result<Outcome> {
        let state = self.cluster.dir().join("watch-refused");
        let place = state.display().to_string();
        let usual = [
            "watch",
            "--older-than=180d",
            "--once",
            "--json",
            "--state",
            &place,
        ];
        let client = self.cluster.client_conf_dir();
        let run = |conf: &Path, user: Option<&str>, more: &[&str]| {
            lab::run(cold(conf, &[&usual[..], more].concat())?, user)
        };
        let removed = run(&client, None, &["/data/old", "/none"])?;
        expect_eq("exit code", removed.code, Some(0))?;
        let missing = &removed.answer["missing_paths"];
        expect_eq("missing", missing.clone(), json!(["/none"]))?;
        let files = number(&removed.answer, "/total/files");
        expect_eq("files of the other", files, Some(3))?;
        let refused = |scan: Scan, why: &str| {
            expect(scan.code == Some(2) && scan.said.contains(why), || {
                format!("no {why:?}: {:?} {}", scan.code, scan.said)
            })
        };
        refused(
            run(&client, None, &["/data", "/data/old"])?,
            "lies in /data",
        )?;
        refused(run(&client, Some("stranger"), &["--apply"])?, "superuser")?;
        let mut conf = self.cluster.conf().clone();
        conf.set("dfs.namenode.accesstime.precision", 0);
        conf.set("dfs.namenode.http-address", "127.0.0.1:1");
        let off = self.cluster.dir().join("conf-watch-off");
        conf.write_dir(&off)?;
        refused(run(&off, None, &[])?, "--audit-log")?;
        let kept = state.join("state");
        fs::write(&kept, "{}\n").map_err(TestkitError::file("writing", &kept))?;
        refused(run(&client, None, &[])?, "move it away")?;
        passed()
    }

    /// The lines that the NameNode wrote of one read, after one of long ago.
    fn watch_audit_log(&mut self) -> Result<Outcome> {
        self.age()?;
        let state = self.cluster.dir().join("watch-audit");
        let log = self.cluster.dir().join("hdfs-audit.log");
        let of_namenode = self.cluster.namenode(0).log();
        let written = || {
            let text = fs::read_to_string(&of_namenode);
            text.map_err(TestkitError::file("reading", &of_namenode))
        };
        let append = |text: &str| {
            let file = fs::OpenOptions::new().create(true).append(true).open(&log);
            let appended = file.and_then(|mut file| file.write_all(text.as_bytes()));
            appended.map_err(TestkitError::file("writing", &log))
        };
        append(
            "2020-01-01 00:00:00,000 INFO FSNamesystem.audit: allowed=true\tugi=u\tip=/::1\t\
             cmd=open\tsrc=/gone/f\tdst=null\tperm=null\tproto=rpc\n",
        )?;
        let place = log.display().to_string();
        let words = ["--audit-log", &*place, "--apply", "--after-passes=1"];
        let before = written()?.len();
        self.fs.check("/data/hot/x", 100_000, 4)?;
        let lines = wait::until("the read to be logged", seconds(60), || {
            let lines = written()?.split_off(before);
            Ok(if lines.contains("cmd=open\tsrc=/data/hot/x") {
                Seen::Done(lines)
            } else {
                Seen::NotYet(lines)
            })
        })?;
        append(&lines)?;
        // Now only the log shows that read, and only an access time the next one.
        self.age()?;
        self.fs.check("/data/old/deep/c", 100_000, 3)?;
        let policies = self.policies()?;
        let pass = self.pass(&state, &words)?;
        expect_eq("set", number(&pass.answer, "/set/changed"), Some(4))?;
        let now = self.policies()?;
        for at in [2, 3] {
            expect_eq("read", &now[at], &policies[at])?;
        }
        expect_eq("not read", &*now[5], "COLD")?;
        let silent = self.watch_command(&state, &[&["--once"], &words[..]].concat())?;
        let silent = lab::run(silent, None)?;
        expect(
            silent.code == Some(2) && silent.said.contains("no new line"),
            || silent.said.clone(),
        )?;
        self.undo(&state.join("undo-1.jsonl"))?;
        passed()
    }

    fn watch_waits(&mut self) -> Result<Outcome> {
        let state = self.cluster.dir().join("watch-waits");
        self.cluster.namenode(0).stop()?;
        let mut service = self.service(&state, &[])?;
        self.wait_status(&state, "the watch to wait", |now| now["error"].is_string())?;
        self.cluster.namenode(0).start(&[])?;
        self.cluster.wait_all_live()?;
        self.wait_status(&state, "a pass", |now| {
            now["error"].is_null() && number(now, "/last_pass/total/files") == Some(8)
        })?;
        expect(number(&status(&state), "/next_pass_ms").is_some(), || {
            status(&state).to_string()
        })?;
        let process = service.0.id().to_string();
        let failed = TestkitError::file("running", Path::new("kill"));
        let sent = Command::new("kill").args(["-TERM", &process]).status();
        expect(sent.map_err(failed)?.success(), || process)?;
        let ended = service.0.wait();
        let ended = ended.map_err(TestkitError::file("waiting for", Path::new("hayloft")))?;
        expect_eq("exit code", ended.code(), Some(0))?;
        passed()
    }
}
