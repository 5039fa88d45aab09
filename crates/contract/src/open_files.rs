//! Opening, lengths, syncs, names.

use std::fs::File;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use hayloft_io::{Advice, IoClass, IoErrorKind, OpenMode, SyncKind};

use crate::rig::{EngineRig, eventually, pattern, read, write};

pub(crate) async fn opening_says_what_is_wrong(rig: EngineRig) {
    for mode in [OpenMode::ReadOnly, OpenMode::ReadWrite] {
        let error = rig.open("missing", mode).await.expect_err("not there");
        assert_eq!(error.kind(), IoErrorKind::NotFound);
        assert!(error.to_string().contains("missing"), "{error}");
    }
    rig.create("f").await;
    assert_eq!(
        rig.open("f", OpenMode::CreateNew)
            .await
            .expect_err("there")
            .kind(),
        IoErrorKind::Exists
    );
    assert_eq!(
        rig.open("", OpenMode::ReadOnly)
            .await
            .expect_err("a directory")
            .kind(),
        IoErrorKind::Invalid
    );
    let below = rig
        .open("f/below", OpenMode::CreateNew)
        .await
        .expect_err("not a directory");
    assert_eq!(below.kind(), IoErrorKind::Invalid);
}

pub(crate) async fn truncate_cuts_and_extends(rig: EngineRig) {
    let file = rig.create("f").await;
    let data = pattern(150_000, 5);
    write(&file, &data, 0).await;
    file.truncate(70_001).await.expect("writable");
    assert_eq!(file.length().await.expect("open"), 70_001);
    assert_eq!(read(&file, 0, 200_000).await, rig.kept(&data[..70_001]));
    file.truncate(140_000).await.expect("writable");
    let mut expected = rig.kept(&data[..70_001]);
    expected.resize(140_000, 0);
    assert!(
        read(&file, 0, 200_000).await == expected,
        "what was cut must not come back"
    );
    file.truncate(0).await.expect("writable");
    assert_eq!(read(&file, 0, 10).await, b"");
    write(&file, b"again", 3).await;
    assert_eq!(
        read(&file, 0, 10).await,
        [&[0; 3][..], &rig.kept(b"again")].concat()
    );
}

pub(crate) async fn allocate_does_not_change_the_length(rig: EngineRig) {
    let file = rig.create("f").await;
    write(&file, b"abc", 0).await;
    match file.allocate(1 << 20).await {
        Ok(()) => {}
        Err(e) => assert_eq!(e.kind(), IoErrorKind::Unsupported),
    }
    file.allocate(0).await.expect("nothing to do");
    assert_eq!(file.length().await.expect("open"), 3);
    assert_eq!(read(&file, 0, 10).await, rig.kept(b"abc"));
    write(&file, b"def", 3).await;
    file.truncate(6).await.expect("writable");
    file.sync(SyncKind::All).await.expect("open");
    let info = std::fs::metadata(rig.path("f")).expect("exists");
    assert_eq!(info.len(), 6);
    let allocated = info.blocks() * 512;
    assert!(allocated <= 64 * 1024, "{allocated} bytes stay reserved");
}

pub(crate) async fn sync_writeback_and_advice_are_accepted_anywhere(rig: EngineRig) {
    let file = rig.create("f").await;
    file.sync(SyncKind::All).await.expect("empty is fine");
    write(&file, &pattern(100_000, 6), 0).await;
    file.start_writeback(0, 50_000).await.expect("a range");
    file.start_writeback(50_000, 0).await.expect("to the end");
    file.start_writeback(1 << 30, 4096)
        .await
        .expect("beyond the end");
    file.sync(SyncKind::Data).await.expect("open");
    use Advice::{DontNeed, Normal, Random, Sequential, WillNeed};
    for advice in [Normal, Sequential, Random, WillNeed, DontNeed] {
        file.advise(advice, 0, 0).await.expect("the whole file");
        file.advise(advice, 4096, 100).await.expect("a range");
        file.advise(advice, 1 << 30, 1)
            .await
            .expect("beyond the end");
    }
    file.sync(SyncKind::All).await.expect("open");
    assert_eq!(
        read(&file, 0, 100_000).await,
        rig.kept(&pattern(100_000, 6))
    );
    let seen = std::fs::metadata(rig.path("f")).expect("exists").len();
    assert_eq!(seen, 100_000, "after a sync the file system knows it");
}

pub(crate) async fn handles_and_classes_see_the_same_file(rig: EngineRig) {
    let file = rig.create("f").await;
    let other = rig.open("f", OpenMode::ReadWrite).await.expect("exists");
    let scan = file.with_class(IoClass::Scan);
    assert_eq!(scan.path(), file.path());
    write(&file, b"from one", 0).await;
    assert_eq!(read(&other, 0, 100).await, rig.kept(b"from one"));
    assert_eq!(read(&scan, 0, 100).await, rig.kept(b"from one"));
    write(&other, b"two", 5).await;
    assert_eq!(read(&file, 0, 100).await, rig.kept(b"from two"));
    drop((file, scan));
    other.truncate(4).await.expect("writable");
    let late = rig.open("f", OpenMode::ReadOnly).await.expect("exists");
    assert_eq!(read(&late, 0, 100).await, rig.kept(b"from"));
}

pub(crate) async fn names_work_under_open_files(rig: EngineRig) {
    let file = rig.create("rbw").await;
    let meta = rig.engine.meta(IoClass::ClientWrite);
    write(&file, b"one", 0).await;
    meta.create_dir_all(&rig.path("a/b"), 0o700)
        .await
        .expect("writable");
    meta.rename(&rig.path("rbw"), &rig.path("a/b/done"))
        .await
        .expect("there");
    write(&file, b" two", 3).await;
    std::fs::hard_link(rig.path("a/b/done"), rig.path("second")).expect("there");
    meta.unlink(&rig.path("a/b/done")).await.expect("there");
    drop(file);
    let file = rig.open("second", OpenMode::ReadOnly).await.expect("there");
    assert_eq!(read(&file, 0, 100).await, rig.kept(b"one two"));
    meta.unlink(&rig.path("second")).await.expect("there");
    assert_eq!(
        read(&file, 0, 100).await,
        rig.kept(b"one two"),
        "an open file outlives its name"
    );
    assert_eq!(
        rig.open("second", OpenMode::ReadOnly)
            .await
            .expect_err("gone")
            .kind(),
        IoErrorKind::NotFound
    );
}

pub(crate) async fn a_new_file_under_an_old_name_is_empty(rig: EngineRig) {
    let meta = rig.engine.meta(IoClass::Delete);
    for round in 0..20 {
        let file = rig.create("f").await;
        assert_eq!(read(&file, 0, 10).await, b"", "round {round}");
        write(&file, &pattern(100, round + 1), 0).await;
        assert_eq!(
            read(&file, 0, 100).await,
            rig.kept(&pattern(100, round + 1))
        );
        drop(file);
        meta.unlink(&rig.path("f")).await.expect("there");
    }
}

pub(crate) async fn a_descriptor_is_given_as_declared(rig: EngineRig) {
    let file = rig.create("f").await;
    write(&file, b"through the kernel", 0).await;
    let capabilities = rig.engine.capabilities();
    assert_eq!(file.fd().is_some(), capabilities.descriptor);
    if let Some(fd) = file.fd() {
        let copy = File::from(fd.try_clone_to_owned().expect("descriptors left"));
        let mut seen = [0; 18];
        copy.read_exact_at(&mut seen, 0).expect("readable");
        assert_eq!(&seen, b"through the kernel");
    }
    if capabilities.keeps_data && !capabilities.stubs {
        assert_eq!(
            std::fs::read(rig.path("f")).expect("readable"),
            b"through the kernel"
        );
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

pub(crate) async fn dropping_a_file_waits_for_no_disk(rig: EngineRig) {
    let file = rig.create("f").await;
    let path = file.path().to_owned();
    // Large enough for a descriptor around the page cache.
    write(&file, &pattern(600_000, 7), 0).await;
    let open = open_on(&path);
    let (hung, over) = mpsc::channel();
    rig.disk.close_aside(&path, Hangs(over));
    let dropped = tokio::task::spawn_blocking(move || drop(file));
    let dropped = tokio::time::timeout(Duration::from_secs(20), dropped).await;
    dropped.expect("no wait for the disk").expect("no panic");
    assert_eq!(open_on(&path), open, "closed by the task that dropped it");
    eventually("the close that takes long is seen", async || {
        let longest = rig.disk.longest_other(rig.dir.path());
        longest.is_some_and(|(time, what)| what == "close" && time >= Duration::from_millis(20))
    })
    .await;
    rig.create("g").await;
    drop(hung);
    eventually("the file is closed", async || open_on(&path) == 0).await;
}
