//! `hayloft trash` on directories that an upgrade left something in; the testkit's suite `upgrades`
//! has NameNodes that know something of it.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

const POOL: &str = "BP-1-127.0.0.1-1";

/// A configuration with two data directories, and a NameNode that does not answer.
fn conf() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (one, two) = (dir.path().join("one"), dir.path().join("two"));
    let text = format!(
        "<configuration><property><name>dfs.datanode.data.dir</name><value>{},{}</value></property>\
         <property><name>dfs.namenode.rpc-address</name><value>127.0.0.1:1</value></property>\
         <property><name>dfs.namenode.http-address</name><value>127.0.0.1:1</value></property>\
         </configuration>",
        one.display(),
        two.display()
    );
    std::fs::write(dir.path().join("hdfs-site.xml"), text).expect("written");
    dir
}

/// `hayloft trash list --json`: its exit code, its report and what it warned of.
fn list(conf: &Path) -> (Option<i32>, Value, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hayloft"));
    command
        .args(["trash", "list", "--json", "--conf"])
        .arg(conf);
    let output = command.output().expect("the binary runs");
    let report = serde_json::from_slice(&output.stdout).expect("JSON");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), report, said)
}

#[test]
fn each_directory_is_looked_at_by_itself() {
    let dir = conf();
    let trash = dir.path().join("one/current").join(POOL).join("trash");
    std::fs::create_dir_all(trash.join("finalized/subdir0")).expect("made");
    for (name, bytes) in [("blk_7", 1000), ("blk_7_1001.meta", 15)] {
        let file = trash.join("finalized/subdir0").join(name);
        std::fs::write(file, vec![0; bytes]).expect("written");
    }
    // A file where the directory should be cannot be looked at; the others are, for all that.
    std::fs::create_dir_all(dir.path().join("two")).expect("made");
    std::fs::write(dir.path().join("two/current"), "").expect("written");
    let (code, report, said) = list(dir.path());
    assert_eq!(code, Some(1), "{report:#}");
    let volume = &report["volumes"][0];
    assert_eq!(volume["pool"], POOL, "{report:#}");
    assert_eq!(volume["trash"]["blocks"], 1);
    assert_eq!(volume["trash"]["bytes"], 1015);
    assert_eq!(volume["known"]["blocks"], 0, "no NameNode was there to ask");
    assert_eq!(report["problems"].as_array().map(Vec::len), Some(1));
    assert!(said.contains("two: Not a directory"), "{said}");
}
