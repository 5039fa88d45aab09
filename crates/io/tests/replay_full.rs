//! What a killed process staged, on a file system that is full at the next start: kept, whole, for a later one.
//!
//! Needs root, to mount a small file system; elsewhere it says why it is skipped.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use bytes::Bytes;
use hayloft_io::staging::{Append, Root, SideShape, StageSpec, Staging, StagingConfig};
use hayloft_io::{Disk, DiskConfig, Engine, EngineConfig, IoClass, OpenMode, engine_by_name};

const SEGMENT: usize = 256 << 10;
const LEN: usize = 3 * SEGMENT + 1000;

/// A memory file system of 2 MiB; unmounted when dropped.
struct Small(PathBuf);

impl Small {
    fn new(at: PathBuf) -> Result<Self, String> {
        fs::create_dir_all(&at).map_err(|e| e.to_string())?;
        let run = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=2m", "tmpfs"])
            .arg(&at)
            .output();
        let run = run.map_err(|e| format!("mount: {e}"))?;
        if run.status.success() {
            return Ok(Self(at));
        }
        Err(String::from_utf8_lossy(&run.stderr).trim().to_owned())
    }

    /// Leaves room for `bytes`, in pages.
    fn fill_but(&self, bytes: usize) -> PathBuf {
        let ballast = self.0.join("ballast");
        let space = rustix::fs::statvfs(&self.0).expect("is mounted");
        let free = usize::try_from(space.f_bfree * space.f_frsize).expect("2 MiB at most");
        fs::write(&ballast, vec![1; free - bytes]).expect("fits");
        ballast
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn contents() -> Vec<u8> {
    (0..LEN).map(|i| (i * 7 % 251).to_le_bytes()[0]).collect()
}

fn config(dir: &Path, data: &Path) -> StagingConfig {
    StagingConfig {
        dir: dir.to_owned(),
        name: "full".to_owned(),
        budget: 8 << 20,
        roots: vec![Root {
            path: data.to_owned(),
            usable: true,
        }],
    }
}

/// Stages a file without anything of it written, and leaves it as a killed process does.
async fn stage_and_crash(config: &StagingConfig, main: &Path) {
    let disk = Disk::for_path(main.parent().expect("has one"), &DiskConfig::default());
    let engine = engine_by_name("posix", &EngineConfig::new(disk.expect("a disk")));
    let engine: Arc<dyn Engine> = engine.expect("is known");
    let open = engine.open(main, OpenMode::CreateNew, IoClass::ClientWrite);
    let file = open.await.expect("opens");
    let staging = Staging::create(config).expect("an area");
    let staged = staging.stage(StageSpec {
        main: Arc::clone(&file),
        side: file,
        shape: SideShape {
            grain: 512,
            unit: 0,
            base: 0,
        },
        len: 0,
        synced: 0,
        quantum: 4 << 20,
        burst: false,
        cuts: 1,
        eager: 4 << 20,
        while_idle: None,
    });
    let staged = staged.expect("can be staged");
    staged.hold();
    let committed = staged.try_append(0, &[Bytes::from(contents())], &[]);
    assert_eq!(committed.expect("is taken"), Append::Committed);
    staging.crash();
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_behind_some_that_do_not_fit_are_kept_with_them() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let small = match Small::new(dir.path().join("data")) {
        Ok(small) => small,
        Err(why) => {
            println!("skipped: no small file system can be mounted ({why}); it needs root");
            return;
        }
    };
    let main = small.0.join("main");
    let config = config(dir.path(), &small.0);
    stage_and_crash(&config, &main).await;
    // Not even the first segment fits.
    let ballast = small.fill_but(SEGMENT / 2);
    let done = Staging::finish_earlier(&config).expect("goes on");
    assert_eq!((done.kept, done.gone, done.segments), (4, 0, 0));
    assert!(fs::metadata(&main).expect("there").len() < SEGMENT as u64);
    fs::remove_file(ballast).expect("removes");
    let done = Staging::finish_earlier(&config).expect("goes on");
    assert_eq!((done.kept, done.gone, done.segments), (0, 0, 4));
    assert!(fs::read(&main).expect("there") == contents(), "every byte");
    assert_eq!(
        fs::read_dir(dir.path()).expect("there").count(),
        1,
        "no area is left"
    );
}
