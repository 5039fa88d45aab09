//! `hayloft cold scan` against a NameNode and its image.

use super::lab::{Lab, PATHS, Scan, check_found, cold_scan, start};
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::hadoop::class;
use hayloft_testkit::suite::{expect, expect_eq, passed};
use hayloft_testkit::{Outcome, Suite};
use serde_json::{Value, json};
use std::path::Path;

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
    on.case("an_apply_that_stops_half_way_can_be_undone", |lab| {
        lab.stopped()
    });
    on.case("access_times_that_are_off_are_said", |lab| lab.times_off());
}

impl Lab {
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

    /// The NameNode refuses every change in safe mode: what was there is in the file all the same.
    fn stopped(&mut self) -> Result<Outcome> {
        self.age()?;
        let before = self.policies()?;
        let undo = self.undo_file("undo-stopped");
        self.fs.dfsadmin(&["-safemode", "enter"])?;
        let words = [
            "/data",
            "--older-than=180d",
            "--live",
            "--apply",
            "--undo-file",
            &undo,
        ];
        let scan = self.scan_as(None, &words)?;
        self.fs.dfsadmin(&["-safemode", "leave"])?;
        expect(
            scan.code == Some(2) && scan.said.contains("safe mode"),
            || format!("{:?} {}", scan.code, scan.said),
        )?;
        expect(scan.said.contains(&format!("--undo {undo}")), || {
            scan.said.clone()
        })?;
        // One of them was changed before the stop.
        self.policy("-setStoragePolicy", "/data/single", Some("COLD"))?;
        let again = self.scan_as(None, &words)?;
        expect(
            again.code == Some(2) && again.said.contains("--undo-file"),
            || again.said,
        )?;
        let undone = self.scan_as(None, &["--undo", &undo, "--json"])?;
        expect_eq(
            "changed",
            undone.answer["undone"]["changed"].as_u64(),
            Some(1),
        )?;
        expect_eq("left", undone.answer["undone"]["left"].as_u64(), Some(3))?;
        expect_eq("policies", self.policies()?, before)?;
        passed()
    }

    /// The NameNode's own word counts; where it gives none, that of the files here.
    fn times_off(&mut self) -> Result<Outcome> {
        // Read lately, changed long ago.
        self.fs.check("/data/old/deep/c", 100_000, 3)?;
        let usual = ["/data", "--older-than=180d", "--live", "--json"];
        let run = |conf: &Path, more: &[&str]| cold_scan(conf, None, &[&usual[..], more].concat());
        let modified = |scan: &Scan, says: &str| {
            expect(
                scan.said.contains("access times are switched off") && scan.said.contains(says),
                || scan.said.clone(),
            )?;
            let found = &scan.answer["found"];
            expect_eq("cold by", found["cold_by"].as_str(), Some("modification"))?;
            expect_eq("cold files", found["total"]["cold_files"].as_u64(), Some(6))
        };
        let mut conf = self.cluster.conf().clone();
        conf.set("dfs.namenode.accesstime.precision", 0);
        let off = self.cluster.dir().join("conf-off");
        conf.write_dir(&off)?;
        let contradicted = run(&off, &[])?;
        let by = contradicted.answer["found"]["cold_by"].as_str();
        expect_eq("cold by", by, Some("access"))?;
        let silent = self.cluster.dir().join("conf-silent");
        let mut here = conf.clone();
        here.set("dfs.namenode.http-address", "127.0.0.1:1");
        here.write_dir(&silent)?;
        modified(&run(&silent, &[])?, "hdfs-site.xml")?;
        let namenode = self.cluster.namenode(0);
        namenode.stop()?;
        namenode.write_conf(&conf, false)?;
        namenode.start(&[])?;
        self.cluster.wait_all_live()?;
        let client = self.cluster.client_conf_dir();
        modified(&run(&client, &[])?, "says the NameNode")?;
        let scan = run(&client, &["--times=access"])?;
        let found = &scan.answer["found"];
        expect_eq("cold by", found["cold_by"].as_str(), Some("access"))?;
        expect_eq("cold files", found["total"]["cold_files"].as_u64(), Some(5))?;
        passed()
    }
}
