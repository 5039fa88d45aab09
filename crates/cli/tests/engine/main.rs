//! `hayloft engine` on plug-ins that are well, break the contract, or cannot be used.

#[path = "../../../io/tests/plugin/compile.rs"]
mod compile;
mod fsck;

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
    let (files, device) = (dir.path().join("files.so"), dir.path().join("raw.so"));
    compile::plugin("../../plugins/examples/files.c", &files, &[]);
    compile::plugin("../../plugins/raw.c", &device, &[]);
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

/// A file that `engine list` refuses with exit code 2 and one line that names it.
fn is_refused(so: &Path, wanted: &str) {
    let output = engine(&["list", text(so)]);
    let said = said(&output);
    assert_eq!(output.status.code(), Some(2), "{wanted}: {output:?}");
    assert!(
        said.contains(wanted) && said.contains(text(so)),
        "{wanted}: {said}"
    );
    assert!(said.lines().count() == 1 && said.len() < 1500, "{said}");
    // What tries it out refuses it too, before any case.
    let dir = so.parent().expect("below a directory");
    let output = engine(&["test", text(so), text(dir), "--limit", "20"]);
    assert_eq!(output.status.code(), Some(2), "{wanted}: {output:?}");
    assert_eq!(output.stdout, b"", "{wanted}: {output:?}");
}

#[test]
fn objects_that_end_the_process_that_loads_them_are_refused_in_a_sentence() {
    let dir = tempfile::tempdir().expect("a directory");
    for (way, wanted) in [
        (1, "it ended its process itself, with exit code 0"),
        (2, "with exit code 3 (it wrote: no licence found)"),
        (3, "with exit code 0"),
        (4, "it was ended by SIGABRT: it called abort"),
        (5, "it was ended by SIGSEGV: it used memory"),
        // Where the stack ends decides who sees it: the runtime, which aborts, or the kernel.
        (6, "it was ended by SIG"),
        (7, "loaded in a process of its own, it "),
        (8, "it was ended by SIGKILL"),
        (9, "it was ended by signal 15"),
        (10, "with exit code 0"),
        (11, "with exit code 5 (it wrote: loading part 0"),
        (12, "with exit code 0"),
        (14, "SIGSEGV"),
        (15, "SIGBUS"),
        (16, "with exit code 0"),
        (17, "SIGSEGV"),
        (18, "undefined symbol: nothing_has_this"),
    ] {
        let so = dir.path().join(format!("bad-{way}.so"));
        compile::plugin("../io/tests/plugin/bad.c", &so, &[format!("-DWAY={way}")]);
        is_refused(&so, wanted);
    }
    // One that hangs: the limit is the command's.
    let so = dir.path().join("hangs.so");
    compile::plugin("../io/tests/plugin/bad.c", &so, &["-DWAY=13".to_owned()]);
    let output = engine(&["test", text(&so), text(dir.path()), "--limit", "1"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let said = said(&output);
    assert!(
        said.contains("does not end within 1 s") && said.contains("hangs.so"),
        "{said}"
    );
}

#[test]
fn files_that_are_damaged_are_refused_in_a_sentence() {
    let dir = tempfile::tempdir().expect("a directory");
    let good = dir.path().join("files.so");
    compile::plugin("../../plugins/examples/files.c", &good, &[]);
    let whole = std::fs::read(&good).expect("reads");
    let so = dir.path().join("engine.so");
    let write = |bytes: &[u8]| std::fs::write(&so, bytes).expect("writes");
    for (len, wanted) in [
        (0, "file too short"),
        (40, "file too short"),
        (100, "it is cut short"),
        (4096, "it is cut short"),
        (8192, "it is cut short"),
    ] {
        write(&whole[..len]);
        is_refused(&so, wanted);
    }
    let changed = |at: usize, to: u8| {
        let mut bytes = whole.clone();
        bytes[at] = to;
        write(&bytes);
    };
    // Another class, another machine, a program, no ELF at all.
    for (at, to, wanted) in [
        (4, 1, "wrong ELF class"),
        (18, 8, "cannot open shared object file"),
        (16, 1, "only ET_DYN"),
        (0, b'#', "invalid ELF header"),
    ] {
        changed(at, to);
        is_refused(&so, wanted);
    }
    std::fs::remove_file(&so).expect("is there");
    is_refused(&so, "No such file");
    std::fs::create_dir(&so).expect("creates");
    is_refused(&so, "it is not a file");
    // A library that it needs is cut at a page: its own file is well.
    let (part, needs) = (dir.path().join("libpart.so"), dir.path().join("needs.so"));
    compile::plugin("../io/tests/plugin/none.c", &part, &[]);
    let libraries = [text(&part).to_owned()];
    let more = ["-Wl,--no-as-needed".to_owned()];
    compile::plugin_with("../../plugins/examples/files.c", &needs, &more, &libraries);
    let part_whole = std::fs::read(&part).expect("reads");
    std::fs::write(&part, &part_whole[..4096]).expect("writes");
    is_refused(&needs, "was ended by SIGBUS: a file is shorter");
    std::fs::remove_file(&part).expect("is there");
    is_refused(&needs, "libpart.so: cannot open shared object file");
}

#[test]
fn a_case_says_what_was_expected_what_came_and_which_call_did_it() {
    let dir = tempfile::tempdir().expect("a directory");
    for (way, case, wanted) in [
        (
            20,
            "odd_offsets",
            "read of 300001 bytes at 0 on f: expected the bytes ",
        ),
        (
            21,
            "a_gap_reads",
            "length on f: expected 150004, came 150005",
        ),
        (
            22,
            "truncate_cuts",
            "length on f: expected 70001, came 150000",
        ),
        (
            23,
            "opening_says",
            "open of f with HAYLOFT_CREATE_NEW: expected -EEXIST, came an open file",
        ),
        (
            24,
            "opening_says",
            "open of missing with HAYLOFT_READ_ONLY: expected -ENOENT, came the error \"cannot \
             open ",
        ),
        (
            25,
            "odd_offsets",
            "length on f: expected 300001, came 300002",
        ),
        (
            26,
            "accepted_anywhere",
            "sync with HAYLOFT_SYNC_ALL on f: expected success, came the error \"cannot sync ",
        ),
        (
            27,
            "given_as_declared",
            "read(2) after the write completed on f: expected 18 bytes, came 0 bytes",
        ),
        (
            28,
            "dropping_a_file",
            "close on f: expected no open descriptor within 10 s, came 1 descriptors that stay",
        ),
        (
            29,
            "odd_offsets",
            "in a process of its own it was ended by SIGSEGV",
        ),
        (
            30,
            "a_gap_reads",
            "it ended its process itself, with exit code 0",
        ),
    ] {
        let so = odd(dir.path(), way);
        let args = [
            "test",
            text(&so),
            text(dir.path()),
            "--limit",
            "60",
            "--case",
            case,
        ];
        let output = engine(&args);
        assert_eq!(output.status.code(), Some(1), "{way}: {output:?}");
        let report = out(&output);
        let failed: Vec<&str> = report
            .lines()
            .filter(|line| line.starts_with("FAILED"))
            .collect();
        assert!(
            failed.len() == 1 && failed[0].contains(wanted),
            "{way}: {report}"
        );
        for of_rust in [
            "IoError",
            "{ ",
            "left:",
            "0x",
            "panicked",
            "the case itself",
        ] {
            assert!(!report.contains(of_rust), "{way}: {of_rust}: {report}");
        }
        assert!(failed[0].len() < 500, "{way}: {report}");
        assert!(
            report.contains("        hayloft_engine.h: "),
            "{way}: {report}"
        );
    }
}

#[test]
fn the_list_says_what_an_acknowledgement_rests_on() {
    let dir = tempfile::tempdir().expect("a directory");
    let so = dir.path().join("raw.so");
    compile::plugin("../../plugins/raw.c", &so, &[]);
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
    assert_eq!(of("raw")["swap"], false, "Apache's node cannot read stubs");
    for name in ["posix", "direct", "null", "raw"] {
        for fact in ["acknowledged", "sync", "trim", "choose", "weak"] {
            let words = of(name)[fact].as_str().map(str::len);
            assert!(words.is_some_and(|n| n > 0), "{name} lacks {fact}: {list}");
        }
    }
}
