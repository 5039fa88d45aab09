//! A modelled disk, from mounting to what is left when its process is killed. Needs root and FUSE.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use hayloft_testkit::modelled::{
    HostedDisk, HostedFileSystem, ModelledDisk, Params, missing, sweep,
};

const MIB: usize = 1 << 20;
/// O_DIRECT on x86-64 and arm64's generic value differ; rustix knows.
const DIRECT: u32 = rustix::fs::OFlags::DIRECT.bits();

fn skipped(file_system: HostedFileSystem) -> bool {
    if let Some(missing) = missing(file_system) {
        println!("skipped: {missing}");
    }
    missing(file_system).is_some()
}

fn mount(dir: &Path, file_system: HostedFileSystem) -> ModelledDisk {
    let disk = HostedDisk {
        size: 1 << 30,
        file_system,
        params: Params::default(),
        dir: dir.join("mounted"),
        backing: None,
    };
    let program = Path::new(env!("CARGO_BIN_EXE_hayloft-lab"));
    ModelledDisk::mount(program, &disk, &dir.join("log")).expect("mounts")
}

/// Page-aligned memory for O_DIRECT.
fn aligned(len: usize) -> (Vec<u8>, usize) {
    let memory = vec![0_u8; len + 4096];
    let skip = memory.as_ptr().align_offset(4096);
    (memory, skip)
}

fn write_direct(path: &Path, mib: usize) {
    let (mut memory, skip) = aligned(4 * MIB);
    let mut options = File::options();
    options.write(true).create(true);
    let direct = i32::try_from(DIRECT).expect("a small flag");
    let file = options.custom_flags(direct).open(path).expect("opened");
    for at in (0..mib).step_by(4) {
        let bytes = &mut memory[skip..skip + 4 * MIB];
        bytes.fill(u8::try_from(at % 251 + 1).expect("below 256"));
        let offset = u64::try_from(at * MIB).expect("small");
        file.write_all_at(bytes, offset).expect("written");
    }
}

/// What is left of the disk whose carrier was `pid`. By its own name: a test beside this one may
/// have been given the loop device that this one just let go.
fn leftovers(disk: &Path, pid: u32) -> Vec<String> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("readable");
    let loops = Command::new("losetup").arg("-a").output().expect("runs");
    let loops = String::from_utf8_lossy(&loops.stdout).into_owned();
    let carrier = format!("/hayloft-modelled/{pid}-");
    mounts
        .lines()
        .filter(|line| line.contains(&*disk.to_string_lossy()))
        .chain(loops.lines().filter(|line| line.contains(&carrier)))
        .map(ToOwned::to_owned)
        .collect()
}

fn keeps_bytes_and_takes_its_time(file_system: HostedFileSystem) {
    if skipped(file_system) {
        return;
    }
    let dir = tempfile::tempdir().expect("temporary directory");
    let disk = mount(dir.path(), file_system);
    let place = disk.place().clone();
    assert!(place.modelled && place.dir.is_dir());
    let path = disk.dir().join("file");
    disk.reset_stats().expect("reset");
    let start = Instant::now();
    write_direct(&path, 64);
    let rate = 64.0 * 1024.0 * 1024.0 / start.elapsed().as_secs_f64();
    // The bound is the model's, whatever this machine is busy with.
    assert!(rate < 96e6, "{rate} bytes/s is faster than the model");
    let stats = disk.stats().expect("read");
    assert!(stats.modelled && stats.write.bytes >= 64 << 20, "{stats:?}");
    // A few more for the file system's own: the data is in long runs.
    assert!(stats.run_mean_bytes > 1 << 20, "{stats:?}");
    assert!(stats.write.mean_bytes > 100 << 10, "{stats:?}");
    File::open(&path)
        .and_then(|f| f.sync_all())
        .expect("synced");
    std::fs::write("/proc/sys/vm/drop_caches", "1").expect("root may");
    let mut bytes = Vec::new();
    let mut file = File::open(&path).expect("opened");
    file.read_to_end(&mut bytes).expect("read");
    assert_eq!(bytes.len(), 64 * MIB);
    for (chunk, first) in bytes.chunks(4 * MIB).zip((1_u8..).step_by(4)) {
        assert!(chunk.iter().all(|&byte| byte == first), "chunk {first}");
    }
    drop(file);
    let pid = disk.pid();
    let used = leftovers(dir.path(), pid);
    assert!(
        used.iter()
            .any(|line| line.starts_with("/dev/loop") && line.contains(" ("))
    );
    disk.unmount().expect("taken down");
    assert_eq!(leftovers(dir.path(), pid), [""; 0]);
    let left: Vec<PathBuf> = std::fs::read_dir(dir.path())
        .expect("listed")
        .map(|e| e.expect("entry").path())
        .collect();
    assert_eq!(left, [dir.path().join("log")]);
}

#[test]
fn an_ext4_keeps_bytes_and_takes_its_time() {
    keeps_bytes_and_takes_its_time(HostedFileSystem::Ext4);
}

#[test]
fn an_xfs_keeps_bytes_and_takes_its_time() {
    keeps_bytes_and_takes_its_time(HostedFileSystem::Xfs);
}

#[test]
fn what_a_killed_carrier_leaves_is_swept_even_in_use() {
    if skipped(HostedFileSystem::Ext4) {
        return;
    }
    let dir = tempfile::tempdir().expect("temporary directory");
    let disk = mount(dir.path(), HostedFileSystem::Ext4);
    let carrier = disk.pid();
    let mut open = File::create(disk.dir().join("open")).expect("created");
    open.write_all(b"dirty").expect("written");
    let pid = i32::try_from(disk.pid()).ok();
    let pid = pid
        .and_then(rustix::process::Pid::from_raw)
        .expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("killed");
    let deadline = Instant::now() + Duration::from_secs(20);
    // Another start sweeps too, perhaps in a test beside this one: either may be who finds it.
    loop {
        let _ = sweep().expect("swept");
        let left = leftovers(dir.path(), carrier);
        // The loop device stays until the last user of the file system lets go.
        if left
            .iter()
            .all(|line| line.starts_with("/dev/loop") && line.contains(" ("))
        {
            break;
        }
        assert!(Instant::now() < deadline, "{left:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(open.sync_all().is_err(), "its disk is gone");
    drop(open);
    let deadline = Instant::now() + Duration::from_secs(20);
    while !leftovers(dir.path(), carrier).is_empty() {
        assert!(Instant::now() < deadline, "the loop device stays");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(disk.unmount().is_err(), "it was killed, and that is told");
}

#[test]
fn the_command_says_what_is_wrong_with_its_arguments() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let run = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hayloft-lab"));
        command.arg("disk").args(args).arg(dir.path().join("d"));
        command.output().expect("runs")
    };
    for (args, what) in [
        (&["--size", "many"][..], "64MiB"),
        (&["--size", "1MiB"], "size"),
        (&["--rpm", "0"], "turns a minute"),
        (&["--params", "{}"], "read_bytes_s"),
    ] {
        let output = run(args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(what), "{said}");
    }
}
