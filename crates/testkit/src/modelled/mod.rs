//! A modelled hard disk: seek-bound behaviour on a machine that has no hard disk.
//!
//! - `carrying_process`: a process that carries a disk with a volatile cache: this very program,
//!   run again
//! - `drive`: the drive: a queue of requests and the thread that answers each when the model says
//!   so
//! - `fuse`: the FUSE file system with the one file: `disk`, and beside it `stats.json`
//! - `modelling_process`: the process that models a disk
//! - `leftovers`: what a modelled disk occupies
//! - `model`: the service times of a hard disk, as a pure function of its state and a request
//! - `stats`: what a modelled disk did: requests, runs, seeks, and how busy it was over time
//! - `volatile`: a volatile cache: what the disk took since the last flush may be lost with the
//!   power
//!
//! A FUSE file whose service time has seek, rotation and transfer ([`model`]), a loop device over
//! it with the queue of a SATA disk, a file system on that. Everything above (page cache, file
//! system, I/O scheduler, both kinds of storage node) is real; figures from it are figures of a
//! modelled disk, and must be called that.
//!
//! - [`model`]: service times, a pure function; [`stats`]: what the disk did;
//! - `drive`: queue and clock; `fuse`: the file; `leftovers`: what is to be undone
//!   after a crash;
//! - [`modelling_process`]: the process that carries a disk (`hayloft-lab disk`);
//! - [`volatile`]: a cache that loses part of what no flush followed; `carrying_process`: who
//!   carries such a disk;
//! - [`ModelledDisk`]: such a process as a child of ours.
//!
//! Needs root, FUSE, loop devices and `mkfs`; [`missing`] says what is not there.

mod carrying_process;
mod drive;
mod fuse;
mod leftovers;
pub mod model;
pub mod modelling_process;
pub mod stats;
pub mod volatile;

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

pub use carrying_process::carry_if_asked;
pub use fuse::PARAMS;
pub use leftovers::sweep;
pub use model::Params;
pub use modelling_process::{Carried, HostedDisk, HostedFileSystem, HostedPlace};
pub use stats::{DirectionStats, LATENCY_CLASSES, LatencyCounts, Stats};
pub use volatile::Lost;

use volatile::Told;

use crate::error::{Result, TestkitError};
use crate::hadoop::lab_binary;

/// What an operator says of a modelled disk to a Hayloft node, key and value: the kernel takes the
/// loop device that it is behind for flash.
pub const MEDIA: (&str, &str) = ("hayloft.io.media", "rotating");

/// How long a cut waits for writes in whose midst it comes.
const WRITES_COME: Duration = Duration::from_secs(1);
/// How long the process may take to go after it was asked to.
const GOING: Duration = Duration::from_secs(60);

/// What is missing here for a modelled disk with `file_system`, if anything.
#[must_use]
pub fn missing(file_system: HostedFileSystem) -> Option<TestkitError> {
    let missing = |what: &str, todo: &str| {
        Some(TestkitError::Missing {
            what: what.into(),
            todo: todo.into(),
        })
    };
    if !rustix::process::geteuid().is_root() {
        return missing("root", "a modelled disk is mounted: run this as root");
    }
    if !Path::new("/dev/fuse").exists() {
        return missing("/dev/fuse", "load the kernel module fuse");
    }
    if !Path::new("/dev/loop-control").exists() {
        return missing("/dev/loop-control", "load the kernel module loop");
    }
    let (program, package) = match file_system {
        HostedFileSystem::Ext4 => ("mkfs.ext4", "install e2fsprogs"),
        HostedFileSystem::Xfs => ("mkfs.xfs", "install xfsprogs"),
        HostedFileSystem::Raw => ("losetup", "install util-linux"),
    };
    for (program, package) in [
        (program, package),
        ("losetup", "install util-linux"),
        ("mount", "install mount"),
    ] {
        let there = Command::new(program)
            .arg("-V")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if there.is_err() {
            return missing(program, package);
        }
    }
    None
}

/// A disk that answers nothing until this is dropped.
#[derive(Debug)]
pub struct Hung(Pid);

impl Drop for Hung {
    fn drop(&mut self) {
        // It can only be gone.
        let _ = kill_process(self.0, Signal::CONT);
    }
}

/// A modelled disk carried by a process of its own, so that nothing that happens to ours can
/// leave a thread waiting in the kernel for itself. Dropping it takes everything down; so does
/// the end of this process, whatever the cause. Leftovers of a killed carrier are taken down by
/// [`sweep`], which every start runs first.
#[derive(Debug)]
pub struct ModelledDisk {
    child: Child,
    log: PathBuf,
    place: HostedPlace,
}

impl ModelledDisk {
    /// The smallest disk, as fast as flash: one that a test lets hang. Its log lies beside `dir`.
    ///
    /// # Errors
    /// As [`ModelledDisk::mount`].
    pub fn mount_small(dir: PathBuf, file_system: HostedFileSystem) -> Result<Self> {
        let fast = 400_000_000;
        let log = dir.with_extension("log");
        let disk = HostedDisk {
            size: 512 << 20,
            file_system,
            params: Params {
                read_bytes_s: fast,
                write_bytes_s: fast,
                buffer_bytes: 0,
                ..Params::default()
            },
            dir,
            backing: None,
        };
        Self::mount(&lab_binary()?, &disk, &log)
    }

    /// Starts `program` (the binary `hayloft-lab`) as the carrier of `disk` and waits until it is
    /// mounted. What it says goes to `log`.
    ///
    /// # Errors
    /// [`TestkitError::Missing`] when something that it needs is not there,
    /// [`TestkitError::Process`] with what it said when it did not come up.
    pub fn mount(program: &Path, disk: &HostedDisk, log: &Path) -> Result<Self> {
        if let Some(missing) = missing(disk.file_system) {
            return Err(missing);
        }
        let params = serde_json::to_string(&disk.params)
            .map_err(|e| TestkitError::Talk(format!("the parameters of the disk: {e}")))?;
        let mut command = Command::new(program);
        command
            .args(["disk", "--json", "--while-stdin", "--size"])
            .arg(disk.size.to_string())
            .args(["--fs", disk.file_system.name(), "--params", &params]);
        if let Some(backing) = &disk.backing {
            command.arg("--backing").arg(backing);
        }
        command.arg(&disk.dir);
        Self::carried_by(command, log)
    }

    /// As [`ModelledDisk::mount`], a disk that loses a random part of what no flush followed when
    /// [`ModelledDisk::cut_power`] cuts it off. This very program carries it, run again: its `main`
    /// has to begin with [`carry_if_asked`].
    ///
    /// # Errors
    /// As [`ModelledDisk::mount`].
    pub fn volatile(disk: &HostedDisk, log: &Path) -> Result<Self> {
        if let Some(missing) = missing(disk.file_system) {
            return Err(missing);
        }
        Self::carried_by(carrying_process::command(disk)?, log)
    }

    fn carried_by(mut command: Command, log: &Path) -> Result<Self> {
        let program = PathBuf::from(command.get_program());
        let file = std::fs::File::create(log).map_err(TestkitError::file("creating", log))?;
        // In a group of its own: Ctrl-C is for its users, who then let go of it.
        let spawned = command
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(file)
            .spawn();
        let mut child = spawned.map_err(TestkitError::file("running", program))?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            // An error here is an empty line, told below with the log.
            let _ = BufReader::new(stdout).read_line(&mut line);
        }
        match serde_json::from_str(&line) {
            Ok(place) => Ok(Self {
                child,
                log: log.to_owned(),
                place,
            }),
            Err(_) => {
                let _ = wait(&mut child);
                Err(TestkitError::Process {
                    name: "the modelled disk".into(),
                    problem: "did not come up".into(),
                    tail: crate::process::tail(log),
                })
            }
        }
    }

    /// Where the file system is mounted.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.place.dir
    }

    /// Everything about where it is.
    #[must_use]
    pub fn place(&self) -> &HostedPlace {
        &self.place
    }

    /// From now on the disk answers nothing, until what is returned is dropped: what is asked of it
    /// waits in the kernel.
    ///
    /// # Errors
    /// Its process is gone.
    pub fn hang(&self) -> Result<Hung> {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| TestkitError::Talk("no such process".into()))?;
        kill_process(pid, Signal::STOP).map_err(|e| TestkitError::Talk(e.to_string()))?;
        Ok(Hung(pid))
    }

    /// Cuts the power of a [`volatile`](Self::volatile) disk in the midst of what is written to it,
    /// or a second later if nothing is; what was lost.
    ///
    /// # Errors
    /// When the carrier is gone, or the disk is not volatile.
    pub fn cut_power(&self, seed: u64) -> Result<Lost> {
        self.order(&format!("arm {seed}"))?;
        let start = Instant::now();
        loop {
            let told = self.told()?;
            if told.off {
                return Ok(told.last);
            }
            if start.elapsed() > WRITES_COME {
                self.order(&format!("off {seed}"))?;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Gives it its power back.
    ///
    /// # Errors
    /// As [`ModelledDisk::cut_power`].
    pub fn power_on(&self) -> Result<()> {
        self.order("on")
    }

    fn power(&self) -> PathBuf {
        self.place.stats.with_file_name(fuse::POWER)
    }

    fn order(&self, order: &str) -> Result<()> {
        let path = self.power();
        std::fs::write(&path, order).map_err(TestkitError::file("writing", path))
    }

    fn told(&self) -> Result<Told> {
        let path = self.power();
        let told = std::fs::read(&path).map_err(TestkitError::file("reading", &path))?;
        serde_json::from_slice(&told)
            .map_err(|e| TestkitError::Talk(format!("reading {}: {e}", path.display())))
    }

    /// The process that carries it.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What the disk did since it was mounted, or since the last reset.
    ///
    /// # Errors
    /// When the carrier is gone.
    pub fn stats(&self) -> Result<Stats> {
        let path = &self.place.stats;
        let text = std::fs::read(path).map_err(TestkitError::file("reading", path))?;
        serde_json::from_slice(&text)
            .map_err(|e| TestkitError::Talk(format!("reading {}: {e}", path.display())))
    }

    /// Begins the statistics anew.
    ///
    /// # Errors
    /// When the carrier is gone.
    pub fn reset_stats(&self) -> Result<()> {
        let path = &self.place.stats;
        std::fs::write(path, "reset").map_err(TestkitError::file("writing", path))
    }

    /// Takes it down and waits until it is.
    ///
    /// # Errors
    /// [`TestkitError::Process`] when the carrier could not undo everything.
    pub fn unmount(mut self) -> Result<()> {
        self.let_go()
    }

    fn let_go(&mut self) -> Result<()> {
        let gone = wait(&mut self.child);
        if gone {
            return Ok(());
        }
        let (_, stuck) = sweep()?;
        Err(TestkitError::Process {
            name: "the modelled disk".into(),
            problem: stuck
                .first()
                .map_or("did not go by itself".into(), ToString::to_string),
            tail: crate::process::tail(&self.log),
        })
    }
}

impl Drop for ModelledDisk {
    fn drop(&mut self) {
        let _ = self.let_go();
    }
}

/// Closes the pipe that keeps the carrier and waits for its end; false when it failed, or had to
/// be killed.
fn wait(child: &mut Child) -> bool {
    drop(child.stdin.take());
    let start = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) if start.elapsed() < GOING => std::thread::sleep(Duration::from_millis(10)),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return false;
            }
        }
    }
}
