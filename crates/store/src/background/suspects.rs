//! Replicas that a client could not read, or that a client found damaged: they are looked at at
//! once, beside the round of the block scanner and whatever its rate.
//!
//! What could not be read is tried once more where it failed, which costs as much as it did the
//! client: so each replica of a dying disk is told within seconds, however many there are. What
//! can be read then is compared with its checksums, one replica after the other.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use hayloft_io::{IoClass, IoError, IoErrorKind, IoOp, locks};
use hayloft_wire::ids::PoolId;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::search_bad_disk;
use super::verify_replica::{Looker, NotWhole, Pace, Sure};
use crate::error::StoreError;
use crate::replica::suspect::{Suspect, Why};
use crate::state::StoreState;
use crate::transitions::check_volume::LACKING;

/// Suspects that may wait on a volume; more are forgotten, a search or the round finds them.
const SUSPECTS_MAX: usize = 10_000;
/// Suspects that are tried at once.
const AT_ONCE: usize = 8;
/// How long the second attempt may take. On a disk that is only busy the third may take twice as
/// long: a replica is told after 15 s at the latest.
const LOOK_MAX: Duration = Duration::from_secs(5);
/// A suspect that was compared or told is not looked at again for this long.
const AGAIN: Duration = Duration::from_secs(600);
/// One that could be read at the second attempt may fail a client again soon.
const AGAIN_IF_READ: Duration = Duration::from_secs(5);
/// Suspects are compared at least this fast, bytes a second.
const RATE_MIN: u64 = 32 << 20;

/// Starts to look at suspects, and to search, on every volume where that has not begun.
pub fn start(store: &Arc<StoreState>) {
    for volume in store.volumes() {
        let mut all = locks::write(&store.suspects);
        if all.contains_key(&volume.index) {
            continue;
        }
        let (sender, suspects) = mpsc::channel(SUSPECTS_MAX);
        all.insert(volume.index, sender);
        let (compare, compared) = mpsc::channel(SUSPECTS_MAX);
        let quick = Suspects {
            looker: Looker::new(store, &volume),
            recent: HashMap::new(),
            compare,
        };
        // What waits is not forgotten when the service begins again.
        let all = Arc::new(tokio::sync::Mutex::new((quick, suspects, compared)));
        store.serve("suspects", move || look_at_all(Arc::clone(&all)));
    }
}

type All = (
    Suspects,
    mpsc::Receiver<Suspect>,
    mpsc::Receiver<(PoolId, i64)>,
);

async fn look_at_all(all: Arc<tokio::sync::Mutex<All>>) {
    let (quick, suspects, compared) = &mut *all.lock().await;
    let looker = quick.looker.clone();
    tokio::select! {
        () = looker.store.stop.cancelled() => {}
        () = looker.volume.gone.cancelled() => {}
        () = quick.run(suspects) => {}
        () = compare_all(&looker, compared) => {}
        () = search_bad_disk::run(&looker) => {}
    }
}

/// Compares suspects with their checksums, one after the other.
async fn compare_all(looker: &Looker, suspects: &mut mpsc::Receiver<(PoolId, i64)>) {
    let rate = looker.store.config.scan.bytes_per_second.max(RATE_MIN);
    let mut pace = Pace::rate(rate);
    while let Some((pool, id)) = suspects.recv().await {
        if let Ok(pool) = looker.store.pool(&pool) {
            looker.scan(&pool, id, &mut pace, u32::MAX).await;
        }
    }
    // The sender ends with the volume.
    std::future::pending::<()>().await;
}

struct Suspects {
    looker: Looker,
    /// Suspects that were looked at, until when they are left alone.
    recent: HashMap<(PoolId, i64), Instant>,
    /// Those that can be read.
    compare: mpsc::Sender<(PoolId, i64)>,
}

impl Suspects {
    async fn run(&mut self, suspects: &mut mpsc::Receiver<Suspect>) {
        let mut looks = FuturesUnordered::new();
        loop {
            tokio::select! {
                Some((key, again)) = looks.next(), if !looks.is_empty() => {
                    self.leave_alone(key, again);
                }
                suspect = suspects.recv(), if looks.len() < AT_ONCE => match suspect {
                    Some(suspect) => looks.extend(self.begin(suspect)),
                    None => break,
                },
            }
        }
        // The sender went with the volume, which tells those who wait for this.
        std::future::pending::<()>().await;
    }

    /// Leaves a suspect alone for a while. Of too many some are looked at again too soon.
    fn leave_alone(&mut self, key: (PoolId, i64), time: Duration) {
        if self.recent.len() < SUSPECTS_MAX || self.recent.contains_key(&key) {
            self.recent.insert(key, Instant::now() + time);
        }
    }

    /// A look at a suspect, unless there was one a while ago or is one. It gives how long the
    /// suspect is left alone.
    fn begin(
        &mut self,
        Suspect { pool, id, why }: Suspect,
    ) -> Option<impl Future<Output = ((PoolId, i64), Duration)> + use<>> {
        let now = Instant::now();
        if self.recent.len() >= SUSPECTS_MAX {
            self.recent.retain(|_, until| *until > now);
        }
        let key = (pool, id);
        if self.recent.get(&key).is_some_and(|until| *until > now) {
            return None;
        }
        self.leave_alone(key.clone(), AGAIN);
        let (looker, compare) = (self.looker.clone(), self.compare.clone());
        Some(async move {
            let look = look_at(&looker, &key, why, &compare);
            let again = looker.unless_broken((&key.0, key.1), look).await;
            (key, again.unwrap_or(AGAIN))
        })
    }
}

/// Tries once more what could not be read, and tells of it if that fails too or takes too long.
async fn look_at(
    looker: &Looker,
    key: &(PoolId, i64),
    why: Why,
    compare: &mpsc::Sender<(PoolId, i64)>,
) -> Duration {
    let Ok(pool) = looker.store.pool(&key.0) else {
        return AGAIN_IF_READ;
    };
    let Some(replica) = looker.here(&pool, key.1) else {
        return AGAIN_IF_READ;
    };
    let (at, twice) = match why {
        Why::Unreadable(at) => (at, true),
        Why::Damage => (None, false),
    };
    let class = IoClass::ClientRead;
    let mut limit = LOOK_MAX;
    let glance = loop {
        let glance = looker.glance(&pool, key.1, &replica, at.clone(), class);
        match tokio::time::timeout(limit, glance).await {
            Ok(Err(found)) if found.is_lack() => tokio::time::sleep(LACKING).await,
            Err(_) if twice && limit == LOOK_MAX => limit = LOOK_MAX * 2,
            outcome => break outcome,
        }
    };
    let outcome = match glance {
        Ok(outcome) => outcome,
        // A disk that tries for so long what it has failed at before is no better than it was.
        Err(_) if twice => {
            let text = format!("no answer for {} s after an error", limit.as_secs());
            let error = IoError::new(IoErrorKind::MediaError, IoOp::Read, Path::new(""), text);
            let doing = format!("reading replica blk_{} again", key.1);
            Err(NotWhole::new(StoreError::io(doing, error), at))
        }
        Err(_) => Ok(0),
    };
    match outcome {
        Err(found) => {
            let sure = if twice || !found.is_of_disk() {
                Sure::Yes
            } else {
                Sure::No
            };
            let told = looker.settle(&pool, key.1, &replica, found, sure).await;
            if told { AGAIN } else { AGAIN_IF_READ }
        }
        Ok(_) => {
            let room = compare.try_send(key.clone()).is_ok();
            if room && !twice { AGAIN } else { AGAIN_IF_READ }
        }
    }
}
