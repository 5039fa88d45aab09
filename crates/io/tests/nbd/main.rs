//! The engine `nbd` and servers of nbdkit: those that die, hang, talk nonsense and come back; what
//! an export must be; what a flush that was lost means. The contract of all engines over it.
//!
//! Needs nbdkit and libnbd-dev; elsewhere it says why it is skipped.

mod between;
#[path = "../plugin/compile.rs"]
mod compile;
#[path = "../plugin/contract.rs"]
mod contract;
mod kills;
mod rig;
mod tls;

use std::time::{Duration, Instant};

use between::Between;
use hayloft_io::{IoErrorKind, SyncKind};
use rig::{CLASS, PIECE, Rig, reads_back, write};

#[test]
fn it_keeps_the_contract_of_all_engines() {
    let Some(rig) = Rig::new() else { return };
    let name = rig.name().replace("timeout=1", "");
    let wrong = contract::breaches(&name, rig.dir.path());
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test]
async fn after_a_server_was_gone_the_sync_of_what_it_had_not_flushed_fails() {
    let Some(mut rig) = Rig::new() else { return };
    let engine = rig.engine();
    let (old, new) = (
        rig.file(&engine, "blk_1").await,
        rig.file(&engine, "blk_2").await,
    );
    write(&old, 0).await.expect("writes");
    rig.start();
    // The first request finds the connection dead, the next connects again.
    let _ = reads_back(&old).await;
    assert!(reads_back(&old).await.expect("is back"));
    let error = old.sync(SyncKind::Data).await.expect_err("it may be lost");
    assert_eq!(error.kind(), IoErrorKind::MediaError, "{error}");
    old.sync(SyncKind::Data).await.expect_err("it still may be");
    write(&new, 0).await.expect("writes");
    new.sync(SyncKind::Data).await.expect("is newer");
}

#[tokio::test]
async fn a_server_that_had_flushed_all_may_come_and_go() {
    let Some(mut rig) = Rig::new() else { return };
    let engine = rig.engine();
    let file = rig.file(&engine, "blk_1").await;
    write(&file, 0).await.expect("writes");
    file.sync(SyncKind::All).await.expect("syncs");
    rig.kill();
    let error = reads_back(&file).await.expect_err("no server");
    assert_eq!(error.kind(), IoErrorKind::MediaError, "{error}");
    write(&file, 100_000).await.expect_err("no server");
    rig.start();
    assert!(reads_back(&file).await.expect("is back"));
    file.sync(SyncKind::All).await.expect("nothing was lost");
    // The first to notice may be a write, or a flush.
    for _ in 0..5 {
        rig.start();
        write(&file, 100_000).await.expect("is sent again");
        file.sync(SyncKind::All).await.expect("syncs");
    }
    write(&file, 100_000).await.expect("writes");
    file.sync(SyncKind::All).await.expect("syncs");
}

#[tokio::test]
async fn a_silent_server_is_given_up_in_time() {
    let Some(rig) = Rig::new() else { return };
    let engine = rig.engine();
    let file = rig.file(&engine, "blk_1").await;
    write(&file, 0).await.expect("writes");
    rig.signal("-STOP");
    let began = Instant::now();
    let error = reads_back(&file).await.expect_err("no answer");
    assert!(error.to_string().contains("no answer in time"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(10));
    rig.signal("-CONT");
    assert!(reads_back(&file).await.expect("answers"));
    file.sync(SyncKind::Data)
        .await
        .expect_err("it may have lost the write");
}

#[tokio::test]
async fn thirty_seconds_of_silence_are_not_waited_for_nor_shorter_ones_minded() {
    let Some(mut rig) = Rig::new() else { return };
    let engine = rig.engine();
    let file = rig.file(&engine, "blk_1").await;
    write(&file, 0).await.expect("writes");
    file.sync(SyncKind::Data).await.expect("syncs");
    rig.start_with(&["--filter=delay"], &["rdelay=30", "wdelay=30"]);
    let began = Instant::now();
    let error = reads_back(&file).await.expect_err("no answer");
    assert!(error.to_string().contains("no answer in time"), "{error}");
    write(&file, 0).await.expect_err("no answer");
    assert!(began.elapsed() < Duration::from_secs(15));
    rig.start();
    assert!(reads_back(&file).await.expect("is back"));
    drop((file, engine));
    rig.start_with(&["--filter=delay"], &["rdelay=2", "wdelay=2"]);
    let patient = rig.name_at(&rig.socket(), "timeout=20");
    let engine = rig.try_engine(&patient).expect("waits");
    let file = rig.file(&engine, "blk_2").await;
    let began = Instant::now();
    write(&file, 0).await.expect("late, not lost");
    assert!(reads_back(&file).await.expect("late, not lost"));
    file.sync(SyncKind::Data).await.expect("syncs");
    assert!(
        began.elapsed() >= Duration::from_secs(4),
        "nothing was slow"
    );
}

#[tokio::test]
async fn garbage_and_half_an_answer_end_the_connection_and_no_byte_of_them_is_taken() {
    let Some(rig) = Rig::new() else { return };
    let between = Between::new(rig.dir.path(), &rig.socket());
    let name = rig.name_at(&between.socket, "timeout=5");
    let engine = rig.try_engine(&name).expect("opens");
    let file = rig.file(&engine, "blk_1").await;
    let (garble, cut) = (
        Between::garble as fn(&Between),
        Between::cut as fn(&Between),
    );
    for spoil in [garble, cut] {
        write(&file, 0).await.expect("writes");
        file.sync(SyncKind::Data).await.expect("syncs");
        spoil(&between);
        // Sent again, or an error; never other bytes.
        assert!(reads_back(&file).await.unwrap_or(true));
        assert!(reads_back(&file).await.expect("is back"));
        file.sync(SyncKind::Data).await.expect("nothing was lost");
        spoil(&between);
        let _ = write(&file, 0).await;
        // Whether the server took the write is not known: it was sent again, or its sync fails.
        let new = rig.file(&engine, "blk_2").await;
        write(&new, 0).await.expect("is back");
        assert!(reads_back(&new).await.expect("is back"));
        let meta = engine.meta(CLASS);
        drop(new);
        meta.unlink(&rig.root().join("blk_2")).await.expect("goes");
        let _ = file.sync(SyncKind::Data).await;
    }
}

#[tokio::test]
async fn an_export_that_comes_back_with_another_size_is_not_used() {
    let Some(mut rig) = Rig::new() else { return };
    let engine = rig.engine();
    let file = rig.file(&engine, "blk_1").await;
    write(&file, 0).await.expect("writes");
    file.sync(SyncKind::Data).await.expect("syncs");
    for size in ["truncate=128M", "truncate=512M"] {
        rig.start_with(&["--filter=truncate"], &[size]);
        let _ = reads_back(&file).await;
        let error = reads_back(&file).await.expect_err("another device");
        assert!(error.to_string().contains("another size"), "{error}");
        write(&file, 0).await.expect_err("another device");
    }
    rig.start();
    assert!(reads_back(&file).await.expect("is back"));
}

#[tokio::test]
async fn with_fua_a_write_that_completed_is_safe_without_a_sync() {
    let Some(mut rig) = Rig::new() else { return };
    let forgetful = (&["--filter=cache"][..], &["cache=writeback"][..]);
    rig.start_with(forgetful.0, forgetful.1);
    let name = rig.name_at(&rig.socket(), "timeout=1 fua=yes");
    let engine = rig.try_engine(&name).expect("opens");
    let (first, file) = (
        rig.file(&engine, "blk_1").await,
        rig.file(&engine, "blk_2").await,
    );
    // What an earlier process wrote is flushed once.
    write(&first, 0).await.expect("writes");
    first.sync(SyncKind::Data).await.expect("syncs");
    write(&file, 0).await.expect("writes");
    rig.start_with(forgetful.0, forgetful.1);
    assert!(reads_back(&file).await.expect("is there"));
    file.sync(SyncKind::Data).await.expect("nothing was lost");
}

#[tokio::test]
async fn there_are_as_many_connections_as_the_server_can_flush_together() {
    let Some(mut rig) = Rig::new() else { return };
    let between = Between::new(rig.dir.path(), &rig.socket());
    let mut before = 0;
    for (filter, more, options, wanted) in [
        ("--filter=delay", "wdelay=1ms", "", 4),
        ("--filter=delay", "wdelay=1ms", "connections=2", 2),
        (
            "--filter=multi-conn",
            "multi-conn-mode=disable",
            "connections=9",
            1,
        ),
    ] {
        rig.start_with(&[filter], &[more]);
        let engine = rig.try_engine(&rig.name_at(&between.socket, options));
        let engine = engine.expect("opens");
        let mut files = Vec::new();
        for n in 0..6 {
            files.push(rig.file(&engine, &format!("blk_{wanted}{n}")).await);
        }
        for _ in 0..10 {
            let writes = files.iter().map(|file| write(file, 0));
            for written in futures_util::future::join_all(writes).await {
                written.expect("writes");
            }
        }
        files[0].sync(SyncKind::Data).await.expect("syncs");
        let made = between.connections() - before;
        assert!(
            made <= wanted,
            "{made} connections, {wanted} wanted: {options}"
        );
        assert!(
            made == wanted || wanted > 2,
            "{made} connections: {options}"
        );
        before = between.connections();
    }
}

#[tokio::test]
async fn room_of_removed_files_is_trimmed() {
    use std::os::unix::fs::MetadataExt as _;
    let Some(rig) = Rig::new() else { return };
    let engine = rig.engine();
    let file = rig.file(&engine, "blk_1").await;
    for at in 0..80 {
        write(&file, at * PIECE as u64).await.expect("writes");
    }
    file.sync(SyncKind::Data).await.expect("syncs");
    drop(file);
    let bytes = || {
        let device = std::fs::metadata(rig.dir.path().join("device"));
        device.expect("is there").blocks() * 512
    };
    let before = bytes();
    assert!(before >= 80 * PIECE as u64, "{before}");
    let meta = engine.meta(CLASS);
    meta.unlink(&rig.root().join("blk_1")).await.expect("goes");
    // The handle above is closed by a thread of its own, and the room is free after that.
    let began = Instant::now();
    while bytes() + 79 * PIECE as u64 > before {
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "{} left",
            bytes()
        );
        meta.space(&rig.root()).await.expect("known");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[test]
fn exports_that_cannot_be_used_are_refused_in_a_sentence() {
    let Some(mut rig) = Rig::new() else { return };
    let file = rig.dir.path().join("device").display().to_string();
    let blocks = ["blocksize-minimum=4096", "blocksize-error-policy=error"];
    let zeros = ["eval", "get_size=echo 64M", "pread=head -c $3 /dev/zero"];
    let writes = ["pwrite=cat >/dev/null", "can_flush=exit 0", "flush=exit 0"];
    for (server, options, wanted) in [
        (
            [&["--filter=blocksize-policy", "file", &file], &blocks[..]].concat(),
            "",
            "whole blocks only",
        ),
        (
            [&zeros[..], &writes, &["can_fua=echo none"]].concat(),
            "fua=yes",
            "has no FUA",
        ),
        (
            [&zeros[..], &["pwrite=cat >/dev/null"]].concat(),
            "",
            "has no FLUSH",
        ),
        (
            vec!["--filter=truncate", "file", &file, "truncate=1M"],
            "",
            "must have",
        ),
        (vec!["--readonly", "file", &file], "", "read-only"),
    ] {
        rig.start_other(&server);
        let engine = rig.try_engine(&rig.name_at(&rig.socket(), options));
        let error = engine.expect_err("cannot be").to_string();
        assert!(error.contains(wanted), "{server:?}: {error}");
    }
}

#[test]
fn options_are_checked() {
    let Some(rig) = Rig::new() else { return };
    for (options, wanted) in [
        ("", "name the export"),
        ("/dev/sda", "name the export"),
        ("nbd://127.0.0.1:1/", "onnect"),
        ("nbd+unix:///?socket=/x connections=17", "connections=1..16"),
        ("nbd+unix:///?socket=/x timeout=0", "timeout=1..3600"),
        ("nbd+unix:///?socket=/x fua=no", "fua=yes"),
    ] {
        let so = rig.dir.path().join("nbd.so");
        let error = rig.try_engine(&format!("plugin:{} {options}", so.display()));
        let error = error.expect_err("cannot be").to_string();
        assert!(error.contains(wanted), "{options}: {error}");
    }
}
