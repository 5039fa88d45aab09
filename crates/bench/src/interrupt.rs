//! Ctrl-C during a run: the present measurement ends, what there is gets written.

use hayloft_testkit::error::{Result, TestkitError};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Listens for SIGINT and SIGTERM from now on. The first asks for an end, the second ends the
/// process, and with it everything that it started.
pub(super) fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        std::thread::spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            if let Ok(runtime) = runtime {
                runtime.block_on(wait());
            }
        });
    });
}

async fn wait() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut interrupt), Ok(mut terminate)) = (
        signal(SignalKind::interrupt()),
        signal(SignalKind::terminate()),
    ) else {
        return;
    };
    loop {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        if INTERRUPTED.swap(true, Ordering::SeqCst) {
            std::process::exit(130);
        }
        eprintln!("hayloft: interrupted: writing what was measured (again: stop at once)");
    }
}

/// Ends a long wait.
///
/// # Errors
/// When the user wants an end.
pub(super) fn check() -> Result<()> {
    match asked() {
        true => Err(TestkitError::Talk("interrupted".into())),
        false => Ok(()),
    }
}

/// Whether the user wants an end.
pub(super) fn asked() -> bool {
    INTERRUPTED.load(Ordering::SeqCst)
}
