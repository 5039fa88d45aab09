//! Processor time that file system and page cache take from a sequential stream (the thesis' Table
//! 3.3): through the page cache and with `O_DIRECT` on ext4 and XFS, beside the device itself.
//!
//! The device is a loop device past the page cache over a file of this machine's disk, not a model.
//! The kernel's threads write dirty pages, so the whole machine's seconds stand beside those of the
//! process; the machine must have nothing else to do.

use std::fmt::Write as _;
use std::fs::File;
use std::path::PathBuf;
use std::time::Instant;

use rustix::fs::{FallocateFlags, fallocate};
use serde::Serialize;

use super::in_words;
use super::one_disk::files::{Calls, LoopedFile, MountedDevice};
use super::one_disk::findings::percent;
use super::one_disk::{self, DiskExperiment, DiskRun, WarmRounds, megabytes};
use crate::report::spread;
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::modelled::HostedFileSystem;
use hayloft_testkit::{machine, procfs};

/// One direction of a round.
type PhaseOf = fn(&CostRound) -> CostPhase;

/// The experiment.
pub const FSCOST: DiskExperiment = DiskExperiment {
    name: "fscost",
    about: "processor time that file system and page cache take from a sequential stream",
    mib: MIB_MIN,
    carry_out,
};

/// Bytes of one call: the thesis'.
const CALL_BYTES: usize = 128 << 10;
/// A shorter stream takes too little processor time to be told in hundredths of a second, MiB.
const MIB_MIN: u32 = 4096;
/// What a file system needs beside the file, bytes.
const SPARE: u64 = 1 << 30;

/// Share of the processors of the thesis, per cent: device and file system, reading and writing;
/// what its profile gives file system and page cache.
const THESIS: [(&str, f64, f64, f64); 2] = [("write", 6.0, 15.6, 7.2), ("read", 7.4, 13.8, 4.4)];

/// What is between the stream and the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct CostWay {
    /// None: the device itself.
    file_system: Option<HostedFileSystem>,
    direct: bool,
}

impl CostWay {
    const DEVICE: Self = Self {
        file_system: None,
        direct: true,
    };

    fn name(self) -> String {
        let how = if self.direct {
            "O_DIRECT"
        } else {
            "page cache"
        };
        match self.file_system {
            Some(file_system) => format!("{}, {how}", file_system.name()),
            None => format!("device, {how}"),
        }
    }
}

/// The device first: what the others cost more.
fn ways(file_systems: &[HostedFileSystem]) -> Vec<CostWay> {
    let on = file_systems.iter().flat_map(|on| {
        [true, false].map(|direct| CostWay {
            file_system: Some(*on),
            direct,
        })
    });
    std::iter::once(CostWay::DEVICE).chain(on).collect()
}

/// One direction of one round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
struct CostPhase {
    mbs: f64,
    seconds: f64,
    /// Processor seconds of the process a GiB, its own and in the kernel.
    user_s_gib: f64,
    system_s_gib: f64,
    /// Those of the whole machine.
    machine_s_gib: f64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct CostRound {
    write: CostPhase,
    read: CostPhase,
}

#[derive(Clone, Debug, Serialize)]
struct CostRow {
    way: CostWay,
    measured: WarmRounds<CostRound>,
}

/// Counts processor seconds of this process and of the machine while `work` moves as many bytes.
fn counted(bytes: u64, work: impl FnOnce() -> Result<()>) -> Result<CostPhase> {
    machine::await_rest()?;
    let own = std::process::id();
    let (before, busy, began) = (
        procfs::usage(own)?,
        machine::busy_seconds()?,
        Instant::now(),
    );
    work()?;
    let seconds = began.elapsed().as_secs_f64();
    let (after, busy_after) = (procfs::usage(own)?, machine::busy_seconds()?);
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    let gib = bytes as f64 / f64::from(1 << 30);
    Ok(CostPhase {
        mbs: megabytes(bytes) / seconds,
        seconds,
        user_s_gib: (after.user_s - before.user_s) / gib,
        system_s_gib: (after.system_s - before.system_s) / gib,
        machine_s_gib: (busy_after - busy) / gib,
    })
}

fn carry_out(run: &mut DiskRun<'_>) -> Result<String> {
    let bytes = run.stream_bytes();
    let file_systems = run.available([HostedFileSystem::Ext4, HostedFileSystem::Xfs])?;
    let dir = tempfile::Builder::new()
        .prefix("fscost-")
        .tempdir_in(run.work)
        .map_err(TestkitError::file("creating a directory in", run.work))?;
    let image = dir.path().join("image");
    let file = File::create(&image).map_err(TestkitError::file("creating", &image))?;
    fallocate(&file, FallocateFlags::empty(), 0, bytes + SPARE)
        .map_err(|e| TestkitError::file("allocating", &image)(e.into()))?;
    drop(file);
    let looped = LoopedFile::over(&image)?;
    (run.tell)("writing the whole device once");
    Calls {
        direct: true,
        bytes: 1 << 20,
    }
    .write(looped.device(), bytes + SPARE)?;
    let mut rows = Vec::new();
    let mut text = String::new();
    for way in ways(&file_systems) {
        (run.tell)(&way.name());
        let mounted = way
            .file_system
            .map(|on| MountedDevice::make(looped.device(), on, &dir.path().join("mnt")))
            .transpose()?;
        let target: PathBuf = mounted.as_ref().map_or_else(
            || looped.device().to_owned(),
            |mounted| mounted.path().join("file"),
        );
        let calls = Calls {
            direct: way.direct,
            bytes: CALL_BYTES,
        };
        let mut once = || {
            let write = counted(bytes, || calls.write(&target, bytes))?;
            one_disk::cold()?;
            let read = counted(bytes, || calls.read(&target, bytes))?;
            if mounted.is_some() {
                std::fs::remove_file(&target).map_err(TestkitError::file("removing", &target))?;
            }
            Ok(CostRound { write, read })
        };
        let rates = |round: &CostRound| vec![round.write.mbs, round.read.mbs];
        let measured = WarmRounds::run(run.options.rounds, rates, &mut once)?;
        rows.push(CostRow { way, measured });
        text = page(run, &rows);
        run.save(&text, &rows)?;
    }
    Ok(text)
}

/// Median, lowest and highest over the rounds that count.
fn of(row: &CostRow, value: impl Fn(&CostRound) -> f64) -> (f64, f64, f64) {
    spread(row.measured.rounds.iter().map(value).collect())
}

fn page(run: &DiskRun<'_>, rows: &[CostRow]) -> String {
    let (options, command) = (run.options, run.command);
    let mut text = format!(
        "# What file system and page cache cost\n\nCommand: `{command}`\n\n\
         One stream of {} MiB in calls of {} KiB, synced at its end, on a loop device past the \
         page cache over a file of this machine's disk; {} rounds after warm-up, median (lowest to \
         highest). Processor seconds a GiB: the process in user mode and in the kernel; the whole \
         machine, kernel threads and loop device included. `Over the device`: the machine's \
         seconds less those of the first row. `Of a processor`: the machine's seconds over the \
         time. Rows whose rates never were within 5 % of each other twice have a †.\n",
        options.mib,
        CALL_BYTES >> 10,
        options.rounds,
    );
    if options.mib < MIB_MIN {
        let _ = writeln!(
            text,
            "\n**Too short to be told: seconds count from streams of {MIB_MIN} MiB on.**"
        );
    }
    run.say_left_out(&mut text);
    let directions: [(&str, PhaseOf); 2] = [
        ("Writing", |round| round.write),
        ("Reading", |round| round.read),
    ];
    for (name, phase) in directions {
        let _ = writeln!(
            text,
            "\n## {name}\n\n| | MB/s | user s/GiB | system s/GiB | machine s/GiB | over the device \
             | of a processor |\n|---|---|---|---|---|---|---|"
        );
        let device = rows
            .first()
            .map_or(0.0, |row| of(row, |r| phase(r).machine_s_gib).0);
        for row in rows {
            let machine = of(row, |r| phase(r).machine_s_gib);
            let share = of(row, |r| {
                let phase = phase(r);
                phase.machine_s_gib * phase.mbs * 1e6 / f64::from(1 << 30)
            });
            let _ = writeln!(
                text,
                "| {}{} | {} | {} | {} | {} | {:+.2} | {} |",
                row.way.name(),
                if row.measured.settled { "" } else { " †" },
                in_words(of(row, |r| phase(r).mbs)),
                in_hundredths(of(row, |r| phase(r).user_s_gib)),
                in_hundredths(of(row, |r| phase(r).system_s_gib)),
                in_hundredths(machine),
                machine.0 - device,
                percent(share.0, 1.0),
            );
        }
    }
    text.push_str(
        "\n## The thesis (Table 3.3, a real disk, UFS2)\n\n\
         Share of the processors, per cent. The last column is what its profile gives both.\n\n\
         | | device | file system | file system and page cache |\n|---|---|---|---|\n",
    );
    for (name, device, file_system, both) in THESIS {
        let _ = writeln!(text, "| {name} | {device} | {file_system} | {both} |");
    }
    text
}

fn in_hundredths((median, low, high): (f64, f64, f64)) -> String {
    format!("{median:.2} ({low:.2} to {high:.2})")
}

#[cfg(test)]
mod tests {
    use super::super::one_disk::findings::tests::warm;
    use super::super::one_disk::tests::page_of;
    use super::*;

    #[test]
    fn costs_are_told_beside_the_device() {
        let row = |way: CostWay, machine: f64| {
            let phase = CostPhase {
                mbs: f64::from(1 << 30) / 1e7,
                machine_s_gib: machine,
                system_s_gib: 0.25,
                ..CostPhase::default()
            };
            CostRow {
                way,
                measured: warm(vec![CostRound {
                    write: phase,
                    read: phase,
                }]),
            }
        };
        let all = ways(&[HostedFileSystem::Ext4]);
        assert_eq!(all.len(), 3);
        assert_eq!(all[0], CostWay::DEVICE);
        let rows = [row(all[0], 0.5), row(all[2], 1.25)];
        let text = page_of(page, &[], &rows);
        let wanted = "| ext4, page cache | 107.4 (107.4 to 107.4) | 0.00 (0.00 to 0.00) | 0.25 \
                      (0.25 to 0.25) | 1.25 (1.25 to 1.25) | +0.75 | 12 % |";
        assert_eq!(text.matches(wanted).count(), 2, "{text}");
        assert!(text.contains("| device, O_DIRECT |"), "{text}");
        assert!(
            text.contains("Too short"),
            "the default of others is no 4 GiB"
        );
    }

    #[test]
    fn seconds_are_counted_a_gib() {
        let pause = || {
            let began = Instant::now();
            while began.elapsed().as_secs_f64() < 0.05 {
                std::hint::spin_loop();
            }
            Ok(())
        };
        let phase = counted(1 << 30, pause).expect("the machine tells");
        assert!(phase.seconds >= 0.05 && phase.user_s_gib < 5.0, "{phase:?}");
        assert!((phase.mbs - 1_073.741_824 / phase.seconds).abs() < 1e-6);
    }
}
