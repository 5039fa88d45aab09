//! A virtual machine's disk as a file of its host (the thesis' Tables 7.4 and 7.5): ext4 on a loop
//! device over a sparse file, an allocated one and one that was written in full, on a modelled
//! disk; beside ext4 on the disk itself.
//!
//! No hypervisor is there: what is measured is what the file under a virtual disk costs. Two rows
//! have the host's file system mounted with `sync`, as a hypervisor that writes through.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use rustix::fs::{FallocateFlags, fallocate};

use super::one_disk::files::{Calls, LoopedFile, MountedDevice};
use super::one_disk::streams::{FileStreams, StreamSource as _};
use super::one_disk::{self, WatchedDisk};
use crate::disks::unmount_below;
use crate::runner::options::ExperimentOptions;
use crate::runner::record::PeerFigures;
use crate::runner::table::Shown;
use crate::runner::{Experiment, PeerTurn, Run};
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::machine;
use hayloft_testkit::modelled::HostedFileSystem;
use hayloft_testkit::mounts;

/// The experiment.
pub const VIRTUAL_DISKS: Experiment = Experiment {
    name: "virtual-disks",
    question: "a virtual disk in a sparse, an allocated and a written file, beside the disk itself",
    paper: "the thesis' Tables 7.4 and 7.5",
    options: || ExperimentOptions {
        mib: 1024,
        ..one_disk::options()
    },
    about: |options| {
        format!(
            "One modelled hard disk (not a real one) with ext4, on which a file carries a loop \
             device (past the host's page cache) with another ext4. One stream of {} MiB in calls \
             of 64 KiB, then {STREAMS} beside each other, on a new file each round. The clock \
             stops when all that was written is on the disk; caches are dropped before reading. \
             Written through: the host's ext4 is mounted with `sync`. Requests, queue and \
             utilisation are the modelled disk's own account.",
            options.mib
        )
    },
    takes_properties: false,
    measure: carry_out,
    shown: Shown {
        title: "What sparse and allocated files cost under a virtual disk",
        tables: include_str!("tables/virtual-disks.txt"),
        paper: "Tables 7.4 and 7.5, a real disk:\n\n\
                | | write MB/s | of the disk | read MB/s | of the disk |\n|---|---|---|---|---|\n\
                | the disk itself | 111 | 100 % | 108 | 100 % |\n\
                | KVM, SCSI, full file | 62.6 | 56 % | 71.4 | 66 % |\n\
                | KVM, SCSI, sparse file | 1.3 | 1 % | 71.9 | 67 % |\n\
                | KVM, SCSI, whole disk | 71.5 | 64 % | 70.5 | 65 % |\n\
                | KVM, virtio, full file | 87 | 78 % | 75.9 | 70 % |\n\
                | KVM, virtio, whole disk | 110 | 99 % | 76.2 | 71 % |",
        ..Shown::NOTHING
    },
    ..Experiment::OF_RATES
};

/// The disk itself, in tables.
const DEVICE: &str = "the disk itself";
/// Streams of the second part.
const STREAMS: usize = 2;
/// What a virtual disk has beside the streams, bytes: its file system's own.
const SPARE: u64 = 256 << 20;

/// What is under the file system that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum VirtualDisk {
    /// The modelled disk.
    Device,
    /// A file of which every byte was written.
    Written,
    /// A file whose place was reserved.
    Allocated,
    /// A file with nothing in it.
    Sparse,
}

/// A file, and whether its host writes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct VirtualSetup {
    under: VirtualDisk,
    write_through: bool,
}

const SETUPS: [VirtualSetup; 6] = [
    setup(VirtualDisk::Device, false),
    setup(VirtualDisk::Written, false),
    setup(VirtualDisk::Allocated, false),
    setup(VirtualDisk::Sparse, false),
    setup(VirtualDisk::Written, true),
    setup(VirtualDisk::Sparse, true),
];

const fn setup(under: VirtualDisk, write_through: bool) -> VirtualSetup {
    VirtualSetup {
        under,
        write_through,
    }
}

impl VirtualSetup {
    fn name(self) -> String {
        let under = match self.under {
            VirtualDisk::Device => DEVICE,
            VirtualDisk::Written => "file written in full",
            VirtualDisk::Allocated => "allocated file",
            VirtualDisk::Sparse => "sparse file",
        };
        let through = if self.write_through {
            ", written through"
        } else {
            ""
        };
        format!("{under}{through}")
    }
}

/// One stream, then two more.
fn streams(turn: &mut PeerTurn<'_>, disk: &WatchedDisk, dir: &Path, each: u64) -> Result<()> {
    for (streams, write, read) in [(1, "write", "read"), (STREAMS, "two write", "two read")] {
        let files = FileStreams(dir.join(format!("streams-{streams}")));
        let all = each * u64::try_from(streams).unwrap_or(1);
        let wrote: PeerFigures = disk.timed(all, || {
            files.write(streams, each)?;
            machine::settle(dir)
        })?;
        turn.give(write, wrote);
        one_disk::cold()?;
        turn.give(read, disk.timed(all, || files.read(streams, each))?);
    }
    Ok(())
}

/// One round on a new virtual disk: what was written once is not sparse any more.
fn once(
    turn: &mut PeerTurn<'_>,
    disk: &WatchedDisk,
    setup: VirtualSetup,
    (guest, each): (&Path, u64),
) -> Result<()> {
    if setup.under == VirtualDisk::Device {
        let dir = disk.dir().join("files");
        return streams(turn, disk, &dir, each);
    }
    let image = disk.dir().join("image");
    let bytes = (1 + STREAMS as u64) * each + SPARE;
    prepare(&image, setup.under, bytes)?;
    machine::settle(disk.dir())?;
    let looped = LoopedFile::over(&image)?;
    let mounted = MountedDevice::make(looped.device(), HostedFileSystem::Ext4, guest)?;
    machine::settle(mounted.path())?;
    remount(disk, if setup.write_through { "sync" } else { "async" })?;
    streams(turn, disk, mounted.path(), each)?;
    remount(disk, "async")?;
    drop(mounted);
    drop(looped);
    std::fs::remove_file(&image).map_err(TestkitError::file("removing", &image))?;
    machine::settle(disk.dir())
}

/// Has the host write through (`sync`) or not (`async`).
fn remount(disk: &WatchedDisk, how: &str) -> Result<()> {
    let mut mount = Command::new("mount");
    let how = format!("remount,{how}");
    mounts::run(mount.args(["-o", &how]).arg(disk.dir())).map(drop)
}

fn prepare(image: &Path, under: VirtualDisk, bytes: u64) -> Result<()> {
    if under == VirtualDisk::Written {
        return Calls::BUFFERED.write(image, bytes);
    }
    let file = File::create(image).map_err(TestkitError::file("creating", image))?;
    let sized = if under == VirtualDisk::Allocated {
        fallocate(&file, FallocateFlags::empty(), 0, bytes).map_err(std::io::Error::from)
    } else {
        file.set_len(bytes)
    };
    sized.map_err(TestkitError::file("sizing", image))
}

fn carry_out(run: &mut Run<'_>, part: &str) -> Result<()> {
    let work = run.work.canonicalize();
    let guest = work.map_err(TestkitError::file("looking at", run.work))?;
    let guest = guest.join("guest");
    // What a killed run left: it keeps that run's disk from being swept.
    unmount_below(&guest)?;
    let names = SETUPS.map(|setup| (String::new(), setup.name()));
    run.rounds(part, &names, &mut |turn, at| {
        let each = u64::from(turn.mib()) << 20;
        let room = (1 + STREAMS as u64) * each + SPARE;
        let disk = WatchedDisk::mount(&turn.dir, HostedFileSystem::Ext4, room)?;
        once(turn, &disk, SETUPS[at], (&guest, each))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_as_long_as_asked_and_as_full_as_its_kind() {
        use std::os::unix::fs::MetadataExt as _;
        let dir = tempfile::tempdir().expect("a directory");
        let bytes = 4 << 20;
        for (under, full) in [(VirtualDisk::Written, true), (VirtualDisk::Sparse, false)] {
            let image = dir.path().join(format!("{under:?}"));
            prepare(&image, under, bytes).expect("it is made");
            let found = std::fs::metadata(&image).expect("it is there");
            assert_eq!(found.len(), bytes);
            assert_eq!(found.blocks() * 512 >= bytes, full, "{under:?}");
        }
    }
}
