//! Opening, lengths, syncs, names.

use std::fs::File;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use hayloft_io::{Advice, IoClass, IoErrorKind, OpenMode, SyncKind};

use crate::breach::{Breach, Verdict};
use crate::rig::{EngineRig, TriedFile, eventually, pattern};

/// Bytes that may stay reserved beyond what a plain file of the same length takes.
const ROOM_LEFT_MAX: u64 = 64 * 1024;

pub(crate) async fn opening_says_what_is_wrong(rig: EngineRig) -> Verdict {
    use OpenMode::{CreateNew, ReadOnly, ReadWrite};
    for mode in [ReadOnly, ReadWrite] {
        rig.refuses("missing", mode, IoErrorKind::NotFound, "-ENOENT")
            .await?;
    }
    rig.create("f").await?;
    rig.refuses("f", CreateNew, IoErrorKind::Exists, "-EEXIST")
        .await?;
    let invalid = IoErrorKind::Invalid;
    rig.refuses("", ReadOnly, invalid, "-EISDIR or -EINVAL")
        .await?;
    let below = "-ENOTDIR or -EINVAL";
    rig.refuses("f/below", CreateNew, invalid, below).await
}

pub(crate) async fn truncate_cuts_and_extends(rig: EngineRig) -> Verdict {
    let file = rig.create("f").await?;
    let data = pattern(150_000, 5);
    file.write(&data, 0).await?;
    file.truncate(70_001).await?;
    file.has_length(70_001).await?;
    file.reads(0, 200_000, &rig.kept(&data[..70_001])).await?;
    file.truncate(140_000).await?;
    let mut expected = rig.kept(&data[..70_001]);
    expected.resize(140_000, 0);
    file.reads(0, 200_000, &expected).await?;
    file.truncate(0).await?;
    file.reads(0, 10, b"").await?;
    file.write(b"again", 3).await?;
    let expected = [&[0; 3][..], &rig.kept(b"again")].concat();
    file.reads(0, 10, &expected).await
}

pub(crate) async fn allocate_does_not_change_the_length(rig: EngineRig) -> Verdict {
    let file = rig.create("f").await?;
    file.write(b"abc", 0).await?;
    match file.file.allocate(1 << 20).await {
        Err(error) if error.kind() != IoErrorKind::Unsupported => {
            let call = file.call("allocate of 1048576");
            return Err(Breach::failed(call, "success or -EOPNOTSUPP", &error));
        }
        _ => {}
    }
    let nothing = file.file.allocate(0).await;
    file.succeeds(file.call("allocate of 0"), nothing)?;
    file.has_length(3).await?;
    file.reads(0, 10, &rig.kept(b"abc")).await?;
    file.write(b"def", 3).await?;
    file.truncate(6).await?;
    file.sync(SyncKind::All).await?;
    let plain = rig.path("plain");
    let plain = File::create(&plain).and_then(|file| {
        file.write_all_at(b"abcdef", 0)?;
        file.sync_all()?;
        file.metadata()
    });
    let plain = EngineRig::step("a plain file beside f", plain)?;
    let found = EngineRig::step("stat of f", std::fs::metadata(rig.path("f")))?;
    let (takes, most) = (found.blocks() * 512, plain.blocks() * 512 + ROOM_LEFT_MAX);
    if (found.len(), takes <= most) == (6, true) {
        return Ok(());
    }
    Err(Breach::new(
        file.call("stat after allocate of 1048576, truncate to 6 and sync"),
        format!("6 bytes that take at most {most} on the disk"),
        format!("{} bytes that take {takes}", found.len()),
    ))
}

pub(crate) async fn sync_writeback_and_advice_are_accepted_anywhere(rig: EngineRig) -> Verdict {
    let file = rig.create("f").await?;
    file.sync(SyncKind::All).await?;
    file.write(&pattern(100_000, 6), 0).await?;
    for (offset, len) in [(0, 50_000), (50_000, 0), (1 << 30, 4096)] {
        let call = file.call(format_args!("start of write-back of {len} at {offset}"));
        file.succeeds(call, file.file.start_writeback(offset, len).await)?;
    }
    file.sync(SyncKind::Data).await?;
    use Advice::{DontNeed, Normal, Random, Sequential, WillNeed};
    for advice in [Normal, Sequential, Random, WillNeed, DontNeed] {
        for (offset, len) in [(0, 0), (4096, 100), (1 << 30, 1)] {
            let call = file.call(format_args!("advice on {len} at {offset}"));
            file.succeeds(call, file.file.advise(advice, offset, len).await)?;
        }
    }
    file.sync(SyncKind::All).await?;
    file.reads(0, 100_000, &rig.kept(&pattern(100_000, 6)))
        .await?;
    let seen = EngineRig::step("stat of f", std::fs::metadata(rig.path("f")))?;
    if seen.len() == 100_000 {
        return Ok(());
    }
    let call = file.call("stat after sync");
    Err(Breach::new(
        call,
        "the length 100000",
        seen.len().to_string(),
    ))
}

pub(crate) async fn handles_and_classes_see_the_same_file(rig: EngineRig) -> Verdict {
    let file = rig.create("f").await?;
    let other = rig.open("f", OpenMode::ReadWrite).await?;
    let scan = file.with_class(IoClass::Scan);
    if scan.file.path() != file.file.path() {
        let came = scan.file.path().display().to_string();
        let expected = file.file.path().display().to_string();
        return Err(Breach::new(
            "the same file in another class",
            expected,
            came,
        ));
    }
    file.write(b"from one", 0).await?;
    for handle in [&other, &scan] {
        handle.reads(0, 100, &rig.kept(b"from one")).await?;
    }
    other.write(b"two", 5).await?;
    file.reads(0, 100, &rig.kept(b"from two")).await?;
    drop((file, scan));
    other.truncate(4).await?;
    let late = rig.open("f", OpenMode::ReadOnly).await?;
    late.reads(0, 100, &rig.kept(b"from")).await
}

pub(crate) async fn names_work_under_open_files(rig: EngineRig) -> Verdict {
    let file = rig.create("rbw").await?;
    let meta = rig.engine.meta(IoClass::ClientWrite);
    file.write(b"one", 0).await?;
    let made = meta.create_dir_all(&rig.path("a/b"), 0o700).await;
    EngineRig::step("a directory in the volume", made)?;
    let renamed = meta.rename(&rig.path("rbw"), &rig.path("a/b/done")).await;
    EngineRig::step("rename of the open file rbw", renamed)?;
    file.write(b" two", 3).await?;
    let linked = std::fs::hard_link(rig.path("a/b/done"), rig.path("second"));
    EngineRig::step("a second name of the open file", linked)?;
    let removed = meta.unlink(&rig.path("a/b/done")).await;
    EngineRig::step("removal of one of two names", removed)?;
    drop(file);
    let file = rig.open("second", OpenMode::ReadOnly).await?;
    file.reads(0, 100, &rig.kept(b"one two")).await?;
    let removed = meta.unlink(&rig.path("second")).await;
    EngineRig::step("removal of the last name of an open file", removed)?;
    file.reads(0, 100, &rig.kept(b"one two")).await?;
    let gone = IoErrorKind::NotFound;
    rig.refuses("second", OpenMode::ReadOnly, gone, "-ENOENT")
        .await
}

pub(crate) async fn a_new_file_under_an_old_name_is_empty(rig: EngineRig) -> Verdict {
    let meta = rig.engine.meta(IoClass::Delete);
    for round in 0..20 {
        let file = rig.create("f").await?;
        file.reads(0, 10, b"").await?;
        let data = pattern(100, round + 1);
        file.write(&data, 0).await?;
        file.reads(0, 100, &rig.kept(&data)).await?;
        drop(file);
        let removed = meta.unlink(&rig.path("f")).await;
        EngineRig::step("removal of f", removed)?;
    }
    Ok(())
}

pub(crate) async fn a_descriptor_is_given_as_declared(rig: EngineRig) -> Verdict {
    let file = rig.create("f").await?;
    let data = b"through the kernel";
    file.write(data, 0).await?;
    let capabilities = rig.engine.capabilities();
    let declared = |there| if there { "a descriptor" } else { "none" };
    let (expected, given) = (capabilities.descriptor, file.file.fd().is_some());
    if expected != given {
        let call = file.call("the descriptor");
        return Err(Breach::new(call, declared(expected), declared(given)));
    }
    if let Some(fd) = file.file.fd() {
        let copy = File::from(EngineRig::step("a copy of it", fd.try_clone_to_owned())?);
        let mut seen = [0; 18];
        let read = copy.read_exact_at(&mut seen, 0);
        EngineRig::step("a read through the descriptor", read)?;
        same(&file, "read through the descriptor", data, &seen)?;
    }
    if capabilities.keeps_data && !capabilities.stubs {
        let seen = EngineRig::step("read(2) of f", std::fs::read(rig.path("f")))?;
        same(&file, "read(2) after the write completed", data, &seen)?;
    }
    Ok(())
}

fn same(file: &TriedFile, what: &str, expected: &[u8], came: &[u8]) -> Verdict {
    match Breach::of_bytes(file.call(what), 0, expected, came) {
        Some(breach) => Err(breach),
        None => Ok(()),
    }
}

/// Closing it takes until the sender is dropped, as on a disk that gives no answer.
struct Hangs(mpsc::Receiver<()>);

impl Drop for Hangs {
    fn drop(&mut self) {
        let _over = self.0.recv();
    }
}

/// Descriptors of this process that are open on `path`.
fn open_on(path: &Path) -> usize {
    let all = std::fs::read_dir("/proc/self/fd").expect("Linux has it");
    let links = all.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok());
    links.filter(|link| link == path).count()
}

pub(crate) async fn dropping_a_file_waits_for_no_disk(rig: EngineRig) -> Verdict {
    let file = rig.create("f").await?;
    let path = file.file.path().to_owned();
    // Large enough for a descriptor around the page cache.
    file.write(&pattern(600_000, 7), 0).await?;
    let open = open_on(&path);
    let (hung, over) = mpsc::channel();
    rig.disk.close_aside(&path, Hangs(over));
    let dropped = tokio::task::spawn_blocking(move || drop(file));
    let dropped = tokio::time::timeout(Duration::from_secs(20), dropped).await;
    let wait = "dropping f while another close hangs";
    EngineRig::step(wait, EngineRig::step(wait, dropped)?)?;
    if open_on(&path) != open {
        let expected = "the close on a thread of the disk";
        return Err(Breach::new(
            wait,
            expected,
            "a close by the task that dropped f",
        ));
    }
    eventually(async || {
        let longest = rig.disk.longest_other(rig.dir.path());
        match longest {
            Some((time, "close")) if time >= Duration::from_millis(20) => Ok(()),
            _ => Err(Breach::new(wait, "a close that takes long", "none seen")),
        }
    })
    .await?;
    rig.create("g").await?;
    drop(hung);
    eventually(async || match open_on(&path) {
        0 => Ok(()),
        left => {
            let came = format!("{left} descriptors that stay open on it");
            Err(Breach::new("close on f", "no open descriptor", came))
        }
    })
    .await
}
