//! What `hayloft --version` says of the sources, and what its build script makes of an environment.

use std::path::Path;
use std::process::{Command, Output};

/// The script, compiled; `None` where there is no compiler beside the tests.
fn build_script(into: &Path) -> Option<std::path::PathBuf> {
    let program = into.join("build-script");
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/build.rs");
    let mut command = Command::new(rustc);
    command.args(["--edition", "2024", "-o"]).arg(&program);
    let compiled = command.arg(source).output();
    let compiled = compiled.ok()?;
    assert!(compiled.status.success(), "{compiled:?}");
    Some(program)
}

/// Runs it in sources that are in no repository, as those of a tarball.
fn in_a_tarball(program: &Path, sources: &Path, commit: Option<&str>) -> Output {
    let mut command = Command::new(program);
    command.current_dir(sources).env_remove("HAYLOFT_COMMIT");
    command.env("CARGO_PKG_VERSION", "9.8.7");
    // A temporary directory may lie in a repository.
    let above = sources.ancestors().nth(2).expect("has a parent");
    command.env("GIT_CEILING_DIRECTORIES", above);
    if let Some(commit) = commit {
        command.env("HAYLOFT_COMMIT", commit);
    }
    command.output().expect("it runs")
}

#[test]
fn the_program_tells_its_version_and_commit() {
    let output = Command::new(env!("CARGO_BIN_EXE_hayloft"))
        .arg("--version")
        .output()
        .expect("the binary runs");
    let said = String::from_utf8(output.stdout).expect("text");
    let commit = said
        .trim_end()
        .strip_prefix(concat!("hayloft ", env!("CARGO_PKG_VERSION"), " ("))
        .and_then(|rest| rest.strip_suffix(')'))
        .unwrap_or_else(|| panic!("{said}"));
    let digits = commit.strip_suffix(" with changes").unwrap_or(commit);
    let hex = digits.len() == 12 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    assert!(hex || commit == "commit unknown", "{said}");
}

/// A file of the repository.
fn file(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join(path)).expect(path)
}

#[test]
fn all_that_names_the_version_names_this_one() {
    let version = env!("CARGO_PKG_VERSION");
    let changes = file("CHANGELOG.md");
    let mut newest = changes.lines().filter_map(|line| line.strip_prefix("## "));
    let newest = newest.find(|name| *name != "Unreleased");
    let newest = newest.expect("a version");
    assert!(newest.starts_with(version), "CHANGELOG.md: {newest}");
    // `dist` only fetches, and does so anew whenever its file changes.
    for module in ["", "driver/", "pfs/", "placement/", "wire-check/"] {
        let pom = format!("hadoop/{module}pom.xml");
        let text = file(&pom);
        let of = text.split_once("<version>").expect("has one").1;
        assert!(of.starts_with(&format!("{version}</version>")), "{pom}");
    }
    let install = file("docs/operate/install.md");
    for name in ["hayloft:", "hayloft-"] {
        let named = install.split(name).skip(1);
        let versions = named.filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        for rest in versions {
            assert!(rest.starts_with(version), "install.md: {name}{rest:.20}");
        }
    }
}

#[test]
fn sources_without_git_take_the_commit_from_the_environment() {
    let dir = tempfile::tempdir().expect("a directory");
    let sources = dir.path().join("hayloft/crates/cli");
    std::fs::create_dir_all(&sources).expect("made");
    let Some(program) = build_script(dir.path()) else {
        eprintln!("skipped: no rustc");
        return;
    };
    let said = |commit| {
        let output = in_a_tarball(&program, &sources, commit);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    let version = "cargo:rustc-env=HAYLOFT_VERSION=9.8.7";
    assert!(said(None).contains(&format!("{version} (commit unknown)\n")));
    assert!(said(Some("")).contains(&format!("{version} (commit unknown)\n")));
    let whole = "0123456789ABCDEF0123456789abcdef01234567";
    assert!(said(Some(whole)).contains(&format!("{version} (0123456789ab)\n")));
    for wrong in ["v0.2.0", "0123456789a", "0123456789abcdefg"] {
        let output = in_a_tarball(&program, &sources, Some(wrong));
        assert!(!output.status.success(), "{wrong}: {output:?}");
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(why.contains("hexadecimal"), "{why}");
    }
}
