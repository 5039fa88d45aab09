//! Places for files on their way: so many at a time. A request that waits for one takes it from a
//! client that hardly moves.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::debug;

/// How long a request waits for its turn: several times as long as clients are watched, because
/// one that does not read looks fast until its buffers are full.
const TURN_WITHIN: Duration = Duration::from_secs(45);
/// So long a client is watched before its turn is taken for a request that waits.
const WATCHED_FOR: Duration = Duration::from_secs(10);
/// So often one more loses its turn.
const ENDS_EVERY: Duration = Duration::from_secs(1);
/// A client that moves as many bytes meanwhile keeps its turn.
const BYTES_MIN: u64 = 640 << 10;

/// All places of one kind.
#[derive(Debug)]
pub struct Turns {
    places: Arc<Semaphore>,
    taken: Arc<Mutex<Taken>>,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug, Default)]
struct Taken {
    next: u64,
    by: BTreeMap<u64, FileTransfer>,
}

/// A file on its way between a client and the node, whichever places it has.
#[derive(Clone, Debug)]
pub struct FileTransfer {
    progress: Arc<Mutex<Progress>>,
    ended: CancellationToken,
}

#[derive(Debug, Default)]
struct Progress {
    moved: Moved,
    /// The node works on it since then; otherwise it waits for the client.
    ours_since: Option<Instant>,
}

/// What a transfer did so far.
#[derive(Clone, Copy, Debug, Default)]
struct Moved {
    bytes: u64,
    /// Time in which the client waited for the node.
    ours: Duration,
}

impl Progress {
    fn moved(&self, now: Instant) -> Moved {
        let more = self.ours_since.map(|since| now - since);
        Moved {
            ours: self.moved.ours + more.unwrap_or_default(),
            ..self.moved
        }
    }
}

impl FileTransfer {
    /// Begins a transfer that has no place yet. `ended` is cancelled when a place is taken away
    /// from it.
    #[must_use]
    pub fn new(ended: CancellationToken) -> Self {
        Self {
            progress: Arc::default(),
            ended,
        }
    }

    /// Does what the client has to wait for: that it takes long is not the client's fault.
    pub async fn ours<T>(&self, work: impl Future<Output = T>) -> T {
        let _working = Working::begin(self);
        work.await
    }

    /// The client sent or took bytes.
    pub fn moved(&self, bytes: usize) {
        lock(&self.progress).moved.bytes += bytes as u64;
    }

    /// Waits until a place is taken away.
    pub async fn ended(&self) {
        self.ended.cancelled().await;
    }

    fn so_far(&self, now: Instant) -> Moved {
        lock(&self.progress).moved(now)
    }
}

impl Turns {
    /// Makes places for so many files at a time.
    #[must_use]
    pub fn new(places: usize) -> Self {
        Self {
            places: Arc::new(Semaphore::new(places)),
            taken: Arc::default(),
        }
    }

    /// Waits for a turn; `None` when none becomes free.
    pub async fn next(&self, transfer: &FileTransfer) -> Option<Turn> {
        let place = Arc::clone(&self.places).acquire_owned();
        let place = tokio::select! {
            biased;
            place = place => place.ok()?,
            () = tokio::time::sleep(TURN_WITHIN) => return None,
            () = self.make_room() => return None,
        };
        let mut taken = lock(&self.taken);
        let id = taken.next;
        taken.next += 1;
        taken.by.insert(id, transfer.clone());
        Some(Turn {
            id,
            taken: Arc::clone(&self.taken),
            transfer: transfer.clone(),
            _place: place,
        })
    }

    /// Watches transfers and ends slow ones, for as long as a request waits. One after the other:
    /// its place may go to a request that waits for longer.
    async fn make_room(&self) {
        loop {
            let began = Instant::now();
            let before: BTreeMap<u64, Moved> = {
                let taken = lock(&self.taken);
                let all = taken.by.iter();
                all.map(|(id, of)| (*id, of.so_far(began))).collect()
            };
            tokio::time::sleep(WATCHED_FOR).await;
            while self.end_slowest(&before, began) {
                tokio::time::sleep(ENDS_EVERY).await;
            }
        }
    }

    /// Ends the slowest of those that were there before and wait for their clients; whether there
    /// is one.
    fn end_slowest(&self, before: &BTreeMap<u64, Moved>, began: Instant) -> bool {
        let now = Instant::now();
        let watched = now - began;
        let taken = lock(&self.taken);
        let slow = taken.by.iter().filter_map(|(id, transfer)| {
            let (then, now) = (before.get(id)?, transfer.so_far(now));
            let bytes = now.bytes - then.bytes;
            let ours = now.ours.saturating_sub(then.ours);
            let is_slow = bytes < BYTES_MIN && ours < watched / 2;
            (is_slow && !transfer.ended.is_cancelled()).then_some((bytes, transfer))
        });
        let Some((bytes, transfer)) = slow.min_by_key(|(bytes, _)| *bytes) else {
            return false;
        };
        debug!(bytes, "a slow client loses its turn to another");
        transfer.ended.cancel();
        true
    }
}

/// A place among the files that are read or written, until it is dropped.
#[derive(Debug)]
pub struct Turn {
    id: u64,
    taken: Arc<Mutex<Taken>>,
    transfer: FileTransfer,
    _place: OwnedSemaphorePermit,
}

impl Deref for Turn {
    type Target = FileTransfer;

    fn deref(&self) -> &FileTransfer {
        &self.transfer
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        lock(&self.taken).by.remove(&self.id);
    }
}

/// The node works on a transfer, until it is dropped.
struct Working<'a>(&'a FileTransfer);

impl<'a> Working<'a> {
    fn begin(transfer: &'a FileTransfer) -> Self {
        lock(&transfer.progress).ours_since = Some(Instant::now());
        Self(transfer)
    }
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        let mut progress = lock(&self.0.progress);
        progress.moved = progress.moved(Instant::now());
        progress.ours_since = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FileError, StripeRoom};

    fn idle() -> FileTransfer {
        FileTransfer::new(CancellationToken::new())
    }

    async fn taken(turns: &Turns) -> Turn {
        turns.next(&idle()).await.expect("free")
    }

    /// Whether one more gets a turn while others work, and after how long.
    async fn waits(turns: &Turns, others: impl Future<Output = ()>) -> (Option<Turn>, Duration) {
        let began = Instant::now();
        let transfer = idle();
        let next = turns.next(&transfer);
        tokio::pin!(next);
        let turn = tokio::select! {
            turn = &mut next => turn,
            () = others => next.await,
        };
        (turn, began.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn the_slowest_makes_room_and_no_other() {
        let turns = Turns::new(3);
        let (fast, slow) = (taken(&turns).await, taken(&turns).await);
        let slower = taken(&turns).await;
        let others = async {
            let mut slower = Some(slower);
            for step in 0.. {
                tokio::time::sleep(Duration::from_millis(300)).await;
                fast.moved(50 << 10);
                slow.moved(1000);
                if let Some(turn) = slower.take_if(|turn| turn.ended.is_cancelled()) {
                    drop(turn);
                } else if let Some(turn) = &slower {
                    turn.moved(step % 2);
                }
            }
        };
        let (turn, after) = waits(&turns, others).await;
        assert!(
            turn.is_some() && after <= Duration::from_secs(12),
            "{after:?}"
        );
        assert!(!fast.ended.is_cancelled() && !slow.ended.is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn no_one_loses_a_turn_while_there_is_room_or_the_node_is_slow() {
        let turns = Turns::new(2);
        let idle = taken(&turns).await;
        tokio::time::sleep(Duration::from_secs(100)).await;
        let ours = taken(&turns).await;
        assert!(!idle.ended.is_cancelled(), "there is room");
        drop(idle);
        let fast = taken(&turns).await;
        let others = async {
            let moving = async {
                loop {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    fast.moved(1 << 20);
                }
            };
            ours.ours(moving).await
        };
        let (turn, after) = waits(&turns, others).await;
        assert!(turn.is_none() && after == TURN_WITHIN, "{after:?}");
        assert!(!fast.ended.is_cancelled() && !ours.ended.is_cancelled());
        drop((fast, ours));
        assert_eq!(lock(&turns.taken).by.len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_striped_file_takes_the_place_of_a_slow_client() {
        let places = Arc::new(Turns::new(2));
        let (slow, fast, next) = (idle(), idle(), idle());
        let room = |of: &FileTransfer| StripeRoom::new(Arc::clone(&places), of.clone());
        let place = room(&slow).enter().await.expect("free");
        let kept = room(&fast).enter().await.expect("free");
        let began = Instant::now();
        let others = async {
            let loses = async {
                slow.ended().await;
                drop(place);
                std::future::pending::<()>().await;
            };
            let moves = async {
                loop {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    fast.moved(1 << 20);
                }
            };
            tokio::join!(loses, moves)
        };
        let entering = room(&next);
        let entered = tokio::select! {
            entered = entering.enter() => entered,
            _ = others => unreachable!("they go on"),
        };
        let after = began.elapsed();
        assert!(
            entered.is_ok() && after < Duration::from_secs(12),
            "{after:?}"
        );
        // Both move now: there is no place for one more.
        let other = room(&idle());
        let mut late = std::pin::pin!(other.enter());
        for _ in 0..60 {
            let second = Duration::from_secs(1);
            if let Ok(late) = tokio::time::timeout(second, &mut late).await {
                assert!(matches!(late, Err(FileError::Busy)), "{late:?}");
                drop((kept, entered));
                return;
            }
            fast.moved(1 << 20);
            next.moved(1 << 20);
        }
        panic!("it waits for ever");
    }
}
