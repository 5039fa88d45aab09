//! What was synced is on the device: the device is copied at an instant, and the copy is mounted.
//!
//! The device is a loop device over a file. What the file holds is what the file system above has
//! sent to its device; its own page cache, from which an unsynced write would read back, stays
//! behind. So the copy is what a machine finds that lost its power, as far as a device without a
//! cache of its own goes: that the flush command reaches the device is not shown by it.
//!
//! Needs root, loop devices and mkfs; elsewhere it says why it is skipped.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use bytes::Bytes;
use hayloft_io::{
    AlignedBuf, DirectLimits, Disk, DiskConfig, EngineConfig, EngineFile, IoClass, OpenMode,
    SyncKind, engine_by_name,
};

const DEVICE_BYTES: u64 = 384 << 20;

/// Runs a tool and gives its output, or what it complained about.
fn tool(name: &str, args: &[&str]) -> Result<String, String> {
    let output = Command::new(name)
        .args(args)
        .output()
        .map_err(|e| format!("{name}: {e}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    Err(format!(
        "{name} {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    ))
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary paths are UTF-8")
}

/// A file as a mounted disk; unmounted when dropped.
struct Mounted {
    device: String,
    dir: PathBuf,
}

impl Mounted {
    /// Formats first when `format` names a file system.
    fn new(file: &Path, dir: PathBuf, format: Option<&str>) -> Result<Self, String> {
        fs::create_dir_all(&dir).map_err(|e| e.to_string())?;
        let device = tool("losetup", &["--find", "--show", text(file)])?;
        let mounted = Self { device, dir };
        if let Some(kind) = format {
            let quiet = if kind == "xfs" { "-qf" } else { "-qF" };
            tool(&format!("mkfs.{kind}"), &[quiet, &mounted.device])?;
        }
        // XFS does not mount a copy of what is mounted unless told.
        let plain = tool("mount", &[&mounted.device, text(&mounted.dir)]);
        plain.or_else(|_| {
            tool(
                "mount",
                &["-o", "nouuid", &mounted.device, text(&mounted.dir)],
            )
        })?;
        Ok(mounted)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = tool("umount", &["-l", text(&self.dir)]);
        let _ = tool("losetup", &["-d", &self.device]);
    }
}

/// A file that grows, and what is known of it.
struct Growing {
    name: String,
    file: Arc<dyn EngineFile>,
    seed: u64,
    len: usize,
    synced: usize,
}

/// Byte `at` of the file with this seed.
fn byte(seed: u64, at: usize) -> u8 {
    let x = (at as u64 / 8)
        .wrapping_add(seed)
        .wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (x >> 40).to_le_bytes()[0] ^ at.to_le_bytes()[0]
}

/// Bytes of a file in aligned memory.
fn piece(seed: u64, from: usize, len: usize) -> Bytes {
    let mut buf = AlignedBuf::unpooled(len);
    buf.set_len(len);
    for (i, b) in buf.as_mut_slice().iter_mut().enumerate() {
        *b = byte(seed, from + i);
    }
    buf.freeze()
}

impl Growing {
    /// Appends as writers of replicas do: whole aligned pieces, the last page again when it was
    /// partial.
    async fn append(&mut self, len: usize) {
        let from = self.len - self.len % 4096;
        let end = self.len + len;
        let bufs = (from..end)
            .step_by(256 << 10)
            .map(|at| piece(self.seed, at, (end - at).min(256 << 10)))
            .collect();
        let done = self.file.write_at(bufs, from as u64).await;
        assert_eq!(done.result.expect("there is room"), end - from);
        self.len = end;
    }

    async fn sync(&mut self) {
        self.file.sync(SyncKind::Data).await.expect("syncs");
        self.synced = self.len;
    }

    /// Compares the copy of the file with what was synced.
    fn check(&self, dir: &Path, what: &str) {
        let path = dir.join(&self.name);
        let seen = match fs::read(&path) {
            Ok(seen) => seen,
            Err(_) if self.synced == 0 => return,
            Err(e) => panic!("{what}: {} is gone: {e}", self.name),
        };
        assert!(
            seen.len() >= self.synced && seen.len() <= self.len,
            "{what}: {} has {} bytes; {} were synced, {} written",
            self.name,
            seen.len(),
            self.synced,
            self.len
        );
        let wrong = (0..self.synced).find(|at| seen[*at] != byte(self.seed, *at));
        assert_eq!(
            wrong, None,
            "{what}: {} of {} synced",
            self.name, self.synced
        );
    }
}

/// The device as it is now, mounted.
fn copy(device: &Path, dir: &Path, number: usize) -> Mounted {
    let image = dir.join(format!("copy{number}"));
    tool("cp", &["--sparse=always", text(device), text(&image)]).expect("there is room");
    let mounted = Mounted::new(&image, dir.join(format!("seen{number}")), None);
    fs::remove_file(&image).expect("ours"); // The loop device keeps it.
    mounted.expect("a file system that recovers")
}

async fn scenario(kind: &str, name: &str) -> Result<(), String> {
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let device = scratch.path().join("device");
    let image = fs::File::create(&device).expect("writable");
    image.set_len(DEVICE_BYTES).expect("sparse");
    let mounted = Mounted::new(&device, scratch.path().join("mounted"), Some(kind))?;
    let disk = Disk::for_path(&mounted.dir, &DiskConfig::default()).expect("mounted");
    let mut config = EngineConfig::new(disk);
    config.direct = DirectLimits {
        read_min: 4096,
        write_min: 4096,
        ..DirectLimits::default()
    };
    let engine = engine_by_name(name, &config).expect("a known name");
    let mut files = Vec::new();
    for seed in 0..3_u64 {
        let name = format!("blk_{seed}");
        let path = mounted.dir.join(&name);
        let file = engine.open(&path, OpenMode::CreateNew, IoClass::ClientWrite);
        let file = file.await.expect("a new file");
        file.allocate(32 << 20).await.expect("supported");
        files.push(Growing {
            name,
            file,
            seed: seed + 1,
            len: 0,
            synced: 0,
        });
    }
    let meta = engine.meta(IoClass::ClientWrite);
    meta.sync_dir(&mounted.dir).await.expect("a directory");
    let lens = [1 << 20, 4096, 100_001, 3, 2 << 20, 511, 65_536, 300_000];
    for (round, len) in lens.into_iter().enumerate() {
        for (i, file) in files.iter_mut().enumerate() {
            file.append(len + i * 4096).await;
        }
        files[round % 3].sync().await;
        // Not synced, on its way or not: may be there or not.
        files[(round + 1) % 3].append(50_000).await;
        let seen = copy(&device, scratch.path(), round);
        for file in &files {
            file.check(&seen.dir, &format!("{kind}, {name}, round {round}"));
        }
    }
    for file in &mut files {
        file.file
            .truncate(file.len as u64)
            .await
            .expect("cuts what was reserved");
        file.sync().await;
    }
    let seen = copy(&device, scratch.path(), lens.len());
    for file in &files {
        file.check(&seen.dir, &format!("{kind}, {name}, at the end"));
    }
    Ok(())
}

/// Without a sync a copy has to miss something; else these tests would show nothing.
async fn control(kind: &str) -> Result<(), String> {
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let device = scratch.path().join("device");
    let image = fs::File::create(&device).expect("writable");
    image.set_len(DEVICE_BYTES).expect("sparse");
    let mounted = Mounted::new(&device, scratch.path().join("mounted"), Some(kind))?;
    fs::write(mounted.dir.join("f"), vec![7; 100_000]).expect("writable");
    let seen = copy(&device, scratch.path(), 0);
    let there = fs::read(seen.dir.join("f")).unwrap_or_default();
    assert_ne!(
        there,
        vec![7; 100_000],
        "an unsynced file is in the copy: it shows the cache"
    );
    Ok(())
}

async fn each_engine(kind: &str) {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: not root");
        return;
    }
    if let Err(why) = control(kind).await {
        println!("skipped: no {kind} on a loop device here: {why}");
        return;
    }
    for name in ["posix", "direct"] {
        scenario(kind, name).await.expect("it worked a moment ago");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn synced_bytes_outlive_a_cut_on_ext4() {
    each_engine("ext4").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn synced_bytes_outlive_a_cut_on_xfs() {
    each_engine("xfs").await;
}
