//! Whole programs over the nodes: MapReduce, TestDFSIO, Spark, and a client without a JVM.

mod pfs;
mod yarn;

use hayloft_testkit::error::Result;
use hayloft_testkit::files::write_local;
use hayloft_testkit::hadoop::{class, repository_root};
use hayloft_testkit::node::Kind;
use hayloft_testkit::suite::{expect, passed};
use hayloft_testkit::{Cluster, Driver, Outcome, Suite, TestkitError};
use std::path::PathBuf;
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    Suite::run("jobs", |suite| {
        let mut on = suite.group(start, |lab, failed| lab.conclude(failed));
        on.case("teragen_terasort_teravalidate", |lab| lab.tera());
        on.case("grep", |lab| lab.grep());
        on.case("testdfsio", |lab| lab.testdfsio());
        on.case("hdfs_native", |lab| lab.python(HDFS_NATIVE));
        on.case("pyspark", |lab| lab.python(PYSPARK));
        on.case("healthy_at_the_end", |lab| {
            lab.fs.expect_healthy("/")?;
            passed()
        });
        let mut on = suite.group(pfs::start, |_, _| ());
        on.case("pfs_tera", |lab| pfs::on(lab, Lab::tera));
        on.case("pfs_testdfsio", |lab| pfs::on(lab, Lab::testdfsio));
        on.case("pfs_pyspark", |lab| pfs::on(lab, |lab| lab.python(PYSPARK)));
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
    Ok(Lab {
        fs: cluster.driver()?,
        uri: cluster.namenode(0).uri(),
        dir: cluster.dir().to_path_buf(),
        conf: cluster.client_conf_dir(),
        python: python_with_clients(),
        submit: String::new(),
        cluster: Some(cluster),
    })
}

struct Lab {
    fs: Driver,
    /// None where no node serves the files.
    cluster: Option<Cluster>,
    /// An interpreter with the clients, or why there is none.
    python: std::result::Result<PathBuf, String>,
    /// Arguments of Spark beside the program's.
    submit: String,
    uri: String,
    dir: PathBuf,
    conf: PathBuf,
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
        let here = Driver::local_jobs(&self.dir.join("mapred"));
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
        let path = self.dir.join("hay.txt");
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
        let result = self.dir.join("testdfsio.log").display().to_string();
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

    /// Runs a Python program that prints `ok` at its end.
    fn python(&self, program: &str) -> Result<Outcome> {
        let python = match &self.python {
            Ok(python) => python,
            Err(reason) => return Ok(Outcome::Skipped(reason.clone())),
        };
        let script = self.dir.join("program.py");
        std::fs::write(&script, program).map_err(TestkitError::file("writing", &script))?;
        let big = self.dir.join("big.bin");
        write_local(&big, 9_000_001, 5)?;
        let output = Command::new(python)
            .arg(&script)
            .arg(&self.uri)
            .arg(&big)
            .env("HADOOP_CONF_DIR", &self.conf)
            .env("SPARK_LOCAL_DIRS", self.dir.join("spark"))
            .env("SPARK_LOCAL_IP", "127.0.0.1")
            .env(
                "PYSPARK_SUBMIT_ARGS",
                format!("{} pyspark-shell", self.submit),
            )
            .output()
            .map_err(TestkitError::file("running", python))?;
        let out = String::from_utf8_lossy(&output.stdout);
        let err = String::from_utf8_lossy(&output.stderr);
        expect(
            output.status.success() && out.trim_end().ends_with("ok"),
            || format!("{out}\n{err}"),
        )?;
        passed()
    }
}

/// The interpreter that `scripts/fetch-python` makes once; else the reason why there is none.
fn python_with_clients() -> std::result::Result<PathBuf, String> {
    let script = repository_root().join("scripts/fetch-python");
    let output = Command::new(&script)
        .output()
        .map_err(|e| format!("{}: {e}", script.display()))?;
    if output.status.success() {
        let said = String::from_utf8_lossy(&output.stdout);
        return Ok(PathBuf::from(said.trim_end()));
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(text.lines().last().unwrap_or("failed").to_owned())
}

const HDFS_NATIVE: &str = r#"
import sys
from hdfs_native import Client, WriteOptions

uri, path = sys.argv[1:3]
client = Client(uri)
data = open(path, "rb").read()
with client.create("/native.bin", WriteOptions(block_size=1 << 20, overwrite=True)) as out:
    for at in range(0, len(data), 700_001):
        out.write(data[at:at + 700_001])
with client.read("/native.bin") as inp:
    assert inp.read(-1) == data, "whole file"
with client.read("/native.bin") as inp:
    for at, n in [(0, 1), (511, 3), (1 << 20, 100), ((1 << 20) - 1, 70_000), (len(data) - 5, 5)]:
        assert inp.read_range(at, n) == data[at:at + n], (at, n)
with client.append("/native.bin") as out:
    out.write(b"tail of it")
with client.read("/native.bin") as inp:
    assert inp.read(-1) == data + b"tail of it", "after append"
print("ok")
"#;

const PYSPARK: &str = r#"
import sys
from pyspark.sql import SparkSession, functions as F

uri, path = sys.argv[1:3]
spark = (SparkSession.builder.master("local[2]").appName("hayloft-lab")
         .config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1")
         .config("spark.driver.memory", "700m").config("spark.sql.shuffle.partitions", "4")
         .config("spark.hadoop.fs.defaultFS", uri).getOrCreate())
spark.sparkContext.setLogLevel("ERROR")
n = 200_000
frame = spark.range(n).select("id", (F.col("id") % 97).alias("k"), F.concat(F.lit("row "), F.col("id")).alias("s"))
frame.write.mode("overwrite").parquet("/spark/p")
back = spark.read.parquet("/spark/p")
assert back.count() == n
assert back.agg(F.sum("id")).first()[0] == n * (n - 1) // 2
assert back.where("k = 5").count() == frame.where("k = 5").count()
assert back.groupBy("k").count().count() == 97
frame.select("s").write.mode("overwrite").text("/spark/t")
assert spark.read.text("/spark/t").distinct().count() == n
frame.write.mode("append").parquet("/spark/p")
assert spark.read.parquet("/spark/p").count() == 2 * n
data = spark.read.format("binaryFile").load("/spark/p/*.parquet").select(F.sum("length")).first()[0]
assert data > 0
spark.stop()
print("ok")
"#;
