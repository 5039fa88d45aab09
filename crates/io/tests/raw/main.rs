//! The engine `raw` on files and on loop devices: what it refuses to take, what it says of a disk
//! that is lost, and that it leaves alone what lies beside a write. Loop devices want root.

#[path = "../plugin/compile.rs"]
mod compile;
#[path = "../plugin/loop_device.rs"]
mod loop_device;
mod rig;
mod unreadable;

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use bytes::Bytes;
use hayloft_io::{
    Disk, DiskConfig, IoClass, IoErrorKind, OpenMode, SyncKind, block_device_of, check_device,
};
use rig::{MIB, Rig, read, with_loop, write};
use rustix::fs::{FlockOperation, OFlags, flock};

/// Marks of other formats: what the refusal calls them, where they are (below 0: from the end), and
/// what is there.
const MARKS: [(&str, i64, &[u8]); 31] = [
    ("mbr", 510, b"\x55\xaa"),
    ("gpt", 512, b"EFI PART"),
    ("gpt", 4096, b"EFI PART"),
    ("gpt", -512, b"EFI PART"),
    ("gpt", -4096, b"EFI PART"),
    ("ext", 1080, b"\x53\xef"),
    ("xfs", 0, b"XFSB"),
    ("btrfs", 0x1_0040, b"_BHRfS_M"),
    ("lvm", 0, b"LABELONE"),
    ("lvm", 512, b"LABELONE"),
    ("lvm", 1024, b"LABELONE"),
    ("lvm", 1536, b"LABELONE"),
    ("md", 0, b"\xfc\x4e\x2b\xa9"),
    ("md", 4096, b"\xfc\x4e\x2b\xa9"),
    ("md", -8192, b"\xfc\x4e\x2b\xa9"),
    ("md", -65_536, b"\xfc\x4e\x2b\xa9"),
    ("swap", 4086, b"SWAPSPACE2"),
    ("swap", 65_526, b"SWAPSPACE2"),
    ("luks", 0, b"LUKS\xba\xbe"),
    ("luks", 16_384, b"SKUL\xba\xbe"),
    ("zfs", 128 << 10, b"\x0c\xb1\xba\0\0\0\0\0"),
    ("zfs", (512 << 10) - 1024, b"\0\0\0\0\0\xba\xb1\x0c"),
    ("zfs", -(128 << 10), b"\x0c\xb1\xba\0\0\0\0\0"),
    ("zfs", -1024, b"\x0c\xb1\xba\0\0\0\0\0"),
    ("bcache", 4120, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca"),
    ("f2fs", 1024, b"\x10\x20\xf5\xf2"),
    ("iso9660", 32_769, b"CD001"),
    ("bluestore", 0, b"bluestore block device"),
    ("data", 0, b"x"),
    ("data", (1 << 20) - 1, b"x"),
    ("data", -(1 << 20), b"x"),
];

fn place(rig: &Rig, at: i64) -> u64 {
    let size = i64::try_from(rig.size).expect("small");
    u64::try_from(if at < 0 { size + at } else { at }).expect("within")
}

#[tokio::test]
async fn a_device_of_others_is_refused_by_name_and_taken_on_demand() {
    for (word, at, mark) in MARKS {
        let rig = Rig::new();
        let at = place(&rig, at);
        let file = rig.file();
        file.write_all_at(mark, at).expect("writes");
        let (wipe, bare) = (format!("wipe={word}:{}", rig.size), format!("wipe={word}"));
        let smaller = format!("{bare}:{}", rig.size - 1);
        for options in ["", "discard=yes", "wipe=vfat", &bare, &smaller] {
            let error = rig.open(options).expect_err(word);
            let wanted = format!("has something on it ({word})");
            assert!(error.contains(&wanted), "{word} at {at}: {error}");
            assert!(error.contains(&format!("add {wipe} behind")), "{error}");
            let mut there = vec![0; mark.len()];
            file.read_exact_at(&mut there, at).expect("reads");
            assert_eq!(there, mark, "{word} at {at} is as it was");
        }
        let engine = rig.open(&wipe).expect(word);
        write(&engine, &rig.root.join("blk_1"), 0, 7, 10_000).await;
        drop(engine);
        // The option may stay.
        let engine = rig.open(&wipe).expect(word);
        assert_eq!(read(&engine, &rig.root.join("blk_1")).await, [7; 10_000]);
    }
}

#[test]
fn what_programs_make_is_found() {
    let formats: [(&str, u64, &[&str]); 5] = [
        ("ext", 64 * MIB, &["mkfs.ext4", "-q", "-F"]),
        ("xfs", 512 * MIB, &["mkfs.xfs", "-q", "-f"]),
        ("swap", 64 * MIB, &["mkswap"]),
        ("btrfs", 512 * MIB, &["mkfs.btrfs", "-q", "-f"]),
        ("mbr", 64 * MIB, &["mkfs.vfat"]),
    ];
    let mut made = 0;
    for (word, size, command) in formats {
        let rig = Rig::of(size);
        let ran = Command::new(command[0])
            .args(&command[1..])
            .arg(&rig.device)
            .output();
        match ran {
            Ok(ran) => assert!(ran.status.success(), "{command:?}: {ran:?}"),
            Err(error) => {
                println!("skipped: {}: {error}", command[0]);
                continue;
            }
        }
        let error = rig.open("").expect_err(word);
        assert!(error.contains(&format!("({word})")), "{command:?}: {error}");
        made += 1;
    }
    println!("{made} formats were made by their own programs");
}

#[tokio::test]
async fn what_another_program_wrote_over_a_device_of_ours_is_not_written_over() {
    let rig = Rig::new();
    let engine = rig.open("").expect("new");
    write(&engine, &rig.root.join("blk_1"), 0, 7, 10_000).await;
    drop(engine);
    // A user's bytes at the end mean nothing.
    let file = rig.file();
    file.write_all_at(b"EFI PART", rig.size - 512)
        .expect("writes");
    drop(rig.open("").expect("is ours"));
    // fdisk keeps the first bytes of a disk.
    file.write_all_at(b"\x55\xaa", 510).expect("writes");
    for options in ["", "wipe=mbr"] {
        let error = rig.open(options).expect_err("a table is there");
        assert!(error.contains("Hayloft's and has mbr on it too"), "{error}");
    }
    file.write_all_at(b"\0\0", 510).expect("writes");
    // One that spares both headers, or the second alone.
    for (at, with, blank) in [(300_000, b"x", 0), (4096, b"x", 0), (300_000, b"x", 36)] {
        let mut header = vec![0; blank];
        file.read_exact_at(&mut header, 0).expect("reads");
        file.write_all_at(&vec![0; blank], 0).expect("writes");
        file.write_all_at(with, at).expect("writes");
        let error = rig.open("").expect_err("something is there");
        assert!(error.contains("or another program wrote to it"), "{error}");
        file.write_all_at(&header, 0).expect("writes");
        file.write_all_at(b"\0", at).expect("writes");
    }
    let engine = rig.open("").expect("is well again");
    assert_eq!(read(&engine, &rig.root.join("blk_1")).await, [7; 10_000]);
}

#[test]
fn a_directory_that_has_a_device_or_blocks_takes_no_other_by_force() {
    let rig = Rig::new();
    drop(rig.open("").expect("new"));
    let other = Rig::new();
    other.file().write_all_at(b"XFSB", 0).expect("writes");
    let error = rig.open_on(&other.device, "wipe=xfs").expect_err("another");
    assert!(
        error.contains("not the device that the directory had"),
        "{error}"
    );
    let used = Rig::new();
    fs::create_dir(used.root.join("current")).expect("creates");
    fs::write(used.root.join("current/VERSION"), "").expect("writes");
    used.open_on(&other.device, "wipe=xfs")
        .expect_err("has blocks");
    let mut there = [0; 4];
    other.file().read_exact_at(&mut there, 0).expect("reads");
    assert_eq!(&there, b"XFSB");
    // Nor one that never had a device, for a check.
    let name = other.name("wipe=xfs");
    let error = check_device(&name, &other.root)
        .expect_err("none")
        .to_string();
    assert!(error.contains("no node has used it yet"), "{error}");
    other.file().read_exact_at(&mut there, 0).expect("reads");
    assert_eq!(&there, b"XFSB");
}

#[test]
fn options_that_are_wrong_are_refused_in_a_sentence() {
    let rig = Rig::new();
    let error = |device: &Path, options: &str, wanted: &str| {
        let error = rig.open_on(device, options).expect_err(wanted);
        assert!(error.contains(wanted), "{error}");
    };
    error(&rig.device, "discard=no", "discard=yes and wipe=WHAT:SIZE");
    error(Path::new("sdb"), "", "name the disk behind the plug-in");
    error(Path::new("/nothing"), "", "/nothing does not open");
    error(Path::new("/dev/null"), "", "no disk and no file");
    rig.file().set_len(MIB).expect("cuts");
    error(&rig.device, "", "too small");
}

#[test]
fn a_device_has_one_user() {
    let rig = Rig::new();
    drop(rig.open("").expect("new"));
    let other = rig.file();
    flock(&other, FlockOperation::NonBlockingLockExclusive).expect("free");
    let error = rig.open("").expect_err("it is locked");
    assert!(error.contains("is in use"), "{error}");
    let ends = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        drop(other);
    });
    rig.open("").expect("free in time");
    ends.join().expect("no panic");
}

#[test]
fn a_disk_that_is_mounted_or_opened_alone_is_refused() {
    with_loop(|rig| {
        drop(rig.open("").expect("new"));
        // The node's queue for it is that of the disk, and not of the directory's.
        let name = rig.name("discard=yes");
        assert_eq!(block_device_of(&name), Some(rig.device.as_path()));
        let disk = Disk::for_path(&rig.device, &DiskConfig::default()).expect("a disk");
        assert!(rig.device.ends_with(disk.name()), "{}", disk.name());
        assert_eq!(block_device_of(&Rig::new().name("")), None, "a file");
        let alone = OFlags::RDWR | OFlags::EXCL | OFlags::CLOEXEC;
        let alone = rustix::fs::open(&rig.device, alone, rustix::fs::Mode::empty());
        let alone = alone.expect("free");
        let error = rig.open("").expect_err("another has it");
        assert!(
            error.contains("is in use") && error.contains("mounted"),
            "{error}"
        );
        drop(alone);
        rig.open("").expect("free again");
    });
}

#[test]
fn what_lies_beside_a_write_stays() {
    let tools = tempfile::tempdir().expect("a directory");
    let program = tools.path().join("beside");
    compile::program("tests/raw/beside.c", &program);
    let run = |rig: &Rig| {
        let mut command = Command::new(&program);
        let ran = command
            .arg(&rig.root)
            .arg(&rig.device)
            .output()
            .expect("runs");
        assert!(ran.status.success(), "{ran:?}");
    };
    run(&Rig::new());
    with_loop(run);
}

#[tokio::test]
async fn room_of_removed_files_is_discarded_where_that_is_wanted() {
    let used = |rig: &Rig| {
        use std::os::unix::fs::MetadataExt as _;
        fs::metadata(&rig.backing).expect("there").blocks() * 512
    };
    let mut rigs = vec![Rig::new()];
    rigs.extend(Rig::on_loop());
    for rig in &rigs {
        for (options, comes_back) in [("", false), ("discard=yes", true)] {
            let engine = rig.open(options).expect("opens");
            let (path, meta) = (rig.root.join("blk_1"), engine.meta(IoClass::Delete));
            write(&engine, &path, 0, 7, 8 << 20).await;
            let full = used(rig);
            assert!(full >= 8 * MIB, "{full}");
            meta.unlink(&path).await.expect("removes");
            // The file is closed on a thread of the disk: what it had is given up then.
            for _ in 0..500 {
                let space = meta.space(&rig.root).await;
                space.expect("frees what was given up");
                if !comes_back || used(rig) < 2 * MIB {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            assert_eq!(used(rig) < 2 * MIB, comes_back, "{options}: {}", used(rig));
        }
    }
}

#[tokio::test]
async fn a_disk_that_shrinks_under_a_node_is_lost_and_not_full() {
    let Some(rig) = Rig::on_loop() else { return };
    let engine = rig.open("").expect("new");
    let path = rig.root.join("blk_1");
    write(&engine, &path, 0, 7, 100_000).await;
    // What the kernel makes of a disk that was pulled: it ends at once.
    rig.shrink_to(0);
    let file = engine.open(&path, OpenMode::ReadWrite, IoClass::ClientWrite);
    let file = file.await.expect("the stub is there");
    for offset in [65_536, 65_537] {
        let bytes = vec![Bytes::from(vec![1; 4096])];
        let error = file.write_at(bytes, offset).await.result.expect_err("gone");
        assert_eq!(error.kind(), IoErrorKind::MediaError, "{error}");
    }
    let into = hayloft_io::AlignedBuf::unpooled(4096);
    let error = file.read_at(into, 0, 4096).await.result.expect_err("gone");
    assert_eq!(error.kind(), IoErrorKind::MediaError, "{error}");
    rig.shrink_to(rig.size);
    file.sync(SyncKind::All).await.expect("is back");
}

#[tokio::test]
async fn errors_of_the_medium_are_told_as_such() {
    let Some(rig) = Rig::on_loop() else { return };
    let engine = rig.open("").expect("new");
    let path = rig.root.join("blk_1");
    write(&engine, &path, 0, 7, 100_000).await;
    // A loop device answers EIO for what its file does not have.
    File::options()
        .write(true)
        .open(&rig.backing)
        .and_then(|file| file.set_len(MIB))
        .expect("cuts");
    let file = engine.open(&path, OpenMode::ReadOnly, IoClass::ClientRead);
    let file = file.await.expect("the stub is there");
    let into = hayloft_io::AlignedBuf::unpooled(4096);
    let error = file.read_at(into, 0, 4096).await.result.expect_err("EIO");
    assert_eq!(error.kind(), IoErrorKind::MediaError, "{error}");
    assert!(
        error.to_string().contains("plugin:raw: reading at 1048576"),
        "{error}"
    );
}

#[tokio::test]
async fn a_full_device_says_so() {
    let rig = Rig::of(17 * MIB);
    let engine = rig.open("").expect("new");
    let path = rig.root.join("blk_1");
    let file = engine.open(&path, OpenMode::CreateNew, IoClass::ClientWrite);
    let file = file.await.expect("new");
    let error = file.allocate(16 * MIB + 1).await.expect_err("too much");
    assert_eq!(error.kind(), IoErrorKind::NoSpace, "{error}");
    file.allocate(16 * MIB).await.expect("fits");
}
