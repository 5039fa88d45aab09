//! `hayloft snapshot` in a build without snapshots, as `make up` makes it.
#![cfg(not(feature = "snapshots"))]

use std::process::Command;

#[test]
fn a_build_without_snapshots_says_so() {
    let hayloft = env!("CARGO_BIN_EXE_hayloft");
    let help = Command::new(hayloft).arg("--help").output().expect("runs");
    let help = String::from_utf8_lossy(&help.stdout);
    assert!(!help.contains("\n  snapshot "), "{help}");
    assert!(help.contains("\n  doctor "), "{help}");
    let asked = ["snapshot", "list", "--to", "file:///nowhere"];
    let output = Command::new(hayloft).args(asked).output().expect("runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("this build of hayloft has no snapshots"),
        "{said}"
    );
    assert!(said.contains("make build"), "{said}");
    // A node that is to take them does not start without.
    let dir = tempfile::tempdir().expect("temporary directory");
    let site = "<configuration/>";
    std::fs::write(dir.path().join("core-site.xml"), site).expect("writes");
    std::fs::write(dir.path().join("hdfs-site.xml"), site).expect("writes");
    let define = format!("dfs.datanode.data.dir={}/data", dir.path().display());
    let output = Command::new(hayloft)
        .args([
            "node",
            "-D",
            "fs.defaultFS=hdfs://127.0.0.1:9",
            "-D",
            &define,
        ])
        .args(["-D", "hayloft.snapshot.to=file:///nowhere", "--conf"])
        .arg(dir.path())
        .output()
        .expect("runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("has no snapshots"), "{said}");
}
