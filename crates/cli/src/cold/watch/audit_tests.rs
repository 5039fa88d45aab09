//! Audit logs that grow, are rotated, cut, damaged, or gone.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use super::super::directory_uses::DirectoryUses;
use super::audit_log::AuditState;
use crate::error::CliError;

/// 2026-11-30 12:00:00 and 12 hours, milliseconds since 1970.
const NOON: u64 = 1_796_040_000_000 + 12 * 3_600_000;
/// When the log is read, long after.
const NOW: u64 = NOON + 1_000_000_000;

struct Log {
    _dir: tempfile::TempDir,
    path: PathBuf,
    state: AuditState,
}

fn line(minute: u32, dir: &str) -> String {
    format!(
        "2026-11-30 12:{minute:02}:00,000 INFO FSNamesystem.audit: allowed=true\tugi=u\tip=/::1\t\
         cmd=open\tsrc={dir}/f\tdst=null\tperm=null\tproto=rpc\n"
    )
}

fn write(path: &Path, text: impl AsRef<[u8]>) {
    let file = OpenOptions::new().create(true).append(true).open(path);
    file.expect("opened")
        .write_all(text.as_ref())
        .expect("written");
}

impl Log {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("hdfs-audit.log");
        Self {
            _dir: dir,
            path,
            state: AuditState::default(),
        }
    }

    fn read(&mut self) -> Result<&DirectoryUses, CliError> {
        // As a pass that fails: what it read is not kept.
        let mut state = self.state.clone();
        state.read_on(std::slice::from_ref(&self.path), Some(0), NOW)?;
        self.state = state;
        Ok(&self.state.uses)
    }

    fn minute(&mut self, dir: &str) -> u64 {
        let last = self.read().expect("read").last_use(dir);
        (last - NOON) / 60_000
    }

    fn rotate(&self) {
        for number in (1..5).rev() {
            let name = |n: u32| self.path.with_extension(format!("log.{n}"));
            let _ = fs::rename(name(number), name(number + 1));
        }
        fs::rename(&self.path, self.path.with_extension("log.1")).expect("renamed");
    }
}

#[test]
fn only_new_lines_are_read_and_a_cut_one_when_it_is_whole() {
    let mut log = Log::new();
    let cut = line(7, "/b");
    write(&log.path, line(5, "/a") + &cut[..40]);
    assert_eq!(
        (log.minute("/a"), log.state.uses.last_use("/b")),
        (5, NOON + 300_000)
    );
    write(&log.path, &cut[40..]);
    assert_eq!(log.minute("/b"), 7);
    write(&log.path, line(9, "/a"));
    assert_eq!(
        (log.minute("/a"), log.state.uses.since_ms()),
        (9, NOON + 300_000)
    );
}

#[test]
fn rotation_loses_no_line() {
    let mut log = Log::new();
    write(&log.path, line(1, "/a"));
    log.read().expect("read");
    write(&log.path, line(2, "/b"));
    log.rotate();
    write(&log.path, line(3, "/c"));
    log.rotate();
    write(&log.path, line(4, "/d"));
    let uses = log.read().expect("read").clone();
    for (minute, dir) in [(1, "/a"), (2, "/b"), (3, "/c"), (4, "/d"), (1, "/other")] {
        assert_eq!(uses.last_use(dir), NOON + minute * 60_000, "{dir}");
    }
}

/// Files between those that are there may have been removed or compressed.
#[test]
fn a_new_log_is_known_since_its_newest_file_began() {
    let mut log = Log::new();
    write(&log.path, line(1, "/a") + &line(6, "/b"));
    log.rotate();
    write(&log.path, line(4, "/c"));
    let uses = log.read().expect("read");
    for (minute, dir) in [(4, "/a"), (6, "/b"), (4, "/c"), (4, "/other")] {
        assert_eq!(uses.last_use(dir), NOON + minute * 60_000, "{dir}");
    }
    assert_eq!(uses.known_use("/a"), NOON + 60_000);
    assert_eq!(uses.known_use("/other"), 0);
}

#[test]
fn a_file_that_cannot_be_read_fails_the_pass() {
    let mut log = Log::new();
    write(&log.path, line(1, "/a"));
    let circle = log.path.with_extension("log.2");
    std::os::unix::fs::symlink(&circle, &circle).expect("linked");
    assert!(log.read().is_err());
    fs::remove_file(circle).expect("removed");
    log.read().expect("read");
}

#[test]
fn all_counts_as_read_now_when_lines_may_be_lost() {
    type Lose = fn(&Log);
    let lose: [(&str, Lose); 3] = [
        ("deleted", |log| {
            fs::remove_file(&log.path).expect("removed")
        }),
        ("cut off", |log| {
            drop(File::create(&log.path).expect("made"))
        }),
        ("compressed", |log| {
            let packed = log.path.with_extension("log.1.gz");
            fs::rename(&log.path, packed).expect("renamed");
        }),
    ];
    for (how, lose) in lose {
        let mut log = Log::new();
        write(&log.path, line(1, "/a").repeat(3));
        log.read().expect("read");
        assert_eq!(log.state.uses.since_ms(), NOON + 60_000, "{how}");
        lose(&log);
        write(&log.path, line(2, "/b"));
        assert_eq!(log.read().expect("read").last_use("/x"), NOW, "{how}");
    }
}

#[test]
fn a_log_that_tells_nothing_fails_the_pass() {
    let mut log = Log::new();
    let gone = log.read().expect_err("no log").to_string();
    assert!(gone.contains("hdfs.audit.logger"), "{gone}");
    write(&log.path, "Hello\n");
    let other = log.read().expect_err("no audit log").to_string();
    assert!(other.contains("1 that are none"), "{other}");
    let list = line(1, "/a").replace("cmd=open", "cmd=listStatus");
    write(&log.path, list.clone());
    let unread = log.read().expect_err("no read").to_string();
    assert!(unread.contains("cmd=open"), "{unread}");
    write(&log.path, line(1, "/a"));
    log.read().expect("read");
    write(&log.path, list);
    log.read().expect("one was seen before");
    let silent = log.read().expect_err("nothing new").to_string();
    assert!(silent.contains("no new line"), "{silent}");
    fs::remove_file(&log.path).expect("removed");
    assert!(log.read().is_err());
}

#[test]
fn hostile_lines_are_passed_over() {
    let mut log = Log::new();
    write(&log.path, line(1, "/a"));
    write(&log.path, vec![b'x'; 1 << 20]);
    write(&log.path, b"\n\xff\xfe\0\n\n");
    write(&log.path, line(2, &format!("/{}", "n".repeat(7_000))));
    write(&log.path, line(3, "/b"));
    // Its end is not written yet.
    write(&log.path, vec![b'y'; 1 << 20]);
    assert_eq!(log.minute("/b"), 3);
    write(&log.path, format!("\n{}", line(4, "/c")));
    assert_eq!(log.minute("/c"), 4);
}
