//! The same directories under the stock DataNode and under ours, both ways, and both at once.

mod flushes;
mod mixed;

use hayloft_testkit::error::Result;
use hayloft_testkit::files::merge;
use hayloft_testkit::node::Kind;
use hayloft_testkit::suite::{expect, expect_eq, passed, seconds};
use hayloft_testkit::{Cluster, Driver, NodeSpec, Outcome, Suite, TestkitError, VolumeSpec};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Block size of the cluster's clients, bytes.
const BLOCK: u64 = 1 << 20;
const NODES: usize = 3;

fn main() -> ExitCode {
    Suite::run("swap", |suite| {
        let mut on = suite.group(start, |lab, failed| lab.cluster.conclude(failed));
        on.case("apache_writes", |lab| lab.first_data());
        on.case("ours_starts_on_apaches_directories", |lab| lab.swap_in());
        on.case("apache_keeps_off_our_directories", |lab| {
            lab.locked_out(Kind::Apache)
        });
        on.case("ours_appends_extends_deletes", |lab| lab.change("ours"));
        on.case("ours_recovers_apaches_open_file", |lab| {
            lab.recover("/open-apache")
        });
        on.case("replicas_we_wrote_verify", |lab| lab.verify());
        on.case("apache_starts_on_our_directories", |lab| lab.swap_out());
        on.case("ours_keeps_off_apaches_directories", |lab| {
            lab.locked_out(lab.ours)
        });
        on.case("apache_appends_extends_deletes", |lab| lab.change("apache"));
        on.case("apache_recovers_our_open_file", |lab| {
            lab.recover("/open-ours")
        });
        on.case("killed_ours_then_apache", |lab| {
            lab.killed(lab.ours, Kind::Apache)
        });
        on.case("killed_apache_then_ours", |lab| {
            lab.killed(Kind::Apache, lab.ours)
        });
        on.case("killed_ours_then_apache_keeps_every_flush", |lab| {
            lab.flushes(lab.ours, Kind::Apache)
        });
        on.case("both_kinds_in_one_pipeline", |lab| lab.mixed());
        on.case("both_kinds_recover_one_block", |lab| lab.mixed_recovery());
        on.case("replication_between_kinds", |lab| lab.mixed_replication());
        on.case("rolling_upgrade", |lab| lab.rolling_upgrade());
        on.case("everything_is_whole_at_the_end", |lab| lab.whole());
        Ok(())
    })
}

fn start() -> Result<Lab> {
    let cluster = Cluster::builder("swap")
        .nodes(NODES, Kind::Apache)
        .conf("dfs.blocksize", BLOCK)
        .conf("dfs.client.socket-timeout", 10_000)
        .conf(
            "dfs.client.block.write.replace-datanode-on-failure.policy",
            "NEVER",
        )
        .conf("dfs.datanode.restart.replica.expiration", 50)
        .start()?;
    let fs = cluster.driver()?;
    Ok(Lab {
        cluster,
        fs,
        files: BTreeMap::new(),
        ours: Kind::under_test(),
    })
}

struct Lab {
    cluster: Cluster,
    fs: Driver,
    /// Every file there should be: length and seed.
    files: BTreeMap<String, (u64, u64)>,
    ours: Kind,
}

impl Lab {
    fn put(&mut self, path: &str, bytes: u64, seed: u64, more: Value) -> Result<()> {
        let before = if more["appendTo"] == true {
            self.files.get(path).map_or(0, |f| f.0)
        } else {
            0
        };
        self.fs.put(path, bytes, seed, more)?;
        self.files.insert(path.into(), (before + bytes, seed));
        Ok(())
    }

    fn check_all(&self) -> Result<()> {
        self.files
            .iter()
            .try_for_each(|(path, &(bytes, seed))| self.fs.check(path, bytes, seed))
    }

    /// Files of every shape; one is left open.
    fn first_data(&mut self) -> Result<Outcome> {
        for (index, bytes) in [
            0,
            1,
            511,
            512,
            513,
            100_000,
            BLOCK,
            BLOCK + 1,
            3 * BLOCK + 777,
        ]
        .into_iter()
        .enumerate()
        {
            self.put(&format!("/first-{bytes}"), bytes, index as u64, json!({}))?;
        }
        for kind in ["CRC32", "CRC32C", "NULL"] {
            // `keep-`: a client with another chunk size may not append to these; nor does the stock
            // node take sums where the block has none.
            let first = if kind == "NULL" { "keep-none" } else { "first" };
            for (name, chunk) in [(first, 512), ("keep", 4096)] {
                let conf = json!({"dfs.checksum.type": kind, "dfs.bytes-per-checksum": chunk});
                let path = format!("/{name}-{kind}");
                self.put(&path, 150_001, 40, json!({"conf": conf}))?;
                self.put(&path, 5000, 40, json!({"conf": conf, "appendTo": true}))?;
            }
        }
        self.fs.call(
            "many",
            json!({"path": "/first-many", "count": 100, "bytes": 777, "seed": 9000}),
        )?;
        self.put("/first-cut", 2 * BLOCK, 41, json!({}))?;
        self.fs.fs(&["-truncate", "-w", "1234567", "/first-cut"])?;
        self.files.insert("/first-cut".into(), (1_234_567, 41));
        self.leave_open("/open-apache")?;
        self.check_all()?;
        passed()
    }

    /// A file whose writer died: an rbw replica of 1.5 blocks on every node.
    fn leave_open(&mut self, path: &str) -> Result<()> {
        self.fs.create("open", path, 42, json!({}))?;
        self.fs.write("open", BLOCK + BLOCK / 2 + 77)?;
        self.fs.handle("hflush", "open")?;
        self.fs.handle("abandon", "open").map(drop)
    }

    fn recover(&mut self, path: &str) -> Result<Outcome> {
        self.fs.recover_lease(path, seconds(90))?;
        let bytes = BLOCK + BLOCK / 2 + 77;
        self.fs.check(path, bytes, 42)?;
        self.files.insert(path.into(), (bytes, 42));
        self.put(path, 1000, 42, json!({"appendTo": true}))?;
        self.check_all()?;
        passed()
    }

    fn all_become(&mut self, kind: Kind) -> Result<()> {
        for index in 0..NODES {
            self.cluster.node(index).stop()?;
        }
        for index in 0..NODES {
            self.cluster.node(index).become_kind(kind)?;
            self.cluster.start_node_without_waiting(index)?;
        }
        for index in 0..NODES {
            self.cluster.node(index).wait_started()?;
        }
        self.cluster.wait_all_live()
    }

    /// Who the volumes say they are: the `VERSION` files, without their comments and dates.
    fn versions(&self) -> Result<BTreeMap<PathBuf, Vec<String>>> {
        let mut found = BTreeMap::new();
        for volume in self
            .cluster
            .nodes()
            .flat_map(|node| node.volumes().map(Path::to_path_buf).collect::<Vec<_>>())
        {
            let current = volume.join("current");
            let pools =
                std::fs::read_dir(&current).map_err(TestkitError::file("listing", &current))?;
            let pools = pools
                .flatten()
                .map(|entry| entry.path().join("current/VERSION"));
            for path in pools
                .chain([current.join("VERSION")])
                .filter(|path| path.is_file())
            {
                let text =
                    std::fs::read_to_string(&path).map_err(TestkitError::file("reading", &path))?;
                let mut lines: Vec<String> = text
                    .lines()
                    .filter(|l| !l.starts_with('#'))
                    .map(|l| l.trim().to_owned())
                    .collect();
                lines.sort();
                found.insert(path, lines);
            }
        }
        Ok(found)
    }

    fn swap_in(&mut self) -> Result<Outcome> {
        let before = self.versions()?;
        expect(before.len() == 2 * NODES, || format!("{:?}", before.keys()))?;
        self.all_become(self.ours)?;
        self.check_all()?;
        expect_eq("VERSION files", self.versions()?, before)?;
        self.check_many()?;
        passed()
    }

    fn swap_out(&mut self) -> Result<Outcome> {
        let before = self.versions()?;
        self.leave_open("/open-ours")?;
        self.all_become(Kind::Apache)?;
        self.check_all()?;
        expect_eq("VERSION files", self.versions()?, before)?;
        self.check_many()?;
        passed()
    }

    /// While a node runs, another of `kind` on its directories refuses by the name of the
    /// directory, and the first is none the worse for it.
    fn locked_out(&mut self, kind: Kind) -> Result<Outcome> {
        let node = self.cluster.node(0);
        let dirs: Vec<PathBuf> = node.volumes().map(Path::to_path_buf).collect();
        let pid = node.process()?.pid();
        let lock = dirs[0].join("in_use.lock");
        let note = std::fs::read_to_string(&lock).map_err(TestkitError::file("reading", &lock))?;
        expect(note.starts_with(&format!("{pid}@")), || {
            format!("in_use.lock says {note:?}, the holder is {pid}")
        })?;
        let volumes = dirs.iter().map(VolumeSpec::at).collect();
        let spec = NodeSpec::new(kind).volumes(volumes);
        let (failed, log) = self.cluster.refused_node(spec)?;
        // The stock node ends with exit code 0.
        expect(failed || kind == Kind::Apache, || {
            format!("it ended without an error: {log}")
        })?;
        let said = log.lines().any(|line| {
            let named = line.contains(&dirs[0].display().to_string());
            let why = match kind {
                Kind::Apache => line.contains("already locked"),
                Kind::Hayloft => {
                    line.contains(note.trim()) && line.contains("another DataNode uses")
                }
            };
            named && why
        });
        expect(said, || format!("no word of the lock: {log}"))?;
        let after = std::fs::read_to_string(&lock).map_err(TestkitError::file("reading", &lock))?;
        expect_eq("the holder's note", after, note)?;
        self.cluster.node(0).process()?.check_alive()?;
        self.put("/locked", 1000, 60, json!({}))?;
        self.check_all()?;
        passed()
    }

    fn check_many(&self) -> Result<()> {
        let request = json!({"path": "/first-many", "count": 100, "bytes": 777, "seed": 9000});
        let bad = self.fs.call("readMany", request)?;
        expect(bad["bad"] == json!([]), || bad.to_string())
    }

    /// What a running cluster does to files that the other kind wrote.
    fn change(&mut self, who: &str) -> Result<Outcome> {
        let appendable = self
            .files
            .iter()
            .filter(|(path, _)| !path.starts_with("/keep-"));
        let names: Vec<(String, u64)> = appendable.map(|(path, f)| (path.clone(), f.1)).collect();
        for (number, (path, seed)) in names.iter().enumerate() {
            let more = [1, 511, 70_001][number % 3];
            self.put(path, more, *seed, json!({"appendTo": true}))?;
        }
        self.put("/first-cut", BLOCK, 41, json!({"appendTo": true}))?;
        let temporary = format!("/temporary-{who}");
        self.put(&temporary, 2 * BLOCK, 43, json!({}))?;
        self.put(&format!("/new-{who}"), 2 * BLOCK + 999, 44, json!({}))?;
        self.fs.append("a", &format!("/new-{who}"), 44, json!({}))?;
        self.fs.write("a", 100_000)?;
        self.fs.handle("hflush", "a")?;
        self.fs
            .check(&format!("/new-{who}"), 2 * BLOCK + 100_999, 44)?;
        self.fs.handle("close", "a")?;
        self.files
            .insert(format!("/new-{who}"), (2 * BLOCK + 100_999, 44));
        self.fs.fs(&["-rm", "-skipTrash", &temporary])?;
        self.files.remove(&temporary);
        self.fs.fs(&["-truncate", "-w", "1000001", "/first-cut"])?;
        self.files.insert("/first-cut".into(), (1_000_001, 41));
        self.check_all()?;
        passed()
    }

    fn verify(&mut self) -> Result<Outcome> {
        for node in self.cluster.nodes() {
            let count = self.fs.verify_metas(node)?;
            expect(count > 100, || {
                format!("only {count} replicas on {}", node.name())
            })?;
        }
        passed()
    }

    /// No clean stop: `kill -9` in the middle of a write, then the other kind on the directories.
    fn killed(&mut self, first: Kind, then: Kind) -> Result<Outcome> {
        self.all_become(first)?;
        let path = format!("/killed-{first:?}-{then:?}");
        let conf = json!({"dfs.client.block.write.retries": 0});
        self.fs.create("k", &path, 45, json!({"conf": conf}))?;
        let writing = self.fs.begin(
            "loop",
            json!({"handle": "k", "bytes": 200 * BLOCK, "chunk": 30_000}),
        )?;
        self.fs.wait_acked("k", 2_000_000)?;
        for index in 0..NODES {
            self.cluster.node(index).kill()?;
        }
        let end = writing.wait_at_most(seconds(180))?;
        let _ = self.fs.handle("abandon", "k");
        for index in 0..NODES {
            self.cluster.node(index).become_kind(then)?;
            self.cluster.start_node(index)?;
        }
        self.cluster.wait_all_live()?;
        self.fs.recover_lease(&path, seconds(120))?;
        let length = self.fs.length(&path)?;
        let acked = end["acked"].as_u64().unwrap_or_default();
        // A chunk cut by the kill may be dropped by the stock node, whichever kind wrote it.
        expect(length + 511 >= acked, || {
            format!("kept {length} of {acked} acknowledged")
        })?;
        self.fs.check(&path, length, 45)?;
        self.files.insert(path, (length, 45));
        self.check_all()?;
        passed()
    }

    fn whole(&mut self) -> Result<Outcome> {
        self.all_become(Kind::Apache)?;
        self.check_all()?;
        self.fs.wait_healthy("/", seconds(90))?;
        self.verify()?;
        let more = merge(json!({}), json!({"appendTo": true}));
        self.put("/first-512", 7, 3, more)?;
        self.check_all()?;
        passed()
    }
}
