//! NameNodes that fail over, restart and are formatted again; several nameservices at once;
//! addresses of their own for nodes.

use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::class;
use hayloft_testkit::node::Kind;
use hayloft_testkit::ports;
use hayloft_testkit::relay::Relay;
use hayloft_testkit::suite::{expect, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Cluster, Driver, NodeSpec, Outcome, Suite};
use serde_json::json;
use std::process::ExitCode;

/// Block size of the clusters' clients, bytes.
const BLOCK: u64 = 1 << 20;
const NODES: usize = 3;

fn main() -> ExitCode {
    Suite::run("ha", |suite| {
        let mut on = suite.group(pair, |lab, failed| lab.cluster.conclude(failed));
        on.case("ha_write_and_read", |lab| lab.plain());
        on.case("ha_failover_during_writes", |lab| {
            lab.failover_during_writes()
        });
        on.case("ha_active_killed_during_writes", |lab| lab.active_killed());
        on.case("ha_standby_knows_every_block", |lab| lab.standby_knows());
        on.case("ha_deletes_and_copies_follow_the_active", |lab| {
            lab.commands_follow()
        });
        on.case("ha_node_restarted_while_one_namenode_is_down", |lab| {
            lab.node_restarted()
        });
        on.case("ha_observer_has_every_block", |lab| lab.observer());
        let mut on = suite.group(federation, |lab, failed| lab.cluster.conclude(failed));
        on.case("federation_two_namespaces", |lab| lab.two());
        on.case("federation_one_namenode_down", |lab| lab.one_down());
        on.case("federation_nodes_restarted", |lab| lab.nodes_restarted());
        on.case("federation_block_pool_deleted", |lab| lab.pool_deleted());
        on.case("federation_one_namenode_formatted_again", |lab| {
            lab.formatted()
        });
        on.case("federation_foreign_cluster_is_refused", |lab| lab.foreign());
        let mut on = suite.group(own_addresses, |lab, failed| lab.cluster.conclude(failed));
        on.case("namenode_address_for_nodes", |lab| lab.for_nodes());
        on.case("lifelines_keep_a_node_alive", |lab| lab.lifelines());
        Ok(())
    })
}

fn pair() -> Result<Pair> {
    let cluster = Cluster::builder("ha")
        .ha()
        .nodes(NODES, Kind::under_test())
        .conf("dfs.blocksize", BLOCK)
        .conf("dfs.client.failover.max.attempts", 60)
        .conf("dfs.client.failover.sleep.max.millis", 1000)
        .start()?;
    let fs = cluster.driver()?;
    let lab = Pair { cluster, fs };
    lab.make_active("nn1", &[])?;
    lab.cluster.wait_all_live()?;
    Ok(lab)
}

struct Pair {
    cluster: Cluster,
    fs: Driver,
}

impl Pair {
    fn haadmin(&self, args: &[&str]) -> Result<String> {
        let args = [&["-ns", "ns1"], args].concat();
        let mut run = self.fs.tool(class::HAADMIN, &args)?;
        if run.err.contains("EOFException") {
            // Over a connection that the client had kept to a NameNode that was restarted since.
            run = self.fs.tool(class::HAADMIN, &args)?;
        }
        Ok(run.ok()?.out)
    }

    fn make_active(&self, id: &str, flags: &[&str]) -> Result<()> {
        self.haadmin(&[&["-transitionToActive"], flags, &[id]].concat())?;
        wait::until(&format!("{id} to be active"), seconds(60), || {
            let state = self.haadmin(&["-getServiceState", id])?;
            Ok(if state.trim() == "active" {
                Seen::Done(())
            } else {
                Seen::NotYet(state)
            })
        })
    }

    fn switch(&self, from: &str, to: &str) -> Result<()> {
        self.haadmin(&["-transitionToStandby", from])?;
        self.make_active(to, &[])
    }

    fn plain(&mut self) -> Result<Outcome> {
        self.fs.put("/plain", 3 * BLOCK + 1, 1, json!({}))?;
        self.fs.check("/plain", 3 * BLOCK + 1, 1)?;
        passed()
    }

    fn failover_during_writes(&mut self) -> Result<Outcome> {
        self.fs.create("w", "/failover", 2, json!({}))?;
        let request =
            json!({"handle": "w", "bytes": 20 * BLOCK, "chunk": 65_536, "pauseMillis": 30});
        let writing = self.fs.begin("loop", request)?;
        let failovers = [("nn1", "nn2", 4), ("nn2", "nn1", 8), ("nn1", "nn2", 12)];
        for (from, to, blocks) in failovers {
            self.fs.wait_acked("w", blocks * BLOCK)?;
            self.switch(from, to)?;
        }
        let end = writing.wait()?;
        expect(end["failure"].is_null(), || end.to_string())?;
        self.fs.handle("close", "w")?;
        self.fs.check("/failover", 20 * BLOCK, 2)?;
        self.fs.check("/plain", 3 * BLOCK + 1, 1)?;
        passed()
    }

    fn active_killed(&mut self) -> Result<Outcome> {
        self.fs.create("w", "/killed", 3, json!({}))?;
        let request =
            json!({"handle": "w", "bytes": 12 * BLOCK, "chunk": 65_536, "pauseMillis": 30});
        let writing = self.fs.begin("loop", request)?;
        self.fs.wait_acked("w", 3 * BLOCK)?;
        self.cluster.namenode(1).kill()?;
        self.make_active("nn1", &["--forceactive"])?;
        let end = writing.wait()?;
        expect(end["failure"].is_null(), || end.to_string())?;
        self.fs.handle("close", "w")?;
        self.fs.check("/killed", 12 * BLOCK, 3)?;
        self.cluster.namenode(1).start(&[])?;
        self.cluster.wait_all_live()?;
        passed()
    }

    /// After a switch the other serves every file at once: it had all reports.
    fn standby_knows(&mut self) -> Result<Outcome> {
        for number in 0..20 {
            self.fs
                .put(&format!("/known-{number}"), 10_000, number, json!({}))?;
        }
        self.switch("nn1", "nn2")?;
        for number in 0..20 {
            self.fs.check(&format!("/known-{number}"), 10_000, number)?;
        }
        self.fs.wait_healthy("/", seconds(60))?;
        passed()
    }

    fn commands_follow(&mut self) -> Result<Outcome> {
        let blocks = |cluster: &Cluster| -> usize {
            cluster
                .nodes()
                .map(|node| node.all_block_files().len())
                .sum()
        };
        self.fs
            .put("/thin", 2 * BLOCK, 4, json!({"replication": 1}))?;
        self.fs.fs(&["-setrep", "3", "/thin"])?;
        self.fs.wait_replicas("/thin", 3, seconds(60))?;
        let before = blocks(&self.cluster);
        self.fs.fs(&["-rm", "-skipTrash", "/thin", "/killed"])?;
        wait::until("the replicas to be deleted", seconds(60), || {
            let now = blocks(&self.cluster);
            // 14 blocks, three replicas each, two files each.
            Ok(if now + 14 * 3 * 2 <= before {
                Seen::Done(())
            } else {
                Seen::NotYet(format!("{before} -> {now}"))
            })
        })?;
        passed()
    }

    fn node_restarted(&mut self) -> Result<Outcome> {
        self.cluster.namenode(0).stop()?;
        self.cluster.node(0).kill()?;
        self.cluster.start_node(0)?;
        self.cluster.namenode(1).wait_live(NODES, seconds(60))?;
        self.fs.put("/one-namenode", BLOCK, 5, json!({}))?;
        self.fs.check("/one-namenode", BLOCK, 5)?;
        self.cluster.namenode(0).start(&[])?;
        self.cluster.wait_all_live()?;
        self.switch("nn2", "nn1")?;
        self.fs.check("/one-namenode", BLOCK, 5)?;
        passed()
    }
}

impl Pair {
    /// An observer gets all reports, also of a node that starts meanwhile: it can be read from.
    fn observer(&mut self) -> Result<Outcome> {
        self.haadmin(&["-transitionToObserver", "nn2"])?;
        let state = self.haadmin(&["-getServiceState", "nn2"])?;
        expect(state.trim() == "observer", || state)?;
        self.fs.put("/observed", 2 * BLOCK + 3, 6, json!({}))?;
        self.cluster.node(0).kill()?;
        self.cluster.start_node(0)?;
        self.cluster.namenode(1).wait_live(NODES, seconds(60))?;
        let there = format!("{}/observed", self.cluster.namenode(1).uri());
        wait::until("all replicas at the observer", seconds(60), || {
            let seen = self.fs.blocks(&there).map(|blocks| {
                let counts: Vec<usize> = blocks.iter().map(|b| b.nodes.len()).collect();
                (counts == [NODES; 3], format!("{counts:?}"))
            });
            Ok(match seen {
                Ok((true, _)) => Seen::Done(()),
                Ok((false, seen)) => Seen::NotYet(seen),
                // The file, or its blocks, are not known there yet.
                Err(error) => Seen::NotYet(error.to_string()),
            })
        })?;
        self.fs.check(&there, 2 * BLOCK + 3, 6)?;
        self.haadmin(&["-transitionToStandby", "nn2"])?;
        self.switch("nn1", "nn2")?;
        self.fs.check("/observed", 2 * BLOCK + 3, 6)?;
        passed()
    }
}

fn federation() -> Result<Federation> {
    let cluster = Cluster::builder("federation")
        .nameservices(2)
        .nodes(2, Kind::under_test())
        .conf("dfs.blocksize", BLOCK)
        .conf("dfs.replication", 2)
        .conf("dfs.client.retry.policy.enabled", true)
        .start()?;
    let fs = cluster.driver()?;
    Ok(Federation { cluster, fs })
}

struct Federation {
    cluster: Cluster,
    fs: Driver,
}

impl Federation {
    fn path(&mut self, service: usize, path: &str) -> String {
        format!("{}{path}", self.cluster.namenode(service).uri())
    }

    fn two(&mut self) -> Result<Outcome> {
        for service in 0..2 {
            let path = self.path(service, "/same-name");
            self.fs
                .put(&path, 2 * BLOCK + 5, service as u64, json!({}))?;
        }
        for service in 0..2 {
            let path = self.path(service, "/same-name");
            self.fs.check(&path, 2 * BLOCK + 5, service as u64)?;
            self.cluster.namenode(service).wait_live(2, seconds(30))?;
        }
        passed()
    }

    fn one_down(&mut self) -> Result<Outcome> {
        self.cluster.namenode(1).kill()?;
        let path = self.path(0, "/alone");
        self.fs.put(&path, 3 * BLOCK, 7, json!({}))?;
        self.fs.check(&path, 3 * BLOCK, 7)?;
        self.cluster.namenode(1).start(&[])?;
        self.cluster.wait_all_live()?;
        let path = self.path(1, "/same-name");
        self.fs.check(&path, 2 * BLOCK + 5, 1)?;
        passed()
    }

    fn nodes_restarted(&mut self) -> Result<Outcome> {
        for node in 0..2 {
            self.cluster.node(node).stop()?;
            self.cluster.start_node(node)?;
        }
        self.cluster.wait_all_live()?;
        for service in 0..2 {
            let path = self.path(service, "/same-name");
            self.fs.check(&path, 2 * BLOCK + 5, service as u64)?;
        }
        passed()
    }

    /// `deleteBlockPool`: refused while the pool is served, then while it holds blocks; by force
    /// its directories go, and the other pool's stay. Back in the configuration, it is filled
    /// again.
    fn pool_deleted(&mut self) -> Result<Outcome> {
        let path = self.path(1, "/same-name");
        let pool = self.fs.blocks(&path)?.remove(0).pool;
        let node = self.cluster.node(0);
        let ipc = node.ipc();
        let dirs: Vec<_> = node
            .volumes()
            .map(|v| v.join("current").join(&pool))
            .collect();
        let delete = |fs: &Driver, force: &[&str]| {
            let args = [&["-deleteBlockPool", &ipc, &pool], force].concat();
            fs.tool(class::DFSADMIN, &args)
        };
        let run = delete(&self.fs, &["force"])?;
        expect(run.code != 0 && run.err.contains("still running"), || {
            format!("a pool in service: {run:?}")
        })?;
        self.cluster
            .node(0)
            .conf_mut()
            .set("dfs.nameservices", "ns1");
        self.cluster.rewrite_node_conf(0)?;
        self.fs.dfsadmin(&["-refreshNamenodes", &ipc])?;
        let run = delete(&self.fs, &[])?;
        expect(run.code != 0 && dirs.iter().all(|dir| dir.is_dir()), || {
            format!("a pool with blocks: {run:?}")
        })?;
        delete(&self.fs, &["force"])?.ok()?;
        expect(dirs.iter().all(|dir| !dir.exists()), || {
            format!("{dirs:?} are still there")
        })?;
        let other = self.path(0, "/same-name");
        self.fs.check(&other, 2 * BLOCK + 5, 0)?;
        self.cluster
            .node(0)
            .conf_mut()
            .set("dfs.nameservices", "ns1,ns2");
        self.cluster.rewrite_node_conf(0)?;
        self.fs.dfsadmin(&["-refreshNamenodes", &ipc])?;
        self.cluster.wait_all_live()?;
        wait::until("the replicas to be copied back", seconds(60), || {
            let files = self.cluster.node(0).all_block_files();
            let back = files
                .iter()
                .filter(|f| dirs.iter().any(|d| f.starts_with(d)));
            Ok(match back.count() {
                6.. => Seen::Done(()),
                other => Seen::NotYet(format!("{other} files")),
            })
        })?;
        self.fs.wait_replicas(&path, 2, seconds(60))?;
        self.fs.check(&path, 2 * BLOCK + 5, 1)?;
        passed()
    }

    /// A new namespace in the same cluster: nodes take its new block pool, the other goes on.
    fn formatted(&mut self) -> Result<Outcome> {
        self.cluster.namenode(1).stop()?;
        self.cluster.namenode(1).format(Some("CID-hayloft-lab"))?;
        self.cluster.namenode(1).start(&[])?;
        let path = self.path(0, "/same-name");
        self.fs.check(&path, 2 * BLOCK + 5, 0)?;
        for node in 0..2 {
            self.cluster.node(node).stop()?;
            self.cluster.start_node(node)?;
        }
        self.cluster.wait_all_live()?;
        let path = self.path(1, "/after-format");
        self.fs.put(&path, BLOCK, 8, json!({}))?;
        self.fs.check(&path, BLOCK, 8)?;
        let path = self.path(0, "/same-name");
        self.fs.check(&path, 2 * BLOCK + 5, 0)?;
        passed()
    }

    /// Another cluster's NameNode at a known address: its namespace is refused, the rest serves.
    fn foreign(&mut self) -> Result<Outcome> {
        self.cluster.namenode(1).stop()?;
        self.cluster.namenode(1).format(Some("CID-somebody-else"))?;
        self.cluster.namenode(1).start(&[])?;
        for node in 0..2 {
            self.cluster.node(node).stop()?;
            self.cluster.start_node(node)?;
        }
        self.cluster.namenode(0).wait_live(2, seconds(60))?;
        // Long enough for a node that would register there.
        std::thread::sleep(seconds(5));
        let live = self.cluster.namenode_bean(1, "FSNamesystemState")?["NumLiveDataNodes"].clone();
        expect(live == 0, || {
            format!("{live} nodes registered with a foreign cluster")
        })?;
        let path = self.path(0, "/same-name");
        self.fs.wait_replicas(&path, 2, seconds(60))?;
        self.fs.check(&path, 2 * BLOCK + 5, 0)?;
        passed()
    }
}

/// A NameNode with an RPC address for nodes only, which the node reaches by a network that can
/// stall, and one for lifelines.
fn own_addresses() -> Result<Addresses> {
    let service = ports::free()?;
    let lifeline = ports::free()?;
    let relay = Relay::to(ports::local(service))?;
    let node =
        NodeSpec::new(Kind::under_test()).conf("dfs.namenode.servicerpc-address", relay.address());
    let cluster = Cluster::builder("addresses")
        .node(node)
        .conf("dfs.replication", 1)
        .conf(
            "dfs.namenode.servicerpc-address",
            format!("127.0.0.1:{service}"),
        )
        .conf(
            "dfs.namenode.lifeline.rpc-address",
            format!("127.0.0.1:{lifeline}"),
        )
        .start()?;
    let fs = cluster.driver()?;
    Ok(Addresses {
        fs,
        cluster,
        relay,
        service,
        lifeline,
    })
}

/// See [`own_addresses`].
struct Addresses {
    fs: Driver,
    cluster: Cluster,
    relay: Relay,
    service: u16,
    lifeline: u16,
}

impl Addresses {
    fn for_nodes(&self) -> Result<Outcome> {
        self.fs.put("/there", BLOCK, 1, json!({}))?;
        self.fs.check("/there", BLOCK, 1)?;
        let bean = format!("RpcDetailedActivityForPort{}", self.service);
        // The NameNode's counters are read out every ten seconds.
        wait::until("heartbeats at the address for nodes", seconds(30), || {
            let count = self.cluster.namenode_bean(0, &bean)?["SendHeartbeatNumOps"].as_u64();
            Ok(match count {
                Some(1..) => Seen::Done(()),
                other => Seen::NotYet(format!("{other:?}")),
            })
        })?;
        // On time as they are, none has to be made up for.
        let bean = format!("RpcDetailedActivityForPort{}", self.lifeline);
        let bean = self.cluster.namenode_bean(0, &bean)?;
        expect(
            bean["SendLifelineNumOps"].as_u64().unwrap_or(0) == 0,
            || "a lifeline came although heartbeats were on time".to_owned(),
        )?;
        passed()
    }

    fn lifelines(&mut self) -> Result<Outcome> {
        self.relay.hold(true);
        // Without a sign of life a node is dead to this NameNode after 12 s.
        for _ in 0..25 {
            std::thread::sleep(seconds(1));
            let live = &self.cluster.namenode_bean(0, "FSNamesystemState")?["NumLiveDataNodes"];
            expect(*live == 1, || "dead for want of lifelines".to_owned())?;
        }
        let bean = format!("RpcDetailedActivityForPort{}", self.lifeline);
        wait::until("lifelines counted", seconds(30), || {
            let count = self.cluster.namenode_bean(0, &bean)?["SendLifelineNumOps"].as_u64();
            Ok(match count {
                Some(2..) => Seen::Done(()),
                other => Seen::NotYet(format!("{other:?}")),
            })
        })?;
        self.relay.hold(false);
        self.fs.put("/again", BLOCK, 2, json!({}))?;
        self.fs.check("/again", BLOCK, 2)?;
        self.cluster.node(0).process()?.check_alive()?;
        passed()
    }
}
