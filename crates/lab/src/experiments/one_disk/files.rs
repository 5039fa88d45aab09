//! Files and devices written and read from one end to the other, as `dd` does.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::OFlags;

use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::modelled::HostedFileSystem;
use hayloft_testkit::mounts::{loop_device, run};

/// What `O_DIRECT` wants memory and places to be multiples of, bytes.
const ALIGNED: usize = 4096;

/// How a file is opened, and bytes of one call.
#[derive(Clone, Copy, Debug)]
pub(in crate::experiments) struct Calls {
    /// Past the page cache.
    pub direct: bool,
    /// Bytes of one call, a multiple of 4096.
    pub bytes: usize,
}

impl Calls {
    /// Through the page cache in pieces of 64 KiB: those of the thesis' `dd`, and HDFS' packets.
    pub const BUFFERED: Self = Self {
        direct: false,
        bytes: 64 << 10,
    };

    fn open(self, path: &Path, options: &mut OpenOptions) -> Result<File> {
        if self.direct {
            let flag = i32::try_from(OFlags::DIRECT.bits()).expect("a flag of open");
            options.custom_flags(flag);
        }
        options
            .open(path)
            .map_err(TestkitError::file("opening", path))
    }

    /// Memory for one call: with what aligning takes, and where to begin.
    fn memory(self) -> (Vec<u8>, usize) {
        // Not zeros, which a layer below might not store.
        let memory = vec![0xa5; self.bytes + ALIGNED];
        let at = memory.as_ptr().align_offset(ALIGNED);
        (memory, at)
    }

    /// Writes so many bytes to a file, which is made, or a device, and waits until they are on it.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(self, path: &Path, bytes: u64) -> Result<()> {
        let mut options = OpenOptions::new();
        let mut file = self.open(path, options.write(true).create(true))?;
        let (memory, at) = self.memory();
        let piece = &memory[at..at + self.bytes];
        let mut left = bytes;
        while left > 0 {
            let now = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            file.write_all(&piece[..now])
                .map_err(TestkitError::file("writing", path))?;
            left -= now as u64;
        }
        file.sync_all().map_err(TestkitError::file("syncing", path))
    }

    /// Reads so many bytes from the beginning.
    ///
    /// # Errors
    /// When the file cannot be read or is shorter.
    pub fn read(self, path: &Path, bytes: u64) -> Result<()> {
        let mut file = self.open(path, OpenOptions::new().read(true))?;
        let (mut memory, at) = self.memory();
        let piece = &mut memory[at..at + self.bytes];
        let mut left = bytes;
        while left > 0 {
            let most = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let got = file
                .read(&mut piece[..most])
                .map_err(TestkitError::file("reading", path))?;
            if got == 0 {
                return Err(TestkitError::Expectation(format!(
                    "{} ended {left} bytes early",
                    path.display()
                )));
            }
            left -= got as u64;
        }
        Ok(())
    }
}

/// A file system on a device, mounted; dropping it unmounts.
#[derive(Debug)]
pub(in crate::experiments) struct MountedDevice(PathBuf);

impl MountedDevice {
    /// Makes `on` on `device`, all of it at once, and mounts it at `at`, which is made.
    ///
    /// # Errors
    /// When the file system's program is missing or fails.
    pub fn make(device: &Path, on: HostedFileSystem, at: &Path) -> Result<Self> {
        let mut command = Command::new(format!("mkfs.{}", on.name()));
        match on {
            HostedFileSystem::Xfs => command.args(["-q", "-f", "-K"]),
            _ => {
                let now = "lazy_itable_init=0,lazy_journal_init=0,nodiscard";
                command.args(["-q", "-F", "-E", now])
            }
        };
        run(command.arg(device))?;
        std::fs::create_dir_all(at).map_err(TestkitError::file("creating", at))?;
        let mut mount = Command::new("mount");
        run(mount
            .args(["-t", on.name(), "-o", "noatime"])
            .args([device, at]))?;
        Ok(Self(at.to_owned()))
    }

    /// Where.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for MountedDevice {
    fn drop(&mut self) {
        // What fails here the end of the mount namespace does.
        let _ = Command::new("umount").arg(&self.0).output();
    }
}

/// A loop device over a file. The kernel detaches it when this is dropped or its process ends, and
/// nothing is mounted from it any more.
#[derive(Debug)]
pub(in crate::experiments) struct LoopedFile {
    device: PathBuf,
    /// Held, not used.
    _open: File,
}

impl LoopedFile {
    /// One that reads and writes `file` past the page cache.
    ///
    /// # Errors
    /// When there is no loop device for it.
    pub fn over(file: &Path) -> Result<Self> {
        let device = loop_device(file)?;
        let open = File::open(&device).map_err(TestkitError::file("opening", &device));
        // While it is open this means: when no process uses it any more.
        let detached = run(Command::new("losetup").arg("--detach").arg(&device));
        let _open = open?;
        detached?;
        Ok(Self { device, _open })
    }

    /// The device.
    pub fn device(&self) -> &Path {
        &self.device
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_to_its_end_and_not_beyond() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("file");
        let calls = Calls::BUFFERED;
        let bytes = 3 * calls.bytes as u64 + 4096;
        calls.write(&path, bytes).expect("writes");
        let length = std::fs::metadata(&path).map(|m| m.len()).ok();
        assert_eq!(length, Some(bytes));
        calls.read(&path, bytes).expect("reads");
        let error = calls.read(&path, bytes + 1).expect_err("too short");
        assert!(error.to_string().contains("1 bytes early"), "{error}");
    }

    #[test]
    fn memory_of_a_call_is_aligned() {
        let calls = Calls {
            direct: true,
            bytes: 8192,
        };
        let (memory, at) = calls.memory();
        assert_eq!(memory[at..].as_ptr().align_offset(ALIGNED), 0);
        assert!(memory.len() - at >= calls.bytes);
    }
}
