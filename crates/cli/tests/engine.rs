//! `hayloft engine` on plug-ins that are well, break the contract, or cannot be used.

#[path = "../../io/tests/plugin/compile.rs"]
mod compile;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn engine(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hayloft"))
        .arg("engine")
        .args(args)
        .output()
        .expect("the binary runs")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary paths are UTF-8")
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The example changed in a way of `odd.c`.
fn odd(dir: &Path, way: u32) -> PathBuf {
    let so = dir.join(format!("odd-{way}.so"));
    compile::plugin("../io/tests/plugin/odd.c", &so, &[format!("-DWAY={way}")]);
    so
}

#[test]
fn examples_keep_the_contract_and_leave_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let (files, device) = (dir.path().join("files.so"), dir.path().join("device.so"));
    compile::plugin("../../plugins/examples/files.c", &files, &[]);
    compile::plugin("../../plugins/examples/device.c", &device, &[]);
    let scratch = dir.path().join("scratch");
    std::fs::create_dir(&scratch).expect("creates");
    let output = engine(&["test", text(&files), text(&scratch)]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(out(&output).contains(" passed, 0 failed"), "{output:?}");
    let disk = dir.path().join("disk");
    let made = std::fs::File::create(&disk).and_then(|f| f.set_len(1 << 30));
    made.expect("a file");
    let all = ["--options", text(&disk), "--wipe-device", "--json"];
    let output = engine(&[&["test", text(&device), text(&scratch)], &all[..]].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let cases = report["cases"].as_array().expect("a list");
    assert!(cases.len() > 20 && cases.iter().all(|case| case["passed"] == true));
    let left = std::fs::read_dir(&scratch).expect("lists").count();
    assert_eq!(left, 0, "what was made there goes again");
    // Without --wipe-device its blocks are another volume's.
    let output = engine(&[
        "test",
        text(&device),
        text(&scratch),
        "--options",
        text(&disk),
    ]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(said(&output).contains("another volume"), "{output:?}");
}

#[test]
fn what_breaks_the_contract_is_a_finding_and_what_cannot_be_used_a_sentence() {
    let dir = tempfile::tempdir().expect("a directory");
    // It writes nothing.
    let broken = odd(dir.path(), 14);
    let output = engine(&["test", text(&broken), text(dir.path()), "--limit", "20"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let report = out(&output);
    assert!(
        report.contains("FAILED") && report.contains("writes nothing"),
        "{report}"
    );
    // Another version; then one that never opens.
    let other = odd(dir.path(), 1);
    let output = engine(&["test", text(&other), text(dir.path())]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(said(&output).contains("is for version 2"), "{output:?}");
    let hangs = odd(dir.path(), 19);
    let flag = dir.path().join("flag");
    std::fs::write(dir.path().join("flag.open"), "").expect("writes");
    let limit = ["--options", text(&flag), "--limit", "1"];
    let output = engine(&[&["test", text(&hangs), text(dir.path())], &limit[..]].concat());
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(
        said(&output).contains("does not end within 1 s"),
        "{output:?}"
    );
}

#[test]
fn the_list_says_what_an_acknowledgement_rests_on() {
    let dir = tempfile::tempdir().expect("a directory");
    let so = dir.path().join("device.so");
    compile::plugin("../../plugins/examples/device.c", &so, &[]);
    let output = engine(&["list", "--json", text(&so)]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let list: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let of = |name: &str| {
        let engines = list.as_array().expect("a list").iter();
        let mut found = engines.filter(|e| e["name"].as_str().is_some_and(|n| n.contains(name)));
        found
            .next()
            .unwrap_or_else(|| panic!("{name}: {list}"))
            .clone()
    };
    assert_eq!(of("posix")["swap"], true);
    assert_eq!(
        of("device")["swap"],
        false,
        "Apache's node cannot read stubs"
    );
    for name in ["posix", "direct", "null", "device"] {
        for fact in ["acknowledged", "sync", "trim", "choose", "weak"] {
            let words = of(name)[fact].as_str().map(str::len);
            assert!(words.is_some_and(|n| n > 0), "{name} lacks {fact}: {list}");
        }
    }
}
