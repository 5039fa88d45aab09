//! The FUSE file system with the one file: `disk`, and beside it `stats.json`.
//!
//! Reading `stats.json` gives the statistics so far, writing anything to it begins them anew.
//! Writing other parameters to `params.json` makes it another drive from the next request on. A
//! disk with a volatile cache has a file `power` too: writing `off SEED` cuts it, `arm SEED` has it
//! cut in the midst of the next writes, `on` gives it back; reading tells how it stands, as JSON.

use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::{FallocateFlags, fallocate};

use super::drive::{Answer, Drive, REQUEST_MAX};
use super::model::{MediaKind, Params};
use super::volatile::Volatile;

/// Name of the file that is the disk.
pub const DISK: &str = "disk";
/// Name of the file with the statistics.
pub const STATS: &str = "stats.json";

/// Name of the file with the drive's parameters.
pub const PARAMS: &str = "params.json";
/// Name of the file by which the power is cut.
pub const POWER: &str = "power";

const DISK_INODE: INodeNo = INodeNo(2);
const STATS_INODE: INodeNo = INodeNo(3);
const POWER_INODE: INodeNo = INodeNo(4);
const PARAMS_INODE: INodeNo = INodeNo(5);
const FOREVER: Duration = Duration::from_secs(3600);
/// Requests in flight on the connection: above the drive's own queue, as a host's queue is.
const IN_FLIGHT: u16 = 128;
/// Written zeros of at least this many bytes become a hole in the backing file.
const HOLE_MIN: usize = 4096;

/// See the [module](self).
pub struct DiskFile {
    drive: Arc<Drive>,
    cache: Option<Volatile>,
    /// What a reader of `stats.json` is being given.
    told: Mutex<Vec<u8>>,
}

impl DiskFile {
    /// The file system of one drive, with or without a volatile cache.
    pub fn new(drive: Arc<Drive>, cache: Option<Volatile>) -> Self {
        Self {
            drive,
            cache,
            told: Mutex::new(Vec::new()),
        }
    }

    fn attributes(&self, inode: INodeNo) -> Option<FileAttr> {
        let (kind, perm, size) = match inode {
            INodeNo::ROOT => (FileType::Directory, 0o700, 0),
            DISK_INODE => (FileType::RegularFile, 0o600, self.drive.capacity()),
            STATS_INODE | POWER_INODE | PARAMS_INODE => (FileType::RegularFile, 0o600, 0),
            _ => return None,
        };
        Some(FileAttr {
            ino: inode,
            size,
            blocks: size / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }

    /// Whether the range lies on the disk; the kernel keeps to the size, but the check is ours.
    fn on_disk(&self, offset: u64, length: u64) -> bool {
        offset
            .checked_add(length)
            .is_some_and(|end| end <= self.drive.capacity())
    }

    /// Has `change` change a range, which the cache may lose again.
    fn change(
        &self,
        (offset, length): (u64, u64),
        change: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        match &self.cache {
            None => change(),
            Some(cache) => cache.change(self.drive.backing(), (offset, length), change),
        }
    }

    fn is_off(&self) -> bool {
        self.cache.as_ref().is_some_and(Volatile::is_off)
    }

    /// Obeys what was written to `power`; false when it makes no sense.
    fn supply(&self, data: &[u8]) -> bool {
        let Some(cache) = &self.cache else {
            return false;
        };
        let said = std::str::from_utf8(data).unwrap_or_default().trim();
        let (order, seed) = said.split_once(' ').unwrap_or((said, ""));
        match (order, seed.parse()) {
            ("on", _) => cache.power_on(),
            ("arm", Ok(seed)) => cache.arm(seed),
            ("off", Ok(seed)) => return cache.cut(self.drive.backing(), seed).is_ok(),
            _ => return false,
        }
        true
    }

    /// Takes the times of the drive that `data` describes; false when it makes no sense.
    fn become_drive(&self, data: &[u8]) -> bool {
        let said = serde_json::from_slice::<Params>(data);
        let right = said.ok().filter(|params| params.check().is_ok());
        right.is_some_and(|params| {
            self.drive.become_like(params);
            true
        })
    }

    /// Keeps the written bytes: zeros as a hole, everything else as it is.
    fn store(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let zeros = data.len() >= HOLE_MIN && is_zero(&data[..HOLE_MIN]) && is_zero(data);
        if zeros && self.punch(offset, length_of(data)).is_ok() {
            return Ok(());
        }
        self.drive.backing().write_all_at(data, offset)
    }

    fn punch(&self, offset: u64, length: u64) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(fallocate(self.drive.backing(), flags, offset, length)?)
    }

    fn tell(&self, ino: INodeNo, (offset, size): (u64, u32), reply: ReplyData) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if offset == 0 {
            *told = match &self.cache {
                Some(cache) if ino == POWER_INODE => {
                    serde_json::to_vec(&cache.told()).unwrap_or_default()
                }
                _ if ino == PARAMS_INODE => {
                    serde_json::to_vec(&self.drive.params()).unwrap_or_default()
                }
                _ => serde_json::to_vec_pretty(&self.drive.stats()).unwrap_or_default(),
            };
        }
        let from = usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(told.len());
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let until = from.saturating_add(size).min(told.len());
        reply.data(&told[from..until]);
    }
}

fn is_zero(data: &[u8]) -> bool {
    // Compares each half with what is known to be zero: memcmp at full speed.
    data.first() == Some(&0) && data[1..] == data[..data.len() - 1]
}

fn length_of(data: &[u8]) -> u64 {
    u64::try_from(data.len()).unwrap_or(u64::MAX)
}

impl Filesystem for DiskFile {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Each returns what the kernel allows instead; smaller requests still work.
        let _ = config.set_max_write(REQUEST_MAX);
        let _ = config.set_max_readahead(REQUEST_MAX);
        let _ = config.set_max_background(IN_FLIGHT);
        let _ = config.set_congestion_threshold(IN_FLIGHT);
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO | InitFlags::FUSE_ASYNC_READ);
        Ok(())
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let inode = match name.to_str() {
            Some(DISK) if parent == INodeNo::ROOT => DISK_INODE,
            Some(STATS) if parent == INodeNo::ROOT => STATS_INODE,
            Some(PARAMS) if parent == INodeNo::ROOT => PARAMS_INODE,
            Some(POWER) if parent == INodeNo::ROOT && self.cache.is_some() => POWER_INODE,
            _ => return reply.error(Errno::ENOENT),
        };
        match self.attributes(inode) {
            Some(attributes) => reply.entry(&FOREVER, &attributes, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(ino) {
            Some(attributes) => reply.attr(&FOREVER, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn setattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        // A disk has its size; times and modes are of no interest.
        match self.attributes(ino) {
            Some(is) if ino != DISK_INODE || size.is_none_or(|size| size == is.size) => {
                reply.attr(&FOREVER, &is);
            }
            _ => reply.error(Errno::EPERM),
        }
    }

    fn open(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let flags = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        reply.opened(FileHandle(0), flags);
    }

    fn read(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match ino {
            STATS_INODE | POWER_INODE | PARAMS_INODE => self.tell(ino, (offset, size), reply),
            DISK_INODE if self.is_off() => reply.error(Errno::EIO),
            DISK_INODE if self.on_disk(offset, size.into()) => {
                self.drive
                    .queue(MediaKind::Read, offset, size.into(), Answer::Read(reply));
            }
            _ => reply.error(Errno::EINVAL),
        }
    }

    fn write(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let length = length_of(data);
        match ino {
            STATS_INODE => {
                self.drive.reset();
                reply.written(u32::try_from(length).unwrap_or(0));
            }
            PARAMS_INODE if self.become_drive(data) => {
                reply.written(u32::try_from(length).unwrap_or(0));
            }
            POWER_INODE if self.supply(data) => {
                reply.written(u32::try_from(length).unwrap_or(0));
            }
            DISK_INODE if self.on_disk(offset, length) => {
                match self.change((offset, length), || self.store(offset, data)) {
                    Ok(()) => {
                        self.drive
                            .queue(MediaKind::Write, offset, length, Answer::Write(reply))
                    }
                    Err(_) => reply.error(Errno::EIO),
                }
            }
            _ => reply.error(Errno::EINVAL),
        }
    }

    fn flush(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn fsync(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        // Every write that was answered is on the modelled platter, or in the cache.
        self.drive.flushed();
        match self.cache.as_ref().map(Volatile::flush) {
            None | Some(Ok(())) => reply.ok(),
            Some(Err(_)) => reply.error(Errno::EIO),
        }
    }

    fn fallocate(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let zeroes = FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE;
        let asked = u32::from_ne_bytes(mode.to_ne_bytes());
        if ino != DISK_INODE || asked & zeroes.bits() == 0 || !self.on_disk(offset, length) {
            return reply.error(Errno::EOPNOTSUPP);
        }
        match self.change((offset, length), || self.punch(offset, length)) {
            Ok(()) => reply.ok(),
            Err(_) => reply.error(Errno::EIO),
        }
    }

    fn readdir(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let entries = [
            (INodeNo::ROOT, FileType::Directory, "."),
            (INodeNo::ROOT, FileType::Directory, ".."),
            (DISK_INODE, FileType::RegularFile, DISK),
            (STATS_INODE, FileType::RegularFile, STATS),
            (PARAMS_INODE, FileType::RegularFile, PARAMS),
        ];
        for (next, (inode, kind, name)) in (1..).zip(entries) {
            if next > offset && reply.add(inode, next, kind, name) {
                break;
            }
        }
        reply.ok();
    }
}

#[cfg(test)]
mod tests {
    use super::is_zero;

    #[test]
    fn zeros_are_told_from_data() {
        assert!(is_zero(&[0; 100]));
        assert!(!is_zero(&[1; 100]));
        let mut last = [0; 100];
        last[99] = 1;
        assert!(!is_zero(&last));
        assert!(!is_zero(&[]));
    }
}
