//! Images are read as NameNodes write them, and refused when they are not whole.

use std::cell::Cell;
use std::path::Path;

use super::super::age::{ColdBy, Cutoff};
use super::super::cold_directories::DirTree;
use super::super::spool::Spool;
use super::made::{MadeImage, dir, file};
use super::scan::Scan;
use super::*;

const ROOT: u64 = 16_385;
const COLD: u8 = 2;
const HOT: u8 = 7;
const CUTOFF: Cutoff = Cutoff {
    at_ms: 1000,
    by: ColdBy::Access,
};

/// `/a/old`, `/a/new`, `/b` (HOT) with `c/older` below it, `/d` (COLD) with `kept`.
fn usual() -> MadeImage {
    let mut image = MadeImage::default();
    image
        .inode(dir(ROOT, "", 1, 0))
        .inode(file(20_005, "old", 10, 5, 999))
        .inode(dir(20_001, "a", 1, 0))
        .inode(file(20_006, "new", 20, 5, 1000))
        .inode(dir(20_003, "c", 1, 0))
        .inode(dir(20_002, "b", 1, HOT))
        .inode(file(20_007, "older", 40, 5, 4))
        .inode(dir(20_004, "d", 1, COLD))
        .inode(file(20_008, "kept", 80, 5, 2000))
        .entry(20_003, &[20_007])
        .entry(20_002, &[20_003])
        .entry(ROOT, &[20_001, 20_002, 20_004])
        .entry(20_001, &[20_006, 20_005])
        .entry(20_004, &[20_008]);
    image
}

/// The tree and the cold files, with so many files in a pass.
fn scanned(path: &Path, of: &str, pass_files: usize) -> (DirTree, Vec<String>) {
    let image = Image::open(path).expect("opened");
    let mut spool = Spool::create(path.parent().expect("a directory")).expect("created");
    let heard = Cell::new((0, 0));
    let scan = Scan {
        image: &image,
        cutoff: CUTOFF,
        cold_policy: COLD,
        spool: Some(&mut spool),
        told: &|read, whole| heard.set((read, whole)),
        read: Cell::new(0),
        whole: Cell::new(0),
        pass_files,
    };
    let tree = scan.run(of).expect("scanned").expect("it is there");
    let (read, whole) = heard.get();
    assert!(0 < read && read <= whole, "{read} of {whole}");
    let files = spool.into_files().expect("read");
    let files = files.map(|file| {
        let file = file.expect("read");
        format!("{}/{} {}", tree.path(file.dir), file.name, file.policy)
    });
    let mut files: Vec<String> = files.collect();
    files.sort();
    (tree, files)
}

#[test]
fn files_are_found_with_their_directories_and_policies() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let path = usual().write(dir.path());
    // However few files a pass takes.
    for pass_files in [1, 2, 3, 4, 100] {
        let (tree, files) = scanned(&path, "/", pass_files);
        // The last one is COLD and was read: a watch may give it back.
        let found = ["/a/old 0", "/b/c/older 7", "/d/kept 2"];
        assert_eq!(files, found, "{pass_files} in a pass");
        let total = tree.total();
        assert_eq!((total.files, total.bytes), (4, 150));
        assert_eq!((total.cold_files, total.cold_bytes), (2, 50));
        assert_eq!((total.settled_files, total.settled_bytes), (1, 80));
        assert_eq!(tree.len(), 5);
        let targets = tree.numbers().filter(|dir| tree.is_target(*dir));
        let targets: Vec<String> = targets.map(|dir| tree.path(dir)).collect();
        assert_eq!(targets, ["/b"]);
    }
    let (tree, files) = scanned(&path, "/b/c", 100);
    assert_eq!((tree.len(), files), (1, vec!["/b/c/older 7".to_owned()]));
    let image = Image::open(&path).expect("opened");
    let missing = super::scan(&image, "/none", CUTOFF, COLD, None, &|_, _| {});
    assert!(missing.expect("scanned").is_none());
}

#[test]
fn what_snapshots_hold_is_found_by_reference_or_left_out() {
    let tmp = tempfile::tempdir().expect("temporary directory");
    let mut image = MadeImage::default();
    image
        .inode(dir(ROOT, "", 1, 0))
        .inode(dir(20_001, "moved", 1, 0))
        .inode(file(20_002, "in-it", 10, 5, 5))
        .inode(file(20_003, "renamed", 20, 5, 5))
        // Deleted: only a snapshot leads to the two.
        .inode(dir(20_004, "gone", 1, 0))
        .inode(file(20_005, "gone-too", 40, 5, 5))
        .entry(ROOT, &[])
        .entry(20_001, &[20_002])
        .entry(20_004, &[20_005])
        .reference(ROOT, 20_003)
        .reference(ROOT, 20_001);
    let (tree, files) = scanned(&image.write(tmp.path()), "/", 100);
    assert_eq!(files, ["//renamed 0", "/moved/in-it 0"]);
    assert_eq!(tree.total().bytes, 30);
}

#[test]
fn what_is_no_whole_image_is_refused_in_one_sentence() {
    let tmp = tempfile::tempdir().expect("temporary directory");
    let open = |bytes: &[u8]| {
        let path = tmp.path().join("broken");
        std::fs::write(&path, bytes).expect("written");
        let image = Image::open(&path)
            .map(|image| super::scan(&image, "/", CUTOFF, COLD, None, &|_, _| {}).map(|_| ()));
        match image {
            Err(error) | Ok(Err(error)) => error.to_string(),
            Ok(Ok(())) => String::new(),
        }
    };
    let whole = std::fs::read(usual().write(tmp.path())).expect("read");
    assert_eq!(open(&whole), "");
    assert!(open(b"").contains("no fsimage"));
    assert!(open(b"<?xml version").contains("no fsimage"));
    assert!(open(b"HDFSIMG1").contains("ends early"));
    for end in [12, whole.len() / 2, whole.len() - 1] {
        assert!(!open(&whole[..end]).is_empty(), "cut at {end}");
    }
    let mut compressed = usual();
    compressed.codec = Some("org.apache.hadoop.io.compress.GzipCodec".to_owned());
    let compressed = std::fs::read(compressed.write(tmp.path())).expect("read");
    assert!(open(&compressed).contains("compressed"));
    let mut short = usual();
    short.more_inodes = 1;
    let short = std::fs::read(short.write(tmp.path())).expect("read");
    assert!(open(&short).contains("9 inodes of 10"), "{}", open(&short));
}

#[test]
fn flipped_bytes_are_an_error_or_another_image_but_no_panic() {
    let tmp = tempfile::tempdir().expect("temporary directory");
    let whole = std::fs::read(usual().write(tmp.path())).expect("read");
    let path = tmp.path().join("flipped");
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        std::fs::write(&path, &bytes).expect("written");
        if let Ok(image) = Image::open(&path) {
            let _ = super::scan(&image, "/", CUTOFF, COLD, None, &|_, _| {});
        }
    }
}

#[test]
fn circles_and_strangers_are_refused() {
    let tmp = tempfile::tempdir().expect("temporary directory");
    let refused = |image: &MadeImage| {
        let image = Image::open(&image.write(tmp.path())).expect("opened");
        let scanned = super::scan(&image, "/", CUTOFF, COLD, None, &|_, _| {});
        scanned.expect_err("refused").to_string()
    };
    let mut circle = usual();
    circle.entry(20_003, &[20_002]);
    assert!(refused(&circle).contains("two parents"));
    let mut rooted = usual();
    rooted.entry(20_003, &[ROOT]);
    assert!(refused(&rooted).contains("two parents"));
    let mut stranger = usual();
    stranger.entry(30_000, &[20_005]);
    assert!(refused(&stranger).contains("not there"));
    let mut rootless = MadeImage::default();
    rootless.inode(dir(20_001, "a", 1, 0));
    assert!(refused(&rootless).contains("no root"));
}
