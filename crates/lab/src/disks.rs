//! Disks of a testbed: modelled ones, each served by a process of its own, file systems in memory,
//! or directories.

use std::os::linux::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::describe::DiskSpec;
use super::mapped::{self, Route};
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::hadoop::lab_binary;
use hayloft_testkit::modelled::{DirectionStats, PARAMS, Params};
use hayloft_testkit::mounts::run;
use hayloft_testkit::process::{Process, Spawn};
use hayloft_testkit::wait;
use hayloft_testkit::where_processes_run::Place;

/// Making a file system on a modelled disk takes seconds: its seeks are modelled too.
const MOUNT_LIMIT: Duration = Duration::from_secs(60);

/// A disk that is there. Kept in a file as its directory and device.
#[derive(Debug, Deserialize)]
#[serde(from = "(PathBuf, Option<String>)")]
pub struct Mounted {
    /// Where its file system is.
    pub dir: PathBuf,
    /// Name of the block device under it (`loop3`), when it is one of its own.
    pub device: Option<String>,
    /// Where a modelled disk tells what it did.
    pub stats: Option<PathBuf>,
    /// Who serves it.
    pub process: Option<Process>,
    /// From which host it is mapped.
    route: Option<Route>,
    /// Who maps it.
    _mapping: Vec<Process>,
}

/// What a modelled disk did in a while, by its own account.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DiskCounters {
    /// Share of the time in which it served a request, 0 to 1.
    pub utilisation: f64,
    /// Requests answered more than 2 ms after their time: this machine was busy.
    pub late: u64,
    /// The latest of them, milliseconds.
    pub late_worst_ms: f64,
    /// Requests for which the head was positioned anew.
    pub seeks: u64,
    /// Mean bytes between two seeks.
    pub run_mean_bytes: u64,
    /// Its reads.
    #[serde(default)]
    pub read: DirectionStats,
    /// Its writes.
    #[serde(default)]
    pub write: DirectionStats,
}

/// Starts the process of a modelled disk, in the switch's namespace so that it is found again, and
/// does not wait for it; a directory is just made.
///
/// # Errors
/// When the binary is missing or does not start.
pub fn begin(
    disk: &DiskSpec,
    dir: &Path,
    switch: &Place,
    name: &str,
    route: Option<Route>,
) -> Result<Mounted> {
    std::fs::create_dir_all(dir).map_err(TestkitError::file("creating", dir))?;
    let mut process = None;
    if disk.memory {
        let size = format!("size={}m,mode=700", disk.size_mib);
        let point = dir.display().to_string();
        run(Command::new("mount").args(["-t", "tmpfs", "-o", &size, "hayloft-lab", &point]))?;
    }
    if disk.modelled {
        let mut argv = vec![
            lab_binary()?.display().to_string(),
            "disk".into(),
            "--size".into(),
            format!("{}M", disk.size_mib),
            "--params".into(),
            params_of(disk)?,
            dir.display().to_string(),
        ];
        if route.is_some() {
            argv.extend(["--fs", "raw", "--json"].map(String::from));
        }
        let log = dir.with_extension("log");
        process = Some(switch.put(Spawn::new(name, argv, log)).start()?);
    }
    Ok(Mounted {
        dir: dir.to_owned(),
        device: None,
        stats: None,
        process,
        route,
        _mapping: Vec::new(),
    })
}

/// The drive of a modelled disk, as its process takes it.
fn params_of(disk: &DiskSpec) -> Result<String> {
    let params = Params::slowed((disk.read_mbs, disk.write_mbs), disk.seek_percent);
    serde_json::to_string(&params)
        .map_err(|error| TestkitError::Talk(format!("the parameters of a disk: {error}")))
}

impl Mounted {
    /// Waits until a modelled disk is mounted.
    ///
    /// # Errors
    /// With the end of its log when its process ends or is late.
    pub fn finish(&mut self) -> Result<()> {
        let Some(process) = &mut self.process else {
            return Ok(());
        };
        if let Some(route) = &self.route {
            let log = self.dir.with_extension("log");
            let (mapping, stats) = mapped::mount(process, &log, &self.dir, route)?;
            self._mapping = mapping;
            self.stats = Some(stats);
            self.device = device_name(&self.dir);
            return Ok(());
        }
        let parent = self.dir.parent().unwrap_or(Path::new("/")).to_owned();
        let dir = self.dir.clone();
        wait::until(
            &format!("a mounted disk on {}", dir.display()),
            MOUNT_LIMIT,
            || {
                process.check_alive()?;
                let device = |path: &Path| {
                    std::fs::metadata(path)
                        .map(|m| m.st_dev())
                        .map_err(TestkitError::file("looking at", path))
                };
                Ok(if device(&dir)? == device(&parent)? {
                    wait::Seen::NotYet("not mounted".into())
                } else {
                    wait::Seen::Done(())
                })
            },
        )?;
        self.device = device_name(&self.dir);
        self.stats = self.device.as_deref().and_then(stats_file);
        Ok(())
    }

    /// What a modelled disk did since [`Mounted::forget_seen`]; nothing for others.
    #[must_use]
    pub fn seen(&self) -> Option<DiskCounters> {
        let text = std::fs::read(self.stats.as_ref()?).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Makes a modelled disk as fast or slow as `disk` from its next request on; its size stays.
    ///
    /// # Errors
    /// When it is no modelled disk, or its process is gone.
    pub fn become_like(&self, disk: &DiskSpec) -> Result<()> {
        let none = || {
            let what = format!("{} is no modelled disk: it has no pace", self.dir.display());
            TestkitError::Expectation(what)
        };
        let stats = self.stats.as_ref().ok_or_else(none)?;
        let path = stats.with_file_name(PARAMS);
        std::fs::write(&path, params_of(disk)?).map_err(TestkitError::file("writing", path))
    }

    /// A modelled disk's account begins anew.
    pub fn forget_seen(&self) {
        if let Some(stats) = &self.stats {
            // A disk that is gone is told by the node on it.
            let _gone = std::fs::write(stats, "reset");
        }
    }
}

impl Serialize for Mounted {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (&self.dir, &self.device).serialize(serializer)
    }
}

/// A disk that an earlier command made.
impl From<(PathBuf, Option<String>)> for Mounted {
    fn from((dir, device): (PathBuf, Option<String>)) -> Self {
        Self {
            stats: device.as_deref().and_then(stats_file),
            dir,
            device,
            process: None,
            route: None,
            _mapping: Vec::new(),
        }
    }
}

/// The account of the modelled disk under a loop device.
fn stats_file(device: &str) -> Option<PathBuf> {
    let sys = format!("/sys/block/{device}/loop/backing_file");
    let file = PathBuf::from(std::fs::read_to_string(sys).ok()?.trim_end());
    let stats = file.with_file_name("stats.json");
    stats.is_file().then_some(stats)
}

/// The block device of the file system at `dir`, by its kernel name.
#[must_use]
pub fn device_name(dir: &Path) -> Option<String> {
    let dev = std::fs::metadata(dir).ok()?.st_dev();
    let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
    let target = std::fs::read_link(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    Some(target.file_name()?.to_str()?.to_owned())
}

/// Unmounts whatever is mounted below `dir`.
///
/// # Errors
/// When the list of mounts cannot be read.
pub fn unmount_below(dir: &Path) -> Result<()> {
    let mounts = std::fs::read_to_string("/proc/self/mounts")
        .map_err(TestkitError::file("reading", "/proc/self/mounts"))?;
    let below = mounts.lines().rev().filter_map(|line| {
        let point = line.split(' ').nth(1)?;
        Path::new(point).starts_with(dir).then(|| point.to_owned())
    });
    for point in below {
        // Lazily: a process that hangs on it must not keep the rest from being taken down.
        run(Command::new("umount").args(["-l", &point]))?;
    }
    Ok(())
}
