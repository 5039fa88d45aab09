//! Maven's Surefire: runs Hadoop's tests of `hadoop/web-check` and reads what it reports.

use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::{hayloft_binary, repository_root};
use hayloft_testkit::node::Kind;
use hayloft_testkit::process::Spawn;
use hayloft_testkit::{TestkitError, suite};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longer than any of the runs takes on two busy cores.
const LIMIT: Duration = Duration::from_secs(3600);

/// How a test ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Passed,
    /// By the test itself, which found a precondition missing.
    Skipped,
    Failed,
}

/// Verdicts by `Class#method`, the class without its package.
pub type Verdicts = BTreeMap<String, Verdict>;

/// One run of Surefire: which tests, over which nodes.
pub struct SurefireRun<'a> {
    /// The execution in `hadoop/web-check/pom.xml`.
    pub execution: &'a str,
    pub nodes: Kind,
    /// `Class#method`, or all.
    pub only: Option<&'a [String]>,
}

/// `hadoop/web-check/target`.
fn target() -> PathBuf {
    repository_root().join("hadoop/web-check/target")
}

/// Compiles the module once for all runs.
///
/// # Errors
/// With the end of Maven's output.
pub fn compile() -> Result<()> {
    maven("compile", &["-q", "test-compile"]).map(drop)
}

impl SurefireRun<'_> {
    /// Runs the tests, prints Surefire's lines, and reads the verdicts.
    ///
    /// # Errors
    /// When Maven fails for another reason than a test, when no test ran, or when the nodes were
    /// not those asked for.
    pub fn verdicts(&self) -> Result<Verdicts> {
        let kind = match self.nodes {
            Kind::Apache => "stock",
            Kind::Hayloft => "hayloft",
        };
        let reports = target().join(kind).join(self.execution);
        for old in [&reports, &target().join("scratch")] {
            if old.exists() {
                std::fs::remove_dir_all(old).map_err(TestkitError::file("removing", old))?;
            }
        }
        let goal = format!("surefire:test@{}", self.execution);
        let mut words = vec![goal.as_str(), "-Dmaven.test.failure.ignore=true"];
        let only = self.only.map(|names| format!("-Dtest={}", filter(names)));
        words.extend(only.as_deref());
        if self.nodes == Kind::Apache {
            words.push("-Pstock-nodes");
        }
        let said = maven(&format!("{}-{kind}", self.execution), &words)?;
        for line in said.lines().filter(|line| line.contains("Tests run:")) {
            println!("{kind} nodes: {line}");
        }
        let verdicts = read_reports(&reports)?;
        suite::expect(!verdicts.is_empty(), || format!("no test ran: {said}"))?;
        let started = std::fs::read_to_string(target().join("scratch/started"));
        let started = started.unwrap_or_default().lines().count();
        println!("{kind} nodes: {started} processes of Hayloft nodes");
        suite::expect((started > 0) == (self.nodes == Kind::Hayloft), || {
            format!("{started} Hayloft nodes where {kind} nodes were asked for")
        })?;
        Ok(verdicts)
    }
}

/// What Surefire takes: methods of a class joined by `+`, without the values of their parameters.
fn filter(names: &[String]) -> String {
    let mut methods: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for name in names {
        let (class, method) = name.split_once('#').unwrap_or((name, "*"));
        let bare = method.split(['(', '[', '{']).next().unwrap_or(method);
        let known = methods.entry(class).or_default();
        if !known.contains(&bare) {
            known.push(bare);
        }
    }
    let classes = methods
        .iter()
        .map(|(class, methods)| format!("{class}#{}", methods.join("+")));
    classes.collect::<Vec<_>>().join(",")
}

/// Runs Maven in `hadoop/web-check` and answers with its output.
fn maven(name: &str, words: &[&str]) -> Result<String> {
    let root = repository_root();
    let log = root.join(format!("target/lab/webhdfs-{name}.log"));
    let lab = root.join("target/lab");
    std::fs::create_dir_all(&lab).map_err(TestkitError::file("creating", &lab))?;
    if log.exists() {
        std::fs::remove_file(&log).map_err(TestkitError::file("removing", &log))?;
    }
    let pom = root.join("hadoop/pom.xml").display().to_string();
    let argv = ["mvn", "-B", "-ntp", "-f", &pom, "-Pweb", "-pl", "web-check"];
    let argv = argv.iter().chain(words).map(|&word| word.to_owned());
    let mut spawn = Spawn::new("maven", argv.collect(), &log);
    let binary = hayloft_binary()?;
    let binary = binary
        .canonicalize()
        .map_err(TestkitError::file("finding", &binary))?;
    spawn.env = vec![("HAYLOFT_BIN".into(), binary.display().to_string())];
    let mut process = spawn.start()?;
    let status = process.wait(LIMIT)?;
    if !status.success() {
        return Err(process.error(format!("ended with {status}")));
    }
    std::fs::read_to_string(&log).map_err(TestkitError::file("reading", &log))
}

fn read_reports(dir: &Path) -> Result<Verdicts> {
    let entries = std::fs::read_dir(dir).map_err(TestkitError::file("reading", dir))?;
    let mut verdicts = Verdicts::new();
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.extension().is_some_and(|extension| extension == "xml") {
            let text = std::fs::read_to_string(&path);
            let text = text.map_err(TestkitError::file("reading", &path))?;
            read_report(&text, &mut verdicts);
        }
    }
    Ok(verdicts)
}

/// A test of several parameters has failed when it did with one of them.
fn read_report(text: &str, verdicts: &mut Verdicts) {
    for case in text.split("<testcase ").skip(1) {
        let class = attribute(case, "classname").unwrap_or_default();
        let class = class.rsplit('.').next().unwrap_or_default();
        let name = attribute(case, "name").unwrap_or_default();
        let verdict = if case.contains("<failure") || case.contains("<error") {
            Verdict::Failed
        } else if case.contains("<skipped") {
            Verdict::Skipped
        } else {
            Verdict::Passed
        };
        let known = verdicts.entry(format!("{class}#{name}"));
        let known = known.or_insert_with(|| verdict.clone());
        if verdict == Verdict::Failed {
            *known = verdict;
        }
    }
}

fn attribute<'a>(element: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = element.split_once(&format!("{name}=\""))?;
    rest.split_once('"').map(|(value, _)| value)
}
