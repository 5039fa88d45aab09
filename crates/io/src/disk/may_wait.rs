//! Threads that may wait for a disk: what they ask of the page cache they do themselves.
//!
//! A write into the page cache takes microseconds where the disk is well, and for ever where it
//! hangs. A thread that serves many connections hands it to a thread of the disk, which costs as
//! much as the copy. A thread that serves one writer and nothing else may as well wait.

use std::cell::Cell;
use std::marker::PhantomData;

use super::schedule::Request;
use crate::class::IoClass;

/// Bytes of a write that such a thread does itself, at most. More is better spread over threads.
const SMALL: u64 = 64 << 10;

thread_local! {
    static MAY_WAIT: Cell<bool> = const { Cell::new(false) };
}

/// While it lives, its thread may wait for a disk. Stays on that thread.
#[derive(Debug)]
pub struct MayWait(PhantomData<*const ()>);

impl MayWait {
    /// This thread serves one writer: small writes of clients into the page cache are done at
    /// once, on this thread, where nothing waits before them. Their limits, order and counts are
    /// those of all writes.
    #[must_use]
    pub fn this_thread() -> Self {
        MAY_WAIT.set(true);
        Self(PhantomData)
    }

    /// Whether this thread may wait.
    #[must_use]
    pub fn is_set() -> bool {
        MAY_WAIT.get()
    }

    /// Whether this thread does such a request itself.
    pub(super) fn takes(request: &Request) -> bool {
        let cached = request.stream.is_none() && request.class == IoClass::ClientWrite;
        cached && request.bytes <= SMALL && Self::is_set()
    }
}

impl Drop for MayWait {
    fn drop(&mut self) {
        MAY_WAIT.set(false);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread::{ThreadId, current};
    use std::time::Duration;

    use super::*;
    use crate::disk::schedule::Stream;
    use crate::disk::{Disk, DiskConfig};

    fn write_of(bytes: u64) -> Request {
        Request {
            class: IoClass::ClientWrite,
            stream: None,
            bytes,
        }
    }

    /// Which thread carries a request out.
    async fn thread_of(disk: &Disk, request: Request) -> ThreadId {
        let done = disk.transfer(request, move || (current().id(), request.bytes));
        done.await.expect("carried out")
    }

    #[tokio::test]
    async fn a_thread_that_may_wait_does_small_writes_itself_and_nothing_else() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let disk = Disk::for_path(dir.path(), &DiskConfig::default()).expect("a disk");
        let me = current().id();
        let small = write_of(SMALL);
        assert_ne!(thread_of(&disk, small).await, me);
        let may_wait = MayWait::this_thread();
        assert_eq!(thread_of(&disk, small).await, me);
        assert_ne!(thread_of(&disk, write_of(SMALL + 1)).await, me);
        let read = Request {
            class: IoClass::ClientRead,
            ..small
        };
        assert_ne!(thread_of(&disk, read).await, me);
        drop(may_wait);
        assert_ne!(thread_of(&disk, small).await, me);
        // The disk's own threads count a write after they have told of it.
        let written = || disk.stats().class(IoClass::ClientWrite).bytes;
        for _ in 0..1000 {
            if written() == 4 * SMALL + 1 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{} bytes are counted", written());
    }

    #[tokio::test]
    async fn it_waits_its_turn_where_as_many_as_may_are_under_way() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let config = DiskConfig {
            data_threads: 1,
            ..DiskConfig::default()
        };
        let disk = Disk::for_path(dir.path(), &config).expect("a disk");
        let (go_on, hangs) = mpsc::channel::<()>();
        let hung = disk.transfer(write_of(1), move || (hangs.recv().is_ok(), 1));
        let _may_wait = MayWait::this_thread();
        // Both return at once: the writes are the disk's.
        let [first, second] = [0, 1].map(|_| thread_of(&disk, write_of(1)));
        let (mut first, mut second) = (Box::pin(first), Box::pin(second));
        assert!(futures_util::poll!(&mut first).is_pending());
        assert!(futures_util::poll!(&mut second).is_pending());
        go_on.send(()).expect("it hangs");
        assert_eq!(hung.await, Some(true));
        let me = current().id();
        assert!(first.await != me && second.await != me);
    }

    #[tokio::test]
    async fn what_waits_for_the_device_holds_up_no_small_write() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let config = DiskConfig {
            depth: 1,
            ..DiskConfig::default()
        };
        let disk = Disk::for_path(dir.path(), &config).expect("a disk");
        let (go_on, hangs) = mpsc::channel::<()>();
        let of_device = Request {
            stream: Some(Stream { id: 1, offset: 0 }),
            ..write_of(1)
        };
        let hung = disk.transfer(of_device, move || (hangs.recv().is_ok(), 1));
        let mut waits = Box::pin(thread_of(&disk, of_device));
        assert!(futures_util::poll!(&mut waits).is_pending());
        let _may_wait = MayWait::this_thread();
        assert_eq!(thread_of(&disk, write_of(1)).await, current().id());
        assert!(futures_util::poll!(&mut waits).is_pending());
        go_on.send(()).expect("it hangs");
        assert_eq!(hung.await, Some(true));
        waits.await;
    }
}
