//! `hayloft engine fsck`: what it finds on a device, and what it goes by.

use std::path::Path;
use std::process::{Command, Output};

use hayloft_io::{Disk, DiskConfig, EngineConfig, IoClass, OpenMode, engine_for};
use serde_json::Value;

use super::{compile, engine, out, said, text};

/// A directory of `raw` with three stubs on a file that is its device: the engine's name.
async fn with_stubs(base: &Path, root: &Path) -> String {
    let (so, device) = (base.join("raw.so"), base.join("device"));
    compile::plugin("../../plugins/raw.c", &so, &[]);
    let made = std::fs::File::create(&device).and_then(|f| f.set_len(32 << 20));
    made.expect("a file");
    std::fs::create_dir(root).expect("creates");
    let name = format!("plugin:{} {}", so.display(), device.display());
    let disk = Disk::for_path(root, &DiskConfig::default()).expect("a disk");
    let engine = engine_for(&name, root, &EngineConfig::new(disk)).expect("new");
    for id in 1..=3 {
        let path = root.join(format!("blk_{id}"));
        let file = engine
            .engine
            .open(&path, OpenMode::CreateNew, IoClass::ClientWrite);
        let bytes = vec![bytes::Bytes::from(vec![7; 100_000])];
        let written = file.await.expect("new").write_at(bytes, 0).await;
        written.result.expect("writes");
    }
    name
}

/// Runs `hayloft engine` without the right of root to read what its mode forbids.
fn without_rights(args: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_hayloft");
    let mut command = Command::new(program);
    if rustix::process::getuid().is_root() {
        command = Command::new("setpriv");
        let without = "--bounding-set=-dac_override,-dac_read_search";
        command.args([without, "--", program]);
    }
    let ran = command.arg("engine").args(args).output();
    ran.expect("setpriv and the binary run")
}

#[tokio::test]
async fn fsck_says_what_is_on_a_device_and_what_is_wrong() {
    let base = tempfile::tempdir().expect("a directory");
    let root = base.path().join("root");
    let name = with_stubs(base.path(), &root).await;
    let fsck = |more: &[&str]| engine(&[&["fsck", text(&root), "--engine", &name], more].concat());
    let output = fsck(&["--json"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    for (what, wanted) in [
        ("stubs", 3),
        ("bytes", 300_000),
        ("extents", 3),
        ("used", 6 << 16),
    ] {
        assert_eq!(found[what], wanted, "{what}: {found}");
    }
    let output = fsck(&[]);
    assert!(out(&output).contains("stubs             3, "), "{output:?}");
    // The node has it.
    let lock = hayloft_io::RecordLock::acquire(&root.join("in_use.lock"), b"4711@here");
    let output = fsck(&[]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(said(&output).contains("4711@here"), "{output:?}");
    drop(lock.expect("free"));
    // A stub that names no place, and one that names another's.
    let at = |id: u32| root.join(format!("blk_{id}"));
    let mut other = [0; 4096];
    let len = rustix::fs::getxattr(at(2), "user.hayloft.at", &mut other[..]).expect("there");
    let set = |id, bytes: &[u8]| {
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(at(id), "user.hayloft.at", bytes, flags).expect("sets");
    };
    set(1, b"torn");
    set(3, &other[..len]);
    let output = fsck(&[]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    for wanted in [
        "blk_1: user.hayloft.at: it has another form",
        "blk_2: it names",
        "blk_3: it",
    ] {
        assert!(out(&output).contains(wanted), "{wanted}: {output:?}");
    }
    // One that cannot be read is counted, and those after it are looked at.
    let mode = |mode| {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::set_permissions(at(2), std::fs::Permissions::from_mode(mode)).expect("sets");
    };
    mode(0);
    let output = without_rights(&["fsck", text(&root), "--engine", &name, "--json"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(
        (&found["stubs"], &found["unread_count"]),
        (&2.into(), &1.into())
    );
    assert!(
        found["unread"][0][0]
            .as_str()
            .is_some_and(|path| path.ends_with("blk_2"))
    );
    let output = without_rights(&["fsck", text(&root), "--engine", &name]);
    let wanted = "blk_2: it cannot be read, a start refuses the volume: ";
    assert!(out(&output).contains(wanted), "{output:?}");
    assert!(
        out(&output).contains(" 1 that cannot be read"),
        "{output:?}"
    );
    mode(0o600);
    // An engine without a device has nothing to check.
    let output = engine(&["fsck", text(&root), "--engine", "posix"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(said(&output).contains("has no device"), "{output:?}");
}

#[tokio::test]
async fn fsck_takes_the_engine_of_the_configuration() {
    let base = tempfile::tempdir().expect("a directory");
    let root = base.path().join("root");
    let name = with_stubs(base.path(), &root).await;
    let site = base.path().join("hdfs-site.xml");
    let property = |key: &str, value: &str| {
        format!("<property><name>{key}</name><value>{value}</value></property>")
    };
    let dirs = property("dfs.datanode.data.dir", text(&root));
    let key = format!("hayloft.io.engine.{}", root.display());
    let of_root = property(&key, &name);
    let write = |all: &str| {
        let all = format!("<configuration>{all}</configuration>");
        std::fs::write(&site, all).expect("writes");
    };
    let fsck = || engine(&["fsck", text(&root), "--conf", text(base.path())]);
    write(&format!("{dirs}{of_root}"));
    let output = fsck();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    write(&property("dfs.datanode.data.dir", "/elsewhere"));
    let output = fsck();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(
        said(&output).contains("name its engine: --engine"),
        "{output:?}"
    );
}
