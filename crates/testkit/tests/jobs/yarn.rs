//! MapReduce in containers of YARN, over nodes whose hosts have names of their own.

use super::tera_is_sorted;
use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::class;
use hayloft_testkit::node::{Kind, NodeSpec};
use hayloft_testkit::suite::{expect, expect_eq, passed};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::where_processes_run::Place;
use hayloft_testkit::yarn::{FinishedJob, Yarn, YarnSite, YarnWorker};
use hayloft_testkit::{Cluster, Driver, Outcome, TestkitError};
use serde_json::json;
use std::net::Ipv4Addr;
use std::time::Duration;

/// Hosts with a node each; the last one has no NodeManager.
const HOSTS: u8 = 4;
const CONTAINERS: u32 = 3;

pub(crate) struct YarnLab {
    fs: Driver,
    yarn: Option<Yarn>,
    pub cluster: Cluster,
}

fn address(host: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, 11 + host)
}

pub(crate) fn start() -> Result<YarnLab> {
    let mut builder = Cluster::builder("yarn")
        .conf("dfs.blocksize", 4 << 20)
        .conf("dfs.replication", 2);
    for host in 0..HOSTS {
        let mut spec = NodeSpec::new(Kind::under_test());
        spec.conf.set("dfs.datanode.hostname", address(host));
        builder = builder.node(spec);
    }
    let cluster = builder.start()?;
    let workers = (0..HOSTS - 1).map(|host| YarnWorker::at(Place::local_at(address(host))));
    let site = YarnSite {
        dir: cluster.dir().join("yarn"),
        manager: Place::local(),
        workers: workers.collect(),
        containers: CONTAINERS,
        stock_intervals: false,
    };
    let yarn = Yarn::start(cluster.hadoop(), cluster.conf(), site)?;
    Ok(YarnLab {
        fs: cluster.driver()?,
        yarn: Some(yarn),
        cluster,
    })
}

impl YarnLab {
    fn yarn(&self) -> Result<&Yarn> {
        let gone = || TestkitError::Expectation("an earlier case took YARN down".into());
        self.yarn.as_ref().ok_or_else(gone)
    }

    /// Runs a program of one job.
    fn job(&self, class: &str, args: &[&str]) -> Result<FinishedJob> {
        let yarn = self.yarn()?;
        let before = yarn.finished(&self.fs)?.len();
        let run = self.fs.tool_with(class, args, yarn.job_conf())?;
        let logs = yarn.dir().display();
        expect(run.code == 0, || {
            format!("{class} {args:?}: {run:?}; see {logs} and the driver's log")
        })?;
        let mut ended = yarn.finished(&self.fs)?.split_off(before);
        expect_eq("jobs of one program", ended.len(), 1)?;
        let job = ended.remove(0);
        expect(job.succeeded && job.millis > 0, || format!("{job:?}"))?;
        Ok(job)
    }

    /// 200,000 records of 100 bytes in two files: six blocks.
    pub(crate) fn tera(&self) -> Result<Outcome> {
        let class = |name: &str| format!("org.apache.hadoop.examples.terasort.{name}");
        let wrote = self.job(&class("TeraGen"), &["200000", "/tera/in"])?;
        expect_eq("records", wrote.counter("MAP_OUTPUT_RECORDS"), 200_000)?;
        let sort = self.job(&class("TeraSort"), &["/tera/in", "/tera/out"])?;
        expect_eq("records", sort.counter("REDUCE_OUTPUT_RECORDS"), 200_000)?;
        let [local, rack, other, all] = [
            "DATA_LOCAL_MAPS",
            "RACK_LOCAL_MAPS",
            "OTHER_LOCAL_MAPS",
            "TOTAL_LAUNCHED_MAPS",
        ]
        .map(|name| sort.counter(name));
        // Two replicas on four hosts: one at least is beside a NodeManager. But schedulers do not
        // wait for ever.
        expect(local * 2 >= all && all >= 6, || format!("{local} of {all}"))?;
        expect_eq(
            "local, of the rack and other maps",
            local + rack + other,
            all,
        )?;
        println!("  maps of the sort: {local} of {all} beside their data");
        self.job(&class("TeraValidate"), &["/tera/out", "/tera/report"])?;
        tera_is_sorted(&self.fs)
    }

    /// The last case: YARN is gone after it, and with it tasks that would sleep on.
    pub(crate) fn containers_end_with_it(&mut self) -> Result<Outcome> {
        let mut request = self.yarn()?.job_conf();
        request["conf"]["mapreduce.job.name"] = json!("sleep");
        let arguments = ["-m", "2", "-r", "1", "-mt", "600000", "-rt", "1"];
        let _pending = self.fs.begin_tool(class::SLEEP, &arguments, request)?;
        let marked = self.yarn()?.dir().display().to_string();
        let tasks = || processes(&[&marked, "YarnChild"]).len();
        wait::until("two tasks", Duration::from_secs(120), || {
            let now = tasks();
            Ok(match now {
                0 | 1 => Seen::NotYet(now.to_string()),
                _ => Seen::Done(()),
            })
        })?;
        drop(self.yarn.take());
        expect_eq("processes of YARN", processes(&[&marked]), Vec::new())?;
        passed()
    }
}

/// Processes whose command lines hold all of this.
fn processes(holding: &[&str]) -> Vec<String> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let lines = entries.filter_map(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        Some(String::from_utf8_lossy(&line).into_owned())
    });
    lines
        .filter(|line| holding.iter().all(|part| line.contains(part)))
        .collect()
}
