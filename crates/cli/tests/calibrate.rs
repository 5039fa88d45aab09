//! `hayloft calibrate` as a process: what it writes, leaves, refuses. No timings.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use hayloft_io::calibrate::Calibration;
use hayloft_io::locks;

fn command(args: &[&str], dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hayloft"));
    command.arg("calibrate").args(args).arg(dir);
    command
}

fn calibrate(args: &[&str], dir: &Path) -> Output {
    command(args, dir).output().expect("runs")
}

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("listed");
    let names = entries.map(|e| e.expect("entry").file_name());
    let mut names: Vec<String> = names.map(|n| n.to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

const SHORT: [&str; 3] = ["--seconds=3", "--space=64MiB", "--json"];

/// Who measures a curve and believes it takes it alone: the others of these tests, which keep a
/// disk and both processors busy, would be in it.
static QUIET: RwLock<()> = RwLock::new(());

fn among_others() -> RwLockReadGuard<'static, ()> {
    locks::read(&QUIET)
}

/// Not /tmp, which may be memory.
fn disk() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("temporary directory")
}

#[test]
fn the_file_holds_what_was_printed_and_nothing_else_is_left() {
    let _shared = among_others();
    let dir = disk();
    std::fs::create_dir(dir.path().join(".hayloft-calibrate-4294967295")).expect("created");
    let svg = dir.path().join("curve.svg");
    let svg_arg = format!("--svg={}", svg.display());
    let output = calibrate(&[&SHORT[..], &[svg_arg.as_str()]].concat(), dir.path());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let printed: Calibration = serde_json::from_slice(&output.stdout).expect("JSON");
    let read = Calibration::read(dir.path())
        .expect("valid")
        .expect("there");
    assert_eq!(printed, read);
    assert_eq!(
        names(dir.path()),
        [".hayloft-calibration.json", "curve.svg"]
    );
    assert!(read.runs.len() >= 5, "{:?}", read.runs);
    let measured = |p: &hayloft_io::calibrate::RunPoint| {
        p.read_bytes_s > Some(0.0) && p.write_bytes_s > Some(0.0)
    };
    assert!(read.runs.iter().all(measured), "{:?}", read.runs);
    assert_eq!((read.depths.len(), read.mixes.len()), (6, 3));
    assert!(read.engines.iter().any(|p| p.engine == "posix"));
    assert!(!read.reason.is_empty());
    let drawn = std::fs::read_to_string(svg).expect("readable");
    assert!(drawn.contains("<svg") && drawn.contains("quantum"));
}

#[test]
fn a_dry_run_writes_nothing_and_warns_of_a_node() {
    let _shared = among_others();
    let dir = disk();
    let lock = format!("{}@host", std::process::id());
    std::fs::write(dir.path().join("in_use.lock"), lock).expect("written");
    let output = calibrate(&["--seconds=1", "--space=64MiB", "--dry-run"], dir.path());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("in use by"), "{said}");
    assert_eq!(names(dir.path()), ["in_use.lock"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains("run length") && text.contains("quantum"),
        "{text}"
    );
}

#[test]
fn a_signal_leaves_nothing_behind() {
    let _shared = among_others();
    for signal in [rustix::process::Signal::INT, rustix::process::Signal::TERM] {
        let dir = disk();
        let mut child = command(&["--seconds=60", "--space=64MiB"], dir.path())
            .stderr(Stdio::null())
            .spawn()
            .expect("runs");
        let deadline = Instant::now() + Duration::from_secs(20);
        while names(dir.path()).is_empty() {
            assert!(Instant::now() < deadline, "it does not begin");
            std::thread::sleep(Duration::from_millis(10));
        }
        let pid = i32::try_from(child.id()).ok();
        let pid = pid
            .and_then(rustix::process::Pid::from_raw)
            .expect("a process");
        rustix::process::kill_process(pid, signal).expect("signalled");
        let status = child.wait().expect("ends");
        assert_eq!(status.code(), Some(130), "{signal:?}");
        assert_eq!(names(dir.path()), [""; 0], "{signal:?}");
    }
}

#[test]
fn what_cannot_be_measured_is_refused_with_advice() {
    let _shared = among_others();
    let dir = disk();
    for (args, what) in [
        (&["--space=1MiB"][..], "at least 64 MiB"),
        (&["--space=16TiB"], "--space"),
    ] {
        let output = calibrate(args, dir.path());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(what), "{said}");
    }
    let output = calibrate(&[], &dir.path().join("none"));
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(names(dir.path()), [""; 0]);
}

#[test]
fn a_read_only_volume_is_refused() {
    let _shared = among_others();
    if !hayloft_testkit::mounts::may_mount() {
        println!("skipped: mounting needs root");
        return;
    }
    let dir = disk();
    let at = dir.path().join("volume");
    let mount = hayloft_testkit::mounts::TestMount::tmpfs(&at, 512).expect("mounted");
    let mut remount = Command::new("mount");
    let remounted = remount
        .args(["-o", "remount,ro"])
        .arg(mount.path())
        .status();
    assert!(remounted.expect("runs").success());
    let output = calibrate(&["--space=64MiB"], &at);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("read-only"), "{said}");
}

#[test]
fn a_hard_disk_is_told_by_its_curve_and_gets_a_large_quantum() {
    use hayloft_io::Media;
    use hayloft_io::calibrate::RunPoint;
    use hayloft_testkit::modelled::{HostedDisk, HostedFileSystem, ModelledDisk, Params, missing};

    if let Some(missing) = missing(HostedFileSystem::Ext4) {
        println!("skipped: {missing}");
        return;
    }
    let _quiet = locks::write(&QUIET);
    let dir = disk();
    let modelled = HostedDisk {
        size: 8 << 30,
        file_system: HostedFileSystem::Ext4,
        params: Params::default(),
        dir: dir.path().join("mounted"),
        backing: None,
    };
    let program = hayloft_testkit::hadoop::lab_binary().expect("built beside the tests");
    let modelled = ModelledDisk::mount(&program, &modelled, &dir.path().join("log"));
    let modelled = modelled.expect("mounts");
    let output = calibrate(
        &["--seconds=20", "--space=512MiB", "--json"],
        modelled.dir(),
    );
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let read = Calibration::read(modelled.dir());
    let read = read.expect("valid").expect("there");
    assert_eq!(
        names(modelled.dir()),
        [".hayloft-calibration.json", "lost+found"]
    );

    assert_eq!(read.media, Media::Rotating, "{}", read.reason);
    // A seek there and half a turn are 1 MiB of this disk: shorter quanta are mostly seeking.
    assert!(read.quantum_bytes >= 4 << 20, "{}", read.reason);
    assert!(["posix", "direct"].contains(&&*read.engine));
    assert!(read.reason.contains(&read.engine), "{}", read.reason);
    let rate = |rate: fn(&RunPoint) -> Option<f64>, run: u64| {
        let of_run = read.runs.iter().filter(|p| p.run_bytes >= run);
        of_run.filter_map(rate).fold(0.0, f64::max)
    };
    assert_eq!(read.runs[0].run_bytes, 64 << 10);
    for of in [
        |p: &RunPoint| p.read_bytes_s,
        |p: &RunPoint| p.write_bytes_s,
    ] {
        let short = of(&read.runs[0]).expect("measured");
        assert!(rate(of, 1 << 20) > 4.0 * short, "{:?}", read.runs);
    }
    modelled.unmount().expect("taken down");
}
