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

use super::lane::{Doing, Task, TaskLane};
use crate::class::IoClass;

/// Drops things on the closing thread of a disk.
#[derive(Clone)]
pub(crate) struct Closer(Arc<TaskLane>);

impl Closer {
    pub(super) fn new(lane: Arc<TaskLane>) -> Self {
        Self(lane)
    }

    /// Drops `what`, which is open at `path`, there. Never waits; here and now only when the disk
    /// itself is no longer used.
    pub(crate) fn close<T: Send + 'static>(&self, path: Arc<Path>, what: T) {
        let task = Task {
            job: Box::new(move || drop(what)),
            watched: Some(Doing {
                what: "close",
                path,
            }),
        };
        // One order is as good as another: the lane has one thread.
        drop(self.0.push(IoClass::Delete, task));
    }

    /// `value`, which is open at `path`, to be dropped there.
    pub(crate) fn guard<T: Send + 'static>(&self, path: &Path, value: T) -> Aside<T> {
        Aside {
            inside: Some((path.into(), value)),
            closer: self.clone(),
        }
    }
}

/// Something with open descriptors; they are closed by a thread of the disk, soon after this was
/// dropped.
pub(crate) struct Aside<T: Send + 'static> {
    /// Taken by the drop.
    inside: Option<(Arc<Path>, T)>,
    closer: Closer,
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
            self.closer.close(path, value);
        }
    }
}

impl<T: Send + fmt::Debug + 'static> fmt::Debug for Aside<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}
