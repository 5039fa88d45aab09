//! Builds the commit into `--version`, of this crate and of hayloft-lab. It needs no network.
//! Without git or a repository of Hayloft's the commit is unknown.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=../cli/build.rs");
    let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let commit = commit().unwrap_or_else(|| "commit unknown".into());
    println!("cargo:rustc-env=HAYLOFT_VERSION={version} ({commit})");
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
    watch(&root.join("Cargo.lock"));
    for entry in root.join("crates").read_dir().ok()?.flatten() {
        watch(&entry.path().join("Cargo.toml"));
        watch(&entry.path().join("src"));
    }
    let built_from = [
        "--",
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
