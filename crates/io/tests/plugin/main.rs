//! Plug-ins that break the interface, each in its way: a sentence, never a crash.

mod compile;

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use hayloft_io::{
    AlignedBuf, Disk, DiskConfig, Engine, EngineConfig, EngineFile, IoClass, IoErrorKind, OpenMode,
    engine_for,
};

/// A directory with a plug-in of `odd.c`, if its way is above 0, or the example.
fn plugin(way: u32) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    let to = dir.path().join("engine.so");
    match way {
        0 => compile::plugin("../../plugins/examples/files.c", &to, &[]),
        _ => compile::plugin("tests/plugin/odd.c", &to, &[format!("-DWAY={way}")]),
    }
    dir
}

fn open(dir: &Path, options: &str) -> Result<Arc<dyn Engine>, String> {
    let disk = Disk::for_path(dir, &DiskConfig::default()).expect("a disk");
    let name = format!("plugin:{}/engine.so {options}", dir.display());
    let choice = engine_for(&name, dir, &EngineConfig::new(disk));
    choice.map(|c| c.engine).map_err(|e| e.to_string())
}

async fn file(dir: &Path, engine: &Arc<dyn Engine>) -> Arc<dyn EngineFile> {
    let path = dir.join("file");
    let opened = engine.open(&path, OpenMode::CreateNew, IoClass::ClientWrite);
    opened.await.expect("opens")
}

#[test]
fn what_cannot_be_used_is_refused_in_a_sentence() {
    for (way, wanted) in [
        (
            1,
            "is for version 2 of the interface, and this node has version 1",
        ),
        (2, "has 64 bytes instead of"),
        (3, "it lacks sync, length"),
        (4, "its name must be 1 to 32 of a-z"),
        (5, "bits that this node does not know"),
        (6, "memory_alignment 3"),
        (7, "threads 7"),
        (8, "it gives no table"),
        (9, "it has no name"),
    ] {
        let dir = plugin(way);
        let error = open(dir.path(), "").expect_err("it is odd");
        assert!(error.contains(wanted), "{way}: {error}");
        assert!(error.contains("engine.so"), "it is named: {error}");
    }
}

#[test]
fn files_that_are_no_plug_ins_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let so = dir.path().join("engine.so");
    let error = |what: &str| {
        let error = open(dir.path(), "").expect_err("no plug-in");
        assert!(error.contains(what), "{error}");
    };
    error("No such file");
    std::fs::write(&so, "text").expect("writes");
    error("file too short");
    compile::plugin("tests/plugin/none.c", &so, &[]);
    error("exports no hayloft_engine");
    let writable = std::fs::Permissions::from_mode(0o666);
    std::fs::set_permissions(&so, writable).expect("changes");
    error("every user may change it");
    std::fs::remove_file(&so).expect("is there");
    std::fs::create_dir(&so).expect("creates");
    error("it is not a file");
}

#[test]
fn an_object_that_is_cut_short_is_not_loaded() {
    let dir = plugin(0);
    let so = dir.path().join("engine.so");
    let whole = std::fs::read(&so).expect("reads");
    // In the list of segments, at a page, and a byte before the end of what is mapped.
    let mapped = mapped(&whole);
    for len in [100, 4096, mapped - 1] {
        std::fs::write(&so, &whole[..len]).expect("writes");
        let error = open(dir.path(), "").expect_err("it is cut");
        let has = format!("and the file has {len} bytes: copy it again");
        assert!(
            error.contains("it is cut short") && error.contains(&has),
            "{error}"
        );
    }
    // Nothing behind that is mapped.
    std::fs::write(&so, &whole[..mapped]).expect("writes");
    open(dir.path(), "").expect("all that is needed is there");
}

/// Where the last segment ends that is mapped.
fn mapped(object: &[u8]) -> usize {
    let word = |at: usize, len: usize| {
        let bytes = object[at..at + len].iter().rev();
        bytes.fold(0_usize, |sum, b| sum << 8 | usize::from(*b))
    };
    let (table, count) = (word(32, 8), word(56, 2));
    let segments = (0..count).map(|i| table + 56 * i);
    let mapped = segments.filter(|at| word(*at, 4) == 1);
    let ends = mapped.map(|at| word(at + 8, 8) + word(at + 32, 8));
    ends.max().expect("a segment")
}

#[test]
fn an_engine_says_what_it_does_not_like_about_its_options() {
    let dir = plugin(0);
    let error = open(dir.path(), "sync=some").expect_err("no such option");
    assert!(error.contains("the only option is sync=all"), "{error}");
    let engine = open(dir.path(), "sync=all").expect("opens");
    assert_eq!(engine.name(), "plugin:files");
}

#[tokio::test]
async fn answers_that_cannot_be_are_errors_of_the_medium() {
    for (way, wanted) in [
        (13, "of 1000"),
        (14, "writes nothing"),
        (15, "no count and no errno"),
    ] {
        let dir = plugin(way);
        let engine = open(dir.path(), "").expect("it looks well");
        let file = file(dir.path(), &engine).await;
        let bytes = vec![Bytes::from(vec![7; 1000])];
        let written = file.write_at(bytes.clone(), 0).await;
        assert_eq!(written.buf, bytes, "buffers come back");
        let error = written.result.expect_err("it lies");
        assert!(error.to_string().contains(wanted), "{way}: {error}");
        assert_eq!(error.kind(), IoErrorKind::MediaError);
        if way != 14 {
            let read = file.read_at(AlignedBuf::unpooled(4096), 0, 1000).await;
            let error = read.result.expect_err("it lies");
            assert_eq!((error.kind(), read.buf.len()), (IoErrorKind::MediaError, 0));
        }
    }
}

#[tokio::test]
async fn an_error_has_its_kind_and_the_plug_in_s_words() {
    for (way, wanted) in [(18, "the shelf is full"), (17, "xxx")] {
        let dir = plugin(way);
        let engine = open(dir.path(), "").expect("it looks well");
        let file = file(dir.path(), &engine).await;
        let written = file.write_at(vec![Bytes::from_static(b"x")], 0).await;
        let error = written.result.expect_err("it is full");
        assert_eq!(error.kind(), IoErrorKind::NoSpace);
        let text = error.to_string();
        assert!(text.contains(wanted) && text.len() < 1000, "{text}");
        assert!(!text.chars().any(char::is_control), "{text:?}");
    }
}

#[tokio::test]
async fn what_an_engine_buffers_is_synced_before_a_write_completes() {
    let dir = plugin(16);
    let engine = open(dir.path(), "").expect("opens");
    let file = file(dir.path(), &engine).await;
    let bytes = vec![Bytes::from_static(b"in the file")];
    let written = file.write_at(bytes, 0).await;
    assert_eq!(written.result.expect("writes"), 11);
    let found = std::fs::read(dir.path().join("file")).expect("reads");
    assert_eq!(found, b"in the file");
}
