//! Plug-ins and programs in C for tests.

use std::path::Path;
use std::process::Command;

/// Compiles `source`, a path from this crate, to the shared object `to`.
///
/// # Panics
/// When there is no C compiler, which building ISA-L needs too, or it finds a fault.
#[allow(dead_code, reason = "not every test needs both")]
pub fn plugin(source: &str, to: &Path, more: &[String]) {
    plugin_with(source, to, more, &[]);
}

/// As [`plugin`], with `libraries`.
///
/// # Panics
/// As [`plugin`].
pub fn plugin_with(source: &str, to: &Path, more: &[String], libraries: &[String]) {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut cc = compiler();
    cc.args(["-shared", "-fPIC", "-I"])
        .arg(here.join("../../plugins"));
    cc.args(more).arg("-o").arg(to).arg(here.join(source));
    run(cc.args(libraries));
}

/// Compiles `source`, a path from this crate, to the program `to`.
///
/// # Panics
/// As [`plugin`].
#[allow(dead_code, reason = "not every test needs one")]
pub fn program(source: &str, to: &Path) {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut cc = compiler();
    run(cc.args(["-pthread", "-o"]).arg(to).arg(here.join(source)));
}

fn compiler() -> Command {
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-Wall", "-Wextra", "-Werror"]);
    cc
}

fn run(cc: &mut Command) {
    let ran = cc.output().expect("a C compiler called cc");
    let words = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{words}");
}
