//! Small file systems for tests of full, read-only and failing disks. They need root.
//!
//! [`in_own_namespace`] puts the whole test into a mount namespace of its own: however it ends,
//! the kernel unmounts everything.

use crate::error::{Result, TestkitError};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Whether this process may mount.
#[must_use]
pub fn may_mount() -> bool {
    rustix::process::geteuid().is_root()
}

/// Runs this program again inside a private mount namespace, unless it is in one already or may
/// not mount. On success it does not return.
pub fn in_own_namespace() {
    const MARK: &str = "HAYLOFT_LAB_OWN_MOUNTS";
    if !may_mount() || std::env::var_os(MARK).is_some() {
        return;
    }
    let error = run_again_inside(&["--mount", "--propagation", "private"], (MARK, "1"));
    println!("no mount namespace ({error}); mounts of this test are undone at its end only");
}

/// Replaces this process by the same program with the same arguments inside the new namespaces that
/// these flags of `unshare` ask for; `mark` is a variable by which it will know. It comes back only
/// with the reason why that is impossible.
pub fn run_again_inside(flags: &[&str], mark: (&str, &str)) -> std::io::Error {
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return error,
    };
    Command::new("unshare")
        .args(flags)
        .arg("--")
        .arg(program)
        .args(std::env::args_os().skip(1))
        .env(mark.0, mark.1)
        .exec()
}

/// How `mkfs.ext4` makes one without a journal, which would lie in its middle.
const PACKED: [&str; 8] = [
    "-b",
    "4096",
    "-m",
    "0",
    "-O",
    "^has_journal",
    "-E",
    "lazy_itable_init=0",
];

/// A mounted file system; dropping it unmounts.
#[derive(Debug)]
pub struct TestMount {
    at: PathBuf,
    image: Option<PathBuf>,
}

impl TestMount {
    /// A memory file system of `mib` MiB at `at`, which is created.
    ///
    /// # Errors
    /// When mounting fails.
    pub fn tmpfs(at: &Path, mib: u32) -> Result<Self> {
        std::fs::create_dir_all(at).map_err(TestkitError::file("creating", at))?;
        run(Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={mib}m"), "tmpfs"])
            .arg(at))?;
        Ok(Self {
            at: at.to_owned(),
            image: None,
        })
    }

    /// An ext4 of `mib` MiB on a loop device over `image`, mounted at `at`; both are created. At
    /// its first error it becomes read-only, as servers mount it.
    ///
    /// # Errors
    /// When `mkfs.ext4` or loop devices are missing, or mounting fails.
    pub fn ext4(image: &Path, at: &Path, mib: u32) -> Result<Self> {
        Self::ext4_as(image, at, mib, &[], "loop,errors=remount-ro")
    }

    /// As [`ext4`](Self::ext4), one that goes on after errors. What belongs to it lies at its
    /// beginning, so that [`cut`](Self::cut) takes nothing but files.
    ///
    /// # Errors
    /// As [`ext4`](Self::ext4).
    pub fn going_on(image: &Path, at: &Path, mib: u32) -> Result<Self> {
        Self::ext4_as(image, at, mib, &PACKED, "loop,errors=continue")
    }

    /// As [`going_on`](Self::going_on), on a device.
    ///
    /// # Errors
    /// When `mkfs.ext4` is missing or mounting fails.
    pub fn going_on_device(device: &Path, at: &Path) -> Result<Self> {
        std::fs::create_dir_all(at).map_err(TestkitError::file("creating", at))?;
        Self::made(device, at, &PACKED, "errors=continue")?;
        Ok(Self {
            at: at.to_owned(),
            image: None,
        })
    }

    fn ext4_as(image: &Path, at: &Path, mib: u32, made: &[&str], mounted: &str) -> Result<Self> {
        std::fs::create_dir_all(at).map_err(TestkitError::file("creating", at))?;
        let file = std::fs::File::create(image).map_err(TestkitError::file("creating", image))?;
        file.set_len(u64::from(mib) << 20)
            .map_err(TestkitError::file("sizing", image))?;
        Self::made(image, at, made, mounted)?;
        Ok(Self {
            at: at.to_owned(),
            image: Some(image.to_owned()),
        })
    }

    fn made(on: &Path, at: &Path, made: &[&str], mounted: &str) -> Result<()> {
        run(Command::new("mkfs.ext4").arg("-qF").args(made).arg(on))?;
        run(Command::new("mount").args(["-o", mounted]).arg(on).arg(at)).map(drop)
    }

    /// Mounts an ext4 again that was unmounted behind our back.
    ///
    /// # Errors
    /// When it is not an ext4, or mounting fails.
    pub fn mount_again(&self) -> Result<()> {
        let image = self
            .image
            .as_ref()
            .ok_or_else(|| TestkitError::Talk("not on a loop device".into()))?;
        run(Command::new("mount")
            .args(["-o", "loop,errors=remount-ro"])
            .arg(image)
            .arg(&self.at))?;
        Ok(())
    }

    /// Where it is mounted.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.at
    }

    /// Makes an ext4 read-only as after a journal error, files open for writing included.
    ///
    /// # Errors
    /// When the remount fails.
    pub fn abort(&self) -> Result<()> {
        run(Command::new("mount")
            .args(["-o", "remount,abort"])
            .arg(&self.at))?;
        Ok(())
    }

    /// Cuts the disk under an ext4 down to 1 MiB: writes beyond give EIO at once, reads once out of
    /// the cache.
    ///
    /// The loop device is told, too: otherwise the next write would lengthen its file again, and
    /// from then on everything beyond would be zeros instead of errors.
    ///
    /// # Errors
    /// When it is not an ext4, or the device or the caches do not follow.
    pub fn break_disk(&self) -> Result<()> {
        let image = self
            .image
            .as_ref()
            .ok_or_else(|| TestkitError::Talk("not on a loop device".into()))?;
        run(Command::new("sync").arg("-f").arg(&self.at))?;
        let file = std::fs::File::options().write(true).open(image);
        file.and_then(|f| f.set_len(1 << 20))
            .map_err(TestkitError::file("cutting", image))?;
        let device = run(Command::new("losetup")
            .args(["--noheadings", "--output", "NAME", "--associated"])
            .arg(image))?;
        run(Command::new("losetup")
            .arg("--set-capacity")
            .arg(device.trim()))?;
        std::fs::write("/proc/sys/vm/drop_caches", "3")
            .map_err(TestkitError::file("writing", "/proc/sys/vm/drop_caches"))
    }

    /// Cuts the file under the disk to `len` bytes: what lay behind gives EIO to readers, as on a
    /// disk of which a part is bad. A write there makes the file long again.
    ///
    /// # Errors
    /// When it is not on a loop device, or the caches cannot be dropped.
    pub fn cut(&self, len: u64) -> Result<()> {
        let no_image = || TestkitError::Talk("not on a loop device".into());
        let image = self.image.as_ref().ok_or_else(no_image)?;
        run(Command::new("sync").arg("-f").arg(&self.at))?;
        cut_file(image, len)
    }

    /// Takes all room but about `left` bytes with a file `filler`, without writing it; returns that
    /// file.
    ///
    /// # Errors
    /// When there is less room, or the file system cannot allocate.
    pub fn fill_but(&self, left: u64) -> Result<PathBuf> {
        let path = self.at.join("filler");
        let free = self.free()?;
        let taken = free.checked_sub(left).filter(|taken| *taken > 0);
        let taken = taken.ok_or_else(|| {
            TestkitError::Talk(format!("{}: {free} bytes are free", self.at.display()))
        })?;
        let file = std::fs::File::create(&path).map_err(TestkitError::file("creating", &path))?;
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, taken)
            .map_err(|errno| TestkitError::file("allocating", &path)(errno.into()))?;
        Ok(path)
    }

    /// Bytes that are free for users other than root.
    ///
    /// # Errors
    /// When the file system does not say.
    pub fn free(&self) -> Result<u64> {
        let stat = rustix::fs::statvfs(&self.at);
        let stat = stat.map_err(|e| TestkitError::file("looking at", &self.at)(e.into()))?;
        Ok(stat.f_bavail * stat.f_frsize)
    }

    /// Fills it up with a file `filler`, or what room there is again; returns that file.
    ///
    /// # Errors
    /// When nothing can be written at all.
    pub fn fill(&self) -> Result<PathBuf> {
        use std::io::Write as _;
        let path = self.at.join("filler");
        let opened = std::fs::File::options()
            .create(true)
            .append(true)
            .open(&path);
        let mut file = opened.map_err(TestkitError::file("creating", &path))?;
        loop {
            let before = file.metadata().map_or(0, |meta| meta.len());
            for size in [1 << 20, 4096, 1] {
                let zeros = vec![0u8; size];
                while file.write_all(&zeros).is_ok() {}
            }
            // The file system reserves more than it needs until it has found places.
            let _ = file.sync_all();
            if file.metadata().map_or(0, |meta| meta.len()) == before {
                return Ok(path);
            }
        }
    }
}

impl Drop for TestMount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.at).status();
    }
}

/// Runs a program to its end and returns what it printed; its stderr is the error.
pub fn run(command: &mut Command) -> Result<String> {
    let problem = match command.output() {
        Ok(output) if output.status.success() => {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    Err(TestkitError::Talk(format!("{command:?}: {problem}")))
}

/// Cuts a file to `len` bytes and has the system forget what it has in memory.
///
/// # Errors
/// When one of them fails.
pub fn cut_file(path: &Path, len: u64) -> Result<()> {
    let file = std::fs::File::options().write(true).open(path);
    file.and_then(|f| f.set_len(len))
        .map_err(TestkitError::file("cutting", path))?;
    let caches = "/proc/sys/vm/drop_caches";
    std::fs::write(caches, "3").map_err(TestkitError::file("writing", caches))
}

/// A new loop device over `file`, which it reads and writes past the page cache.
pub fn loop_device(file: &Path) -> Result<PathBuf> {
    let said = run(Command::new("losetup")
        .args(["--find", "--show", "--direct-io=on"])
        .arg(file))?;
    let device = PathBuf::from(said.trim());
    if let Ok(name) = device.strip_prefix("/dev") {
        // The kernel keeps what a test that was killed wrote there, for the next file on the
        // device. Without a cache it sends no flush, and a cut takes what was synced.
        let queue = Path::new("/sys/block").join(name).join("queue/write_cache");
        std::fs::write(&queue, "write back").map_err(TestkitError::file("writing", &queue))?;
        return Ok(device);
    }
    Err(TestkitError::Talk(format!(
        "losetup named no device for {}: {said}",
        file.display()
    )))
}
