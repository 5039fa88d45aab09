use std::collections::HashSet;
use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::xceiver::net::threads::*;

fn two() -> Threads {
    let mut threads = Threads::start().expect("threads");
    let more = Threads::start().expect("threads");
    threads.workers.truncate(1);
    let Threads {
        mut workers, _stop, ..
    } = more;
    threads.workers.extend(workers.drain(..1));
    // Its threads go on for as long as the test.
    let _never = _stop.disarm();
    threads
}

#[tokio::test]
async fn a_connection_goes_where_the_least_is_to_do() {
    let threads = two();
    let tasks = TaskTracker::new();
    let go_on = Arc::new(Semaphore::new(0));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let mut handles = Vec::new();
    for idle in [false, true, true, false] {
        let (go_on, seen) = (Arc::clone(&go_on), Arc::clone(&seen));
        let (ready, started) = tokio::sync::oneshot::channel();
        handles.push(threads.spawn(&tasks, |place| async move {
            let _busy = (!idle).then(|| place.busy());
            let me = std::thread::current().id();
            seen.lock().expect("no panic holds it").push(me);
            let _heard = ready.send(());
            let _permit = go_on.acquire().await.expect("open");
            assert_eq!(me, std::thread::current().id());
        }));
        started.await.expect("it runs");
    }
    let seen = seen.lock().expect("no panic holds it").clone();
    assert_eq!(seen.iter().collect::<HashSet<_>>().len(), 2);
    // The second and third avoid the busy first, and so does the fourth.
    assert_eq!(seen[1..], [seen[1]; 3]);
    go_on.add_permits(4);
    for handle in handles {
        handle.await.expect("no panic");
    }
    let left = |worker: &Worker| worker.load.now() == (0, 0);
    assert!(threads.workers.iter().all(left));
}

#[tokio::test]
async fn threads_can_be_shared() {
    let me = std::thread::current().id();
    let connection = |_place| async move { assert_eq!(std::thread::current().id(), me) };
    let shared = Threads::shared();
    let done = shared.spawn(&TaskTracker::new(), connection);
    done.await.expect("no panic");
}

/// In an async task, where a runtime that is dropped panics.
#[tokio::test]
async fn a_thread_that_does_not_start_is_an_error() {
    let refused = Threads::start_by(|_, _| Err(io::ErrorKind::WouldBlock.into()));
    let error = refused.expect_err("no thread");
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
}

#[tokio::test]
async fn the_threads_end_with_their_owner() {
    let threads = Threads::start().expect("threads");
    let never = threads.spawn(&TaskTracker::new(), |_place| std::future::pending());
    drop(threads);
    assert!(never.await.expect_err("cut off").is_cancelled());
}

/// What `other` comes to on a thread with a stream that never pauses, whose polls it is given.
async fn beside_a_stream<F>(other: impl FnOnce(Arc<AtomicUsize>) -> F) -> usize
where
    F: Future<Output = usize> + Send + 'static,
{
    let mut threads = Threads::start().expect("threads");
    threads.workers.truncate(1);
    let tasks = TaskTracker::new();
    let stop = CancellationToken::new();
    let polls = Arc::new(AtomicUsize::new(0));
    let (counted, stopped) = (Arc::clone(&polls), stop.clone());
    let stream = threads.spawn(&tasks, |_place| {
        std::future::poll_fn(move |cx| {
            std::thread::sleep(Duration::from_millis(1));
            counted.fetch_add(1, Ordering::Relaxed);
            if stopped.is_cancelled() {
                return std::task::Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            std::task::Poll::Pending
        })
    });
    let (told, found) = tokio::sync::oneshot::channel();
    let other = other(polls);
    let other = threads.spawn(&tasks, |_place| async move {
        told.send(other.await).expect("it is waited for");
    });
    other.await.expect("no panic");
    stop.cancel();
    stream.await.expect("no panic");
    found.await.expect("told")
}

#[tokio::test]
async fn what_other_threads_wake_up_does_not_wait_for_a_stream() {
    type Ask = tokio::sync::oneshot::Sender<usize>;
    let (asked, asks) = std::sync::mpsc::channel::<Ask>();
    let waited = beside_a_stream(|polls| {
        let seen = Arc::clone(&polls);
        // As an engine's thread, on which a write ends.
        std::thread::spawn(move || {
            for ask in asks {
                let _heard = ask.send(seen.load(Ordering::Relaxed));
            }
        });
        async move {
            let mut waited = 0;
            for _ in 0..20 {
                let (ask, answer) = tokio::sync::oneshot::channel();
                asked.send(ask).expect("the thread lives");
                let answered = answer.await.expect("answered");
                waited += polls.load(Ordering::Relaxed) - answered;
            }
            waited
        }
    });
    let waited = waited.await;
    assert!(waited < 80, "{waited} polls of the stream for 20 answers");
}

#[tokio::test]
async fn what_comes_by_a_socket_does_not_wait_for_a_stream() {
    use std::io::{Read as _, Write as _};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let (near, mut far) = std::os::unix::net::UnixStream::pair().expect("a pair");
    near.set_nonblocking(true).expect("set");
    let waited = beside_a_stream(|polls| {
        let seen = Arc::clone(&polls);
        std::thread::spawn(move || {
            while far.read_exact(&mut [0]).is_ok() {
                let seen = seen.load(Ordering::Relaxed) as u64;
                far.write_all(&seen.to_be_bytes()).expect("sent");
            }
        });
        async move {
            let mut near = tokio::net::UnixStream::from_std(near).expect("registered");
            let mut waited = 0;
            for _ in 0..10 {
                near.write_all(&[1]).await.expect("sent");
                let answered = near.read_u64().await.expect("answered");
                waited += polls.load(Ordering::Relaxed) as u64 - answered;
            }
            usize::try_from(waited).expect("few")
        }
    });
    let waited = waited.await;
    assert!(waited < 80, "{waited} polls of the stream for 10 answers");
}
