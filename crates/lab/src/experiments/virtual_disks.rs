//! A virtual machine's disk as a file of its host (the thesis' Tables 7.4 and 7.5): ext4 on a loop
//! device over a sparse file, an allocated one and one that was written in full, on a modelled
//! disk; beside ext4 on the disk itself.
//!
//! No hypervisor is there: what is measured is what the file under a virtual disk costs. Two rows
//! have the host's file system mounted with `sync`, as a hypervisor that writes through.

use std::fmt::Write as _;
use std::fs::File;
use std::path::Path;
use std::process::Command;

use rustix::fs::{FallocateFlags, fallocate};
use serde::Serialize;

use super::one_disk::files::{Calls, LoopedFile, MountedDevice};
use super::one_disk::findings::{DiskFinding, MARKS, percent, thesis_table};
use super::one_disk::streams::{FileStreams, StreamSource as _};
use super::one_disk::{self, DiskExperiment, DiskPhase, DiskRun, WarmRounds, WatchedDisk};
use crate::disks::unmount_below;
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::machine;
use hayloft_testkit::modelled::HostedFileSystem;
use hayloft_testkit::mounts;

/// The experiment.
pub const VIRTUAL_DISKS: DiskExperiment = DiskExperiment {
    name: "virtual-disks",
    about: "a virtual disk in a sparse, an allocated and a written file, beside the disk itself",
    mib: 256,
    carry_out,
};

/// Streams of the second part.
const STREAMS: usize = 2;
/// What a virtual disk has beside the streams, bytes: its file system's own.
const SPARE: u64 = 256 << 20;

/// What is under the file system that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
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

/// MB/s of the thesis, writing and reading, on a real disk.
const THESIS: [(&str, f64, f64); 6] = [
    ("the disk itself", 111.0, 108.0),
    ("KVM, SCSI, full file", 62.6, 71.4),
    ("KVM, SCSI, sparse file", 1.3, 71.9),
    ("KVM, SCSI, whole disk", 71.5, 70.5),
    ("KVM, virtio, full file", 87.0, 75.9),
    ("KVM, virtio, whole disk", 110.0, 76.2),
];

impl VirtualSetup {
    fn name(self) -> String {
        let under = match self.under {
            VirtualDisk::Device => "the disk itself",
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
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct VirtualRound {
    write: DiskPhase,
    read: DiskPhase,
    write_two: DiskPhase,
    read_two: DiskPhase,
}

impl VirtualRound {
    fn run(disk: &WatchedDisk, dir: &Path, each: u64) -> Result<Self> {
        let mut phases = Vec::new();
        for streams in [1, STREAMS] {
            let files = FileStreams(dir.join(format!("streams-{streams}")));
            let all = each * u64::try_from(streams).unwrap_or(1);
            phases.push(disk.timed(all, || {
                files.write(streams, each)?;
                machine::settle(dir)
            })?);
            one_disk::cold()?;
            phases.push(disk.timed(all, || files.read(streams, each))?);
        }
        let [write, read, write_two, read_two] = phases[..] else {
            unreachable!("two phases for each count of streams");
        };
        Ok(Self {
            write,
            read,
            write_two,
            read_two,
        })
    }

    fn rates(&self) -> Vec<f64> {
        vec![self.write.mbs, self.read.mbs]
    }
}

#[derive(Clone, Debug, Serialize)]
struct VirtualRow {
    setup: VirtualSetup,
    measured: WarmRounds<VirtualRound>,
}

/// One round on a new virtual disk: what was written once is not sparse any more.
fn once(disk: &WatchedDisk, setup: VirtualSetup, guest: &Path, each: u64) -> Result<VirtualRound> {
    if setup.under == VirtualDisk::Device {
        let dir = disk.dir().join("files");
        let round = VirtualRound::run(disk, &dir, each)?;
        std::fs::remove_dir_all(&dir).map_err(TestkitError::file("removing", dir))?;
        return Ok(round);
    }
    let image = disk.dir().join("image");
    let bytes = (1 + STREAMS as u64) * each + SPARE;
    prepare(&image, setup.under, bytes)?;
    machine::settle(disk.dir())?;
    let looped = LoopedFile::over(&image)?;
    let mounted = MountedDevice::make(looped.device(), HostedFileSystem::Ext4, guest)?;
    machine::settle(mounted.path())?;
    remount(disk, if setup.write_through { "sync" } else { "async" })?;
    let round = VirtualRound::run(disk, mounted.path(), each)?;
    remount(disk, "async")?;
    drop(mounted);
    drop(looped);
    std::fs::remove_file(&image).map_err(TestkitError::file("removing", &image))?;
    machine::settle(disk.dir())?;
    Ok(round)
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

fn carry_out(run: &mut DiskRun<'_>) -> Result<String> {
    let each = run.stream_bytes();
    let work = run.work.canonicalize();
    let guest = work.map_err(TestkitError::file("looking at", run.work))?;
    let guest = guest.join("guest");
    // What a killed run left: it keeps that run's disk from being swept.
    unmount_below(&guest)?;
    let mut rows = Vec::new();
    let mut text = String::new();
    for setup in SETUPS {
        (run.tell)(&setup.name());
        let room = (1 + STREAMS as u64) * each + SPARE;
        let disk = WatchedDisk::mount(run.work, HostedFileSystem::Ext4, room)?;
        let mut round = || once(&disk, setup, &guest, each);
        let measured = WarmRounds::run(run.options.rounds, VirtualRound::rates, &mut round)?;
        rows.push(VirtualRow { setup, measured });
        text = page(run, &rows);
        run.save(&text, &rows)?;
    }
    Ok(text)
}

type PhaseOf = fn(&VirtualRound) -> Option<DiskPhase>;
const PHASES: [(&str, PhaseOf); 4] = [
    ("Writing", |round| Some(round.write)),
    ("Reading", |round| Some(round.read)),
    ("Writing, two streams", |round| Some(round.write_two)),
    ("Reading, two streams", |round| Some(round.read_two)),
];

fn page(run: &DiskRun<'_>, rows: &[VirtualRow]) -> String {
    let (options, command) = (run.options, run.command);
    let mut text = format!(
        "# Virtual disks\n\nCommand: `{command}`\n\n\
         One modelled hard disk (not a real one) with ext4, on which a file carries a loop device \
         (past the host's page cache) with another ext4. One stream of {} MiB in calls of 64 KiB, \
         then {STREAMS} beside each other, on a new file each round; {} rounds after warm-up, \
         median (lowest to highest). The clock stops when all that was written is on the disk; \
         caches are dropped before reading. Written through: the host's ext4 is mounted with \
         `sync`. Requests, queue and utilisation are the modelled disk's own account.\n",
        options.mib, options.rounds,
    );
    for (name, phase) in PHASES {
        let _ = writeln!(
            text,
            "\n## {name}\n\n| | MB/s | of the disk | request KiB | queue | busy | runs on the \
             disk, MiB | late |\n|---|---|---|---|---|---|---|---|"
        );
        let found = |row: &VirtualRow| DiskFinding::of(&row.measured, phase).unwrap_or_default();
        let device = rows.first().map_or(0.0, |row| found(row).mbs.0);
        for row in rows {
            let finding = found(row);
            let _ = writeln!(
                text,
                "| {} | {} | {} | {:.0} | {:.1} | {:.0} % | {:.1} | {} |",
                row.setup.name(),
                finding.cell(),
                percent(finding.mbs.0, device),
                finding.request_kib,
                finding.queue,
                finding.busy * 100.0,
                finding.run_mib,
                finding.late,
            );
        }
    }
    let _ = writeln!(text, "\n{MARKS}");
    text + &thesis_table("Tables 7.4 and 7.5, a real disk", "the disk", &THESIS)
}

#[cfg(test)]
mod tests {
    use super::super::one_disk::findings::tests::{round, warm};
    use super::super::one_disk::tests::page_of;
    use super::*;

    #[test]
    fn files_are_shares_of_the_disk_in_four_tables() {
        let row = |setup, write, two| {
            let (one, both) = (round(write, 100.0, None), round(two, 50.0, None));
            VirtualRow {
                setup,
                measured: warm(vec![VirtualRound {
                    write: one.write,
                    read: one.read,
                    write_two: both.write,
                    read_two: both.read,
                }]),
            }
        };
        let rows = [row(SETUPS[0], 100.0, 80.0), row(SETUPS[5], 2.0, 4.0)];
        let text = page_of(page, &[], &rows);
        for (rate, share) in [("2.0 (2.0 to 2.0)", "2 %"), ("4.0 (4.0 to 4.0)", "5 %")] {
            let wanted = format!("| sparse file, written through | {rate} | {share} | 512 |");
            assert_eq!(text.matches(&wanted).count(), 1, "{text}");
        }
        assert!(text.contains("| KVM, SCSI, sparse file | 1.3 | 1 % | 71.9 | 67 % |"));
    }

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
