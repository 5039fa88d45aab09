//! Names, directories, small files, locks, space.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hayloft_io::{
    AlignedBuf, Disk, DiskConfig, ENGINE_NAMES, EngineConfig, IoClass, IoErrorKind, IoOp, Meta,
    OpenMode, engine_by_name,
};

fn rig() -> (tempfile::TempDir, Meta) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let disk = Disk::for_path(dir.path(), &DiskConfig::default()).expect("the directory exists");
    (dir, Meta::new(disk, IoClass::ClientWrite))
}

fn names_in(dir: &Path) -> usize {
    fs::read_dir(dir).expect("readable").count()
}

#[tokio::test]
async fn small_files_are_replaced_whole_and_read_within_a_limit() {
    let (dir, meta) = rig();
    let path = dir.path().join("VERSION");
    for contents in ["one", "a longer second", "3"] {
        meta.replace(&path, contents.into(), 0o600)
            .await
            .expect("writable");
        assert_eq!(
            meta.read_small(&path, 100).await.expect("readable"),
            contents.as_bytes()
        );
    }
    assert_eq!(
        fs::metadata(&path).expect("there").permissions().mode() & 0o777,
        0o600
    );
    assert_eq!(names_in(dir.path()), 1, "no temporary file stays");
    meta.replace(&path, vec![b'x'; 100], 0o600)
        .await
        .expect("writable");
    assert_eq!(
        meta.read_small(&path, 100).await.expect("readable").len(),
        100
    );
    assert_eq!(
        meta.read_small(&path, 99).await.expect_err("longer").kind(),
        IoErrorKind::TooLarge
    );
    let missing = meta
        .replace(&dir.path().join("no/VERSION"), Vec::new(), 0o600)
        .await;
    assert_eq!(
        missing.expect_err("no directory").kind(),
        IoErrorKind::NotFound
    );
}

#[tokio::test]
async fn directories_are_made_and_removed() {
    let (dir, meta) = rig();
    let deep = dir.path().join("a/b/c");
    meta.create_dir_all(&deep, 0o700).await.expect("writable");
    meta.create_dir_all(&deep, 0o700)
        .await
        .expect("already there is fine");
    assert_eq!(
        fs::metadata(&deep).expect("there").permissions().mode() & 0o777,
        0o700
    );
    fs::write(deep.join("f"), "x").expect("writable");
    let is_dir = async |path: &Path| meta.is_dir(path).await.expect("there");
    assert!(is_dir(&deep).await && !is_dir(&deep.join("f")).await);
    meta.sync_dir(&deep).await.expect("there");
    meta.remove_dir_all(&dir.path().join("a"))
        .await
        .expect("writable");
    assert!(!meta.exists(&deep).await.expect("known"));
    assert_eq!(
        meta.is_dir(&deep).await.expect_err("gone").kind(),
        IoErrorKind::NotFound
    );
    let error = meta
        .rename(&deep, &dir.path().join("b"))
        .await
        .expect_err("gone");
    assert!(
        error.to_string().contains("to ") && error.op() == IoOp::Rename,
        "{error}"
    );
}

#[tokio::test]
async fn space_and_mount_are_known() {
    let (dir, meta) = rig();
    let space = meta.space(dir.path()).await.expect("a file system");
    assert!(space.available <= space.free && space.free <= space.capacity && space.capacity > 0);
    let mount = meta.mount_of(dir.path()).await.expect("a mount");
    assert!(
        dir.path()
            .canonicalize()
            .expect("there")
            .starts_with(mount.point)
    );
}

#[tokio::test]
async fn a_panic_is_an_error_and_the_thread_goes_on() {
    let (dir, meta) = rig();
    let panicked = meta
        .run(IoOp::Other, dir.path(), |_| -> Result<(), _> {
            panic!("part of the test")
        })
        .await;
    assert_eq!(panicked.expect_err("no answer").kind(), IoErrorKind::Closed);
    assert!(
        meta.exists(dir.path())
            .await
            .expect("the next one is served")
    );
}

/// Runs in a child process of the test below.
#[tokio::test]
#[ignore = "a part of the test below"]
async fn child_that_locks() {
    let path = std::env::var_os("HAYLOFT_TEST_LOCK").expect("set by the parent");
    let disk = Disk::for_path(Path::new("/"), &DiskConfig::default()).expect("the root exists");
    let locked = Meta::new(disk, IoClass::ClientWrite)
        .lock(Path::new(&path), "7@child".to_owned())
        .await;
    match locked {
        Ok(_) => println!("result: locked"),
        Err(e) => println!("result: {:?} {e}", e.kind()),
    }
}

fn lock_in_a_child(path: &Path) -> String {
    let output = Command::new(std::env::current_exe().expect("we run from a file"))
        .args(["--exact", "child_that_locks", "--ignored", "--nocapture"])
        .env("HAYLOFT_TEST_LOCK", path)
        .output()
        .expect("a child process");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let from = text.find("result: ").expect("the child says its result");
    text[from..].lines().next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn the_lock_keeps_other_processes_out_until_it_is_dropped() {
    let (dir, meta) = rig();
    let path = dir.path().join("in_use.lock");
    let lock = meta.lock(&path, "1@parent".to_owned()).await.expect("free");
    let other = lock_in_a_child(&path);
    assert!(
        other.starts_with("result: Locked") && other.contains("1@parent"),
        "{other}"
    );
    let ours = meta
        .lock(&path, "2@parent".to_owned())
        .await
        .expect_err("held");
    assert_eq!(ours.kind(), IoErrorKind::Locked);
    assert!(
        lock_in_a_child(&path).starts_with("result: Locked"),
        "a refused lock must not release the first"
    );
    drop(lock);
    assert_eq!(lock_in_a_child(&path), "result: locked");
    assert_eq!(fs::read(&path).expect("readable"), b"7@child");
}

#[test]
fn an_unknown_engine_names_the_known_ones() {
    let disk = Disk::for_path(Path::new("/"), &DiskConfig::default()).expect("the root exists");
    let error = engine_by_name("floppy", &EngineConfig::new(disk))
        .expect_err("unknown")
        .to_string();
    assert!(
        error.contains("floppy") && error.contains(&ENGINE_NAMES.join(", ")),
        "{error}"
    );
}

/// A tmpfs of one MiB, unmounted when dropped.
struct TinyFs(tempfile::TempDir);

impl TinyFs {
    fn mount() -> Result<Self, String> {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let output = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=1m", "hayloft-test"])
            .arg(dir.path())
            .output()
            .map_err(|e| format!("cannot run mount: {e}"))?;
        if output.status.success() {
            Ok(Self(dir))
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }
}

impl Drop for TinyFs {
    fn drop(&mut self) {
        // Lazily: the disk closes files a moment after they were dropped.
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[tokio::test]
async fn a_full_disk_gives_the_buffers_back_and_keeps_what_was_there() {
    let tiny = match TinyFs::mount() {
        Ok(tiny) => tiny,
        Err(why) => {
            println!("skipped: needs root to mount a tmpfs: {why}");
            return;
        }
    };
    let disk = Disk::for_path(tiny.0.path(), &DiskConfig::default()).expect("mounted");
    let engine =
        engine_by_name("posix", &EngineConfig::new(Arc::clone(&disk))).expect("a known name");
    let path = tiny.0.path().join("f");
    let file = engine
        .open(&path, OpenMode::CreateNew, IoClass::ClientWrite)
        .await
        .expect("room for a name");
    let part = bytes::Bytes::from(vec![7; 300 * 1024]);
    for i in 0..3 {
        assert!(
            file.write_at(vec![part.clone()], i * 300 * 1024)
                .await
                .result
                .is_ok()
        );
    }
    let done = file
        .write_at(vec![part.clone(), part.clone()], 900 * 1024)
        .await;
    assert_eq!(done.result.expect_err("full").kind(), IoErrorKind::NoSpace);
    assert_eq!(done.buf.len(), 2);
    let allocated = file.allocate(10 << 20).await.expect_err("full");
    assert_eq!(allocated.kind(), IoErrorKind::NoSpace);
    let back = file
        .read_at(AlignedBuf::unpooled(900 * 1024), 0, 900 * 1024)
        .await;
    assert!(back.buf.as_slice().iter().all(|b| *b == 7) && back.buf.len() == 900 * 1024);
    let meta = engine.meta(IoClass::ClientWrite);
    let replaced = meta
        .replace(&tiny.0.path().join("v"), vec![1; 2 << 20], 0o600)
        .await;
    assert_eq!(replaced.expect_err("full").kind(), IoErrorKind::NoSpace);
    assert_eq!(names_in(tiny.0.path()), 1, "no temporary file stays");
    file.truncate(0).await.expect("writable");
    assert!(
        file.write_at(vec![part], 0).await.result.is_ok(),
        "room again"
    );
}

#[tokio::test]
async fn names_wait_for_no_data_however_much_is_queued() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let disk = Disk::for_path(dir.path(), &DiskConfig::default()).expect("the directory exists");
    let go_on = Arc::new(AtomicBool::new(false));
    // Writes and reads that do not end, of clients and of the scanner, more than there are threads
    // and places.
    let stuck = |class, op| {
        let go_on = Arc::clone(&go_on);
        disk.run(class, op, dir.path(), move |_| {
            while !go_on.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(())
        })
    };
    let classes = [IoClass::ClientWrite, IoClass::ClientRead, IoClass::Scan];
    let data: Vec<_> = classes
        .into_iter()
        .flat_map(|class| {
            let stuck = &stuck;
            (0..100).flat_map(move |_| [stuck(class, IoOp::Write), stuck(class, IoOp::Read)])
        })
        .collect();
    let (file, renamed) = (dir.path().join("blk_1"), dir.path().join("blk_2"));
    for class in [IoClass::ClientWrite, IoClass::Replication, IoClass::Delete] {
        let meta = Meta::new(Arc::clone(&disk), class);
        let names = async {
            meta.replace(&file, "data".into(), 0o600).await?;
            meta.rename(&file, &renamed).await?;
            meta.exists(&renamed).await?;
            meta.unlink(&renamed).await
        };
        let done = tokio::time::timeout(Duration::from_secs(20), names).await;
        done.expect("no wait for data").expect("nothing is wrong");
    }
    let longest = disk.longest_transfer();
    assert!(
        longest.is_some_and(|longest| longest > Duration::ZERO),
        "a disk that hangs is seen: {longest:?}"
    );
    go_on.store(true, Ordering::Relaxed);
    for done in data {
        done.await.expect("served at last");
    }
}

#[tokio::test]
async fn one_name_that_hangs_is_seen_and_a_long_walk_is_not() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let disk = Disk::for_path(dir.path(), &DiskConfig::default()).expect("the directory exists");
    for class in [IoClass::ClientWrite, IoClass::Delete] {
        let stuck = |op| {
            let (go_on, wait) = std::sync::mpsc::channel::<()>();
            let meta = Meta::new(Arc::clone(&disk), class);
            let done = meta.run(op, dir.path(), move |_| {
                let _over = wait.recv();
                Ok(())
            });
            (go_on, done)
        };
        let (walked, walk) = stuck(IoOp::List);
        while disk.longest_running() < Some(Duration::from_millis(20)) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(disk.longest_other(dir.path()), None, "a walk may take long");
        for op in [IoOp::Open, IoOp::Rename, IoOp::Unlink, IoOp::Sync] {
            let (renamed, rename) = stuck(op);
            loop {
                if let Some((time, what)) = disk.longest_other(dir.path()) {
                    assert_eq!(what, op.name());
                    assert_eq!(disk.longest_other(Path::new("/elsewhere")), None);
                    if time > Duration::from_millis(20) {
                        break;
                    }
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            drop(renamed);
            rename.await.expect("goes on");
            while disk.longest_other(dir.path()).is_some() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        drop(walked);
        walk.await.expect("goes on");
    }
    assert_eq!(disk.longest_transfer(), None);
}
