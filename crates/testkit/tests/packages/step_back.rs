//! An upgrade of the package and a step back: data that either version wrote is read by the other,
//! and by Apache's node in the end. `HAYLOFT_PACKAGES_BEFORE` names the directory of the packages
//! of an earlier version.

use crate::host::Packages;
use crate::{Lab, start_with};
use hayloft_testkit::error::Result;
use hayloft_testkit::suite::{expect, expect_eq, passed, seconds};
use hayloft_testkit::{Outcome, Suite, TestkitError, mounts};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

const DEBIAN: &str = "target/debian/root.tar";

pub fn cases(suite: &mut Suite) {
    let Some(before) = std::env::var_os("HAYLOFT_PACKAGES_BEFORE") else {
        let why = "HAYLOFT_PACKAGES_BEFORE names no packages of an earlier version";
        suite.case("an_earlier_package_and_back", || {
            Ok(Outcome::Skipped(why.into()))
        });
        return;
    };
    let before = Packages {
        dir: PathBuf::from(before),
    };
    let mut on = suite.group(
        move || Steps::start(&before),
        |of, failed| of.lab.end(failed),
    );
    on.case("an_earlier_package_swaps_in", |of| of.earlier());
    on.case("a_later_package_over_it", |of| of.later());
    on.case("back_to_the_earlier_package", |of| of.back());
    on.case("apaches_node_behind_both", |of| of.out());
}

struct Steps {
    lab: Lab,
    before: PathBuf,
    now: PathBuf,
    /// What the earlier program says of itself.
    said: String,
}

/// All files, by who wrote them.
const FILES: [(&str, u64); 4] = [
    ("/by-apache", 1),
    ("/by-the-earlier", 2),
    ("/by-the-later", 3),
    ("/by-the-earlier-again", 4),
];

impl Steps {
    fn start(before: &Packages) -> Result<Self> {
        let (before, now) = (before.file(".deb")?, Packages::ready()?.file(".deb")?);
        let same = mounts::run(Command::new("cmp").arg(&before).arg(&now)).is_ok();
        expect(!same, || {
            format!("{} is the package under test", before.display())
        })?;
        Ok(Self {
            lab: start_with(DEBIAN, &before)?,
            before,
            now,
            said: String::new(),
        })
    }

    fn version(&self) -> Result<String> {
        self.lab.host.run(&["hayloft", "--version"])
    }

    /// Installs the package over the other, which restarts nothing; then restarts the node.
    fn install(&mut self, deb: &PathBuf) -> Result<()> {
        let host = &self.lab.host;
        let (_, was) = host.swap(&["status"])?;
        fs::copy(deb, host.at("/tmp/hayloft.deb")).map_err(TestkitError::file("copying", deb))?;
        host.run(&["dpkg", "--install", "/tmp/hayloft.deb"])?;
        let (_, is) = host.swap(&["status"])?;
        expect_eq("the process", &is["runs"], &was["runs"])?;
        expect_eq("a stop", host.daemon("stop")?, 0)?;
        expect_eq("a start", host.daemon("start")?, 0)?;
        host.wait_runs(Some("hayloft"), seconds(60))?;
        self.lab.wait_live()
    }

    /// Writes the file of that number, and reads all up to it.
    fn write(&self, number: usize) -> Result<()> {
        let (path, seed) = FILES[number];
        self.lab.put(path, seed)?;
        self.lab.check(&FILES[..=number])
    }

    fn earlier(&mut self) -> Result<Outcome> {
        expect_eq("a start", self.lab.host.daemon("start")?, 0)?;
        self.lab.host.wait_runs(Some("apache"), seconds(60))?;
        self.lab.wait_live()?;
        self.write(0)?;
        let (code, report) = self.lab.host.swap(&["in"])?;
        expect(code == 0, || report.to_string())?;
        self.write(1)?;
        self.said = self.version()?;
        passed()
    }

    fn later(&mut self) -> Result<Outcome> {
        let now = self.now.clone();
        self.install(&now)?;
        println!("{} -> {}", self.said.trim(), self.version()?.trim());
        // The profile is renewed, and nothing else is done.
        let (code, report) = self.lab.host.swap(&["in"])?;
        expect(code == 0, || report.to_string())?;
        self.write(2)?;
        passed()
    }

    fn back(&mut self) -> Result<Outcome> {
        let before = self.before.clone();
        self.install(&before)?;
        expect_eq("version", self.version()?, self.said.clone())?;
        self.write(3)?;
        passed()
    }

    fn out(&mut self) -> Result<Outcome> {
        let (code, report) = self.lab.host.swap(&["out"])?;
        expect(code == 0, || report.to_string())?;
        self.lab.check(&FILES)?;
        passed()
    }
}
