//! A cluster with cold files and others, and `hayloft cold scan` run on it.

use super::BLOCK;
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::hadoop::{class, hayloft_binary};
use hayloft_testkit::node::Kind;
use hayloft_testkit::suite::{expect, expect_eq};
use hayloft_testkit::{Cluster, Driver, NodeSpec};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

/// When cold files were last used, for `hadoop fs -touch -t`.
pub const LONG_AGO: &str = "20200101:000000";
/// Every path with what `hdfs storagepolicies` says of it before anything is changed.
pub const NO_POLICY: &str = "unspecified";

pub struct Lab {
    pub fs: Driver,
    pub cluster: Cluster,
    pub image: Option<PathBuf>,
}

/// One `hayloft cold scan`, or a pass of `hayloft cold watch`.
pub struct Scan {
    pub code: Option<i32>,
    pub answer: Value,
    pub said: String,
}

/// Below `/data`: a wholly cold tree, a directory with a policy of its own, single cold files, and
/// files in use.
pub const COLD_FILES: [&str; 6] = [
    "/data/old/a",
    "/data/old/b",
    "/data/old/deep/c",
    "/data/hot/x",
    "/data/mixed/old",
    "/data/single",
];
pub const WARM_FILES: [&str; 2] = ["/data/mixed/new", "/data/new"];
/// Those whose policies are compared.
pub const PATHS: [&str; 8] = [
    "/data",
    "/data/old",
    "/data/old/deep",
    "/data/hot",
    "/data/mixed",
    "/data/mixed/old",
    "/data/single",
    "/data/new",
];

pub fn start() -> Result<Lab> {
    let cluster = Cluster::builder("cold")
        .node(NodeSpec::new(Kind::under_test()))
        .conf("dfs.replication", 1)
        .conf("dfs.blocksize", BLOCK)
        // Listings in pages of two.
        .conf("dfs.ls.limit", 2)
        // Access times to the millisecond; a read in the test shows.
        .conf("dfs.namenode.accesstime.precision", 1)
        .start()?;
    let fs = cluster.driver()?;
    for (seed, path) in (1..).zip(COLD_FILES.iter().chain(&WARM_FILES)) {
        fs.put(path, 100_000, seed, json!({}))?;
    }
    let lab = Lab {
        fs,
        cluster,
        image: None,
    };
    lab.policy("-setStoragePolicy", "/data/hot", Some("HOT"))?;
    lab.policy("-setStoragePolicy", "/data/single", Some("ONE_SSD"))?;
    lab.age()?;
    Ok(lab)
}

impl Lab {
    /// Makes cold what is to be cold; directories last, because their own times change with what is
    /// added to them.
    pub fn age(&self) -> Result<()> {
        let dirs = ["/data/old/deep", "/data/old", "/data/hot", "/data/mixed"];
        let mut args = vec!["-touch", "-c", "-t", LONG_AGO];
        args.extend(COLD_FILES.iter().chain(&dirs));
        self.fs.fs(&args).map(drop)
    }

    pub fn policy(&self, command: &str, path: &str, policy: Option<&str>) -> Result<String> {
        let mut args = vec![command, "-path", path];
        if let Some(policy) = policy {
            args.extend(["-policy", policy]);
        }
        Ok(self.fs.tool(class::STORAGE_POLICIES, &args)?.ok()?.out)
    }

    /// The policies of [`PATHS`], as `hdfs storagepolicies` names them.
    pub fn policies(&self) -> Result<Vec<String>> {
        let name = |path: &&str| {
            let said = self.policy("-getStoragePolicy", path, None)?;
            let name = said.split_once("BlockStoragePolicy{").map(|(_, rest)| {
                let name = rest.split([':', ',']).next().unwrap_or_default();
                name.trim().to_owned()
            });
            Ok(name.unwrap_or_else(|| NO_POLICY.to_owned()))
        };
        PATHS.iter().map(name).collect()
    }

    pub fn scan_as(&self, user: Option<&str>, words: &[&str]) -> Result<Scan> {
        cold_scan(&self.cluster.client_conf_dir(), user, words)
    }

    pub fn scan(&self, words: &[&str]) -> Result<Scan> {
        let usual = ["/data", "--older-than", "180d"];
        let scan = self.scan_as(None, &[&usual, words].concat())?;
        expect(scan.code == Some(0), || scan.said.clone())?;
        Ok(scan)
    }

    /// A name for an undo file, which is not there yet.
    pub fn undo_file(&self, name: &str) -> String {
        self.cluster.dir().join(name).display().to_string()
    }

    pub fn fetch_image(&mut self) -> Result<PathBuf> {
        for args in [
            &["-safemode", "enter"][..],
            &["-saveNamespace"],
            &["-safemode", "leave"],
        ] {
            self.fs.dfsadmin(args)?;
        }
        let dir = self.cluster.dir().join("image");
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir(&dir).map_err(TestkitError::file("creating", &dir))?;
        self.fs
            .dfsadmin(&["-fetchImage", &dir.display().to_string()])?;
        let entries = std::fs::read_dir(&dir).map_err(TestkitError::file("listing", &dir))?;
        let mut files = entries.filter_map(|entry| Some(entry.ok()?.path()));
        files
            .find(|path| path.extension().is_none_or(|extension| extension != "md5"))
            .ok_or_else(|| TestkitError::Expectation("no image was fetched".to_owned()))
    }
}

/// `hayloft cold` and these words, with a configuration.
pub fn cold(conf: &Path, words: &[&str]) -> Result<Command> {
    let mut command = Command::new(hayloft_binary()?);
    command.arg("cold").args(words).arg("--conf").arg(conf);
    Ok(command)
}

/// Runs `hayloft cold scan` with a configuration, as a user.
pub fn cold_scan(conf: &Path, user: Option<&str>, words: &[&str]) -> Result<Scan> {
    run(cold(conf, &[&["scan"], words].concat())?, user)
}

/// Runs a command as a user, to its end.
pub fn run(mut command: Command, user: Option<&str>) -> Result<Scan> {
    if let Some(user) = user {
        command.env("HADOOP_USER_NAME", user);
    }
    let binary = hayloft_binary()?;
    let ran = command.output();
    let ran = ran.map_err(TestkitError::file("running", &binary))?;
    Ok(Scan {
        code: ran.status.code(),
        answer: serde_json::from_slice(&ran.stdout).unwrap_or(Value::Null),
        said: format!(
            "{}{}",
            String::from_utf8_lossy(&ran.stdout),
            String::from_utf8_lossy(&ran.stderr)
        ),
    })
}

/// What a scan of the tree as [`start`] makes it finds.
pub fn check_found(answer: &Value) -> Result<()> {
    let found = &answer["found"];
    let total = &found["total"];
    for (what, number, wanted) in [
        ("files", &total["files"], 8),
        ("bytes", &total["bytes"], 800_000),
        ("cold files", &total["cold_files"], 6),
        ("cold bytes", &total["cold_bytes"], 600_000),
        ("settled files", &total["settled_files"], 0),
        ("whole directories", &found["target_directories"], 2),
        ("files in them", &found["target_directories_files"], 4),
        ("single files", &found["target_files"], 2),
    ] {
        expect_eq(what, number.as_u64(), Some(wanted))?;
    }
    expect_eq("cold by", found["cold_by"].as_str(), Some("access"))?;
    let dirs = found["directories"].as_array().cloned().unwrap_or_default();
    let whole = |dir: &&Value| dir["wholly_cold"] == true;
    let mut whole: Vec<&str> = dirs
        .iter()
        .filter(whole)
        .filter_map(|dir| dir["path"].as_str())
        .collect();
    whole.sort_unstable();
    expect_eq(
        "wholly cold",
        whole,
        vec!["/data/hot", "/data/old", "/data/old/deep"],
    )
}
