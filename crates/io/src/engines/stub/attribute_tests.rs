//! What the attributes of stubs say: torn, foreign, overlapping; and what changes at the same time.

use std::fs;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use rustix::fs::{XattrFlags, getxattr, setxattr};

use super::tests::{Memory, dir, free, get, open, put, stubs};
use super::*;
use crate::class::IoClass;
use crate::data_files::DataFiles;
use crate::disk::{Disk, DiskConfig};
use crate::names_and_directories::Meta;

fn attribute(path: &Path) -> Vec<u8> {
    let mut bytes = [0; 4096];
    let n = getxattr(path, extents_attribute::ATTRIBUTE, &mut bytes[..]).expect("there");
    bytes[..n].to_vec()
}

fn set_attribute(path: &Path, bytes: &[u8]) {
    setxattr(
        path,
        extents_attribute::ATTRIBUTE,
        bytes,
        XattrFlags::empty(),
    )
    .expect("sets");
}

/// Has the stub name `extents`, as if it had been given them.
fn name_extents(engine: &Stubs<Memory>, path: &Path, extents: &[Extent]) {
    let file = fs::File::open(path).expect("there");
    extents_attribute::write(&file, &engine.0.adopted.id, extents).expect("sets");
}

fn extents_of(engine: &Stubs<Memory>, path: &Path) -> Vec<Extent> {
    let file = fs::File::open(path).expect("there");
    extents_attribute::read(&file, &engine.0.adopted.id, engine.0.units, 0).expect("has some")
}

fn remove(engine: &Stubs<Memory>, path: &Path) {
    let files = DataFiles::elsewhere(engine.elsewhere());
    files.remove(path).expect("removes");
}

#[test]
fn a_check_finds_what_the_stubs_say_and_changes_nothing() {
    let (dir, device) = (dir(), Memory::new());
    let error = check(&device, dir.path()).expect_err("nothing there");
    assert!(
        error.to_string().contains("no node has used it yet"),
        "{error}"
    );
    let engine = stubs(dir.path(), &device).expect("opens");
    let all = free(&engine);
    let [a, b, torn, far, plain] = [1, 2, 3, 4, 5].map(|n| dir.path().join(format!("blk_{n}")));
    for path in [&a, &b, &torn, &far] {
        put(&engine, path, 1, 100_000);
    }
    fs::hard_link(&a, dir.path().join("blk_1_again")).expect("links");
    let found = check(&device, dir.path()).expect("can be checked");
    assert!(found.is_well(), "{found:?}");
    assert_eq!((found.stubs, found.bytes, found.extents), (4, 400_000, 4));
    assert_eq!((found.used, found.free), (8 * UNIT, all - 8 * UNIT));
    assert_eq!((found.mean_extent, found.unit), (2 * UNIT, UNIT));
    remove(&engine, &b);
    assert_eq!(free(&engine), all - 6 * UNIT);
    let found = check(&device, dir.path()).expect("can be checked");
    // Each file grew by two units more, which it gave back.
    assert_eq!(
        (found.free_runs, found.longest_free_run),
        (3, all - 14 * UNIT)
    );
    // Each thing that can be wrong with a stub.
    let shared = extents_of(&engine, &a);
    put(&engine, &b, 2, 100_000);
    name_extents(&engine, &b, &shared);
    set_attribute(&torn, b"torn");
    let units = u32::try_from(engine.0.units).expect("small");
    name_extents(&engine, &far, &[Extent { first: 17, units }]);
    fs::write(&plain, "a file of another program").expect("writes");
    drop(engine);
    let before = locks::lock(&device.0).bytes.clone();
    let found = check(&device, dir.path()).expect("can be checked");
    assert_eq!(
        locks::lock(&device.0).bytes,
        before,
        "the device is as it was"
    );
    assert!(!found.is_well());
    let mut overlapping = found.overlapping.clone();
    overlapping.sort();
    assert_eq!(overlapping, [a, dir.path().join("blk_1_again"), b]);
    assert_eq!((found.overlapping_count, found.unusable_count), (2, 3));
    for (path, wanted) in [
        (torn, "another form"),
        (far, "none of"),
        (plain, "no attribute"),
    ] {
        let why = found.unusable.iter().find(|(it, _)| *it == path);
        let why = &why.unwrap_or_else(|| panic!("{found:?}")).1;
        assert!(why.contains(wanted), "{why}");
    }
}

#[test]
fn what_cannot_be_read_is_noted_by_a_check_and_stops_a_start() {
    use inventory::{Unread, Walk};
    use std::os::unix::fs::OpenOptionsExt as _;
    let (dir, device) = (dir(), Memory::new());
    let engine = stubs(dir.path(), &device).expect("opens");
    let path = dir.path().join("blk_1");
    put(&engine, &path, 1, 100_000);
    // Such a handle gives no attributes.
    let mut options = fs::File::options();
    let file = options.read(true).custom_flags(libc::O_PATH).open(&path);
    let file = file.expect("there");
    let facts = || InodeFacts::of(&file).expect("there");
    let id = engine.0.adopted.id;
    let mut walk = Walk::new(&id, engine.0.units, Unread::Fails);
    let error = walk
        .file(&path, Ok((&file, facts())))
        .expect_err("no attribute");
    assert_eq!(error.path(), path);
    let mut walk = Walk::new(&id, engine.0.units, Unread::IsNoted);
    walk.file(&path, Ok((&file, facts()))).expect("goes on");
    assert_eq!((walk.tally.unread_count, walk.tally.unusable_count), (1, 0));
    assert_eq!(walk.tally.unread[0].0, path);
    // Nor do directories below each other without end.
    let deep = dir.path().join("d/".repeat(40));
    fs::create_dir_all(&deep).expect("creates");
    let found = check(&device, dir.path()).expect("goes on");
    assert_eq!((found.stubs, found.unread_count), (1, 1), "{found:?}");
    assert!(
        !found.is_well() && found.unread[0].1.contains("too deep"),
        "{found:?}"
    );
    drop(engine);
    let engine = stubs(dir.path(), &device).expect("opens");
    Elsewhere::probe(&engine).expect_err("what is there may have room");
}

#[test]
fn torn_and_foreign_attributes_cost_their_replica_alone() {
    let (other, other_device) = (dir(), Memory::new());
    let foreign = other.path().join("blk_1");
    put(
        &stubs(other.path(), &other_device).expect("opens"),
        &foreign,
        9,
        100_000,
    );
    let (dir, device) = (dir(), Memory::new());
    let engine = stubs(dir.path(), &device).expect("opens");
    let all = free(&engine);
    let [a, torn, taken, c, plain] = [1, 2, 3, 4, 5].map(|n| dir.path().join(format!("blk_{n}")));
    put(&engine, &a, 1, 100_000);
    put(&engine, &torn, 2, 100_000);
    put(&engine, &taken, 3, 100_000);
    put(&engine, &c, 4, 100_000);
    fs::write(&plain, "a file of another program").expect("writes");
    let bytes = attribute(&torn);
    set_attribute(&torn, &bytes[..bytes.len() - 1]);
    set_attribute(&taken, &attribute(&foreign));
    drop(engine);
    let engine = stubs(dir.path(), &device).expect("opens");
    for (path, wanted) in [
        (&torn, "its checksum is wrong"),
        (&taken, "of another device"),
        (&plain, "no attribute"),
    ] {
        let error = open(&engine, path, OpenMode::ReadOnly).expect_err("no place");
        assert_eq!(error.kind(), IoErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains(wanted), "{error}");
        remove(&engine, path);
    }
    assert_eq!(
        (get(&engine, &a), get(&engine, &c)),
        (vec![1; 100_000], vec![4; 100_000])
    );
    remove(&engine, &a);
    remove(&engine, &c);
    assert_eq!(free(&engine), all, "what none names any more is free");
}

#[test]
fn two_that_name_one_place_can_be_read_and_are_not_written_over() {
    let (dir, device) = (dir(), Memory::new());
    let engine = stubs(dir.path(), &device).expect("opens");
    let [a, b] = ["blk_1", "blk_2"].map(|name| dir.path().join(name));
    put(&engine, &a, 1, 100_000);
    put(&engine, &b, 2, 100_000);
    set_attribute(&b, &attribute(&a));
    drop(engine);
    let engine = stubs(dir.path(), &device).expect("opens");
    for path in [&a, &b] {
        assert_eq!(get(&engine, path), [1; 100_000]);
        let error = open(&engine, path, OpenMode::ReadWrite).expect_err("two have it");
        assert!(error.to_string().contains("another replica"), "{error}");
    }
    let before = free(&engine);
    remove(&engine, &b);
    assert_eq!(free(&engine), before, "the other still has it");
    assert_eq!(get(&engine, &a), [1; 100_000]);
}

#[test]
fn places_that_overlap_in_part_are_given_to_no_other() {
    let (dir, device) = (dir(), Memory::new());
    let engine = stubs(dir.path(), &device).expect("opens");
    let all = free(&engine);
    let [a, b, c] = ["blk_1", "blk_2", "blk_3"].map(|name| dir.path().join(name));
    for (path, byte) in [(&a, 1), (&b, 2), (&c, 3)] {
        put(&engine, path, byte, 2 * 65_536);
    }
    // The second ends in the first's last unit, and goes on before its own room.
    let last = extents_of(&engine, &a)[0].first + 1;
    let far = u64::from(u32::try_from(all / UNIT).expect("small"));
    let both = [
        Extent {
            first: last,
            units: 1,
        },
        Extent {
            first: far,
            units: 1,
        },
    ];
    name_extents(&engine, &b, &both);
    drop(engine);
    let engine = stubs(dir.path(), &device).expect("opens");
    // All that is free; nothing of it is in a place that one of the three names.
    let rest = usize::try_from(free(&engine)).expect("small");
    assert_eq!(
        rest as u64,
        all - 5 * UNIT,
        "two and two, one shared, one far"
    );
    put(&engine, &dir.path().join("blk_4"), 4, rest);
    assert_eq!(get(&engine, &a), [1; 2 * 65_536]);
    assert_eq!(get(&engine, &c), [3; 2 * 65_536]);
    assert_eq!(get(&engine, &b)[..65_536], [1; 65_536]);
    for path in [&a, &b] {
        open(&engine, path, OpenMode::ReadWrite).expect_err("two have it");
    }
    open(&engine, &c, OpenMode::ReadWrite).expect("is its own");
}

#[test]
fn a_stub_under_any_name_keeps_its_place() {
    let (dir, device) = (dir(), Memory::new());
    let engine = stubs(dir.path(), &device).expect("opens");
    let [path, aside] = ["blk_1", "aside"].map(|name| dir.path().join(name));
    put(&engine, &path, 1, 200_000);
    fs::rename(&path, &aside).expect("renames");
    drop(engine);
    let engine = stubs(dir.path(), &device).expect("opens");
    let rest = usize::try_from(free(&engine)).expect("small");
    put(&engine, &dir.path().join("blk_2"), 2, rest);
    assert_eq!(get(&engine, &aside), [1; 200_000]);
}

#[tokio::test]
async fn a_stub_that_another_replaces_gives_its_room_back() {
    let (dir, device) = (dir(), Memory::new());
    let engine = stubs(dir.path(), &device).expect("opens");
    let all = free(&engine);
    let [old, new] = ["blk_1", "blk_2"].map(|name| dir.path().join(name));
    put(&engine, &old, 1, 500_000);
    put(&engine, &new, 2, 100_000);
    let disk = Disk::for_path(dir.path(), &DiskConfig::default()).expect("a disk");
    let files = DataFiles::elsewhere(engine.elsewhere());
    let meta = Meta::new(disk, IoClass::ClientWrite).on(files);
    meta.rename(&new, &old).await.expect("renames");
    assert_eq!(get(&engine, &old), [2; 100_000]);
    assert_eq!(all - free(&engine), 2 * UNIT);
}

#[test]
fn what_is_cut_off_has_no_write_on_its_way() {
    let (dir, device) = (dir(), Memory::new());
    let engine = stubs(dir.path(), &device).expect("opens");
    let [cut, other] = ["blk_1", "blk_2"].map(|name| dir.path().join(name));
    let file = open(&engine, &cut, OpenMode::CreateNew).expect("new");
    locks::lock(&device.0).held = true;
    std::thread::scope(|scope| {
        scope.spawn(|| file.write(&[&Bytes::from(vec![1; 100_000])], 0));
        while !locks::lock(&device.0).waits {
            std::thread::sleep(Duration::from_millis(1));
        }
        let cutting = scope.spawn(|| file.truncate(0));
        std::thread::sleep(Duration::from_millis(100));
        let rest = usize::try_from(free(&engine)).expect("small");
        put(&engine, &other, 2, rest);
        locks::lock(&device.0).held = false;
        cutting.join().expect("no panic").expect("cuts");
    });
    assert_eq!(file.length().expect("has one"), 0);
    assert!(get(&engine, &other).iter().all(|b| *b == 2), "written over");
}
