//! The administrator's commands on a node: `hdfs dfsadmin` against its IPC port.
//!
//! What is expected here is what the stock DataNode says; `HAYLOFT_LAB_PEER=apache` proves it.

use hayloft_testkit::driver::ToolRun;
use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::class;
use hayloft_testkit::node::Kind;
use hayloft_testkit::suite::{expect, passed, seconds};
use hayloft_testkit::{Cluster, Driver, Outcome, Suite, TestkitError};
use serde_json::json;
use std::process::ExitCode;

fn main() -> ExitCode {
    Suite::run("admin", |suite| {
        let mut on = suite.group(start, |lab, failed| lab.cluster.conclude(failed));
        on.case("datanode_info", |lab| lab.datanode_info());
        on.case("volume_report", |lab| lab.volume_report());
        on.case("only_superusers_administer", |lab| lab.only_superusers());
        on.case("block_report_on_demand", |lab| lab.block_report());
        on.case("block_pool_in_use_is_not_deleted", |lab| {
            lab.delete_block_pool()
        });
        on.case("writers_survive_eviction", |lab| lab.evict_writers());
        on.case("reconfigure_throttles_and_limits", |lab| lab.reconfigure());
        on.case("reconfigure_refuses_bad_values", |lab| lab.bad_values());
        on.case("volumes_come_and_go_while_running", |lab| lab.hot_swap());
        on.case("a_volume_that_cannot_be_added", |lab| lab.bad_volume());
        on.case("shutdown_by_command", |lab| lab.shutdown(&[]));
        on.case("shutdown_for_upgrade", |lab| lab.shutdown(&["upgrade"]));
        Ok(())
    })
}

fn start() -> Result<Lab> {
    let cluster = Cluster::builder("admin")
        .nodes(2, Kind::under_test())
        .conf("dfs.replication", 2)
        .start()?;
    let driver = cluster.driver()?;
    Ok(Lab {
        fs: driver,
        cluster,
    })
}

struct Lab {
    fs: Driver,
    cluster: Cluster,
}

fn says(text: &str, part: &str) -> Result<()> {
    expect(text.contains(part), || format!("no {part:?} in: {text}"))
}

impl Lab {
    fn ipc(&mut self) -> String {
        self.cluster.node(0).ipc()
    }

    fn admin(&self, args: &[&str]) -> Result<ToolRun> {
        self.fs.tool(class::DFSADMIN, args)
    }

    fn datanode_info(&mut self) -> Result<Outcome> {
        let ipc = self.ipc();
        let info = self.fs.dfsadmin(&["-getDatanodeInfo", &ipc])?;
        says(&info, "Uptime: ")?;
        says(&info, "Software version: 3.5.0")?;
        says(&info, "Config version: core-3.0.0,hdfs-1")?;
        passed()
    }

    fn volume_report(&mut self) -> Result<Outcome> {
        let ipc = self.ipc();
        self.fs.put("/volume-report", 3 << 20, 1, json!({}))?;
        let report = self.fs.dfsadmin(&["-getVolumeReport", &ipc])?;
        says(&report, "Active Volumes : 1")?;
        says(&report, "StorageType: DISK")?;
        says(&report, "Capacity Used: ")?;
        says(&report, "Capacity Left: ")?;
        says(&report, "Capacity Reserved: 0(0 B)")?;
        says(&report, "Blocks: 1")?;
        let path = self
            .cluster
            .node(0)
            .volumes()
            .next()
            .map(|path| path.display().to_string());
        says(
            &report,
            &format!("Directory: {}\n", path.unwrap_or_default()),
        )?;
        passed()
    }

    fn only_superusers(&mut self) -> Result<Outcome> {
        let ipc = self.ipc();
        let stranger = json!({ "user": "nobody-special" });
        let refused: [&[&str]; 7] = [
            &["-getVolumeReport", &ipc],
            &["-triggerBlockReport", &ipc],
            &["-evictWriters", &ipc],
            &["-refreshNamenodes", &ipc],
            &["-shutdownDatanode", &ipc],
            &["-deleteBlockPool", &ipc, "BP-1-127.0.0.1-1", "force"],
            &["-reconfig", "datanode", &ipc, "start"],
        ];
        for args in refused {
            let run = self.fs.tool_with(class::DFSADMIN, args, stranger.clone())?;
            expect(run.code != 0, || {
                format!("{args:?} was carried out: {run:?}")
            })?;
            let output = format!("{}{}", run.out, run.err);
            says(&output, "Permission denied")?;
        }
        for args in [
            ["-getDatanodeInfo", ipc.as_str()],
            ["-getBalancerBandwidth", ipc.as_str()],
        ] {
            self.fs
                .tool_with(class::DFSADMIN, &args, stranger.clone())?
                .ok()?;
        }
        passed()
    }

    fn block_report(&mut self) -> Result<Outcome> {
        let ipc = self.ipc();
        let namenode = self.cluster.namenode(0).rpc();
        self.fs.dfsadmin(&["-triggerBlockReport", &ipc])?;
        self.fs
            .dfsadmin(&["-triggerBlockReport", "-incremental", &ipc])?;
        self.fs
            .dfsadmin(&["-triggerBlockReport", &ipc, "-namenode", &namenode])?;
        passed()
    }

    fn delete_block_pool(&mut self) -> Result<Outcome> {
        let ipc = self.ipc();
        self.fs.put("/in-use", 1000, 1, json!({}))?;
        let pool = self.pool()?;
        let run = self.admin(&["-deleteBlockPool", &ipc, &pool])?;
        expect(run.code != 0, || format!("{run:?}"))?;
        says(
            &run.err,
            "The block pool is still running. First do a refreshNamenodes to shutdown the block \
                pool service",
        )?;
        let run = self.admin(&["-deleteBlockPool", &ipc, "BP-none-127.0.0.1-1", "force"])?;
        run.ok()?;
        self.fs.check("/in-use", 1000, 1)?;
        passed()
    }

    /// Id of the one block pool, from the node's directory.
    fn pool(&mut self) -> Result<String> {
        let volume = self
            .cluster
            .node(0)
            .volumes()
            .next()
            .map(|path| path.join("current"));
        let current = volume.unwrap_or_default();
        let entries =
            std::fs::read_dir(&current).map_err(TestkitError::file("listing", &current))?;
        entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .find(|name| name.starts_with("BP-"))
            .ok_or_else(|| {
                TestkitError::Expectation(format!("no block pool in {}", current.display()))
            })
    }

    fn evict_writers(&mut self) -> Result<Outcome> {
        let ipc = self.ipc();
        self.fs.create("evicted", "/evicted", 5, json!({}))?;
        self.fs.write("evicted", 100_000)?;
        self.fs.handle("hflush", "evicted")?;
        self.fs.dfsadmin(&["-evictWriters", &ipc])?;
        self.fs.write("evicted", 100_000)?;
        self.fs.handle("close", "evicted")?;
        self.fs.check("/evicted", 200_000, 5)?;
        passed()
    }

    /// Starts a reconfiguration and waits for its end; what `status` says then.
    fn reconfigured(&mut self) -> Result<String> {
        self.cluster.rewrite_node_conf(0)?;
        let ipc = self.ipc();
        self.fs.reconfigure(&ipc, seconds(30))
    }

    fn reconfigure(&mut self) -> Result<Outcome> {
        let ipc = self.ipc();
        let properties = self
            .fs
            .dfsadmin(&["-reconfig", "datanode", &ipc, "properties"])?;
        for key in [
            "dfs.datanode.data.dir",
            "dfs.datanode.max.transfer.threads",
            "dfs.blockreport.intervalMsec",
            "dfs.datanode.balance.max.concurrent.moves",
            "dfs.datanode.data.write.bandwidthPerSec",
            "dfs.disk.balancer.enabled",
            "fs.du.interval",
        ] {
            says(&properties, key)?;
        }
        let before = self.admin(&["-reconfig", "datanode", &ipc, "status"])?;
        says(&before.out, "no task was found")?;
        self.cluster
            .node(0)
            .conf_mut()
            .set("dfs.datanode.max.transfer.threads", 321)
            .set("dfs.blockreport.intervalMsec", 7_200_000)
            .set("dfs.datanode.data.write.bandwidthPerSec", 50_000_000);
        let status = self.reconfigured()?;
        says(
            &status,
            "SUCCESS: Changed property dfs.datanode.max.transfer.threads",
        )?;
        says(&status, "From: \"4096\"")?;
        says(&status, "To: \"321\"")?;
        says(
            &status,
            "SUCCESS: Changed property dfs.blockreport.intervalMsec",
        )?;
        says(
            &status,
            "SUCCESS: Changed property dfs.datanode.data.write.bandwidthPerSec",
        )?;
        self.fs.put("/after-reconfigure", 1 << 20, 3, json!({}))?;
        self.fs.check("/after-reconfigure", 1 << 20, 3)?;
        let status = self.reconfigured()?;
        expect(!status.contains("SUCCESS"), || {
            format!("nothing has changed: {status}")
        })?;
        passed()
    }

    fn bad_values(&mut self) -> Result<Outcome> {
        let key = "dfs.datanode.max.transfer.threads";
        self.cluster.node(0).conf_mut().set(key, "many");
        let status = self.reconfigured()?;
        says(&status, &format!("FAILED: Change property {key}"))?;
        self.cluster.node(0).conf_mut().set(key, 321);
        let status = self.reconfigured()?;
        expect(!status.contains(key), || {
            format!("the old value was kept: {status}")
        })?;
        passed()
    }

    fn hot_swap(&mut self) -> Result<Outcome> {
        let ipc = self.ipc();
        let added = self.cluster.dir().join("added-volume");
        self.cluster.node(0).add_volume(Some("SSD"), &added);
        let status = self.reconfigured()?;
        says(&status, "SUCCESS: Changed property dfs.datanode.data.dir")?;
        let report = self.fs.dfsadmin(&["-getVolumeReport", &ipc])?;
        says(&report, "Active Volumes : 2")?;
        says(&report, "StorageType: SSD")?;
        self.fs.fs(&["-mkdir", "-p", "/on-ssd"])?;
        self.fs
            .tool(
                "org.apache.hadoop.hdfs.tools.StoragePolicyAdmin",
                &[
                    "-setStoragePolicy",
                    "-path",
                    "/on-ssd",
                    "-policy",
                    "ALL_SSD",
                ],
            )?
            .ok()?;
        self.fs
            .put("/on-ssd/file", 2 << 20, 4, json!({"replication": 1}))?;
        self.fs.check("/on-ssd/file", 2 << 20, 4)?;
        let there = std::fs::read_dir(added.join("current")).is_ok_and(|dir| dir.count() > 1);
        expect(there, || "the new volume has no block pool".to_owned())?;
        self.fs.fs(&["-rm", "-r", "-skipTrash", "/on-ssd"])?;
        self.cluster.node(0).remove_volume(&added);
        let status = self.reconfigured()?;
        says(&status, "SUCCESS: Changed property dfs.datanode.data.dir")?;
        let report = self.fs.dfsadmin(&["-getVolumeReport", &ipc])?;
        says(&report, "Active Volumes : 1")?;
        // Its lock is free again: it can come back, and go.
        self.cluster.node(0).add_volume(Some("SSD"), &added);
        says(&self.reconfigured()?, "SUCCESS: Changed property")?;
        self.cluster.node(0).remove_volume(&added);
        says(&self.reconfigured()?, "SUCCESS: Changed property")?;
        self.fs.check("/volume-report", 3 << 20, 1)?;
        passed()
    }

    fn bad_volume(&mut self) -> Result<Outcome> {
        let ipc = self.ipc();
        let file = self.cluster.dir().join("not-a-directory");
        std::fs::write(&file, "x").map_err(TestkitError::file("writing", &file))?;
        self.cluster.node(0).add_volume(None, &file);
        let status = self.reconfigured()?;
        says(&status, "FAILED TO ADD")?;
        says(&status, "FAILED: Change property dfs.datanode.data.dir")?;
        let report = self.fs.dfsadmin(&["-getVolumeReport", &ipc])?;
        says(&report, "Active Volumes : 1")?;
        self.cluster.node(0).remove_volume(&file);
        self.reconfigured()?;
        self.fs.check("/volume-report", 3 << 20, 1)?;
        passed()
    }

    fn shutdown(&mut self, how: &[&str]) -> Result<Outcome> {
        let ipc = self.ipc();
        let args = [&["-shutdownDatanode", ipc.as_str()], how].concat();
        self.fs.dfsadmin(&args)?;
        self.cluster.node(0).wait_ended(seconds(30))?;
        let run = self.admin(&["-getDatanodeInfo", &ipc])?;
        expect(run.code != 0, || format!("it still answers: {run:?}"))?;
        self.cluster.start_node(0)?;
        self.cluster.wait_all_live()?;
        self.fs.check("/volume-report", 3 << 20, 1)?;
        passed()
    }
}
