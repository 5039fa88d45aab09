//! Centralized cache: `hdfs cacheadmin` at a stock NameNode, and what nodes lock for it. [`many`]:
//! ten thousand directives. [`unconfigured`]: what that costs nodes that are asked for none of it.
//!
//! The stock node locks nothing without Apache's native library, so only the NameNode is its.

mod many;
mod unconfigured;

use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::class;
use hayloft_testkit::http;
use hayloft_testkit::node::Kind;
use hayloft_testkit::suite::{expect, expect_eq, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Cluster, Driver, NodeSpec, Outcome, Suite, TestkitError};
use serde_json::json;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

/// Block size of the cluster's clients, bytes.
const BLOCK: u64 = 1 << 20;
/// What each node may lock: less than a process may lock everywhere.
const LOCKED: u64 = 4 * BLOCK;
/// Reports and orders take seconds.
const SOON: Duration = Duration::from_secs(60);
/// The bean with the use of the cache.
const STATE: &str = "Hadoop:service=DataNode,name=FSDatasetState";

fn main() -> ExitCode {
    Suite::run("cache", |suite| {
        if Kind::under_test() == Kind::Apache {
            println!("skipped: the stock node locks nothing without Apache's native library");
            return Ok(());
        }
        let mut on = suite.group(start, |lab, failed| lab.cluster.conclude(failed));
        on.case("a_directive_is_carried_out_and_removed", Lab::directive)
            .case("no_node_locks_more_than_it_may", Lab::too_much)
            .case("a_deleted_file_is_locked_no_longer", Lab::deleted)
            .case("an_appended_file_is_cached_again", Lab::appended)
            .case("a_node_that_was_killed_caches_again", Lab::killed)
            .case("ten_thousand_directives_leave_nothing_locked", Lab::many)
            .case("a_start_above_the_system_s_limit_is_refused", Lab::refused);
        let mut on = suite.group(unconfigured::start, unconfigured::Lab::end);
        on.case(
            "a_node_that_is_not_configured_pays_nothing",
            unconfigured::Lab::costs,
        );
        Ok(())
    })
}

struct Lab {
    fs: Driver,
    cluster: Cluster,
}

fn start() -> Result<Lab> {
    let cluster = Cluster::builder("cache")
        .nodes(2, Kind::under_test())
        .conf("dfs.blocksize", BLOCK)
        .conf("dfs.replication", 2)
        .conf("dfs.datanode.max.locked.memory", LOCKED)
        .conf("dfs.cachereport.intervalMsec", 1000)
        .conf("dfs.namenode.path.based.cache.refresh.interval.ms", 1000)
        .conf("dfs.namenode.path.based.cache.retry.interval.ms", 3000)
        .names_in_memory()
        .start()?;
    let lab = Lab {
        fs: cluster.driver()?,
        cluster,
    };
    lab.admin(&["-addPool", "pool"])?;
    Ok(lab)
}

/// Bytes that a process has locked.
fn locked_by(pid: u32) -> Result<u64> {
    let path = format!("/proc/{pid}/status");
    let text = std::fs::read_to_string(&path).map_err(TestkitError::file("reading", &path))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmLck:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    let kib = kib.ok_or_else(|| TestkitError::Expectation(format!("no VmLck in {text}")))?;
    Ok(kib << 10)
}

impl Lab {
    /// `hdfs cacheadmin ARGS`, which must succeed: what it prints.
    fn admin(&self, args: &[&str]) -> Result<String> {
        Ok(self.fs.tool(class::CACHE_ADMIN, args)?.ok()?.out)
    }

    fn put_cached(&self, path: &str, blocks: u64) -> Result<()> {
        self.fs.put(path, blocks * BLOCK, blocks, json!({}))?;
        let add = ["-addDirective", "-path", path, "-pool", "pool"];
        self.admin(&[&add[..], &["-replication", "2"]].concat())?;
        Ok(())
    }

    fn remove_directives(&self, path: &str) -> Result<()> {
        self.admin(&["-removeDirectives", "-path", path]).map(drop)
    }

    /// Bytes of a path that are cached, as the NameNode says.
    fn bytes_cached(&self, path: &str) -> Result<u64> {
        let out = self.admin(&["-listDirectives", "-stats", "-path", path])?;
        // ID POOL REPL EXPIRY PATH BYTES_NEEDED BYTES_CACHED FILES_NEEDED FILES_CACHED
        let row = out.lines().find(|line| line.contains(path));
        let field = row.and_then(|row| row.split_whitespace().nth(6)?.parse().ok());
        field.ok_or_else(|| TestkitError::Expectation(format!("no bytes cached in: {out}")))
    }

    fn wait_cached(&self, path: &str, bytes: u64) -> Result<()> {
        wait::until(&format!("{bytes} bytes of {path} cached"), SOON, || {
            let now = self.bytes_cached(path)?;
            Ok(match now == bytes {
                true => Seen::Done(()),
                false => Seen::NotYet(now.to_string()),
            })
        })?;
        Ok(())
    }

    /// Bytes that a node's process has locked.
    fn locked(&mut self, node: usize) -> Result<u64> {
        locked_by(self.cluster.node(node).process()?.pid())
    }

    /// Waits until a node has locked so much, and its bean says so.
    fn wait_locked(&mut self, node: usize, bytes: u64) -> Result<()> {
        let web = SocketAddr::from(([127, 0, 0, 1], self.cluster.node(node).http_port()));
        wait::until(&format!("{bytes} bytes locked by {node}"), SOON, || {
            let locked = self.locked(node)?;
            let bean = http::jmx(web, STATE)?;
            let told = bean["CacheUsed"].as_u64();
            Ok(match locked == bytes && told == Some(bytes) {
                true => Seen::Done(()),
                false => Seen::NotYet(format!("{locked}, told as {told:?}")),
            })
        })?;
        Ok(())
    }

    fn directive(&mut self) -> Result<Outcome> {
        self.put_cached("/directive", 3)?;
        self.wait_cached("/directive", 2 * 3 * BLOCK)?;
        for node in [0, 1] {
            self.wait_locked(node, 3 * BLOCK)?;
            let web = SocketAddr::from(([127, 0, 0, 1], self.cluster.node(node).http_port()));
            let bean = http::jmx(web, STATE)?;
            expect_eq("blocks", bean["NumBlocksCached"].as_u64(), Some(3))?;
            expect_eq("capacity", bean["CacheCapacity"].as_u64(), Some(LOCKED))?;
        }
        let wanted = [6 * BLOCK, 2 * LOCKED].map(Some);
        wait::until("the sums of heartbeats", SOON, || {
            let state = self.cluster.namenode_bean(0, "NameNodeInfo")?;
            let told = ["CacheUsed", "CacheCapacity"].map(|name| state[name].as_u64());
            Ok(match told == wanted {
                true => Seen::Done(()),
                false => Seen::NotYet(format!("{told:?}")),
            })
        })?;
        self.fs.check("/directive", 3 * BLOCK, 3)?;
        self.remove_directives("/directive")?;
        for node in [0, 1] {
            self.wait_locked(node, 0)?;
        }
        passed()
    }

    /// The NameNode orders what fits; the node's own limit is tried in tests of the store.
    fn too_much(&mut self) -> Result<Outcome> {
        self.put_cached("/much", 6)?;
        self.wait_cached("/much", 2 * LOCKED)?;
        for node in [0, 1] {
            self.wait_locked(node, LOCKED)?;
        }
        // Time for more orders.
        std::thread::sleep(seconds(5));
        for node in [0, 1] {
            expect_eq("locked", self.locked(node)?, LOCKED)?;
        }
        self.remove_directives("/much")?;
        for node in [0, 1] {
            self.wait_locked(node, 0)?;
        }
        passed()
    }

    fn deleted(&mut self) -> Result<Outcome> {
        self.put_cached("/deleted", 2)?;
        self.wait_cached("/deleted", 2 * 2 * BLOCK)?;
        self.fs.fs(&["-rm", "-skipTrash", "/deleted"])?;
        for node in [0, 1] {
            self.wait_locked(node, 0)?;
        }
        self.remove_directives("/deleted")?;
        passed()
    }

    fn appended(&mut self) -> Result<Outcome> {
        self.fs.put("/appended", 1000, 9, json!({}))?;
        let add = ["-addDirective", "-path", "/appended", "-pool", "pool"];
        self.admin(&[&add[..], &["-replication", "2"]].concat())?;
        self.wait_cached("/appended", 2000)?;
        self.fs.append("h", "/appended", 9, json!({}))?;
        self.fs.write("h", 5000)?;
        self.fs.handle("close", "h")?;
        self.wait_cached("/appended", 12_000)?;
        for node in [0, 1] {
            self.wait_locked(node, 8192)?;
        }
        self.fs.check("/appended", 6000, 9)?;
        self.remove_directives("/appended")?;
        passed()
    }

    fn killed(&mut self) -> Result<Outcome> {
        self.put_cached("/killed", 1)?;
        self.wait_cached("/killed", 2 * BLOCK)?;
        self.cluster.node(0).kill()?;
        self.cluster.start_node(0)?;
        self.cluster.wait_all_live()?;
        self.wait_locked(0, BLOCK)?;
        self.remove_directives("/killed")?;
        for node in [0, 1] {
            self.wait_locked(node, 0)?;
        }
        passed()
    }

    fn refused(&mut self) -> Result<Outcome> {
        let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
        let row = limits.lines().find(|l| l.starts_with("Max locked memory"));
        let hard = row.and_then(|row| row.split_whitespace().nth(4)?.parse::<u64>().ok());
        let Some(hard) = hard else {
            return Ok(Outcome::Skipped("this host limits no locked memory".into()));
        };
        let wanted = hard + 1;
        let spec = NodeSpec::new(Kind::under_test());
        let spec = spec.conf("dfs.datanode.max.locked.memory", wanted);
        let (failed, log) = self.cluster.refused_node(spec)?;
        expect(failed, || format!("it ended well: {log}"))?;
        for part in [
            "dfs.datanode.max.locked.memory",
            &format!("{wanted} bytes"),
            &format!("RLIMIT_MEMLOCK ulimit of {hard} bytes"),
        ] {
            expect(log.contains(part), || format!("no {part:?} in: {log}"))?;
        }
        passed()
    }
}
