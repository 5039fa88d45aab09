//! A disk that is given room as it is written: the first write of a place takes its time.

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner,
    OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request,
    WriteFlags,
};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::Mutex;
use std::time::{Duration, UNIX_EPOCH};

/// Name of its one file.
pub const DISK: &str = "disk";
const INODE: INodeNo = INodeNo(2);
const FOREVER: Duration = Duration::from_secs(3600);
/// Room is given in pieces of so many bytes.
const PIECE: u64 = 1 << 20;

/// The file system with the one file.
pub struct ThinDisk {
    file: File,
    size: u64,
    /// How long it takes to give room.
    takes: Duration,
    given: Mutex<HashSet<u64>>,
}

impl ThinDisk {
    /// Over a file of this size.
    pub fn new(file: File, size: u64, takes: Duration) -> Self {
        Self {
            file,
            size,
            takes,
            given: Mutex::default(),
        }
    }

    fn attributes(&self, inode: INodeNo) -> FileAttr {
        let root = inode == INodeNo::ROOT;
        FileAttr {
            ino: inode,
            size: if root { 0 } else { self.size },
            // As a full file: a guest does not see the holes of its host.
            blocks: self.size / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if root {
                FileType::Directory
            } else {
                FileType::RegularFile
            },
            perm: 0o700,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }

    /// Waits for the pieces that have no room yet.
    fn give(&self, offset: u64, length: u64) {
        let pieces = offset / PIECE..(offset + length).div_ceil(PIECE);
        for piece in pieces {
            let new = self.given.lock().is_ok_and(|mut given| given.insert(piece));
            if new {
                std::thread::sleep(self.takes);
            }
        }
    }
}

impl Filesystem for ThinDisk {
    fn lookup(&self, _req: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match name == DISK {
            true => reply.entry(&FOREVER, &self.attributes(INODE), Generation(0)),
            false => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&FOREVER, &self.attributes(ino));
    }

    fn open(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
        match self.file.read_exact_at(&mut bytes, offset) {
            Ok(()) => reply.data(&bytes),
            Err(_) => reply.error(Errno::EIO),
        }
    }

    fn write(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        self.give(offset, u64::try_from(data.len()).unwrap_or(0));
        match self.file.write_all_at(data, offset) {
            Ok(()) => reply.written(u32::try_from(data.len()).unwrap_or(0)),
            Err(_) => reply.error(Errno::EIO),
        }
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }
}
