//! A disk whose power can be cut: a file system on a loop device over a file.
//!
//! The file stands for the device. What the file system has sent to it is there after a cut, what
//! it still had in memory is not: the kernel's `FS_IOC_GOINGDOWN` drops it without flushing the
//! log. The file system is unmounted then and mounted anew, so its log is replayed as after a real
//! cut. That a device may lose what it took but did not flush is shown over [`Under::Volatile`].

use crate::error::{Result, TestkitError};
use crate::modelled::{Lost, ModelledDisk};
use crate::mounts::run;
use crate::wait::{self, Seen};
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::File;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Size of a disk, bytes: room for a round of bulk writers, and for what the NameNode wants free.
pub const DISK_BYTES: u64 = 2 << 30;
/// How long a dead node's files may keep a file system from being unmounted.
const LET_GO: Duration = Duration::from_secs(20);
/// Takes the space of a full disk.
const FILLER: &str = "filler";
/// What is left of a failing device, bytes: reads and writes beyond give EIO.
const FAILING_BYTES: u64 = 1 << 20;

/// Which file system, and how it is mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystem {
    /// ext4 with its defaults: a commit of the log every 5 s.
    Ext4,
    /// ext4 with `commit=60`: what no sync asks for stays in memory up to a minute.
    Ext4Commit60,
    /// XFS with its defaults.
    Xfs,
}

impl FileSystem {
    /// Its name in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Ext4Commit60 => "ext4, commit=60",
            Self::Xfs => "XFS",
        }
    }

    /// What this machine lacks to make one, in words.
    #[must_use]
    pub fn missing(self) -> Option<String> {
        match self {
            Self::Ext4 | Self::Ext4Commit60 => no_program("mkfs.ext4", "e2fsprogs"),
            Self::Xfs => no_program("mkfs.xfs", "xfsprogs"),
        }
    }

    fn kind(self) -> &'static str {
        match self {
            Self::Ext4 | Self::Ext4Commit60 => "ext4",
            Self::Xfs => "xfs",
        }
    }

    fn make(self, on: &Path) -> Result<()> {
        let mut command = Command::new(format!("mkfs.{}", self.kind()));
        match self.kind() {
            // All of it now: nothing of it is to be written while writers are watched.
            "ext4" => command.args(["-qF", "-E", "lazy_itable_init=0,lazy_journal_init=0"]),
            _ => command.arg("-qf"),
        };
        run(command.arg(on)).map(drop)
    }

    fn options(self) -> &'static str {
        match self {
            // Read-only at the first error, as servers mount it.
            Self::Ext4 => "errors=remount-ro",
            Self::Ext4Commit60 => "errors=remount-ro,commit=60",
            Self::Xfs => "defaults",
        }
    }
}

/// What is under the file system.
#[derive(Debug)]
pub enum Under {
    /// A file behind a loop device. It takes what is written at once, as a device without a cache.
    Image(PathBuf),
    /// A FUSE file behind a loop device, which loses part of the writes that no flush followed.
    Volatile(ModelledDisk),
}

/// What this machine lacks for such disks, whatever the file system, in words.
#[must_use]
pub fn missing() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("root (disks are mounted)".into());
    }
    if !Path::new("/dev/loop-control").exists() {
        return Some("loop devices (/dev/loop-control is not there)".into());
    }
    no_program("losetup", "util-linux")
}

fn no_program(tool: &str, package: &str) -> Option<String> {
    let there = Command::new(tool).arg("-V").output().is_ok();
    (!there).then(|| format!("the program {tool} (Debian package {package})"))
}

/// A mounted disk. Dropping it unmounts it; its loop device goes with the mount.
#[derive(Debug)]
pub struct PowerDisk {
    at: PathBuf,
    file_system: FileSystem,
    under: Under,
}

impl PowerDisk {
    /// A disk over the file `image`, mounted at `at`; both are created.
    ///
    /// # Errors
    /// When making or mounting the file system fails.
    pub fn on_image(image: &Path, at: &Path, file_system: FileSystem) -> Result<Self> {
        let file = File::create(image).map_err(TestkitError::file("creating", image))?;
        file.set_len(DISK_BYTES)
            .map_err(TestkitError::file("sizing", image))?;
        file_system.make(image)?;
        Self::mounted(at, file_system, Under::Image(image.to_owned()))
    }

    /// A disk over `device`, which is one of [`modelled`](crate::modelled) that is not mounted yet
    /// and loses writes.
    ///
    /// # Errors
    /// When making or mounting the file system fails.
    pub fn on_volatile(device: ModelledDisk, at: &Path, file_system: FileSystem) -> Result<Self> {
        file_system.make(&device.place().device)?;
        Self::mounted(at, file_system, Under::Volatile(device))
    }

    fn mounted(at: &Path, file_system: FileSystem, under: Under) -> Result<Self> {
        std::fs::create_dir_all(at).map_err(TestkitError::file("creating", at))?;
        let disk = Self {
            at: at.to_owned(),
            file_system,
            under,
        };
        disk.mount()?;
        Ok(disk)
    }

    fn mount(&self) -> Result<()> {
        let mut command = Command::new("mount");
        command.args(["-t", self.file_system.kind(), "-o"]);
        let options = self.file_system.options();
        match &self.under {
            // Such a loop device goes when the file system is unmounted, whatever unmounts it.
            Under::Image(image) => command.arg(format!("loop,{options}")).arg(image),
            Under::Volatile(disk) => command.arg(options).arg(&disk.place().device),
        };
        run(command.arg(&self.at)).map(drop)
    }

    /// Where it is mounted.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.at
    }

    /// Which file system it has.
    #[must_use]
    pub fn file_system(&self) -> FileSystem {
        self.file_system
    }

    /// Whether the device under it loses what was not flushed.
    #[must_use]
    pub fn is_volatile(&self) -> bool {
        matches!(self.under, Under::Volatile(_))
    }

    /// Sends all that it has to the device.
    ///
    /// # Errors
    /// When that fails.
    pub fn sync(&self) -> Result<()> {
        run(Command::new("sync").arg("-f").arg(&self.at)).map(drop)
    }

    /// Cuts the power: nothing reaches the device any more. `seed` says what a volatile device
    /// loses of what it had taken. Returns how much that was.
    ///
    /// # Errors
    /// When the kernel refuses, or the device's process is gone.
    pub fn cut(&self, seed: u64) -> Result<Lost> {
        if let Under::Volatile(disk) = &self.under {
            return disk.cut_power(seed);
        }
        let dir = File::open(&self.at).map_err(TestkitError::file("opening", &self.at))?;
        hayloft_io::shut_down_file_system(dir.as_fd())
            .map_err(|e| TestkitError::Talk(format!("shutting down {}: {e}", self.at.display())))?;
        Ok(Lost::default())
    }

    /// The power is back: unmounts what is left of the file system and mounts it again, which
    /// replays its log. No process may have files open there any more.
    ///
    /// # Errors
    /// When it cannot be unmounted, or is damaged beyond what its log mends.
    pub fn power_on(&self) -> Result<()> {
        self.unmount()?;
        if let Under::Volatile(disk) = &self.under {
            disk.power_on()?;
        }
        self.mount()
    }

    fn unmount(&self) -> Result<()> {
        let what = format!("{} to be unmounted", self.at.display());
        wait::until(&what, LET_GO, || {
            let done = run(Command::new("umount").arg(&self.at));
            Ok(match done {
                Ok(_) => Seen::Done(()),
                Err(error) => Seen::NotYet(error.to_string()),
            })
        })
    }

    /// Leaves no free space: a file takes it.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn fill(&self) -> Result<()> {
        let filler = self.at.join(FILLER);
        let file = File::create(&filler).map_err(TestkitError::file("creating", &filler))?;
        let mut taken = 0;
        for piece in [1_u64 << 30, 64 << 20, 1 << 20, 4096] {
            // Until there is no room for another of that size.
            while fallocate(&file, FallocateFlags::empty(), taken, piece).is_ok() {
                taken += piece;
            }
        }
        Ok(())
    }

    /// Gives back what [`PowerDisk::fill`] took.
    ///
    /// # Errors
    /// When the file cannot be removed.
    pub fn empty(&self) -> Result<()> {
        let filler = self.at.join(FILLER);
        std::fs::remove_file(&filler).map_err(TestkitError::file("removing", filler))
    }

    /// The device fails: from now on it answers nearly everything with EIO. What it had until now
    /// is kept beside it for [`PowerDisk::repair`].
    ///
    /// # Errors
    /// When the disk is volatile, or a step fails.
    pub fn fail(&self) -> Result<()> {
        let image = self.image()?;
        // Frozen, the file system has sent all that it has, and takes nothing until it is thawed:
        // the copy is the device as it is at the moment when it fails.
        run(Command::new("fsfreeze").arg("--freeze").arg(&self.at))?;
        let failed = copy(image, &kept(image)).and_then(|()| self.shrink(image));
        run(Command::new("fsfreeze").arg("--unfreeze").arg(&self.at))?;
        failed
    }

    fn shrink(&self, image: &Path) -> Result<()> {
        let file = File::options().write(true).open(image);
        file.and_then(|f| f.set_len(FAILING_BYTES))
            .map_err(TestkitError::file("cutting", image))?;
        let source = run(Command::new("findmnt")
            .args(["--noheadings", "--output", "SOURCE", "--target"])
            .arg(&self.at))?;
        // Otherwise the next write would lengthen the file again.
        run(Command::new("losetup")
            .arg("--set-capacity")
            .arg(source.trim()))
        .map(drop)
    }

    /// A failing device works again, with what it had when it began to fail. Its node must be dead.
    ///
    /// # Errors
    /// When a step fails.
    pub fn repair(&self) -> Result<()> {
        let image = self.image()?;
        self.unmount()?;
        std::fs::rename(kept(image), image).map_err(TestkitError::file("putting back", image))?;
        self.mount()
    }

    fn image(&self) -> Result<&Path> {
        match &self.under {
            Under::Image(image) => Ok(image),
            Under::Volatile(_) => Err(TestkitError::Talk("a volatile disk does not fail".into())),
        }
    }
}

impl Drop for PowerDisk {
    fn drop(&mut self) {
        // Lazily: a process that hangs on it must not keep it mounted. What fails here the end of
        // the mount namespace does.
        let _ = Command::new("umount").arg("-lq").arg(&self.at).output();
    }
}

fn kept(image: &Path) -> PathBuf {
    image.with_extension("kept")
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    run(Command::new("cp").arg("--sparse=always").arg(from).arg(to)).map(drop)
}
