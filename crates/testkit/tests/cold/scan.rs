//! `hayloft cold scan` against a NameNode and its image.

use super::BLOCK;
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::hadoop::{class, hayloft_binary};
use hayloft_testkit::node::Kind;
use hayloft_testkit::suite::{expect, expect_eq, passed};
use hayloft_testkit::{Cluster, Driver, NodeSpec, Outcome, Suite};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

/// When cold files were last used, for `hadoop fs -touch -t`.
const LONG_AGO: &str = "20200101:000000";
/// Every path with what `hdfs storagepolicies` says of it before anything is changed.
const NO_POLICY: &str = "unspecified";

/// Adds the cases.
pub fn cases(suite: &mut Suite) {
    let mut on = suite.group(start, |lab, failed| lab.cluster.conclude(failed));
    on.case("nothing_is_applied_without_an_archive", |lab| {
        lab.no_archive()
    });
    on.case("a_dry_run_counts_and_changes_nothing", |lab| lab.dry_run());
    on.case("an_image_says_the_same", |lab| lab.image());
    on.case("a_stranger_is_refused", |lab| lab.stranger());
    on.case("what_is_cold_gets_the_policy_and_gives_it_back", |lab| {
        lab.apply_and_undo()
    });
    on.case("what_was_read_since_the_image_stays", |lab| {
        lab.used_since_the_image()
    });
    on.case("access_times_that_are_off_are_said", |lab| lab.times_off());
}

struct Lab {
    fs: Driver,
    cluster: Cluster,
    image: Option<PathBuf>,
}

/// One `hayloft cold scan`.
struct Scan {
    code: Option<i32>,
    answer: Value,
    said: String,
}

/// Below `/data`: a wholly cold tree, a directory with a policy of its own, single cold files, and
/// files in use.
const COLD_FILES: [&str; 6] = [
    "/data/old/a",
    "/data/old/b",
    "/data/old/deep/c",
    "/data/hot/x",
    "/data/mixed/old",
    "/data/single",
];
const WARM_FILES: [&str; 2] = ["/data/mixed/new", "/data/new"];
/// Those whose policies are compared.
const PATHS: [&str; 8] = [
    "/data",
    "/data/old",
    "/data/old/deep",
    "/data/hot",
    "/data/mixed",
    "/data/mixed/old",
    "/data/single",
    "/data/new",
];

fn start() -> Result<Lab> {
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
    fn age(&self) -> Result<()> {
        let dirs = ["/data/old/deep", "/data/old", "/data/hot", "/data/mixed"];
        let mut args = vec!["-touch", "-c", "-t", LONG_AGO];
        args.extend(COLD_FILES.iter().chain(&dirs));
        self.fs.fs(&args).map(drop)
    }

    fn policy(&self, command: &str, path: &str, policy: Option<&str>) -> Result<String> {
        let mut args = vec![command, "-path", path];
        if let Some(policy) = policy {
            args.extend(["-policy", policy]);
        }
        Ok(self.fs.tool(class::STORAGE_POLICIES, &args)?.ok()?.out)
    }

    /// The policies of [`PATHS`], as `hdfs storagepolicies` names them.
    fn policies(&self) -> Result<Vec<String>> {
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

    fn scan_as(&self, user: Option<&str>, words: &[&str]) -> Result<Scan> {
        let binary = hayloft_binary()?;
        let mut command = Command::new(&binary);
        command.args(["cold", "scan"]).args(words).arg("--conf");
        command.arg(self.cluster.client_conf_dir());
        if let Some(user) = user {
            command.env("HADOOP_USER_NAME", user);
        }
        let ran = command
            .output()
            .map_err(TestkitError::file("running", &binary))?;
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

    fn scan(&self, words: &[&str]) -> Result<Scan> {
        let usual = ["/data", "--older-than", "180d"];
        let scan = self.scan_as(None, &[&usual, words].concat())?;
        expect(scan.code == Some(0), || scan.said.clone())?;
        Ok(scan)
    }

    /// A name for an undo file, which is not there yet.
    fn undo_file(&self, name: &str) -> String {
        self.cluster.dir().join(name).display().to_string()
    }

    fn no_archive(&mut self) -> Result<Outcome> {
        let undo = self.undo_file("undo-none");
        let words = ["/data", "--older-than=180d", "--live", "--apply"];
        let scan = self.scan_as(None, &[&words[..], &["--undo-file", &undo]].concat())?;
        expect(
            scan.code == Some(2) && scan.said.contains("ARCHIVE"),
            || format!("{:?} {}", scan.code, scan.said),
        )?;
        expect(!Path::new(&undo).exists(), || "an undo file".to_owned())?;
        let volume = self.cluster.dir().join("archive");
        self.cluster.node(0).stop()?;
        self.cluster.node(0).add_volume(Some("ARCHIVE"), &volume);
        self.cluster.start_node(0)?;
        self.cluster.wait_all_live()?;
        passed()
    }

    fn dry_run(&mut self) -> Result<Outcome> {
        let before = self.policies()?;
        let scan = self.scan(&["--live", "--json"])?;
        check_found(&scan.answer)?;
        expect_eq("applied", scan.answer["applied"].clone(), Value::Null)?;
        let scan = self.scan(&["--live"])?;
        for part in [
            "6 of 8 files are cold",
            "/data/old  (wholly)",
            "2 directories",
            "2 single",
        ] {
            expect(scan.said.contains(part), || {
                format!("no {part:?}: {}", scan.said)
            })?;
        }
        expect_eq("policies", self.policies()?, before)?;
        let whole = self.scan_as(None, &["--older-than=180d", "--live", "--json"])?;
        expect_eq("exit code", whole.code, Some(0))?;
        let files = whole.answer["found"]["total"]["cold_files"].as_u64();
        expect_eq("cold files below /", files, Some(6))?;
        let none = self.scan_as(None, &["/none", "--older-than=180d", "--live"])?;
        expect(none.code == Some(2) && none.said.contains("/none"), || {
            none.said
        })?;
        passed()
    }

    fn fetch_image(&mut self) -> Result<PathBuf> {
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

    fn image(&mut self) -> Result<Outcome> {
        // A file that snapshots refer to, and a directory that only a snapshot has.
        self.fs.dfsadmin(&["-allowSnapshot", "/data"])?;
        self.fs.fs(&["-mkdir", "/data/gone"])?;
        self.fs.put("/data/gone/f", 1000, 99, json!({}))?;
        self.fs.fs(&["-createSnapshot", "/data", "s1"])?;
        self.fs.fs(&["-rm", "-r", "-skipTrash", "/data/gone"])?;
        self.fs.fs(&["-mv", "/data/old/deep", "/data/old/moved"])?;
        self.fs.fs(&["-mv", "/data/old/moved", "/data/old/deep"])?;
        self.age()?;
        let image = self.fetch_image()?;
        let path = image.display().to_string();
        let of_image = self.scan(&["--image", &path, "--json"])?;
        check_found(&of_image.answer)?;
        let live = self.scan(&["--live", "--json"])?;
        for part in ["total", "target_directories", "target_files", "directories"] {
            let (image, live) = (&of_image.answer["found"][part], &live.answer["found"][part]);
            let sorted = |value: &Value| {
                let mut list = value
                    .as_array()
                    .cloned()
                    .unwrap_or_else(|| vec![value.clone()]);
                list.sort_by_key(Value::to_string);
                list
            };
            expect_eq(part, sorted(image), sorted(live))?;
        }
        self.image = Some(image);
        passed()
    }

    fn stranger(&mut self) -> Result<Outcome> {
        let undo = self.undo_file("undo-stranger");
        let words = [
            "/data",
            "--older-than=180d",
            "--live",
            "--apply",
            "--undo-file",
            &undo,
        ];
        let scan = self.scan_as(Some("stranger"), &words)?;
        expect(
            scan.code == Some(2) && scan.said.contains("superuser"),
            || format!("{:?} {}", scan.code, scan.said),
        )?;
        expect(!Path::new(&undo).exists(), || "an undo file".to_owned())?;
        passed()
    }

    fn apply_and_undo(&mut self) -> Result<Outcome> {
        let before = self.policies()?;
        let undo = self.undo_file("undo-applied");
        let scan = self.scan(&["--live", "--apply", "--undo-file", &undo])?;
        expect(scan.said.contains("hdfs mover"), || scan.said.clone())?;
        expect(scan.said.contains("4 of 4 "), || scan.said.clone())?;
        let after = self.policies()?;
        let cold: Vec<&str> = PATHS
            .iter()
            .zip(&after)
            .filter(|(_, policy)| *policy == "COLD")
            .map(|(path, _)| *path)
            .collect();
        let wanted = [
            "/data/old",
            "/data/old/deep",
            "/data/hot",
            "/data/mixed/old",
            "/data/single",
        ];
        expect_eq("what is cold", cold, wanted.to_vec())?;
        // Nothing is left to do, and a new file of the directory goes to the archive.
        let again = self.scan(&["--live", "--json"])?;
        let total = &again.answer["found"]["total"];
        expect_eq("cold files", total["cold_files"].as_u64(), Some(0))?;
        expect_eq("settled files", total["settled_files"].as_u64(), Some(6))?;
        let run = self.fs.tool(class::MOVER, &["-p", "/data/old"])?;
        expect(run.code == 0, || {
            format!("{} {}{}", run.code, run.out, run.err)
        })?;
        self.fs.check("/data/old/a", 100_000, 1)?;
        let archive = self.cluster.dir().join("archive");
        let moved = self.cluster.node(0).all_block_files();
        let moved = moved
            .iter()
            .filter(|path| path.starts_with(&archive))
            .count();
        expect_eq("files in the archive", moved, 6)?;
        let undone = self.scan_as(None, &["--undo", &undo, "--json"])?;
        expect(undone.code == Some(0), || undone.said.clone())?;
        expect_eq(
            "undone",
            undone.answer["undone"]["changed"].as_u64(),
            Some(4),
        )?;
        expect_eq("policies", self.policies()?, before)?;
        // A second time there is nothing to put back.
        let undone = self.scan_as(None, &["--undo", &undo, "--json"])?;
        expect_eq("left", undone.answer["undone"]["left"].as_u64(), Some(4))?;
        passed()
    }

    /// A file is read after the image was saved, another one written: neither it nor its directory
    /// is a target any more.
    fn used_since_the_image(&mut self) -> Result<Outcome> {
        self.age()?;
        let before = self.policies()?;
        let image = self.image.clone().unwrap_or_default().display().to_string();
        self.fs.check("/data/old/deep/c", 100_000, 3)?;
        self.fs.fs(&["-rm", "-skipTrash", "/data/mixed/old"])?;
        let undo = self.undo_file("undo-image");
        let words = ["--image", &image, "--apply", "--undo-file", &undo, "--json"];
        let scan = self.scan(&words)?;
        let applied = &scan.answer["applied"];
        expect_eq("directories", applied["directories"].as_u64(), Some(1))?;
        expect_eq("files", applied["files"].as_u64(), Some(3))?;
        expect_eq("changed", applied["changed"].as_u64(), Some(4))?;
        let cold = |path: &str| {
            let said = self.policy("-getStoragePolicy", path, None)?;
            Ok::<_, TestkitError>(said.contains("COLD"))
        };
        for (path, is_cold) in [
            ("/data/hot", true),
            ("/data/old", false),
            ("/data/old/a", true),
            ("/data/old/b", true),
            ("/data/old/deep/c", false),
            ("/data/single", true),
        ] {
            expect_eq(path, cold(path)?, is_cold)?;
        }
        let undone = self.scan_as(None, &["--undo", &undo])?;
        expect(undone.code == Some(0), || undone.said.clone())?;
        let (now, gone) = (self.policies(), "/data/mixed/old");
        self.fs.put(gone, 100_000, 5, json!({}))?;
        expect(now.is_err(), || "a path is gone".to_owned())?;
        self.age()?;
        expect_eq("policies", self.policies()?, before)?;
        passed()
    }

    fn times_off(&mut self) -> Result<Outcome> {
        let mut conf = self.cluster.conf().clone();
        conf.set("dfs.namenode.accesstime.precision", 0);
        let off = self.cluster.dir().join("conf-off");
        conf.write_dir(&off)?;
        let conf = off.display().to_string();
        // Read lately, changed long ago.
        self.fs.check("/data/old/deep/c", 100_000, 3)?;
        let usual = [
            "/data",
            "--older-than=180d",
            "--live",
            "--json",
            "--conf",
            &conf,
        ];
        let run = |more: &[&str]| -> Result<Scan> {
            let binary = hayloft_binary()?;
            let mut command = Command::new(&binary);
            command.args(["cold", "scan"]).args(usual).args(more);
            let ran = command
                .output()
                .map_err(TestkitError::file("running", &binary))?;
            Ok(Scan {
                code: ran.status.code(),
                answer: serde_json::from_slice(&ran.stdout).unwrap_or(Value::Null),
                said: String::from_utf8_lossy(&ran.stderr).into_owned(),
            })
        };
        let scan = run(&[])?;
        expect(scan.said.contains("access times are switched off"), || {
            scan.said.clone()
        })?;
        let found = &scan.answer["found"];
        expect_eq("cold by", found["cold_by"].as_str(), Some("modification"))?;
        expect_eq("cold files", found["total"]["cold_files"].as_u64(), Some(6))?;
        let scan = run(&["--times=access"])?;
        let found = &scan.answer["found"];
        expect_eq("cold by", found["cold_by"].as_str(), Some("access"))?;
        expect_eq("cold files", found["total"]["cold_files"].as_u64(), Some(5))?;
        passed()
    }
}

/// What a scan of the tree as [`start`] makes it finds.
fn check_found(answer: &Value) -> Result<()> {
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
