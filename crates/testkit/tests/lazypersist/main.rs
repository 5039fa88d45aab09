//! Files of the policy LAZY_PERSIST: in memory first, on disk later, at a stock NameNode.
//! [`tmpfs`]: memory that is a real one, kills, and what becomes of it. [`apache`]: kills of the
//! stock node.
//!
//! The stock node sets no memory aside without Apache's native library. It takes over what ours
//! leaves, and the reverse.

mod apache;
mod tmpfs;

use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::{SMALL_JVM_FLAGS, repository_root};
use hayloft_testkit::http;
use hayloft_testkit::mounts::in_own_namespace;
use hayloft_testkit::node::Kind;
use hayloft_testkit::suite::{expect, expect_eq, passed};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Cluster, Driver, NodeSpec, Outcome, Suite, TestkitError, VolumeSpec};
use serde_json::json;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Block size of the cluster's clients, bytes.
const BLOCK: u64 = 1 << 20;
/// Room in memory.
const MEMORY: u64 = 4 * BLOCK;
const LOCKED: &str = "dfs.datanode.max.locked.memory";
const INTERVAL: &str = "dfs.datanode.lazywriter.interval.sec";
/// Seconds within which no case ends.
const NEVER: u64 = 3600;
const NO_LIBHADOOP: &str = "there is no libhadoop: run scripts/fetch-libhadoop";
const COPIED: &str = "RamDiskBlocksLazyPersisted";
/// Reports and orders take seconds.
const SOON: Duration = Duration::from_secs(60);
/// Files that stay, with their seeds.
const WHOLE: [(&str, u64); 4] = [
    ("/lazy/first", 1),
    ("/lazy/2", 2),
    ("/lazy/3", 3),
    ("/lazy/4", 4),
];

fn main() -> ExitCode {
    in_own_namespace();
    Suite::run("lazypersist", |suite| {
        if Kind::under_test() == Kind::Apache {
            println!("skipped: the stock node locks nothing without Apache's native library");
            return Ok(());
        }
        let start = || start(VolumeSpec::typed("RAM_DISK"));
        let mut on = suite.group(start, |lab, failed| lab.cluster.conclude(failed));
        on.case("a_file_is_in_memory_and_on_disk_later", Lab::in_memory)
            .case("what_was_used_longest_ago_leaves_memory", Lab::evicted)
            .case("a_deleted_file_leaves_nothing", Lab::deleted)
            .case("the_stock_node_takes_over_and_ours_back", Lab::swapped)
            .case("memory_that_is_empty_at_a_start", Lab::emptied)
            .case("copies_of_the_stock_node_and_ours", Lab::stock_copies)
            .case("writers_of_other_hosts", Lab::others);
        if suite.may_mount_disks("memory_that_is_a_tmpfs") {
            apache::cases(&mut tmpfs::cases(suite));
        }
        Ok(())
    })
}

struct Lab {
    fs: Driver,
    cluster: Cluster,
}

fn start(memory: VolumeSpec) -> Result<Lab> {
    let volumes = vec![VolumeSpec::typed("DISK"), memory];
    let node = NodeSpec::new(Kind::under_test()).volumes(volumes);
    let cluster = Cluster::builder("lazypersist")
        .node(node.conf(LOCKED, MEMORY))
        // A tmpfs of ours is smaller than what Apache's node leaves free by itself.
        .conf(
            "dfs.datanode.round-robin-volume-choosing-policy.additional-available-space",
            0,
        )
        .conf("dfs.blocksize", BLOCK)
        .conf("dfs.replication", 1)
        .conf("dfs.datanode.failed.volumes.tolerated", 1)
        .conf(INTERVAL, 1)
        // Files that lose a block stay, to be looked at.
        .conf("dfs.namenode.lazypersist.file.scrub.interval.sec", 0)
        .start()?;
    let fs = cluster.driver()?;
    fs.fs(&["-mkdir", "/lazy"])?;
    fs.set_policy("/lazy", "LAZY_PERSIST")?;
    Ok(Lab { fs, cluster })
}

/// Waits until what is looked at is as wanted.
fn until<T: PartialEq + std::fmt::Debug>(
    what: &str,
    wanted: T,
    mut look: impl FnMut() -> Result<T>,
) -> Result<()> {
    wait::until(&format!("{what}: {wanted:?}"), SOON, || {
        let now = look()?;
        Ok(match now == wanted {
            true => Seen::Done(()),
            false => Seen::NotYet(format!("{now:?}")),
        })
    })
}

impl Lab {
    /// A number of the node's bean about replicas in memory.
    fn count(&mut self, name: &str) -> Result<u64> {
        let web = SocketAddr::from(([127, 0, 0, 1], self.cluster.node(0).http_port()));
        let port = self.cluster.node(0).xfer();
        let port = port.rsplit(':').next().unwrap_or_default().to_owned();
        let bean = format!("Hadoop:service=DataNode,name=DataNodeActivity-*-{port}");
        let bean = http::jmx(web, &bean)?;
        let number = bean[name].as_u64();
        number.ok_or_else(|| TestkitError::Expectation(format!("no {name} in {bean}")))
    }

    fn wait_count(&mut self, name: &str, wanted: u64) -> Result<()> {
        until(name, wanted, || self.count(name))
    }

    /// Waits until the NameNode says this of the storage of a file of one block.
    fn wait_type(&self, path: &str, wanted: &str) -> Result<()> {
        until(path, vec![wanted.to_owned()], || self.types(path))
    }

    /// The types of the storages that have the blocks of a file, says the NameNode.
    fn types(&self, path: &str) -> Result<Vec<String>> {
        let blocks = self.fs.blocks(path)?.into_iter();
        Ok(blocks.flat_map(|block| block.types).collect())
    }

    fn volume(&mut self, number: usize) -> PathBuf {
        let mut volumes = self.cluster.node(0).volumes();
        volumes.nth(number).expect("has two").to_owned()
    }

    fn in_memory(&mut self) -> Result<Outcome> {
        self.put_in_memory("/lazy/first", 1)?;
        self.fs.check("/lazy/first", BLOCK, 1)?;
        self.wait_count(COPIED, 1)?;
        expect_eq("written", self.count("RamDiskBytesWrite")?, BLOCK)?;
        self.wait_type("/lazy/first", "RAM_DISK")?;
        passed()
    }

    fn evicted(&mut self) -> Result<Outcome> {
        for n in 2..=4 {
            self.fs.put(&format!("/lazy/{n}"), BLOCK, n, json!({}))?;
        }
        self.wait_count(COPIED, 4)?;
        self.fs.check("/lazy/first", BLOCK, 1)?;
        self.fs.put("/lazy/5", BLOCK, 5, json!({}))?;
        self.wait_type("/lazy/2", "DISK")?;
        self.wait_type("/lazy/first", "RAM_DISK")?;
        self.wait_type("/lazy/5", "RAM_DISK")?;
        expect_eq("evicted", self.count("RamDiskBlocksEvicted")?, 1)?;
        for n in 2..=5 {
            self.fs.check(&format!("/lazy/{n}"), BLOCK, n)?;
        }
        passed()
    }

    fn deleted(&mut self) -> Result<Outcome> {
        self.wait_count(COPIED, 5)?;
        let before = self.cluster.node(0).all_block_files().len();
        self.fs.fs(&["-rm", "-skipTrash", "/lazy/5"])?;
        // Of data and of checksums: two files a copy.
        until("files of both copies", before - 4, || {
            Ok(self.cluster.node(0).all_block_files().len())
        })?;
        passed()
    }

    /// The stock node finds the copies; its directories know no memory that is set aside.
    fn swapped(&mut self) -> Result<Outcome> {
        self.cluster.node(0).kill()?;
        self.cluster.node(0).conf_mut().set(LOCKED, 0);
        self.cluster.swap_node(0, Kind::Apache)?;
        self.cluster.wait_all_live()?;
        self.served("DISK", &WHOLE)?;
        self.cluster.node(0).conf_mut().set(LOCKED, MEMORY);
        self.cluster.swap_node(0, Kind::under_test())?;
        self.cluster.wait_all_live()?;
        self.served("DISK", &WHOLE)?;
        self.put_in_memory("/lazy/6", 6)?;
        passed()
    }

    fn emptied(&mut self) -> Result<Outcome> {
        self.wait_count(COPIED, 1)?;
        self.cluster.node(0).kill()?;
        let memory = self.volume(1);
        std::fs::remove_dir_all(&memory).map_err(TestkitError::file("removing", &memory))?;
        self.cluster.start_node(0)?;
        self.cluster.wait_all_live()?;
        self.served("DISK", &WHOLE)?;
        self.served("DISK", &[("/lazy/6", 6)])?;
        passed()
    }

    /// Stops the node and has this kind go on with its memory, which rests so many seconds between
    /// copies.
    fn hand_over(&mut self, kind: Kind, interval: u64) -> Result<()> {
        self.cluster.node(0).conf_mut().set(INTERVAL, interval);
        self.cluster.swap_node(0, kind)?;
        self.fs.wait_takes_blocks(SOON)
    }

    /// As [`swapped`](Self::swapped), with a stock node that has memory: it copies ours, and ours
    /// serves what it copied, and what it had in memory only. That has no checksums.
    fn stock_copies(&mut self) -> Result<Outcome> {
        if !self.lets_apaches_node_lock() {
            return Ok(Outcome::Skipped(NO_LIBHADOOP.into()));
        }
        let files = [("/lazy/ours", 11), ("/lazy/copied", 12), ("/lazy/bare", 13)];
        let [ours, copied, bare] = files;
        self.hand_over(Kind::under_test(), NEVER)?;
        self.put_in_memory(ours.0, ours.1)?;
        self.hand_over(Kind::Apache, 1)?;
        self.wait_count(COPIED, 1)?;
        self.put_in_memory(copied.0, copied.1)?;
        self.wait_count(COPIED, 2)?;
        self.hand_over(Kind::under_test(), NEVER)?;
        self.served("DISK", &[ours, copied])?;
        self.hand_over(Kind::Apache, NEVER)?;
        self.put_in_memory(bare.0, bare.1)?;
        self.hand_over(Kind::under_test(), 1)?;
        self.served("RAM_DISK", &[bare])?;
        self.wait_count(COPIED, 1)?;
        // Apache's node goes on with the replica in memory or with its copy; ours with the copy.
        self.hand_over(Kind::Apache, NEVER)?;
        self.served("DISK", &[ours, copied])?;
        // It loads its volumes at once, and keeps a replica of both in the one that ends last.
        until("places of the replica", 1, || Ok(self.types(bare.0)?.len()))?;
        self.fs.check(bare.0, BLOCK, bare.1)?;
        self.hand_over(Kind::under_test(), 1)?;
        self.served("DISK", &files)?;
        let verified = self.fs.verify_metas(self.cluster.node(0))?;
        expect(verified >= files.len(), || format!("{verified} are whole"))?;
        passed()
    }

    /// Whether Apache's node, when its turn comes, has the library that it locks memory with.
    fn lets_apaches_node_lock(&mut self) -> bool {
        let native = repository_root().join("target/libhadoop");
        let mut flags: Vec<String> = SMALL_JVM_FLAGS.map(String::from).to_vec();
        flags.push(format!("-Djava.library.path={}", native.display()));
        self.cluster.node(0).set_jvm_flags(flags);
        native.join("libhadoop.so").is_file()
    }

    /// A client with another address than the node's is of another host for nodes of both kinds:
    /// its files go to memory where a key lets them.
    fn others(&mut self) -> Result<Outcome> {
        let mut kinds = vec![Kind::under_test()];
        kinds.extend(self.lets_apaches_node_lock().then_some(Kind::Apache));
        for kind in kinds {
            for (others_too, storage) in [(false, "DISK"), (true, "RAM_DISK")] {
                let conf = self.cluster.node(0).conf_mut();
                conf.set("dfs.datanode.non.local.lazy.persist", others_too);
                self.hand_over(kind, NEVER)?;
                let name = |who| format!("/lazy/{who}-{kind:?}-{others_too}");
                let elsewhere = json!({"conf": {"dfs.client.local.interfaces": "127.0.0.2"}});
                self.fs.put(&name("other"), BLOCK, 21, elsewhere)?;
                self.served(storage, &[(&name("other"), 21)])?;
                self.put_in_memory(&name("local"), 22)?;
            }
        }
        self.hand_over(Kind::under_test(), 1)?;
        passed()
    }

    fn put_in_memory(&self, path: &str, seed: u64) -> Result<()> {
        self.fs.put(path, BLOCK, seed, json!({}))?;
        self.wait_type(path, "RAM_DISK")
    }

    /// Each is in one place, says the NameNode, and its bytes are right.
    fn served(&self, storage: &str, files: &[(&str, u64)]) -> Result<()> {
        for (path, seed) in files {
            self.wait_type(path, storage)?;
            self.fs.check(path, BLOCK, *seed)?;
        }
        Ok(())
    }
}
