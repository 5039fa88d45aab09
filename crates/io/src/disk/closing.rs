//! Closing files where a disk that gives no answer holds up no other file.
//!
//! close(2) may wait for the device: it gives back the space of a file whose names are gone, and
//! room that was reserved behind the end; a network file system writes what it has. A task that
//! uses a file last, however, is a thread that serves many: of a connection, or of another disk. So
//! what holds descriptors is dropped on a thread of its disk that does nothing else. There are
//! never more waiting than descriptors are open.

use std::fmt;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use super::task_lane::{Doing, Task, TaskLane};
use crate::class::IoClass;

/// Drops `what`, which is open at `path`, on the closing thread of a disk. Never waits. Drops here
/// and now only when the disk itself is no longer used.
pub(super) fn close<T: Send + 'static>(lane: &Arc<TaskLane>, path: Arc<Path>, what: T) {
    let job = move || {
        drop(what);
        0
    };
    let task = Task {
        job: Box::new(job),
        watched: Some(Doing {
            what: "close",
            path,
        }),
    };
    // One order is as good as another: the lane has one thread.
    drop(lane.push(IoClass::Delete, task));
}

/// Something with open descriptors; they are closed by a thread of the disk, soon after this was
/// dropped.
pub(crate) struct Aside<T: Send + 'static> {
    /// Taken by the drop.
    inside: Option<(Arc<Path>, T)>,
    closing: Arc<TaskLane>,
}

impl<T: Send + 'static> Aside<T> {
    /// `value`, which is open at `path`, to be dropped on the closing thread of `closing`.
    pub(super) fn new(closing: &Arc<TaskLane>, path: &Path, value: T) -> Self {
        Self {
            inside: Some((path.into(), value)),
            closing: Arc::clone(closing),
        }
    }
}

impl<T: Send + 'static> Deref for Aside<T> {
    type Target = T;

    fn deref(&self) -> &T {
        let inside = self.inside.as_ref();
        &inside.expect("taken by the drop only").1
    }
}

impl<T: Send + 'static> Drop for Aside<T> {
    fn drop(&mut self) {
        if let Some((path, value)) = self.inside.take() {
            close(&self.closing, path, value);
        }
    }
}

impl<T: Send + fmt::Debug + 'static> fmt::Debug for Aside<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}
