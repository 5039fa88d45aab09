//! Builds the commit into `--version`, of this crate and of hayloft-lab. It needs no network.
//! `HAYLOFT_COMMIT` names the commit of sources without git, such as a tarball's; else git says it.
//! Without both, or inside a repository of something else, the commit is unknown.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What names the commit before git is asked.
const GIVEN: &str = "HAYLOFT_COMMIT";
/// Digits of a commit that are shown.
const DIGITS: usize = 12;

fn main() {
    println!("cargo:rerun-if-changed=../cli/build.rs");
    println!("cargo:rerun-if-env-changed={GIVEN}");
    let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let commit = given().or_else(commit);
    let commit = commit.unwrap_or_else(|| "commit unknown".into());
    println!("cargo:rustc-env=HAYLOFT_VERSION={version} ({commit})");
}

/// The commit that the environment names. One that is none ends the build: a program shall not
/// tell of sources that it was not made of.
fn given() -> Option<String> {
    let text = std::env::var(GIVEN).ok().filter(|text| !text.is_empty())?;
    let digits = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let shown = text.get(..DIGITS).filter(|_| digits);
    if shown.is_none() {
        eprintln!("{GIVEN} is {text:?}: give the commit's hexadecimal digits, 12 or more of them");
        std::process::exit(1);
    }
    shown.map(str::to_ascii_lowercase)
}

/// 12 digits of the commit, and whether sources differ from it. What was built is the same until
/// the commit or a source changes, and only then cargo runs this again.
fn commit() -> Option<String> {
    let root = Path::new("../..").canonicalize().ok()?;
    let top = PathBuf::from(git(&["rev-parse", "--show-toplevel"])?);
    if top.canonicalize().ok()? != root {
        // The sources lie inside a repository of something else.
        return None;
    }
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    // A commit moves the branch, which git may keep in a file with others; the log tells of each.
    let branch = git(&["symbolic-ref", "-q", "HEAD"]);
    for name in ["HEAD", "logs/HEAD"].into_iter().chain(branch.as_deref()) {
        if let Some(path) = git(&["rev-parse", "--git-path", name]) {
            watch(Path::new(&path));
        }
    }
    watch(&root.join("Cargo.toml"));
    watch(&root.join("Cargo.lock"));
    for entry in root.join("crates").read_dir().ok()?.flatten() {
        watch(&entry.path().join("Cargo.toml"));
        watch(&entry.path().join("src"));
    }
    let built_from = [
        "--",
        ":/Cargo.toml",
        ":/Cargo.lock",
        ":/crates/*/Cargo.toml",
        ":/crates/*/src",
    ];
    let changed = git(&[["status", "--porcelain"].as_slice(), &built_from].concat())?;
    let with = if changed.is_empty() {
        ""
    } else {
        " with changes"
    };
    Some(commit + with)
}

/// Has cargo look at a path. Of one that is not there it would say each time that it changed.
fn watch(path: &Path) {
    if path.exists() {
        println!("cargo:rerun-if-changed={}", path.display());
    }
}

fn git(words: &[&str]) -> Option<String> {
    let ran = Command::new("git").args(words).output().ok()?;
    let text = String::from_utf8(ran.stdout).ok()?;
    ran.status.success().then(|| text.trim().to_owned())
}
