//! Whole programs over the nodes: MapReduce, TestDFSIO, Spark, and a client without a JVM.

mod pfs;
mod programs;
mod yarn;

use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::class;
use hayloft_testkit::node::Kind;
use hayloft_testkit::suite::{expect, passed};
use hayloft_testkit::{Cluster, Driver, Outcome, Suite, TestkitError};
use programs::{HDFS_NATIVE, PYSPARK, Python};
use std::process::ExitCode;

fn main() -> ExitCode {
    Suite::run("jobs", |suite| {
        let mut on = suite.group(start, |lab, failed| lab.conclude(failed));
        on.case("teragen_terasort_teravalidate", |lab| lab.tera());
        on.case("grep", |lab| lab.grep());
        on.case("testdfsio", |lab| lab.testdfsio());
        on.case("hdfs_native", |lab| lab.python.run(HDFS_NATIVE));
        on.case("pyspark", |lab| lab.python.run(PYSPARK));
        on.case("healthy_at_the_end", |lab| {
            lab.fs.expect_healthy("/")?;
            passed()
        });
        let mut on = suite.group(pfs::start, |_, _| ());
        on.case("pfs_tera", |lab| pfs::on(lab, Lab::tera));
        on.case("pfs_testdfsio", |lab| pfs::on(lab, Lab::testdfsio));
        on.case("pfs_pyspark", |lab| {
            pfs::on(lab, |lab| lab.python.run(PYSPARK))
        });
        let mut on = suite.group(yarn::start, |lab, failed| lab.cluster.conclude(failed));
        on.case("yarn_tera", |lab| lab.tera());
        on.case("yarn_containers_end_with_it", |lab| {
            lab.containers_end_with_it()
        });
        Ok(())
    })
}

fn start() -> Result<Lab> {
    let mut cluster = Cluster::builder("jobs")
        .nodes(3, Kind::under_test())
        .conf("dfs.blocksize", 4 << 20)
        .conf("dfs.replication", 2)
        .start()?;
    let uri = cluster.namenode(0).uri();
    Ok(Lab {
        fs: cluster.driver()?,
        python: Python::new(uri, cluster.dir().to_path_buf(), cluster.client_conf_dir()),
        cluster: Some(cluster),
    })
}

struct Lab {
    fs: Driver,
    /// None where no node serves the files.
    cluster: Option<Cluster>,
    python: Python,
}

/// What TeraValidate said of `/tera/out`: one line with the sum of all keys when it is sorted,
/// lines about errors otherwise.
fn tera_is_sorted(fs: &Driver) -> Result<Outcome> {
    let report = fs.fs(&["-cat", "/tera/report/part-r-00000"])?;
    expect(
        report.starts_with("checksum") && report.lines().count() == 1,
        || report,
    )?;
    passed()
}

impl Lab {
    fn conclude(self, failed: bool) {
        if let Some(cluster) = self.cluster {
            cluster.conclude(failed);
        }
    }

    fn job(&self, class: &str, args: &[&str]) -> Result<String> {
        let here = Driver::local_jobs(&self.python.dir.join("mapred"));
        let run = self.fs.tool_with(class, args, here)?;
        expect(run.code == 0, || {
            format!("{class} {args:?}: {}\n{}{}", run.code, run.out, run.err)
        })?;
        Ok(run.out)
    }

    /// 200,000 records of 100 bytes: several blocks, several maps.
    fn tera(&self) -> Result<Outcome> {
        let class = |name: &str| format!("org.apache.hadoop.examples.terasort.{name}");
        self.job(&class("TeraGen"), &["200000", "/tera/in"])?;
        let sizes = self.fs.fs(&["-du", "-s", "/tera/in"])?;
        expect(sizes.starts_with("20000000 "), || sizes)?;
        self.job(&class("TeraSort"), &["/tera/in", "/tera/out"])?;
        self.job(&class("TeraValidate"), &["/tera/out", "/tera/report"])?;
        tera_is_sorted(&self.fs)
    }

    fn grep(&self) -> Result<Outcome> {
        let text: String = (0..50_000)
            .map(|i| {
                if i % 10 == 0 {
                    "a needle here\n"
                } else {
                    "only hay\n"
                }
            })
            .collect();
        let path = self.python.dir.join("hay.txt");
        std::fs::write(&path, text).map_err(TestkitError::file("writing", &path))?;
        self.fs.fs(&["-mkdir", "/hay"])?;
        self.fs
            .fs(&["-put", &path.display().to_string(), "/hay/hay.txt"])?;
        self.job(
            "org.apache.hadoop.examples.Grep",
            &["/hay", "/found", "need[a-z]+"],
        )?;
        let found = self.fs.fs(&["-cat", "/found/part-r-00000"])?;
        expect(found == "5000\tneedle\n", || found)?;
        passed()
    }

    fn testdfsio(&self) -> Result<Outcome> {
        let result = self.python.dir.join("testdfsio.log").display().to_string();
        let class = class::TEST_DFSIO;
        for mode in ["-write", "-read", "-append"] {
            self.job(
                class,
                &[mode, "-nrFiles", "3", "-size", "6MB", "-resFile", &result],
            )?;
        }
        let log =
            std::fs::read_to_string(&result).map_err(TestkitError::file("reading", &result))?;
        expect(log.matches("Throughput mb/sec").count() == 3, || {
            log.clone()
        })?;
        self.job(class, &["-clean"])?;
        passed()
    }
}
