//! A thread for one connection, which may wait for a disk.

use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc;
use std::thread::Builder as Thread;
use std::time::Duration;

use hayloft_io::MayWait;
use tokio::runtime::{Builder, Runtime};

/// How often a thread looks whether what its connection left under way has ended.
const LOOK: Duration = Duration::from_millis(10);

/// Runs a connection on a thread of its own, which ends with all that the connection began, and
/// drops `kept` then. It is never joined: a disk may hold it for ever.
///
/// # Errors
/// No threads, or no descriptors, are left: `connection` is given back.
pub fn run_alone<K, C, F>(name: &str, kept: K, connection: C) -> Result<(), (io::Error, C)>
where
    K: Send + 'static,
    C: FnOnce() -> F + Send + 'static,
    F: Future<Output = ()>,
{
    let (give, take) = mpsc::sync_channel::<(Runtime, C)>(1);
    let work = move || {
        let _kept = kept;
        let Ok((runtime, connection)) = take.recv() else {
            return;
        };
        let _may_wait = MayWait::this_thread();
        // A write is not left half done because its writer went away, or because the connection
        // panicked: other connections' tasks outlive that, too.
        let ended = catch_unwind(AssertUnwindSafe(|| {
            runtime.block_on(async { connection().await });
        }));
        while runtime.metrics().num_alive_tasks() > 0 {
            runtime.block_on(async { tokio::time::sleep(LOOK).await });
        }
        if let Err(panic) = ended {
            resume_unwind(panic);
        }
    };
    let started = Builder::new_current_thread()
        .enable_all()
        .build()
        .and_then(|runtime| {
            let thread = Thread::new().name(name.to_owned()).spawn(work);
            match thread {
                Ok(_) => Ok(runtime),
                Err(error) => {
                    // It must not be dropped by an async task.
                    runtime.shutdown_background();
                    Err(error)
                }
            }
        });
    match started {
        Ok(runtime) => {
            // The thread waits for it, and there is room.
            let _taken = give.send((runtime, connection));
            Ok(())
        }
        Err(error) => Err((error, connection)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[tokio::test]
    async fn what_a_connection_began_outlives_its_panic() {
        let (go_on, waits) = tokio::sync::oneshot::channel::<()>();
        let (end, ended) = tokio::sync::oneshot::channel();
        let connection = move || async move {
            tokio::spawn(async move {
                waits.await.expect("told");
                end.send(()).expect("it is waited for");
            });
            panic!("as a connection may");
        };
        assert!(run_alone("its-own", (), connection).is_ok());
        tokio::time::sleep(5 * LOOK).await;
        go_on.send(()).expect("it waits");
        ended.await.expect("it went on");
    }

    #[tokio::test]
    async fn a_thread_goes_with_what_its_connection_began() {
        let (told, heard) = tokio::sync::oneshot::channel();
        let (go_on, waits) = tokio::sync::oneshot::channel::<()>();
        let ended = Arc::new(AtomicBool::new(false));
        let (end, alive) = (Arc::clone(&ended), Arc::new(()));
        let held = Arc::downgrade(&alive);
        let connection = move || async move {
            assert!(MayWait::is_set());
            tokio::spawn(async move {
                let _alive = alive;
                waits.await.expect("told");
                end.store(true, Ordering::SeqCst);
            });
            told.send(std::thread::current().name().map(str::to_owned))
                .expect("it is waited for");
        };
        assert!(run_alone("its-own", (), connection).is_ok());
        assert_eq!(heard.await.expect("told").as_deref(), Some("its-own"));
        assert!(!MayWait::is_set());
        tokio::time::sleep(5 * LOOK).await;
        assert!(held.upgrade().is_some(), "what it began goes on");
        go_on.send(()).expect("it waits");
        while held.upgrade().is_some() {
            tokio::time::sleep(LOOK).await;
        }
        assert!(ended.load(Ordering::SeqCst));
    }
}
