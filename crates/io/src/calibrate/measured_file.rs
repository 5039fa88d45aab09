//! The file that is measured on: read and written around the page cache, bounded, removed.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::buffer::AlignedBuf;

/// Begin of the name of the directory that everything is in.
const PREFIX: &str = ".hayloft-calibrate-";
/// Largest request, bytes. The kernel makes several of it, so that the device always has the next
/// one while this process is told of the last.
pub const REQUEST: usize = 4 << 20;

/// A directory of ours in the measured one; removed with everything in it when dropped.
#[derive(Debug)]
pub struct Scratch {
    dir: PathBuf,
}

impl Scratch {
    /// Makes it, after removing those of processes that are gone.
    pub fn new(volume: &Path) -> io::Result<Self> {
        for entry in fs::read_dir(volume)?.flatten() {
            let name = entry.file_name();
            let owner = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
            let owner = owner.and_then(|pid| pid.parse::<u32>().ok());
            if owner.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
                // What cannot be removed costs space, which is checked after this.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        let dir = volume.join(format!("{PREFIX}{}", std::process::id()));
        fs::create_dir(&dir)?;
        Ok(Self { dir })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The next calibration removes what is left.
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// An open file that is measured.
#[derive(Debug)]
pub struct CalibrateTarget {
    file: File,
    /// Bytes that may be read and overwritten.
    pub size: u64,
    /// Whether transfers go around the page cache; otherwise memory is measured in part.
    pub direct: bool,
}

impl CalibrateTarget {
    /// A new, empty file.
    pub fn create(scratch: &Scratch) -> io::Result<Self> {
        let path = scratch.path().join("data");
        let open = |flags| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true);
            options.custom_flags(flags).open(&path)
        };
        let (file, direct) = match open(libc::O_DIRECT) {
            Ok(file) => (file, true),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => (open(0)?, false),
            Err(error) => return Err(error),
        };
        Ok(Self {
            file,
            size: 0,
            direct,
        })
    }

    /// Reserves space for `bytes`, where the file system can, so that the file is in few pieces.
    pub fn reserve(&self, bytes: u64) {
        let flags = rustix::fs::FallocateFlags::KEEP_SIZE;
        // Without it the curve merely has a few more seeks.
        let _ = rustix::fs::fallocate(&self.file, flags, 0, bytes);
    }

    /// One transfer; `buffer` holds at least `length` bytes.
    pub fn transfer(
        &self,
        write: bool,
        buffer: &mut AlignedBuf,
        offset: u64,
        length: usize,
    ) -> io::Result<()> {
        if write {
            return self.file.write_all_at(&buffer.as_slice()[..length], offset);
        }
        let target = &mut buffer.as_mut_slice()[..length];
        self.file.read_exact_at(target, offset)
    }

    /// All of it on the device, and none of it in memory.
    pub fn settle(&self) -> io::Result<()> {
        self.file.sync_data()?;
        rustix::fs::fadvise(&self.file, 0, None, rustix::fs::Advice::DontNeed)?;
        Ok(())
    }
}

/// A buffer full of noise: devices that compress must not be flattered.
pub fn noise(length: usize) -> AlignedBuf {
    let mut buffer = AlignedBuf::unpooled(length);
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        bytes.extend_from_slice(&random.next().to_le_bytes());
    }
    buffer.extend_from_slice(&bytes[..length]);
    buffer
}

/// A small generator (xorshift64*): places on a disk need no better one.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A multiple of `step` such that `length` bytes from there end within `size`.
    pub fn place(&mut self, size: u64, length: u64, step: u64) -> u64 {
        let places = size.saturating_sub(length) / step + 1;
        (self.next() >> 11) % places * step
    }
}
