//! Faults of the host: limits and control groups are real ones, what cannot be changed for one
//! process alone is covered with another text.

use crate::ask::{Around, BAD, Covered, SLOW, conf};
use crate::disk::Disk;
use hayloft_testkit::Outcome;
use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::scratch;
use hayloft_testkit::mounts::run;
use hayloft_testkit::suite::passed;
use std::path::Path;
use std::process::Command;

/// A directory, for commands that need one.
const ANY: &str = "/";

pub fn limits() -> Result<Outcome> {
    for (files, severity, code) in [("1024", "bad", BAD), ("20000", "slow", SLOW)] {
        let few = Around::words(&["prlimit", &format!("--nofile={files}:{files}")]);
        let said = few.doctor(&["--only", "open-files", ANY])?;
        said.expect("open-files", severity, files)?;
        said.expect_code(code)?;
    }
    // A container may not raise what it was given.
    if let Some(enough) = Around::with_many_files() {
        let said = enough.doctor(&["--only", "open-files", ANY])?;
        said.expect_well()?;
    }
    let base = scratch("doctor-limits-")?;
    let dir = base.path().display().to_string();
    let properties = [
        ("fs.defaultFS", "hdfs://127.0.0.1:1"),
        ("dfs.datanode.data.dir", dir.as_str()),
        ("dfs.datanode.max.locked.memory", "1g"),
    ];
    conf(base.path(), &properties)?;
    let little = Around::words(&["prlimit", "--memlock=65536:65536"]);
    let said = little.doctor(&["--only", "locked-memory", "--conf", &dir])?;
    said.expect("locked-memory", "bad", "64 KiB")?;
    passed()
}

/// A control group that goes with it.
struct Group(std::path::PathBuf);

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

pub fn control_group() -> Result<Outcome> {
    let old = Path::new("/sys/fs/cgroup/cpu/cpu.cfs_quota_us").exists();
    let (root, file, limit) = match old {
        true => ("/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", "50000"),
        false => ("/sys/fs/cgroup", "cpu.max", "50000 100000"),
    };
    let group = Group(Path::new(root).join(format!("hayloft-doctor-{}", std::process::id())));
    let made = std::fs::create_dir(&group.0);
    let set = made.and_then(|()| std::fs::write(group.0.join(file), limit));
    if let Err(error) = set {
        let why = format!("no control group with {file} can be made: {error}");
        return Ok(Outcome::Skipped(why));
    }
    let script = format!("echo $$ > {}/cgroup.procs", group.0.display());
    let said = Around::script(&script).doctor(&["--only", "cgroup", ANY])?;
    said.expect("cgroup", "slow", "0.50 of ")?;
    passed()
}

pub fn covered() -> Result<Outcome> {
    let huge = "/sys/kernel/mm/transparent_hugepage";
    let swap = "Filename Type Size Used Priority\n/dev/sda2 partition 8388604 0 -2\n";
    let stat = "cpu  5186 131391 24653 39287 1438 0 378 51596 0 0\n";
    let clock = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    for (file, text, check, severity, word) in [
        (
            format!("{huge}/enabled"),
            "[always] madvise never\n",
            "huge-pages",
            "slow",
            "always",
        ),
        (
            format!("{huge}/enabled"),
            "always madvise [never]\n",
            "huge-pages",
            "note",
            "never",
        ),
        ("/proc/swaps".into(), swap, "memory", "slow", "swappiness"),
        (
            "/proc/sys/vm/overcommit_memory".into(),
            "2\n",
            "memory",
            "slow",
            "overcommit",
        ),
        (
            "/proc/sys/vm/dirty_ratio".into(),
            "90\n",
            "memory",
            "slow",
            "dirty_ratio",
        ),
        (
            "/proc/stat".into(),
            stat,
            "processor",
            "slow",
            "hypervisor took",
        ),
        (clock.into(), "hpet\n", "processor", "slow", "hpet"),
        (
            "/proc/sys/kernel/io_uring_disabled".into(),
            "2\n",
            "kernel-features",
            "note",
            "io_uring",
        ),
    ] {
        if !Path::new(&file).exists() {
            println!("not planted: {file} is not there");
            continue;
        }
        let covered = Covered::new(&[(file.as_str(), text)])?;
        let said = covered
            .around()
            .doctor(&["--no-write", "--only", check, ANY])?;
        said.expect(check, severity, word)?;
    }
    passed()
}

/// systemd that removes shared memory of a user who owns the data.
pub fn remove_ipc() -> Result<Outcome> {
    let disk = Disk::ext4("noatime")?;
    let data = disk.data();
    run(Command::new("chown").arg("1001").arg(&data))?;
    let lines = |line: &str| {
        format!(
            "mount -t tmpfs tmpfs /run; mkdir -p /run/systemd/system /run/systemd/logind.conf.d\n\
             echo '{line}' > /run/systemd/logind.conf.d/x.conf"
        )
    };
    let dir = data.display().to_string();
    let args = ["--only", "remove-ipc", &dir];
    let said = Around::script(&lines("[Login]")).doctor(&args)?;
    said.expect("remove-ipc", "slow", "1001")?;
    Around::script(&lines("RemoveIPC=no"))
        .doctor(&args)?
        .expect_well()?;
    run(Command::new("chown").arg("0").arg(&data))?;
    Around::script(&lines("[Login]"))
        .doctor(&args)?
        .expect_well()?;
    passed()
}
