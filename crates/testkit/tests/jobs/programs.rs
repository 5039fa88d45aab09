//! Programs of others, and what they have to say in the end.

use hayloft_testkit::error::Result;
use hayloft_testkit::files::write_local;
use hayloft_testkit::hadoop::repository_root;
use hayloft_testkit::suite::{expect, passed};
use hayloft_testkit::{Outcome, TestkitError};
use std::path::PathBuf;
use std::process::Command;

/// Programs in Python, and what they are run with.
pub struct Python {
    /// An interpreter with the clients, or why there is none.
    interpreter: std::result::Result<PathBuf, String>,
    /// Arguments of Spark beside the program's.
    pub submit: String,
    /// Variables of its environment beside ours.
    pub env: Vec<(String, String)>,
    /// What `fs.defaultFS` is.
    pub uri: String,
    /// For its files.
    pub dir: PathBuf,
    /// `HADOOP_CONF_DIR`.
    pub conf: PathBuf,
}

impl Python {
    pub fn new(uri: String, dir: PathBuf, conf: PathBuf) -> Self {
        Self {
            interpreter: python_with_clients(),
            submit: String::new(),
            env: Vec::new(),
            uri,
            dir,
            conf,
        }
    }

    /// Runs a Python program that prints `ok` at its end.
    pub fn run(&self, program: &str) -> Result<Outcome> {
        let python = match &self.interpreter {
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
            .envs(self.env.iter().cloned())
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
pub const HDFS_NATIVE: &str = r#"
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

pub const PYSPARK: &str = r#"
import sys
from pyspark.sql import SparkSession, functions as F

uri, path = sys.argv[1:3]
spark = (SparkSession.builder.master("local[2]").appName("hayloft-lab")
         .config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1")
         .config("spark.driver.memory", "700m").config("spark.sql.shuffle.partitions", "4")
         .config("spark.hadoop.fs.defaultFS", uri).getOrCreate())
spark.sparkContext.setLogLevel("ERROR")
n = 200_000
text = F.concat(F.lit("row "), F.col("id")).alias("s")
frame = spark.range(n).select("id", (F.col("id") % 97).alias("k"), text)
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
