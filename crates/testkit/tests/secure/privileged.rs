//! A node on ports below 1024, without SASL: root starts it by Hadoop's shell, with
//! `HDFS_DATANODE_SECURE_USER`, and it becomes that user. Stock clients believe it for its ports.

use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::{class, hayloft_binary};
use hayloft_testkit::node::Kind;
use hayloft_testkit::suite::{expect, expect_eq, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{NodeSpec, Outcome, Suite, TestkitError, mounts};
use serde_json::{Value, json};
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::shell_host::{PIDS, ShellHost};
use crate::swapped::{HOST, Host};
use crate::{realm, secure};

/// Whom the node becomes.
const USER: &str = "daemon";
/// Where Debian has jsvc.
const JSVC: &str = "/usr/bin/jsvc";

pub fn cases(suite: &mut Suite) {
    let mut on = suite.group(PrivilegedHost::start, |host, failed| host.host.end(failed));
    on.case("root_starts_a_node_that_keeps_no_root", |host| {
        host.without_root()
    });
    on.case("stock_clients_believe_privileged_ports", |host| {
        host.believed()
    });
    on.case("a_node_that_gave_up_root_is_restarted", |host| {
        host.restarted()
    });
    on.case("jsvc_gives_way_to_ours_and_back", |host| host.swapped());
}

struct PrivilegedHost {
    host: Host,
    ports: [u16; 2],
}

/// Free ports that only root may open.
fn low_ports() -> Result<[u16; 2]> {
    let first = 600 + u16::try_from(std::process::id() % 300).unwrap_or(0);
    let free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let mut free = (first..1024).chain(300..first).filter(free);
    let both = free.next().zip(free.next());
    let both = both.ok_or_else(|| TestkitError::Expectation("no free port below 1024".into()))?;
    Ok([both.0, both.1])
}

fn give(path: &Path) -> Result<()> {
    mounts::run(Command::new("chown").args(["-R", USER]).arg(path)).map(drop)
}

/// Lets other users go through a directory.
fn open(path: &Path) -> Result<()> {
    mounts::run(Command::new("chmod").arg("a+rx").arg(path)).map(drop)
}

impl PrivilegedHost {
    fn start() -> Result<Self> {
        let realm = realm()?;
        let mut cluster = secure(&realm, "privacy")?
            .conf("dfs.replication", 1)
            .conf(
                "hadoop.user.group.static.mapping.overrides",
                "hdfs=supergroup;nn=supergroup;dn=supergroup",
            )
            .node(NodeSpec::new(Kind::Hayloft))
            .start()?;
        cluster.node(HOST).stop()?;
        let ports = low_ports()?;
        // The user reads the keytab of its own, and nothing of root's.
        let keytab = realm.keytab("privileged.keytab", &["dn/localhost"])?;
        let caches = realm.dir().join("replays");
        fs::create_dir_all(&caches).map_err(TestkitError::file("making", &caches))?;
        let node = cluster.node(HOST);
        let [xfer, http] = ports.map(|port| format!("127.0.0.1:{port}"));
        node.conf_mut()
            .set("dfs.datanode.address", xfer)
            .set("dfs.datanode.http.address", http)
            .set("dfs.datanode.keytab.file", keytab.display())
            .set("ignore.secure.ports.for.testing", false);
        cluster.rewrite_node_conf(HOST)?;
        for path in [&keytab, &caches] {
            give(path)?;
        }
        for dir in [realm.dir(), cluster.dir()] {
            open(dir)?;
        }
        let data: Vec<PathBuf> = cluster.node(HOST).volumes().map(Path::to_owned).collect();
        data.iter().try_for_each(|dir| give(dir))?;
        let host = Host::of(cluster, realm)?;
        give(&host.shell.logs)?;
        let path = host.shell.conf.join("hadoop-env.sh");
        let was = fs::read_to_string(&path).map_err(TestkitError::file("reading", &path))?;
        let more = format!(
            "HDFS_DATANODE_SECURE_USER={USER}\nJSVC_HOME=/usr/bin\nexport KRB5RCACHEDIR={}\n",
            caches.display()
        );
        fs::write(&path, was + &more).map_err(TestkitError::file("writing", &path))?;
        Ok(Self { host, ports })
    }

    /// The number in a pid file of Hadoop's shell.
    fn pid_in(&self, name: &str) -> Result<u32> {
        let path = self.host.shell.logs.with_file_name(PIDS).join(name);
        let text = fs::read_to_string(&path).map_err(TestkitError::file("reading", &path))?;
        let pid = text.trim().parse();
        pid.map_err(|_| TestkitError::Expectation(format!("{}: {text}", path.display())))
    }

    fn process(&self) -> Result<u32> {
        self.pid_in(&format!("hadoop-{USER}-root-datanode.pid"))
    }

    /// Waits until the NameNode has the node at its port below 1024.
    fn wait_live(&mut self) -> Result<()> {
        let port = self.ports[0];
        wait::until("the node at its low port", seconds(90), || {
            let (_, report) = self.host.swap(&["status"], None)?;
            let at = report["live"][0]["name"].to_string();
            let live = report["live"][0]["state"] == "In Service";
            Ok(match live && at.contains(&format!(":{port}")) {
                true => Seen::Done(()),
                false => Seen::NotYet(report.to_string()),
            })
        })
    }

    /// Looks at every thread, every pid file and every file that the node made.
    fn without_root(&mut self) -> Result<Outcome> {
        self.profile(true)?;
        self.host.shell.daemon("start")?;
        self.wait_live()?;
        expect_eq("status", self.host.shell.daemon_code("status")?, 0)?;
        let process = self.process()?;
        let privileged = self.pid_in("privileged-root-datanode.pid")?;
        expect_eq("the one process", privileged, process)?;
        let [user, group] = ["-u", "-g"].map(|option| {
            let told = mounts::run(Command::new("id").args([option, USER]));
            told.map(|told| told.trim().to_owned())
        });
        let (user, group) = (user?, group?);
        let tasks = PathBuf::from(format!("/proc/{process}/task"));
        let tasks = fs::read_dir(&tasks).map_err(TestkitError::file("reading", &tasks))?;
        let mut threads = 0;
        for task in tasks.flatten() {
            let Ok(status) = fs::read_to_string(task.path().join("status")) else {
                continue;
            };
            threads += 1;
            let none = "0".repeat(16);
            for line in [
                format!("Uid:\t{user}\t{user}\t{user}\t{user}\n"),
                format!("Gid:\t{group}\t{group}\t{group}\t{group}\n"),
                format!("CapPrm:\t{none}\n"),
                format!("CapEff:\t{none}\n"),
                format!("CapBnd:\t{none}\n"),
                "NoNewPrivs:\t1\n".to_owned(),
            ] {
                expect(status.contains(&line), || format!("no {line:?}: {status}"))?;
            }
        }
        expect(threads > 10, || format!("{threads} threads"))?;
        let log = format!("hadoop-{USER}-root-datanode-");
        let logs = fs::read_dir(&self.host.shell.logs)
            .into_iter()
            .flatten()
            .flatten();
        let mut logs = logs.map(|of| of.path());
        let log = logs.find(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with(&log) && name.ends_with(".log")
        });
        let log = log.ok_or_else(|| TestkitError::Expectation("no log of that name".into()))?;
        let data = self.host.cluster.node(HOST).volumes().next();
        let lock = data.unwrap_or(Path::new("")).join("in_use.lock");
        for path in [log, lock] {
            let of = fs::metadata(&path).map_err(TestkitError::file("reading", &path))?;
            expect_eq("the owner", of.uid().to_string(), user.clone())?;
        }
        passed()
    }

    /// Puts Hayloft's profile into the configuration, or takes it away.
    fn profile(&self, there: bool) -> Result<()> {
        let dir = self.host.shell.conf.join("shellprofile.d");
        let path = dir.join("hayloft.sh");
        if !there {
            return fs::remove_file(&path).map_err(TestkitError::file("removing", &path));
        }
        fs::create_dir_all(&dir).map_err(TestkitError::file("making", &dir))?;
        let own = hayloft_binary()?;
        let text = include_str!("../../../../packaging/hayloft.sh");
        let text = format!("HAYLOFT={}\n{text}", own.display());
        fs::write(&path, text).map_err(TestkitError::file("writing", &path))
    }

    fn believed(&mut self) -> Result<Outcome> {
        for number in 0..2 {
            self.host.put(&format!("/privileged-{number}"))?;
        }
        self.host.check()?;
        // A client that asks for SASL does without at such a port, as to Apache's node.
        let sasl = ["-D", "dfs.data.transfer.protection=privacy", "-cat"];
        let cat = [sasl.as_slice(), &["/privileged-0"]].concat();
        let read = self.host.fs.tool(class::FS_SHELL, &cat)?;
        read.ok()?;
        let files = self.host.cluster.node(HOST).all_block_files();
        expect(files.len() > 40, || format!("{} files", files.len()))?;
        let owner = fs::metadata(&files[0]).map(|of| of.uid());
        expect_eq("the owner of a block", owner.unwrap_or(0) != 0, true)?;
        passed()
    }

    fn restarted(&mut self) -> Result<Outcome> {
        let before = self.process()?;
        self.host.shell.daemon("stop")?;
        expect_eq(
            "status behind a stop",
            self.host.shell.daemon_code("status")?,
            3,
        )?;
        let left = fs::read_dir(self.host.shell.logs.with_file_name(PIDS))
            .into_iter()
            .flatten()
            .count();
        expect_eq("pid files", left, 0)?;
        self.host.shell.daemon("start")?;
        self.wait_live()?;
        self.host.check()?;
        let after = self.process()?;
        expect(before != after, || "the same process".into())?;
        mounts::run(Command::new("kill").args(["-9", &after.to_string()]))?;
        wait::until("the end of a killed one", seconds(30), || {
            Ok(match self.host.shell.daemon_code("status")? {
                1 => Seen::Done(()),
                code => Seen::NotYet(format!("status {code}")),
            })
        })?;
        self.host.shell.daemon("start")?;
        self.wait_live()?;
        self.host.check()?;
        passed()
    }

    /// The same host by Apache's node: `swap` stops and starts either as root.
    fn swapped(&mut self) -> Result<Outcome> {
        if !Path::new(JSVC).exists() {
            return Ok(Outcome::Skipped("no jsvc: install jsvc".into()));
        }
        let went = |swap: (i32, Value), node: &str| {
            let (code, report) = swap;
            expect(code == 0, || report.to_string())?;
            ShellHost::runs(&report, node, node)?;
            let blocks = (&report["blocks_after"], &report["blocks_before"]);
            expect_eq("blocks", blocks.0, blocks.1)?;
            expect_eq("live", &report["live"][0]["state"], &json!("In Service"))
        };
        went(self.host.swap(&["out"], None)?, "apache")?;
        self.host.check()?;
        self.host.put("/by-jsvc")?;
        let of_jsvc = fs::read(format!("/proc/{}/cmdline", self.process()?));
        let of_jsvc = String::from_utf8_lossy(&of_jsvc.unwrap_or_default()).into_owned();
        expect(of_jsvc.contains("SecureDataNodeStarter"), || of_jsvc)?;
        went(self.host.swap(&["in"], None)?, "hayloft")?;
        self.wait_live()?;
        self.host.check()?;
        passed()
    }
}
