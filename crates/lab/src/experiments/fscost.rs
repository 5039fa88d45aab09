//! Processor time that file system and page cache take from a sequential stream (the thesis' Table
//! 3.3): through the page cache and with `O_DIRECT` on ext4 and XFS, beside the device itself.
//!
//! The device is a loop device past the page cache over a file of this machine's disk, not a model.
//! The kernel's threads write dirty pages, so the whole machine's seconds stand beside those of the
//! process; the machine must have nothing else to do.

use std::fs::File;
use std::path::PathBuf;
use std::time::Instant;

use rustix::fs::{FallocateFlags, fallocate};

use hayloft_bench::fair::counters::processors;

use super::one_disk::files::{Calls, LoopedFile, MountedDevice};
use super::one_disk::{self, available, megabytes};
use crate::runner::options::ExperimentOptions;
use crate::runner::record::PeerFigures;
use crate::runner::table::Shown;
use crate::runner::{Experiment, Run};
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::modelled::HostedFileSystem;
use hayloft_testkit::{machine, process_usage};

/// The experiment.
pub const FSCOST: Experiment = Experiment {
    name: "fscost",
    question: "processor time that file system and page cache take from a sequential stream",
    paper: "the thesis' Table 3.3",
    options: || ExperimentOptions {
        mib: MIB_MIN,
        ..ExperimentOptions::default()
    },
    about: |options| {
        let short = if options.mib < MIB_MIN {
            format!(" **Too short to be told: seconds count from streams of {MIB_MIN} MiB on.**")
        } else {
            String::new()
        };
        format!(
            "One stream of {} MiB in calls of {} KiB, synced at its end, on a loop device past the \
             page cache over a file of this machine's disk. Processor seconds a GiB: the process \
             in user mode and in the kernel; the whole machine, kernel threads and loop device \
             included. `Of a processor`: the machine's seconds over the time.{short}",
            options.mib,
            CALL_BYTES >> 10,
        )
    },
    takes_properties: false,
    measure: carry_out,
    shown: Shown {
        title: "What file system and page cache cost",
        tables: include_str!("tables/fscost.txt"),
        paper: "Table 3.3 (a real disk, UFS2): share of the processors, per cent. The last column \
                is what its profile gives both.\n\n\
                | | device | file system | file system and page cache |\n|---|---|---|---|\n\
                | write | 6 | 15.6 | 7.2 |\n| read | 7.4 | 13.8 | 4.4 |",
        ..Shown::NOTHING
    },
    ..Experiment::OF_RATES
};

/// The device itself, in tables.
const DEVICE: &str = "device, O_DIRECT";
/// Bytes of one call: the thesis'.
const CALL_BYTES: usize = 128 << 10;
/// A shorter stream takes too little processor time to be told in hundredths of a second, MiB.
const MIB_MIN: u32 = 4096;
/// What a file system needs beside the file, bytes.
const SPARE: u64 = 1 << 30;

/// What is between the stream and the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
            None => DEVICE.into(),
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

/// Counts processor seconds of this process and of the machine while `work` moves as many bytes.
fn counted(bytes: u64, work: impl FnOnce() -> Result<()>) -> Result<PeerFigures> {
    machine::await_rest()?;
    let own = std::process::id();
    let (before, busy, began) = (
        process_usage::usage(own)?,
        machine::busy_seconds()?,
        Instant::now(),
    );
    work()?;
    let seconds = began.elapsed().as_secs_f64();
    let (after, busy_after) = (process_usage::usage(own)?, machine::busy_seconds()?);
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    let gib = bytes as f64 / f64::from(1 << 30);
    let machine_s = busy_after - busy;
    Ok(PeerFigures::of([
        ("mbs", megabytes(bytes) / seconds),
        ("seconds", seconds),
        ("user_s_gib", (after.user_s - before.user_s) / gib),
        ("system_s_gib", (after.system_s - before.system_s) / gib),
        ("machine_s_gib", machine_s / gib),
        ("of_a_processor", machine_s / seconds),
        ("cpu", machine_s / seconds / processors()),
    ]))
}

fn carry_out(run: &mut Run<'_>, part: &str) -> Result<()> {
    let bytes = run.stream_bytes();
    let file_systems = available(run, [HostedFileSystem::Ext4, HostedFileSystem::Xfs])?;
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
    let ways = ways(&file_systems);
    let names: Vec<_> = ways.iter().map(|way| (String::new(), way.name())).collect();
    run.rounds(part, &names, &mut |turn, at| {
        let mounted = ways[at]
            .file_system
            .map(|on| MountedDevice::make(looped.device(), on, &dir.path().join("mnt")))
            .transpose()?;
        let target: PathBuf = mounted.as_ref().map_or_else(
            || looped.device().to_owned(),
            |mounted| mounted.path().join("file"),
        );
        let calls = Calls {
            direct: ways[at].direct,
            bytes: CALL_BYTES,
        };
        turn.give("write", counted(bytes, || calls.write(&target, bytes))?);
        one_disk::cold()?;
        turn.give("read", counted(bytes, || calls.read(&target, bytes))?);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_comes_first() {
        let all = ways(&[HostedFileSystem::Ext4]);
        assert_eq!(all.len(), 3);
        assert_eq!(all[0].name(), DEVICE, "what others are shares of");
        assert!((FSCOST.about)(&ExperimentOptions::default()).contains("Too short"));
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
        let of = |name| phase.get(name).expect(name);
        assert!(of("seconds") >= 0.05 && of("user_s_gib") < 5.0, "{phase:?}");
        assert!((of("mbs") - 1_073.741_824 / of("seconds")).abs() < 1e-6);
    }
}
