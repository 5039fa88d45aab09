//! The doctor as a process, in surroundings with a fault, and what it says.

use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::hadoop::{hayloft_binary, scratch};
use hayloft_testkit::suite::expect;
use serde_json::Value;
use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};

/// Exit codes of the doctor.
pub const WELL: i32 = 0;
pub const SLOW: i32 = 1;
pub const BAD: i32 = 3;

/// What the doctor said.
#[derive(Debug)]
pub struct Said {
    pub code: Option<i32>,
    pub report: Value,
}

/// Surroundings that a program runs in: a command that ends with the program.
#[derive(Clone, Debug, Default)]
pub struct Around(Vec<String>);

impl Around {
    /// These words before the program.
    pub fn words(words: &[&str]) -> Self {
        Self(words.iter().map(|word| (*word).to_owned()).collect())
    }

    /// Where enough files may be opened, if this process may allow that.
    pub fn with_many_files() -> Option<Self> {
        let words = ["prlimit", "--nofile=100000:100000"];
        let tried = Command::new(words[0]).args([words[1], "true"]).output();
        tried
            .is_ok_and(|tried| tried.status.success())
            .then(|| Self::words(&words))
    }

    /// In a mount namespace where a script ran first.
    pub fn script(script: &str) -> Self {
        let script = format!("{script}\nexec \"$@\"");
        let unshare = ["unshare", "--mount", "--propagation", "private"];
        Self::words(&[&unshare[..], &["sh", "-ec", &script, "sh"]].concat())
    }

    /// With these before it.
    pub fn within(&self, outer: &Self) -> Self {
        Self([&outer.0[..], &self.0[..]].concat())
    }

    /// Runs the doctor there with these arguments.
    pub fn doctor<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<Said> {
        let binary = hayloft_binary()?;
        let mut words = self.0.iter().map(OsStr::new).chain([binary.as_os_str()]);
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).args(["doctor", "--json"]).args(args);
        // No configuration of this host's is meant.
        command
            .env_remove("HADOOP_CONF_DIR")
            .env_remove("HADOOP_HOME");
        let ran = command.stdin(Stdio::null()).output();
        let ran = ran.map_err(TestkitError::file("running", &binary))?;
        let report = serde_json::from_slice(&ran.stdout).map_err(|error| {
            let said = String::from_utf8_lossy(&ran.stderr);
            TestkitError::Talk(format!("{command:?}: {error}: {}: {said}", ran.status))
        })?;
        Ok(Said {
            code: ran.status.code(),
            report,
        })
    }
}

/// Files that a program is to see with another text than the kernel's.
#[derive(Debug)]
pub struct Covered {
    dir: tempfile::TempDir,
    script: String,
}

impl Covered {
    /// Paths and texts.
    pub fn new(files: &[(&str, &str)]) -> Result<Self> {
        let dir = scratch("doctor-covered-")?;
        let mut script = String::new();
        for (number, (path, text)) in files.iter().enumerate() {
            let file = dir.path().join(number.to_string());
            std::fs::write(&file, text).map_err(TestkitError::file("writing", &file))?;
            script.push_str(&format!("mount --bind '{}' '{path}'\n", file.display()));
        }
        Ok(Self { dir, script })
    }

    /// Where they are seen.
    pub fn around(&self) -> Around {
        debug_assert!(self.dir.path().exists(), "until this is dropped");
        Around::script(&self.script)
    }
}

impl Said {
    /// Findings of a check.
    pub fn of(&self, check: &str) -> Vec<&Value> {
        let all = self.report["findings"].as_array().into_iter().flatten();
        all.filter(|finding| finding["check"] == check).collect()
    }

    /// Each finding is complete; one of the check's has a word in what was seen.
    pub fn expect(&self, check: &str, severity: &str, word: &str) -> Result<()> {
        for finding in self.report["findings"].as_array().into_iter().flatten() {
            for field in ["place", "seen", "effect", "mend"] {
                let there = finding[field].as_str().is_some_and(|text| !text.is_empty());
                expect(there, || format!("no {field}: {finding:#}"))?;
            }
        }
        let found = self.of(check);
        let fits = |finding: &&&Value| {
            let seen = finding["seen"].as_str().unwrap_or_default();
            finding["severity"] == severity && seen.contains(word)
        };
        expect(found.iter().any(|finding| fits(&finding)), || {
            format!("{check} did not say {severity} {word:?}: {:#}", self.report)
        })
    }

    /// Nothing was found, and all was looked at.
    pub fn expect_well(&self) -> Result<()> {
        let empty = |name: &str| self.report[name].as_array().is_some_and(Vec::is_empty);
        let well = empty("findings") && empty("not_looked_at") && self.code == Some(WELL);
        expect(well, || format!("{:?}: {:#}", self.code, self.report))
    }

    /// Nothing was found, though not all may have been looked at.
    pub fn expect_nothing(&self) -> Result<()> {
        let empty = self.report["findings"]
            .as_array()
            .is_some_and(Vec::is_empty);
        expect(empty && self.code == Some(WELL), || {
            format!("{:?}: {:#}", self.code, self.report)
        })
    }

    /// It ended with this code.
    pub fn expect_code(&self, code: i32) -> Result<()> {
        expect(self.code == Some(code), || {
            format!(
                "exit code {:?} and not {code}: {:#}",
                self.code, self.report
            )
        })
    }
}

/// Writes the configuration of a node into a new directory.
pub fn conf(dir: &Path, properties: &[(&str, &str)]) -> Result<()> {
    let mut text = String::from("<configuration>\n");
    for (name, value) in properties {
        text.push_str(&format!(
            "<property><name>{name}</name><value>{value}</value></property>\n"
        ));
    }
    text.push_str("</configuration>\n");
    std::fs::create_dir_all(dir).map_err(TestkitError::file("creating", dir))?;
    let file = dir.join("hdfs-site.xml");
    std::fs::write(&file, text).map_err(TestkitError::file("writing", &file))
}
