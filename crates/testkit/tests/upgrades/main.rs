//! `-upgrade`, rollback and finalize of a whole cluster, the directories changing hands in between;
//! rolling upgrades.

mod leftovers;
mod rolling;

use hayloft_testkit::error::Result;
use hayloft_testkit::node::Kind;
use hayloft_testkit::suite::{expect, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Cluster, Driver, Outcome, Suite, TestkitError};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Block size of the cluster's clients, bytes.
const BLOCK: u64 = 1 << 20;
const NODES: usize = 3;
/// The files before the upgrade: length and seed.
const FILES: [(&str, u64, u64); 3] = [
    ("/kept", 2 * BLOCK + 777, 1),
    ("/deleted", BLOCK, 2),
    ("/cut", 2 * BLOCK, 3),
];

fn main() -> ExitCode {
    Suite::run("upgrades", |suite| {
        let mut on = suite.group(start, |lab, failed| lab.cluster.conclude(failed));
        on.case("before", |lab| lab.before());
        on.case("nodes_follow_an_upgrade", |lab| lab.upgrade());
        on.case("upgraded_directories_change_hands", |lab| {
            lab.change_hands()
        });
        on.case("nodes_roll_back", |lab| lab.roll_back());
        on.case("a_finalized_upgrade_leaves_nothing", |lab| lab.finalize());
        on.case("a_node_that_was_down_is_finalized_later", |lab| {
            lab.finalized_while_down()
        });
        let mut on = suite.group(rolling::single, |lab, failed| lab.cluster.conclude(failed));
        on.case("a_rolling_upgrade_that_is_rolled_back_is_over", |lab| {
            lab.rolled_back()
        });
        on.case("a_namenode_that_is_rolled_back_alone_ends_it", |lab| {
            lab.namenode_rolled_back_alone()
        });
        on.case("a_rolling_upgrade_changes_hands", |lab| lab.changes_hands());
        on.case("what_an_upgrade_leaves_is_told_and_let_go", |lab| {
            lab.left_behind()
        });
        let mut on = suite.group(rolling::pair, |lab, failed| lab.cluster.conclude(failed));
        on.case("a_rolling_upgrade_with_a_standby", |lab| {
            lab.with_a_standby()
        });
        let mut on = suite.group(rolling::federation, |lab, failed| {
            lab.cluster.conclude(failed);
        });
        on.case("a_rolling_upgrade_of_one_pool_of_two", |lab| {
            lab.of_one_pool()
        });
        let mut on = suite.group(rolling::virtual_nodes, |lab, failed| {
            lab.cluster.conclude(failed);
        });
        on.case("a_rolling_upgrade_of_virtual_nodes", |lab| {
            lab.rolled_back()
        });
        Ok(())
    })
}

fn start() -> Result<Lab> {
    let cluster = Cluster::builder("upgrades")
        .nodes(NODES, Kind::Apache)
        .conf("dfs.blocksize", BLOCK)
        .start()?;
    let fs = cluster.driver()?;
    Ok(Lab {
        cluster,
        fs,
        ours: Kind::under_test(),
    })
}

/// The pools' directories on every node.
fn pools(cluster: &Cluster) -> Vec<PathBuf> {
    let volumes = cluster.nodes().flat_map(|node| {
        let sites = node.virtual_nodes();
        let parts = |volume: &Path| match sites.is_empty() {
            true => vec![volume.to_owned()],
            false => sites.iter().map(|site| site.part_of(volume)).collect(),
        };
        let parts = node.volumes().flat_map(parts);
        parts.map(|part| part.join("current")).collect::<Vec<_>>()
    });
    let entries = volumes.flat_map(|v| std::fs::read_dir(v).into_iter().flatten().flatten());
    entries.map(|e| e.path()).filter(|p| p.is_dir()).collect()
}

struct Lab {
    cluster: Cluster,
    fs: Driver,
    ours: Kind,
}

impl Lab {
    fn before(&mut self) -> Result<Outcome> {
        for (path, bytes, seed) in FILES {
            self.fs.put(path, bytes, seed, json!({}))?;
        }
        passed()
    }

    fn check_before(&self) -> Result<()> {
        FILES
            .iter()
            .try_for_each(|(path, bytes, seed)| self.fs.check(path, *bytes, *seed))
    }

    /// Stops everything, then starts the NameNode and nodes of these kinds with these arguments.
    fn start_all(&mut self, namenode: &[&str], kinds: [Kind; NODES], nodes: &[&str]) -> Result<()> {
        self.cluster.namenode(0).start(namenode)?;
        for (index, kind) in kinds.into_iter().enumerate() {
            let node = self.cluster.node(index);
            node.become_kind(kind)?;
            node.set_arguments(nodes);
            self.cluster.start_node_without_waiting(index)?;
        }
        for index in 0..NODES {
            self.cluster.node(index).wait_started()?;
            self.cluster.node(index).set_arguments(&[]);
        }
        self.cluster.wait_all_live()?;
        self.cluster
            .namenode(0)
            .wait_out_of_safe_mode(seconds(60))?;
        // The client's connection may still be that to the NameNode before: one call finds out.
        let _ = self.fs.length("/kept");
        Ok(())
    }

    fn stop_all(&mut self) -> Result<()> {
        for index in 0..NODES {
            self.cluster.node(index).stop()?;
        }
        self.cluster.namenode(0).stop()
    }

    fn expect_previous(&self, wanted: bool) -> Result<()> {
        let pools = pools(&self.cluster);
        expect(pools.len() == NODES, || format!("{pools:?}"))?;
        for pool in pools {
            let there = pool.join("previous").exists();
            expect(there == wanted, || {
                format!("{}: previous: {there}", pool.display())
            })?;
            for name in ["previous.tmp", "removed.tmp"] {
                expect(!pool.join(name).exists(), || {
                    format!("{}: {name} is there", pool.display())
                })?;
            }
        }
        Ok(())
    }

    /// Two of ours and a stock one follow.
    fn upgrade(&mut self) -> Result<Outcome> {
        self.stop_all()?;
        let kinds = [self.ours, self.ours, Kind::Apache];
        self.start_all(&["-upgrade"], kinds, &[])?;
        self.expect_previous(true)?;
        self.check_before()?;
        passed()
    }

    /// One of ours goes on as a stock one and the other way round; every kind of change is made.
    fn change_hands(&mut self) -> Result<Outcome> {
        self.cluster.swap_node(1, Kind::Apache)?;
        self.cluster.swap_node(2, self.ours)?;
        self.cluster.wait_all_live()?;
        self.check_before()?;
        self.fs
            .put("/kept", 100_000, 1, json!({"appendTo": true}))?;
        self.fs.check("/kept", 2 * BLOCK + 100_777, 1)?;
        // The NameNode keeps what was before: the cut block becomes a new one, by block recovery.
        self.fs.fs(&["-truncate", "-w", "1234567", "/cut"])?;
        self.fs.wait_closed("/cut", seconds(60))?;
        self.fs.check("/cut", 1_234_567, 3)?;
        self.fs.put("/new", BLOCK, 4, json!({}))?;
        let doomed = self.fs.blocks("/deleted")?;
        self.fs.fs(&["-rm", "-skipTrash", "/deleted"])?;
        wait::until("the deleted blocks to go", seconds(60), || {
            let left = pools(&self.cluster).into_iter().filter(|pool| {
                doomed.iter().any(|block| {
                    let name = format!("blk_{}", block.id);
                    let dir = pool.join("current/finalized/subdir0/subdir0");
                    dir.join(name).exists()
                })
            });
            Ok(match left.count() {
                0 => Seen::Done(()),
                left => Seen::NotYet(format!("on {left} nodes")),
            })
        })?;
        passed()
    }

    /// The NameNode goes back, and all nodes with it: one by the kind that upgraded it, the others
    /// not.
    fn roll_back(&mut self) -> Result<Outcome> {
        self.stop_all()?;
        // What `namenode -rollback` does after it has asked on the terminal.
        let name = self.cluster.namenode(0).name_dir();
        let (current, previous) = (name.join("current"), name.join("previous"));
        std::fs::remove_dir_all(&current).map_err(TestkitError::file("removing", &current))?;
        std::fs::rename(&previous, &current).map_err(TestkitError::file("renaming", &previous))?;
        let kinds = [self.ours, Kind::Apache, self.ours];
        self.start_all(&[], kinds, &["-rollback"])?;
        self.check_before()?;
        self.fs.wait_healthy("/", seconds(60))?;
        self.expect_previous(false)?;
        passed()
    }

    fn finalize(&mut self) -> Result<Outcome> {
        self.stop_all()?;
        self.start_all(&["-upgrade"], [self.ours; NODES], &[])?;
        self.expect_previous(true)?;
        self.fs.put("/kept", 1, 1, json!({"appendTo": true}))?;
        self.fs.dfsadmin(&["-finalizeUpgrade"])?;
        wait::until("the end of previous", seconds(60), || {
            let left = pools(&self.cluster)
                .into_iter()
                .filter(|p| p.join("previous").exists());
            for node in self.cluster.nodes() {
                self.fs.dfsadmin(&["-triggerBlockReport", &node.ipc()])?;
            }
            Ok(match left.count() {
                0 => Seen::Done(()),
                left => Seen::NotYet(format!("on {left} nodes")),
            })
        })?;
        for index in 0..NODES {
            self.cluster.swap_node(index, Kind::Apache)?;
        }
        self.cluster.wait_all_live()?;
        self.fs.check("/kept", 2 * BLOCK + 778, 1)?;
        self.fs.check("/cut", 2 * BLOCK, 3)?;
        self.fs.wait_healthy("/", seconds(60))?;
        passed()
    }
}
