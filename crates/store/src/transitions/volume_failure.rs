//! What happens when a volume fails.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::StreamExt as _;
use hayloft_io::{Means, locks, told_if_broken};
use hayloft_wire::ids::ExtendedBlock;
use tokio::sync::{MutexGuard, mpsc};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, error, warn};

use crate::config::tolerated;
use crate::replica::{Gone, Slot};
use crate::state::StoreState;
use crate::types::{FailedVolume, FailureSummary, StoreEvent};
use crate::volume::Volume;

/// Copies on disks that take their places at the same time, at most.
const FALL_BACKS_MAX: usize = 8;
/// How long the report of a failure waits for the list of replicas that left with the volume.
const SOON: Duration = Duration::from_secs(1);

/// Takes a failed volume out of use: its replicas are dropped from the maps, its writers stopped.
/// That goes on where the caller does not wait for it.
pub async fn fail(store: &Arc<StoreState>, volume: &Arc<Volume>, reason: &str) {
    if !volume.set_failed() {
        return;
    }
    let (failing, failed, reason) = (Arc::clone(store), Arc::clone(volume), reason.to_owned());
    let leaving = async move {
        let turn = failing.failing.lock().await;
        leave_service(&failing, &failed, &reason, turn).await;
    };
    let _ended = store.tasks.spawn(leaving.in_current_span()).await;
}

/// As [`fail`], of which it is the turn.
pub(super) async fn fail_in_turn(
    store: &Arc<StoreState>,
    volume: &Arc<Volume>,
    reason: &str,
    turn: MutexGuard<'_, ()>,
) {
    if volume.set_failed() {
        leave_service(store, volume, reason, turn).await;
    }
}

async fn leave_service(
    store: &Arc<StoreState>,
    volume: &Arc<Volume>,
    reason: &str,
    _turn: MutexGuard<'_, ()>,
) {
    error!(volume = %volume.root.display(), storage = %volume.info.id, reason, "volume has failed");
    // A task of its own: what noticed the failure may be among what ends with the volume.
    let retired = retire(Arc::clone(store), Arc::clone(volume), reason.to_owned());
    let retired = told_if_broken("end of a failed volume", retired);
    if let Ok(None) = store.tasks.spawn(retired.in_current_span()).await {
        // No task knows what is still served of it: the node does not go on.
        tell_failed(store, volume, reason.to_owned(), true).await;
    }
}

async fn tell_failed(store: &Arc<StoreState>, volume: &Volume, reason: String, fatal: bool) {
    let (path, storage) = (volume.root.clone(), volume.info.clone());
    let event = StoreEvent::VolumeFailed {
        path,
        storage,
        reason,
        fatal,
    };
    store.send_event(event).await;
}

/// Does and tells what follows from the failure of a volume.
async fn retire(store: Arc<StoreState>, volume: Arc<Volume>, reason: String) {
    let (store, volume) = (&store, &volume);
    if let Some(protection) = &store.protection {
        protection.volume_failed(store, volume);
    }
    remove_from_service(store, volume);
    let Leaving { mut lost, closed } = leave(store, volume, true);
    let until = tokio::time::Instant::now() + SOON;
    let soon = tokio::time::timeout_at(until, lost.recv()).await;
    // The operator who hears of it may put the directory in again at once.
    let _ = tokio::time::timeout_at(until, closed.cancelled()).await;
    let (healthy, failed) = {
        let mut volumes = locks::write(&store.volumes);
        let capacity = volume.numbers().capacity;
        volumes.failed.push(FailedVolume {
            path: volume.root.clone(),
            reason: reason.clone(),
            at: SystemTime::now(),
            capacity,
        });
        (volumes.healthy.len(), volumes.failed.len())
    };
    let fatal = !tolerated(store.tolerated_failures(), healthy, failed);
    warn!(volume = %volume.root.display(), healthy, failed, fatal, "replicas of the failed volume \
        are no longer served");
    tell_failed(store, volume, reason, fatal).await;
    if fatal {
        return;
    }
    let told = {
        let (store, volume) = (Arc::clone(store), Arc::clone(volume));
        async move {
            match soon {
                Ok(lost) => send_lost(&store, &volume, lost.unwrap_or_default()).await,
                Err(_) => send_lost_once_known(&store, &volume, lost).await,
            }
        }
    };
    if volume.info.storage_type.is_transient() {
        // Copies take their places meanwhile, on disks of which another may fail.
        store.tasks.spawn_here(told);
    } else {
        told.await;
    }
}

/// Takes a volume out of use that has not failed. Waits until its directory is given up, but no
/// longer than a check of it may take, nor when the node stops. Closing a file writes what it has,
/// and the disk may give no answer. Whether it is given up.
pub async fn take_out(store: &Arc<StoreState>, volume: &Arc<Volume>) -> bool {
    if let Some(protection) = &store.protection {
        protection.volume_left(volume);
    }
    remove_from_service(store, volume);
    let Leaving { lost, closed } = leave(store, volume, true);
    send_lost_later(store, volume, lost);
    let limit = store.config.check_timeout;
    let closed = tokio::select! {
        closed = tokio::time::timeout(limit, closed.cancelled()) => closed.is_ok(),
        () = store.ending.cancelled() => false,
    };
    if !closed {
        warn!(volume = %volume.root.display(), "the files of a volume that was taken out are not \
            closed yet: its disk gives no answer");
    }
    closed
}

/// Drops once more what is known of a volume that failed while a pool was read from it. Its failure
/// did not find the pool, or what was put into the map since.
pub fn leave_if_failed(store: &Arc<StoreState>, volume: &Arc<Volume>) {
    if volume.is_failed() {
        send_lost_later(store, volume, leave(store, volume, false).lost);
    }
}

/// Tells what left with a volume behind the caller's back, since the channel of events may be full
/// for a while.
fn send_lost_later(store: &Arc<StoreState>, volume: &Arc<Volume>, lost: Lost) {
    let (told_of, told) = (Arc::clone(store), Arc::clone(volume));
    let tracker = store.tasks.clone();
    tracker.spawn(async move { send_lost_once_known(&told_of, &told, lost).await });
}

/// What comes of letting go of a volume.
struct Leaving {
    lost: Lost,
    /// All of it is let go of, the directory last.
    closed: CancellationToken,
}

/// Has one list: replicas that NameNodes know of.
type Lost = mpsc::Receiver<Vec<ExtendedBlock>>;

/// Drops what a volume had that left, and with `give_up` its lock, on a thread of its own. Closing
/// a file may take as long as its disk gives no answer.
fn leave(store: &Arc<StoreState>, volume: &Arc<Volume>, give_up: bool) -> Leaving {
    let (send, lost) = mpsc::channel(1);
    let closed = CancellationToken::new();
    let (out_of, leaver, done) = (Arc::clone(store), Arc::clone(volume), closed.clone());
    // A task that hears of the lost volume may begin something.
    let runtime = tokio::runtime::Handle::current();
    let leave = move || {
        let _inside = runtime.enter();
        let _done = done.drop_guard();
        let (lost, left) = drop_replicas(&out_of, &leaver);
        // Before anything is closed. There is room for one; the node stops listening when it
        // stops.
        let _ = send.try_send(lost);
        drop(left);
        if give_up {
            leaver.unlock();
        }
    };
    let thread = std::thread::Builder::new().name("hayloft-left".to_owned());
    if let Err(error) = thread.spawn(leave.clone()) {
        Means::Threads.note();
        warn!(%error, "no thread is left to let go of a volume's files, which may take as long as \
            its disk gives no \
            answer: raise the limit on processes (ulimit -u)");
        leave();
    }
    Leaving { lost, closed }
}

/// Tells what left with a volume once that is known, unless the node stops before.
async fn send_lost_once_known(store: &Arc<StoreState>, volume: &Volume, mut lost: Lost) {
    let told = async {
        let lost = lost.recv().await.unwrap_or_default();
        send_lost(store, volume, lost).await;
    };
    tokio::select! {
        () = store.stop.cancelled() => {}
        () = told => {}
    }
}

/// Sends an event for every replica that left with a volume, as Apache's DataNode tells of each. A
/// NameNode keeps a replica of a storage that is no longer reported until then.
///
/// What memory has lost may have a copy on disk, whose turn is after that of the others: it takes a
/// disk some time.
async fn send_lost(store: &Arc<StoreState>, volume: &Volume, lost: Vec<ExtendedBlock>) {
    let (copied, gone): (Vec<_>, Vec<_>) = match volume.info.storage_type.is_transient() {
        true => lost.into_iter().partition(|block| {
            let pool = store.pool(&block.pool);
            pool.is_ok_and(|pool| pool.map.in_memory.has_stale(block.block.id))
        }),
        false => (Vec::new(), lost),
    };
    let send = |block| {
        store.send_event(StoreEvent::Lost {
            block,
            storage: volume.info.clone(),
        })
    };
    for block in gone {
        send(block).await;
    }
    // A stop waits for none of them: the next start finds the copies.
    let copied = copied
        .into_iter()
        .take_while(|_| !store.ending.is_cancelled());
    let copied = futures_util::stream::iter(copied);
    copied.for_each_concurrent(FALL_BACKS_MAX, send).await;
}

/// Nothing more is placed on the volume, deleted from it or scanned.
pub fn remove_from_service(store: &StoreState, volume: &Volume) {
    locks::write(&store.volumes)
        .healthy
        .retain(|v| v.index != volume.index);
    locks::write(&store.delete_queues).remove(&volume.index);
    locks::write(&store.suspects).remove(&volume.index);
}

/// Removes the volume's replicas from the maps of all pools and cancels their writers. Gives those
/// that NameNodes know of, and what was removed.
fn drop_replicas(store: &StoreState, volume: &Volume) -> (Vec<ExtendedBlock>, Vec<Gone>) {
    let (mut lost, mut left) = (Vec::new(), Vec::new());
    for pool in store.pools() {
        for gone in pool.leave(volume.index) {
            if let Slot::Live(live) = &gone.slot {
                let status = live.status();
                if !status.unwritten {
                    status.cancel.cancel();
                }
            }
            let reported = crate::replica::reference::reported(gone.id, &gone.slot);
            let reported = reported.filter(|_| pool.degraded_replica(gone.id).is_none());
            lost.extend(reported.map(|replica| pool.extended(replica.block)));
            left.push(gone);
        }
    }
    (lost, left)
}

/// Directories that failed, for heartbeats.
#[must_use]
pub fn summary(store: &StoreState) -> FailureSummary {
    let volumes = locks::read(&store.volumes);
    let failed = &volumes.failed;
    let last = failed.iter().map(|f| f.at).max();
    let last_failure_ms = last
        .and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok())
        .and_then(|d| u64::try_from(d.as_millis()).ok())
        .unwrap_or(0);
    let capacities = failed.iter().map(|f| f.capacity);
    FailureSummary {
        failed_locations: failed.iter().map(|f| f.path.clone()).collect(),
        reasons: failed.iter().map(|f| f.reason.clone()).collect(),
        last_failure_ms,
        lost_capacity: capacities.fold(0, u64::saturating_add),
    }
}
