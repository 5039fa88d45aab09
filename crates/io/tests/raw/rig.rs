//! A directory and a device for `raw`: a file, or a loop device over one.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use hayloft_io::{
    AlignedBuf, Disk, DiskConfig, Engine, EngineConfig, IoClass, OpenMode, engine_for,
};

use super::{compile, loop_device};

pub const MIB: u64 = 1 << 20;

/// See the module.
pub struct Rig {
    pub root: PathBuf,
    /// What the engine is given.
    pub device: PathBuf,
    /// The file that has the bytes.
    pub backing: PathBuf,
    pub size: u64,
    is_loop: bool,
    dir: tempfile::TempDir,
}

impl Rig {
    /// On an empty file of 32 MiB.
    pub fn new() -> Self {
        Self::of(32 * MIB)
    }

    /// On an empty file.
    pub fn of(size: u64) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let (root, device) = (dir.path().join("root"), dir.path().join("device"));
        fs::create_dir(&root).expect("creates");
        File::create(&device)
            .and_then(|file| file.set_len(size))
            .expect("a file");
        fs::write(dir.path().join("raw.so"), object()).expect("writes");
        Self {
            root,
            backing: device.clone(),
            device,
            size,
            is_loop: false,
            dir,
        }
    }

    /// On a loop device; `None` where there is none, which is printed.
    pub fn on_loop() -> Option<Self> {
        let mut rig = Self::new();
        match loop_device::attach(&rig.backing) {
            Ok(device) => {
                rig.device = device;
                rig.is_loop = true;
                Some(rig)
            }
            Err(why) => {
                println!("skipped: {why}");
                None
            }
        }
    }

    /// On a file that is read as a disk with bad sectors: those that [`wear`](Self::wear) says.
    pub fn worn() -> Self {
        let rig = Self::new();
        let so = rig.dir.path().join("raw.so");
        compile::plugin("tests/raw/unreadable.c", &so, &[]);
        rig
    }

    /// The bad sectors from here on, as `unreadable.c` has them; gives those that there were.
    pub fn wear(&self, sectors: &str) -> String {
        let list = self.dir.path().join("device.bad");
        let before = fs::read_to_string(&list).unwrap_or_default();
        fs::write(list, sectors).expect("writes");
        before
    }

    /// The engine, as the configuration has it.
    pub fn name(&self, options: &str) -> String {
        self.name_on(&self.device, options)
    }

    fn name_on(&self, device: &Path, options: &str) -> String {
        let so = self.dir.path().join("raw.so");
        format!("plugin:{} {} {options}", so.display(), device.display())
    }

    pub fn open(&self, options: &str) -> Result<Arc<dyn Engine>, String> {
        self.open_on(&self.device, options)
    }

    pub fn open_on(&self, device: &Path, options: &str) -> Result<Arc<dyn Engine>, String> {
        let disk = Disk::for_path(&self.root, &DiskConfig::default()).expect("a disk");
        let name = self.name_on(device, options);
        let choice = engine_for(&name, &self.root, &EngineConfig::new(disk));
        choice.map(|it| it.engine).map_err(|e| e.to_string())
    }

    /// The bytes of the device.
    pub fn file(&self) -> File {
        let mut options = File::options();
        options.read(true).write(true);
        options.open(&self.backing).expect("opens")
    }

    /// Changes the size of a loop device under those that have it open.
    pub fn shrink_to(&self, size: u64) {
        self.file().set_len(size).expect("cuts");
        let mut command = Command::new("losetup");
        let ran = command.arg("--set-capacity").arg(&self.device).status();
        assert!(ran.expect("runs").success());
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if self.is_loop {
            loop_device::detach(&self.device);
        }
    }
}

/// The plug-in, compiled once.
fn object() -> &'static [u8] {
    static OBJECT: OnceLock<Vec<u8>> = OnceLock::new();
    OBJECT.get_or_init(|| {
        let dir = tempfile::tempdir().expect("a directory");
        let so = dir.path().join("raw.so");
        compile::plugin("../../plugins/raw.c", &so, &[]);
        fs::read(so).expect("reads")
    })
}

/// Does `work` on a loop device, where there is one.
pub fn with_loop(work: impl FnOnce(&Rig)) {
    if let Some(rig) = Rig::on_loop() {
        work(&rig);
    }
}

/// Writes bytes to a file, which is made if it is not there.
pub async fn write(engine: &Arc<dyn Engine>, path: &Path, at: u64, byte: u8, len: usize) {
    let mode = if path.exists() {
        OpenMode::ReadWrite
    } else {
        OpenMode::CreateNew
    };
    let file = engine.open(path, mode, IoClass::ClientWrite).await;
    let bytes = vec![Bytes::from(vec![byte; len])];
    let written = file.expect("opens").write_at(bytes, at).await;
    written.result.expect("writes");
}

pub async fn read(engine: &Arc<dyn Engine>, path: &Path) -> Vec<u8> {
    let file = engine.open(path, OpenMode::ReadOnly, IoClass::ClientRead);
    let file = file.await.expect("opens");
    let len = usize::try_from(file.length().await.expect("has one")).expect("small");
    let done = file.read_at(AlignedBuf::unpooled(len.max(1)), 0, len).await;
    assert_eq!(done.result.expect("reads"), len);
    done.buf.as_slice().to_vec()
}
