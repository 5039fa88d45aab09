//! Where the kernel refuses io_uring, `uring` becomes `direct` and the remark says what to change.
#![expect(
    unsafe_code,
    reason = "a seccomp filter, as containers have it, is set by prctl(2)"
)]

use std::os::fd::AsRawFd as _;
use std::path::Path;

use hayloft_io::{
    AlignedBuf, Disk, DiskConfig, EngineConfig, IoClass, OpenMode, engine_by_name, engine_for,
};

/// Lets this thread, and those that it starts, do everything but `io_uring_setup`, which fails with
/// EPERM.
fn refuse_io_uring() -> std::io::Result<()> {
    let step = |code: u32, jt, jf, k| libc::sock_filter {
        code: u16::try_from(code).expect("codes have 16 bits"),
        jt,
        jf,
        k,
    };
    let number = u32::try_from(libc::SYS_io_uring_setup).expect("a small number");
    let eperm = u32::try_from(libc::EPERM).expect("a small number");
    // The number of the call is the first word of `seccomp_data`.
    let mut steps = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, number),
        step(
            libc::BPF_RET | libc::BPF_K,
            0,
            0,
            libc::SECCOMP_RET_ERRNO | eperm,
        ),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: 4,
        filter: steps.as_mut_ptr(),
    };
    // SAFETY: both calls read their arguments only. `program` and the `steps` it points to are live
    // locals, laid out by libc as the kernel wants them, and the kernel copies them before the call
    // returns. The filter holds for this thread and its children alone.
    let results = unsafe {
        [
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
            libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const program,
            ),
        ]
    };
    if results == [0, 0] {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
    }
}

/// Runs `test` on a thread that may not use io_uring; says why not where it cannot be set up.
fn without_io_uring(test: impl FnOnce(&Path) + Send + 'static) {
    let outcome = std::thread::spawn(move || {
        if let Err(error) = refuse_io_uring() {
            eprintln!("skipped: this machine sets no seccomp filters: {error}");
            return;
        }
        // Not in /tmp, which may be memory.
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a directory");
        test(dir.path());
    });
    outcome.join().expect("the test");
}

fn config(dir: &Path) -> EngineConfig {
    EngineConfig::new(Disk::for_path(dir, &DiskConfig::default()).expect("the directory exists"))
}

#[test]
fn uring_falls_back_and_says_what_to_change() {
    without_io_uring(|dir| {
        let choice = engine_for("uring", dir, &config(dir)).expect("a known name");
        assert_ne!(choice.engine.name(), "uring");
        let remark = choice.remark.expect("it differs");
        let names_it = ["io_uring_disabled", "seccomp"];
        assert!(
            names_it.iter().any(|what| remark.contains(what))
                && remark.contains("hayloft.io.engine."),
            "{remark}"
        );
    });
}

#[test]
fn uring_works_without_its_ring() {
    // A filter that is set while a node runs: the ring does not start, and threads do its work.
    without_io_uring(|dir| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let engine = engine_by_name("uring", &config(dir)).expect("a known name");
        let read = runtime.block_on(async {
            let path = dir.join("file");
            let file = engine
                .open(&path, OpenMode::CreateNew, IoClass::ClientWrite)
                .await
                .expect("created");
            let mut data = AlignedBuf::unpooled(1 << 20);
            data.as_mut_capacity().fill(0x5A);
            data.set_len(1 << 20);
            let written = file.write_at(vec![data.freeze()], 0).await;
            assert_eq!(written.result.expect("written"), 1 << 20);
            assert!(file.fd().is_some_and(|fd| fd.as_raw_fd() > 0));
            file.read_at(AlignedBuf::unpooled(1 << 20), 0, 1 << 20)
                .await
        });
        assert_eq!(read.result.expect("read"), 1 << 20);
        assert!(read.buf.as_slice().iter().all(|byte| *byte == 0x5A));
    });
}
