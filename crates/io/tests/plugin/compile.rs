//! Plug-ins in C for tests.

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
    let ran = Command::new("cc")
        .args([
            "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-I",
        ])
        .arg(here.join("../../plugins"))
        .args(more)
        .arg("-o")
        .arg(to)
        .arg(here.join(source))
        .args(libraries)
        .output()
        .expect("a C compiler called cc");
    assert!(
        ran.status.success(),
        "{}",
        String::from_utf8_lossy(&ran.stderr)
    );
}
