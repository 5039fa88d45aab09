//! Faults of disks, file systems and directories, each planted on a small disk.

use crate::ask::{Around, BAD, Covered, SLOW, WELL, conf};
use crate::disk::Disk;
use crate::thin::{DISK, ThinDisk};
use fuser::{Config, Session, SessionACL};
use hayloft_testkit::Outcome;
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::hadoop::{hayloft_binary, scratch};
use hayloft_testkit::modelled::{HostedFileSystem, ModelledDisk, missing};
use hayloft_testkit::mounts::run;
use hayloft_testkit::suite::{expect, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// What a disk of its own can be asked: all checks but those of hosts and networks.
pub const OF_DISKS: &str = "identity,shared-device,file-system,mount-options,file-system-errors,\
    disk-errors,raid,write-cache,scheduler,read-ahead,request-size,sparse-disk,emulated-disk,\
    first-write,slow-disk,empty-mount-point";

/// The same without a trial, which takes its second.
const OF_QUEUES: &str = "file-system,mount-options,file-system-errors,disk-errors,write-cache,\
    scheduler,read-ahead,request-size,sparse-disk,emulated-disk";

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn here() -> Around {
    Around::default()
}

/// Each of a file system's kind.
pub fn well() -> Result<Outcome> {
    for disk in [Disk::ext4("noatime")?, Disk::xfs("defaults")?] {
        let args = ["--only", OF_DISKS, &text(&disk.data())];
        here().doctor(&args)?.expect_well()?;
        let left = std::fs::read_dir(disk.data()).map_or(1, Iterator::count);
        expect(left == 0, || format!("{left} files are left of the trial"))?;
    }
    passed()
}

/// What is written to the files of a device's queue.
pub fn queues() -> Result<Outcome> {
    let disk = Disk::ext4("noatime")?;
    for (file, value, check, severity, word) in [
        ("queue/read_ahead_kb", "4", "read-ahead", "slow", "4 KiB"),
        (
            "queue/read_ahead_kb",
            "65536",
            "read-ahead",
            "slow",
            "65536 KiB",
        ),
        (
            "queue/max_sectors_kb",
            "64",
            "request-size",
            "slow",
            "64 KiB",
        ),
        ("queue/scheduler", "bfq", "scheduler", "slow", "bfq"),
        (
            "queue/write_cache",
            "write through",
            "write-cache",
            "bad",
            "no cache",
        ),
    ] {
        let before = match disk.set(file, value) {
            // Not each kernel has each scheduler.
            Err(_) if value == "bfq" => continue,
            before => before?,
        };
        let said = here().doctor(&["--only", OF_QUEUES, &text(&disk.data())])?;
        said.expect(check, severity, word)?;
        said.expect_code(if severity == "bad" { BAD } else { SLOW })?;
        let alone = said.report["findings"].as_array().map_or(0, Vec::len);
        expect(alone == 1, || format!("more than that: {:#}", said.report))?;
        // The command that it names is the one that mends it.
        disk.set(file, &before)?;
        here()
            .doctor(&["--only", OF_QUEUES, &text(&disk.data())])?
            .expect_well()?;
    }
    passed()
}

pub fn options() -> Result<Outcome> {
    let disk = Disk::ext4("noatime")?;
    for (options, severity, word) in [
        ("strictatime", "slow", "strictatime"),
        ("noatime,sync", "slow", "sync"),
        ("noatime,data=journal", "slow", "data=journal"),
        ("noatime,barrier=0", "bad", "barriers"),
        ("noatime,discard", "note", "discard"),
        ("noatime,nodelalloc", "slow", "nodelalloc"),
        ("noatime,commit=600", "note", "600 s"),
        ("noatime,ro", "bad", "ro"),
    ] {
        disk.remount(options)?;
        let said = here().doctor(&["--only", "mount-options", &text(&disk.data())])?;
        said.expect("mount-options", severity, word)?;
        said.expect_code(match severity {
            "bad" => BAD,
            "slow" => SLOW,
            _ => WELL,
        })?;
    }
    // A trial of what cannot be written is no sign that it is well.
    let said = here().doctor(&["--only", "first-write", &text(&disk.data())])?;
    let why = said.report["not_looked_at"][0]["why"]
        .as_str()
        .unwrap_or_default();
    expect(why.contains("Read-only file system"), || {
        format!("{:#}", said.report)
    })?;
    passed()
}

/// A disk whose file was never filled, and one where holes were made later.
pub fn holes() -> Result<Outcome> {
    let disk = Disk::ext4("noatime")?;
    let sparse = |disk: &Disk| here().doctor(&["--only", "sparse-disk", &text(&disk.data())]);
    sparse(&disk)?.expect_well()?;
    let punched = run(Command::new("fallocate")
        .args(["--punch-hole", "--offset", "100MiB", "--length", "200MiB"])
        .arg(disk.image()));
    punched?;
    let said = sparse(&disk)?;
    said.expect("sparse-disk", "slow", "holes")?;
    let mend = said.of("sparse-disk")[0]["mend"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    run(Command::new("sh").args(["-c", &mend]))?;
    sparse(&disk)?.expect_well()?;
    passed()
}

pub fn thin() -> Result<Outcome> {
    if let Some(missing) = missing(HostedFileSystem::Ext4) {
        return Ok(Outcome::Skipped(missing.to_string()));
    }
    let base = scratch("doctor-thin-")?;
    let (file, fuse) = (base.path().join("room"), base.path().join("fuse"));
    let size = 320 << 20;
    let room = File::options()
        .create(true)
        .truncate(true)
        .read(true)
        .write(true)
        .open(&file);
    let room = room.map_err(TestkitError::file("creating", &file))?;
    room.set_len(size)
        .map_err(TestkitError::file("sizing", &file))?;
    std::fs::create_dir_all(&fuse).map_err(TestkitError::file("creating", &fuse))?;
    let mut config = Config::default();
    config.acl = SessionACL::Owner;
    let thin = ThinDisk::new(room, size, Duration::from_millis(40));
    let session = Session::new(thin, &fuse, &config).and_then(Session::spawn);
    let session = session.map_err(TestkitError::file("mounting FUSE at", &fuse))?;
    let made = [
        "mkfs.ext4",
        "-qF",
        "-E",
        "nodiscard,lazy_itable_init=1,lazy_journal_init=1",
    ];
    let disk = Disk::over(&fuse.join(DISK), &made, "noatime,noinit_itable")?;
    let checked = (|| {
        let args = ["--only", "first-write", &text(&disk.data())];
        here()
            .doctor(&args)?
            .expect("first-write", "slow", "nothing was written before")?;
        // A file that is not written for long has been left out of nothing.
        killed(&disk.data())
    })();
    drop(disk);
    let _ = session.umount_and_join();
    checked?;
    passed()
}

/// A doctor that is killed in its trial leaves nothing.
fn killed(data: &Path) -> Result<()> {
    let binary = hayloft_binary()?;
    let mut command = Command::new(&binary);
    command.args(["doctor", "--only", "first-write"]).arg(data);
    let quiet = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut child = quiet.map_err(TestkitError::file("running", &binary))?;
    std::thread::sleep(seconds(1));
    let (_, _) = (child.kill(), child.wait());
    let left = std::fs::read_dir(data).map_or(1, Iterator::count);
    expect(left == 0, || {
        format!("{left} files are left of a trial that was killed")
    })?;
    all_ended(data)
}

pub fn file_systems() -> Result<Outcome> {
    let base = scratch("doctor-kinds-")?;
    let at = text(base.path());
    let tmpfs =
        format!("mkdir -p {at}/memory; mount -t tmpfs tmpfs {at}/memory; mkdir {at}/memory/d");
    let said =
        Around::script(&tmpfs).doctor(&["--only", "file-system", &format!("{at}/memory/d")])?;
    said.expect("file-system", "bad", "tmpfs")?;
    said.expect_code(BAD)?;
    let overlay = format!(
        "cd {at}; mkdir -p low layers merged; mount -t tmpfs tmpfs layers; mkdir layers/up \
         layers/work; mount -t overlay -o lowerdir=low,upperdir=layers/up,workdir=layers/work \
         overlay merged; mkdir merged/d"
    );
    let said =
        Around::script(&overlay).doctor(&["--only", "file-system", &format!("{at}/merged/d")])?;
    said.expect("file-system", "bad", "overlay")?;
    // Memory that is declared as such is no fault.
    let conf_dir = base.path().join("conf");
    let declared = format!("[RAM_DISK]{at}/memory/d");
    conf(
        &conf_dir,
        &[
            ("fs.defaultFS", "hdfs://127.0.0.1:1"),
            ("dfs.datanode.data.dir", &declared),
        ],
    )?;
    let said = Around::script(&tmpfs);
    let said = said.doctor(&["--only", "file-system", "--conf", &text(&conf_dir)])?;
    said.expect_well()?;
    passed()
}

pub fn counted_errors() -> Result<Outcome> {
    let disk = Disk::ext4("noatime,errors=continue")?;
    let trigger = format!("/sys/fs/ext4/{}/trigger_fs_error", disk.name());
    if let Err(error) = std::fs::write(&trigger, "planted") {
        return Ok(Outcome::Skipped(format!("{trigger}: {error}")));
    }
    let said = here().doctor(&["--only", "file-system-errors", &text(&disk.data())])?;
    said.expect("file-system-errors", "bad", "1 error, ")?;
    passed()
}

/// Two directories of one disk, of which one is a copy of the other.
pub fn twice() -> Result<Outcome> {
    let disk = Disk::ext4("noatime")?;
    let two = disk.mounted().join("two");
    let version = "storageID=DS-1\nclusterID=CID-1\ndatanodeUuid=1\n";
    for (dir, text) in [(disk.data(), version), (two.clone(), version)] {
        let current = dir.join("current");
        std::fs::create_dir_all(&current).map_err(TestkitError::file("creating", &current))?;
        let file = current.join("VERSION");
        std::fs::write(&file, text).map_err(TestkitError::file("writing", &file))?;
    }
    let dirs = [text(&disk.data()), text(&two)];
    let said = here().doctor(&["--only", "shared-device,identity", &dirs[0], &dirs[1]])?;
    said.expect("shared-device", "slow", "and")?;
    said.expect("identity", "bad", "storageID")?;
    let other = two.join("current/VERSION");
    let of_another = "storageID=DS-2\nclusterID=CID-2\ndatanodeUuid=1\n";
    std::fs::write(&other, of_another).map_err(TestkitError::file("writing", &other))?;
    let said = here().doctor(&["--only", "identity", &dirs[0], &dirs[1]])?;
    said.expect("identity", "bad", "clusterID")?;
    passed()
}

/// Room and inodes that are used up.
pub fn room() -> Result<Outcome> {
    let disk = Disk::ext4("noatime")?;
    let filler = disk.mounted().join("filler");
    run(Command::new("fallocate")
        .args(["-l", "270MiB"])
        .arg(&filler))?;
    let said = here().doctor(&["--only", "space", &text(&disk.data())])?;
    said.expect("space", "bad", "are free for blocks")?;
    let few = ["mkfs.ext4", "-qF", "-N", "64", "-E", "nodiscard"];
    let disk = Disk::made(&few, "noatime", 1 << 30)?;
    for number in 0..200 {
        if File::create(disk.data().join(number.to_string())).is_err() {
            break;
        }
    }
    let said = here().doctor(&["--only", "space", &text(&disk.data())])?;
    said.expect("space", "bad", "inodes")?;
    passed()
}

/// A directory whose disk was mounted when a node ran there.
pub fn not_mounted() -> Result<Outcome> {
    let disk = Disk::ext4("noatime")?;
    let base = scratch("doctor-empty-")?;
    let gone = base.path().join("gone");
    std::fs::create_dir_all(&gone).map_err(TestkitError::file("creating", &gone))?;
    let storage = |id: &str, dir: &Path, mount: &Path| {
        format!(
            r#"{{"directory": "{}", "storage_id": "{id}", "mount": "{}"}}"#,
            dir.display(),
            mount.display()
        )
    };
    let memory = format!(
        r#"{{"at_ms": 1, "host": "h", "datanode_uuid": "1", "storages": [{}, {}]}}"#,
        storage("DS-1", &disk.data(), &disk.mounted()),
        storage("DS-2", &gone, &gone)
    );
    let file = disk.data().join(".hayloft-storages");
    std::fs::write(&file, memory).map_err(TestkitError::file("writing", &file))?;
    let only = ["--only", "empty-mount-point"];
    let dirs = [text(&disk.data()), text(&gone)];
    let said = here().doctor(&[only[0], only[1], &dirs[0], &dirs[1]])?;
    said.expect("empty-mount-point", "bad", "a node had a storage there")?;
    said.expect_code(BAD)?;
    // Without that memory the system's own table tells.
    let fstab = format!("UUID=1 {} ext4 defaults 0 2\n", gone.display());
    if Path::new("/etc/fstab").exists() {
        let covered = Covered::new(&[("/etc/fstab", &fstab)])?;
        let said = covered.around().doctor(&[only[0], only[1], &dirs[1]])?;
        said.expect("empty-mount-point", "bad", "/etc/fstab")?;
    }
    passed()
}

/// A directory that the system empties, and one that is not there.
pub fn places() -> Result<Outcome> {
    let dir = tempfile::tempdir_in("/tmp").map_err(TestkitError::file("creating", "/tmp"))?;
    let said = here().doctor(&["--only", "directory", &text(dir.path())])?;
    said.expect("directory", "bad", "/tmp")?;
    let said = here().doctor(&["--only", "directory", "/srv/no-such-directory"])?;
    said.expect("directory", "note", "no such directory")?;
    said.expect_code(WELL)?;
    passed()
}

/// A disk that gives no answer costs ten seconds, and is said.
pub fn hung() -> Result<Outcome> {
    if let Some(missing) = missing(HostedFileSystem::Ext4) {
        return Ok(Outcome::Skipped(missing.to_string()));
    }
    let base = scratch("doctor-hung-")?;
    let disk = ModelledDisk::mount_small(base.path().join("disk"), HostedFileSystem::Ext4)?;
    let data = disk.dir().join("data");
    std::fs::create_dir_all(&data).map_err(TestkitError::file("creating", &data))?;
    run(Command::new("sync").arg("-f").arg(&data))?;
    let caches = "/proc/sys/vm/drop_caches";
    std::fs::write(caches, "3").map_err(TestkitError::file("writing", caches))?;
    let hung = disk.hang()?;
    let said = here().doctor(&["--only", "directory,first-write", &text(&data)])?;
    said.expect("directory", "bad", "no answer")?;
    let unseen = said.report["not_looked_at"].as_array().map_or(0, Vec::len);
    expect(unseen == 1, || format!("{:#}", said.report))?;
    drop(hung);
    // What was given up ends once the disk answers.
    all_ended(&data)?;
    passed()
}

/// Waits until no process looks at a directory any more.
fn all_ended(data: &Path) -> Result<()> {
    wait::until("the doctor's processes", seconds(30), || {
        Ok(match left_over(data) {
            None => Seen::Done(()),
            Some(process) => Seen::NotYet(process.display().to_string()),
        })
    })
}

/// A process that still looks at a directory.
fn left_over(data: &Path) -> Option<PathBuf> {
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut all = all.map(|entry| entry.path());
    all.find(|process| {
        let line = std::fs::read(process.join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        line.contains("doctor --look") && line.contains(&text(data))
    })
}

/// What may not be looked at says so, and is not called well.
pub fn not_allowed() -> Result<Outcome> {
    let disk = Disk::ext4("noatime")?;
    let private = disk.mounted().join("private");
    let data = private.join("data");
    std::fs::create_dir_all(&data).map_err(TestkitError::file("creating", &data))?;
    use std::os::unix::fs::PermissionsExt as _;
    let mode = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(&private, mode).map_err(TestkitError::file("closing", &private))?;
    let other = Around::words(&[
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
    ]);
    let said = other.doctor(&["--only", "directory,first-write", &text(&data)]);
    let said = match said {
        Ok(said) => said,
        // The program itself may lie where only root may look.
        Err(error) => return Ok(Outcome::Skipped(format!("as another user: {error}"))),
    };
    let why = said.report["not_looked_at"].to_string();
    expect(why.contains("ermission denied"), || {
        format!("{:#}", said.report)
    })?;
    let said = here().doctor(&["--no-write", "--only", "first-write", &text(&data)])?;
    let why = said.report["not_looked_at"][0]["why"].to_string();
    expect(why.contains("--no-write"), || format!("{:#}", said.report))?;
    passed()
}
